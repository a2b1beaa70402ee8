"""One mind has one vote and decides nothing of its own: an agent beside its people, tokens that the holder of a key
makes for others, and a requester who says whom to ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

Headers: TypeAlias = dict[str, str]
ROLES: Final = ["requester", "decider", "boss", "operator"]
ASKED: Final = "[user:ann, user:bob, user:cat, user:dan, 'agent:buyer', 'agent:other']"
_FLOW: Final = """
hai: flow/v1
name: {name}
version: 1
input:
  type: object
  properties:
    who: {{type: [string, array], default: "role:boss"}}
    word: {{enum: [requester, "role:boss"], default: "role:boss"}}
    small: {{type: boolean, default: false}}
state: {{who: {{type: [string, array], default: []}}}}
tools: {{built_in: {{python: hai_flow.steps.built_in, effect: write}}}}
steps:
  - {{set: {{who: "${{{{ input.who }}}}"}}}}
  - id: given
    call: built_in.grant
    with: {{action: look, arguments: {{who: "${{{{ input.who }}}}"}}}}
  - {{id: route, switch: [{{when: "input.who == ''", result: "role:boss"}}, {{default: true, result: requester}}]}}
  - id: go
    {asks}
"""
_APPROVE: Final = "approve: {{title: Go?, from: {}}}"
_GATE: Final = "call: built_in.grant\n    with: {{action: pay, arguments: {{n: 1}}}}\n    approval: {{from: {}}}"
_LATE: Final = (
    "approve: {title: Go?, from: [user:nobody], deadline: 1s, "
    'on_deadline: [{escalate: {from: "${{ input.who }}", deadline: 1d}}, fail]}'
)
HOLES: Final = {
    "a hole": '"${{ input.who }}"',
    "a hole beside others": '["role:boss", "${{ input.who }}"]',
    "a variable": '"${{ state.who }}"',
    "what a tool gave": '"${{ steps.given.output.arguments.who }}"',
    "a condition": "\"${{ input.small ? 'role:boss' : input.who }}\"",
}
NAMED: Final = {
    "the requester in a list": '[requester, "role:boss"]',
    "anyone": "anyone",
    "a literal of a hole": "\"${{ input.who == '' ? 'role:boss' : 'requester' }}\"",
    "a choice of the schema": '"${{ input.word }}"',
    "a list of a hole": "\"${{ input.who == '' ? ['role:boss', 'user:cat'] : ['requester'] }}\"",
    "the result of a switch": '"${{ steps.route.output.result }}"',
}
FLOWS: Final = {
    "two": _APPROVE.format(f"{ASKED}, quorum: 2"),
    "one": _APPROVE.format(ASKED),
    "both": _APPROVE.format("[user:ann, 'agent:buyer'], quorum: 2"),
    "people beside their agent": _APPROVE.format("['agent:buyer', user:ann, user:bob], quorum: 2"),
    "of a role": _APPROVE.format('"role:boss"'),
    **{f"{name}, approve": _APPROVE.format(hole) for name, hole in (HOLES | NAMED).items()},
    **{f"{name}, gate": _GATE.format(hole) for name, hole in (HOLES | NAMED).items()},
    "escalated": _LATE,
    "hears": "wait_for: {event: heard, deadline: 1d}",
}


class Place:
    """A server; Ann, who has two ids, and Bob, with their agents; a backend, and Cat, whose key speaks for Dan."""

    def __init__(self, api: httpx2.Client, people: People) -> None:
        self.api = api
        person = people.person
        self.operator, self.req = person("user:op", roles=["operator"]), person("user:req", roles=ROLES)
        publisher = person("user:pat", roles=["publisher"])
        self.names = {text: f"flow{number}" for number, text in enumerate(FLOWS)}
        for name, asks in FLOWS.items():
            text = _FLOW.format(name=self.names[name], asks=asks)
            expect(api.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 201)

        def key(id: str, *speaks_for: str) -> str:
            return people.key(id, roles=[*ROLES, "issuer"], speaks_for=speaks_for)[1]

        buyer, second = key("agent:buyer", "user:ann", "user:bob"), key("agent:buyer")
        other, shop = key("agent:other", "user:bob"), key("service:shop", "user:ann", "user:bob", "agent:buyer")
        cat, page = key("user:cat", "user:dan"), key("service:page")
        self.voices = {
            "ann": person("user:ann", roles=ROLES),
            "her other id": person("user:a.smith", roles=ROLES),
            "bob": person("user:bob", roles=ROLES),
            "cat": carried(cat),
            "dan": person("user:dan", roles=ROLES),
            "agent": carried(buyer),
            "its second key": carried(second),
            "by its other id": carried(key("agent:old")),
            "its token": self.token(buyer, "agent:buyer"),
            "its token for ann": self.token(buyer, "user:ann"),
            "its token for bob": self.token(buyer, "user:bob"),
            "bobs other agent": carried(other),
            "the shop for ann": self.token(shop, "user:ann"),
            "the shop for bob": self.token(shop, "user:bob"),
            "the shop for the agent": self.token(shop, "agent:buyer"),
            "cat for dan": self.token(cat, "user:dan"),
            "a page for somebody": self.token(page, "user:somebody"),
        }

    def token(self, key: str, id: str) -> Headers:
        body = {"principal": id, "roles": ROLES, "expires_in": 3600}
        return carried(expect(self.api.post("/v1/tokens", json=body, headers=carried(key)), 201).json()["token"])

    def start(self, workflow: str, by: Headers, **given: Any) -> str:
        body = {"workflow": self.names[workflow], "input": given}
        return str(expect(self.api.post("/v1/runs", json=body, headers=by), 201).json()["id"])

    def run(self, run: str) -> dict[str, Any]:
        return dict(self.api.get(f"/v1/runs/{run}", headers=self.operator).json())

    def question(self, run: str) -> str | None:
        """The question of the run; None: it failed, because nobody could decide it."""
        wait_for(lambda: self.run(run)["status"] in ("waiting", "failed"))
        if self.run(run)["status"] == "failed":
            assert self.run(run)["error"]["code"] == "approval.impossible"
            return None
        return str(self.api.get("/v1/pendings", params={"run_id": run}, headers=self.operator).json()["items"][0]["id"])

    def decide(self, run: str, who: Headers) -> tuple[int, str]:
        path = f"/v1/pendings/{self.question(run)}/decide"
        answer = self.api.post(path, json={"decision": "approve", "reason": unique("because")}, headers=who)
        return answer.status_code, answer.json().get("code", "")


@pytest.fixture(scope="module")
def place(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    file: Path = tmp_path_factory.mktemp("identity") / "identity.yaml"
    file.write_text("hai: identity/v1\npeople: {default: {user:ann: [user:a.smith], agent:buyer: [agent:old]}}\n")
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, "HAI_FLOW_IDENTITY": str(file)}) as server,
        httpx2.Client(base_url=server.url, timeout=30) as api,
    ):
        yield Place(api, People(dsn))


# --- one vote ---------------------------------------------------------------------------------------------------------

OF_THE_AGENT: Final = ("agent", "its second key", "its token", "its token for ann", "its token for bob")
ITS_PEOPLE: Final = ("ann", "her other id", "bob", "the shop for ann", "the shop for bob")
ONE_MIND: Final = (
    *((voice, person) for voice in (*OF_THE_AGENT, "the shop for the agent") for person in ITS_PEOPLE),
    *((voice, other) for voice in OF_THE_AGENT for other in OF_THE_AGENT if voice < other),
    *(("by its other id", other) for other in ("agent", "ann", "bob", "the shop for bob")),
    ("bobs other agent", "bob"),
    ("bobs other agent", "agent"),
    ("cat for dan", "cat"),
    ("cat for dan", "dan"),
)
SEVERAL: Final = (
    ("ann", "bob"), ("agent", "cat"), ("agent", "dan"), ("its token for bob", "cat"), ("bobs other agent", "ann"),
    ("the shop for ann", "the shop for bob"), ("the shop for the agent", "cat"), ("cat for dan", "ann"),
)  # fmt: skip


@pytest.mark.parametrize("is_turned", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("one", "other"), ONE_MIND, ids=str)
def test_one_mind_fills_no_quorum_of_two(place: Place, one: str, other: str, is_turned: bool) -> None:
    first, second = (place.voices[each] for each in ((other, one) if is_turned else (one, other)))
    run = place.start("two", place.req)
    assert place.decide(run, first) == (200, "")
    assert place.decide(run, second) == (403, "vote_final")
    assert place.run(run)["status"] == "waiting"


@pytest.mark.parametrize(("one", "other"), SEVERAL, ids=str)
def test_two_minds_fill_a_quorum_of_two(place: Place, one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        run = place.start("two", place.req)
        assert [place.decide(run, place.voices[each]) for each in (first, second)] == [(200, "")] * 2
        wait_for(lambda run=run: place.run(run)["status"] == "finished")


def test_a_refusal_says_whose_vote_stands(place: Place) -> None:
    run = place.start("two", place.req)
    assert place.decide(run, place.voices["agent"])[0] == 200
    path = f"/v1/pendings/{place.question(run)}/decide"
    answer = place.api.post(path, json={"decision": "approve"}, headers=place.voices["bob"])
    assert "agent:buyer, who has one vote with user:bob, has voted on it" in answer.json()["detail"]


def test_a_quorum_of_an_agent_and_its_person_is_never_met(place: Place) -> None:
    run = place.start("both", place.req)
    assert place.decide(run, place.voices["ann"]) == (200, "")
    assert place.decide(run, place.voices["agent"]) == (403, "vote_final")
    turned = place.start("both", place.req)
    assert place.decide(turned, place.voices["agent"]) == (200, "")
    wait_for(lambda: place.run(turned)["status"] == "failed")


def test_people_fill_a_quorum_beside_an_agent_that_stands_for_them(place: Place) -> None:
    run = place.start("people beside their agent", place.req)
    assert place.question(run) is not None, "two can decide it"
    assert [place.decide(run, place.voices[each]) for each in ("ann", "bob")] == [(200, "")] * 2
    wait_for(lambda: place.run(run)["status"] == "finished")


@pytest.mark.parametrize("voice", ["cat for dan", "the shop for ann", "dan"])
def test_whoever_may_decide_a_question_finds_it_in_their_inbox(place: Place, voice: str) -> None:
    run, who = place.start("of a role", place.req), place.voices[voice]
    question = place.question(run)
    listed = expect(place.api.get("/v1/pendings", params={"run_id": run}, headers=who), 200).json()["items"]
    assert [each["id"] for each in listed] == [question]
    assert place.decide(run, who) == (200, "")


# --- nothing of one's own ---------------------------------------------------------------------------------------------

OWN: Final = (
    *((requester, voice) for requester in ITS_PEOPLE[:3] for voice in OF_THE_AGENT),
    *((requester, person) for requester in OF_THE_AGENT for person in ITS_PEOPLE),
    *(pair for each in ("agent", "ann", "bob") for pair in ((each, "by its other id"), ("by its other id", each))),
    ("cat", "cat for dan"),
    ("cat for dan", "cat"),
    ("dan", "cat for dan"),
)


@pytest.mark.parametrize(("requester", "voice"), OWN, ids=str)
def test_a_mind_decides_nothing_that_it_has_asked_for(place: Place, requester: str, voice: str) -> None:
    run = place.start("one", place.voices[requester])
    assert place.decide(run, place.voices[voice]) == (403, "pending_forbidden")
    assert place.run(run)["status"] == "waiting"


@pytest.mark.parametrize(
    ("requester", "voice"),
    [("the shop for ann", "the shop for bob"), ("cat", "dan"), ("ann", "bob"), ("ann", "cat for dan")],
)
def test_people_whom_a_backend_relays_decide_for_each_other(place: Place, requester: str, voice: str) -> None:
    assert place.decide(place.start("one", place.voices[requester]), place.voices[voice]) == (200, "")


# --- whom the requester names -----------------------------------------------------------------------------------------

GIVEN: Final = ("anyone", "requester", "user:req", ["anyone"], ["requester", "user:cat"], ["role:boss", "anyone"])


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("kind", ["approve", "gate"])
@pytest.mark.parametrize("hole", HOLES)
def test_a_requester_does_not_say_that_they_decide(place: Place, hole: str, kind: str, given: Any) -> None:
    if "beside" in hole and isinstance(given, list):
        given = [*given, "user:cat"]
    run = place.start(f"{hole}, {kind}", place.req, who=given)
    question = place.question(run)
    if given == "requester" and "beside" not in hole:
        assert question is None, "nobody could decide it"
    if question is not None:
        assert place.decide(run, place.req) == (403, "pending_forbidden")
    assert place.run(run)["status"] != "finished"


@pytest.mark.parametrize("given", ["anyone", "requester"])
def test_nor_do_they_say_it_of_a_later_stage(place: Place, given: str) -> None:
    run = place.start("escalated", place.req, who=given)
    if place.question(run) is not None:
        wait_for(lambda: "pending_escalated" in place.api.get(f"/v1/runs/{run}/events", headers=place.operator).text)
        assert place.decide(run, place.req)[0] in (403, 404, 409)
    assert place.run(run)["status"] != "finished"


@pytest.mark.parametrize("kind", ["approve", "gate"])
@pytest.mark.parametrize("hole", HOLES)
def test_others_decide_whom_the_requester_names(place: Place, hole: str, kind: str) -> None:
    for given in ("anyone", "user:cat", ["requester", "user:cat"]):
        run = place.start(f"{hole}, {kind}", place.req, who=given)
        assert place.decide(run, place.voices["cat"]) == (200, "")


@pytest.mark.parametrize("kind", ["approve", "gate"])
@pytest.mark.parametrize("named", NAMED)
def test_a_workflow_says_itself_that_the_requester_decides(place: Place, named: str, kind: str) -> None:
    run = place.start(f"{named}, {kind}", place.req, word="requester")
    assert place.decide(run, place.req) == (200, "")


# --- approvals of agents ----------------------------------------------------------------------------------------------

_ESCALATE: Final = {"escalate": {"from": ["agent:buyer"], "within": "1h"}}
OWN_POLICIES: Final[tuple[dict[str, Any], ...]] = tuple(
    {**policy, **more}
    for policy in (
        {"from": ["agent:buyer"]},
        {"from": ["agent:buyer", "requester"]},
        {"from": ["agent:buyer", "anyone"]},
        {"from": ["agent:buyer", "user:ann"], "exclude": []},
    )
    for more in ({}, {"edit": True}, _ESCALATE, {"edit": True, **_ESCALATE})  # each has a question of its own
)


@pytest.mark.parametrize("policy", OWN_POLICIES, ids=str)
def test_an_agent_approves_no_request_of_its_own_whatever_its_policy(place: Place, policy: dict[str, Any]) -> None:
    body = {"action": "pay", "arguments": {"n": 1}, "policy": policy}
    run = expect(place.api.post("/v1/approvals", json=body, headers=place.voices["agent"]), 201).json()["id"]
    if place.question(run) is not None:
        for voice in OF_THE_AGENT:
            assert place.decide(run, place.voices[voice])[0] == 403, voice
        if policy.get("exclude") == []:
            assert place.decide(run, place.voices["ann"]) == (200, "")


# --- senders of signals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voice", "sender"),
    [("a page for somebody", "service:page user:somebody"), ("its token for bob", "agent:buyer user:bob user:ann"),
     ("agent", "agent:buyer user:ann user:bob"), ("the shop for ann", "user:ann"),
     ("cat for dan", "user:cat user:dan")],
)  # fmt: skip
def test_the_holder_of_a_key_is_the_sender_before_those_whom_it_names(place: Place, voice: str, sender: str) -> None:
    """Those behind a sender give way to other senders, so ids that one key makes up drive out nobody."""
    run = place.start("hears", place.req)
    wait_for(lambda: place.run(run)["status"] == "waiting")
    path = f"/v1/runs/{run}"
    expect(place.api.post(f"{path}/signals", json={"type": "heard"}, headers=place.voices[voice]), 201)
    wait_for(lambda: place.run(run)["status"] == "finished")
    events = place.api.get(f"{path}/events", params={"limit": 200}, headers=place.operator).json()["items"]
    assert [each["by"] for each in events if each["type"] == "signal_received"] == [sender]
