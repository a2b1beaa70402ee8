"""Two acts on one run at the same moment: both are answered, one approval pays once, and nothing is left half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.runs.branches import Branches
from hai_flow.settings import Settings
from tests.runtime.conftest import Make
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess, expect
from tests.support.waiting import until

FLOW: Final = """\
hai: flow/v1
name: {name}
version: 1
concurrency: {{key: "${{{{ input.key }}}}", limit: 1}}
input: {{type: object, properties: {{key: {{type: string}}}}}}
tools: {{fx: {{python: tests.support.effects, effect: write}}}}
steps:
  - {{id: hold, call: fx.echo, with: {{value: held}}, undo: {{call: fx.echo, with: {{value: released}}}}}}
  - {{id: sure, approve: {{title: Pay?, from: anyone}}}}
  - {{id: pay, call: fx.echo, with: {{value: paid}}}}
"""
ENDED: Final = ("finished", "failed", "stopped")
ACTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "approve": ("decide", {"decision": "approve"}),
    "reject": ("decide", {"decision": "reject"}),
    "skip": ("skip", {"step": "sure"}),
    "stop": ("stop", {}),
    "terminate": ("terminate", {}),
    "pause": ("pause", {}),
    "fork": ("fork", {"step": "sure"}),
    "fork from the beginning": ("fork", {"step": "hold"}),
}
PAIRS: Final = [
    (first, second)
    for first in ACTS
    for second in ACTS
    if first < second or (first == second and ACTS[first][0] in ("fork", "decide", "skip"))
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_of_two_acts_at_once_both_are_answered_and_nothing_is_half_done(
    server: ServerProcess, first: str, second: str
) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
        name, thread = unique("twice").replace("-", "_"), unique("thread")
        assert (await http.post("/v1/workflows", content=FLOW.format(name=name), headers=YAML)).status_code == 201
        body = {"workflow": name, "thread_id": thread, "input": {"key": thread}}
        run = (await http.post("/v1/runs", json=body)).json()["id"]
        await until(lambda: is_now(http, run, "waiting"))
        pending = next(
            each["id"]
            for each in (await http.get("/v1/pendings", params={"run_id": run})).json()["items"]
            if each["run_id"] == run
        )

        async def do(what: str) -> httpx2.Response:
            act, content = ACTS[what]
            path = f"/v1/pendings/{pending}/decide" if act == "decide" else f"/v1/runs/{run}/{act}"
            return await http.post(path, json=content, headers={"Idempotency-Key": unique("act")})

        answers = await asyncio.gather(do(first), do(second))
        for answer in answers:
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
        await until(lambda: all_at_rest(http, thread))
        runs = (await http.get("/v1/runs", params={"thread_id": thread})).json()["items"]
        forks = [each for each in runs if each["id"] != run]
        begun = [answer for what, answer in zip((first, second), answers, strict=True) if what.startswith("fork")]
        assert len(forks) == sum(answer.status_code == 201 for answer in begun)
        assert [each["status"] for each in runs].count("waiting") <= 1, "one key, one active run"
        paid = [each["id"] for each in runs if await has_paid(http, each["id"])]
        assert len(paid) <= 1, f"one approval pays once: {[answer.text for answer in answers]}"
        if {first, second} <= {"approve", "skip"}:
            assert paid == [run]
        elif paid:
            assert {"approve", "skip"} & {first, second}
        if not forks and "terminate" not in (first, second) and await is_now(http, run, "stopped"):
            events = (await http.get(f"/v1/runs/{run}/events")).json()["items"]
            assert any("undo" in event["type"] for event in events), "what was held is given back, or left to a fork"


async def is_now(http: httpx2.AsyncClient, run: str, status: str) -> bool:
    return (await http.get(f"/v1/runs/{run}")).json()["status"] == status


async def all_at_rest(http: httpx2.AsyncClient, thread: str) -> bool:
    runs = (await http.get("/v1/runs", params={"thread_id": thread})).json()["items"]
    return all(each["status"] in (*ENDED, "waiting", "paused", "needs_attention") for each in runs)


async def has_paid(http: httpx2.AsyncClient, run: str) -> bool:
    steps = (await http.get(f"/v1/runs/{run}/steps")).json()["items"]
    return any(each["path"] == "pay" and each["status"] == "finished" for each in steps)


# --- between what a request reads and its commit ----------------------------------------------------------------------

SHARED: Final = """\
hai: flow/v1
name: {name}
version: 1
tools:
  fx: {{python: tests.support.effects, effect: write}}
  look: {{python: tests.support.effects, effect: read}}
steps:
  - {{id: sure, approve: {{title: Pay?, from: anyone}}}}
  - {{id: more, ask: {{title: More?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
  - {{id: late, call: look.breaks}}
  - {{id: pay, call: fx.echo, with: {{value: paid}}}}
"""


class Relatives:
    """A run that has failed behind an approval, at a server in this process, and a request that is held between what it
    reads of the run's relatives and its commit."""

    def __init__(self, http: httpx2.AsyncClient, branches: Branches, monkeypatch: pytest.MonkeyPatch) -> None:
        self.http, self.branches, self.monkeypatch = http, branches, monkeypatch
        self.thread, self.first = unique("thread"), ""

    async def begin(self) -> None:
        name = unique("shared").replace("-", "_")
        assert (await self.http.post("/v1/workflows", content=SHARED.format(name=name), headers=YAML)).is_success
        body = {"workflow": name, "thread_id": self.thread}
        self.first = (await self.http.post("/v1/runs", json=body)).json()["id"]
        await self.answer(self.first, {"decision": "approve"})
        await until(lambda: self.waits(self.first, "More?"))
        marks = (await self.http.get(f"/v1/runs/{self.first}/marks")).json()["items"]
        self.at = next(each["seq"] for each in reversed(marks) if each["step"] is None)
        await self.answer(self.first, {"values": {}})
        await until(lambda: is_now(self.http, self.first, "failed"))

    async def waits(self, run: str, title: str = "") -> str | None:
        items = (await self.http.get("/v1/pendings", params={"run_id": run})).json()["items"]
        return next((str(each["id"]) for each in items if title in each["title"]), None)

    async def answer(self, run: str, body: dict[str, Any]) -> None:
        await until(lambda: self.waits(run))
        pending = await self.waits(run)
        assert (await self.http.post(f"/v1/pendings/{pending}/decide", json=body)).is_success

    async def fork(self) -> httpx2.Response:
        return await self.http.post(f"/v1/runs/{self.first}/fork", json={"at": self.at})

    async def failed_fork(self) -> str:
        forked = expect(await self.fork(), 201)
        await self.answer(forked.json()["id"], {"values": {}})
        await until(lambda: is_now(self.http, forked.json()["id"], "failed"))
        return str(forked.json()["id"])

    async def pay(self, run: str) -> httpx2.Response:
        """Go on behind what breaks, and come to the end."""
        answer = await self.http.post(f"/v1/runs/{run}/skip", json={"step": "late"})
        if answer.is_success:
            await until(lambda: is_now(self.http, run, "finished"))
        return answer

    def hold(self, name: str, which: int, meanwhile: Callable[[], Awaitable[httpx2.Response]]) -> list[httpx2.Response]:
        """Behind the call number `which` of a reading method of `Branches` comes `meanwhile`, whole. Returns a list in
        which its answer will be."""
        read, calls, answers = getattr(self.branches, name), 0, list[httpx2.Response]()

        async def held(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            found, mine = await read(*args, **more), calls
            if mine == which:
                answers.append(await meanwhile())
            return found

        self.monkeypatch.setattr(self.branches, name, held)
        return answers

    async def paid(self) -> int:
        runs = (await self.http.get("/v1/runs", params={"thread_id": self.thread})).json()["items"]
        return sum([await has_paid(self.http, each["id"]) for each in runs])


@pytest.fixture
async def relatives(make: Make, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Relatives]:
    runtime = await make(performs=True)
    transport = httpx2.ASGITransport(app=create_app(Settings(publish=True), runtime), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as http:
        relatives = Relatives(http, runtime.branches, monkeypatch)
        await relatives.begin()
        yield relatives


@pytest.mark.parametrize("payer", ["the run", "a fork of it"])
@pytest.mark.parametrize("way", ["retry", "skip", "bulk"])
async def test_no_relative_uses_an_approval_between_a_runs_read_and_commit(
    relatives: Relatives, way: str, payer: str
) -> None:
    it, second = relatives, await relatives.failed_fork()
    paying, other = (it.first, second) if payer == "the run" else (second, it.first)
    meanwhile = it.hold("list_acted_elsewhere", 1, lambda: it.pay(paying))
    if way == "bulk":
        await it.http.post("/v1/runs/bulk", json={"action": "retry", "runs": [other]})
    else:
        await it.http.post(f"/v1/runs/{other}/{way}", json={"step": "late"} if way == "skip" else None)
    assert [each.json()["code"] for each in meanwhile] == ["thread_busy"]
    await until(lambda: all_at_rest(it.http, it.thread))
    assert await it.paid() == (1 if way == "skip" else 0)


@pytest.mark.parametrize("call", [1, 2])
async def test_a_run_uses_no_approval_between_its_forks_read_and_commit(relatives: Relatives, call: int) -> None:
    it = relatives
    meanwhile = it.hold("find_effects", call, lambda: it.pay(it.first))
    forked = await it.fork()
    if call == 1:  # the fork looks again when it has the thread for itself
        assert [each.status_code for each in meanwhile] == [200]
        assert forked.json()["code"] == "fork_approved", forked.text
    else:
        assert [each.json()["code"] for each in meanwhile] == ["thread_busy"]
        assert forked.status_code == 201, forked.text
    assert await it.paid() == (call == 1)


async def test_a_run_that_ends_while_a_skip_is_on_its_way_is_looked_at_again(relatives: Relatives) -> None:
    """It waits when the request reads it; then it fails, is forked, and the fork pays."""
    it = relatives
    waiting = expect(await it.fork(), 201).json()["id"]

    async def fails_and_its_fork_pays() -> httpx2.Response:
        await it.answer(waiting, {"values": {}})
        await until(lambda: is_now(it.http, waiting, "failed"))
        return await it.pay(it.first)

    meanwhile = it.hold("list_acted_elsewhere", 1, fails_and_its_fork_pays)
    late = await it.http.post(f"/v1/runs/{waiting}/skip", json={"step": "late"})
    assert [each.status_code for each in meanwhile] == [200]
    assert late.json()["code"] == "retry_approved", late.text
    assert await it.paid() == 1


async def test_a_thread_whose_run_was_not_let_go_on_is_free_at_once(relatives: Relatives) -> None:
    it, second = relatives, await relatives.failed_fork()
    assert (await it.pay(second)).status_code == 200
    assert (await it.http.post(f"/v1/runs/{it.first}/retry")).json()["code"] == "retry_approved"
    assert (await it.fork()).json()["code"] == "fork_approved"
    expect(await it.http.post(f"/v1/runs/{it.first}/fork", json={"step": "sure"}), 201)
