"""`on_message: enqueue`: a message that comes while a run is active waits for its end, whoever still listens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx2
import pytest

from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.hai_client import HaiClient, unique, user
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

WORKFLOW = """\
hai: flow/v1
name: patient
version: 1
on_message: enqueue
visibility: tenant
steps:
  - {id: ask, approve: {title: Go?, from: anyone}}
"""
SOLITARY = """\
hai: flow/v1
name: solitary
version: 1
concurrency: {key: one, on_conflict: reject}
steps:
  - {id: ask, approve: {title: Go?, from: anyone}}
"""


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    for source in (WORKFLOW, SOLITARY):
        expect(httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML, timeout=30), 200, 201)


class Thread:
    """A thread in which messages are sent and questions answered."""

    def __init__(self, server: ServerProcess, http: httpx2.Client) -> None:
        self.client = HaiClient(server.url, workflow="patient")
        self.http = http
        self.id = self.client.thread_id

    def runs(self) -> list[dict[str, Any]]:
        """The oldest first."""
        found: list[dict[str, Any]] = self.http.get("/v1/runs", params={"thread_id": self.id}).json()["items"]
        return found[::-1]

    def standing(self) -> list[str]:
        return [run["status"] for run in self.runs()]

    def queue(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.http.get(f"/v1/threads/{self.id}/queue").json()["items"]
        return items

    def waiting(self) -> list[str]:
        return [each["message"] for each in self.queue() if each["refused"] is None]

    async def approve(self) -> None:
        """Answer what the thread's active run asks."""

        def active() -> list[dict[str, Any]]:
            return [run for run in self.runs() if run["status"] == "waiting"]

        (run,) = await until(active)
        (pending,) = self.http.get("/v1/pendings", params={"run_id": run["id"]}).json()["items"]
        expect(self.http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}), 200)


@pytest.fixture
def thread(server: ServerProcess, http: httpx2.Client) -> Thread:
    found = Thread(server, http)
    found.client.post(user("first"))
    assert found.standing() == ["waiting"]
    return found


async def test_messages_wait_for_their_turn_in_the_order_in_which_they_came(thread: Thread) -> None:
    with thread.client.open(user("second")) as second, thread.client.open(user("third")) as third:
        assert thread.standing() == ["waiting"]
        assert thread.waiting() == ["second", "third"]
        assert {each["by"] for each in thread.queue()} == {"user:local"}
        await thread.approve()
        assert second.until("RUN_FINISHED")[0]["type"] == "RUN_STARTED"
        assert thread.standing() == ["finished", "waiting"]
        assert thread.waiting() == ["third"]
        await thread.approve()
        third.until("RUN_FINISHED")
    assert thread.standing() == ["finished", "finished", "waiting"]
    assert thread.queue() == []
    said = thread.http.get(f"/v1/threads/{thread.id}/messages").json()["items"]
    assert [each["content"] for each in said if each["role"] == "user"] == ["first", "second", "third"]


async def test_a_message_whose_client_has_gone_starts_its_run_all_the_same(thread: Thread) -> None:
    with thread.client.open(user("second")):
        pass
    await thread.approve()
    await until(lambda: thread.standing() == ["finished", "waiting"])
    assert thread.queue() == []


async def test_the_same_post_waits_for_the_same_turn_and_then_repeats_it(thread: Thread) -> None:
    body = thread.client.body(user("second", "m2"), run_id=unique("run"))
    with thread.client.open(**_again(body)) as first:
        with thread.client.open(**_again(body)) as again:
            assert thread.waiting() == ["second"]
            await thread.approve()
            shown = [each["type"] for each in again.until("RUN_FINISHED")]
        assert [each["type"] for each in first.until("RUN_FINISHED")] == shown
    with thread.client.open(**_again(body)) as later:
        assert [each["type"] for each in later.until("RUN_FINISHED")] == shown
    other = thread.client.body(user("other", "m3"), run_id=body["runId"])
    assert thread.client.send(other).status == 409
    assert thread.standing() == ["finished", "waiting"]


def _again(body: dict[str, Any]) -> dict[str, Any]:
    return {"run_id": body["runId"], **{k: v for k, v in body.items() if k not in ("runId", "threadId")}}


def test_another_message_under_the_run_id_of_one_that_waits_is_refused(thread: Thread) -> None:
    run_id = unique("run")
    with thread.client.open(user("second"), run_id=run_id):
        refused = thread.client.post(user("third"), run_id=run_id)
    assert (refused.status, refused.problem["code"]) == (409, "run_id_reused")
    assert thread.waiting() == ["second"]


async def test_a_message_is_taken_back_while_it_waits_and_its_stream_says_so(thread: Thread) -> None:
    with thread.client.open(user("second")) as second:
        (queued,) = thread.queue()
        place = f"/v1/threads/{thread.id}/queue"
        assert thread.http.delete(f"{place}/{queued['run_id']}").status_code == 204
        assert thread.http.delete(f"{place}/{queued['run_id']}").status_code == 204
        (error,) = second.until("RUN_ERROR")
        assert error["code"] == "message_withdrawn"
    (kept,) = thread.queue()
    assert kept["refused"]["code"] == "message_withdrawn"
    await thread.approve()
    await until(lambda: thread.standing() == ["finished"])
    (first,) = thread.runs()
    begun = thread.http.delete(f"{place}/{first['id']}")
    assert (begun.status_code, begun.json()["code"]) == (409, "message_begun")
    absent = thread.http.delete(f"{place}/01900000-0000-7000-8000-000000000001")
    assert (absent.status_code, absent.json()["code"]) == (404, "message_unknown")
    audit = thread.http.get("/v1/audit", params={"limit": 200}).json()["items"]
    assert f"run:{queued['run_id']}" in [each["subject"] for each in audit if each["act"] == "message.withdrawn"]


def test_no_more_than_twenty_messages_of_a_thread_wait(thread: Thread) -> None:
    for _ in range(20):
        with thread.client.open(user("more")):
            pass
    refused = thread.client.post(user("too many"))
    assert (refused.status, refused.problem["code"]) == (429, "message_queue_full")
    assert len(thread.queue()) == 20


def test_a_message_that_could_start_no_run_does_not_wait(server: ServerProcess, thread: Thread) -> None:
    refused = HaiClient(server.url, thread.id).post(user("second"), forwardedProps={"workflow": "nowhere"})
    assert refused.status == 404
    assert thread.queue() == []


async def test_a_run_that_is_stopped_makes_way_for_the_next_message(thread: Thread) -> None:
    with thread.client.open(user("second")) as second:
        (first,) = thread.runs()
        assert thread.http.post(f"/v1/runs/{first['id']}/stop", json={}).status_code == 200
        second.until("RUN_FINISHED")
    assert thread.standing() == ["stopped", "waiting"]


@pytest.mark.parametrize("protocol", ["agui", "aui"])
async def test_messages_wait_in_other_protocols_too(
    server: ServerProcess, http: httpx2.Client, thread: Thread, protocol: str
) -> None:
    if protocol == "agui":
        client = AguiClient(server.url, thread.id, workflow="patient")
        sending = asyncio.create_task(asyncio.to_thread(client.post, user("second")))
        await until(lambda: thread.waiting() == ["second"])
        await thread.approve()
        assert (await sending).types[0] == "RUN_STARTED"
    else:
        with contextlib.closing(AuiClient(server.url, "patient", session_id=thread.id, message="second")):
            await until(lambda: thread.waiting() == ["second"])
            await thread.approve()
            await until(lambda: thread.standing() == ["finished", "waiting"])
    assert thread.standing() == ["finished", "waiting"]


async def test_a_message_that_is_refused_at_its_turn_keeps_the_next_one_not_back(
    server: ServerProcess, http: httpx2.Client
) -> None:
    """The runs of another workflow may be refused for what has come in between: here its only slot is taken."""
    thread = Thread(server, http)
    thread.client.post(user("first"))
    named = HaiClient(server.url, thread.id)
    elsewhere = named.open(user("second"), forwardedProps={"workflow": "solitary"})
    with elsewhere as second, thread.client.open(user("third")) as third:
        HaiClient(server.url, workflow="solitary").post(user("mine"))
        await thread.approve()
        (error,) = second.until("RUN_ERROR")
        assert error["code"] == "concurrency_busy"
        third.until("RUN_FINISHED")
    assert [each["refused"]["code"] for each in thread.queue()] == ["concurrency_busy"]
    assert [run["workflow"] for run in thread.runs()] == ["patient", "patient"]


async def test_only_who_speaks_in_the_thread_takes_its_messages_back(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as server:
        people = People(dsn)
        ann, bob = people.person("user:ann"), people.person("user:bob")
        boss = people.person("user:boss", roles=("publisher",))
        with httpx2.Client(base_url=server.url, timeout=30) as api:
            assert api.post("/v1/workflows", content=WORKFLOW, headers={**YAML, **boss}).status_code == 201
            client = HaiClient(server.url, workflow="patient", headers=ann)
            client.post(user("first"))
            with httpx2.stream(
                "POST", client.url, json=client.body(user("a secret")), headers={**ann}, timeout=30
            ) as response:
                assert response.status_code == 200
                place = f"/v1/threads/{client.thread_id}/queue"
                (mine,) = api.get(place, headers=ann).json()["items"]
                assert (mine["by"], mine["message"]) == ("user:ann", "a secret")
                assert api.delete(f"{place}/{mine['run_id']}", headers=bob).status_code in (403, 404)
                theirs = HaiClient(server.url, client.thread_id, workflow="patient", headers=bob).post(user("me too"))
                assert theirs.status in (403, 404)
                assert len(api.get(place, headers=ann).json()["items"]) == 1
                assert api.delete(f"{place}/{mine['run_id']}", headers=ann).status_code == 204
