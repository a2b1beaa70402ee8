"""Doors beside an approval: what an operator holds, and turns to which a thread goes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import httpx2
import pytest

from tests.support import effects
from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import unique, user
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

Headers: TypeAlias = dict[str, str]
TRANSFER: Final = {"to": "DE-1", "amount": 7}
_ASK: Final = "ask: {title: Which?, from: requester, form: {type: object, properties: {n: {type: string}}}}"
_PAID: Final = f"""
hai: flow/v1
name: {{name}}
version: 1
tools: {{{{fx: {{{{python: tests.support.effects, effect: write}}}}}}}}
steps:
  - say: Hello.
  - id: go
    {{asks}}
  - id: first
    {_ASK.replace("{", "{{").replace("}", "}}")}
  - id: second
    {_ASK.replace("{", "{{").replace("}", "}}")}
  - {{{{id: pay, call: fx.note, with: {{{{n: 1}}}}}}}}
"""
FLOWS: Final = {
    "approved": _PAID.format(name="approved", asks="approve: {title: Go?, from: [role:boss]}"),
    "unasked": _PAID.format(name="unasked", asks="say: Nobody is asked."),
}


class Place:
    """A server, an agent that asks for approvals, a requester, who operates runs, too, and a boss."""

    def __init__(self, url: str, api: httpx2.Client, people: People) -> None:
        self.url, self.api, self.people = url, api, people
        person = people.person
        self.operator, self.boss = person("user:op", roles=["operator"]), person("user:boss", roles=["decider", "boss"])
        self.req, self.viewer = person("user:req", roles=["requester"]), person("user:val", roles=["viewer"])
        self.agent, self.other = (person(f"agent:{name}", roles=["requester"]) for name in ("bot", "other"))
        publisher = person("user:pat", roles=["publisher"])
        for text in FLOWS.values():
            expect(api.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 201)

    def approval(self, by: Headers) -> str:
        """An approval that a boss has given, and nobody consumed."""
        body = {"action": "pay", "arguments": TRANSFER, "policy": {"from": ["role:boss"]}}
        asked = expect(self.api.post("/v1/approvals", json=body, headers=by), 201).json()
        pending = wait_for(lambda: self.look(asked["id"], by)["pending_id"])
        path = f"/v1/pendings/{pending}/decide"
        expect(self.api.post(path, json={"decision": "approve"}, headers=self.boss), 200)
        wait_for(lambda: self.look(asked["id"], by)["status"] == "approved")
        return str(asked["id"])

    def look(self, id: str, by: Headers) -> dict[str, Any]:
        return dict(expect(self.api.get(f"/v1/approvals/{id}", headers=by), 200).json())

    def consume(self, id: str, by: Headers) -> tuple[int, str]:
        answer = self.api.post(f"/v1/approvals/{id}/consume", json={"arguments": TRANSFER}, headers=by)
        return answer.status_code, answer.json().get("code", "")

    def control(self, run: str, act: str) -> None:
        expect(self.api.post(f"/v1/runs/{run}/{act}", headers=self.operator), 200)

    def freeze(self, **body: Any) -> str:
        frozen = self.api.post("/v1/freezes", json={"reason": "look", **body}, headers=self.operator)
        return str(expect(frozen, 200, 201).json()["id"])

    def thaw(self, id: str) -> None:
        expect(self.api.post(f"/v1/freezes/{id}/thaw", headers=self.operator), 200)

    def status(self, run: str) -> str:
        return str(self.api.get(f"/v1/runs/{run}", headers=self.operator).json()["status"])

    def effects(self) -> int:
        return int(self.people.do(lambda c: c.fetchval("SELECT count(*) FROM effects")))


@pytest.fixture(scope="module")
def place(postgres_server: Server) -> Iterator[Place]:
    with postgres_server.database() as dsn:
        People(dsn).do(lambda c: c.execute(effects.LEDGER))
        with serving(dsn, environment=KEYS) as server, httpx2.Client(base_url=server.url, timeout=30) as api:
            yield Place(server.url, api, People(dsn))


# --- what an operator holds -------------------------------------------------------------------------------------------

FREEZES: Final[tuple[dict[str, Any], ...]] = (
    {"mode": "frozen", "scope": "tenant"},
    {"mode": "frozen", "scope": "workflow", "name": "agent_approval"},
    {"mode": "frozen", "scope": "tool", "name": "consume"},
    {"mode": "frozen", "scope": "principal", "name": "agent:bot"},
)


def test_an_approval_of_a_paused_run_is_not_consumed_until_it_is_resumed(place: Place) -> None:
    id = place.approval(place.agent)
    place.control(id, "pause")
    assert place.consume(id, place.agent) == (409, "approval_held")
    assert place.look(id, place.agent)["status"] == "approved"
    place.control(id, "resume")
    assert place.consume(id, place.agent) == (200, "")
    place.control(place.approval(place.agent), "pause")


@pytest.mark.parametrize("freeze", FREEZES, ids=str)
def test_an_approval_that_a_freeze_holds_is_not_consumed_until_the_thaw(place: Place, freeze: dict[str, Any]) -> None:
    id = place.approval(place.agent)
    held = place.freeze(**freeze)
    try:
        assert place.consume(id, place.agent) == (409, "approval_held")
        assert place.look(id, place.agent)["status"] == "approved"
    finally:
        place.thaw(held)
    assert place.consume(id, place.agent) == (200, "")


@pytest.mark.parametrize(
    "scope", [{"scope": "principal", "name": "agent:other"}, {"scope": "workflow", "name": "approved"}]
)
def test_a_freeze_of_something_else_holds_no_approval(place: Place, scope: dict[str, Any]) -> None:
    id = place.approval(place.agent)
    held = place.freeze(mode="frozen", **scope)
    try:
        assert place.consume(id, place.agent) == (200, "")
    finally:
        place.thaw(held)


# --- turns to which a thread goes back --------------------------------------------------------------------------------


def begin_and_answer(place: Place, workflow: str) -> tuple[AguiClient, dict[str, Any], str]:
    """A run of the requester that waits at its second question; its client, its first question, and its id."""
    client = AguiClient(place.url, unique("doors"), workflow=workflow, headers=place.req)
    client.post(user(), run_id="t1")

    def list_open() -> list[dict[str, Any]]:
        query = (
            "SELECT p.id FROM pendings p JOIN runs r ON r.id = p.run_id WHERE r.thread_id = $1 AND p.status = 'open'"
        )
        ids = place.people.do(lambda c: c.fetch(query, client.thread_id))
        return [place.api.get(f"/v1/pendings/{row[0]}", headers=place.operator).json() for row in ids]

    (question,) = wait_for(list_open)
    if workflow == "approved":
        path = f"/v1/pendings/{question['id']}/decide"
        expect(place.api.post(path, json={"decision": "approve"}, headers=place.boss), 200)
        (question,) = wait_for(lambda: [each for each in list_open() if each["kind"] == "ask"])
    answered = client.post(run_id="t3", resume=[resolved(question, {"n": "1"})])
    assert answered.status == 200, answered.body
    return client, question, question["run_id"]


def answer_anew(place: Place, client: AguiClient, question: dict[str, Any], run: str) -> tuple[int, str]:
    """What the requester gets who answers the first question anew, behind the turn that asked it."""
    turn = 1 if "unasked" in client.url else 2
    answered = client.post(run_id=unique("t"), parentRunId=f"{run}.{turn}", resume=[resolved(question, {"n": "2"})])
    return answered.status, "" if answered.status == 200 else json.loads(answered.body)["code"]


@pytest.mark.parametrize("since", ["nothing", "a stop by the requester", "a stop by the operator", "another run"])
def test_nobody_goes_behind_the_approval_of_a_run_that_is_paused(place: Place, since: str) -> None:
    """What they look into may have been done already, behind a restore for example."""
    client, question, run = begin_and_answer(place, "approved")
    place.control(run, "pause")
    if since == "a stop by the operator":
        place.control(run, "stop")
    elif since != "nothing":
        path = f"/workflows/approved/cpk/agent/approved/stop/{client.thread_id}"
        expect(place.api.post(path.removeprefix("/workflows/approved"), json={}, headers=place.req), 200)
        wait_for(lambda: place.status(run) == "stopped")
    if since == "another run":
        assert client.post(user(), run_id=unique("t")).status == 200
    assert answer_anew(place, client, question, run) == (409, "fork_approved")
    assert place.status(run) == ("paused" if since == "nothing" else "stopped")


def test_a_requester_goes_back_where_nobody_was_asked_or_nobody_holds_it(place: Place) -> None:
    client, question, run = begin_and_answer(place, "unasked")
    place.control(run, "pause")
    assert answer_anew(place, client, question, run) == (200, "")
    client, question, run = begin_and_answer(place, "approved")
    place.control(run, "pause")
    place.control(run, "resume")
    assert answer_anew(place, client, question, run) == (200, "")
