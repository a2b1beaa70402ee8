"""AgentRequest: the body that clients of the Agent API post (docs/protocols/agent-api.md)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.engine.events import UserMessage
from hai_flow.errors import Rejected
from hai_flow.primitives.json_pointers import pointer_of
from hai_flow.values import Json
from hai_flow.wire import posted_json
from hai_flow.wire.dialects.agent_api import AGENT_API
from hai_flow.wire.dialects.dialect import Posted, Profile, ToolMessage, list_misplaced_members
from hai_flow.wire.posted_json import Limits

Object: TypeAlias = dict[str, Json]

_N_MAX: Final = 5  # as the protocol's document has it; a run has one outcome, so `n` changes nothing


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An AgentRequest, checked. `stream` False: the client wants the last object alone."""

    posted: Posted
    stream: bool


def read(body: bytes, limits: Limits, fresh: str) -> AgentRequest:
    """The AgentRequest in `body`. Raises `Rejected` (400 not JSON, 413 too large, 422 with every finding).

    `fresh` is text that no other request has. It is the id of the session and of the request if the client gave none,
    and a part of the ids of unnamed messages. A client that wants to repeat its request safely must give the request an
    `id`, or name its session and all of its messages."""
    document = posted_json.load(body, limits)
    return _RequestReader(limits, fresh).read(document, sha256(body).hexdigest())


class _RequestReader:
    """One pass over a request, collecting every finding."""

    def __init__(self, limits: Limits, fresh: str) -> None:
        self._limits = limits
        self._fresh = fresh
        self._findings: list[dict[str, str]] = []

    def read(self, document: Json, body_sha: str) -> AgentRequest:
        if not isinstance(document, dict):
            raise self._refuse("", "expected a JSON object, an AgentRequest")
        messages = self._list(document, "input", self._limits.messages_max)
        users, answers = self._users(messages), self._answers(messages, list_misplaced_members(document))
        named = all(isinstance(message.get("id"), str) and message["id"] for _, message in messages)
        session = self._id(document, "session_id")
        request = self._id(document, "id") or (body_sha if session and named and messages else self._fresh)
        stream = document.get("stream", True)
        if not isinstance(stream, bool):
            self._find("expected true or false", "stream")
        if (n := document.get("n")) is not None and not (type(n) is int and 1 <= n <= _N_MAX):
            self._find(f"expected a number of answers from 1 to {_N_MAX}", "n")
        posted = Posted(
            thread_id=session or self._fresh,
            wire_run_id=request,
            body_sha=body_sha,
            profile=Profile(dialect=AGENT_API.name, version="1", client_tools=self._tools(document)),
            user_messages=users,
            tool_messages=answers,
            history=tuple((self._message_id(at, message), self._role(message)) for at, message in messages),
            workflow=self._optional(document, "workflow"),
            input={} if document.get("workflow_input") is None else document["workflow_input"],
        )
        if self._findings:
            raise Rejected(422, "body.invalid", self._detail(), findings=self._findings)
        return AgentRequest(posted=posted, stream=stream is not False)

    def _users(self, messages: list[tuple[int, Object]]) -> tuple[UserMessage, ...]:
        users: dict[str, UserMessage] = {}
        for at, message in messages:
            if self._role(message) != "user":
                continue
            id = self._message_id(at, message)
            if id in users:
                self._find("another message has this id already", "input", at, "id")
            users[id] = UserMessage(id, "user", self._content(at, message))
        return tuple(users.values())

    def _answers(self, messages: list[tuple[int, Object]], beside: tuple[str, ...]) -> tuple[ToolMessage, ...]:
        answers: list[ToolMessage] = []
        for at, message in messages:
            answer = _ANSWERS.get(str(message.get("type")))
            if answer is None:
                continue
            for number, part, data in self._data(at, message):
                place = ("input", at, "content", number, "data")
                call = data.get(answer.id)
                if not isinstance(call, str) or not call:
                    self._find("expected the id of the call or the request", *place)
                    continue
                try:
                    content = answer.read(data)
                except ValueError as error:
                    self._find(str(error), *place)
                    continue
                misplaced = (*answer.list_misplaced_parts(message, part, data), *beside)
                id, digest, text = self._message_id(at, message), data.get("digest"), _list_text(message)
                answers.append(ToolMessage(id, call, content, digest=digest, misplaced=misplaced, beside_decision=text))
        return tuple(answers)

    def _data(self, at: int, message: Object) -> list[tuple[int, Object, Object]]:
        content = message.get("content")
        parts: list[tuple[int, Object, Object]] = []
        for number, part in enumerate(content if isinstance(content, list) else ()):
            data = part.get("data") if isinstance(part, dict) else None
            if isinstance(data, dict):
                parts.append((number, part, data))
            elif data is not None:
                self._find("expected an object, what is answered", "input", at, "content", number, "data")
        if not parts:
            self._find("expected a content of type data with what is answered", "input", at, "content")
        return parts

    def _content(self, at: int, message: Object) -> Json:
        """Text as text; anything else as parts, unchanged."""
        content = message.get("content")
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list) or not all(
            isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
        ):
            self._find("expected text or a list of contents, each an object with a type", "input", at, "content")
            return ""
        return [_part(part) for part in content]

    def _role(self, message: Object) -> str:
        if str(message.get("type")) in _ANSWERS:
            return "tool"
        role = message.get("role")
        return role if isinstance(role, str) else "user"

    def _message_id(self, at: int, message: Object) -> str:
        return self._id(message, "id", "input", at) or f"{self._fresh}-{at}"

    def _tools(self, document: Object) -> frozenset[str]:
        names: set[str] = set()
        for at, tool in self._list(document, "tools", self._limits.tools_max):
            function = tool.get("function")
            name = function.get("name") if isinstance(function, dict) else tool.get("name")
            if isinstance(name, str) and 0 < len(name) <= self._limits.id_chars_max:
                names.add(name)
            else:
                self._find("expected the name of a function", "tools", at)
        return frozenset(names)

    def _list(self, document: Object, name: str, most: int) -> list[tuple[int, Object]]:
        items = document.get(name)
        if items is None and name == "tools":
            return []
        if not isinstance(items, list):
            self._find("expected a list", name)
            return []
        if len(items) > most:
            raise Rejected(413, "body.too_large", f"expected at most {most} {name}, found {len(items)}")
        for at, item in enumerate(items):
            if not isinstance(item, dict):
                self._find("expected an object", name, at)
        return [(at, item) for at, item in enumerate(items) if isinstance(item, dict)]

    def _id(self, record: Object, name: str, *at: str | int) -> str:
        """The id, or "" if the client gave none."""
        value = record.get(name)
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or len(value) > self._limits.id_chars_max or not value.isprintable():
            self._find(f"expected text of at most {self._limits.id_chars_max} printable characters", *at, name)
            return ""
        return value

    def _optional(self, record: Object, name: str) -> str | None:
        value = record.get(name)
        if value is None or isinstance(value, str):
            return value
        self._find("expected text", name)
        return None

    def _find(self, message: str, *at: str | int) -> None:
        self._findings.append({"path": pointer_of(*at), "message": message})

    def _detail(self) -> str:
        first, more = self._findings[0], len(self._findings) - 1
        return f"{first['path']}: {first['message']}" + (f" ({more} more)" if more else "")

    def _refuse(self, path: str, message: str) -> Rejected:
        self._findings.append({"path": path, "message": message})
        return Rejected(422, "body.invalid", message, findings=self._findings)


def _part(part: Object) -> Object:
    """A content as the part of a message that every dialect knows: text as text, the rest unchanged."""
    return {"type": "text", "text": part.get("text") or ""} if part["type"] == "text" else part


class _Answer(NamedTuple):
    """A type of message that answers. `id` names the member of its data that holds the id of what is answered, `read`
    gives the answer as the content of a ToolMessage or raises ValueError, and `is_complete` says that it reads every
    member of the data."""

    id: str
    read: Callable[[Object], str]
    is_complete: bool

    def list_misplaced_parts(self, message: Object, part: Object, data: Object) -> tuple[str, ...]:
        """The parts of an answer that stand where they are not read."""
        beside = (*list_misplaced_members(message), *list_misplaced_members(part))
        return beside if self.is_complete else (*beside, *list_misplaced_members(data, "digest"))


def _list_text(message: Object) -> tuple[str, ...]:
    """`text`, if the message has one beside its data. A frontend tool may describe its result so, but what a person
    writes beside a decision may change it."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return ("text",) if any(isinstance(each, dict) and each.get("text") for each in parts) else ()


def _output(data: Object) -> str:
    output = data.get("output")
    return values.to_text(output)


_APPROVAL_ADDRESS: Final = frozenset({"approval_request_id", "id", "type", "approve", "arguments"})


def _approval(data: Object) -> str:
    """A decision with every member of the data, of which the engine refuses those that it does not know. `arguments`,
    the text that the request showed, are all arguments as they are to be. Raises ValueError if there is neither
    `approve` nor `decision`, if `approve` is neither true nor false, or if the two contradict each other."""
    decision = {name: item for name, item in data.items() if name not in _APPROVAL_ADDRESS and item is not None}
    approve = data.get("approve")
    if not isinstance(approve, bool) and (approve is not None or "decision" not in decision):
        raise ValueError(f"expected approve, true or false; found {approve!r:.40}")
    if approve is not None:
        chosen = "approve" if approve else "reject"
        if decision.setdefault("decision", chosen) != chosen:
            raise ValueError(f"approve and decision contradict each other; found {decision['decision']!r:.40}")
    if data.get("arguments") is not None:
        if "edits" in decision or "editedArgs" in decision:
            raise ValueError("expected arguments, edits or editedArgs, found two of them")
        decision["editedArgs"] = _arguments(data["arguments"])
    return values.dumps(decision).decode()


def _arguments(given: Json) -> Json:
    if not isinstance(given, str):
        return given
    try:
        arguments = values.loads(given)
    except values.NotJson as error:
        raise ValueError(f"expected the arguments as JSON: {error}") from None
    if (name := values.find_repeated_key(given)) is not None:
        raise ValueError(f"the key {values.storable(name[:120])!r} stands twice in one object of the arguments")
    return arguments


_ANSWERS: Final[dict[str, _Answer]] = {
    "function_call_output": _Answer("call_id", _output, is_complete=False),
    "plugin_call_output": _Answer("call_id", _output, is_complete=False),
    "mcp_approval_response": _Answer("approval_request_id", _approval, is_complete=True),
}
