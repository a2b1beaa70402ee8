"""Tenants beside each other: nothing of one is found by, shown to, or changed for the callers of another."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from docs import rights_page
from docs.rights_page import Route
from hai_flow.api.permissions.rights import ROLES
from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.examples import sample
from tests.support.hai_client import unique, user
from tests.support.identities import KEYS, People
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for

SECRET: Final = "known to the shop"
SOURCE: Final = """
hai: flow/v1
name: NAME
version: 1
triggers:
  - api: {}
  - schedule: {cron: "0 6 1 1 *", timezone: UTC}
  - webhook: {path: NAME, secret: "${{ secrets.SHOP_HOOK }}", input: {}}
steps:
  - say: "Hello from NAME."
  - id: gate
    approve: {title: Go?, from: [role:boss], evidence: {of: NAME}}
"""
ALL: Final = [route for route in dict.fromkeys(rights_page.routes()) if route.path != "/an-alias"]
OPEN: Final = {
    **dict.fromkeys(("/", "/console", "/docs", "/docs/assets", "/docs/start.js", "/openapi.json"), "a page of all"),
    **dict.fromkeys(("/healthz", "/readyz", "/api/aui/ping", "/api/aui/ws/ping"), "says whether this process works"),
    "/.well-known/jwks.json": "the public halves of the deployment's keys, the same for all tenants",
    "/.well-known/agent-card.json": "the card of the server, which names no workflow",
    "/.well-known/oauth-protected-resource/mcp": "the issuers of the deployment, the same for all tenants",
    "/callbacks/{token}": "the address is the proof, and belongs to one run (tests/api/test_callbacks.py)",
    "/chat/{address:path}": "the address names the tenant, the platform proves the call (tests/attacks/test_chat.py)",
    "/links/{token}": "the same, to one person and question (tests/api/test_links.py)",
    "/sign-in": "who signs in has no tenant yet (tests/api/test_sessions.py)",
    **dict.fromkeys(("/sign-in/callback", "/sign-in/callback/{issuer_name}"), "the same"),
    "/sign-in/link/{link}": "the same",
    "/sign-in/key": "the key in the body names the tenant (tests/api/test_sessions.py)",
    "/v1/hooks/{path:path}": "the address names the tenant, and the request proves its sender",
}
"""The routes that ask for no credential, with the reason."""
HOOKS: Final = "/v1/hooks/{path:path}"
SOCKETS: Final = [route for route in ALL if route.method == "WS"]
ROUTES: Final = [route for route in ALL if route not in SOCKETS and (route.path not in OPEN or route.path == HOOKS)]
ENDS: Final = ("/stop", "/terminate", "/stop/{thread_id:path}")
"""The ends of the paths that end a run: in one's own tenant each is asked for with a run of its own."""


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={**KEYS, "HAI_FLOW_SECRET_SHOP_HOOK": SECRET}) as process:
        yield process


@dataclass(frozen=True)
class World:
    """What there is of a tenant, by the names that paths and bodies have for it."""

    workflow: str
    run_id: str
    pending_id: str
    thread_id: str
    message_id: str
    schedule_id: str
    file: str
    hook: str
    tenant: str = "acme"

    def parameters(self) -> dict[str, str]:
        return {
            "run_id": self.run_id, "pending_id": self.pending_id, "thread_id": self.thread_id, "kind": "messages",
            "subject_id": self.message_id, "schedule_id": self.schedule_id, "file": self.file, "path": self.hook,
            "key_id": "none", "delegation_id": self.run_id, "account_id": self.run_id, "name": self.workflow,
            "reference": self.workflow, "agent": self.workflow, "tenant": self.tenant,
            "operation": f"tasks/{self.run_id}", "freeze_id": self.run_id, "absence_id": self.run_id,
            "rule_id": self.run_id, "person": "user:ann",
        }  # fmt: skip

    def names(self) -> list[str]:
        """Everything by which it could be known, the longest first."""
        found = [getattr(self, name) for name in self.__dataclass_fields__]
        return sorted(set(found), key=len, reverse=True)


def publish(url: str, people: People, tenant: str, name: str) -> None:
    headers = people.person("user:pat", roles=["publisher"], tenant=tenant)
    expect(httpx2.post(f"{url}/v1/workflows", content=SOURCE.replace("NAME", name), headers={**YAML, **headers}), 201)


def world_of(url: str, people: People, tenant: str, name: str) -> World:
    """A tenant with one of everything."""
    publish(url, people, tenant, name)
    ann = people.person("user:requester", roles=["requester"], tenant=tenant)
    oli = people.person("user:oli", roles=["operator"], tenant=tenant)
    thread_id, message_id = f"thread-{name}", f"message-{name}"
    AguiClient(url, thread_id, workflow=name, headers=ann).post(user("hello", id=message_id))
    (run,) = httpx2.get(f"{url}/v1/runs", headers=ann).json()["items"]
    (pending,) = httpx2.get(f"{url}/v1/runs/{run['id']}/snapshot", headers=ann).json()["pendings"]
    (schedule,) = httpx2.get(f"{url}/v1/schedules", headers=oli).json()["items"]
    file = httpx2.post(f"{url}/v1/files", content=name.encode(), headers=ann).json()
    hook = f"@{tenant}/{name}"
    return World(name, run["id"], pending["id"], thread_id, message_id, schedule["id"], file["id"], hook, tenant)


def absent(world: World) -> World:
    """The names of things that nobody has."""
    other = {"a": "b", "0": "1"}

    def changed(id: str) -> str:
        return id[:-1] + other.get(id[-1], "a" if id[-1].isalpha() else "0")

    return replace(
        world,
        workflow="quuxquuxq",  # as long as the other one: the lengths of answers tell nothing, either
        run_id=changed(world.run_id),
        pending_id=changed(world.pending_id),
        thread_id="thread-quuxquuxq",
        message_id="message-quuxquuxq",
        schedule_id=changed(world.schedule_id),
        file=changed(world.file),
        hook="@nobody/quuxquuxq",
        tenant="nobody",
    )


@pytest.fixture(scope="module")
def worlds(strict: ServerProcess, dsn: str) -> tuple[World, World, World]:
    """The caller's own, another tenant's, and one that is not there."""
    people = People(dsn)
    own = world_of(strict.url, people, "acme", "alphabet")
    other = world_of(strict.url, people, "globex", "zirconium")
    return own, other, absent(other)


def _conversation(world: World) -> dict[str, Any]:
    told = {"id": "told", "role": "tool", "toolCallId": world.pending_id, "content": "yes"}
    return {"threadId": world.thread_id, "runId": f"r-{world.thread_id}", "messages": [told], "tools": []}


BODIES: Final[dict[str, Callable[[World], Any]]] = {
    "/api/aui/input": lambda w: {"session_id": w.thread_id, "interrupt_id": w.pending_id, "action": "approve"},
    "/cpk": lambda w: {"method": "agent/run", "params": {"agentId": w.workflow}, "body": _conversation(w)},
    "/a2a": lambda w: {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": w.run_id}},
    "/workflows/{name}/a2a": lambda w: {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": w.run_id}},
    "/process": lambda w: {"session_id": w.thread_id, "workflow": w.workflow, "input": []},
    "/workflows/{name}/process": lambda w: {"session_id": w.thread_id, "input": []},
    "/v1/runs": lambda w: {"workflow": w.workflow, "thread_id": f"new-{w.thread_id}"},
    "/v1/approvals": lambda w: {"action": "pay", "arguments": {}, "workflow": w.workflow},
    "/v1/approvals/{run_id}/consume": lambda w: {"digest": "0" * 64},
    "/v1/runs/{run_id}/jump": lambda w: {"for": "1d"},
    "/v1/runs/{run_id}/signals": lambda w: {"type": "paid"},
    "/v1/signals": lambda w: {"type": "paid"},
    "/v1/events": lambda w: {"type": "paid"},
    "/v1/pendings/{pending_id}/decide": lambda w: {"decision": "approve"},
    "/v1/threads/{thread_id}/feedback/{kind}/{subject_id:path}": lambda w: {"rating": "up"},
    "/v1/workflows/{name}/migrate": lambda w: {"from": "1", "to": "1", "runs": [w.run_id]},
    **dict.fromkeys(
        (
            "/ag-ui", "/awp", "/send-message", "/workflows/{name}/ag-ui", "/workflows/{name}/awp",
            "/workflows/{name}/send-message", "/cpk/agent/{agent}/run", "/cpk/agent/{agent}/connect",
        ),
        _conversation,
    ),
}  # fmt: skip
"""The bodies of requests that name something in them. Other POSTs have no body, or one that names nothing."""


def asked(client: httpx2.Client, route: Route, world: World, headers: dict[str, str]) -> tuple[int, str]:
    """As `answered`, without the headers."""
    status, text, _ = answered(client, route, world, headers)
    return status, text


def answered(
    client: httpx2.Client, route: Route, world: World, headers: dict[str, str]
) -> tuple[int, str, dict[str, str]]:
    """The status of the answer to a sensible request, its text unless that goes on for ever, and its headers, but for
    the time. The names of the world are replaced in them."""
    path = re.sub(r":path\}", "}", route.path).format(**world.parameters())
    path += "?from=1&to=1" if path.endswith("/diff") else ""
    content: bytes | None = None
    kind = "application/json"
    if (
        route.path in ("/v1/workflows", "/v1/workflows/validate", "/v1/workflows/{name}/backtest")
        and route.method == "POST"
    ):
        kind, content = "application/yaml", SOURCE.replace("NAME", "published").encode()
    elif route.path == "/v1/files":
        kind, content = "text/plain", b"some text"
    elif route.method in ("POST", "PUT", "PATCH"):
        content = json.dumps(BODIES.get(route.path, lambda w: {})(world)).encode()
        if route.path.startswith("/v1/hooks"):
            signature = hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()
            headers = {**headers, "X-Hub-Signature-256": f"sha256={signature}"}
    given = {**headers, "Content-Type": kind} if content is not None else headers
    with client.stream(route.method, path, content=content, headers=given) as response:
        endless = route.method == "GET" and response.headers.get("content-type", "").startswith("text/event-stream")
        text = "" if endless else response.read().decode()
        told = {name: _nameless(value, world) for name, value in response.headers.items() if name.lower() != "date"}
        return response.status_code, _nameless(text, world), told


def _nameless(text: str, world: World) -> str:
    for name in world.names():
        text = text.replace(name, "NAME")
    return _timeless(text)


def _timeless(text: str) -> str:
    """Without times, and what is made up for each answer."""
    text = re.sub(r'"(timestamp|at|created_at|completed_at)": ?[^,}]+', r'"\1":0', text)
    text = re.sub(r"20\d\d-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    made = r"(msg_|response_)?[0-9a-f]{8}-[0-9a-f-]{27}|(sig|eve)_[\w-]+|(msg|response)_[0-9a-f]{32}|[0-9a-f]{32}"
    return re.sub(made, "MADE", text)


def callers(dsn: str, tenant: str) -> dict[str, dict[str, str]]:
    """The headers of somebody of each role. The requester has asked for the run, and it asks the decider."""
    people = People(dsn)
    roles = {role: [role] for role in ROLES} | {"decider": ["decider", "boss"], "nobody": []}
    return {role: people.person(f"user:{role}", roles=held, tenant=tenant) for role, held in roles.items()}


def test_every_parameter_of_a_path_has_something_in_the_worlds() -> None:
    names = {name for route in ROUTES for name in re.findall(r"\{(\w+)", route.path)}
    assert names == set(World("", "", "", "", "", "", "", "").parameters())


def test_no_route_is_left_out_but_for_a_reason() -> None:
    assert {route.path for route in ALL if not route.rights} == set(OPEN)
    assert [route for route in ALL if route.path not in OPEN and route not in (*ROUTES, *SOCKETS)] == []
    assert [route.path for route in SOCKETS] == ["/api/aui/ws/{stream_type}"]


@pytest.mark.timeout(600)  # some thousand requests
def test_another_tenants_things_are_as_if_absent_on_every_route(
    strict: ServerProcess, dsn: str, worlds: tuple[World, World, World]
) -> None:
    _, other, none = worlds
    before = _everything(strict.url, dsn, "globex")
    with httpx2.Client(base_url=strict.url, timeout=30) as client:
        for (role, headers), route in sample(itertools.product(callers(dsn, "acme").items(), ROUTES), 150):
            *found, told = answered(client, route, other, headers)
            if route.path.startswith("/v1/hooks"):  # it asks for the proof of the hook alone, which was given
                assert found[0] == 202, found
                continue
            if "{" in route.path or route.path in BODIES:  # else it names nothing
                assert (*found, told) == answered(client, route, none, headers), (role, route)
            assert not any(name in f"{found[1]}{told}" for name in other.names()), (role, route)
            assert found[0] not in (401, 500), (role, route, found)
    assert _everything(strict.url, dsn, "globex") == before


def _everything(url: str, dsn: str, tenant: str) -> dict[str, Any]:
    """What an operator sees of a tenant, but for runs that a webhook has started."""
    headers = People(dsn).person("user:oli", roles=["operator"], tenant=tenant)
    found = {
        what: httpx2.get(f"{url}/v1/{what}?limit=200", headers=headers).json()["items"]
        for what in ("runs", "threads", "pendings", "schedules", "workflows")
    }
    for what in ("runs", "threads", "pendings"):
        found[what] = [each for each in found[what] if each.get("started_by") != "system" and "zirc" in str(each["id"])]
    return found


def is_of_its_maker(problem: str) -> bool:
    """Whether it says that what was asked for is not there, of what only the one has who made it: an opinion, a file
    that no run refers to; of a link, that it was given to nobody; of a receipt, that the question is open; or of
    workers, that they are the deployment's."""
    said = (
        "receipt_early",
        "approval_unknown",
        "feedback_unknown",
        "file_unknown",
        "rule_unknown",
        "This link has expired or was already used",
        "tenant_forbidden",
    )
    return any(each in problem for each in said)


READS_ALL: Final = ("viewer", "operator", "requester")


@pytest.mark.timeout(600)  # some thousand requests
def test_every_role_reaches_what_its_rights_allow_on_every_route(
    strict: ServerProcess, dsn: str, worlds: tuple[World, World, World]
) -> None:
    by_method = sorted(ROUTES, key=lambda route: route.method != "GET")
    with httpx2.Client(base_url=strict.url, timeout=30) as client:
        for (role, headers), route in sample(itertools.product(callers(dsn, "acme").items(), by_method), 200):
            ends = route.path.endswith(ENDS)  # what comes behind them would find a run that is over
            world = another_run(strict.url, dsn, worlds[0]) if ends else worlds[0]
            status, text = asked(client, route, world, headers)
            may = route.opens_to(role if role != "nobody" else "requester")
            assert may or (status == 403 and "right_missing" in text), (role, route, text)
            assert status not in (401, 500), (role, route, text)
            if may and role in READS_ALL and route.method == "GET":
                assert status == 200 or is_of_its_maker(text), (role, route, text)
            if may and role == "operator" and route.path.endswith(ENDS[:2]):
                assert status == 200, (role, route, text)


def another_run(url: str, dsn: str, world: World) -> World:
    """The world with another run of its requester's, in a thread of its own."""
    ann = People(dsn).person("user:requester", roles=["requester"], tenant=world.tenant)
    body = {"workflow": world.workflow, "thread_id": unique("thread")}
    begun = httpx2.post(f"{url}/v1/runs", json=body, headers=ann).json()
    return replace(world, run_id=begun["id"], thread_id=body["thread_id"])


def test_over_a_socket_another_tenants_session_is_as_if_absent_to_any_role(
    strict: ServerProcess, dsn: str, worlds: tuple[World, World, World]
) -> None:
    own, other, none = worlds
    address = strict.url.replace("http", "ws", 1) + SOCKETS[0].path.replace("{stream_type}", "interactive")
    for role, headers in callers(dsn, "acme").items():
        if not SOCKETS[0].opens_to(role if role != "nobody" else "requester"):
            for _ in worlds:
                with pytest.raises(InvalidStatus) as refusal, connect(address, additional_headers=headers, proxy=None):
                    pass
                assert refusal.value.response.status_code == 403, role
            continue
        found = [first_events(strict.url, headers, world) for world in (own, other, none)]
        assert found[1] == found[2], role
        assert (found[0] != found[2]) is (role in ("requester", "viewer", "operator", "decider")), (role, found)


def first_events(url: str, headers: dict[str, str], world: World) -> str:
    """What the socket says of the world's session until it has answered what is tried at its question. Whether the
    stream starts before is chance."""
    client = AuiClient(url, headers=headers, session_id=world.thread_id)
    client.send(type="input", interrupt_id=world.pending_id, action="maybe")
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != "aui_action_ack":
        events.append({**client.next(), "id": ""})
    client.close()
    return _nameless(json.dumps([each for each in events if each["type"] != "aui_stream_start"]), world)


# --- the same script as two tenants -----------------------------------------------------------------------------------


def script(url: str, people: People, tenant: str) -> list[tuple[str, int, str]]:
    """What a tenant's people do: the same names in every tenant. Each answer, but for ids and times."""
    ann = people.person("user:ann", roles=["requester"], tenant=tenant)
    eve = people.person("user:eve", roles=["decider", "boss"], tenant=tenant)
    oli = people.person("user:oli", roles=["operator"], tenant=tenant)
    pat = people.person("user:pat", roles=["publisher"], tenant=tenant)
    said: list[tuple[str, int, str]] = []

    def do(method: str, path: str, who: dict[str, str], body: Any = None, **headers: str) -> Any:
        content = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/yaml" if isinstance(body, str) else "application/json"} if content else {}
        answer = httpx2.request(method, url + path, content=content, headers={**who, **kind, **headers}, timeout=30)
        shown = re.sub(r"call_[a-z0-9_]+", "PENDING", _timeless(answer.text))
        shown = re.sub(r"20\d\d-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{64}|\b1[78]\d{8,11}\b", "MADE", shown)
        said.append((f"{method} {re.sub('[0-9a-f-]{36}|call_[a-z0-9_]+', 'ID', path)}", answer.status_code, shown))
        return answer.json() if answer.headers.get("content-type", "").startswith("application/json") else answer.text

    do("POST", "/v1/workflows", pat, SOURCE.replace("NAME", "expense"))
    do("GET", "/v1/workflows/expense", pat)
    first = user("hello", id="m-1")
    body = {"threadId": "t-1", "runId": "r-1", "messages": [first], "tools": [], "protocolVersion": "1.0"}
    do("POST", "/workflows/expense/ag-ui", ann, body)
    do("POST", "/workflows/expense/ag-ui", ann, body)  # the same again is shown again
    do("POST", "/awp", ann, {"threadId": "t-1", "runId": "r-2", "messages": [], "tools": []})
    (run,) = do("GET", "/v1/runs?thread_id=t-1", ann)["items"]
    do("GET", f"/v1/runs/{run['id']}", eve)
    for who in (ann, eve, oli):
        do("GET", "/v1/threads", who)
        do("GET", "/v1/threads/t-1/messages", who)
        do("GET", "/api/v1/agent/runs/t-1/history", who)
    do("POST", "/v1/runs", ann, {"workflow": "expense", "thread_id": "t-2"}, **{"Idempotency-Key": "k-1"})
    do("POST", "/v1/runs", ann, {"workflow": "expense", "thread_id": "t-2"}, **{"Idempotency-Key": "k-1"})
    do("POST", "/v1/signals", oli, {"type": "paid", "id": "s-1", "data": {"n": 1}})
    do("POST", "/v1/signals", oli, {"type": "paid", "id": "s-1", "data": {"n": 1}})
    do("PUT", "/v1/threads/t-1/feedback/messages/m-1", ann, {"rating": "up"})
    do("GET", "/v1/threads/t-1/feedback", ann)
    inbox = do("GET", "/v1/inbox", eve)["items"]
    pending = next(each["id"] for each in inbox if each["run_id"] == run["id"])
    do("POST", f"/v1/pendings/{pending}/decide", eve, {"decision": "approve"}, **{"Idempotency-Key": "k-2"})
    wait_for(lambda: httpx2.get(f"{url}/v1/runs/{run['id']}", headers=ann).json()["status"] == "finished")
    do("GET", f"/v1/runs/{run['id']}/events?limit=1000", ann)
    do("GET", f"/v1/runs/{run['id']}/events?limit=1000", eve)
    do("GET", "/v1/pendings", eve)
    do("GET", "/v1/schedules", oli)
    do("GET", "/v1/runs", oli)
    return said


def test_the_same_requests_of_two_tenants_get_the_same_answers(strict: ServerProcess, dsn: str) -> None:
    people = People(dsn)
    one, two = (script(strict.url, people, tenant) for tenant in ("left", "right"))
    assert [each[:2] for each in one] == [each[:2] for each in two]
    for mine, yours in zip(one, two, strict=True):
        assert mine == yours


# --- what is looked up without a principal ----------------------------------------------------------------------------


def test_a_webhook_starts_a_run_of_the_tenant_that_its_address_names(strict: ServerProcess, dsn: str) -> None:
    people, name = People(dsn), unique("hook").replace("-", "")
    for tenant in ("default", "north", "south"):
        publish(strict.url, people, tenant, name)
    for address, tenant in ((name, "default"), (f"@north/{name}", "north"), (f"@south/{name}", "south")):
        body = json.dumps({"order": address}).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json"}
        answer = expect(httpx2.post(f"{strict.url}/v1/hooks/{address}", content=body, headers=headers), 202)
        for of in ("default", "north", "south"):
            oli = people.person("user:oli", roles=["operator"], tenant=of)
            found = httpx2.get(f"{strict.url}/v1/runs/{answer.json()['run_id']}", headers=oli).status_code
            assert found == (200 if of == tenant else 404), (address, of)
    for address in (f"@nowhere/{name}", f"@/{name}", f"@north/@south/{name}", "@north/", f"@NORTH/{name}"):
        answer = httpx2.post(f"{strict.url}/v1/hooks/{address}", content=b"{}", headers={"Content-Type": "text/json"})
        assert answer.status_code == 404, address
