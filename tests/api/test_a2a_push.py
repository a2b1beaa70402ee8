"""Push notifications of A2A: addresses that are called when a task changes, told to a real receiver."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from uuid import UUID, uuid4

import httpx2
import pytest
from msgspec.structs import replace

from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity import erasure
from hai_flow.store.messaging.hints import seal_of
from hai_flow.store.messaging.pushes import Push, open_config, seal_config
from tests.support.hai_client import unique
from tests.support.postgres import Server, connecting, fetch_value
from tests.support.server import ROOT, YAML, ServerProcess, serving
from tests.support.waiting import wait_for

FLOWS: Final = ROOT / "tests" / "clients" / "mcp_flows"
VERSION: Final = {"A2A-Version": "1.0"}
SUPPORT: Final = {"HAI-Act-As": "user:sue,role:support"}
BOB: Final = {"HAI-Act-As": "user:bob"}
DELETE: Final = "/workflows/confirm_delete/a2a"
SECRETS: Final = {"token": "t0ken", "authentication": {"scheme": "Bearer", "credentials": "abc"}}


class Receiver:
    """Takes notifications on a real socket. `statuses`: what it answers to the first ones; then 200."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.url = ""

    def states(self, task_id: str) -> list[str]:
        """The states that were taken, in order."""
        found = [json.loads(body) for _, body in self.calls]
        return [
            each["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_")
            for each in found
            if each.get("statusUpdate", {}).get("taskId") == task_id
        ]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "3600")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def pushing(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}) as server:
        for flow in ("confirm_delete", "refund_order"):
            source = (FLOWS / f"{flow}.flow.yaml").read_bytes()
            assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML).status_code == 201
        yield server


@pytest.fixture
def http(pushing: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=pushing.url, timeout=60, headers=VERSION) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def rpc(http: httpx2.Client, method: str, params: Any, path: str = "/a2a", **headers: str) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    version = {"A2A-Version": "" if "/" in method else "1.0"}
    answered: dict[str, Any] = http.post(path, json=body, headers={**version, **headers}).json()
    return answered


def send(http: httpx2.Client, path: str, data: Any, configuration: Any = None, **fields: Any) -> dict[str, Any]:
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"data": data}], **fields}
    answered = rpc(http, "SendMessage", {"message": message, "configuration": configuration or {}}, path)
    task: dict[str, Any] = answered["result"]["task"]
    return task


def create(http: httpx2.Client, task_id: str, url: str, **fields: Any) -> dict[str, Any]:
    return rpc(http, "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": url, **fields})


def test_the_cards_say_that_there_are_push_notifications(http: httpx2.Client) -> None:
    assert http.get("/.well-known/agent-card.json").json()["capabilities"]["pushNotifications"]


def test_an_address_sent_with_a_message_gets_each_state_signed_and_bare(
    http: httpx2.Client, receiver: Receiver
) -> None:
    config = {"url": receiver.url, **SECRETS}
    task = send(http, DELETE, {"filename": "very-private.txt"}, {"taskPushNotificationConfig": config})
    wait_for(lambda: "INPUT_REQUIRED" in receiver.states(task["id"]))
    send(http, DELETE, {"confirm": True}, taskId=task["id"])
    wait_for(lambda: "COMPLETED" in receiver.states(task["id"]))
    states = receiver.states(task["id"])
    assert states[-2:] == ["INPUT_REQUIRED", "COMPLETED"]
    assert len(states) == len(set(states))
    headers, body = receiver.calls[-1]
    assert json.loads(body)["statusUpdate"]["contextId"] == task["contextId"]
    assert (headers["x-a2a-notification-token"], headers["authorization"]) == ("t0ken", "Bearer abc")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(b"t0ken", signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert not any(b"very-private" in each or b"pending" in each for _, each in receiver.calls)


def test_what_others_decide_is_told_as_a_state_of_its_own(http: httpx2.Client, receiver: Receiver) -> None:
    task = send(http, "/workflows/refund_order/a2a", {"order": "A-1", "amount": 80})
    create(http, task["id"], receiver.url)
    wait_for(lambda: receiver.states(task["id"]) == ["AUTH_REQUIRED"])
    question = http.get("/v1/pendings", params={"run_id": task["id"]}).json()["items"][0]
    body = {"decision": "approve", "digest": question["digest"]}
    assert http.post(f"/v1/pendings/{question['id']}/decide", json=body, headers=SUPPORT).status_code == 200
    wait_for(lambda: receiver.states(task["id"])[-1:] == ["INPUT_REQUIRED"])


def test_a_call_that_fails_is_made_again_with_the_same_id(http: httpx2.Client, receiver: Receiver) -> None:
    task = send(http, DELETE, {"filename": "a.txt"})
    receiver.statuses = [503]
    create(http, task["id"], receiver.url)
    wait_for(lambda: len(receiver.calls) >= 2)
    assert len({headers["webhook-id"] for headers, _ in receiver.calls}) == 1
    assert receiver.states(task["id"]) == ["INPUT_REQUIRED"] * 2


def wait_for_outcome(dsn: str) -> None:
    """Returns when the outcome of the only call is stored: one that a server dies in is made again after a minute."""
    is_stored = "SELECT sent IS NOT NULL OR error IS NOT NULL FROM pushes"
    wait_for(lambda: asyncio.run(fetch_value(dsn, is_stored)))


def test_an_address_outlives_the_server_that_took_it(postgres_server: Server, receiver: Receiver) -> None:
    environment = {"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}
    with postgres_server.database() as dsn:
        with serving(dsn, environment=environment) as first, httpx2.Client(base_url=first.url, timeout=60) as http:
            source = (FLOWS / "confirm_delete.flow.yaml").read_bytes()
            assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
            task = send(http, DELETE, {"filename": "a.txt"})
            create(http, task["id"], receiver.url)
            wait_for(lambda: receiver.states(task["id"]))
            wait_for_outcome(dsn)
            first.kill()
        with serving(dsn, environment=environment) as second, httpx2.Client(base_url=second.url, timeout=60) as http:
            send(http, DELETE, {"confirm": True}, taskId=task["id"])
            wait_for(lambda: receiver.states(task["id"]) == ["INPUT_REQUIRED", "COMPLETED"])


def test_configurations_are_managed_in_both_bindings_and_versions(http: httpx2.Client, receiver: Receiver) -> None:
    id = send(http, DELETE, {"filename": "a.txt"})["id"]
    made = create(http, id, receiver.url, id="one", **SECRETS)["result"]
    assert made == {"taskId": id, "id": "one", "url": receiver.url, **SECRETS}
    path = f"/a2a/tasks/{id}/pushNotificationConfigs"
    assert http.get(f"{path}/one").json() == made
    assert rpc(http, "GetTaskPushNotificationConfig", {"taskId": id, "id": "one"})["result"] == made
    assert http.post(path, json={"id": "two", "url": receiver.url}).json()["id"] == "two"
    listed = [made, {"taskId": id, "id": "two", "url": receiver.url}]
    assert http.get(path).json() == {"configs": listed, "nextPageToken": ""}
    assert rpc(http, "ListTaskPushNotificationConfigs", {"taskId": id})["result"]["configs"] == listed
    assert http.delete(f"{path}/two").json() == {}
    assert rpc(http, "DeleteTaskPushNotificationConfig", {"taskId": id, "id": "one"})["result"] == {}
    assert http.get(path).json()["configs"] == []
    assert http.get(f"{path}/one").status_code == 404
    old = {"id": "three", "url": receiver.url, "authentication": {"schemes": ["Bearer"], "credentials": "abc"}}
    word = "tasks/pushNotificationConfig"
    kept = {"taskId": id, "pushNotificationConfig": old}
    assert rpc(http, f"{word}/set", kept)["result"] == kept
    named = {"id": id, "pushNotificationConfigId": "three"}
    assert rpc(http, f"{word}/get", named)["result"] == kept
    assert rpc(http, f"{word}/get", {"id": id})["result"] == kept
    assert rpc(http, f"{word}/list", {"id": id})["result"] == [kept]
    wait_for(lambda: receiver.calls and json.loads(receiver.calls[-1][1]).get("kind") == "task")
    assert json.loads(receiver.calls[-1][1])["status"]["state"] == "input-required"
    assert rpc(http, f"{word}/delete", named)["result"] is None
    assert rpc(http, f"{word}/list", {"id": id})["result"] == []


WRONG: Final[list[Any]] = [
    {"url": "http://169.254.169.254/latest"}, {"url": "http://10.0.0.1/"}, {"url": "http://[::1]/"},
    {"url": "http://192.0.1.1/"}, {"url": "file:///etc/passwd"}, {"url": "ftp://example.com/"},
    {"url": "http://ann:pw@127.0.0.1/"},
    {"url": ""}, {"url": 7}, {}, {"url": "http://127.0.0.1/\r\nX: y"}, {"url": "http://127.0.0.1:0/"},
    {"url": "http://127.0.0.1:99999/"}, {"url": "http://127.0.0.1/" + "x" * 2000},
    {"token": "a\r\nX-Other: b"}, {"token": "x" * 1001}, {"token": 7},
    {"authentication": {"scheme": "Bearer\r\nX: y"}}, {"authentication": {"credentials": "abc"}},
    {"authentication": {"scheme": "Bearer", "credentials": "a\nb"}}, {"authentication": "Bearer"},
    {"id": "a/b"}, {"id": "x" * 201}, {"id": 7},
]  # fmt: skip


def test_a_wrong_push_configuration_is_refused_and_nothing_is_stored(http: httpx2.Client, receiver: Receiver) -> None:
    id = send(http, DELETE, {"filename": "a.txt"})["id"]
    for config in WRONG:
        whole = config if not config or "url" in config else {"url": receiver.url, **config}
        answered = rpc(http, "CreateTaskPushNotificationConfig", {"taskId": id, **whole})
        assert answered["error"]["code"] == -32602, config
        message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"data": {"filename": "a.txt"}}]}
        params = {"message": message, "configuration": {"taskPushNotificationConfig": whole}}
        assert rpc(http, "SendMessage", params, DELETE)["error"]["code"] == -32602, config
    assert http.get(f"/a2a/tasks/{id}/pushNotificationConfigs").json()["configs"] == []
    assert rpc(http, "ListTasks", {"pageSize": 1})["result"]["tasks"][0]["id"] == id


def test_a_caller_has_ten_configurations_of_a_task_an_eleventh_is_refused(
    http: httpx2.Client, receiver: Receiver
) -> None:
    id = send(http, DELETE, {"filename": "a.txt"})["id"]
    for number in range(10):
        assert "result" in create(http, id, receiver.url, id=str(number))
    assert create(http, id, receiver.url, id="more")["error"]["code"] == -32602
    assert "result" in create(http, id, receiver.url, id="0", token="other")
    assert len(http.get(f"/a2a/tasks/{id}/pushNotificationConfigs").json()["configs"]) == 10


def test_nobody_sees_or_deletes_the_configurations_of_somebody_else(http: httpx2.Client, receiver: Receiver) -> None:
    id = send(http, DELETE, {"filename": "a.txt"})["id"]
    create(http, id, receiver.url, id="mine")
    boss = {"HAI-Act-As": "user:bob,role:operator"}
    path = f"/a2a/tasks/{id}/pushNotificationConfigs"
    assert http.get(f"{path}/mine", headers=boss).status_code == 404
    assert http.delete(f"{path}/mine", headers=boss).status_code in (200, 404)
    assert rpc(http, "GetTaskPushNotificationConfig", {"taskId": id, "id": "mine"})["result"]["id"] == "mine"


def test_410_gives_a_state_up_at_once_and_the_next_one_is_told(http: httpx2.Client, receiver: Receiver) -> None:
    task = send(http, DELETE, {"filename": "a.txt"})
    receiver.statuses = [410]
    create(http, task["id"], receiver.url)
    wait_for(lambda: receiver.calls)
    send(http, DELETE, {"confirm": True}, taskId=task["id"])
    wait_for(lambda: receiver.states(task["id"])[-1:] == ["COMPLETED"])
    assert receiver.states(task["id"]) == ["INPUT_REQUIRED", "COMPLETED"]


async def test_what_the_database_holds_of_an_address_is_sealed(
    dsn: str, http: httpx2.Client, receiver: Receiver
) -> None:
    task = send(http, DELETE, {"filename": "a.txt"})
    create(http, task["id"], receiver.url, token="very-secret-token")
    async with connecting(dsn) as connection:
        rows = await connection.fetch("SELECT config FROM pushes WHERE run_id = $1", UUID(task["id"]))
        assert len(rows) == 1
        assert b"very-secret" not in rows[0]["config"]
        assert receiver.url.encode() not in rows[0]["config"]
        await asyncio.to_thread(wait_for, lambda: receiver.states(task["id"]))


def test_a_row_opens_for_its_run_its_caller_and_its_database_alone() -> None:
    run, key = uuid4(), b"k" * 32
    sealed = seal_config(key, run, "user:ann", b"{}")
    assert sealed != seal_config(key, run, "user:ann", b"{}")
    row = Push(uuid4(), run, "user:ann", "1", sealed, b"", True, None, 0)
    assert open_config(key, row) == b"{}"
    for other in (
        replace(row, run_id=uuid4()), replace(row, principal="user:bob"), replace(row, config=sealed[:-1]),
        replace(row, config=b"{}"),
    ):  # fmt: skip
        assert open_config(key, other) is None
    assert open_config(b"x" * 32, row) is None


async def test_a_state_that_is_never_taken_is_given_up_and_said_in_the_row(
    postgres_server: Server, receiver: Receiver
) -> None:
    receiver.statuses = [429, 500, 500]
    with postgres_server.database() as dsn, serving(dsn, environment={"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}) as server:
        with httpx2.Client(base_url=server.url, timeout=60, headers=VERSION) as http:
            source = (FLOWS / "confirm_delete.flow.yaml").read_bytes()
            assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
            task = send(http, DELETE, {"filename": "a.txt"})
        async with connecting(dsn) as connection:
            with httpx2.Client(base_url=server.url, timeout=60, headers=VERSION) as http:
                create(http, task["id"], receiver.url)
            await asyncio.to_thread(wait_for, lambda: receiver.calls)
            async with asyncio.timeout(60):
                until = "SELECT due_at > now() + interval '50 minutes' FROM pushes"
                while not await connection.fetchval(until):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await connection.execute("UPDATE pushes SET tries = 14, due_at = now()")
            await asyncio.to_thread(wait_for, lambda: "push_given_up" in server.log)
            async with asyncio.timeout(60):
                while await connection.fetchval("SELECT tries FROM pushes") != 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert "500" in await connection.fetchval("SELECT error FROM pushes")
            # An address of another host, as it was taken before TLS was demanded.
            ((run, principal),) = await connection.fetch("SELECT run_id, principal FROM pushes")
            bare = json.dumps({"id": "x", "url": "http://8.8.8.8:9/"}).encode()
            sealed = seal_config((await seal_of(connection)).key, run, principal, bare)
            await connection.execute("UPDATE pushes SET config = $1, seen = 0, sent = NULL, due_at = now()", sealed)
            async with asyncio.timeout(60):
                error = "SELECT coalesce(error, '') FROM pushes"
                while "without TLS" not in await connection.fetchval(error):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


async def test_addresses_of_a_person_who_is_erased_are_gone(dsn: str, http: httpx2.Client, receiver: Receiver) -> None:
    ann = {"HAI-Act-As": "user:erased,role:requester"}
    body = {"message": {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"data": {"filename": "a.txt"}}]}}
    task = rpc(http, "SendMessage", body, DELETE, **ann)["result"]["task"]
    created = rpc(http, "CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": receiver.url}, **ann)
    assert "result" in created
    async with connecting(dsn) as connection:
        count = "SELECT count(*) FROM pushes WHERE principal = 'user:erased'"
        assert await connection.fetchval(count) == 1
        await erasure.forget(connection, LOCAL_TENANT, "user:erased", by="service:test")
        assert await connection.fetchval(count) == 0
