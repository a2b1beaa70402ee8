"""The Agent API's `/process`: responses made of messages made of contents (docs/protocols/agent-api.md).

Only this protocol demands the following:

* Nulls are written. Text grows by contents with `delta: true`, and is repeated as a whole when it is complete.
* A response that waits for an answer ends `incomplete`. Its output holds every open call and question, also those of
  earlier turns: a client that sees this response alone must be able to answer.
* `sequence_number` counts the objects of one HTTP response. All followers of a run share its frames, so a frame carries
  no number: the code that sends the frame puts the number in front (`frame_with_number`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias

from hai_flow import values
from hai_flow.agent_api import ContentBuilder, ContentType, MessageBuilder, MessageType, ResponseBuilder, RunStatus
from hai_flow.engine import events as e
from hai_flow.engine.state.state import MessageState, PendingState, ToolCallState
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Dialect, Frame, error_message
from hai_flow.wire.dialects.questions import CONFIRM, answer_of, as_shown, encode_question_args, renders_as_tool_call
from hai_flow.wire.dialects.transcript import derive_result_id
from hai_flow.wire.dialects.turns import TurnEncoder
from hai_flow.wire.sent_json import dump

Object: TypeAlias = dict[str, Json]


# The outputs of a message (docs/language.md#say-and-emit) for which the protocol has contents; all others are data.
_CONTENTS: Final[dict[str, ContentType]] = {"image": "image", "audio": "audio", "file": "file", "refusal": "refusal"}


class AgentApiEncoder(TurnEncoder):
    """The log as objects of the Agent API, one response for each turn."""

    # --- a turn

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        response = self._response(run_id)
        return [_frame(response.created()), _frame(response.in_progress())]

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        response = self._build_turn(run_id)
        run_status: RunStatus = (
            _STATUSES[status] if status else "incomplete" if self.state.status == "waiting" else "completed"
        )
        return [_frame(response.completed(at=at // 1000, status=run_status, usage=self._usage()), terminal=True)]

    def _usage(self) -> Json:
        """The tokens that the turn used; null if it called no model."""
        spent = list(self.state.turn_spent.values())
        if not spent:
            return None
        input, output = sum(each.input for each in spent), sum(each.output for each in spent)
        return {"input_tokens": input, "output_tokens": output, "total_tokens": input + output}

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        return [
            _frame(
                self._build_turn(self.run_id()).failed(error.code, error_message(error), at=at // 1000), terminal=True
            )
        ]

    def break_off(self, at: int, reason: str, code: str) -> list[Frame]:
        return [_frame(self._response(self.run_id()).failed(code, reason, at=at // 1000), terminal=True)]

    def _response(self, run_id: str) -> ResponseBuilder:
        state, turn = self.state, self.state.turn
        return ResponseBuilder(
            f"response_{run_id}", session_id=state.thread_id, created_at=(turn.at if turn else state.at) // 1000
        )

    def _build_turn(self, run_id: str) -> ResponseBuilder:
        """The response with everything that its turn has shown, in order, and the open questions of earlier turns."""
        response, state = self._response(run_id), self.state
        turn = self._turn()
        contents: list[tuple[int, int, Callable[[], object]]] = []
        for message in state.messages.values():
            if message.turn == turn and message.path is not None:
                contents.append((message.at, message.n, lambda message=message: self._put_message(response, message)))
        for call in state.tool_calls.values():
            if call.turn == turn:
                contents.append((call.at, call.n, lambda call=call: self._put_call(response, call)))
        for pending in sorted(state.questions.values(), key=lambda each: (each.opened.at, each.opened.id)):
            opened = pending.opened
            if opened.turn == turn or pending.status == "open":
                contents.append((opened.at, _AFTER_CALLS, lambda opened=opened: self._put_question(response, opened)))
            if self._is_decided_now(pending):
                answered = (pending.at or 0, -1, lambda pending=pending: self._answer_objects(response, pending))
                contents.append(answered)
        for _, _, put in sorted(contents, key=lambda each: each[:2]):
            put()
        return response

    def _is_decided_now(self, pending: PendingState) -> bool:
        """Whether the question was decided during this turn, or by the answer that opened it."""
        turn = self.state.turn
        return turn is not None and pending.at is not None and pending.at >= turn.at and answer_of(pending) is not None

    def _put_message(self, response: ResponseBuilder, message: MessageState) -> None:
        builder = _message_of(response, message)
        _message_contents(builder, message)
        builder.complete(_derive_ending(message))

    def _put_call(self, response: ResponseBuilder, call: ToolCallState) -> None:
        _call_content(_call_of(response, call), call.id, call.name, call.args)
        if call.result is not None and call.executor != "frontend":
            _one_content(_result_of(response, call), _result(call.id, call.name, call.result, call.error))

    def _put_question(self, response: ResponseBuilder, opened: e.PendingOpened) -> None:
        """Adds a question to the output. A frontend tool's call of this turn stands there already."""
        call = self.state.tool_calls.get(opened.id)
        if opened.kind != "tool":
            self._question_objects(response, opened)
        elif call is not None and call.turn != self._turn():
            self._put_call(response, call)

    def _turn(self) -> int:
        return self.state.turn.n if self.state.turn else 0

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
        contents = _message_contents(builder, message)
        return [*(_frame(content) for content in contents), _frame(builder.complete(_derive_ending(message)))]

    # --- calls and questions

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        return [_frame(_call_of(self._response(""), call).in_progress(), call=call.id)]

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        builder = _call_of(self._response(""), call)
        content = _call_content(builder, call.id, call.name, call.args)
        return [_frame(content, call=call.id), _frame(builder.complete(), call=call.id)]

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        builder = _result_of(self._response(""), call)
        return _frames(_one_content(builder, _result(call.id, call.name, content, error)))

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """Sent even to the client that gave it: the output of a response shows the answers from which it goes on."""
        builder = self._response("").create_message_builder(derive_result_id(call.id), "function_call_output", "tool")
        return _frames(_one_content(builder, _result(call.id, call.name, content, error)))

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return _frames(self._question_objects(self._response(""), opened), call=opened.id)

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
        return _frames(self._answer_objects(self._response(""), pending))

    def _question_objects(self, response: ResponseBuilder, opened: e.PendingOpened) -> list[Object]:
        """A form is shown as a call of `requestInput`. A decision is shown as a call of the tool that the client
        advertised for it, else as a request for approval."""
        id, args = f"msg_{opened.id}", encode_question_args(as_shown(self.profile, opened))
        if self._is_call(opened):
            data = {"call_id": opened.id, "name": CONFIRM[opened.kind], "arguments": args}
            return _one_content(response.create_message_builder(id, "function_call"), data)
        data = {
            "id": opened.id,
            "name": opened.tool or opened.title or opened.kind,
            "arguments": args,
            "server_label": self.state.workflow,
        }
        return _one_content(response.create_message_builder(id, "mcp_approval_request"), data)

    def _answer_objects(self, response: ResponseBuilder, pending: PendingState) -> list[Object]:
        """The answer, from any client: the output of the call, or the response to the request for approval."""
        opened, answer = pending.opened, answer_of(pending)
        assert answer is not None, "only what is decided is told so"
        if opened.kind == "tool" or self._is_call(opened):
            name = (opened.tool or "") if opened.kind == "tool" else CONFIRM[opened.kind]
            builder = response.create_message_builder(derive_result_id(opened.id), "function_call_output", "tool")
            return _one_content(builder, _result(opened.id, name, *answer))
        builder = response.create_message_builder(derive_result_id(opened.id), "mcp_approval_response", "tool")
        approved = pending.status == "approve"
        return _one_content(builder, {"approval_request_id": opened.id, "approve": approved, "reason": pending.reason})

    def _is_call(self, opened: e.PendingOpened) -> bool:
        """Whether the question is shown as a call of `requestInput` or `confirmAction`."""
        return opened.kind == "ask" or renders_as_tool_call(self.profile, opened)

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
    fields = {"layout": message.layout, "blockId": message.block_id, "style": message.style}
    metadata = {name: value for name, value in fields.items() if value is not None}
    return response.create_message_builder(message.id, kind, metadata=metadata)


def _message_contents(builder: MessageBuilder, message: MessageState) -> list[Object]:
    if message.kind in ("text", "thinking"):
        return [builder.create_content_builder("text").set_text(message.content or "").complete()]
    output = values.loads(message.content) if message.content else {}
    return [_structured_content(builder, output).complete()]


def _derive_ending(message: MessageState) -> RunStatus:
    """`incomplete` if the message's attempt failed, or if the stream ends before the message does. Another message or
    stream then has all of it."""
    return "incomplete" if message.aborted or message.open else "completed"


def _structured_content(builder: MessageBuilder, output: Object) -> ContentBuilder:
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


def _call_content(builder: MessageBuilder, id: str, name: str, args: str) -> Object:
    data = {"call_id": id, "name": name, "arguments": args}
    return builder.create_content_builder("data").set_data(data).complete()


def _result_of(response: ResponseBuilder, call: ToolCallState) -> MessageBuilder:
    return response.create_message_builder(derive_result_id(call.id), "plugin_call_output", "tool")


def _result(id: str, name: str, content: str, error: str | None) -> Object:
    return {"call_id": id, "name": name, "output": content, **({} if error is None else {"error": error})}


def _one_content(builder: MessageBuilder, data: Object) -> list[Object]:
    """A message of one content, as objects of the stream: the message begins, the content comes, the message ends."""
    return [builder.in_progress(), builder.create_content_builder("data").set_data(data).complete(), builder.complete()]


def _frames(shown: Sequence[Object], *, call: str | None = None) -> list[Frame]:
    return [_frame(each, call=call) for each in shown]


def _frame(shown: Object, *, call: str | None = None, terminal: bool = False) -> Frame:
    return Frame(shown["object"], dump(shown), call, terminal)


def frame_with_number(frame: Frame, number: int) -> bytes:
    """The JSON of a frame with its place in the response that sends it."""
    return b'{"sequence_number":%d,%b' % (number, frame.data[1:])


def readdress(frame: Frame, run_id: str) -> Frame:
    """`frame` under the response of a follower that attached to another client's turn."""
    document = values.loads(frame.data)
    return (
        frame._replace(data=dump({**document, "id": f"response_{run_id}"}))
        if document["object"] == "response"
        else frame
    )


AGENT_API: Final = Dialect("agent-api", "agent-api-1", AgentApiEncoder, readdress=readdress)
