"""Until identity exists a development server on loopback believes who its callers say they are, and marks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.api.test_rest import Checked, code, start, wait_for_end, wait_for_pendings
from tests.support.hai_client import unique
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

TWO = """
hai: flow/v1
name: two
version: 1
steps:
  - {id: fine, approve: {title: Fine?, from: role:lead, quorum: 2}}
output: ${{ steps.fine.output }}
"""
LEA, LEO = "user:lea, role:lead", "user:leo,role:lead,for=user:lou"


@pytest.fixture
def http(server: ServerProcess) -> Iterator[Checked]:
    with Checked(server.url) as client:
        yield client


def decide(http: httpx2.Client, pending: str, who: str | None, **body: Any) -> httpx2.Response:
    headers = {} if who is None else {"HAI-Act-As": who}
    return http.post(f"/v1/pendings/{pending}/decide", json={"decision": "approve", **body}, headers=headers)


def test_two_people_decide_and_the_log_says_that_they_only_said_who_they_are(http: Checked) -> None:
    http.post("/v1/workflows", content=TWO.encode())
    run = http.post("/v1/runs", json={"workflow": "two"}, headers={"HAI-Act-As": "user:eve"}).json()
    assert run["started_by"] == "user:eve"
    (pending,) = wait_for_pendings(http, run["id"])
    assert decide(http, pending["id"], None).status_code == 403
    assert decide(http, pending["id"], "user:eve, role:lead").status_code == 403, "who started it is excluded"
    assert decide(http, pending["id"], LEA).json()["status"] == "open"
    assert decide(http, pending["id"], LEO).json()["status"] == "approve"
    votes = wait_for_end(http, run["id"])["output"]["votes"]
    assert [(vote["by"], vote["on_behalf_of"], vote["roles"], vote["via"]) for vote in votes] == [
        ("user:lea", None, ["lead"], "rest+act_as"),
        ("user:leo", "user:lou", ["lead"], "rest+act_as"),
    ]


def test_whoever_controls_a_run_is_named_by_their_id(http: Checked) -> None:
    http.post("/v1/workflows", content=TWO.encode())
    run = start(http, "two")
    assert run["started_by"] == "user:local"
    http.post(f"/v1/runs/{run['id']}/stop", json={"reason": "enough"}, headers={"HAI-Act-As": "user:ops,role:operator"})
    events = http.get(f"/v1/runs/{run['id']}/events", params={"limit": 1000}).json()["items"]
    assert [event["by"] for event in events if event["type"] == "run_stopping"] == ["user:ops"]


def test_a_dialect_takes_the_header_too(http: Checked) -> None:
    http.post("/v1/workflows", content=TWO.encode())
    thread = unique("thread")
    body = {
        "threadId": thread,
        "runId": unique("run"),
        "messages": [{"id": unique("msg"), "role": "user", "content": "go"}],
    }
    http.post("/workflows/two/awp", json=body, headers={"HAI-Act-As": "user:eve"})
    (run,) = http.get("/v1/runs", params={"thread_id": thread}).json()["items"]
    assert run["started_by"] == "user:eve"
    (pending,) = wait_for_pendings(http, run["id"])
    answer = {"id": unique("msg"), "role": "tool", "toolCallId": pending["id"], "content": "true"}
    for who in (LEA, LEO):
        again = {**body, "runId": unique("run"), "messages": [answer]}
        assert http.post("/awp", json=again, headers={"HAI-Act-As": who}).status_code == 200
    votes = http.get(f"/v1/runs/{run['id']}").json()["output"]["votes"]
    assert [vote["via"] for vote in votes] == ["hai+act_as", "hai+act_as"]


@pytest.mark.parametrize("who", ["ann", "role:lead", "user:a, user:b", ""])
def test_a_header_that_names_nobody_is_refused(http: Checked, who: str) -> None:
    response = http.get("/v1/runs", headers={"HAI-Act-As": who})
    assert code(response) == (422, "act_as.invalid")
    assert "expected user:ann, role:controller" in response.json()["detail"]


def test_the_header_twice_is_read_as_one(http: Checked) -> None:
    twice = [("HAI-Act-As", "user:ann"), ("HAI-Act-As", "user:bob")]
    assert code(http.get("/v1/runs", headers=twice)) == (422, "act_as.invalid")


def test_the_same_key_of_another_person_is_not_the_same_answer(http: Checked) -> None:
    http.post("/v1/workflows", content=TWO.encode())
    run = start(http, "two")
    (pending,) = wait_for_pendings(http, run["id"])
    path, body = f"/v1/pendings/{pending['id']}/decide", {"decision": "approve"}
    first = http.post(path, json=body, headers={"HAI-Act-As": LEA, "Idempotency-Key": "k"})
    assert first.status_code == 200
    other = http.post(path, json=body, headers={"HAI-Act-As": LEO, "Idempotency-Key": "k"})
    assert code(other) == (409, "command_id_reused")


def test_any_other_server_believes_nobody(postgres_server: Server) -> None:
    plain = {"HAI_FLOW_TEST_PLAIN": "1"}
    remote = {"HAI_FLOW_HOST": "0.0.0.0", "HAI_FLOW_ALLOW_REMOTE": "1"}
    for environment in (plain, remote):
        with postgres_server.database() as dsn, serving(dsn, environment=environment) as server:
            url = server.url.replace("0.0.0.0", "127.0.0.1")
            refused = httpx2.get(url + "/v1/runs", headers={"HAI-Act-As": "user:ann"})
            assert code(refused) == (403, "act_as.refused")
            assert "hai-flow dev" in refused.json()["detail"]
            assert httpx2.get(url + "/v1/runs").status_code == 200
