"""Every way in by which a question can be answered, with the same answer over each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from hai_flow_client import Client, HaiFlowError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.attacks.house import House
from tests.support import commands
from tests.support.hai_client import unique


@dataclass(frozen=True)
class Answer:
    """What an attacker sends: as `headers`, to the question `id` of the thread; `more` stands beside the decision."""

    headers: dict[str, str]
    thread: str
    id: str
    workflow: str = "vault"
    decision: str = "approve"
    more: dict[str, Any] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    history: tuple[dict[str, Any], ...] = ()  # what was said before, as the attacker has it

    @property
    def body(self) -> dict[str, Any]:
        return {"decision": self.decision, **self.more}

    @property
    def key(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")


Outcome: TypeAlias = tuple[int, str]
"""The status and the code that the attacker is told; 0 for a status: it was told in a way without one."""
Door: TypeAlias = Callable[[House, Answer], Outcome]


def hai(house: House, answer: Answer) -> Outcome:
    return _post(house, "/awp", answer, _turn(answer) if answer.history else _turn(answer, _told(answer)))


def agui(house: House, answer: Answer) -> Outcome:
    return _post(house, "/ag-ui", answer, {**_turn(answer), **_resume(answer)})


def copilotkit(house: House, answer: Answer) -> Outcome:
    """A refusal behind another answer is told in the stream, behind a snapshot: it counts as the 409 that it is."""
    body = {**_turn(answer), **_resume(answer)}
    response = house.api.post(
        f"/cpk/agent/{answer.workflow}/run", json=body, headers=answer.headers, params=answer.query or None
    )
    last = response.text.rstrip().rpartition("data:")[2] if response.status_code == 200 else ""
    if '"type":"RUN_ERROR"' in last and '"code":"pending_decided"' in last:
        return 409, "pending_decided"
    return response.status_code, _code(response.content) if response.status_code >= 400 else ""


def aui(house: House, answer: Answer) -> Outcome:
    return _post(house, "/api/aui/input", answer, {"session_id": answer.thread, **_input(answer)})


def aui_socket(house: House, answer: Answer) -> Outcome:
    address = f"{house.url.replace('http', 'ws', 1)}/api/aui/ws/interactive?{urlencode(answer.query)}"
    try:
        with connect(address, additional_headers=answer.headers, proxy=None, open_timeout=10) as socket:
            socket.send(json.dumps({"type": "params", "data": {"session_id": answer.thread}}))
            socket.send(json.dumps({"type": "input", **_input(answer)}))
            while True:
                event = json.loads(socket.recv(timeout=20))
                if event["type"] in ("aui_action_ack", "aui_error"):
                    return 200 if event.get("status") == "accepted" else 0, event.get("error_code", "")
    except InvalidStatus as refusal:
        return refusal.response.status_code, _code(bytes(refusal.response.body or b"{}"))
    except ConnectionClosed as closed:
        return 0, str(closed.rcvd.code if closed.rcvd else "")


def agent_api(house: House, answer: Answer) -> Outcome:
    approve = {"approve": True, "reject": False}.get(answer.decision, answer.decision)
    data = {"approval_request_id": answer.id, "approve": approve, **answer.more}
    said = [{"id": unique("m"), "type": "mcp_approval_response", "content": [{"type": "data", "data": data}]}]
    given = [_as_input(each) for each in answer.history] or said
    return _post(house, "/process", answer, {"session_id": answer.thread, "input": given, "stream": False})


def rest(house: House, answer: Answer) -> Outcome:
    return _post(house, f"/v1/pendings/{answer.id}/decide", answer, answer.body)


def client(house: House, answer: Answer) -> Outcome:
    with Client(house.url, key=answer.key) as flow:
        try:
            decided = flow.pendings.decide(answer.id, answer.decision, **_known(answer, "edits", "on_behalf_of"))
        except HaiFlowError as refusal:
            return refusal.status or 0, refusal.code
    return 200, decided.status


def link(house: House, answer: Answer) -> Outcome:
    """The link that was mailed, fetched as `more` says."""
    response = house.api.request(url=answer.query["path"], headers=answer.headers, **answer.more)
    return response.status_code, _code(response.content)


def cli(house: House, answer: Answer) -> Outcome:
    given = _known(answer, "edits", "on_behalf_of")
    options = ["--edits", json.dumps(given["edits"])] if "edits" in given else []
    options += ["--for", given["on_behalf_of"]] if "on_behalf_of" in given else []
    there = {"HAI_FLOW_URL": house.url, "HAI_FLOW_KEY": answer.key}
    ended = commands.run("decide", answer.id, answer.decision, *options, "--json", **there)
    return (0, ended.stderr.strip()) if ended.returncode else (200, ended.stdout)


DOORS: Final[dict[str, Door]] = {
    "HAI": hai,
    "AG-UI": agui,
    "CopilotKit": copilotkit,
    "AUI": aui,
    "AUI's socket": aui_socket,
    "Agent API": agent_api,
    "REST": rest,
    "the client": client,
    "the command line": cli,
    "a mailed link": link,
}
DIALECTS: Final = ("HAI", "AG-UI", "CopilotKit", "AUI", "AUI's socket", "Agent API")
EVERYWHERE: Final = (*DIALECTS, "REST", "the client", "the command line")


def _known(answer: Answer, *names: str) -> dict[str, Any]:
    return {name: answer.more[name] for name in names if name in answer.more}


def _turn(answer: Answer, *messages: dict[str, Any]) -> dict[str, Any]:
    said = [*answer.history, *messages]
    return {"threadId": answer.thread, "runId": unique("r"), "messages": said, "tools": []}


def _told(answer: Answer) -> dict[str, Any]:
    return {"id": unique("m"), "role": "tool", "toolCallId": answer.id, "content": json.dumps(answer.body)}


def _as_input(message: dict[str, Any]) -> dict[str, Any]:
    """A message of a history as the Agent API has it."""
    for call in message.get("toolCalls", ()):
        data = {"id": call["id"], "name": "open", "arguments": "{}"}
        return {"id": message["id"], "type": "mcp_approval_request", "content": [{"type": "data", "data": data}]}
    if message["role"] == "tool":
        data = {"approval_request_id": message["toolCallId"], "approve": True}
        return {"id": message["id"], "type": "mcp_approval_response", "content": [{"type": "data", "data": data}]}
    content = [{"type": "text", "text": message["content"]}]
    return {"id": message["id"], "type": "message", "role": message["role"], "content": content}


def _resume(answer: Answer) -> dict[str, Any]:
    if answer.history:
        return {"protocolVersion": "1.0"}
    entry = {"interruptId": answer.id, "status": "resolved", "payload": answer.body}
    return {"protocolVersion": "1.0", "resume": [entry]}


def _input(answer: Answer) -> dict[str, Any]:
    return {"interrupt_id": answer.id, "action": answer.decision, "payload": answer.more}


def _post(house: House, path: str, answer: Answer, body: dict[str, Any]) -> Outcome:
    response = house.api.post(path, json=body, headers=answer.headers, params=answer.query or None)
    return response.status_code, _code(response.content) if response.status_code >= 400 else ""


def _code(body: bytes) -> str:
    try:
        return json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return ""
