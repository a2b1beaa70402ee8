"""Workflows as tools of an MCP server: what a call returns to which client, and what a question becomes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client

from hai_flow.api.mcp.server import is_brief
from hai_flow.definition.compiler import compile_workflow
from hai_flow.testing.documents.reader import read_suite
from hai_flow.testing.sandbox import NotPlayed, play_sandboxed
from hai_flow.wire.mcp import RESULT_SCHEMA, content_of, describe_result
from tests.support.hai_client import unique
from tests.support.mcp_caller import FORMS, NOTHING, TASKS, VERSION, WITH_TASKS, Caller, accept
from tests.support.server import ROOT, YAML, ServerProcess
from tests.support.waiting import until

GREET = """
hai: flow/v1
name: greet_in_test
version: 1
input: {type: object, required: [name], properties: {name: {type: string}}}
steps:
  - say: Hello, ${{ input.name }}!
output: ${{ input.name }}
"""
GREET_TESTS = """
hai: test/v1
workflow: greet_in_test.flow.yaml
cases:
  - name: says the name
    input: {name: Ann}
    expect: {status: finished, output: Ann}
"""
ENDLESS = """
hai: flow/v1
name: endless
version: 1
steps:
  - id: again
    repeat:
      max: 10000
      until: false
      steps: [{wait: {for: 1s}}]
"""
FLOWS = ROOT / "tests" / "clients" / "mcp_flows"
Fact = TypeVar("Fact")
OTHER_REVISION = {
    types.PROTOCOL_VERSION_META_KEY: "2026-07-27", types.CLIENT_CAPABILITIES_META_KEY: {},
    types.CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
}  # fmt: skip
SUPPORT = {"HAI-Act-As": "user:sue,role:support"}


@pytest.fixture(autouse=True, scope="module")
def published(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url) as http:
        for flow in sorted(FLOWS.glob("*.flow.yaml")):
            answer = http.post("/v1/workflows", content=flow.read_bytes(), headers=YAML)
            assert answer.status_code in (200, 201), answer.text


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        yield client


def settled(caller: Caller, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = caller.call("wait_run", {"run_id": run_id, "seconds": 20})["structuredContent"]
    return found


def sure(fact: Callable[[], Fact]) -> Fact:
    """The value of `fact()` as soon as it is true."""
    return asyncio.run(until(fact))


def approve_all(http: httpx2.Client, run_id: str) -> None:
    pending = http.get("/v1/pendings", params={"run_id": run_id}).json()["items"][0]
    body = {"decision": "approve", "digest": pending["digest"]}
    assert http.post(f"/v1/pendings/{pending['id']}/decide", json=body, headers=SUPPORT).status_code == 200


# --- what a call returns ----------------------------------------------------------------------------------------------


def test_a_call_of_a_workflow_that_ends_at_once_returns_its_output(http: httpx2.Client) -> None:
    for capabilities in (NOTHING, FORMS, WITH_TASKS):
        result = Caller(http, capabilities).call("greet", {"name": "Ann"})
        assert (result["resultType"], result["isError"]) == ("complete", False)
        assert result["content"][0]["text"] == "Hello, Ann!"
        assert result["structuredContent"]["output"] == "Hello, Ann!"


def test_a_client_without_elicitation_gets_the_run_with_whom_it_waits_for(http: httpx2.Client) -> None:
    caller = Caller(http)
    result = caller.call("refund_order", {"order": "A-1", "amount": 80})
    content = result["structuredContent"]
    assert content["status"] == "waiting"
    assert content["waits_for"].startswith("Waits for role:support until ")
    assert content["url"].endswith(f"/console/runs/{content['run_id']}")
    approve_all(http, content["run_id"])
    content = settled(caller, content["run_id"])
    question = content["questions"][0]
    assert question["may_answer"]
    assert question["form"]["properties"] == {"note": {"type": "string"}}
    caller.call("answer", {"question_id": question["id"], "values": {"note": "sorry"}})
    content = settled(caller, content["run_id"])
    assert content["output"] == {"refunded": 80, "note": "sorry"}


def test_a_question_to_the_caller_is_a_form_and_its_answer_resumes_the_run(http: httpx2.Client) -> None:
    caller = Caller(http, FORMS)
    asked = caller.call("confirm_delete", {"filename": "a.txt"})
    assert asked["resultType"] == "input_required"
    request = asked["inputRequests"]["sure"]["params"]
    assert (request["mode"], request["message"]) == ("form", "Delete a.txt?")
    done = caller.call(
        "confirm_delete", {"filename": "a.txt"}, state=asked["requestState"], answers={"sure": accept(confirm=True)}
    )
    assert done["structuredContent"]["output"] == "confirmed: true"


def test_a_wrong_form_is_asked_again_with_findings_and_stays_open(http: httpx2.Client) -> None:
    caller, given = Caller(http, FORMS), {"filename": "a.txt"}
    asked = caller.call("confirm_delete", given)
    again = caller.call(
        "confirm_delete", given, state=asked["requestState"], answers={"sure": accept(confirm="perhaps")}
    )
    assert again["resultType"] == "input_required"
    assert "/confirm" in again["inputRequests"]["sure"]["params"]["message"]
    done = caller.call("confirm_delete", given, state=again["requestState"], answers={"sure": accept(confirm=False)})
    assert done["structuredContent"]["output"] == "confirmed: false"


def test_a_state_used_twice_gives_the_first_outcome_to_any_second_answer(http: httpx2.Client) -> None:
    caller, given = Caller(http, FORMS), {"filename": "a.txt"}
    asked = caller.call("confirm_delete", given)
    first = caller.call("confirm_delete", given, state=asked["requestState"], answers={"sure": accept(confirm=True)})
    second = caller.call("confirm_delete", given, state=asked["requestState"], answers={"sure": accept(confirm=False)})
    assert second["structuredContent"] == first["structuredContent"]


def test_two_questions_at_once_are_answered_one_by_one(http: httpx2.Client) -> None:
    caller = Caller(http, FORMS)
    asked = caller.call("multi_input")
    assert sorted(asked["inputRequests"]) == ["again", "name"]
    asked = caller.call("multi_input", state=asked["requestState"], answers={"name": accept(name="Ann")})
    assert list(asked["inputRequests"]) == ["again"]
    done = caller.call("multi_input", state=asked["requestState"], answers={"again": accept(name="Ann")})
    assert done["structuredContent"]["output"] == "done"


def test_a_decision_by_others_is_no_elicitation(http: httpx2.Client) -> None:
    result = Caller(http, FORMS).call("refund_order", {"order": "A-1", "amount": 80})
    assert result["resultType"] == "complete"
    assert not result["structuredContent"]["questions"][0]["may_answer"]


def test_a_decision_of_the_caller_is_a_page_and_to_open_it_is_no_vote(http: httpx2.Client) -> None:
    caller, given = Caller(http, FORMS), {"order": "A-2", "amount": 80}
    asked = caller.call("refund", given)
    ((name, request),) = asked["inputRequests"].items()
    assert request["params"]["mode"] == "url"
    assert "/console/inbox/call_" in request["params"]["url"]
    assert "?" not in request["params"]["url"]
    opened = {name: {"action": "accept", "content": {"decision": "approve"}}}
    result = caller.call("refund", given, state=asked["requestState"], answers=opened)
    assert result["structuredContent"]["status"] == "waiting"


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_task_shows_its_question_takes_the_answer_and_ends_with_a_result(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_TASKS)
    task = caller.call("confirm_delete", {"filename": "a.txt"})
    assert (task["resultType"], task["pollIntervalMs"]) == ("task", 1000)

    def asked() -> dict[str, Any]:
        found = caller.result("tasks/get", {"taskId": task["taskId"]})
        return found if found["status"] == "input_required" else {}

    (key, request), *_ = sure(asked)["inputRequests"].items()
    assert request["params"]["mode"] == "form"
    wrong = {"taskId": task["taskId"], "inputResponses": {key: accept(confirm="perhaps")}}
    assert "/confirm" in caller.error("tasks/update", wrong)["message"]
    right = {"taskId": task["taskId"], "inputResponses": {key: accept(confirm=True)}}
    assert caller.result("tasks/update", right)["resultType"] == "complete"
    assert caller.result("tasks/update", right)["resultType"] == "complete"  # a second use changes nothing

    def over() -> dict[str, Any]:
        found = caller.result("tasks/get", {"taskId": task["taskId"]})
        return found if found["status"] == "completed" else {}

    assert sure(over)["result"]["structuredContent"]["output"] == "confirmed: true"


def test_a_task_that_waits_for_others_is_working_and_says_for_whom(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_TASKS)
    task = caller.call("refund_order", {"order": "A-1", "amount": 80})
    found = caller.result("tasks/get", {"taskId": task["taskId"]})
    assert found["status"] == "working"
    assert "inputRequests" not in found
    sure(lambda: "role:support" in caller.result("tasks/get", {"taskId": task["taskId"]})["statusMessage"])


def test_a_task_is_cancelled_and_a_second_cancellation_is_acknowledged(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_TASKS)
    task = {"taskId": caller.call("slow_compute", {"seconds": 60})["taskId"]}
    caller.result("tasks/cancel", task)
    sure(lambda: caller.result("tasks/get", task)["status"] == "cancelled")
    assert caller.result("tasks/cancel", task)["resultType"] == "complete"


def test_a_failed_run_is_a_completed_task_with_an_error_as_its_result(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_TASKS)
    task = {"taskId": caller.call("failing_job")["taskId"]}
    sure(lambda: caller.result("tasks/get", task)["status"] == "completed")
    assert caller.result("tasks/get", task)["result"]["isError"]


@pytest.mark.parametrize("task", ["run_1", "01900000-0000-7000-8000-000000000000", "../x", ""])
def test_a_task_that_there_is_not_is_one_answer(http: httpx2.Client, task: str) -> None:
    error = Caller(http, WITH_TASKS).error("tasks/get", {"taskId": task})
    assert (error["code"], error["message"]) == (-32602, "Unknown task.")


def test_a_header_that_names_another_task_is_refused(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_TASKS)
    task = caller.call("slow_compute", {"seconds": 60})["taskId"]
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert caller.error(method, {"taskId": task}, headers={"Mcp-Name": "another"})["code"] == -32020
    assert caller.answered.status_code == 400
    assert caller.result("tasks/get", {"taskId": task})["status"] == "working"
    caller.result("tasks/cancel", {"taskId": task})


@pytest.mark.parametrize("version", [VERSION, "2025-06-18", None])
@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (-32600, []), (-32600, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]), (-32600, 7),
        (-32600, {"id": 1, "method": "ping"}), (-32600, {"jsonrpc": "2.0", "id": 1, "method": 7}),
        (-32600, {"jsonrpc": "2.0", "id": None, "method": "ping"}),
        (-32600, {"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
        (-32600, {"jsonrpc": "2.0", "id": True, "method": "ping"}),
        (-32020, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": OTHER_REVISION}}),
    ],
)  # fmt: skip
def test_a_message_that_is_none_or_lies_about_its_revision_is_refused(
    http: httpx2.Client, version: str | None, expected: int, message: Any
) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": "tools/list"}
    headers |= {} if version is None else {"MCP-Protocol-Version": version}
    answer = http.post("/mcp", json=message, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, expected)


def test_what_is_answered_at_once_and_hears_nothing_needs_no_stream() -> None:
    def request(method: str, name: str = "", **meta: Any) -> dict[str, Any]:
        named = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}, **meta}
        return {"method": method, "params": {"name": name, "_meta": named}}

    assert all(map(is_brief, (request("tasks/get"), request("tools/call", "greet"))))
    waiting = request("tools/call", "greet", **{"io.modelcontextprotocol/clientCapabilities": {}})
    hearing = (
        request("tools/call", "greet", progressToken=1),
        request("tasks/get", **{types.LOG_LEVEL_META_KEY: "info"}),
    )
    assert not any(map(is_brief, (waiting, request("tools/call", "wait_run"), *hearing, {"method": "tasks/get"}, 7)))


@pytest.mark.parametrize("version", ["refund_order@1", 7, ""])
def test_a_call_that_names_a_version_of_another_workflow_starts_nothing(http: httpx2.Client, version: Any) -> None:
    caller = Caller(http)
    assert caller.refusal("greet", {"name": "Ann"}, meta={"hai-flow/workflow": version}) == "request.invalid"


def test_tasks_without_the_capability_are_refused_with_what_is_missing(http: httpx2.Client) -> None:
    error = Caller(http, FORMS).error("tasks/get", {"taskId": "x"})
    assert error["code"] == -32021
    assert "io.modelcontextprotocol/tasks" in error["data"]["requiredCapabilities"]["extensions"]


# --- once -------------------------------------------------------------------------------------------------------------


def test_one_key_is_one_run_and_other_arguments_with_it_are_refused(http: httpx2.Client) -> None:
    caller, meta = Caller(http), {"hai-flow/idempotencyKey": unique("key")}
    first = caller.call("greet", {"name": "Ann"}, meta=meta)["structuredContent"]
    assert caller.call("greet", {"name": "Ann"}, meta=meta)["structuredContent"] == first
    assert caller.refusal("greet", {"name": "Bob"}, meta=meta) == "command_id_reused"
    assert caller.refusal("greet", {"name": "Bob"}, meta={"hai-flow/idempotencyKey": 7}) == "idempotency_key.invalid"


def test_a_call_that_is_cut_neither_stops_nor_doubles_its_run(http: httpx2.Client, server: ServerProcess) -> None:
    meta = {"hai-flow/idempotencyKey": unique("key")}
    with httpx2.Client(base_url=server.url, timeout=0.4) as hasty, pytest.raises(httpx2.TimeoutException):
        Caller(hasty).call("slow_compute", {"seconds": 3}, meta=meta)
    found = Caller(http).call("slow_compute", {"seconds": 3}, meta=meta)["structuredContent"]
    assert found["status"] == "finished"


def test_the_run_joins_the_trace_that_the_call_names(http: httpx2.Client) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    meta = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    run_id = Caller(http).call("greet", {"name": "Ann"}, meta=meta)["structuredContent"]["run_id"]
    started = http.get(f"/v1/runs/{run_id}/events").json()["items"][0]
    assert trace in started["trace"]


# --- lists, resources, prompts ----------------------------------------------------------------------------------------


def test_tools_are_listed_in_one_order_with_schemas_hints_and_the_version(http: httpx2.Client) -> None:
    caller = Caller(http)
    listed = caller.result("tools/list", {})
    assert (listed["cacheScope"], listed["ttlMs"]) == ("private", 10_000)
    assert caller.result("tools/list", {})["tools"] == listed["tools"]
    tools = {each["name"]: each for each in listed["tools"]}
    refund = tools["refund_order"]
    assert refund["title"] == "Refund an order"
    assert refund["inputSchema"]["required"] == ["order", "amount"]
    assert refund["_meta"]["hai-flow/workflow"].startswith("refund_order@1+")
    assert not refund["annotations"]["destructiveHint"]
    assert tools["refund"]["annotations"]["destructiveHint"]
    assert {"get_run", "wait_run", "answer", "cancel_run", "list_pending"} <= tools.keys()


def test_a_misspelt_argument_gets_the_near_name_over_mcp_and_rest(http: httpx2.Client) -> None:
    given = {"ordr": "A-1", "amount": 5}
    result = Caller(http).call("refund_order", given)
    assert result["isError"]
    messages = [each["message"] for each in result["_meta"]["hai-flow/problem"]["findings"]]
    assert any("did you mean `order`?" in each for each in messages), messages
    refused = http.post("/v1/runs", json={"workflow": "refund_order", "input": given})
    assert refused.status_code == 422
    assert [each["message"] for each in refused.json()["findings"]] == messages


def test_wrong_arguments_are_findings_at_their_places(http: httpx2.Client) -> None:
    result = Caller(http).call("refund_order", {"order": 7})
    assert result["isError"]
    assert {each["path"] for each in result["_meta"]["hai-flow/problem"]["findings"]} >= {"/order"}


def test_an_unknown_tool_is_an_error_of_the_protocol(http: httpx2.Client) -> None:
    assert Caller(http).error("tools/call", {"name": "no_such_tool", "arguments": {}})["code"] == -32602


def test_a_run_is_a_resource_and_another_address_is_not_found(http: httpx2.Client) -> None:
    caller = Caller(http)
    run_id = caller.call("greet", {"name": "Ann"})["structuredContent"]["run_id"]
    read = caller.result("resources/read", {"uri": f"hai://runs/{run_id}/output"})
    assert read["contents"][0]["text"] == '"Hello, Ann!"'
    for uri in ("hai://runs/x", "hai://threads/x/output", "file:///etc/passwd", "hai://runs/../x"):
        assert caller.error("resources/read", {"uri": uri})["code"] == -32602


def test_a_long_output_is_cut_and_linked(http: httpx2.Client) -> None:
    caller = Caller(http)
    result = caller.call("greet", {"name": "x" * 100_000})
    assert result["structuredContent"]["truncated"]
    link = result["content"][1]
    assert len(result["content"][0]["text"]) <= 32 * 1024
    assert "x" * 100_000 in caller.result("resources/read", {"uri": link["uri"]})["contents"][0]["text"]


def test_templates_are_prompts(http: httpx2.Client) -> None:
    caller = Caller(http)
    names = [each["name"] for each in caller.result("prompts/list", {})["prompts"]]
    assert "new-approval" in names
    got = caller.result("prompts/get", {"name": "new-approval", "arguments": {"name": "pay_out"}})
    assert "name: pay_out" in got["messages"][0]["content"]["text"]
    assert caller.error("prompts/get", {"name": "new-nothing"})["code"] == -32602
    assert caller.error("prompts/get", {"name": "new-form", "arguments": {"name": "a b"}})["code"] == -32602


def test_the_card_loads_nothing_and_holds_no_vote(http: httpx2.Client) -> None:
    caller = Caller(http)
    card = caller.result("resources/read", {"uri": "ui://hai-flow/decide"})["contents"][0]
    assert card["mimeType"] == "text/html;profile=mcp-app"
    assert "default-src 'none'" in card["text"]
    for forbidden in ("tools/call", "fetch(", "innerHTML", " src=", "<link"):
        assert forbidden not in card["text"]
    tools = {each["name"]: each for each in caller.result("tools/list", {})["tools"]}
    assert tools["get_run"]["_meta"]["ui"]["resourceUri"] == card["uri"]


# --- writing workflows ------------------------------------------------------------------------------------------------


async def _tool(url: str, name: str, **arguments: str) -> types.CallToolResult:
    async with Client(f"{url}/mcp") as client:
        return await client.call_tool(name, arguments)


def call_tool(server: ServerProcess, name: str, **arguments: str) -> types.CallToolResult:
    return asyncio.run(_tool(server.url, name, **arguments))


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def test_a_workflow_is_checked_as_rest_checks_it_and_is_not_stored(server: ServerProcess, http: httpx2.Client) -> None:
    broken = GREET.replace("input.name }}!", "input.nam }}!")
    for source in (GREET, broken, "", "a: [", "\ta: 1"):
        answer = http.post("/v1/workflows/validate", content=source.encode(), headers=YAML).json()
        result = call_tool(server, "validate_workflow", source=source)
        assert (result.is_error, result.structured_content) == (False, answer)
        assert result.structured_content["valid"] == (source == GREET)
    text = text_of(call_tool(server, "validate_workflow", source=broken))
    assert text.startswith("7:")
    assert text.endswith("The workflow is not valid.")
    assert http.get("/v1/workflows/greet_in_test").status_code == 404


def test_findings_beyond_a_results_size_are_cut_and_the_cut_is_marked(server: ServerProcess) -> None:
    steps = "".join(f"  - say: ${{{{ input.{'x' * 200}{n} }}}}\n" for n in range(300))
    result = call_tool(server, "validate_workflow", source=f"hai: flow/v1\nname: w\nversion: 1\nsteps:\n{steps}")
    assert result.structured_content == {"valid": False, "truncated": True}
    assert len(text_of(result)) <= 32 * 1024
    assert text_of(result).endswith("The workflow is not valid.")


def test_the_tests_of_a_workflow_are_played_and_say_what_failed(server: ServerProcess) -> None:
    passed = call_tool(server, "test_workflow", source=GREET, tests=GREET_TESTS).structured_content
    assert (passed["passed"], passed["failed"], passed["findings"]) == (1, 0, [])
    result = call_tool(server, "test_workflow", source=GREET, tests=GREET_TESTS.replace("output: Ann", "output: Bob"))
    (case,) = result.structured_content["cases"]
    assert (case["outcome"], case["failures"][0]["expected"], case["failures"][0]["found"]) == ("failed", "Bob", "Ann")
    assert "FAILED <tests>:7 says the name" in text_of(result)


def test_nothing_is_played_of_texts_with_findings(server: ServerProcess) -> None:
    for source, tests in (
        (GREET.replace("say:", "sya:"), GREET_TESTS),
        (GREET, GREET_TESTS.replace("input:", "inptu:")),
    ):
        content = call_tool(server, "test_workflow", source=source, tests=tests).structured_content
        assert (content["cases"], content["passed"], content["failed"]) == ([], 0, 0)
        assert content["findings"]


def test_tests_without_an_end_are_cut_with_their_process() -> None:
    cases = "".join(f"  - name: case {n}\n    script: [{{advance: 10000s}}]\n" for n in range(1000))
    tests = f"hai: test/v1\nworkflow: endless.flow.yaml\ncases:\n{cases}"
    compile_workflow(ENDLESS.encode(), "<workflow>")  # with findings nothing would be played, and the process would end
    suite, findings = read_suite(tests.encode(), "<tests>")
    assert suite is not None
    assert not findings
    with pytest.raises(NotPlayed, match="did not end within"):
        play_sandboxed(ENDLESS.encode(), tests.encode(), seconds=2)


def test_the_process_that_plays_tests_has_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[dict[str, str]] = []
    run = subprocess.run

    def run_and_note(*args: Any, **more: Any) -> Any:
        kept.append(more["env"])
        return run(*args, **more)

    monkeypatch.setenv("HAI_FLOW_DATABASE", "postgresql://secret")
    monkeypatch.setattr(subprocess, "run", run_and_note)
    assert play_sandboxed(GREET.encode(), GREET_TESTS.encode())["passed"] == 1
    assert kept[0].keys() == {"PYTHONPATH", "PYTHONUTF8"}


def test_prompts_name_tools_that_there_are(http: httpx2.Client) -> None:
    caller = Caller(http)
    text = caller.result("prompts/get", {"name": "new-minimal"})["messages"][0]["content"]["text"]
    tools = {each["name"] for each in caller.result("tools/list", {})["tools"]}
    assert {"validate_workflow", "test_workflow"} <= tools
    assert set(re.findall(r"\b[a-z]+_[a-z]+\b", text.partition("```")[0])) <= tools


# --- the official client ----------------------------------------------------------------------------------------------


async def _official(url: str, *, elicits: bool, mode: str = "auto") -> str:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"confirm": True})

    callback = answer if elicits else None
    async with Client(f"{url}/mcp", elicitation_callback=callback, mode=mode) as client:
        result = await client.call_tool("confirm_delete", {"filename": "a.txt"})
        content = result.structured_content
        if content["status"] == "waiting":
            question = content["questions"][0]["id"]
            await client.call_tool("answer", {"question_id": question, "values": {"confirm": True}})
            content = (await client.call_tool("wait_run", {"run_id": content["run_id"]})).structured_content
        return str(content["output"])


@pytest.mark.parametrize("more", [{"elicits": False}, {"elicits": True}, {"elicits": True, "mode": "legacy"}])
def test_the_official_client_gets_the_same_output_in_each_shape(server: ServerProcess, more: dict[str, Any]) -> None:
    assert asyncio.run(_official(server.url, **more)) == "confirmed: true"


# --- what is shown besides --------------------------------------------------------------------------------------------


def test_an_output_that_is_content_of_mcp_is_returned_as_it_is(http: httpx2.Client) -> None:
    caller = Caller(http)
    result = caller.call("test_multiple_content_types")
    assert [each["type"] for each in result["content"]] == ["text", "image", "resource"]
    assert result["structuredContent"]["output"] == result["content"]


@pytest.mark.parametrize(
    "output",
    [
        [], "text", [1], [{"type": "image", "data": "x"}], [{"type": "image", "data": 1, "mimeType": "image/png"}],
        [{"type": "text", "text": "a", "more": 1}], [{"type": "resource", "resource": {"uri": "a"}}],
        [{"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"}], [{"type": "text", "text": "a"}, 2],
        [{"type": "resource", "resource": {"uri": 1, "text": "a"}}], {"type": "text", "text": "a"}, None,
    ],
)  # fmt: skip
def test_an_output_that_is_only_like_content_is_shown_as_json(output: Any) -> None:
    assert content_of(output) is None


def test_a_workflow_is_a_prompt_with_the_fields_of_its_input_and_its_form(http: httpx2.Client) -> None:
    caller = Caller(http)
    prompts = {each["name"]: each for each in caller.result("prompts/list", {})["prompts"]}
    assert prompts["refund_order"]["arguments"] == [
        {"name": "order", "description": "", "required": True},
        {"name": "amount", "description": "", "required": True},
    ]
    given = {"order": "A-1", "unknown": "x"}
    got = caller.result("prompts/get", {"name": "refund_order", "arguments": given})
    text, form = (each["content"] for each in got["messages"])
    assert "refund_order" in text["text"]
    assert "- order: A-1" in text["text"]
    assert "unknown" not in text["text"]
    assert form["resource"]["uri"] == "hai://workflows/refund_order"
    read = caller.result("resources/read", {"uri": form["resource"]["uri"]})
    assert read["contents"][0]["text"] == form["resource"]["text"]
    for uri in ("hai://workflows/no_such", "hai://workflows/refund_order/output"):
        assert caller.error("resources/read", {"uri": uri})["code"] == -32602


def test_places_in_addresses_and_fields_with_choices_are_completed(http: httpx2.Client) -> None:
    caller = Caller(http)
    template = {"type": "ref/resource", "uri": "hai://workflows/{name}"}

    def complete(ref: Any, name: str, value: str) -> list[str]:
        params = {"ref": ref, "argument": {"name": name, "value": value}}
        found: list[str] = caller.result("completion/complete", params)["completion"]["values"]
        return found

    assert complete(template, "name", "refund_o") == ["refund_order"]
    run_id = caller.call("greet", {"name": "Ann"})["structuredContent"]["run_id"]
    assert complete({"type": "ref/resource", "uri": "hai://runs/{run_id}"}, "run_id", run_id) == [run_id]
    form = {"type": "ref/prompt", "name": "json_schema_2020_12_tool"}
    assert complete(form, "contactMethod", "p") == ["phone"]
    assert complete(form, "no_such", "") == complete({"type": "ref/prompt", "name": "nothing"}, "a", "") == []


def test_a_fault_of_the_workflow_itself_is_a_failed_task_and_no_result(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_TASKS)
    task = {"taskId": caller.call("protocol_error_job")["taskId"]}
    sure(lambda: caller.result("tasks/get", task)["status"] == "failed")
    found = caller.result("tasks/get", task)
    assert (found["error"]["code"], found["error"]["data"]["code"]) == (-32603, "expression.error")
    assert "result" not in found


def test_answers_sent_with_the_first_call_are_given_and_others_ignored(http: httpx2.Client) -> None:
    caller = Caller(http, FORMS)
    given = {"sure": accept(confirm=True), "other": accept(confirm=False)}
    done = caller.call("confirm_delete", {"filename": "a.txt"}, answers=given)
    assert done["structuredContent"]["output"] == "confirmed: true"


def test_a_header_names_the_idempotency_key_unless_the_message_does(http: httpx2.Client) -> None:
    caller, header = Caller(http), {"Idempotency-Key": unique("key")}
    first = caller.call("greet", {"name": "Ann"}, headers=header)["structuredContent"]
    assert caller.call("greet", {"name": "Ann"}, headers=header)["structuredContent"] == first
    meta = {"hai-flow/idempotencyKey": unique("key")}
    assert caller.call("greet", {"name": "Ann"}, headers=header, meta=meta)["structuredContent"] != first


def test_patterns_are_found_by_words_and_findings_are_explained(server: ServerProcess, http: httpx2.Client) -> None:
    found = call_tool(server, "search_patterns", query="approval with a deadline").structured_content
    assert found is not None
    assert found["patterns"][0]["name"] == "approval"
    passed = call_tool(
        server, "test_workflow", source=found["patterns"][0]["workflow"], tests=found["patterns"][0]["tests"]
    ).structured_content
    assert passed is not None
    assert passed["failed"] == 0
    explained = call_tool(server, "explain_finding", code="set.unknown")
    assert "set" in text_of(explained)
    assert Caller(http).refusal("explain_finding", {"code": "zzz.unknown"}) == "request.invalid"


def test_a_stream_tells_of_each_change_of_a_task_and_of_a_resource(http: httpx2.Client, server: ServerProcess) -> None:
    caller = Caller(http, WITH_TASKS)
    task = caller.call("confirm_delete", {"filename": "a.txt"})["taskId"]
    uri = f"hai://runs/{task}"
    news: list[dict[str, Any]] = []
    with httpx2.Client(base_url=server.url, timeout=60) as listening, ThreadPoolExecutor(1) as threads:
        asked = Caller(listening, WITH_TASKS).request(
            "subscriptions/listen", {"notifications": {"taskIds": [task], "resourceSubscriptions": [uri]}}
        )
        with listening.stream("POST", "/mcp", **asked) as answer:
            messages = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
            assert next(messages)["method"] == "notifications/subscriptions/acknowledged"
            question = next(iter(caller.result("tasks/get", {"taskId": task})["inputRequests"]))
            responses = {"taskId": task, "inputResponses": {question: accept(confirm=True)}}
            threads.submit(caller.result, "tasks/update", responses)
            for message in messages:
                news.append(message)
                states = [each["params"].get("status") for each in news]
                if "completed" in states and any(each["params"].get("uri") == uri for each in news):
                    break
    done = next(each["params"] for each in news if each["params"].get("status") == "completed")
    assert (done["taskId"], done["result"]["structuredContent"]["output"]) == (task, "confirmed: true")


@pytest.mark.parametrize("arguments", [{}, {"context": "ours"}])
def test_a_prompt_that_lacks_an_argument_asks_for_it_once(http: httpx2.Client, arguments: dict[str, str]) -> None:
    caller = Caller(http, FORMS)
    named = {"name": "test_input_required_result_prompt", "arguments": arguments}
    prompt = caller.result("prompts/get", named)
    if not arguments:
        assert prompt["resultType"] == "input_required"
        assert prompt["inputRequests"]["arguments"]["params"]["requestedSchema"]["required"] == ["context"]
        prompt = caller.result("prompts/get", {**named, "inputResponses": {"arguments": accept(context="ours")}})
    assert "- context: ours" in prompt["messages"][0]["content"]["text"]


def test_a_workflow_for_task_clients_refuses_others_and_asks_before_tasks(http: httpx2.Client) -> None:
    name, answers = "test_tool_with_task", {"user_name": accept(name="Ann")}
    error = Caller(http, FORMS).error("tools/call", {"name": name, "arguments": {}})
    assert error["code"] == -32021
    caller = Caller(http, WITH_TASKS)
    asked = caller.call(name)
    assert "taskId" not in asked
    task = caller.call(name, state=asked["requestState"], answers=answers)
    assert (task["resultType"], "requestState" in task) == ("task", False)
    again = caller.call(name, state=asked["requestState"], answers={"user_name": accept(name="Bob")})
    assert again.get("taskId") == task["taskId"] or again["content"][0]["text"] == "Hello, Ann!"  # if it is over
    done = sure(lambda: caller.result("tasks/get", {"taskId": task["taskId"]}).get("result", {}))
    assert done["content"][0]["text"] == "Hello, Ann!"


ASKING = "ask: {title: Well?, from: requester, form: {type: object, properties: {ok: {type: boolean}}}}"


def draft(name: str, version: int, step: str = "say: Hello", id: str = "first") -> str:
    return f"hai: flow/v1\nname: {name}\nversion: {version}\nsteps:\n  - {{id: {id}, {step}}}\n"


def test_a_draft_is_published_by_a_person_who_saw_its_text_and_changes(
    server: ServerProcess, http: httpx2.Client
) -> None:
    name = unique("drafted").replace("-", "_")
    caller = Caller(http)
    first = draft(name, 1, ASKING).encode()
    assert http.post("/v1/workflows", content=first, headers=YAML).status_code == 201
    waiting = http.post("/v1/runs", json={"workflow": name}).json()["id"]
    until_waits(http, waiting)
    source = draft(name, 2, id="second")
    asked = caller.call("draft_publish", {"source": source})["structuredContent"]
    assert asked["status"] == "pending", caller.message()
    (question,) = http.get("/v1/pendings", params={"run_id": asked["approval"]}).json()["items"]
    assert "-version: 1\n+version: 2" in question["message"]
    assert f"- `{waiting}` at `first`" in question["message"]
    assert question["args"]["arguments"]["source"] == source
    assert caller.call("draft_publish", {"source": source})["structuredContent"] == asked
    decision = {"decision": "approve", "digest": question["digest"]}
    assert http.post(f"/v1/pendings/{question['id']}/decide", json=decision).status_code == 200
    for _ in range(2):
        done = caller.call("draft_publish", {"source": source, "seconds": 20})["structuredContent"]
        assert done["status"] == "published"
    assert http.get(f"/v1/workflows/{name}@2/source").text == source


def test_a_draft_with_findings_or_that_is_rejected_is_not_published(http: httpx2.Client) -> None:
    name = unique("drafted").replace("-", "_")
    caller = Caller(http)
    wrong = caller.call("draft_publish", {"source": draft(name, 1, "say2: Hello")})
    assert wrong["isError"]
    source = draft(name, 1)
    asked = caller.call("draft_publish", {"source": source})["structuredContent"]
    (question,) = http.get("/v1/pendings", params={"run_id": asked["approval"]}).json()["items"]
    decision = {"decision": "reject", "reason": "not now", "digest": question["digest"]}
    assert http.post(f"/v1/pendings/{question['id']}/decide", json=decision).status_code == 200
    rejected = caller.call("draft_publish", {"source": source, "seconds": 20})
    assert rejected["structuredContent"]["status"] == "rejected"
    assert "not now" in rejected["content"][0]["text"]
    again = caller.call("draft_publish", {"source": source, "attempt": 2})["structuredContent"]
    assert (again["status"], again["approval"] != asked["approval"]) == ("pending", True)
    assert http.get(f"/v1/workflows/{name}").status_code == 404


def until_waits(http: httpx2.Client, run_id: str) -> None:
    sure(lambda: http.get(f"/v1/runs/{run_id}").json()["status"] == "waiting")


@pytest.mark.parametrize(
    ("ends", "members"),
    [
        ('output: {n: 1, note: "${{ input.note }}"}', ["n", "note"]),
        ("output: ${{ input.note }}", None),
        ("output: {}", []),
        ("", None),
    ],
)
def test_the_output_schema_of_a_workflow_names_the_members_of_its_output(ends: str, members: list[str] | None) -> None:
    head = "hai: flow/v1\nname: x\nversion: 1\ninput: {type: object, properties: {note: {type: string, default: a}}}\n"
    plan = compile_workflow(f"{head}steps: [{{say: Hello}}]\n{ends}\n".encode())
    output = describe_result(plan)["properties"]["output"]
    assert output.get("required") == members
    returning = f"{head}steps: [{{if: 'input.note == \"b\"', return: 3}}]\n{ends}\n"
    assert describe_result(compile_workflow(returning.encode())) == RESULT_SCHEMA


def test_a_result_fits_its_output_schema_as_the_official_client_demands(server: ServerProcess) -> None:
    async def call() -> tuple[Any, Any]:
        async with Client(f"{server.url}/mcp") as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            return tools["slow_compute"].output_schema, await client.call_tool("slow_compute", {"seconds": 0})

    schema, result = asyncio.run(call())
    content = result.structured_content
    assert set(schema["properties"]["output"].get("required", ())) <= set(content["output"])
