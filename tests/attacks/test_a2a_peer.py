"""Agents of others that mean harm: whatever they answer, the step ends or asks, and the server has no fault."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx2
import pytest

from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import wait_for

ID: Final = "a/../b c"
Reply = Callable[["Agent", str, dict[str, Any]], Any]


class Agent:
    """An agent on a port of its own, which answers a method as `reply` says. `got`: the messages that it was sent."""

    def __init__(self, reply: Reply, card: dict[str, Any] | None) -> None:
        self.reply, self.card, self.url = reply, card, ""
        self.got: list[Any] = []
        self.paths: list[str] = []
        self.whos: set[str | None] = set()

    @contextmanager
    def serving(self) -> Iterator[None]:
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                agent.paths.append(self.path)
                own = {"supportedInterfaces": [{"url": agent.url, "protocolBinding": "JSONRPC"}]}
                self._send(200, json.dumps(agent.card or own).encode())

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                agent.paths.append(self.path)
                agent.whos.add(self.headers.get("x-who"))
                if asked["method"] == "SendMessage":
                    agent.got.append(asked["params"])
                answer = agent.reply(agent, asked["method"], asked["params"])
                if isinstance(answer, int):
                    self._send(answer, b"")
                elif isinstance(answer, bytes):
                    self._send(200, answer)
                else:
                    self._send(200, json.dumps({"jsonrpc": "2.0", "id": 1, "result": answer}).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                if status in (302, 307):
                    self.send_header("location", f"{agent.url}/elsewhere")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn, environment={"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}) as server:
        yield server


def ends(*artifacts: Any, state: Any = "TASK_STATE_COMPLETED", **status: Any) -> Reply:
    task = {"id": ID, "status": {"state": state, **status}, "artifacts": list(artifacts)}
    return lambda agent, method, params: {"tasks": []} if method == "ListTasks" else task


def asks(data: Any) -> Reply:
    parts = [{"text": "Which?"}, {"data": {"hai.pending": [{"id": "x", "may_answer": True, **data}]}}]
    return ends(state="TASK_STATE_INPUT_REQUIRED", message={"parts": parts})


def alternates() -> Reply:
    """Ends, and then works again."""
    states = iter(["WORKING", "SUBMITTED", "WORKING", "COMPLETED", "WORKING"])
    return lambda agent, method, params: {"id": ID, "status": {"state": f"TASK_STATE_{next(states)}"}}


def deep(agent: Agent, method: str, params: Any) -> Any:
    """A task that is completed, with a part that is nested too deep."""
    task = b'{"id": "%s", "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": {"a": %s}}'
    levels = b"[" * 100_000 + b"]" * 100_000
    body = b'{"jsonrpc": "2.0", "id": 1, "result": ' + task % (ID.encode(), levels) + b"}"
    return {"tasks": []} if method == "ListTasks" else body


def tells_nothing(agent: Agent, method: str, params: Any) -> Any:
    """It pushes alone, or forgets what it has begun."""
    if method != "SendMessage":
        return b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "Task not found"}}'
    return {"id": ID, "status": {"state": "TASK_STATE_WORKING"}}


def of_another_call(agent: Agent, method: str, params: Any) -> Any:
    return {"id": ID, "contextId": "hai-other", "status": {"state": "TASK_STATE_COMPLETED"}}


DEEP: dict[str, Any] = {}
for _ in range(70):
    DEEP = {"properties": {"a": DEEP}}
HOSTILE: Final[dict[str, tuple[Reply, str]]] = {
    "a redirect": (lambda agent, method, params: 302, "failed"),
    "a redirect with its method": (lambda agent, method, params: 307, "failed"),
    "no JSON": (lambda agent, method, params: b"<html>", "failed"),
    "deep JSON": (lambda agent, method, params: b"[" * 100_000, "failed"),
    "a hundred thousand levels": (deep, "finished"),
    "nothing": (lambda agent, method, params: None, "waiting"),
    "a task that it tells nothing of": (tells_nothing, "waiting"),
    "the task of another call": (of_another_call, "waiting"),
    "no state": (ends(state={"a": 1}), "waits"),
    "a state that goes backwards": (alternates(), "finished"),
    "ten megabytes": (ends({"parts": [{"text": "y" * 10_000_000}]}), "failed"),
    "a NUL": (ends({"parts": [{"text": "a\0b"}]}), "ends"),
    "half of a character": (ends({"parts": [{"text": "a\ud800b"}]}), "ends"),
    "a number beyond": (ends({"parts": [{"data": 10**30}]}), "ends"),
    "an odd file": (ends({"parts": [{"raw": "!!!", "mediaType": {"a": 1}, "filename": "../../x\0"}]}), "ends"),
    "a form of nonsense": (asks({"form": {"type": 3, "properties": {"a": 1}}}), "ends"),
    "a form that refers to another server": (
        asks({"form": {"type": "object", "properties": {"a": {"$ref": "http://169.254.169.254/x"}}}}), "ends",
    ),
    "a form that refers to itself": (asks({"form": {"properties": {"a": {"$ref": "#"}}, "type": "object"}}), "ends"),
    "a form that is deep": (asks({"form": DEEP}), "ends"),
    "a form with a slow pattern": (
        asks({"form": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}}), "ends",
    ),
    "a form with a NUL": (asks({"form": {"type": "object", "properties": {"a\0": {"type": "string"}}}}), "ends"),
    "ten thousand options": (asks({"options": [f"option {n}" for n in range(10_000)]}), "ends"),
    "odd options": (asks({"options": [None, {"a": [1]}, "\0", "\ud800", "x", "x"]}), "ends"),
}  # fmt: skip


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_answer_ends_or_asks_and_the_errand_is_given_once(server: ServerProcess, attack: str) -> None:
    reply, expected = HOSTILE[attack]
    agent = Agent(reply, None)
    with agent.serving(), httpx2.Client(base_url=server.url, timeout=60) as http:
        name = f"hostile_{list(HOSTILE).index(attack)}"
        flow = (
            f'hai: flow/v1\nname: {name}\nversion: 1\ntools: {{far: {{a2a: "{agent.url}"}}}}\n'
            "steps:\n  - {id: job, call: far, with: {text: go}, timeout: 20s}\n"
        )
        assert http.post("/v1/workflows", content=flow.encode(), headers=YAML).status_code == 201
        id = http.post("/v1/runs", json={"workflow": name}).json()["id"]

        def status() -> str:
            return str(http.get(f"/v1/runs/{id}").json()["status"])

        if expected == "waits":
            wait_for(lambda: len(agent.paths) > 3)
            assert http.post(f"/v1/runs/{id}/stop", json={"reason": "enough"}).status_code in (200, 202)
        wait_for(lambda: status() not in ("running", "queued", "stopping"))
        if expected not in ("waits", "ends"):
            assert status() == expected, http.get(f"/v1/runs/{id}").text
        if attack == "no JSON":
            assert http.get(f"/v1/runs/{id}").json()["error"]["data"]["text"] == "<html>"
        is_followed = attack == "a redirect with its method"  # within its server, once, and with the same id
        assert len(agent.got) == 1 + is_followed
        assert len({each["message"]["messageId"] for each in agent.got}) == 1
        assert ("/elsewhere" in agent.paths) is is_followed
        for page in (f"/v1/runs/{id}/events", f"/v1/pendings?run_id={id}"):
            assert http.get(page).status_code == 200, page
        for question in http.get(f"/v1/pendings?run_id={id}").json()["items"]:
            values = {"a": "a" * 60 + "!", "decision": "option 1"}
            answer = http.post(f"/v1/pendings/{question['id']}/decide", json={"values": values})
            assert answer.status_code in (200, 409, 422), answer.text


class Asking:
    """Asks for ever. `cancels`: how often its task was cancelled; while `away`, it answers 503."""

    def __init__(self) -> None:
        self.state, self.cancels, self.refusals, self.away = "INPUT_REQUIRED", 0, 0, False

    def __call__(self, agent: Agent, method: str, params: dict[str, Any]) -> Any:
        if self.away:
            self.refusals += 1
            return 503
        if method == "CancelTask":
            self.state, self.cancels = "CANCELED", self.cancels + 1
        task = {"id": ID, "status": {"state": f"TASK_STATE_{self.state}"}}
        return {"tasks": []} if method == "ListTasks" else task


def call_agent(http: httpx2.Client, agent: Agent, name: str) -> str:
    flow = (
        f"hai: flow/v1\nname: {name}\nversion: 1\ninput: {{type: object, properties: {{who: {{type: string}}}}}}\n"
        f'tools: {{far: {{a2a: "{agent.url}", headers: {{x-who: "${{{{ input.who }}}}"}}}}}}\n'
        "steps:\n  - {id: job, call: far, with: {text: go}}\n"
    )
    assert http.post("/v1/workflows", content=flow.encode(), headers=YAML).status_code == 201
    id: str = http.post("/v1/runs", json={"workflow": name, "input": {"who": "ann"}}).json()["id"]
    wait_for(lambda: bool(http.get(f"/v1/pendings?run_id={id}").json()["items"]))
    return id


@pytest.mark.costly
def test_a_stop_waits_for_no_agent_and_cancels_its_task_behind_a_kill(postgres_server: Server) -> None:
    reply = Asking()
    agent = Agent(reply, None)
    loopback = {"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}
    with agent.serving(), postgres_server.database() as dsn:
        with serving(dsn, environment=loopback) as first, httpx2.Client(base_url=first.url, timeout=60) as http:
            id = call_agent(http, agent, "away")
            assert agent.whos == {"ann"}
            reply.away = True
            assert http.post(f"/v1/runs/{id}/stop", json={"reason": "enough"}).status_code in (200, 202)
            wait_for(lambda: http.get(f"/v1/runs/{id}").json()["status"] == "stopped" and reply.refusals > 0)
            first.kill()
        reply.away = False
        with serving(dsn, environment=loopback) as second:
            wait_for(lambda: reply.cancels > 0)
            reply.state = "INPUT_REQUIRED"
            with httpx2.Client(base_url=second.url, timeout=60) as http:
                id = call_agent(http, agent, "there")
                assert http.post(f"/v1/runs/{id}/stop", json={"reason": "enough"}).status_code in (200, 202)
                wait_for(lambda: reply.cancels > 1)
            assert reply.cancels == 2
