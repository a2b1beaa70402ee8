"""A stream ends soon after the credential of who reads it was ended, whichever way it reads, and says so."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import asyncpg
import httpx2
import pytest

from hai_flow.api.auth.sessions import COOKIE
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity import erasure
from hai_flow.store.identity.keys import Key
from tests.api.test_expiry import WAITS, posted, run_of
from tests.api.test_sessions import browser, signed_in
from tests.support.aui_client import AuiClient
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.mcp_caller import Caller
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

ROLES = ("operator", "decider")
DIALECTS = ("awp", "ag-ui", "copilotkit", "process")
FEEDS = ("log", "thread", "inbox")


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={**KEYS, "HAI_FLOW_TURN_LINGER_SECONDS": "3600"}) as process:
        publisher = People(dsn).person("user:pat", roles=["publisher"])
        expect(httpx2.post(f"{process.url}/v1/workflows", content=WAITS, headers={**YAML, **publisher}), 201)
        yield process


class Open:
    """A stream that is open, and read by a thread of its own; its bytes, and whether it has ended."""

    def __init__(self, client: httpx2.Client, request: httpx2.Request) -> None:
        self.data = b""
        self.began = threading.Event()
        self._client, self._request = client, request
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.began.wait(30)

    def _read(self) -> None:
        response = self._client.send(self._request, stream=True)
        assert response.status_code == 200, response.read()
        with suppress(httpx2.HTTPError):  # a stream that goes on is cut when its test is over
            for piece in response.iter_bytes():
                self.data += piece
                self.began.set()

    def last(self) -> Any:
        """What its last event says, once it has ended by itself."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "it goes on"
        return json.loads(self.data.rstrip().rpartition(b"data: ")[2])


@contextmanager
def opened(server: ServerProcess, kinds: tuple[str, ...], headers: dict[str, str]) -> Iterator[dict[str, Open]]:
    """Streams of these kinds."""
    with ExitStack() as stack:
        client = stack.enter_context(httpx2.Client(timeout=60))
        yield {kind: Open(client, asking(client, server, kind, headers)) for kind in kinds}


def asking(client: httpx2.Client, server: ServerProcess, kind: str, headers: dict[str, str]) -> httpx2.Request:
    if kind == "copilotkit":
        return client.build_request("POST", f"{server.url}/cpk/agent/waits/run", json=posted("ag-ui"), headers=headers)
    if kind in DIALECTS:
        return client.build_request("POST", f"{server.url}/workflows/waits/{kind}", json=posted(kind), headers=headers)
    asks = {**headers, "Accept": "text/event-stream"}
    path = "/v1/inbox/events"
    if kind != "inbox":
        run = run_of(server, headers)
        path = f"/v1/runs/{run['id']}/events" if kind == "log" else f"/api/v1/agent/runs/{run['thread_id']}/events"
    return client.build_request("GET", server.url + path, headers=asks)


def ann(dsn: str) -> tuple[Key, dict[str, str]]:
    key, text = People(dsn).key("user:ann", roles=ROLES)
    return key, carried(text)


def test_all_streams_of_a_key_end_when_another_process_revokes_it(strict: ServerProcess, dsn: str) -> None:
    key, text = People(dsn).key("user:fay", roles=ROLES)
    headers, other = carried(text), People(dsn).person("user:fay", roles=ROLES)
    socket = AuiClient(strict.url, headers=headers, session_id=unique("s"), workflow="waits")
    socket.until("aui_stream_start")
    with opened(strict, ("log",), other) as stays, opened(strict, DIALECTS + FEEDS, headers) as streams:
        People(dsn).revoke(key)
        for kind, stream in streams.items():
            assert "auth.expired" in json.dumps(stream.last()), kind
            if kind in ("awp", "ag-ui", "copilotkit"):
                assert (stream.last()["type"], stream.last()["code"]) == ("RUN_ERROR", "auth.expired")
        assert socket.until("aui_error")["error_code"] == "auth.expired"
        assert socket.ended() == 4401
        assert b"auth.expired" not in stays["log"].data
        People(dsn).do(lambda c: forget(c, "user:fay"))
        assert stays["log"].last()["code"] == "auth.expired"


WAITING: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "process": lambda: ("/workflows/waits/process", {"json": {**posted("process"), "stream": False}}),
    "a2a": lambda: ("/workflows/waits/a2a", {"json": {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "message": {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "go"}]}}}}),
    "mcp": lambda: ("/mcp", Caller(httpx2.Client()).request("tools/call", {"name": "waits", "arguments": {}})),
    "approval": lambda: (
        "/v1/approvals", {"json": {"action": "pay", "arguments": {}, "policy": {"from": ["user:boss"]}}}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAITING)
def test_an_answer_that_is_not_streamed_ends_when_its_key_is_revoked(strict: ServerProcess, dsn: str, way: str) -> None:
    answer = revoke_while_waiting(strict, dsn, way)
    for _ in range(9):  # a request to wait for an approval may come behind the revocation
        if way != "approval" or answer.json()["code"] == "auth.expired":
            break
        answer = revoke_while_waiting(strict, dsn, way)
    assert answer.status_code == (200 if way in ("a2a", "mcp") else 401)
    assert "auth.expired" in answer.text
    assert "Your sign-in was ended" in answer.text


def revoke_while_waiting(server: ServerProcess, dsn: str, way: str) -> httpx2.Response:
    key, headers = ann(dsn)
    answers: list[httpx2.Response] = []
    path, request = WAITING[way]()
    of_it = "SELECT count(*) FROM runs"
    before = People(dsn).do(lambda c: c.fetchval(of_it))
    is_waiting = threading.Event()

    def ask() -> None:
        both: dict[str, str] = {**request.get("headers", {}), "A2A-Version": "1.0", **headers}
        answer = httpx2.post(server.url + path, json=request["json"], headers=both, timeout=60)
        if way == "approval":
            url = f"{server.url}/v1/approvals/{answer.json()['id']}?wait=50"
            is_waiting.set()
            answer = httpx2.get(url, headers=headers, timeout=60)
        answers.append(answer)

    waiting = threading.Thread(target=ask)
    waiting.start()
    people = People(dsn)
    until_there(lambda: people.do(lambda c: c.fetchval(of_it)) > before)
    assert way != "approval" or is_waiting.wait(60)
    people.revoke(key)
    waiting.join(60)
    return answers[0]


def until_there(fact: Callable[[], bool]) -> None:
    asyncio.run(until(fact))


def test_a_socket_takes_nothing_more_once_its_key_is_revoked(strict: ServerProcess, dsn: str) -> None:
    key, headers = ann(dsn)
    session = unique("s")
    socket = AuiClient(strict.url, headers=headers, session_id=session, workflow="waits")
    socket.until("aui_stream_start")
    People(dsn).revoke(key)
    socket.send(type="input", action="message", payload={"message": "go"})
    assert socket.ended() == 4401
    assert not [event for event in socket.events if event.get("status") == "accepted"]
    runs = People(dsn).do(lambda c: c.fetchval("SELECT count(*) FROM runs WHERE thread_id = $1", session))
    assert runs == 0


def test_a_revoked_key_ends_its_tokens_and_tickets_and_their_streams(strict: ServerProcess, dsn: str) -> None:
    people = People(dsn)
    key, text = people.key("service:shop", roles=["issuer", *ROLES])
    asked = {"principal": "user:ann", "roles": list(ROLES)}
    token = httpx2.post(f"{strict.url}/v1/tokens", json=asked, headers=carried(text)).json()["token"]
    ticket, late = (httpx2.post(f"{strict.url}/v1/tickets", headers=carried(token)).json()["ticket"] for _ in range(2))
    with httpx2.Client(timeout=60) as client, opened(strict, ("awp", "log"), carried(token)) as streams:
        path = f"/v1/inbox/events?ticket={ticket}"
        by_ticket = Open(
            client, client.build_request("GET", strict.url + path, headers={"Accept": "text/event-stream"})
        )
        people.revoke(key)
        for stream in (*streams.values(), by_ticket):
            assert stream.last()["code"] == "auth.expired"
    refused = httpx2.get(f"{strict.url}/v1/inbox/events?ticket={late}", headers={"Accept": "text/event-stream"})
    assert (refused.status_code, refused.json()["code"]) == (401, "auth.invalid")


def test_signing_out_ends_the_streams_of_the_browser_and_of_no_other(strict: ServerProcess, dsn: str) -> None:
    session, other = signed_in(strict, dsn), signed_in(strict, dsn)
    with (
        opened(strict, ("log",), browser(strict, other)) as stays,
        opened(strict, ("awp", "log", "inbox"), browser(strict, session)) as streams,
    ):
        expect(httpx2.delete(f"{strict.url}/v1/session", headers=browser(strict, session)), 204)
        for stream in streams.values():
            assert stream.last()["code"] == "auth.expired"
        assert b"auth.expired" not in stays["log"].data
        expect(httpx2.get(f"{strict.url}/v1/session", headers={"Cookie": f"{COOKIE}={other}"}), 200)


def test_what_a_forgotten_person_holds_opens_nothing(strict: ServerProcess, dsn: str) -> None:
    people = People(dsn)
    backend = people.person("service:shop", roles=["issuer", *ROLES])
    asked = {"principal": "user:gil", "roles": list(ROLES)}

    def token() -> dict[str, str]:
        return carried(httpx2.post(f"{strict.url}/v1/tokens", json=asked, headers=backend).json()["token"])

    def status(headers: dict[str, str]) -> int:
        return httpx2.get(f"{strict.url}/v1/session", headers=headers).status_code

    key, page = people.person("user:gil", roles=ROLES), token()
    ticket = httpx2.post(f"{strict.url}/v1/tickets", headers=key).json()["ticket"]
    session = signed_in(strict, dsn)
    assert [status(each) for each in (key, page, browser(strict, session))] == [200, 200, 200]
    with opened(strict, ("log",), key) as by_key, opened(strict, ("log",), page) as by_token:
        for id in ("user:gil", "user:local"):
            people.do(lambda c, id=id: forget(c, id))  # type: ignore[misc]
        for stream in (by_key["log"], by_token["log"]):
            assert stream.last()["code"] == "auth.expired"
    until_there(lambda: [status(each) for each in (key, page, browser(strict, session))] == [401, 401, 401])
    expect(httpx2.get(f"{strict.url}/v1/inbox/events?ticket={ticket}", headers={"Accept": "text/event-stream"}), 401)
    assert status(token()) == 200  # who comes back is somebody new


async def forget(connection: asyncpg.Connection, id: str) -> None:
    await erasure.forget(connection, LOCAL_TENANT, id, by="service:test")
