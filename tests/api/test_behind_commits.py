"""What a command has done is no failure, though nothing can be read behind its commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.store.postgres.database import Session
from tests.support.identities import People
from tests.support.interleaving import STATEMENTS
from tests.support.server import YAML

FLOW: Final = """
hai: flow/v1
name: asks_twice
version: 1
input: {type: object, properties: {who: {type: string, default: Ann, pii: true}}}
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
  - {id: more, ask: {title: More?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
FAILING: Final = "hai: flow/v1\nname: fails\nversion: 1\nsteps:\n  - {id: no, fail: No.}\n  - {id: yes, say: Yes.}\n"

_is_behind: ContextVar[bool] = ContextVar("is_behind", default=False)  # whether the request has committed its command


class House:
    """A server in this process, and two people: one that starts runs, and an operator."""

    def __init__(self, http: httpx2.AsyncClient, people: People) -> None:
        self.http = http
        self.ann = people.person("user:ann")
        self.operator = people.person("user:op", roles=["operator", "decider"])

    async def ask(self, method: str, path: str, body: Any = None, who: dict[str, str] | None = None) -> httpx2.Response:
        _is_behind.set(False)
        response = await self.http.request(method, path, json=body, headers=who or self.operator)
        _is_behind.set(False)
        return response

    async def start(self, workflow: str = "asks_twice") -> str:
        return str((await self.ask("POST", "/v1/runs", {"workflow": workflow}, self.ann)).json()["id"])

    async def look(self, run_id: str) -> dict[str, Any]:
        run = (await self.ask("GET", f"/v1/runs/{run_id}")).json()
        return {name: value for name, value in run.items() if name not in ("held_by", "paused")}

    async def question(self, run_id: str) -> str:
        items = (await self.ask("GET", f"/v1/pendings?run_id={run_id}")).json()["items"]
        return str(next(each["id"] for each in items if each["status"] == "open"))


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    settings, people = Settings(identity="keys", publish=True), People(database_url)
    runtime = Runtime(database_url, settings, performs=False)
    async with runtime.lifespan():
        transport = httpx2.ASGITransport(app=create_app(settings, runtime))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for flow in (FLOW, FAILING):
                headers = {**YAML, **people.person("user:pat", roles=["publisher"])}
                assert (await http.post("/v1/workflows", content=flow, headers=headers)).status_code == 201
            yield House(http, people)


@contextmanager
def no_statement_behind_a_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No statement that a request sends behind the commit of its command reaches the database."""
    submit = Committer.submit

    async def note(*given: Any, **more: Any) -> Any:
        outcome = await submit(*given, **more)
        _is_behind.set(True)
        return outcome

    def failing(send: Any) -> Any:
        async def fail(*given: Any, **more: Any) -> Any:
            if _is_behind.get():
                raise ConnectionResetError("the connection is gone")
            return await send(*given, **more)

        return fail

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "submit", note)
        for name in STATEMENTS:
            patch.setattr(Session, name, failing(getattr(Session, name)))
        yield


ACTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "pause": ("waiting", {}),
    "resume": ("waiting", {}),
    "skip": ("waiting", {"step": "sure"}),
    "stop": ("stopped", {}),
    "terminate": ("stopped", {}),
}
"""The status of a run that asks, behind each act, and the body of the act."""


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_is_answered_with_what_was_committed(
    house: House, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, body = ACTS[act]
    run_id = await house.start()
    if act == "resume":
        await house.ask("POST", f"/v1/runs/{run_id}/pause", {})
    with no_statement_behind_a_commit(monkeypatch):
        answer = await house.ask("POST", f"/v1/runs/{run_id}/{act}", body or None)
    assert answer.status_code == 200, answer.text
    shown, run = answer.json(), await house.look(run_id)
    assert shown.pop("in_flight", 0) == 0
    if status == "stopped":  # what only the database knows is left out, and what may be personal
        assert (shown["status"], shown["seq"]) == (run["status"], run["seq"])
        assert (shown["ended_at"], shown["input"]) == (None, run["input"])
    else:
        assert shown == run
    assert run["status"] == ("paused" if act == "pause" else status)
    assert "Ann" not in answer.text, "who is personal"


async def test_a_failed_run_goes_on_though_its_thread_is_settled_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await house.start("fails")
    assert (await house.look(run_id))["status"] == "failed"
    with no_statement_behind_a_commit(monkeypatch):
        answer = await house.ask("POST", f"/v1/runs/{run_id}/skip", {"step": "no"})
    shown, run = answer.json(), await house.look(run_id)
    assert (answer.status_code, shown["status"], run["status"]) == (200, "finished", "finished")
    assert shown["error"] is None


async def test_an_answer_is_shown_as_it_was_committed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = await house.start()
    question = await house.question(run_id)
    with no_statement_behind_a_commit(monkeypatch):
        answer = await house.ask("POST", f"/v1/pendings/{question}/decide", {"values": {"ok": True}})
    shown = answer.json()
    assert (answer.status_code, shown.pop("already")) == (200, False)
    assert shown == (await house.ask("GET", f"/v1/pendings/{question}")).json()


async def test_an_answer_that_ends_the_run_says_that_it_is_recorded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await house.start()
    await house.ask("POST", f"/v1/runs/{run_id}/skip", {"step": "sure"})
    path = f"/v1/pendings/{await house.question(run_id)}/decide"
    with no_statement_behind_a_commit(monkeypatch):
        answer = await house.ask("POST", path, {"values": {"ok": True}})
    assert (answer.status_code, answer.json()["code"]) == (503, "answer_recorded")
    assert "Retry-After" in answer.headers
    again = await house.ask("POST", path, {"values": {"ok": True}})
    assert (again.status_code, again.json()["already"], again.json()["status"]) == (200, True, "answered")


async def test_a_thread_has_begun_though_it_is_settled_later(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with no_statement_behind_a_commit(monkeypatch):
        body = {"workflow": "asks_twice", "thread_id": "t1"}
        answer = await house.ask("POST", "/v1/runs", body, house.ann)
    assert answer.status_code == 201, answer.text
    assert answer.json() == (await house.ask("GET", f"/v1/runs/{answer.json()['id']}", who=house.ann)).json()
