"""The Agent API at `/process`, over real sockets."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from jsonschema_rs import validator_for

from tests.support.agent_client import AgentClient, approval, output, say
from tests.support.hai_client import HaiClient, unique, user
from tests.support.server import ServerProcess, expect
from tests.support.waiting import until


def test_a_chat_streams_text_and_ends_with_all_that_was_said(server: ServerProcess) -> None:
    response = AgentClient(server.url).post(say("你好"))
    assert response.last["status"] == "completed"
    assert response.last["session_id"].startswith("session")
    said = [message["content"][0]["text"] for message in response.last["output"]]
    assert "".join(said) == response.text()
    assert response.last["completed_at"] >= response.last["created_at"] > 1_700_000_000


def test_a_server_tool_is_a_plugin_call_with_its_output(server: ServerProcess) -> None:
    response = AgentClient(server.url, workflow="weather").post(say("北京天气怎么样?"))
    call, result = response.data("plugin_call"), response.data("plugin_call_output")
    assert (call["name"], result["call_id"]) == ("get_weather", call["call_id"])
    assert json.loads(call["arguments"])
    assert [message["type"] for message in response.last["output"]] == [
        "message", "plugin_call", "plugin_call_output", "message",
    ]  # fmt: skip


def test_a_frontend_tool_leaves_the_response_incomplete_until_its_output(server: ServerProcess) -> None:
    client = AgentClient(server.url, workflow="cleanup")
    asked = client.post(say("删除"))
    assert asked.last["status"] == "incomplete"
    call = asked.data("function_call")
    done = client.post(output(call["call_id"], "confirmed"))
    assert done.last["status"] == "completed"
    assert done.last["id"] != asked.last["id"]
    again = client.post(output(call["call_id"], "no"))
    assert (again.status, again.problem["code"]) == (409, "pending_decided")


@pytest.mark.parametrize(("approve", "status"), [(True, "approve"), (False, "reject"), ("yes", "open")])
def test_a_request_for_approval_is_answered_by_a_response(
    server: ServerProcess, http: httpx2.Client, approve: object, status: str
) -> None:
    client = AgentClient(server.url, workflow="release")
    asked = client.post(say("release"))
    assert asked.last["status"] == "incomplete"
    requests = [message["content"][0]["data"] for message in asked.messages("mcp_approval_request")]
    assert requests
    answered = client.post(approval(requests[0]["id"], approve=approve, reason="seen"))
    assert answered.status == (422 if status == "open" else 200)
    pending = http.get(f"/v1/pendings/{requests[0]['id']}").json()
    assert pending["status"] == status


def test_the_response_as_a_whole_is_the_last_object_of_the_stream(server: ServerProcess) -> None:
    whole = AgentClient(server.url, workflow="weather").post(say("天气"), stream=False)
    assert whole.last["status"] == "completed"
    assert len(whole.last["output"]) == 4


def test_a_request_under_the_same_name_gets_the_same_response_again(server: ServerProcess) -> None:
    client = AgentClient(server.url, workflow="weather")
    question = say("天气")
    first, again = client.post(question), client.post(question)
    assert again.objects == first.objects


def test_a_run_that_began_in_another_protocol_goes_on_in_this_one(server: ServerProcess) -> None:
    hai = HaiClient(server.url, workflow="cleanup")
    call = hai.post(user("删除")).call_id("confirmAction")
    client = AgentClient(server.url, workflow="cleanup")
    client.session_id = hai.thread_id
    waiting = client.post()
    assert waiting.last["status"] == "incomplete"
    assert waiting.last["output"][-1]["content"][0]["data"]["call_id"] == call
    assert client.post(output(call, "confirmed")).last["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], ""),
        ({}, "/input"),
        ({"input": "hello"}, "/input"),
        ({"input": [1]}, "/input/0"),
        ({"input": [], "stream": "no"}, "/stream"),
        ({"input": [], "session_id": 5}, "/session_id"),
        ({"input": [], "n": 0}, "/n"),
        ({"input": [], "n": 9}, "/n"),
        ({"input": [], "n": "1"}, "/n"),
        ({"input": [], "n": True}, "/n"),
        ({"input": [{"role": "user", "content": [5]}]}, "/input/0/content"),
        ({"input": [{"type": "function_call_output", "content": []}]}, "/input/0/content"),
        ({"input": [{"type": "mcp_approval_response", "content": [{"data": {}}]}]}, "/input/0/content/0/data"),
        ({"input": [], "tools": [{}]}, "/tools/0"),
    ],
)
def test_a_wrong_request_is_told_where(http: httpx2.Client, body: object, path: str) -> None:
    assert expect(http.post("/process", json=body), 422).json()["findings"][0]["path"] == path


async def test_who_asks_for_a_whole_response_and_leaves_leaves_the_run_alone(server: ServerProcess) -> None:
    """It goes on; a further request finds what it said."""
    client = AgentClient(server.url, workflow="chat")
    body = {"input": [say("word " * 200)], "session_id": client.session_id, "stream": False}
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as http:
        waiting = asyncio.ensure_future(http.post("/workflows/chat/process", json=body))

        async def started() -> bool:
            return bool((await http.get("/v1/runs", params={"thread_id": client.session_id})).json()["items"])

        await until(started)
        waiting.cancel()
        async with http.stream("POST", "/process", json={**body, "input": [], "stream": True}) as attached:
            assert attached.status_code == 200
            assert '"in_progress"' in await anext(attached.aiter_text())


@pytest.mark.parametrize("path", ["/process", "/workflows/{name}/process"])
def test_openapi_says_what_the_stream_and_the_whole_response_are(
    server: ServerProcess, http: httpx2.Client, path: str
) -> None:
    content = http.get("/openapi.json").json()["paths"][path]["post"]["responses"]["200"]["content"]
    frames, whole = content["text/event-stream"]["schema"], content["application/json"]["schema"]
    assert (frames["type"], frames["contentMediaType"]) == ("string", "text/event-stream")
    here = path.format(name="chat")
    body = {"input": [say("你好")], "id": unique("r"), "workflow": "chat"}
    streamed = httpx2.post(server.url + here, json=body)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    sent = [json.loads(line[5:]) for line in streamed.text.splitlines() if line.startswith("data:")]
    example = content["text/event-stream"]["example"]
    assert len(sent) > 3
    for each in (*sent, json.loads(example.removeprefix("data: "))):
        assert validator_for(frames["contentSchema"]).is_valid(each), each
    assert not validator_for(frames["contentSchema"]).is_valid({"object": "event"})
    again = {**body, "input": [say("你好")], "id": unique("r"), "stream": False}
    last = httpx2.post(server.url + here, json=again).json()
    assert validator_for(whole).is_valid(last), last
