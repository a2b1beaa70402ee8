"""Stop, then begin: whatever refuses a fork, a rerun, a branch or a message that interrupts leaves the run that was to
be stopped as it was. Not an event is added to it, it keeps its slots, and its work is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import httpx2
import pytest

from tests.support.agent_client import AgentClient, say
from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.hai_client import HaiClient, unique, user
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

FLOW: Final = """
hai: flow/v1
name: {name}
version: {version}
visibility: tenant
on_message: interrupt
{head}
input:
  type: object
  properties: {{customer: {{type: string, default: c1}}, n: {{type: integer}}, file: {{type: string}}}}
state: {{seen: {{type: integer, default: 0}}}}
tools: {{e: {{python: tests.support.effects, effect: write}}}}
steps:
  - {{id: reserve, call: e.echo, with: {{value: 1}}, undo: {{call: e.echo, with: {{value: undone}}}}}}
  - {{id: later, call: e.echo, with: {{value: 2}}, undo: {{call: e.echo, with: {{value: undone}}}}}}
  - {{id: sure, ask: {{title: Sure?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
"""
KEYED: Final = 'concurrency: {key: "${{ input.customer }}", limit: 1, on_conflict: reject}'
NO_FILE: Final = "file_" + "0" * 64

# Body of the fork, and the refusal.
EDITS: Final[dict[str, tuple[dict[str, Any], int, str]]] = {
    "no moment": ({}, 422, "request.invalid"),
    "two moments": ({"at": 3, "step": "later"}, 422, "request.invalid"),
    "a moment to come": ({"at": 999}, 422, "request.invalid"),
    "a moment in a decision": ({"at": 1}, 409, "fork_unsettled"),
    "a moment in flight": ({"at": 3}, 409, "fork_in_flight"),
    "a step that has not begun": ({"step": "nothing"}, 422, "step.not_begun"),
    "an input that does not fit": ({"step": "later", "input": {"n": "x"}}, 422, "input.invalid"),
    "variables that there are not": ({"step": "later", "state": {"other": 1}}, 422, "state.invalid"),
    "variables that do not fit": ({"step": "later", "state": {"seen": "x"}}, 422, "state.invalid"),
    "a version that does not exist": ({"step": "later", "version": "77"}, 404, "workflow_unknown"),
    "a version that was retired": ({"step": "later", "version": "2"}, 409, "workflow_retired"),
    "a map without a version": ({"step": "later", "map": {"later": "x"}}, 422, "request.invalid"),
    "a file that does not exist": ({"step": "later", "input": {"file": NO_FILE}}, 404, "file_unknown"),
    "a file within a text": ({"step": "later", "input": {"file": f"see {NO_FILE}!"}}, 404, "file_unknown"),
    "the key of another run": ({"step": "later", "input": {"customer": "taken"}}, 409, "concurrency_busy"),
    "an unknown part": ({"step": "later", "inputs": {}}, 422, "request.invalid"),
    "a reason that is too long": ({"step": "later", "reason": "x" * 2001}, 422, "request.invalid"),
}
ABOVE: Final = """
hai: flow/v1
name: above_{flow}
version: 1
input: {{type: object, properties: {{customer: {{type: string}}}}}}
steps:
  - {{id: below, run: {flow}, with: {{customer: "${{{{ input.customer }}}}"}}}}
"""
ENDS: Final = "hai: flow/v1\nname: ends_at_once\nversion: 1\nsteps: [{say: done}]\n"
LIMITS: Final = {"RUNS_PER_MINUTE": "tenant_runs", "LOG_BYTES_MAX": "tenant_log_bytes"}
BEFORE: Final = ("waiting", "paused")
Interrupter = Callable[[str, str, str, dict[str, Any]], "str | None"]


def _post(client: type[HaiClient | AguiClient], **more: Any) -> Interrupter:
    def interrupt(url: str, thread: str, flow: str, input: dict[str, Any]) -> str | None:
        stream = client(url, thread, workflow=flow).post(
            user("something else"), forwardedProps={"input": input}, **more
        )
        return None if stream.status == 200 else stream.problem["code"]

    return interrupt


def _process(url: str, thread: str, flow: str, input: dict[str, Any], **more: Any) -> str | None:
    response = AgentClient(url, flow).post(say("something else"), session_id=thread, workflow_input=input, **more)
    return None if response.status == 200 else response.problem["code"]


def _aui(url: str, thread: str, flow: str, input: dict[str, Any], *, of_params: bool) -> str | None:
    client, payload = AuiClient(url, flow), {"message": "something else", "input": input}
    client.send(type="params", data={"session_id": thread, **(payload if of_params else {})})
    if not of_params:
        client.until("aui_interrupt")
        client.send(type="input", payload=payload)
    code: str | None = client.until("aui_action_ack").get("error_code")
    return code


INTERRUPTERS: Final[dict[str, Interrupter]] = {
    "HAI": _post(HaiClient),
    "AG-UI": _post(AguiClient),
    "AG-UI's branch": _post(AguiClient, parentRunId="one"),
    "Agent API": _process,
    "Agent API, one object": partial(_process, stream=False),
    "AUI": partial(_aui, of_params=False),
    "AUI's parameters": partial(_aui, of_params=True),
}
"""A message that interrupts, over each protocol, with the input of the run that it begins: the code of its refusal."""
by_a_message = pytest.mark.parametrize("interrupt", INTERRUPTERS)


@pytest.fixture(scope="module")
def free(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn) as server:
        yield server


@pytest.fixture(scope="module", params=LIMITS)
def full(dsn: str, free: ServerProcess, request: pytest.FixtureRequest) -> Iterator[tuple[ServerProcess, str]]:
    """A server of the same deployment, of a tenant that may start no run."""
    with serving(dsn, environment={f"HAI_FLOW_TENANT_{request.param}": "1"}) as server:
        yield server, LIMITS[request.param]


@pytest.fixture
def http(free: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=free.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def flow(free: ServerProcess) -> str:
    """A workflow whose version 2 was retired, and of which a run holds the key `taken`."""
    name = unique("forks").replace("-", "_")
    with httpx2.Client(base_url=free.url, timeout=30) as http:
        for version in (1, 2, 3):
            source = FLOW.format(name=name, version=version, head=KEYED)
            assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
        assert http.post(f"/v1/workflows/{name}@2/retire", json={}).is_success
        taken = {"workflow": name, "input": {"customer": "taken"}}
        assert http.post("/v1/runs", json=taken).status_code == 201
    return name


class Standing:
    """A run that waits, and everything that must be as it was afterwards."""

    def __init__(self, http: httpx2.Client, flow: str, thread_id: str | None = None) -> None:
        self.http = http
        body = {"workflow": flow, "input": {"customer": unique("c")}, "thread_id": thread_id or unique("thread")}
        self.run = expect(http.post("/v1/runs", json=body), 201).json()
        self.path = f"/v1/runs/{self.run['id']}"

    async def stands(self, status: str) -> None:
        await until(lambda: self.http.get(self.path).json()["status"] == "waiting")
        if status == "paused":
            assert self.http.post(f"{self.path}/pause", json={}).is_success
        self.before = self.seen()

    def seen(self) -> Any:
        row, snapshot = self.http.get(self.path).json(), self.http.get(f"{self.path}/snapshot").json()
        queue = self.http.get("/v1/runs", params={"thread_id": self.run["thread_id"]}).json()["items"]
        steps = {path: step["status"] for path, step in snapshot["steps"].items()}
        return row["status"], row["seq"], steps, [each["id"] for each in queue]

    def is_untouched(self) -> None:
        assert self.seen() == self.before, "it was refused, and something has happened all the same"
        undone = [path for path, status in self.before[2].items() if status in ("undone", "stopped")]
        assert undone == []


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("what", EDITS)
async def test_a_fork_that_is_refused_stops_nothing(http: httpx2.Client, flow: str, what: str, before: str) -> None:
    body, status, code = EDITS[what]
    run = Standing(http, flow)
    await run.stands(before)
    for dry in (False, True):
        refused = http.post(f"{run.path}/fork", json={**body, "dry_run": dry})
        assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
        run.is_untouched()


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("step", ["reserve", "later", "sure"])
async def test_a_fork_of_a_tenant_that_may_start_no_run_stops_nothing(
    http: httpx2.Client, flow: str, full: tuple[ServerProcess, str], step: str, before: str
) -> None:
    server, code = full
    run = Standing(http, flow)
    await run.stands(before)
    refused = httpx2.post(f"{server.url}{run.path}/fork", json={"step": step}, timeout=30)
    assert (refused.status_code, refused.json()["code"]) == (429, code)
    run.is_untouched()


@by_a_message
async def test_a_message_that_interrupts_and_may_start_no_run_stops_nothing(
    http: httpx2.Client, flow: str, full: tuple[ServerProcess, str], interrupt: str
) -> None:
    server, code = full
    run = Standing(http, flow, with_a_turn(http))
    await run.stands("waiting")
    assert INTERRUPTERS[interrupt](server.url, run.run["thread_id"], flow, {}) == code
    run.is_untouched()


MESSAGES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "the key of another run": ({"customer": "taken"}, "concurrency_busy"),
    "an input that does not fit": ({"n": "x"}, "input.invalid"),
    "a file that does not exist": ({"file": NO_FILE}, "file_unknown"),
}


@by_a_message
async def test_a_message_that_interrupts_and_can_begin_nothing_stops_nothing(
    http: httpx2.Client, flow: str, interrupt: str
) -> None:
    run = Standing(http, flow, with_a_turn(http))
    await run.stands("waiting")
    for what, (input, code) in MESSAGES.items():
        url = str(http.base_url).rstrip("/")
        assert INTERRUPTERS[interrupt](url, run.run["thread_id"], flow, input) == code, what
        run.is_untouched()


@by_a_message
async def test_a_message_that_interrupts_has_the_slot_of_what_it_stops(
    http: httpx2.Client, flow: str, interrupt: str
) -> None:
    """Also before a run that has waited for it for longer."""
    source = FLOW.format(name=f"queues_{flow}", version=1, head=KEYED.replace("reject", "queue"))
    assert http.post("/v1/workflows", content=source, headers=YAML).is_success
    run = Standing(http, f"queues_{flow}", with_a_turn(http))
    await run.stands("waiting")
    body = {"workflow": f"queues_{flow}", "input": run.run["input"]}
    queued = http.post("/v1/runs", json=body).json()
    assert queued["status"] == "queued"
    url, thread = str(http.base_url).rstrip("/"), run.run["thread_id"]
    assert INTERRUPTERS[interrupt](url, thread, f"queues_{flow}", run.run["input"]) is None

    def standing() -> list[str]:
        return [each["status"] for each in http.get("/v1/runs", params={"thread_id": thread}).json()["items"]]

    await until(lambda: standing() == ["waiting", "stopped", "finished"])
    assert http.get(f"/v1/runs/{queued['id']}").json()["status"] == "queued"


@pytest.mark.parametrize("act", ["reserve", "later", "sure", *INTERRUPTERS])
async def test_what_would_wait_for_a_thaw_stops_nothing(http: httpx2.Client, flow: str, act: str) -> None:
    """A stop that has nothing to undo is as before."""
    run = Standing(http, flow, with_a_turn(http))
    await run.stands("waiting")
    freeze = http.post("/v1/freezes", json={"scope": "workflow", "name": flow, "reason": "a drill"}).json()["id"]
    if act in INTERRUPTERS:
        code = INTERRUPTERS[act](str(http.base_url).rstrip("/"), run.run["thread_id"], flow, {})
    else:
        code = http.post(f"{run.path}/fork", json={"step": act}).json().get("code")
    assert code == (None if act == "sure" else "run_frozen")
    if code is not None:
        run.is_untouched()
    assert http.post(f"/v1/freezes/{freeze}/thaw").is_success


@pytest.mark.parametrize("first", ["reserve", "later", "sure"])
@pytest.mark.parametrize("second", ["reserve", "later", "sure"])
async def test_a_run_that_was_left_to_one_fork_is_left_to_no_other(
    http: httpx2.Client, flow: str, first: str, second: str
) -> None:
    """What the first fork has undone, and what the run has undone since, the second one never has."""
    run = Standing(http, flow)
    await run.stands("waiting")
    forked = expect(http.post(f"{run.path}/fork", json={"step": first}), 201)
    mine = f"/v1/runs/{forked.json()['id']}"
    await until(lambda: http.get(mine).json()["status"] == "waiting")
    assert http.post(f"{mine}/stop", json={}).is_success
    await until(lambda: http.get(mine).json()["status"] == "stopped")
    again = http.post(f"{run.path}/fork", json={"step": second})
    if second == "reserve":
        assert again.status_code == 201, "in front of all of it nothing is taken over"
        http.post(f"/v1/runs/{again.json()['id']}/terminate", json={})
    else:
        assert (again.status_code, again.json()["code"]) == (409, "fork_undone")
    seen = http.get(f"{run.path}/snapshot").json()["steps"]
    left = {"reserve": [], "later": ["reserve"], "sure": ["later", "reserve"]}[first]
    assert sorted(path for path in ("later", "reserve") if seen[path]["status"] == "finished") == left


# The body of a message behind an earlier turn, and the refusal.
BRANCHES: Final[dict[str, tuple[dict[str, Any], int, str]]] = {
    "the key of another run": ({"customer": "taken"}, 409, "concurrency_busy"),
    "an input that does not fit": ({"n": "x"}, 422, "input.invalid"),
    "a file that does not exist": ({"file": NO_FILE}, 404, "file_unknown"),
    "a file behind a line break": ({"file": f"see:\n{NO_FILE}"}, 404, "file_unknown"),
    "an unknown workflow": ({"workflow": "nothing"}, 404, "workflow_unknown"),
    "a retired version": ({"workflow": "{flow}@2"}, 409, "workflow_retired"),
}


@pytest.mark.parametrize("what", [*BRANCHES, "a freeze"])
async def test_a_branch_that_is_refused_stops_nothing(http: httpx2.Client, flow: str, what: str) -> None:
    thread, url = with_a_turn(http), str(http.base_url).rstrip("/")
    run = Standing(http, flow, thread)
    await run.stands("waiting")
    input, status, code = BRANCHES.get(what, ({"customer": unique("c")}, 409, "run_frozen"))
    props = {"workflow": input.get("workflow", "{flow}").format(flow=flow), "input": input}
    frozen = {"scope": "workflow", "name": flow, "reason": "a drill"}
    freeze = http.post("/v1/freezes", json=frozen).json()["id"] if what == "a freeze" else None
    refused = AguiClient(url, thread).post(user("other"), parentRunId="one", forwardedProps=props)
    assert (refused.status, refused.problem["code"]) == (status, code), refused.problem
    run.is_untouched()
    assert freeze is None or http.post(f"/v1/freezes/{freeze}/thaw").is_success


def with_a_turn(http: httpx2.Client) -> str:
    """A thread whose first run, the turn `one`, has ended."""
    thread = unique("thread")
    assert http.post("/v1/workflows", content=ENDS, headers=YAML).is_success
    client = AguiClient(str(http.base_url).rstrip("/"), thread)
    assert client.post(user("one"), run_id="one", forwardedProps={"workflow": "ends_at_once"}).status == 200
    return thread


async def test_a_fork_of_a_child_run_is_refused_and_stops_nothing(http: httpx2.Client, flow: str) -> None:
    above = ABOVE.format(flow=flow)
    assert http.post("/v1/workflows", content=above, headers=YAML).status_code == 201
    run = Standing(http, f"above_{flow}")
    path = await until(lambda: child_of(http, run))
    await until(lambda: http.get(path).json()["status"] == "waiting")
    before = http.get(path).json()["seq"]
    for body in ({"step": "later"}, {"step": "reserve"}, {"step": "sure", "dry_run": True}):
        refused = http.post(f"{path}/fork", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "fork_of_child"), refused.text
    assert (http.get(path).json()["seq"], http.get(path).json()["status"]) == (before, "waiting")


def child_of(http: httpx2.Client, run: Standing) -> str:
    (step,) = http.get(f"{run.path}/steps").json()["items"]
    return f"/v1/runs/{step['children'][0]}" if step["children"] else ""


async def test_an_undo_that_fails_is_told_by_the_run_that_was_left(http: httpx2.Client, flow: str) -> None:
    """The fork begins, and owns what it has from it; the effect that is still there is the failure of the other one."""
    source = FLOW.format(name=f"fails_{flow}", version=1, head=KEYED)
    source = source.replace("undo: {call: e.echo, with: {value: undone}}}", "undo: {call: e.breaks, retry: {max: 0}}}")
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
    run = Standing(http, f"fails_{flow}")
    await run.stands("waiting")
    expect(http.post(f"{run.path}/fork", json={"step": "later"}), 201)
    error = http.get(run.path).json()["error"]
    assert (error["code"], error["data"]) == ("undo.failed", {"undone": [], "failed": ["later"]})
    assert run.seen()[2]["reserve"] == "finished", "it is the fork's to undo"


@pytest.mark.parametrize("steps", [("reserve", "later"), ("later", "later"), ("sure", "reserve")])
async def test_of_two_forks_at_once_one_owns_the_work(http: httpx2.Client, flow: str, steps: tuple[str, str]) -> None:
    run = Standing(http, flow)
    await run.stands("waiting")
    fork = partial(http.post, f"{run.path}/fork")
    answers = await asyncio.gather(*(asyncio.to_thread(fork, json={"step": step}) for step in steps))
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    forks = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    await until(lambda: http.get(run.path).json()["status"] == "stopped")
    active = http.get("/v1/runs", params={"thread_id": run.run["thread_id"]}).json()["items"]
    assert [each["id"] for each in active if each["status"] not in ("stopped", "finished", "failed")] == forks
