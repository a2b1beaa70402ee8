"""Two tenants do the same side by side on one server, on every route of the application and over every protocol: each
gets the answers that the other gets, and nothing of the other is in any of them.

The tenants' people choose the same names for everything that clients name. What the server names (runs, questions,
keys, files, cursors) is made up for each; of those names none is ever told to both."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import asyncpg
import httpx2
import pytest

from docs.rights_page import Route
from hai_flow.api.permissions.rights import ROLES
from tests.api.test_tenants import HOOKS, ROUTES, SECRET, SOCKETS, SOURCE
from tests.support.aui_client import AuiClient
from tests.support.hai_client import user
from tests.support.identities import KEYS, People
from tests.support.server import ServerProcess, serving
from tests.support.waiting import until

NAME: Final = "expense"
TENANTS: Final = ("alpha", "gamma")  # as long as each other: so are the answers
KEYS_OF_CALLERS: Final = ("key_of_all", "key_of_boss")
SEVERAL: Final = timedelta(days=80)


@dataclass
class Tenant:
    """One of the two: its callers, the names that it has learned, and all that it was told."""

    name: str
    url: str
    headers: dict[str, dict[str, str]]  # of its callers
    names: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def do(self, step: Step) -> tuple[int, str, str]:
        """The status, the type and the text of the answer to a step."""
        path, body = filled(step.path, self.names), filled(step.body, self.names)
        content, kind = None, {}
        if isinstance(body, str):
            content, kind = body.encode(), {"Content-Type": "application/yaml"}
            if path == "/v1/files":
                content, kind = self.name.encode(), {"Content-Type": "text/plain"}
        elif body is not None:
            content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        signed = {}
        if path.startswith("/v1/hooks") and content is not None:
            signed = {"X-Hub-Signature-256": f"sha256={hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()}"}
        sent = {**self.headers[step.by], **kind, **signed, **filled(step.headers, self.names)}
        with httpx2.stream(step.method, self.url + path, content=content, headers=sent, timeout=60) as answer:
            text = "".join(until_silent(answer))
            self.told.append(f"{text} {dict(answer.headers)}")
            for name, found in step.learns.items():
                self.names[name] = found(json.loads(text))
            return answer.status_code, answer.headers.get("content-type", ""), text


def until_silent(answer: httpx2.Response) -> Iterator[str]:
    """What is said until the end, or until an endless stream has no more to say."""
    for line in answer.iter_lines():
        if line.startswith(":") and answer.request.method == "GET":
            return
        yield line + "\n"


@dataclass(frozen=True)
class Step:
    """A request, with `{names}` in its parts for what a tenant has learned. `learns`: names, and where they are in the
    answer. `status` None: any, but the same for both. `by`: who sends it; all that has to do with an inbox is the
    boss's, since nobody decides what they have asked for."""

    method: str
    path: str
    body: Any = None
    status: int | None = 200
    learns: dict[str, Callable[[Any], str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    by: str = "all"

    @property
    def route(self) -> Route:
        path = re.sub(r"\{\w+\}", "x", self.path.partition("?")[0])
        fitting = [
            route
            for route in ROUTES
            if route.method == self.method
            and re.fullmatch(re.sub(r"\{\w+:path\}", ".+", re.sub(r"\{\w+\}", "[^/]+", route.path)), path)
        ]
        return min(fitting, key=lambda route: route.path.count("{"))


def filled(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, str):
        return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), part)
    if isinstance(part, dict):
        return {name: filled(each, names) for name, each in part.items()}
    return [filled(each, names) for each in part] if isinstance(part, list) else part


def said(thread: str, **more: Any) -> dict[str, Any]:
    """A conversation's POST that begins a run in the thread."""
    return {"threadId": thread, "runId": f"r-{thread}", "messages": [user("hi", id=f"m-{thread}")], "tools": [], **more}


def processed(thread: str) -> dict[str, Any]:
    text = {"role": "user", "type": "message", "content": [{"type": "text", "text": "hi"}]}
    return {"session_id": thread, "input": [text]}


def first(answer: Any) -> str:
    return str(answer["items"][0]["id"])


def own(answer: Any) -> str:
    return str(answer["id"])


STREAM: Final = {"Accept": "text/event-stream"}
AGUI: Final = {"protocolVersion": "1.0"}
LISTED: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
TASKS: Final = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
ASKED: Final = {"from": ["role:boss"]}
DAYS: Final = {"first_day": "{day}", "last_day": "{day}", "delegate": "user:bob"}
GIVEN: Final = {"workflow": NAME, "thread_id": "t-1"}

BEGINNING: Final = (
    Step("POST", "/v1/workflows", SOURCE.replace("NAME", NAME), 201),
    Step("POST", "/v1/workflows/validate", SOURCE.replace("NAME", NAME)),
    Step("POST", "/v1/workflows/format", SOURCE.replace("NAME", NAME)),
    Step("POST", "/v1/workflows/graph", SOURCE.replace("NAME", NAME)),
    Step("POST", f"/workflows/{NAME}/ag-ui", said("t-1", **AGUI)),
    Step("GET", "/v1/runs?thread_id=t-1", learns={"run": first}),
    Step("GET", "/v1/runs/{run}/snapshot", learns={"pending": lambda answer: answer["pendings"][0]["id"]}),
    Step("GET", "/v1/schedules", learns={"schedule": first}),
    Step("POST", "/v1/files", "{tenant}", 201, {"file": own}),
    Step("POST", "/v1/tickets", {}, 201),
    Step("POST", "/v1/keys", {"principal": "user:bob", "roles": ["viewer"]}, 201, {"key": own}),
    Step("POST", "/v1/tokens", {"principal": "user:bob"}, 201),
    # over every protocol, each in a thread of its own, and again in the first one
    Step("POST", "/ag-ui", said("t-ag-ui", forwardedProps={"workflow": NAME}, **AGUI), None),
    Step("POST", f"/workflows/{NAME}/awp", said("t-awp")),
    Step("POST", "/awp", {"threadId": "t-1", "runId": "r-awp", "messages": [], "tools": []}),
    Step("POST", "/send-message", {**said("t-1"), "runId": "r-look", "messages": []}),
    Step("POST", f"/workflows/{NAME}/send-message", said("t-send")),
    Step("POST", f"/workflows/{NAME}/process", processed("t-process")),
    Step("POST", "/process", {"session_id": "t-1", "input": []}),
    Step("POST", "/cpk", {"method": "agent/run", "params": {"agentId": NAME}, "body": said("t-cpk")}),
    Step("POST", f"/cpk/agent/{NAME}/run", said("t-cpk-run")),
    Step("POST", f"/cpk/agent/{NAME}/connect", {**said("t-1"), "runId": "r-join", "messages": []}),
    Step("POST", "/v1/runs", {**GIVEN, "thread_id": "t-rest"}, 201, {"other": own}, {"Idempotency-Key": "k-1"}),
    Step("POST", "/v1/runs", {**GIVEN, "thread_id": "t-rest"}, 200, {}, {"Idempotency-Key": "k-1"}),
    Step("POST", "/v1/runs", {**GIVEN, "thread_id": "t-1"}, 409),
    Step("POST", "/v1/approvals", {"action": "pay", "arguments": {"n": 1}, "policy": ASKED}, 201, {"approval": own}),
    Step("POST", "/v1/approvals/{approval}/consume", {"arguments": {"n": 1}}, 409),
    Step("POST", "/v1/hooks/@{tenant}/" + NAME, {"order": 1}, 202),
    Step("POST", "/v1/events", {"type": "paid", "id": "e-1"}, 201),
    Step("POST", "/v1/signals", {"type": "paid", "id": "s-1", "data": {"n": 1}}, 201),
    Step("POST", "/v1/runs/{run}/signals", {"type": "paid", "id": "s-2"}, 201),
    Step("PUT", "/v1/threads/t-1/feedback/messages/m-t-1", {"rating": "up"}, 201),
    Step("POST", "/v1/inbox/delegations", {"to": "user:bob", "until": "{later}"}, 201, {"delegation": own}, by="boss"),
    Step("POST", "/v1/inbox/delegations", {"to": "user:eve", "until": "{later}"}, 201, {"absence": own}, by="boss"),
    Step("POST", "/v1/absences", DAYS, 201, {"away": own}, by="boss"),
    Step("POST", "/v1/inbox/accounts", {"channel": "chat"}, 404, by="boss"),
    Step("DELETE", "/v1/inbox/accounts/{run}", None, 404, by="boss"),
    Step("POST", "/v1/inbox/{pending}/claim", {}, by="boss"),
    Step("POST", "/v1/schedules/{schedule}/pause", {}),
    Step("POST", "/v1/schedules/{schedule}/resume", {}),
)
LOOKING: Final = (
    *(
        Step("GET", path)
        for path in (
            "/ag-ui/capabilities", f"/workflows/{NAME}/ag-ui/capabilities", "/cpk/info", "/v1/session",
            "/v1/delegations", "/v1/absences?everybody=true", "/v1/approvals/{approval}", "/v1/freezes", "/v1/rules",
            "/v1/canaries", "/v1/pendings/{pending}/openings",
            "/api/v1/agent/runs/t-1/history", "/v1/oversight", "/v1/oversight/me",
            "/v1/oversight/people/user:boss", "/v1/audit?limit=200", "/v1/audit/anchor", "/v1/audit/chain",
            "/v1/files/{file}", "/v1/inbox", "/v1/inbox/counts", "/v1/inbox/decided", "/v1/inbox/delegations",
            "/v1/inbox/accounts", "/v1/inbox/{pending}",
            "/v1/keys", "/v1/language/schema", "/v1/notifications", "/v1/pendings",
            "/v1/pendings/{pending}", "/v1/pendings/{pending}/arguments", "/v1/pendings/{pending}/history", "/v1/runs",
            "/v1/runs?limit=2", "/v1/runs/counts", "/v1/runs/{run}", "/v1/runs/{run}/diff?from=1",
            "/v1/runs/{run}/events?limit=1000",
            "/v1/runs/{run}/marks", "/v1/runs/{run}/replay?speed=100000&gap=0", "/v1/runs/{run}/snapshot",
            "/v1/runs/{run}/steps", "/v1/schedules", "/v1/schedules/{schedule}", "/v1/schedules/{schedule}/fires",
            "/v1/tenants", "/v1/tenants/{tenant}", "/v1/threads", "/v1/threads?limit=2", "/v1/threads/t-1",
            "/v1/threads/t-1/queue", "/v1/threads/t-1/feedback", "/v1/threads/t-1/feedback/messages/m-t-1",
            "/v1/threads/t-1/messages",
            "/v1/workflows", f"/v1/workflows/{NAME}", f"/v1/workflows/{NAME}/source", f"/v1/workflows/{NAME}/graph",
            f"/v1/workflows/{NAME}/diff?from=1&to=1",
        )
    ),
    *(
        Step("GET", path, None, 200, {}, STREAM)
        for path in (
            "/api/v1/agent/runs/t-1/events", "/v1/feed", "/v1/inbox/events", "/v1/runs/{run}/events",
            *(f"/v1/runs/{{run}}/events?dialect={each}" for each in ("hai", "agui", "social", "aui", "agent-api")),
        )
    ),
)  # fmt: skip
ENDING: Final = (
    Step("PATCH", "/v1/tenants/{tenant}", {"open_runs": 5}, 403),
    Step("GET", "/v1/workers", None, 403),
    Step("GET", "/v1/overview", None, 403),
    Step("GET", "/v1/pendings/{pending}/receipt", None, 409),
    Step("POST", "/mcp", LISTED, None, headers={"Accept": "application/json, text/event-stream"}),
    Step("POST", "/a2a", TASKS),
    Step("POST", f"/workflows/{NAME}/a2a", TASKS),
    Step("GET", "/a2a/tasks/{run}", None),
    Step("GET", f"/workflows/{NAME}/a2a/tasks/{{run}}", None),
    Step("POST", "/a2a/tasks/{run}:nothing", {}, 404),
    Step("DELETE", "/a2a/tasks/{run}/pushNotificationConfigs/none", None),
    Step("DELETE", f"/workflows/{NAME}/a2a/tasks/{{run}}/pushNotificationConfigs/none", None),
    Step("POST", f"/workflows/{NAME}/a2a/message:send", {}, 400),
    Step("GET", f"/workflows/{NAME}/.well-known/agent-card.json", None),
    Step("POST", "/v1/pendings/{pending}/check", {"decision": "approve"}, by="boss"),
    Step("POST", "/v1/inbox/{pending}/release", {}, by="boss"),
    Step("DELETE", "/v1/inbox/delegations/{delegation}", None, 204, by="boss"),
    Step("DELETE", "/v1/delegations/{absence}", None, 204),
    Step("DELETE", "/v1/absences/{away}", None, 204, by="boss"),
    Step("POST", "/v1/freezes", {"scope": "workflow", "name": NAME, "reason": "a drill"}, 201, {"freeze": own}),
    Step("POST", "/v1/freezes/{freeze}/thaw", {}),
    Step("POST", "/v1/canaries", {"workflow": "no_such", "path": "x", "reason": "a drill"}, 404),
    Step("POST", "/v1/pendings/{pending}/opened", {"part": "link"}, None, by="boss"),
    Step("POST", "/v1/rules", {"pending_id": "{pending}", "until": "{later}", "reason": "a drill"}, 422, by="boss"),
    Step("GET", "/v1/rules/{run}", None, 404),
    Step("POST", "/v1/rules/{run}/revoke", {}, 404),
    Step("POST", "/v1/runs/{run}/pause", {}),
    Step("POST", "/v1/runs/{run}/resume", {}),
    Step("POST", "/v1/runs/{run}/jump", {"for": "1d"}, None),
    Step("POST", "/v1/runs/{run}/retry", {}),
    Step("POST", "/v1/runs/{run}/skip", {"step": "gate"}, None),
    Step("POST", f"/v1/workflows/{NAME}/backtest", SOURCE.replace("NAME", NAME)),
    Step("POST", f"/v1/workflows/{NAME}/migrate", {"from": "1", "to": "1", "runs": ["{run}"], "dry_run": True}, None),
    Step(
        "POST",
        "/v1/pendings/{pending}/decide",
        {"decision": "approve"},
        None,
        headers={"Idempotency-Key": "k-2"},
        by="boss",
    ),
    Step("POST", "/api/aui/input", {"session_id": "t-rest", "action": "approve"}, None),
    Step("POST", "/v1/inbox/decide", {"items": [{"id": "{pending}", "decision": "approve"}]}, by="boss"),
    Step("POST", "/v1/runs", {**GIVEN, "thread_id": "t-stop"}, 201, {"third": own}),
    Step("POST", "/v1/runs/{third}/stop", {}),
    Step("POST", "/v1/runs", {**GIVEN, "thread_id": "t-end"}, 201, {"fourth": own}),
    Step("POST", "/v1/runs/{fourth}/terminate", {}),
    Step("POST", "/v1/runs", {**GIVEN, "thread_id": "t-cpk-stop"}, 201, {"fifth": own}),
    Step("POST", f"/cpk/agent/{NAME}/stop/t-cpk-stop", {}),
    Step("POST", "/v1/runs/{run}/fork", {"step": "gate"}, None),
    Step("POST", "/v1/runs/bulk", {"action": "pause", "runs": ["{fourth}"]}),
    Step("POST", "/v1/schedules/{schedule}/run", {}, None),
    Step("DELETE", "/v1/threads/t-1/queue/{run}", None, None),
    Step("POST", "/v1/keys/{key}/revoke", {}),
    Step("DELETE", "/v1/threads/t-1/feedback/messages/m-t-1", None, 204),
    Step("POST", f"/v1/workflows/{NAME}@1/retire", {}),
    Step("POST", f"/v1/workflows/{NAME}@1/unretire", {}),
    Step("DELETE", "/v1/session", None, 204),
)
INBOX: Final = tuple(replace(step, by="boss") for step in LOOKING if "inbox" in step.path or "pending" in step.path)
LOOKING_AGAIN: Final = tuple(replace(step, status=None) for step in (*LOOKING, *INBOX))  # some of it has gone
SCRIPT: Final = (*BEGINNING, *LOOKING, *INBOX, *ENDING, *LOOKING_AGAIN)
ENDLESS: Final = ("/v1/feed", "/v1/inbox/events")
"""Streams that tell of what was there when they were opened, in parts whose number is no promise."""
SEALED: Final = ("/v1/audit",)
"""What shows how far the sealer has come, which comes when it comes: it is looked at for names of the other alone."""

TIMED: Final = ("/v1/oversight",)
"""What shows how long people took, by the clock: it is looked at likewise."""


def test_the_script_has_a_step_for_every_route() -> None:
    """A route that is new has to be asked here, too: add a step."""
    asked = {step.route for step in SCRIPT}
    assert [route for route in ROUTES if route not in asked] == []
    assert [route.path for route in SOCKETS] == ["/api/aui/ws/{stream_type}"], "each is opened below"
    assert any(route.path == HOOKS for route in asked)


@pytest.fixture(scope="module")
def server(dsn: str) -> Iterator[ServerProcess]:
    quiet = {"HAI_FLOW_SECRET_SHOP_HOOK": SECRET, "HAI_FLOW_KEEPALIVE_SECONDS": "0.5"}
    with serving(dsn, environment={**KEYS, **quiet}) as process:
        yield process


RESTING: Final = ("waiting", "paused", "needs_attention", "finished", "failed", "stopped")
MADE: Final = re.compile(
    r"call_[a-z0-9_]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?:sig|eve|file|msg)_[A-Za-z0-9_-]{16,}"
)
"""What the server names: never the same for two tenants."""
_WITHOUT: Final = (
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)"), "TIME"),
    (
        re.compile(r'"(timestamp|at|created_at|completed_at|ms|seconds|took\w*|\w+_ms|duration\w*)": ?-?[\d.]+'),
        r'"\1":0',
    ),
    (MADE, "MADE"),
    (re.compile(r"[A-Za-z0-9_.=-]{24,}"), "MADE"),  # tokens, cursors, digests
    (re.compile(r"\b1[78]\d{8,14}\b"), "MADE"),
)


def comparable(text: str, tenant: Tenant) -> str:
    """The text without what is made up, and without times."""
    for name in ("key", *KEYS_OF_CALLERS, "tenant"):
        text = text.replace(tenant.names.get(name, tenant.name), f"<{name}>")
    for pattern, instead in _WITHOUT:
        text = pattern.sub(instead, text)
    return text


async def at_rest(eye: asyncpg.Connection) -> None:
    """Wait until no run goes on by itself: then the next answers depend on nobody's pace."""
    await until(lambda: eye.fetchval(f"SELECT NOT EXISTS (SELECT FROM runs WHERE status NOT IN {RESTING})"))


@pytest.mark.timeout(600)  # some hundred requests
async def test_two_tenants_doing_the_same_get_the_same_and_nothing_of_each_other(
    server: ServerProcess, dsn: str
) -> None:
    people, roles = People(dsn), {"all": [*ROLES], "boss": ["decider", "boss"]}
    later = (datetime.now(UTC) + SEVERAL).isoformat()
    tenants = tuple(
        Tenant(
            name,
            server.url,
            {each: people.person(f"user:{each}", roles=held, tenant=name) for each, held in roles.items()},
            {"tenant": name, "later": later, "day": later[:10]},
        )
        for name in TENANTS
    )
    for tenant in tenants:
        tenant.names |= {
            f"key_of_{each}": headers["Authorization"].split("_")[1] for each, headers in tenant.headers.items()
        }
    wrong: list[Any] = []
    eye = await asyncpg.connect(dsn)
    for step in SCRIPT:
        (one, kind, left), (two, other_kind, right) = (tenant.do(step) for tenant in tenants)
        if not one == two == (one if step.status is None else step.status) or one >= 500:
            wrong.append((step.method, step.path, one, two, left[:500]))
        if kind != other_kind:
            wrong.append((step.method, step.path, kind, other_kind))
        shown = [comparable(text, tenant) for text, tenant in zip((left, right), tenants, strict=True)]
        if shown[0] != shown[1] and not step.path.startswith((*ENDLESS, *SEALED, *TIMED)):
            wrong.append((step.method, step.path, *_difference(*shown)))
        if step.method != "GET":
            await at_rest(eye)
    await eye.close()
    for tenant in tenants:
        tenant.told.append(over_a_socket(tenant))
    assert comparable(tenants[0].told[-1], tenants[0]) == comparable(tenants[1].told[-1], tenants[1])
    assert not wrong, "\n".join(map(str, wrong))
    _know_nothing_of_each_other(*tenants)


def over_a_socket(tenant: Tenant) -> str:
    """What a socket says of a session of the tenant's, and of an input."""
    client = AuiClient(tenant.url, NAME, tenant.headers["all"], session_id="t-socket")
    client.send(type="input", payload={"message": "hi", "message_id": "m-socket"})
    client.until("aui_action_ack")
    client.until("aui_interrupt")
    client.close()
    return json.dumps([{**event, "id": ""} for event in client.events])


def _difference(one: str, two: str) -> tuple[str, str]:
    """Where they begin to differ."""
    at = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return one[max(0, at - 150) : at + 150], two[max(0, at - 150) : at + 150]


def _know_nothing_of_each_other(*tenants: Tenant) -> None:
    """No name that the server made for one of them was told to the other, nor is anything of the other's in a file or
    named by its name."""
    made = [set(MADE.findall(" ".join(tenant.told))) for tenant in tenants]
    assert min(map(len, made)) > 40, "the script names much"
    assert made[0] & made[1] == set()
    for tenant, other in (tenants, tenants[::-1]):
        words = [other.name, other.names["key"], *(other.names[name] for name in KEYS_OF_CALLERS)]
        assert [word for word in words for text in tenant.told if word in text] == []
