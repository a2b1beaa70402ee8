"""The Agent API's `/process`: responses made of messages made of contents (docs/protocols/agent-api.md).

Only this protocol demands the following:

* Nulls are written. Text grows by contents with `delta: true`, and is repeated as a whole when it is complete.
* A response that waits for an answer ends `incomplete`. Its output holds every open call and question, also those of
  earlier turns: a client that sees this response alone must be able to answer.
* `sequence_number` counts the objects of one HTTP response. All followers of a run share its frames, so a frame carries
  no number: the code that sends the frame puts the number in front (`numbered`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import ClassVar, Final, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.agent_api import ContentBuilder, ContentType, MessageBuilder, MessageType, ResponseBuilder, RunStatus
from hai_flow.engine import events as e
from hai_flow.engine.events import UserMessage
from hai_flow.engine.patch import pointer_of
from hai_flow.engine.state import MessageState, PendingState, ToolCallState
from hai_flow.errors import Rejected
from hai_flow.values import Json
from hai_flow.wire import posted_json
from hai_flow.wire.dialect import Dialect, Entry, Frame, Posted, Profile, ToolMessage
from hai_flow.wire.errors import error_message
from hai_flow.wire.posted_json import Limits
from hai_flow.wire.questions import CONFIRM, answer_of, as_shown, question_args, shown_as_call
from hai_flow.wire.sent_json import dump
from hai_flow.wire.transcript import result_id
from hai_flow.wire.turns import TurnEncoder

Object: TypeAlias = dict[str, Json]


# --- inward -------------------------------------------------------------------------------------------------------


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An AgentRequest, checked. `stream` False: the client wants the last object alone."""

    posted: Posted
    stream: bool


def read(body: bytes, limits: Limits, fresh: str) -> AgentRequest:
    """The AgentRequest in `body`. Raises `Rejected` (400 not JSON, 413 too large, 422 with every finding).

    `fresh` is text that no other request has. It is the id of the session and of the request if the client gave none,
    and a part of the ids of unnamed messages. A client that wants to repeat its request safely must give the request an
    `id`, or name its session and all of its messages.
    """
    document = posted_json.load(body, limits)
    return _Reader(limits, fresh).read(document, sha256(body).hexdigest())


class _Reader:
    """One pass over a request, collecting every finding."""

    def __init__(self, limits: Limits, fresh: str) -> None:
        self._limits = limits
        self._fresh = fresh
        self._findings: list[dict[str, str]] = []

    def read(self, document: Json, body_sha: str) -> AgentRequest:
        if not isinstance(document, dict):
            raise self._refused("", "expected a JSON object, an AgentRequest")
        messages = self._list(document, "input", self._limits.messages_max)
        users, answers = self._users(messages), self._answers(messages)
        named = all(isinstance(message.get("id"), str) and message["id"] for _, message in messages)
        session = self._id(document, "session_id")
        request = self._id(document, "id") or (body_sha if session and named and messages else self._fresh)
        stream = document.get("stream", True)
        if not isinstance(stream, bool):
            self._find("expected true or false", "stream")
        found = Posted(
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
        return AgentRequest(posted=found, stream=stream is not False)

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

    def _answers(self, messages: list[tuple[int, Object]]) -> tuple[ToolMessage, ...]:
        answers: list[ToolMessage] = []
        for at, message in messages:
            answer = _ANSWERS.get(str(message.get("type")))
            if answer is None:
                continue
            for number, data in self._data(at, message):
                call, content = answer(data)
                if not isinstance(call, str) or not call:
                    self._find("expected the id of the call or the request", "input", at, "content", number, "data")
                else:
                    answers.append(ToolMessage(self._message_id(at, message), call, content))
        return tuple(answers)

    def _data(self, at: int, message: Object) -> list[tuple[int, Object]]:
        content = message.get("content")
        found = [
            (number, part["data"])
            for number, part in enumerate(content if isinstance(content, list) else ())
            if isinstance(part, dict) and isinstance(part.get("data"), dict)
        ]
        if not found:
            self._find("expected a content of type data with what is answered", "input", at, "content")
        return found

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

    def _refused(self, path: str, message: str) -> Rejected:
        self._findings.append({"path": path, "message": message})
        return Rejected(422, "body.invalid", message, findings=self._findings)


def _part(part: Object) -> Object:
    """A content as the part of a message that every dialect knows: text as text, the rest unchanged."""
    return {"type": "text", "text": part.get("text") or ""} if part["type"] == "text" else part


def _output(data: Object) -> tuple[Json, str]:
    output = data.get("output")
    return data.get("call_id"), output if isinstance(output, str) else values.dumps(output).decode()


def _approval(data: Object) -> tuple[Json, str]:
    """Only a true `approve` approves."""
    decision = {"decision": "approve" if data.get("approve") is True else "reject", "reason": data.get("reason")}
    return data.get("approval_request_id"), values.dumps(
        {name: value for name, value in decision.items() if value is not None}
    ).decode()


_ANSWERS: Final[dict[str, Callable[[Object], tuple[Json, str]]]] = {
    "function_call_output": _output,
    "plugin_call_output": _output,
    "mcp_approval_response": _approval,
}


# --- outward ------------------------------------------------------------------------------------------------------

# The outputs of a message (docs/language.md#say-and-emit) for which the protocol has contents; all others are data.
_CONTENTS: Final[dict[str, ContentType]] = {
    "image": "image",
    "audio": "audio",
    "file": "file",
    "refusal": "refusal",
}


class AgentApiEncoder(TurnEncoder):
    """The log as objects of the Agent API, one response for each turn."""

    # --- a turn

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        response = self._response(run_id)
        return [_frame(response.created()), _frame(response.in_progress())]

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        response = self._whole(run_id)
        shown: RunStatus = (
            _STATUSES[status] if status else "incomplete" if self.state.status == "waiting" else "completed"
        )
        return [_frame(response.completed(at=at // 1000, status=shown, usage=self._usage()), terminal=True)]

    def _usage(self) -> Json:
        """The tokens that the turn used; null if it called no model."""
        spent = list(self.state.turn_spent.values())
        if not spent:
            return None
        taken, given = sum(each.input for each in spent), sum(each.output for each in spent)
        return {"input_tokens": taken, "output_tokens": given, "total_tokens": taken + given}

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        return [
            _frame(self._whole(self.run_id()).failed(error.code, error_message(error), at=at // 1000), terminal=True)
        ]

    def broken_off(self, at: int, reason: str, code: str) -> list[Frame]:
        return [_frame(self._response(self.run_id()).failed(code, reason, at=at // 1000), terminal=True)]

    def _response(self, run_id: str) -> ResponseBuilder:
        state, turn = self.state, self.state.turn
        return ResponseBuilder(
            f"response_{run_id}", session_id=state.thread_id, created_at=(turn.at if turn else state.at) // 1000
        )

    def _whole(self, run_id: str) -> ResponseBuilder:
        """The response with everything that its turn has shown, in order, and the open questions of earlier turns."""
        response, state = self._response(run_id), self.state
        turn = self._turn()
        said: list[tuple[int, int, Callable[[], object]]] = []
        for message in state.messages.values():
            if message.turn == turn and message.path is not None:
                said.append((message.at, message.n, lambda message=message: self._put_message(response, message)))
        for call in state.tool_calls.values():
            if call.turn == turn:
                said.append((call.at, call.n, lambda call=call: self._put_call(response, call)))
        for pending in sorted(state.questions.values(), key=lambda each: (each.opened.at, each.opened.id)):
            opened = pending.opened
            if opened.turn == turn or pending.status == "open":
                said.append((opened.at, _AFTER_CALLS, lambda opened=opened: self._put_question(response, opened)))
            if self._decided_now(pending):
                answered = (pending.at or 0, -1, lambda pending=pending: self._answered(response, pending))
                said.append(answered)
        for _, _, put in sorted(said, key=lambda each: each[:2]):
            put()
        return response

    def _decided_now(self, pending: PendingState) -> bool:
        """Whether the question was decided during this turn, or by the answer that opened it."""
        turn = self.state.turn
        return turn is not None and pending.at is not None and pending.at >= turn.at and answer_of(pending) is not None

    def _put_message(self, response: ResponseBuilder, message: MessageState) -> None:
        builder = _message_of(response, message)
        _said(builder, message)
        builder.complete(_ending_of(message))

    def _put_call(self, response: ResponseBuilder, call: ToolCallState) -> None:
        _called(_call_of(response, call), call.id, call.name, call.args)
        if call.result is not None and call.executor != "frontend":
            _shown(_result_of(response, call), _result(call.id, call.name, call.result, call.error))

    def _put_question(self, response: ResponseBuilder, opened: e.PendingOpened) -> None:
        """Adds a question to the output. A frontend tool's call of this turn stands there already."""
        call = self.state.tool_calls.get(opened.id)
        if opened.kind != "tool":
            self._asked(response, opened)
        elif call is not None and call.turn != self._turn():
            self._put_call(response, call)

    def _turn(self) -> int:
        return self.state.turn.n if self.state.turn else 0

    # --- events that the protocol does not show

    def state_snapshot(self, at: int) -> list[Frame]:
        return []

    def state_delta(self, at: int, ops: Sequence[Json]) -> list[Frame]:
        return []

    def messages_snapshot(self, at: int, transcript: Sequence[Entry]) -> list[Frame]:
        return []

    def step_edge(self, at: int, path: str, *, started: bool) -> list[Frame]:
        return []

    # --- messages

    def message_started(self, at: int, message: MessageState) -> list[Frame]:
        return [_frame(_message_of(self._response(""), message).in_progress())]

    def message_content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        if message.kind not in ("text", "thinking"):
            return []  # a structured output comes as a whole
        builder = _message_of(self._response(""), message)
        return [_frame(builder.create_content_builder("text").add_text_delta(content))]

    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        builder = _message_of(self._response(""), message)
        contents = _said(builder, message)
        return [*(_frame(content) for content in contents), _frame(builder.complete(_ending_of(message)))]

    # --- calls and questions

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        return [_frame(_call_of(self._response(""), call).in_progress(), call=call.id)]

    def call_args(self, at: int, call: ToolCallState, delta: str) -> list[Frame]:
        return []  # arguments come as a whole

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        builder = _call_of(self._response(""), call)
        content = _called(builder, call.id, call.name, call.args)
        return [_frame(content, call=call.id), _frame(builder.complete(), call=call.id)]

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        builder = _result_of(self._response(""), call)
        return _frames(_shown(builder, _result(call.id, call.name, content, error)))

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """Sent even to the client that gave it: the output of a response shows the answers from which it goes on."""
        builder = self._response("").create_message_builder(result_id(call.id), "function_call_output", "tool")
        return _frames(_shown(builder, _result(call.id, call.name, content, error)))

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return _frames(self._asked(self._response(""), opened), call=opened.id)

    def open_question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return self.question(at, opened)

    def frontend_tool_asked(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        """Sends the call to a client that attaches: this protocol has no snapshot of messages that would hold it."""
        call = self.state.tool_calls.get(opened.id)
        return [] if call is None else [*self.call_started(at, call), *self.call_ended(at, call)]

    def _pending_opened(self, event: e.PendingOpened) -> list[Frame]:
        return [] if event.kind == "tool" else self.question(event.at, event)  # its call has just been shown

    def _call_awaited(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return []

    def question_decided(self, at: int, pending: PendingState) -> list[Frame]:
        if answer_of(pending) is None:
            return []
        return _frames(self._answered(self._response(""), pending))

    def _asked(self, response: ResponseBuilder, opened: e.PendingOpened) -> list[Object]:
        """A form is shown as a call of `requestInput`. A decision is shown as a call of the tool that the client
        advertised for it, else as a request for approval."""
        id, args = f"msg_{opened.id}", question_args(as_shown(self.profile, opened))
        if self._is_call(opened):
            data = {"call_id": opened.id, "name": CONFIRM[opened.kind], "arguments": args}
            return _shown(response.create_message_builder(id, "function_call"), data)
        data = {
            "id": opened.id,
            "name": opened.tool or opened.title or opened.kind,
            "arguments": args,
            "server_label": self.state.workflow,
        }
        return _shown(response.create_message_builder(id, "mcp_approval_request"), data)

    def _answered(self, response: ResponseBuilder, pending: PendingState) -> list[Object]:
        """The answer, from any client: the output of the call, or the response to the request for approval."""
        opened, answer = pending.opened, answer_of(pending)
        assert answer is not None, "only what is decided is told so"
        if opened.kind == "tool" or self._is_call(opened):
            name = (opened.tool or "") if opened.kind == "tool" else CONFIRM[opened.kind]
            builder = response.create_message_builder(result_id(opened.id), "function_call_output", "tool")
            return _shown(builder, _result(opened.id, name, *answer))
        builder = response.create_message_builder(result_id(opened.id), "mcp_approval_response", "tool")
        approved = pending.status == "approve"
        return _shown(builder, {"approval_request_id": opened.id, "approve": approved, "reason": pending.reason})

    def _is_call(self, opened: e.PendingOpened) -> bool:
        """Whether the question is shown as a call of `requestInput` or `confirmAction`."""
        return opened.kind == "ask" or shown_as_call(self.profile, opened)

    # --- the author's own

    def custom(self, at: int, name: str, value: Json) -> list[Frame]:
        return [_frame({"object": "custom", "status": "completed", "error": None, "name": name, "value": value})]

    def raw(self, at: int, event: Json, source: str | None) -> list[Frame]:
        return [_frame({"object": "raw", "status": "completed", "error": None, "event": event, "source": source})]

    def collaboration(self, at: int, id: str, event: e.CollaborationStarted) -> list[Frame]:
        value = {"from": event.from_, "to": event.to, "task": event.task}
        return self.custom(at, "hai.collaboration", value)

    SHOWN: ClassVar = {**TurnEncoder.SHOWN, e.PendingOpened: _pending_opened}


_AFTER_CALLS: Final = 1 << 60  # stands for the number within the turn, which questions do not have


# The response's status, for each status of the run that the end of the turn alone would not show.
_STATUSES: Final[dict[str, RunStatus]] = {
    "queued": "queued",
    "paused": "incomplete",
    "stopping": "incomplete",
    "needs_attention": "incomplete",
    "stopped": "canceled",
}


def _message_of(response: ResponseBuilder, message: MessageState) -> MessageBuilder:
    kind: MessageType = "reasoning" if message.kind == "thinking" else "message"
    shown = {"layout": message.layout, "blockId": message.block_id, "style": message.style}
    metadata = {name: value for name, value in shown.items() if value is not None}
    return response.create_message_builder(message.id, kind, metadata=metadata)


def _said(builder: MessageBuilder, message: MessageState) -> list[Object]:
    """The contents of a message, complete."""
    if message.kind in ("text", "thinking"):
        return [builder.create_content_builder("text").set_text(message.content or "").complete()]
    output = values.loads(message.content) if message.content else {}
    return [_structured(builder, output).complete()]


def _ending_of(message: MessageState) -> RunStatus:
    """`incomplete` if the message's attempt failed, or if the stream ends before the message does. Another message or
    stream then has all of it."""
    return "incomplete" if message.aborted or message.open else "completed"


def _structured(builder: MessageBuilder, output: Object) -> ContentBuilder:
    """The protocol's content for this type of output; data, if it has none or the fields do not fit it."""
    data = output.get("data")
    kind = _CONTENTS.get(str(output.get("type")))
    if kind is not None and isinstance(data, dict) and all(isinstance(each, str) for each in data.values()):
        with contextlib.suppress(TypeError, ValueError):
            return builder.create_content_builder(kind, 0).set(**data)
    return builder.create_content_builder("data", 0).set_data(output)


def _call_of(response: ResponseBuilder, call: ToolCallState) -> MessageBuilder:
    kind: MessageType = "function_call" if call.executor == "frontend" else "plugin_call"
    return response.create_message_builder(f"msg_{call.id}", kind)


def _called(builder: MessageBuilder, id: str, name: str, args: str) -> Object:
    data = {"call_id": id, "name": name, "arguments": args}
    return builder.create_content_builder("data").set_data(data).complete()


def _result_of(response: ResponseBuilder, call: ToolCallState) -> MessageBuilder:
    return response.create_message_builder(result_id(call.id), "plugin_call_output", "tool")


def _result(id: str, name: str, content: str, error: str | None) -> Object:
    return {"call_id": id, "name": name, "output": content, **({} if error is None else {"error": error})}


def _shown(builder: MessageBuilder, data: Object) -> list[Object]:
    """A message of one content, as objects of the stream: the message begins, the content comes, the message ends."""
    return [
        builder.in_progress(),
        builder.create_content_builder("data").set_data(data).complete(),
        builder.complete(),
    ]


def _frames(shown: Sequence[Object], *, call: str | None = None) -> list[Frame]:
    return [_frame(each, call=call) for each in shown]


def _frame(shown: Object, *, call: str | None = None, terminal: bool = False) -> Frame:
    return Frame(shown["object"], dump(shown), call, terminal)


def numbered(frame: Frame, number: int) -> bytes:
    """The JSON of a frame with its place in the response that sends it."""
    return b'{"sequence_number":%d,%b' % (number, frame.data[1:])


def readdressed(frame: Frame, run_id: str) -> Frame:
    """`frame` under the response of a follower that attached to another client's turn."""
    shown = values.loads(frame.data)
    return frame._replace(data=dump({**shown, "id": f"response_{run_id}"})) if shown["object"] == "response" else frame


AGENT_API: Final = Dialect("agent-api", "agent-api-1", AgentApiEncoder, readdress=readdressed)
