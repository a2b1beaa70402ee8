"""The official A2A client against the real server: both bindings and version 0.3, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.api.test_a2a_push import receiving
from tests.clients import rig
from tests.support.hai_client import unique
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import wait_for

HERE = Path(__file__).resolve().parent
PROJECT = HERE / "a2a"
BINDINGS = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]
DELETE = [{"data": {"filename": "a.txt"}}]
SUPPORT = {"HAI-Act-As": "user:sue,role:support"}


def publish(url: str) -> None:
    with httpx2.Client(base_url=url) as http:
        for flow in sorted((HERE / "mcp_flows").glob("*.flow.yaml")):
            answer = http.post("/v1/workflows", content=flow.read_bytes(), headers=YAML)
            assert answer.status_code in (200, 201), answer.text


@pytest.fixture(scope="module")
def server(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}) as server:
        publish(server.url)
        yield server


@pytest.fixture(scope="module")
def driver() -> Iterator[rig.Driver]:
    environment = rig.python_packages(PROJECT)
    with rig.driving([str(environment / "bin" / "python"), str(PROJECT / "driver.py")], PROJECT) as driver:
        yield driver


class Client:
    """The official client of one workflow's agent, in one binding and version."""

    def __init__(self, driver: rig.Driver, url: str, workflow: str, binding: str, version: str) -> None:
        self._driver = driver
        self.fields = {"card": f"{url}/workflows/{workflow}", "binding": binding, "version": version}

    def ask(self, op: str, **fields: Any) -> Any:
        reply = self._driver.ask(op, **self.fields, **fields)
        assert "thrown" not in reply, reply
        return reply["result"]

    def fault(self, op: str, **fields: Any) -> dict[str, str]:
        thrown: dict[str, str] = self._driver.ask(op, **self.fields, **fields)["thrown"]
        return thrown

    def send(self, parts: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """The task with which a blocking send ends."""
        task: dict[str, Any] = self.ask("send", parts=parts, **fields)[-1]["task"]
        return task


@pytest.fixture(params=BINDINGS, ids=lambda each: "-".join(each))
def client(driver: rig.Driver, server: ServerProcess, request: pytest.FixtureRequest) -> Client:
    return Client(driver, server.url, "confirm_delete", *request.param)


def pending_of(task: dict[str, Any]) -> dict[str, Any]:
    (data,) = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    pending: dict[str, Any] = data["hai.pending"][0]
    return pending


def test_a_task_asks_takes_the_answer_and_ends_with_its_output(client: Client) -> None:
    task = client.send(DELETE)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    question = pending_of(task)
    wrong = {"hai.pending": {"id": question["id"], "values": {"confirm": "perhaps"}}}
    assert "/confirm" in client.fault("send", parts=[{"data": wrong}], taskId=task["id"])["message"]
    assert client.ask("get", task=task["id"])["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    right = {"hai.pending": {"id": question["id"], "values": {"confirm": True}}}
    done = client.send([{"data": right}], taskId=task["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done["artifacts"][-1]["parts"] == [{"text": "confirmed: true"}]
    late = client.fault("send", parts=[{"data": right}], taskId=task["id"])
    assert "UnsupportedOperation" in late["name"] or "over" in late["message"]


def test_an_unknown_task_is_one_fault_and_an_ended_one_is_not_cancelled(client: Client) -> None:
    task = client.send(DELETE)
    assert client.ask("cancel", task=task["id"])["status"]["state"] == "TASK_STATE_CANCELED"
    assert "TaskNotCancelable" in client.fault("cancel", task=task["id"])["name"]
    for id in ("run_1", "01900000-0000-7000-8000-000000000000"):
        assert "TaskNotFound" in client.fault("get", task=id)["name"]
        assert "TaskNotFound" in client.fault("cancel", task=id)["name"]


def test_the_same_message_again_is_the_same_task(client: Client) -> None:
    message = unique("message")
    first = client.send(DELETE, message_id=message)
    assert client.send(DELETE, message_id=message)["id"] == first["id"]
    other = client.fault("send", parts=[{"data": {"filename": "b.txt"}}], message_id=message)
    assert "Idempotency-Key" in other["message"] or "another" in other["message"]


@pytest.mark.parametrize(("binding", "version"), BINDINGS)
def test_a_stream_brings_messages_as_artifacts_and_ends_with_the_state(
    driver: rig.Driver, server: ServerProcess, binding: str, version: str
) -> None:
    client = Client(driver, server.url, "count_slowly", binding, version)
    events = client.ask("send", parts=[{"text": "Count!"}], streaming=True)
    assert "task" in events[0]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    task = (events[0].get("task") or {})["id"]
    rest = client.ask("send", parts=[{"text": "please"}], taskId=task, streaming=True)
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    shown = client.ask("get", task=task)
    texts = [part.get("text") for each in shown["artifacts"] for part in each["parts"]]
    assert texts[:2] == ["One.", "Two, please."]
    assert shown["artifacts"][-1]["parts"] == [{"data": {"words": 2}}]
    assert shown["history"][0]["parts"] == [{"text": "Count!"}]


@pytest.mark.parametrize(("binding", "version"), BINDINGS[:2])
def test_tasks_of_a_context_are_listed_and_a_second_one_is_of_the_same(
    driver: rig.Driver, server: ServerProcess, binding: str, version: str
) -> None:
    client = Client(driver, server.url, "greet", binding, version)
    first = client.send([{"data": {"name": "Ann"}}])
    second = client.send([{"data": {"name": "Bob"}}], contextId=first["contextId"])
    listed = client.ask("list_tasks", context=first["contextId"])
    assert [each["id"] for each in listed["tasks"]] == [second["id"], first["id"]]


def test_addresses_are_set_read_deleted_and_called(client: Client) -> None:
    task = client.send(DELETE)
    with receiving() as receiver:
        config = {"id": "one", "url": receiver.url, "token": "t0ken"}
        found = client.ask("push_configs", task=task["id"], config=config)
        assert (found["made"]["url"], found["made"]["token"]) == (receiver.url, "t0ken")
        assert found["read"] == found["made"]
        assert (found["listed"], found["left"]) == (1, 0)
        client.ask("push_configs", task=task["id"], config=config, keep=True)
        client.send([{"data": {"confirm": True}}], taskId=task["id"])
        wait_for(lambda: receiver.calls and b"ompleted" in receiver.calls[-1][1].replace(b"OMPLETED", b"ompleted"))
        assert receiver.calls[-1][0]["x-a2a-notification-token"] == "t0ken"


def test_a_task_needs_authorization_while_others_decide_and_shows_the_end(
    driver: rig.Driver, server: ServerProcess
) -> None:
    client = Client(driver, server.url, "refund_order", "JSONRPC", "1.0")
    task = client.send([{"data": {"order": "A-1", "amount": 80}}])
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    assert not pending_of(task)["may_answer"]
    vote = {"hai.pending": {"id": pending_of(task)["id"], "decision": "approve"}}
    assert "thrown" in driver.ask("send", **client.fields, parts=[{"data": vote}], taskId=task["id"])
    with httpx2.Client(base_url=server.url) as http:
        question = http.get(f"/v1/pendings/{pending_of(task)['id']}").json()
        body = {"decision": "approve", "digest": question["digest"]}
        assert http.post(f"/v1/pendings/{question['id']}/decide", json=body, headers=SUPPORT).status_code == 200
    note = client.send([{"data": {"note": "sorry"}}], taskId=task["id"])
    assert note["artifacts"][-1]["parts"] == [{"data": {"refunded": 80, "note": "sorry"}}]


def test_a_task_outlives_the_server_that_began_it_and_another_one_ends_it(
    driver: rig.Driver, postgres_server: Server
) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn) as first:
            publish(first.url)
            port = str(urlsplit(first.url).port)
            client = Client(driver, first.url, "confirm_delete", "JSONRPC", "1.0")
            task = client.send(DELETE)
            first.kill()
        with serving(dsn, environment={"HAI_FLOW_PORT": port}):
            done = client.send([{"data": {"confirm": True}}], taskId=task["id"])
            assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
