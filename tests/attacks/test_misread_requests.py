"""Requests that could be taken for something else than they are: refused, with what was expected."""

from __future__ import annotations

from uuid import uuid4

import httpx2
import pytest

from tests.api.test_rest import wait_for_pendings

POSTS = ["/awp", "/ag-ui", "/send-message", "/process", "/cpk", "/workflows/cleanup/awp"]


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
)
@pytest.mark.parametrize("path", POSTS)
def test_what_any_page_may_send_without_asking_is_no_json(
    http: httpx2.Client, path: str, media_type: str | None
) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    body = b'{"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}'
    refused = http.post(path, content=body, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (415, "body.not_json")
    assert "application/json" in refused.json()["detail"]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_nor_is_it_a_workflow(http: httpx2.Client, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    for path in ("/v1/workflows", "/v1/workflows/validate"):
        refused = http.post(path, content=b"hai: flow/v1", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (415, "body.media_type")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/runs?state=failed", "/query/state: there is no such parameter; did you mean `status`?"),
        ("/v1/runs?status=failed&stauts=failed", "/query/stauts"),
        ("/v1/pendings?run=1", "/query/run"),
        ("/v1/workflows/cleanup?limit=1", "This operation has none."),
    ],
)
def test_a_parameter_that_an_operation_does_not_have_is_refused(http: httpx2.Client, path: str, said: str) -> None:
    refused = http.get(path)
    assert (refused.status_code, refused.json()["code"]) == (422, "request.invalid")
    assert said in refused.json()["detail"]


def test_a_misspelt_moment_does_not_give_the_present(http: httpx2.Client) -> None:
    run = http.post("/v1/runs", json={"workflow": "cleanup", "input": {}}).json()
    refused = http.get(f"/v1/runs/{run['id']}/snapshot", params={"seq": 1})
    assert (refused.status_code, refused.json()["code"]) == (422, "request.invalid")
    assert "This operation has at." in refused.json()["detail"]


def test_nobody_acts_as_two(http: httpx2.Client) -> None:
    twice = [("HAI-Act-As", "user:ann"), ("HAI-Act-As", "user:bob")]
    refused = http.get("/v1/pendings", headers=twice)
    assert (refused.status_code, refused.json()["code"]) == (400, "header_twice")


@pytest.mark.parametrize("path", ["/awp", "/ag-ui"])
def test_a_list_that_is_no_list_of_parts_decides_nothing(http: httpx2.Client, path: str) -> None:
    run = http.post("/v1/runs", json={"workflow": "refund", "input": {}, "thread_id": f"t{uuid4()}"}).json()
    (pending,) = wait_for_pendings(http, run["id"])
    for content in ([1], [True], ["true"], ["approved"], [{"text": "true"}], [None], []):
        message = {"id": "a", "role": "tool", "toolCallId": pending["id"], "content": content}
        body = {"threadId": run["thread_id"], "runId": f"r{uuid4()}", "messages": [message], "tools": [], "context": []}
        refused = http.post(path, json={**body, "state": {}})
        assert refused.status_code == 422, (content, refused.text)
        assert http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"


@pytest.mark.parametrize("path", ["/awp", "/ag-ui"])
def test_an_answer_to_another_threads_question_is_unknown_in_an_empty_one(http: httpx2.Client, path: str) -> None:
    run = http.post("/v1/runs", json={"workflow": "cleanup", "input": {}}).json()
    pendings = wait_for_pendings(http, run["id"])
    message = {"id": "a", "role": "tool", "toolCallId": pendings[0]["id"], "content": "true"}
    body = {"threadId": f"t{uuid4()}", "runId": "r", "messages": [message], "tools": [], "context": [], "state": {}}
    refused = http.post(path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (404, "pending_unknown")
    assert http.get(f"/v1/pendings/{pendings[0]['id']}").json()["status"] == "open"
