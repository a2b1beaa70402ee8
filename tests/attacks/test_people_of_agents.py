"""An agent passes no question of a run that somebody for whom it acts has started, nor do its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest

from tests.support import effects
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

AGENT: Final = "agent:buyer"
_FLOW: Final = """
hai: flow/v1
name: {name}
version: {version}
input: {{type: object, properties: {{amount: {{type: number, default: 100}}}}}}
tools: {{fx: {{python: tests.support.effects, effect: write}}}}
steps:
{steps}"""
_GATE: Final = "approve: {{title: Go?, from: [{}], exclude: [requester]}}"
_NAMED: Final = _GATE.format(f"role:boss, '{AGENT}'")
_ANYONE: Final = _GATE.format("anyone")
_BOSS: Final = _GATE.format("role:boss")
_HEAR: Final = "  - {id: hear, wait_for: {event: heard, deadline: 1d}}\n"
_PAY: Final = "  - {id: pay, call: fx.note, with: {n: 1}}\n"
STEPS: Final = {
    "named": f"  - id: go\n    {_NAMED}\n{_PAY}",
    "of_anyone": f"  - id: go\n    {_ANYONE}\n{_PAY}",
    "by_input": f"{_HEAR}  - id: go\n    if: input.amount > 10.0\n    {_BOSS}\n{_PAY}",
    "by_output": f"{_HEAR}  - id: go\n    if: steps.hear.output.data.n > 0\n    {_BOSS}\n{_PAY}",
}
_EASY: Final = f"  - id: go\n    {_ANYONE}\n{_PAY}"
Headers: TypeAlias = dict[str, str]


class Place:
    """A server whose admin has given Ann an agent, which operates runs, and decides where it is named."""

    def __init__(self, api: httpx2.Client, people: People) -> None:
        self.api, self.people = api, people
        person = people.person
        self.operator, self.req = person("user:op", roles=["operator"]), person("user:req")
        self.boss = person("user:boss", roles=["requester", "decider", "boss", "operator"])
        roles = ["issuer", "requester", "decider", "operator"]
        self.ann = person("user:ann", roles=roles[1:])
        _, key = people.key(AGENT, roles=roles, speaks_for=["user:a.smith", "user:bob"])
        self.voices = {"ann": self.ann, "her agent": carried(key)}
        for name, principal in (("its token", "user:page"), ("its own token", AGENT)):
            token = {"principal": principal, "roles": roles[1:], "expires_in": 3600}
            made = expect(api.post("/v1/tokens", json=token, headers=carried(key)), 201)
            self.voices[name] = carried(made.json()["token"])
        publisher = person("user:pat", roles=["publisher"])
        for name, steps in STEPS.items():
            self.publish(publisher, name, 1, steps)
        self.publisher = publisher

    def publish(self, who: Headers, name: str, version: int, steps: str) -> None:
        text = _FLOW.format(name=name, version=version, steps=steps)
        expect(self.api.post("/v1/workflows", content=text, headers={**YAML, **who}), 200, 201)

    def post(self, path: str, who: Headers, body: Any = None) -> tuple[int, str]:
        answer = self.api.post(path, json=body, headers=who)
        return answer.status_code, answer.json().get("code", "")

    def start(self, workflow: str, who: Headers) -> str:
        id = str(expect(self.api.post("/v1/runs", json={"workflow": workflow}, headers=who), 201).json()["id"])
        self.until(id, "waiting")
        return id

    def until(self, run: str, status: str) -> None:
        wait_for(lambda: self.api.get(f"/v1/runs/{run}", headers=self.operator).json()["status"] == status)

    def question(self, run: str) -> str:
        asked = self.api.get("/v1/pendings", params={"run_id": run}, headers=self.operator).json()["items"]
        return str(asked[0]["id"])

    def decide(self, run: str, who: Headers, decision: str = "approve") -> tuple[int, str]:
        return self.post(f"/v1/pendings/{self.question(run)}/decide", who, {"decision": decision})

    def effects(self) -> int:
        return int(self.people.do(lambda c: c.fetchval("SELECT count(*) FROM effects")))


@pytest.fixture(scope="module")
def place(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    file = Path(tmp_path_factory.mktemp("identity")) / "identity.yaml"
    file.write_text("hai: identity/v1\npeople: {default: {user:ann: [user:a.smith]}}\n")
    environment = {**KEYS, "HAI_FLOW_IDENTITY": str(file)}
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=environment) as server,
        httpx2.Client(base_url=server.url, timeout=30) as api,
    ):
        People(dsn).do(lambda c: c.execute(effects.LEDGER))
        yield Place(api, People(dsn))


# --- an agent and its people ------------------------------------------------------------------------------------------

Act: TypeAlias = Callable[[Place, Headers, Headers], tuple[int, str]]
"""What a voice tries with a run that the requester has started."""


def vote(workflow: str) -> Act:
    return lambda place, who, requester: place.decide(place.start(workflow, requester), who)


def vote_in_bulk(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    items = [{"id": place.question(place.start("named", requester)), "decision": "approve"}]
    (item,) = expect(place.api.post("/v1/inbox/decide", json={"items": items}, headers=who), 200).json()["items"]
    return item["status"], (item["problem"] or {}).get("code", "")


def skip(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    return place.post(f"/v1/runs/{place.start('named', requester)}/skip", who, {"step": "go"})


def skip_what_decides(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    run = place.start("by_output", requester)
    return place.post(f"/v1/runs/{run}/skip", who, {"step": "hear", "output": {"data": {"n": 0}}})


def fork_with_another_input(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    run = place.start("by_input", requester)
    return place.post(f"/v1/runs/{run}/fork", who, {"step": "hear", "input": {"amount": 1}})


def reject(place: Place, requester: Headers) -> str:
    run = place.start("named", requester)
    assert place.decide(run, place.boss, "reject") == (200, "")
    place.until(run, "failed")
    return run


def retry(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    return place.post(f"/v1/runs/{reject(place, requester)}/retry", who)


def retry_in_bulk(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    body = {"action": "retry", "runs": [reject(place, requester)]}
    (item,) = expect(place.api.post("/v1/runs/bulk", json=body, headers=who), 200).json()["items"]
    return (403, item["problem"]["code"]) if item["outcome"] == "refused" else (200, "")


def fork_before_a_no(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    return place.post(f"/v1/runs/{reject(place, requester)}/fork", who, {"step": "go"})


def migrate(place: Place, who: Headers, requester: Headers) -> tuple[int, str]:
    name = unique("moved")
    place.publish(place.publisher, name, 1, STEPS["named"])
    run = place.start(name, requester)
    place.publish(place.publisher, name, 2, _EASY)
    body = {"from": "1", "to": "2", "runs": [run]}
    (moved,) = expect(place.api.post(f"/v1/workflows/{name}/migrate", json=body, headers=who), 200).json()["runs"]
    return (200, "") if moved["moved"] else (403, moved["obstacles"][0]["code"])


ACTS: Final[dict[str, tuple[Act, str]]] = {
    "votes": (vote("named"), "pending_forbidden"),
    "votes where anyone may": (vote("of_anyone"), "pending_forbidden"),
    "votes in bulk": (vote_in_bulk, "pending_forbidden"),
    "skips the question": (skip, "skip.forbidden"),
    "skips what decides whether people are asked": (skip_what_decides, "skip.forbidden"),
    "forks with another input": (fork_with_another_input, "fork.forbidden"),
    "retries behind a no": (retry, "retry.forbidden"),
    "retries in bulk": (retry_in_bulk, "retry.forbidden"),
    "forks in front of a no": (fork_before_a_no, "fork.forbidden"),
    "moves the run to an easier version": (migrate, "question.changed"),
}
NOT_ASKED: Final = {("its token", name) for name in ("votes", "votes in bulk")}
"""A token for somebody else is not asked by the name of the agent: it does not see the question."""


@pytest.mark.parametrize("voice", ["ann", "her agent", "its token", "its own token"])
@pytest.mark.parametrize("act", ACTS)
def test_an_agent_passes_no_question_of_those_for_whom_it_acts(place: Place, act: str, voice: str) -> None:
    perform, code = ACTS[act]
    before = place.effects()
    found = perform(place, place.voices[voice], place.ann)
    if (voice, act) in NOT_ASKED or (voice == "ann" and act.startswith("votes") and "anyone" not in act):
        assert found[0] in (403, 404)
    else:
        assert found == (403, code)
    assert place.effects() == before


@pytest.mark.parametrize("act", [name for name in ACTS if "what decides" not in name and "another input" not in name])
def test_an_agent_that_is_named_decides_what_others_ask(place: Place, act: str) -> None:
    if "anyone" not in act:
        found = ACTS[act][0](place, place.voices["her agent"], place.req)
        assert found[0] in (200, 201), found
