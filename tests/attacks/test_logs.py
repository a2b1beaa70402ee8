"""What people send is theirs: nothing of inputs, answers, evidence and headers stands in the server's log."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import HaiClient, unique, user
from tests.support.postgres import Server
from tests.support.server import LOG_LEVEL, YAML, ServerProcess, expect, serving

CANARY: Final = "tweet-7f3a"
SECRET: Final = f"secret-{CANARY}"
FLOWS: Final = {
    "logged": """\
input: {type: object, properties: {text: {type: string}, n: {type: integer}}}
state: {mine: {type: integer, default: 0, client: true}}
tools: {fx: {python: tests.support.effects, effect: write}}
steps:
  - say: ${{ input.?text.orValue(thread.message) }}
  - id: q
    ask:
      title: Q
      message: ${{ input.?text.orValue("") }}
      from: anyone
      form: {type: object, required: [n], properties: {n: {type: integer}, text: {type: string, maxLength: 40}}}
  - {id: a, approve: {title: A, from: anyone, evidence: "${{ steps.q.output }}"}}
  - {id: fails, call: fx.breaks, retry: {max: 0}}
""",
    "logged_above": """\
input: {type: object, properties: {text: {}}}
steps: [{id: sub, run: logged, with: {n: "${{ input.text }}"}}]
""",
    "logged_hook": """\
input: {type: object, properties: {n: {type: integer}}}
triggers: [{webhook: {path: logged, secret: "${{ secrets.LOGGED }}"}}]
steps: [{say: hi}]
""",
    "logged_event": """\
input: {type: object, properties: {n: {type: integer}}}
triggers: [{event: {type: logged, input: {n: "${{ event.data.n }}"}}}]
steps: [{say: hi}]
""",
}
HEADERS: Final = {"Authorization": f"Bearer {CANARY}", "Cookie": f"session={CANARY}", "X-Trace": CANARY}


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    """One that logs as `serve` does."""
    environment = {LOG_LEVEL: "info", "HAI_FLOW_SECRET_LOGGED": SECRET}
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as process:
        for name, body in FLOWS.items():
            source = f"hai: flow/v1\nname: {name}\nversion: 1\n{body}"
            expect(httpx2.post(f"{process.url}/v1/workflows", content=source, headers=YAML), 201)
        yield process


@pytest.fixture(autouse=True)
def nothing_of_it_is_logged(server: ServerProcess) -> Iterator[None]:
    yield
    found = [line for line in server.log.splitlines() if CANARY in line]
    assert found == []


def post(server: ServerProcess, path: str, body: Any, **headers: str) -> httpx2.Response:
    return httpx2.post(f"{server.url}{path}", json=body, headers={**HEADERS, **headers}, timeout=30)


def pending_of(server: ServerProcess, run_id: str) -> dict[str, Any]:
    while True:
        items = httpx2.get(f"{server.url}/v1/pendings", headers=HEADERS).json()["items"]
        for each in items:
            if each["run_id"] == run_id:
                return each


def test_the_log_is_looked_at(server: ServerProcess) -> None:
    """Else the others would prove nothing: a tool that fails is in it."""
    run = post(server, "/v1/runs", {"workflow": "logged"}).json()["id"]
    for body in ({"values": {"n": 1}}, {"decision": "approve"}):
        expect(post(server, f"/v1/pendings/{pending_of(server, run)['id']}/decide", body), 200)
    while "the till is locked" not in server.log:
        assert httpx2.get(f"{server.url}/v1/runs/{run}").status_code == 200


def test_nothing_of_what_starts_a_run(server: ServerProcess) -> None:
    assert post(server, "/v1/runs", {"workflow": "logged", "input": {"text": CANARY}}).status_code == 201
    for wrong in ({"n": CANARY}, {CANARY: 1}, [CANARY]):
        assert post(server, "/v1/runs", {"workflow": "logged", "input": wrong}).status_code == 422
    broken = httpx2.post(f"{server.url}/v1/runs", content=b'{"workflow": "' + CANARY.encode(), headers=HEADERS)
    assert broken.status_code >= 400
    assert post(server, "/v1/runs", {"workflow": f"no-{CANARY}"}).status_code in (404, 422)


def test_nothing_of_what_a_child_is_given_that_does_not_fit_it(server: ServerProcess) -> None:
    run = post(server, "/v1/runs", {"workflow": "logged_above", "input": {"text": CANARY}}).json()["id"]
    while httpx2.get(f"{server.url}/v1/runs/{run}").json()["status"] != "failed":
        pass


def test_nothing_of_answers_taken_or_refused(server: ServerProcess) -> None:
    run = post(server, "/v1/runs", {"workflow": "logged", "input": {"text": CANARY}}).json()["id"]
    path = f"/v1/pendings/{pending_of(server, run)['id']}/decide"
    for wrong in ({"n": CANARY}, {"n": 1, "text": CANARY * 10}, CANARY):
        assert post(server, path, {"values": wrong}).status_code == 422
    assert post(server, path, {"values": {"n": 1, "text": CANARY}}).status_code == 200
    assert post(server, path, {"values": {"n": 2, "text": CANARY}}).status_code in (409, 410)
    approval = f"/v1/pendings/{pending_of(server, run)['id']}/decide"
    assert post(server, approval, {"decision": CANARY}).status_code == 422
    assert post(server, approval, {"decision": "reject", "reason": CANARY}).status_code == 200


def test_nothing_of_what_frontends_post(server: ServerProcess) -> None:
    hai = HaiClient(server.url, workflow="logged", headers=HEADERS)
    assert hai.post(user(CANARY), state={"mine": CANARY}).status == 422
    assert hai.post(user(CANARY)).status == 200
    agui = AguiClient(server.url, workflow="logged", headers=HEADERS)
    (interrupt,) = agui.post(user(CANARY)).interrupts()
    for wrong in ({"n": CANARY}, CANARY, [CANARY]):
        assert agui.post(resume=[resolved(interrupt, wrong)]).status in (400, 422)
    assert agui.post(resume=[resolved(interrupt, {"n": 1, "text": CANARY})]).status == 200


def test_nothing_of_events_and_webhooks(server: ServerProcess) -> None:
    for data in ({"n": 1, "text": CANARY}, {"n": CANARY}, {}):
        post(server, "/v1/events", {"type": "logged", "data": data, "id": unique("event")})
    for body, secret in (
        ({"n": 1}, SECRET),
        ({"n": 1, "t": CANARY}, SECRET),
        ({"n": CANARY}, SECRET),
        ({"n": CANARY}, "wrong"),
    ):
        content = json.dumps(body).encode()
        signature = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
        headers = {**HEADERS, "X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json"}
        httpx2.post(f"{server.url}/v1/hooks/logged", content=content, headers=headers)
    runs = httpx2.get(f"{server.url}/v1/runs").json()["items"]
    assert {"logged_hook", "logged_event"} <= {each["workflow"] for each in runs}
