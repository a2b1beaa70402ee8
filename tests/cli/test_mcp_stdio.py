"""`hai-flow mcp`: workflows as tools over real pipes, as the official client starts and speaks to the command."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import encode_header_value

from hai_flow.cli.client.mcp_stdio import encode_header
from tests.support.commands import command, environment, run, run_over
from tests.support.examples import examples
from tests.support.identities import KEYS, People
from tests.support.mcp_caller import VERSION, WITH_TASKS
from tests.support.postgres import Server
from tests.support.server import ROOT, YAML, serving
from tests.support.waiting import until

pytestmark = pytest.mark.costly

FLOWS = ROOT / "tests" / "clients" / "mcp_flows"
CONFIRM = {"filename": "a.txt"}


def publish(url: str, **headers: str) -> None:
    with httpx2.Client(base_url=url, headers={**YAML, **headers}) as http:
        for flow in sorted(FLOWS.glob("*.flow.yaml")):
            answer = http.post("/v1/workflows", content=flow.read_bytes())
            assert answer.status_code in (200, 201), answer.text


@pytest.fixture(scope="module")
def url(dsn: str) -> Iterator[str]:
    with serving(dsn) as server:
        publish(server.url)
        yield server.url


def parameters(url: str, *arguments: str, **settings: str) -> StdioServerParameters:
    program, *rest = command("mcp", *arguments)
    return StdioServerParameters(command=program, args=rest, env=environment(HAI_FLOW_URL=url, **settings))


async def confirm(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"confirm": True})


@asynccontextmanager
async def connected(url: str, *arguments: str, key: str = "", **options: Any) -> AsyncIterator[Client]:
    settings = {"HAI_FLOW_KEY": key} if key else {}
    async with Client(parameters(url, *arguments, **settings), read_timeout_seconds=60, **options) as client:
        yield client


def structured(result: Any) -> dict[str, Any]:
    content = result.structured_content
    assert isinstance(content, dict), result
    return content


# --- the shapes of clients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_workflows_are_tools_in_both_eras_and_a_call_returns_the_output(url: str, mode: Any) -> None:
    async with connected(url, mode=mode) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"greet", "confirm_delete", "wait_run"} <= tools
        assert structured(await client.call_tool("greet", {"name": "Änn"}))["output"] == "Hello, Änn!"
        refused = await client.call_tool("greet", {"name": 7})
        assert refused.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_with_elicitation_answers_in_the_call(url: str, mode: Any) -> None:
    async with connected(url, elicitation_callback=confirm, mode=mode) as client:
        assert structured(await client.call_tool("confirm_delete", CONFIRM))["output"] == "confirmed: true"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_without_elicitation_answers_with_the_tools(url: str, mode: Any) -> None:
    async with connected(url, mode=mode) as client:
        waiting = structured(await client.call_tool("confirm_delete", CONFIRM))
        (question,) = waiting["questions"]
        await client.call_tool("answer", {"question_id": question["id"], "values": {"confirm": True}})
        ended = structured(await client.call_tool("wait_run", {"run_id": waiting["run_id"]}))
        assert ended["output"] == "confirmed: true"


async def test_calls_run_beside_each_other(url: str) -> None:
    async with connected(url) as client:
        slow = asyncio.create_task(client.call_tool("slow_compute", {"seconds": 600}))
        assert structured(await client.call_tool("greet", {"name": "Ann"}))["status"] == "finished"
        assert not slow.done()
        slow.cancel()


async def test_the_command_speaks_as_somebody_of_a_development_server(url: str) -> None:
    async with connected(url, "--as", "user:sue,role:support") as client:
        run = structured(await client.call_tool("greet", {"name": "Ann"}))["run_id"]
        (content,) = (await client.read_resource(f"hai://runs/{run}")).contents
        assert isinstance(content, types.TextResourceContents)
        assert json.loads(content.text)["started_by"] == "user:sue"


async def test_a_key_opens_a_server_with_identity_and_others_tell_the_client(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as server:
        _, key = await asyncio.to_thread(People(dsn).key, "agent:refunds", roles=["publisher", "operator"])
        publish(server.url, Authorization=f"Bearer {key}")
        async with connected(server.url, key=key) as client:
            assert structured(await client.call_tool("greet", {"name": "Ann"}))["output"] == "Hello, Ann!"
        with pytest.raises(Exception) as raised:  # noqa: PT011 (a group of it)
            async with connected(server.url, mode="legacy"):
                pass
        assert "HAI_FLOW_KEY" in str(list(_leaves(raised.value)))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


# --- servers that end -------------------------------------------------------------------------------------------------


async def test_a_call_outlives_the_server_and_its_run_is_one(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as first:
        publish(first.url)
        port = str(urlsplit(first.url).port)
        async with connected(first.url, elicitation_callback=confirm) as client:
            call = asyncio.create_task(client.call_tool("slow_compute", {"seconds": 3}))
            runs = await until(lambda: httpx2.get(f"{first.url}/v1/runs").json()["items"])
            first.kill()
            with serving(dsn, environment={"HAI_FLOW_PORT": port}) as second:
                ended = structured(await call)
                assert (ended["status"], ended["run_id"]) == ("finished", runs[0]["id"])
                assert len(httpx2.get(f"{second.url}/v1/runs").json()["items"]) == 1


async def test_without_a_server_every_request_gets_a_sentence() -> None:
    async with connected("http://127.0.0.1:1", "--patience", "0", mode=VERSION) as client:
        with pytest.raises(MCPError, match=r"No server answers at http://127\.0\.0\.1:1 .* HAI_FLOW_URL"):
            await client.call_tool("greet", {"name": "Ann"})


# --- lines ------------------------------------------------------------------------------------------------------------


def exchange(url: str, *lines: str | bytes) -> list[dict[str, Any]]:
    """What the command writes for these lines, until it ends by itself behind the last one."""
    content = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    ended = run_over(content, "mcp", HAI_FLOW_URL=url)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def message(method: str, id: int, **params: Any) -> str:
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": WITH_TASKS,
    }
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}})


def test_what_was_asked_before_the_end_of_input_is_answered(url: str) -> None:
    call = message("tools/call", 2, name="greet", arguments={"name": "Ann"})
    answers = {each["id"]: each for each in exchange(url, message("tools/list", 1), call)}
    assert answers[1]["result"]["tools"]
    assert answers[2]["result"]["structuredContent"]["output"] == "Hello, Ann!"


def test_a_task_is_followed_over_lines(url: str) -> None:
    (created,) = exchange(url, message("tools/call", 1, name="confirm_delete", arguments=CONFIRM))
    task = created["result"]["taskId"]
    deadline = time.monotonic() + 30
    while True:
        (shown,) = exchange(url, message("tasks/get", 1, taskId=task))
        if shown["result"]["status"] == "input_required" or time.monotonic() > deadline:
            break
    (question,) = shown["result"]["inputRequests"]
    given = {question: {"action": "accept", "content": {"confirm": True}}}
    assert "result" in exchange(url, message("tasks/update", 1, taskId=task, inputResponses=given))[0]


def test_lines_that_are_no_messages_are_answered_and_the_others_go_on(url: str) -> None:
    twice = '{"jsonrpc": "2.0", "id": 5, "id": 6, "method": "ping"}'
    lines = ["", "hello", b"\xff\xfe", "[1]", twice, message("tools/list", 1)]
    codes = sorted(each["error"]["code"] for each in exchange(url, *lines) if "error" in each)
    assert codes == [-32700, -32700, -32700, -32600]


def test_a_request_that_can_not_be_held_is_answered_by_its_id(url: str) -> None:
    half = (
        r'{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "x", "arguments": {"a": "\ud800"}}}'
    )
    marked = b"\xef\xbb\xbf" + message("tools/list", 1).encode()
    lines = [marked, *(half % id for id in ("7", '"a"', "1e3", r'"\ud800"', str(2**60), "true"))]
    answers = exchange(url, *lines)
    assert [each["id"] for each in answers if "result" in each] == [1]
    assert {each["id"] for each in answers if "error" in each} == {7, "a", None}
    assert all("found a lone surrogate" in each["error"]["message"] for each in answers if "error" in each)


def test_a_stream_ends_with_its_input_and_a_cancelled_request_unanswered(url: str) -> None:
    listen = message("subscriptions/listen", 1, notifications={"taskIds": ["x"]})
    slow = message("tools/call", 2, name="slow_compute", arguments={"seconds": 600})
    wait = message("tools/call", 3, name="wait_run", arguments={"run_id": "x", "seconds": 50})
    cancel = '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}'
    answers = exchange(url, listen, slow, wait, cancel)
    assert {each["id"] for each in answers if "id" in each} == {3}


@settings(max_examples=examples(200))
@given(st.text(max_size=40) | st.text(max_size=9).map("=?base64?{}?=".format))
def test_headers_are_written_as_the_sdk_writes_them(value: str) -> None:
    assert encode_header(value) == encode_header_value(value)


def test_an_address_that_is_none_is_wrong_usage() -> None:
    ended = run("mcp", "--server", "ftp://nowhere")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "expected http://host:port" in ended.stderr
