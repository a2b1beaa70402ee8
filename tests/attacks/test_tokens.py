"""Frontends' tokens: one issuer's key is one voice, and a token for one thread or workflow is for nothing else."""

from __future__ import annotations

import base64
import json
import string
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import httpx2
import pytest
from websockets.sync.client import connect

from hai_flow.primitives import uuids
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity import erasure, keys
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

FLOW: Final = """
hai: flow/v1
name: {name}
version: 1
roles:
  controller: [user:carla, user:carl]
steps:
  - {{id: go, approve: {{title: Go?, {policy}}}}}
"""
POLICIES: Final = {
    "controlled": "from: [role:controller], quorum: 2",
    "named": "from: [user:carla, user:carl], quorum: 2",
    "named_one": "from: [user:carla]",
    "of_role": "from: [role:boss], quorum: 2",
    "of_role_one": "from: [role:boss]",
    "of_group": "from: [group:bosses]",
    "of_anyone": "from: [anyone], quorum: 2",
    "of_requester": "from: [requester]",
    "other": "from: [role:boss]",
}


STREAM: Final = {"Accept": "text/event-stream"}
BASE64URL: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


class Place:
    """A server, an issuer's key that says for nobody, and one that says for the people of a shop."""

    def __init__(self, api: httpx2.Client, people: People) -> None:
        self.api, self.people = api, people
        publisher = people.person("user:pat", roles=["publisher"])
        for name, policy in POLICIES.items():
            text = FLOW.format(name=name, policy=policy)
            expect(api.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 201)
        held = {"roles": ["issuer", "decider", "boss"], "groups": ["bosses"]}
        admin = people.person("user:root", roles=["admin"])
        self.admin = admin
        self.silent = self.make({"principal": "service:page", **held})
        self.shop = self.make({"principal": "service:shop", "speaks_for": ["user:shop-*", "user:carla"], **held})
        self.operator = people.person("user:op", roles=["operator"])
        self.req = people.person("user:req")
        self.ann = people.person("user:ann", roles=["requester", "decider", "boss"])

    def make(self, body: dict[str, Any]) -> str:
        answer = expect(self.api.post("/v1/keys", json=body, headers=self.admin), 201)
        return str(answer.json()["key"])

    def token(self, key: str, principal: str, **more: Any) -> dict[str, str]:
        body = {"principal": principal, "roles": ["decider", "boss", "requester"], "groups": ["bosses"], **more}
        answer = expect(self.api.post("/v1/tokens", json=body, headers=carried(key)), 201)
        return carried(answer.json()["token"])

    def ask(self, workflow: str, who: dict[str, str], thread: str | None = None) -> dict[str, Any]:
        body = {"workflow": workflow, "thread_id": thread or unique("t")}
        run = expect(self.api.post("/v1/runs", json=body, headers=who), 201)

        def found() -> list[dict[str, Any]]:
            items = self.api.get("/v1/pendings", params={"limit": 200}, headers=self.operator).json()["items"]
            return [each for each in items if each["run_id"] == run.json()["id"]]

        return wait_for(found)[0]

    def decide(self, item: dict[str, Any], who: dict[str, str]) -> tuple[int, str]:
        body = {"decision": "approve", "reason": unique("because")}
        answer = self.api.post(f"/v1/pendings/{item['id']}/decide", json=body, headers=who)
        return answer.status_code, answer.json().get("code") or answer.json()["status"]

    def status(self, item: dict[str, Any]) -> str:
        return str(self.api.get(f"/v1/runs/{item['run_id']}", headers=self.operator).json()["status"])


@pytest.fixture(scope="module")
def place(postgres_server: Server) -> Iterator[Place]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=KEYS) as server,
        httpx2.Client(base_url=server.url, timeout=30) as api,
    ):
        yield Place(api, People(dsn))


# --- one key, one voice -----------------------------------------------------------------------------------------------

PEOPLE: Final = ("user:carla", "user:carl", "user:ann", "user:nobody")


@pytest.mark.parametrize("principal", PEOPLE)
@pytest.mark.parametrize("workflow", ["controlled", "named", "named_one", "of_role", "of_role_one", "of_group"])
def test_a_key_that_speaks_for_nobody_decides_by_no_name_role_or_group(
    place: Place, workflow: str, principal: str
) -> None:
    item, token = place.ask(workflow, place.req), place.token(place.silent, principal)
    assert place.decide(item, token) == (404, "pending_unknown")
    inbox = place.api.get("/v1/inbox", params={"limit": 200}, headers=token).json()["items"]
    assert item["id"] not in [each["id"] for each in inbox]
    assert place.status(item) == "waiting"


@pytest.mark.parametrize("second", PEOPLE[1:])
def test_all_for_whom_a_key_vouches_have_one_vote_of_anyone(place: Place, second: str) -> None:
    item = place.ask("of_anyone", place.req)
    assert place.decide(item, place.token(place.silent, "user:carla")) == (200, "open")
    assert place.decide(item, place.token(place.silent, second)) == (403, "vote_final")
    assert place.status(item) == "waiting"
    assert place.decide(item, place.ann)[0] == 200


def test_a_token_answers_what_asks_the_requester(place: Place) -> None:
    token = place.token(place.silent, "user:customer")
    item = place.ask("of_requester", token)
    assert place.decide(item, token)[0] == 200
    wait_for(lambda: place.status(item) == "finished")


@pytest.mark.parametrize("principal", ["user:shop-1", "user:shop-", "user:carla"])
def test_a_key_decides_as_those_for_whom_it_speaks(place: Place, principal: str) -> None:
    item = place.ask("of_role_one", place.req)
    assert place.decide(item, place.token(place.shop, principal))[0] == 200


@pytest.mark.parametrize("principal", ["user:carl", "user:shop", "user:Shop-1", "user:my-shop-1", "service:shop-1"])
def test_a_key_decides_as_nobody_else(place: Place, principal: str) -> None:
    item = place.ask("of_role_one", place.req)
    assert place.decide(item, place.token(place.shop, principal)) == (404, "pending_unknown")


@pytest.mark.parametrize("pattern", ["*", "user", "user:a*b", "role:boss", "user:a b", "user:\u200b*", "", "user:**"])
def test_a_pattern_that_means_no_principals_is_refused(place: Place, pattern: str) -> None:
    body = {"principal": "service:x", "speaks_for": [pattern]}
    assert place.api.post("/v1/keys", json=body, headers=place.admin).status_code == 422


def forged(key: str, **claims: Any) -> dict[str, str]:
    """A token that the holder of the key has signed without asking the server."""
    parts = keys.split_key(key)
    assert parts is not None
    now_ms = time.time_ns() // 1_000_000
    whole = {"key": parts.id, "jti": uuids.uuid7(now_ms).hex, "exp": now_ms + 60_000, "id": "user:x", **claims}
    payload = base64.urlsafe_b64encode(json.dumps(whole).encode()).rstrip(b"=")
    signature = base64.urlsafe_b64encode(keys.sign(parts, payload)).rstrip(b"=")
    return carried(f"hait_{payload.decode()}.{signature.decode()}")


@pytest.mark.parametrize(
    "claims",
    [
        {"roles": ["operator"]},
        {"roles": ["admin"]},
        {"roles": ["issuer"]},
        {"roles": ["auditor"]},
        {"roles": ["controller"]},
        {"groups": ["finance"]},
    ],
    ids=str,
)
def test_a_token_signed_beside_the_server_holds_no_more_than_its_key(place: Place, claims: dict[str, Any]) -> None:
    answer = place.api.get("/v1/session", headers=forged(place.silent, **claims))
    assert (answer.status_code, answer.json()["code"]) == (401, "auth.invalid")


@pytest.mark.parametrize("text", ["\0", "\\u0000", "\\\0"], ids=ascii)
@pytest.mark.parametrize("claim", ["threads", "workflows", "jti"])
def test_no_claim_prevents_that_a_key_is_revoked_or_its_holder_forgotten(place: Place, claim: str, text: str) -> None:
    holder = f"service:{unique('page')}"
    made, key = place.people.key(holder, roles=["requester"])
    token = forged(key, **{claim: text if claim == "jti" else [text]})
    expect(place.api.post("/v1/tickets", headers=token), 201)
    expect(place.api.post(f"/v1/keys/{made.id}/revoke", headers=place.admin), 200)
    place.people.do(lambda connection: erasure.forget(connection, LOCAL_TENANT, holder, by="user:root"))


def test_a_token_that_is_signed_beside_the_server_has_no_other_vote(place: Place) -> None:
    item = place.ask("of_role_one", place.req)
    token = forged(place.silent, id="user:carla", roles=["decider", "boss"])
    assert place.decide(item, token) == (404, "pending_unknown")


def test_a_token_has_one_text(place: Place) -> None:
    """Of the last sign of a signature four bits are read: the other texts of the same bytes are no tokens."""
    sound = forged(place.silent)
    assert place.api.get("/v1/session", headers=sound).status_code == 200
    text = sound["Authorization"].removeprefix("Bearer ")
    place_of_last = BASE64URL.index(text[-1])
    for bits in range(1, 16):
        other = text[:-1] + BASE64URL[place_of_last ^ bits]
        assert place.api.get("/v1/session", headers=carried(other)).status_code == 401, other


# --- for one thread, or one workflow ----------------------------------------------------------------------------------

LIMITS: Final = ({"threads": ["only-this"]}, {"workflows": ["other"]}, {"threads": [], "workflows": ["other"]})
limits = pytest.mark.parametrize("limit", LIMITS, ids=str)
REFUSED: Final[tuple[tuple[str, str, Any], ...]] = (
    ("GET", "/v1/inbox/counts", None),
    ("GET", "/v1/inbox/decided", None),
    ("GET", "/v1/inbox/delegations", None),
    ("POST", "/v1/inbox/delegations", {"to": "user:eve", "until": "2030-01-01T00:00:00Z"}),
    ("DELETE", "/v1/inbox/delegations/018f3c1e-0000-7000-8000-000000000000", None),
    ("POST", "/v1/files", None),
)


@limits
@pytest.mark.parametrize(("method", "path", "body"), REFUSED, ids=lambda value: str(value))
def test_a_limited_token_opens_nothing_that_goes_by_the_person(
    place: Place, limit: dict[str, Any], method: str, path: str, body: Any
) -> None:
    token = place.token(place.shop, "user:shop-1", **limit)
    answer = place.api.request(method, path, json=body, headers=token)
    assert (answer.status_code, answer.json()["code"]) == (403, "credential_limited")


@limits
def test_a_limited_token_reads_no_file_of_its_person(place: Place, limit: dict[str, Any]) -> None:
    whole = place.token(place.shop, "user:shop-1")
    made = expect(place.api.post("/v1/files", content=b"mine", headers={**whole, "Content-Type": "text/plain"}), 201)
    path = f"/v1/files/{made.json()['id']}"
    assert place.api.get(path, headers=whole).status_code == 200
    assert place.api.get(path, headers=place.token(place.shop, "user:shop-1", **limit)).status_code == 404


@limits
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/pendings", "/v1/inbox", "/v1/threads"])
def test_a_limited_token_lists_nothing_outside(place: Place, limit: dict[str, Any], path: str) -> None:
    whole = place.token(place.shop, "user:shop-2")
    item = place.ask("of_requester", whole)
    shown = place.api.get(path, params={"limit": 200}, headers=place.token(place.shop, "user:shop-2", **limit))
    assert shown.status_code == 200
    assert item["run_id"] not in shown.text
    assert item["run_id"] in place.api.get("/v1/runs", params={"limit": 200}, headers=whole).text


@limits
def test_a_ticket_of_a_limited_token_follows_nothing_outside(place: Place, limit: dict[str, Any]) -> None:
    whole = place.token(place.shop, "user:shop-3")
    item = place.ask("of_requester", whole)
    statuses = []
    for token in (whole, place.token(place.shop, "user:shop-3", **limit)):
        made = expect(place.api.post("/v1/tickets", headers=token), 201)
        params = {"ticket": made.json()["ticket"]}
        with place.api.stream("GET", f"/v1/runs/{item['run_id']}/events", params=params, headers=STREAM) as answer:
            statuses.append(answer.status_code)
    assert statuses == [200, 404]


@limits
@pytest.mark.parametrize("path", ["/awp", "/ag-ui", "/cpk/agent/of_requester/run", "/process", "/api/aui/input"])
def test_a_limited_token_answers_nothing_outside_over_any_protocol(
    place: Place, limit: dict[str, Any], path: str
) -> None:
    whole, thread = place.token(place.shop, "user:shop-4"), unique("t")
    item = place.ask("of_requester", whole, thread)
    answer = {"approve": True, "approval_request_id": item["id"]}
    message = {"id": unique("m"), "role": "tool", "toolCallId": item["id"], "content": "yes"}
    part = {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": answer}]}
    resume = [{"interruptId": item["id"], "status": "resolved", "payload": {"approved": True}}]
    bodies: dict[str, dict[str, Any]] = {
        "/process": {"session_id": thread, "stream": False, "input": [part]},
        "/api/aui/input": {"session_id": thread, "interrupt_id": item["id"], "action": "approve"},
        "/awp": {"threadId": thread, "runId": unique("r"), "messages": [message], "tools": []},
    }
    body = bodies.get(path, {"threadId": thread, "runId": unique("r"), "messages": [], "tools": [], "resume": resume})
    place.api.post(path, json=body, headers=place.token(place.shop, "user:shop-4", **limit))
    assert place.status(item) == "waiting"
    expect(place.api.post(path, json=body, headers=whole), 200)
    assert wait_for(lambda: place.status(item) == "finished")


# --- ids that look like others ----------------------------------------------------------------------------------------

INVISIBLE: Final = (
    "\u200b",
    "\u202e",
    "\u00ad",
    "\u2060",
    "\ufeff",
    "\u200d",
    "\u3164",
    "\ufe0f",
    "\U000e0041",
    "\x85",
)


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_nobody_is_called_by_a_name_with_invisible_characters(place: Place, character: str) -> None:
    id = f"user:ann{character}"
    for body in ({"principal": id}, {"principal": "user:ann", "roles": [f"boss{character}"]}):
        assert place.api.post("/v1/keys", json=body, headers=place.admin).status_code == 422
    expect(place.api.post("/v1/tokens", json={"principal": id}, headers=carried(place.silent)), 422)
    assert place.api.get("/v1/session", headers=forged(place.silent, id=id)).status_code == 401


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200f", "\u061c"], ids=ascii)
def test_a_name_of_a_file_does_not_turn_around(place: Place, character: str) -> None:
    name = f"invoice{character}fdp.exe"
    expect(place.api.post("/v1/files", params={"name": name}, content=b"x", headers=place.ann), 422)


# --- who is behind what a key, its tokens and its tickets do ----------------------------------------------------------

_GO: Final = "  - {id: go, approve: {title: Go?, from: anyone, exclude: requester}}\n"
CAUSED: Final = f"hai: flow/v1\nname: caused\nversion: 1\nsteps:\n{_GO}"
TRIGGERED: Final = f"""
hai: flow/v1
name: triggered
version: 1
triggers:
  - event: {{type: caused}}
  - schedule: {{cron: "0 0 1 1 *", timezone: UTC}}
steps:
{_GO}"""
AWAITING: Final = f"""
hai: flow/v1
name: awaiting
version: 1
steps:
  - {{id: hear, wait_for: {{event: heard}}}}
{_GO}"""
Cause: TypeAlias = Callable[[Place, dict[str, str]], str]
"""Lets there be a run that the caller is behind; returns its id."""


def start(place: Place, who: dict[str, str]) -> str:
    return str(_post(place, "/v1/runs", who, {"workflow": "caused"})["id"])


def ask_for_approval(place: Place, who: dict[str, str]) -> str:
    policy = {"from": ["anyone"], "exclude": ["requester"]}
    return str(_post(place, "/v1/approvals", who, {"action": "pay", "arguments": {}, "policy": policy})["id"])


def speak(path: str) -> Cause:
    def cause(place: Place, who: dict[str, str]) -> str:
        thread = unique("t")
        said = [{"id": unique("m"), "role": "user", "content": "Go."}]
        body = {"threadId": thread, "runId": unique("r"), "messages": said, "tools": []}
        answer = place.api.post(f"/workflows/caused/{path}", json=body, headers=who)
        assert answer.status_code == 200, answer.text
        return _run_of(place, thread)

    return cause


def send_to_agent(place: Place, who: dict[str, str]) -> str:
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "Go."}]}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return str(_post(place, "/workflows/caused/a2a", {**who, "A2A-Version": "1.0"}, body)["result"]["task"]["id"])


def open_socket(place: Place, who: dict[str, str]) -> str:
    thread, ticket = unique("t"), _post(place, "/v1/tickets", who)["ticket"]
    address = f"{str(place.api.base_url).replace('http', 'ws', 1)}/api/aui/ws/caused?ticket={ticket}"
    with connect(address, proxy=None) as socket:
        socket.send(json.dumps({"type": "params", "data": {"session_id": thread, "message": "Go."}}))
        return _run_of(place, thread)


def signal(place: Place, who: dict[str, str]) -> str:
    id = str(_post(place, "/v1/runs", place.req, {"workflow": "awaiting"})["id"])
    _post(place, f"/v1/runs/{id}/signals", who, {"type": "heard"})
    return id


def send_event(place: Place, who: dict[str, str]) -> str:
    return str(_post(place, "/v1/events", who, {"type": "caused", "data": {}})["runs"][0]["run_id"])


def run_schedule(place: Place, who: dict[str, str]) -> str:
    (schedule,) = place.api.get("/v1/schedules", headers=place.operator).json()["items"]
    if schedule["last_run_id"] is not None:
        place.api.post(f"/v1/runs/{schedule['last_run_id']}/stop", headers=place.operator)
    return str(_post(place, f"/v1/schedules/{schedule['id']}/run", who)["id"])


def fork(place: Place, who: dict[str, str]) -> str:
    base = start(place, place.req)
    _question_of(place, base)
    return str(_post(place, f"/v1/runs/{base}/fork", who, {"step": "go"})["id"])


CAUSES: Final[dict[str, Cause]] = {
    "a start": start,
    "a message over HAI": speak("awp"),
    "a message over AG-UI": speak("ag-ui"),
    "a message over A2A": send_to_agent,
    "a socket that a ticket opens": open_socket,
    "a request for an approval": ask_for_approval,
    "a signal": signal,
    "an event": send_event,
    "a schedule": run_schedule,
    "a fork": fork,
}


def _post(place: Place, path: str, who: dict[str, str], body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = place.api.post(path, json=body, headers=who)
    assert answer.is_success, answer.text
    return dict(answer.json())


def _run_of(place: Place, thread: str) -> str:
    query = {"thread_id": thread}
    runs = wait_for(lambda: place.api.get("/v1/runs", params=query, headers=place.operator).json()["items"])
    return str(runs[0]["id"])


def _question_of(place: Place, run: str) -> dict[str, Any]:
    query = {"run_id": run}
    found = wait_for(lambda: place.api.get("/v1/pendings", params=query, headers=place.operator).json()["items"])
    return dict(found[0])


@pytest.fixture(scope="module")
def causing(place: Place) -> Place:
    publisher = place.people.person("user:pat", roles=["publisher"])
    for text in (CAUSED, TRIGGERED, AWAITING):
        assert place.api.post("/v1/workflows", content=text, headers={**YAML, **publisher}).status_code == 201
    return place


ACTING: Final = ["issuer", "requester", "operator"]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_key_that_speaks_for_nobody_does_not_approve_what_it_has_caused(causing: Place, cause: str) -> None:
    place, page = causing, f"service:{unique('page')}"
    _, key = place.people.key(page, roles=ACTING)
    _, other = place.people.key(page, roles=ACTING)
    first = place.token(key, "user:first", roles=ACTING[1:], groups=[])
    voices = {
        "itself": first,
        "another token": place.token(key, "user:second", roles=[], groups=[]),
        "the key": carried(key),
        "a token of its other key": place.token(other, "user:second", roles=[], groups=[]),
    }
    question = _question_of(place, CAUSES[cause](place, first))
    for voice, who in voices.items():
        assert place.decide(question, who) == (403, "pending_forbidden"), voice
    assert place.status(question) == "waiting"
    _, stranger = place.people.key(f"service:{unique('page')}", roles=["issuer"])
    assert place.decide(question, place.token(stranger, "user:second", roles=[], groups=[])) == (200, "approve")


def test_a_token_does_not_approve_what_its_key_has_caused(causing: Place) -> None:
    _, key = causing.people.key(f"service:{unique('page')}", roles=["issuer"])
    question = _question_of(causing, start(causing, carried(key)))
    assert causing.decide(question, causing.token(key, "user:second", roles=[], groups=[]))[0] == 403
    assert causing.decide(question, causing.req) == (200, "approve")


@pytest.mark.parametrize("credential", ["its key", "its token", "a token for somebody else"])
@pytest.mark.parametrize("cause", CAUSES)
def test_a_person_does_not_approve_what_their_agent_has_caused(causing: Place, cause: str, credential: str) -> None:
    place, ann = causing, f"user:{unique('ann')}"
    anns = place.people.person(ann)
    agent = f"agent:{unique('buyer')}"
    _, key = place.people.key(agent, roles=ACTING, speaks_for=[ann])
    token = {"its token": agent, "a token for somebody else": "user:else"}.get(credential)
    acting = carried(key) if token is None else place.token(key, token, roles=ACTING[1:], groups=[])
    question = _question_of(place, CAUSES[cause](place, acting))
    for who in (anns, place.token(key, ann, roles=[], groups=[])):
        assert place.decide(question, who) == (403, "pending_forbidden")
    assert place.decide(question, place.req if cause not in ("a signal", "a fork") else place.ann) == (200, "approve")


@pytest.mark.parametrize("first", ["the key", "a token", "a token of its other key"])
@pytest.mark.parametrize("second", ["the key", "a token", "a token of its other key"])
def test_a_key_and_its_tokens_have_one_vote(place: Place, first: str, second: str) -> None:
    page = f"service:{unique('page')}"
    (_, key), (_, other) = (place.people.key(page, roles=["issuer"]) for _ in range(2))
    voices = {
        "the key": lambda: carried(key),
        "a token": lambda: place.token(key, f"user:{unique('u')}", roles=[], groups=[]),
        "a token of its other key": lambda: place.token(other, f"user:{unique('u')}", roles=[], groups=[]),
    }
    item = place.ask("of_anyone", place.req)
    assert place.decide(item, voices[first]()) == (200, "open")
    assert place.decide(item, voices[second]()) == (403, "vote_final")
    assert place.status(item) == "waiting"
    assert place.decide(item, place.ann)[0] == 200
