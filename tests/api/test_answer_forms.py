"""One answer in every form over every protocol: what a person edits is what is performed, and nothing is dropped."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

import hai_flow
from tests.support.aui_client import AuiClient
from tests.support.examples import sample
from tests.support.hai_client import unique
from tests.support.mcp_caller import FORMS as WITH_FORMS
from tests.support.mcp_caller import Caller, accept
from tests.support.server import YAML, ServerProcess, expect
from tests.support.waiting import until

WORKFLOWS: Final = {
    "gate": """\
hai: flow/v1
name: forms_gate
version: 1
tools: {shop: {python: hai_flow.examples, effect: write}}
steps:
  - id: pay
    call: shop.refund
    with: {order: A-1, amount: 180}
    approval: {from: anyone, edit: [amount]}
    on_reject: [return: rejected]
output: "${{ steps.pay.output.refunded }}"
""",
    "approve": """\
hai: flow/v1
name: forms_approve
version: 1
steps:
  - id: ask
    approve:
      title: Go?
      from: anyone
      form: {type: object, required: [amount], properties: {amount: {type: integer}}}
output: "${{ steps.ask.output.values.amount }}"
""",
    "ask": """\
hai: flow/v1
name: forms_ask
version: 1
steps:
  - id: ask
    ask:
      title: How much?
      from: anyone
      form: {type: object, required: [amount], properties: {amount: {type: integer}}}
output: "${{ steps.ask.output.amount }}"
""",
    "words": """\
hai: flow/v1
name: forms_words
version: 1
steps:
  - id: ask
    ask:
      title: What?
      from: anyone
      form: {type: object, properties: {message: {type: string}, text: {type: string}, amount: {type: integer}}}
output: "${{ steps.ask.output }}"
""",
    "file": """\
hai: flow/v1
name: forms_file
version: 1
steps:
  - id: ask
    approve:
      title: Is it ours?
      from: anyone
      form: {type: object, required: [photo], properties: {photo: {type: string, format: file}}}
output: "${{ steps.ask.output.values.photo }}"
""",
    "tool": """\
hai: flow/v1
name: forms_tool
version: 1
tools: {pick: {frontend: {description: Pick, parameters: {type: object}, result: {type: integer}}}}
steps: [{id: ask, call: pick}]
output: "${{ steps.ask.output }}"
""",
    "ids": """\
hai: flow/v1
name: forms_ids
version: 1
tools: {pick: {frontend: {description: Pick, parameters: {type: object}, result: {type: object}}}}
steps: [{id: ask, call: pick}]
output: "${{ steps.ask.output.id }}"
""",
    "any": """\
hai: flow/v1
name: forms_any
version: 1
tools: {pick: {frontend: {description: Pick, parameters: {type: object}, result: {}}}}
steps: [{id: ask, call: pick}]
output: "${{ steps.ask.output }}"
""",
}
ZEROS: Final = "0" * 64
EDITS: Final = {"edits": {"amount": 90}}
Asked = dict[str, Any]
Post = Callable[[httpx2.Client, Asked, dict[str, Any]], httpx2.Response]


def _turn(asked: Asked, **more: Any) -> dict[str, Any]:
    return {"threadId": asked["thread_id"], "runId": unique("r"), "messages": [], "tools": [], **more}


def _tool_message(asked: Asked, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": unique("m"), "role": "tool", "toolCallId": asked["id"], "content": json.dumps(content), **more}


def _resume(asked: Asked, payload: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"interruptId": asked["id"], "status": "resolved", "payload": payload, **more}]


def hai(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    return http.post("/awp", json=_turn(asked, messages=[_tool_message(asked, answer)]))


def agui_message(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    return http.post("/ag-ui", json=_turn(asked, messages=[_tool_message(asked, answer)]))


def agui(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    return http.post("/ag-ui", json=_turn(asked, resume=_resume(asked, answer)))


def copilotkit(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    return http.post(f"/cpk/agent/{asked['workflow']}/run", json=_turn(asked, resume=_resume(asked, answer)))


def agent_api(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    rest = {name: value for name, value in answer.items() if name != "decision"}
    data = {"approval_request_id": asked["id"], "approve": answer["decision"] == "approve", **rest}
    return _process(http, asked, "mcp_approval_response", data)


def _process(http: httpx2.Client, asked: Asked, type: str, data: Any, **more: Any) -> httpx2.Response:
    content = [{"type": "data", "data": data}]
    message = {"id": unique("m"), "type": type, "role": "user", "content": content, **more}
    return http.post("/process", json={"session_id": asked["thread_id"], "input": [message]})


def aui(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    payload = {name: value for name, value in answer.items() if name != "decision"}
    return _aui(http, asked, answer.get("decision"), payload)


def _aui(http: httpx2.Client, asked: Asked, action: str | None, payload: dict[str, Any]) -> httpx2.Response:
    body = {"session_id": asked["thread_id"], "interrupt_id": asked["id"], "action": action, "payload": payload}
    return http.post("/api/aui/input", json=body)


def rest(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    return http.post(f"/v1/pendings/{asked['id']}/decide", json=answer)


def several(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    """The route for several answers. What it refuses as a whole is no outcome of one."""
    response = http.post("/v1/inbox/decide", json={"items": [{"id": asked["id"], **answer}]})
    if response.status_code != 200:
        return response
    (outcome,) = response.json()["items"]
    return httpx2.Response(outcome["status"], json=outcome["problem"])


def a2a(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    return _a2a(http, asked, {"hai.pending": {"id": asked["id"], **answer}})


def _a2a(http: httpx2.Client, asked: Asked, data: Any, *, beside: Any = None, **more: Any) -> httpx2.Response:
    """The response of A2A with the status that the other protocols give the same refusal."""
    message = {"messageId": unique("m"), "role": "ROLE_USER", "taskId": asked["run_id"], "parts": [{"data": data}]}
    body = {"message": {**message, **more}, **(beside or {})}
    response = http.post("/a2a/message:send", json=body, headers={"A2A-Version": "1.0"})
    if response.status_code != 400:
        return response
    return httpx2.Response(422, json={"detail": response.json()["error"]["message"]})


def mcp(http: httpx2.Client, asked: Asked, answer: dict[str, Any]) -> httpx2.Response:
    arguments = {name: value for name, value in answer.items() if value is not None}
    result = Caller(http).call("answer", {"question_id": asked["id"], **arguments})
    problem = result["_meta"]["hai-flow/problem"] if result.get("isError") else {"status": 200}
    return httpx2.Response(problem["status"], json=problem)


DIALECTS: Final[dict[str, Post]] = {
    "HAI": hai,
    "AG-UI's ToolMessage": agui_message,
    "AG-UI": agui,
    "CopilotKit": copilotkit,
    "Agent API": agent_api,
    "AUI": aui,
}
EVERYWHERE: Final[dict[str, Post]] = {
    **DIALECTS, "REST": rest, "REST, several": several, "A2A": a2a, "MCP": mcp,
}  # fmt: skip
"""The protocols in which a person answers. The forms of links in mails and of cards in chats are in their own tests."""
everywhere = pytest.mark.parametrize("protocol", EVERYWHERE)
in_dialects = pytest.mark.parametrize("protocol", DIALECTS)
DOORS: Final = {
    "api/protocols/conversation.py": ("HAI", "AG-UI", "CopilotKit"),
    "api/protocols/agent_api.py": ("Agent API",),
    "api/protocols/aui_session.py": ("AUI",),
    "api/rest/people/pendings.py": ("REST",),
    "api/rest/people/inbox.py": ("REST, several",),
    "api/mcp/runs.py": ("MCP", "A2A"),
    "api/rest/people/links.py": ("test_links.py",),
    "api/rest/inbound/chat.py": ("test_chat.py",),
}


def test_every_place_that_takes_answers_is_in_the_table() -> None:
    root = Path(hai_flow.__file__).parent
    takes = re.compile(r"\bawait decide\(|\bConversation\(access|\bConversation\(self")
    found = {str(path.relative_to(root)) for path in (root / "api").rglob("*.py") if takes.search(path.read_text())}
    assert found == DOORS.keys()
    assert {each for names in DOORS.values() for each in names if not each.endswith(".py")} <= EVERYWHERE.keys()


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    for text in WORKFLOWS.values():
        assert httpx2.post(f"{server.url}/v1/workflows", content=text, headers=YAML).status_code in (200, 201)


async def ask(http: httpx2.Client, kind: str) -> Asked:
    """A run that waits for an answer of this kind: its question as REST shows it."""
    thread = unique("t")
    run = http.post("/v1/runs", json={"workflow": f"forms_{kind}", "thread_id": thread}).json()

    def question() -> Asked:
        return next(iter(http.get("/v1/pendings", params={"run_id": run["id"]}).json()["items"]), {})

    return {**await until(question), "thread_id": thread, "workflow": f"forms_{kind}"}


async def output(http: httpx2.Client, asked: Asked) -> Any:
    """The output of the run when it has ended."""

    def ended() -> dict[str, Any]:
        run = http.get(f"/v1/runs/{asked['run_id']}").json()
        return run if run["status"] in ("finished", "failed", "stopped") else {}

    run = await until(ended)
    assert run["status"] == "finished", run
    return run["output"]


def refused(http: httpx2.Client, asked: Asked, response: httpx2.Response, form: str = "") -> str:
    """The detail of a refusal, after which the question is open and nothing was performed."""
    assert response.status_code == 422, (form, response.text)
    again = http.get(f"/v1/pendings/{asked['id']}").json()
    assert again["status"] == "open", form
    assert http.get(f"/v1/runs/{asked['run_id']}").json()["status"] == "waiting"
    return response.json()["detail"]


# --- a gate whose sum may be lowered ----------------------------------------------------------------------------------

TAKEN: Final = {
    "edits": ({"edits": {"amount": 90}}, 90),
    "edits by pointer": ({"edits": {"/amount": 90}}, 90),
    "a reason": ({"reason": "seen"}, 180),
    "nothing more": ({}, 180),
    "nulls": ({"edits": None, "reason": None, "digest": None}, 180),
}


@pytest.mark.parametrize(("protocol", "form"), sample(itertools.product(EVERYWHERE, TAKEN), 14))
async def test_an_approval_pays_the_sum_that_its_answer_names(http: httpx2.Client, protocol: str, form: str) -> None:
    more, paid = TAKEN[form]
    if form == "nulls" and protocol.startswith("REST"):
        more = {"reason": None, "digest": None}
    asked = await ask(http, "gate")
    expect(EVERYWHERE[protocol](http, asked, {"decision": "approve", **more}), 200)
    assert await output(http, asked) == paid


@pytest.mark.parametrize("amount", [90, 180])
@in_dialects
async def test_edited_args_are_all_arguments_as_they_are_to_be(http: httpx2.Client, protocol: str, amount: int) -> None:
    asked = await ask(http, "gate")
    edited = {"order": "A-1", "amount": amount}
    expect(DIALECTS[protocol](http, asked, {"decision": "approve", "editedArgs": edited}), 200)
    assert await output(http, asked) == amount


@pytest.mark.parametrize("protocol", sorted(EVERYWHERE.keys() - DIALECTS.keys()))
async def test_edited_args_are_refused_where_edits_are_the_word(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    answer = {"decision": "approve", "editedArgs": {"order": "A-1", "amount": 90}}
    assert "editedArgs" in refused(http, asked, EVERYWHERE[protocol](http, asked, answer))


@everywhere
async def test_an_approval_with_the_digest_of_the_question_counts(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    answer = {"decision": "approve", "digest": asked["digest"], "edits": {"amount": 90}}
    assert EVERYWHERE[protocol](http, asked, answer).status_code == 200
    assert await output(http, asked) == 90


REFUSED: Final = {
    "a stale digest": {"digest": ZEROS},
    "an empty digest": {"digest": ""},
    "a misspelt edit": {"edit": {"amount": 90}},
    "another misspelling": {"edited_args": {"order": "A-1", "amount": 90}},
    "an unknown member": {"amount": 90},
    "edits of what is fixed": {"edits": {"order": "B-2"}},
    "edits of what is not there": {"edits": {"sum": 90}},
    "edits of another type": {"edits": {"amount": "90"}},
    "edits of what is fixed, by pointer": {"edits": {"amount": 90, "/order": "B-2"}},
    "edits twice, by name and by pointer": {"edits": {"amount": 90, "/amount": 70}},
    "edits in capitals": {"Edits": {"amount": 90}},
    "a digest that is no text": {"digest": [ZEROS]},
    "edits as a list": {"edits": [90]},
    "values without a form": {"values": {"amount": 90}},
    "edited arguments in part": {"editedArgs": {"amount": 90}},
    "edited arguments as a list": {"editedArgs": [90]},
    "edits and edited arguments": {"edits": {"amount": 90}, "editedArgs": {"order": "A-1", "amount": 90}},
}


@everywhere
async def test_an_approval_that_would_lose_a_part_is_refused(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    for form, parts in REFUSED.items():
        refused(http, asked, EVERYWHERE[protocol](http, asked, {"decision": "approve", **parts}), form)


@pytest.mark.parametrize("path", ["/awp", "/ag-ui"])
async def test_an_answer_that_names_its_edits_twice_is_refused(http: httpx2.Client, path: str) -> None:
    asked = await ask(http, "gate")
    content = '{"decision": "approve", "edits": {"amount": 90}, "edits": {}}'
    message = {"id": unique("m"), "role": "tool", "toolCallId": asked["id"], "content": content}
    refused(http, asked, http.post(path, json=_turn(asked, messages=[message])))


@everywhere
async def test_a_rejection_with_edits_is_refused(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    answer = {"decision": "reject", "edits": {"amount": 90}}
    assert "part of an approval" in refused(http, asked, EVERYWHERE[protocol](http, asked, answer))


BESIDE: Final[dict[str, Post]] = {
    "HAI": lambda http, asked, parts: http.post(
        "/awp", json=_turn(asked, messages=[_tool_message(asked, {"approved": True}, **parts)])
    ),
    "AG-UI's ToolMessage": lambda http, asked, parts: http.post(
        "/ag-ui", json=_turn(asked, messages=[_tool_message(asked, {"approved": True}, **parts)])
    ),
    "AG-UI": lambda http, asked, parts: http.post(
        "/ag-ui", json=_turn(asked, resume=_resume(asked, {"approved": True}, **parts))
    ),
    "Agent API": lambda http, asked, parts: _process(
        http, asked, "mcp_approval_response", {"approval_request_id": asked["id"], "approve": True}, **parts
    ),
    "Agent API's content": lambda http, asked, parts: http.post(
        "/process",
        json={
            "session_id": asked["thread_id"],
            "input": [
                {
                    "id": unique("m"),
                    "type": "mcp_approval_response",
                    "content": [
                        {"type": "data", "data": {"approval_request_id": asked["id"], "approve": True}, **parts}
                    ],
                }
            ],
        },
    ),
    "Agent API's output": lambda http, asked, parts: _process(
        http, asked, "function_call_output", {"call_id": asked["id"], "output": '{"approved":true}', **parts}
    ),
    "Agent API's request": lambda http, asked, parts: http.post(
        "/process", json={"session_id": asked["thread_id"], "input": [_approval_of(asked)], **parts}
    ),
    "HAI's body": lambda http, asked, parts: http.post(
        "/awp", json=_turn(asked, messages=[_tool_message(asked, {"approved": True})], **parts)
    ),
    "HAI's forwardedProps": lambda http, asked, parts: http.post(
        "/awp", json=_turn(asked, messages=[_tool_message(asked, {"approved": True})], forwardedProps=parts)
    ),
    "AG-UI's body": lambda http, asked, parts: http.post(
        "/ag-ui", json=_turn(asked, resume=_resume(asked, {"approved": True}), **parts)
    ),
    "AG-UI's forwardedProps": lambda http, asked, parts: http.post(
        "/ag-ui", json=_turn(asked, resume=_resume(asked, {"approved": True}), forwardedProps=parts)
    ),
    "AG-UI's command": lambda http, asked, parts: http.post(
        "/ag-ui", json=_turn(asked, forwardedProps={"command": {**_command(asked), **parts}})
    ),
    "beside AG-UI's command": lambda http, asked, parts: http.post(
        "/ag-ui", json=_turn(asked, forwardedProps={"command": _command(asked), **parts})
    ),
    "A2A's metadata": lambda http, asked, parts: _a2a(http, asked, APPROVE, metadata=parts),
    "A2A's message": lambda http, asked, parts: _a2a(http, asked, APPROVE, **parts),
    "A2A's parameters": lambda http, asked, parts: _a2a(http, asked, APPROVE, beside=parts),
    "A2A's metadata of a request": lambda http, asked, parts: _a2a(http, asked, APPROVE, beside={"metadata": parts}),
}
APPROVE: Final = {"decision": "approve"}


def _approval_of(asked: Asked, *more: Any, **data: Any) -> dict[str, Any]:
    """A message of the Agent API that approves."""
    content = {"type": "data", "data": {"approval_request_id": asked["id"], "approve": True, **data}}
    return {"id": unique("m"), "type": "mcp_approval_response", "content": [content, *more]}


def _command(asked: Asked) -> dict[str, Any]:
    return {"resume": {"approved": True}, "interruptEvent": {"id": asked["id"]}}


@pytest.mark.parametrize("protocol", BESIDE)
async def test_parts_of_an_answer_beside_its_content_refuse_it(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    edited = {"order": "A-1", "amount": 90}
    parts: dict[str, Any] = {**EDITS, "Edit": {"amount": 90}, "editedArgs": '{"amount": 90}', "edited_args": edited}
    if not any(each in protocol for each in ("forwardedProps", "metadata", "beside")):  # the application's own objects
        parts["Digest"] = ZEROS
    for name, value in parts.items():
        detail = refused(http, asked, BESIDE[protocol](http, asked, {name: value}))
        assert name.replace("_", "").lower() in detail.replace("_", "").lower(), detail


async def test_data_of_the_agent_api_that_is_no_object_refuses_its_message(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    for data in ('{"edits": {"amount": 90}}', [{"edits": {"amount": 90}}], 90):
        content = [{"type": "data", "data": {"approval_request_id": asked["id"], "approve": True}}, {"data": data}]
        message = {"id": unique("m"), "type": "mcp_approval_response", "content": content}
        refused(http, asked, http.post("/process", json={"session_id": asked["thread_id"], "input": [message]}))


@pytest.mark.parametrize(
    "parts",
    [
        {"edits": {"amount": 90}},
        {"digest": ZEROS},
        {"reason": "only 90"},
        {"payload": {"action": "reject"}},
        {"payload": {"interrupt_id": "call_other"}},
        {"payload": {"session_id": "other"}},
        {"editedArguments": {"amount": 90}},
        {"Edited_amount": 90},
        {"Digest": ZEROS},
        {"data": {"edits": {"amount": 90}}},
        {"label": "reject"},
    ],
    ids=str,
)
async def test_an_answer_on_auis_socket_that_would_lose_a_part_is_refused(
    http: httpx2.Client, server: ServerProcess, parts: dict[str, Any]
) -> None:
    asked = await ask(http, "gate")
    client = AuiClient(server.url, asked["workflow"], session_id=asked["thread_id"])
    client.until("aui_interrupt")
    client.send(**{"type": "input", "action": "approve", "interrupt_id": asked["id"], **parts})
    assert client.until("aui_action_ack")["status"] == "refused"
    assert http.get(f"/v1/pendings/{asked['id']}").json()["status"] == "open"


A2A_PARTS: Final[dict[str, Callable[[str], tuple[list[Any], dict[str, Any]]]]] = {
    "edits in a second part": lambda id: ([{"data": {"hai.pending": {"id": id, **APPROVE}}}, {"data": EDITS}], {}),
    "edits beside the question": lambda id: ([{"data": {"hai.pending": {"id": id, **APPROVE}, **EDITS}}], {}),
    "two answers": lambda id: (
        [{"data": {"hai.pending": {"id": id, **APPROVE}}}, {"data": {"hai.pending": {"id": id, "decision": "reject"}}}],
        {},
    ),
    "edits twice": lambda id: ([{"data": {**APPROVE, **EDITS}}, {"data": {"edits": {}}}], {}),
    "data beside a text": lambda id: ([{"text": "approve", "data": EDITS}], {}),
    "edits beside the parts": lambda id: ([{"text": "approve"}], EDITS),
    "edits beside data": lambda id: ([{"data": APPROVE, **EDITS}], {}),
    "an unknown member": lambda id: ([{"data": {**APPROVE, "edit": {"amount": 90}}}], {}),
    "a stale digest": lambda id: ([{"data": {**APPROVE, "digest": ZEROS}}], {}),
}


async def test_an_answer_over_a2a_that_would_lose_a_part_is_refused(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    for form, answer in A2A_PARTS.items():
        parts, beside = answer(asked["id"])
        message = {"messageId": unique("m"), "role": "ROLE_USER", "taskId": asked["run_id"], "parts": parts, **beside}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        answered = http.post("/a2a", json=body, headers={"A2A-Version": "1.0"}).json()
        assert answered["error"]["code"] == -32602, (form, answered)
        assert http.get(f"/v1/pendings/{asked['id']}").json()["status"] == "open", form


@pytest.mark.parametrize("protocol", ["HAI", "AG-UI's ToolMessage", "Agent API's output"])
async def test_a_stale_digest_beside_the_content_refuses_the_answer(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    assert "digest" in refused(http, asked, BESIDE[protocol](http, asked, {"digest": ZEROS}))


@pytest.mark.parametrize("arguments", ['{"order":"A-1","amount":90}', {"order": "A-1", "amount": 90}])
async def test_arguments_in_an_approval_response_are_edited_arguments(http: httpx2.Client, arguments: Any) -> None:
    asked = await ask(http, "gate")
    data = {"approval_request_id": asked["id"], "approve": True, "arguments": arguments}
    assert _process(http, asked, "mcp_approval_response", data).status_code == 200
    assert await output(http, asked) == 90


async def test_an_approval_response_that_is_not_read_whole_is_refused(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    forms: dict[str, dict[str, Any]] = {
        "broken arguments": {"approve": True, "arguments": '{"order":"A-1","amount":90'},
        "arguments and edits": {"approve": True, "arguments": "{}", "edits": {"amount": 90}},
        "a contradiction": {"approve": True, "decision": "reject"},
        "no decision": {"reason": "no word of yes or no"},
        "an echo of the request": {"approve": True, "name": "shop.refund"},
        "neither true nor false": {"approve": "true"},
        "a number": {"approve": 1},
    }
    for form, data in forms.items():
        response = _process(http, asked, "mcp_approval_response", {"approval_request_id": asked["id"], **data})
        refused(http, asked, response, form)


@everywhere
async def test_a_form_asks_for_a_file_and_takes_the_id_of_an_upload_alone(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "file")
    values = {"decision": "approve", "values": {"photo": "photo.png"}}
    assert "does not fit" in refused(http, asked, EVERYWHERE[protocol](http, asked, values))
    headers = {"Content-Type": "image/png"}
    file = http.post("/v1/files?name=photo.png", content=protocol.encode(), headers=headers).json()["id"]
    expect(EVERYWHERE[protocol](http, asked, {"decision": "approve", "values": {"photo": file}}), 200)
    assert await output(http, asked) == file


OWN: Final = {"edit": False, "edits": {}, "Edits": "{}", "editedArgs": "", "edited_args": [90]}
"""Properties of an application that are no edits."""


@pytest.mark.parametrize("protocol", [each for each in BESIDE if each.endswith(("forwardedProps", "'s metadata"))])
async def test_an_application_s_own_properties_refuse_no_answer(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "gate")
    expect(BESIDE[protocol](http, asked, OWN), 200)
    assert await output(http, asked) == 180


@pytest.mark.parametrize("path", ["/awp", "/ag-ui", "/cpk/agent/forms_tool/run"])
async def test_edits_of_an_application_refuse_no_result_of_its_tool(http: httpx2.Client, path: str) -> None:
    asked = await ask(http, "tool")
    message = {"id": unique("m"), "role": "tool", "toolCallId": asked["id"], "content": "7"}
    body = _turn(asked, messages=[message], forwardedProps={"edits": {"amount": 90}})
    assert http.post(path, json=body).status_code == 200
    assert await output(http, asked) == 7


@pytest.mark.parametrize("place", ["A2A's metadata", "A2A's metadata of a request"])
async def test_edits_of_an_application_refuse_no_result_over_a2a(http: httpx2.Client, place: str) -> None:
    asked = await ask(http, "tool")
    answer, own = {"hai.pending": {"id": asked["id"], "result": 7}}, {"metadata": {"edits": {"amount": 90}}}
    beside = {"beside": own} if place.endswith("request") else own
    assert _a2a(http, asked, answer, **beside).status_code == 200
    assert await output(http, asked) == 7


@pytest.mark.parametrize(
    ("content", "beside"),
    [({"approved": True, "edits": {"order": "B-2"}}, {}), ({"approved": True}, EDITS), ({}, {})],
    ids=["unfit edits", "edits beside", "nothing"],
)
async def test_a_refused_message_in_the_history_does_not_refuse_resume(
    http: httpx2.Client, content: Any, beside: Any
) -> None:
    asked = await ask(http, "gate")
    messages = [_tool_message(asked, content, **beside)]
    refused(http, asked, http.post("/ag-ui", json=_turn(asked, messages=messages)))
    body = _turn(asked, messages=messages, resume=_resume(asked, {"approved": True, "edits": {"amount": 90}}))
    assert http.post("/ag-ui", json=body).status_code == 200
    assert await output(http, asked) == 90


async def test_two_answers_to_a_question_in_one_post_refuse_it(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    edited = {"approved": True, "edits": {"amount": 90}}
    body = _turn(asked, resume=_resume(asked, {"approved": True}), messages=[_tool_message(asked, edited)])
    assert "answered twice" in refused(http, asked, http.post("/ag-ui", json=body))


async def test_a_text_beside_the_data_of_an_approval_refuses_it(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    message = _approval_of(asked, {"type": "text", "text": "but only 90"})
    body = {"session_id": asked["thread_id"], "input": [message]}
    assert "text" in refused(http, asked, http.post("/process", json=body))


@pytest.mark.parametrize("type", ["function_call_output", "plugin_call_output"])
async def test_a_text_beside_a_result_of_the_agent_api_is_its_own(http: httpx2.Client, type: str) -> None:
    text = {"type": "text", "text": "picked"}
    for kind, value in (("tool", 7), ("gate", {"approved": True})):
        asked = await ask(http, kind)
        data = {"type": "data", "data": {"call_id": asked["id"], "output": json.dumps(value)}}
        message = {"id": unique("m"), "type": type, "content": [text, data]}
        response = http.post("/process", json={"session_id": asked["thread_id"], "input": [message]})
        if kind == "gate":
            assert "text" in refused(http, asked, response)
        else:
            assert await output(http, asked) == 7, response.text


async def test_a_payload_that_contradicts_its_action_is_refused(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    refused(http, asked, _aui(http, asked, "approve", {"decision": "reject"}))


@pytest.mark.parametrize(
    ("action", "payload"),
    [("approve", {}), (None, EDITS), ("send", {"digest": ZEROS})],
    ids=["action", "edits", "digest"],
)
async def test_an_answer_beside_a_message_of_aui_refuses_both(http: httpx2.Client, action: Any, payload: Any) -> None:
    asked = await ask(http, "gate")
    body = {"session_id": asked["thread_id"], "action": action, "payload": {"message": "fine", **payload}}
    assert "interrupt_id" in refused(http, asked, http.post("/api/aui/input", json=body))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [("ask", {"message": "fine", "amount": 7}), ("ask", {"text": "fine"}), ("tool", {"message": "fine", "result": 7})],
    ids=["field", "action", "result"],
)
async def test_a_form_of_aui_is_not_lost_beside_a_message(http: httpx2.Client, kind: str, payload: Any) -> None:
    asked = await ask(http, kind)
    action = "answer" if kind == "tool" else "submit"
    body = {"session_id": asked["thread_id"], "action": action, "payload": payload}
    assert "interrupt_id" in refused(http, asked, http.post("/api/aui/input", json=body))


@pytest.mark.parametrize("name", ["message", "text"])
async def test_a_field_of_an_open_form_of_aui_is_no_message(http: httpx2.Client, name: str) -> None:
    asked = await ask(http, "words")
    fields = {"action": "submit", "payload": {name: "fine", "amount": 7}}
    expect(http.post("/api/aui/input", json={"session_id": asked["thread_id"], **fields}), 200)
    assert await output(http, asked) == {name: "fine", "amount": 7}


@pytest.mark.parametrize("kind", ["gate", "ask"])
async def test_a_member_of_a_frame_of_aui_that_is_no_part_of_it_is_taken(
    http: httpx2.Client, server: ServerProcess, kind: str
) -> None:
    asked = await ask(http, kind)
    own = {"component_id": "c1", "source": "card", "client_ts": 5, **({"client": {"v": 1}} if kind == "ask" else {})}
    answer = {"action": "approve"} if kind == "gate" else {"payload": {"amount": 7}}
    client = AuiClient(server.url, asked["workflow"], session_id=asked["thread_id"])
    client.until("aui_interrupt")
    client.send(type="input", **own, **answer)
    assert client.until("aui_action_ack")["status"] == "accepted"
    assert await output(http, asked) == (180 if kind == "gate" else 7)


async def test_a_cancelled_interrupt_with_edits_is_refused(http: httpx2.Client) -> None:
    asked = await ask(http, "gate")
    entry = {"interruptId": asked["id"], "status": "cancelled", "payload": {"edits": {"amount": 90}}}
    refused(http, asked, http.post("/ag-ui", json=_turn(asked, resume=[entry])))


# --- forms and tools --------------------------------------------------------------------------------------------------


@everywhere
async def test_an_approval_fills_in_its_form(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "approve")
    answer = {"decision": "approve", "values": {"amount": 7}, "digest": asked["digest"]}
    assert EVERYWHERE[protocol](http, asked, answer).status_code == 200
    assert await output(http, asked) == 7


FORMS: Final = {name: post for name, post in EVERYWHERE.items() if name != "Agent API"}


def _output(http: httpx2.Client, asked: Asked, answer: Any) -> httpx2.Response:
    data = {"call_id": asked["id"], "output": answer if isinstance(answer, str) else json.dumps(answer)}
    return _process(http, asked, "function_call_output", data)


FORMS["Agent API"] = _output


@pytest.mark.parametrize("protocol", FORMS)
async def test_a_form_is_filled_in_with_its_digest(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "ask")
    answer = {"values": {"amount": 7}, "digest": asked["digest"]}
    assert FORMS[protocol](http, asked, answer).status_code == 200
    assert await output(http, asked) == 7


@pytest.mark.parametrize("protocol", FORMS)
async def test_a_form_that_would_lose_a_part_is_refused(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "ask")
    answers: dict[str, dict[str, Any]] = {
        "a stale digest": {"values": {"amount": 7}, "digest": ZEROS},
        "edits": {"values": {"amount": 7}, "edits": {"amount": 8}},
        "values twice": {"values": {"amount": 7}, "amount": 8},
        "a stale digest beside the fields": {"amount": 7, "digest": ZEROS},
        "cancelled": {"status": "cancelled"},
    }
    for form, answer in answers.items():
        refused(http, asked, FORMS[protocol](http, asked, answer), form)


async def test_an_elicited_form_with_parts_beside_its_content_is_asked_again(http: httpx2.Client) -> None:
    caller = Caller(http, WITH_FORMS)
    asked = caller.call("forms_ask")
    (name,) = asked["inputRequests"]
    for beside in ({"digest": ZEROS}, {"values": {"amount": 8}}, {"edits": {"amount": 8}}):
        answers = {name: {**accept(amount=7), **beside}}
        again = caller.call("forms_ask", state=asked["requestState"], answers=answers)
        assert next(iter(beside)) in json.dumps(again["inputRequests"]), again
    caller.call("forms_ask", state=asked["requestState"], answers={name: accept(amount=7)})


@pytest.mark.parametrize("protocol", ["REST", "AUI"])
async def test_a_result_that_would_lose_a_part_is_refused(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "tool")
    parts = {"digest": ZEROS, "edits": {"amount": 90}, "values": {"amount": 90}, "decision": "approve"}
    for name, value in parts.items():
        body = {"result": 7, name: value}
        response = rest(http, asked, body) if protocol == "REST" else _aui(http, asked, None, body)
        refused(http, asked, response, name)


@pytest.mark.parametrize("protocol", ["REST", "AUI"])
async def test_a_result_with_the_digest_of_its_call_counts(http: httpx2.Client, protocol: str) -> None:
    asked = await ask(http, "tool")
    body = {"result": 7, "digest": asked["digest"]}
    assert (rest(http, asked, body) if protocol == "REST" else _aui(http, asked, None, body)).status_code == 200
    assert await output(http, asked) == 7


@pytest.mark.parametrize("protocol", EVERYWHERE)
async def test_a_result_with_an_id_of_64_bits_is_taken_and_no_digit_is_lost(http: httpx2.Client, protocol: str) -> None:
    asked, big = await ask(http, "ids"), {"id": 1234567890123456789}
    match protocol:
        case "REST" | "REST, several" | "A2A" | "MCP":
            response = EVERYWHERE[protocol](http, asked, {"result": big})
        case "AUI":
            response = _aui(http, asked, None, {"result": big})
        case "Agent API":
            response = _process(http, asked, "function_call_output", {"call_id": asked["id"], "output": big})
        case _:
            response = DIALECTS[protocol](http, asked, big)
    assert response.status_code == 200, response.text
    assert await output(http, asked) == "1234567890123456789"


@pytest.mark.parametrize("path", ["/awp", "/ag-ui", "/cpk/agent/forms_any/run"])
async def test_a_result_in_a_message_is_taken_whatever_its_content_is(http: httpx2.Client, path: str) -> None:
    big = 1234567890123456789
    contents: list[tuple[Any, Any]] = [
        *((each, each) for each in ({"id": 1}, 5, True, ["a", None])),
        ("\ud800", "\ufffd"),
        ("a\0b", "a\ufffdb"),
        ({"id": big}, {"id": str(big)}),
        ([{"type": "text", "text": "\0"}], "\ufffd"),
    ]
    for content, kept in contents:
        asked = await ask(http, "any")
        message = {"id": unique("m"), "role": "tool", "toolCallId": asked["id"], "content": content}
        body = json.dumps(_turn(asked, messages=[message]))
        expect(http.post(path, content=body, headers={"Content-Type": "application/json"}), 200)
        assert await output(http, asked) == kept


async def test_big_integers_are_taken_in_results_alone(http: httpx2.Client) -> None:
    asked = await ask(http, "ask")
    response = rest(http, asked, {"values": {"amount": 1234567890123456789}})
    assert (response.status_code, response.json()["code"]) == (422, "body.invalid")
