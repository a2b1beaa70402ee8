"""The SSE events dialect (docs/protocols/social.md): one stream for a whole thread.

It borrows AG-UI's names, not its rules; an AG-UI client can't read it. Its own rules:

* No deltas: a message comes once, when it is complete, as one TEXT_MESSAGE_END; arguments come whole, as an object.
* Every event has threadId and runId; an optional field without a value is written as null.
* The stream goes on across turns and runs. So the end of a turn does not end the stream; only the end of a run is
  terminal. A server that closes sends nothing: the reader misses the end, and its EventSource comes back with
  Last-Event-ID.

The protocol's document lacks some fields, which are added here: RUN_FINISHED of a turn that is not the last has a
`status`, and `pendings` while questions to people are open. Each question is also a message with `result_type`
clarification. Answers go over REST or any other dialect. Not sent: thinking, collaboration, custom and raw events, and
the tokens used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.state.state import MessageState, ToolCallState
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import CLOSING, EXPIRED, Dialect, Entry, Frame, Profile, error_message
from hai_flow.wire.dialects.questions import as_shown, encode_question_args
from hai_flow.wire.dialects.transcript import derive_result_id, history
from hai_flow.wire.dialects.turns import TurnEncoder
from hai_flow.wire.sent_json import dump, parse_object, strip_none
from hai_flow.wire.sse import NAMED_SSE

STAGE: Final = "worker"
"""The document knows two stages, `router` and `worker`; this dialect sends only `worker`."""

REPORT: Final = "report"
"""A structured output of this type (`say: {output: {type: report, data: {...}}}`) gives the fields of its message."""

# The fields of TEXT_MESSAGE_END that an output of the type `report` may give, with their defaults.
_REPORT: Final[dict[str, Json]] = {
    "status": "success",
    "answer": "",
    "key_points": [],
    "result_type": "unknown",
    "suggested_actions": [],
    "error": None,
    "ui_schema": {},
}
_WORDS: Final = {
    "status": ("success", "partial_success", "failed"),
    "result_type": ("execution_report", "clarification", "error_report", "unknown"),
}


class SocialEncoder(TurnEncoder):
    """The log as the events of a thread's stream."""

    def encode(self, event: e.Event) -> list[Frame]:
        frames = super().encode(event)
        if isinstance(visible := self.filter_event(event), e.RunStopped):  # also of a run whose turn is over
            return frames or [self._stop_frame(visible.reason)]
        return frames

    def farewell(self, reason: str, code: str = CLOSING) -> list[Frame]:
        """Nothing: the reader comes back and then gets the missing frames. Only a reader whose credential has ended
        gets a frame, because they must sign in before that."""
        return [self._frame("RUN_ERROR", terminal=True, message=reason, code=code)] if code == EXPIRED else []

    def history(self, transcript: Sequence[Entry]) -> dict[str, Json]:
        """The thread so far, for a client that opens it: messages as in MESSAGES_SNAPSHOT, and the open questions. The
        document names `/history` and leaves its shape open."""
        state = self.state
        return {
            "threadId": state.thread_id,
            "runId": self.run_id() if state.seq else None,
            "status": state.status if state.seq else None,
            "messages": history(_SocialWords(), self.profile, state, transcript),
            "pendings": self._open_questions() or [],
        }

    # --- a turn

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        return [self._frame("RUN_STARTED", run_id=run_id)]

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        if status == "stopped":
            # Sent once, by the event that stops the run: the end of a turn is not terminal on this stream.
            return [self._stop_frame(reason)] if self.state.ended else []
        if self.state.ended:
            return [self._frame("RUN_FINISHED", terminal=True, run_id=run_id)]
        fields = strip_none({"status": status or "waiting", "pendings": self._open_questions()})
        return [self._frame("RUN_FINISHED", run_id=run_id, **fields)]

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        return [self._frame("RUN_ERROR", terminal=True, message=error_message(error), code=error.code or None)]

    def _stop_frame(self, reason: str) -> Frame:
        return self._frame("RUN_ERROR", terminal=True, message=reason or "The run was stopped.", code="cancelled")

    def _open_questions(self) -> list[Json] | None:
        """The open questions to people, with the fields that they have at `/v1/pendings`."""
        opened = [each.opened for each in self.state.open_questions]
        return [
            strip_none(
                {
                    "id": each.id,
                    "kind": each.kind,
                    "title": each.heading or None,
                    "tool": each.tool,
                    "options": list(each.options) or None,
                    "form": each.schema,
                    "deadline": each.deadline,
                }
            )
            for each in opened
        ] or None

    def step_edge(self, at: int, path: str, *, started: bool) -> list[Frame]:
        return [self._frame("STEP_STARTED" if started else "STEP_FINISHED", stepName=path)]

    # --- state and snapshots

    def _turn_started(self, event: e.TurnStarted) -> list[Frame]:
        self._steps.clear()  # steps that no end of a turn has closed
        return self.run_started(event.at, self.run_id())

    def state_snapshot(self, at: int) -> list[Frame]:
        return [self._frame("STATE_SNAPSHOT", snapshot=self.state.shown)]

    def state_delta(self, at: int, ops: Sequence[Json]) -> list[Frame]:
        """The whole state: the document has no event for a change."""
        return self.state_snapshot(at)

    def messages_snapshot(self, at: int, transcript: Sequence[Entry]) -> list[Frame]:
        return [
            self._frame("MESSAGES_SNAPSHOT", messages=history(_SocialWords(), self.profile, self.state, transcript))
        ]

    # --- messages

    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        message_fields = report_of(message)
        return [] if message_fields is None else [self._message(message.id, message.role, message_fields)]

    def _message(self, id: str, role: str, said: Mapping[str, Json]) -> Frame:
        return self._frame("TEXT_MESSAGE_END", messageId=id, role=role, stage=STAGE, **said)

    # --- calls and questions

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        return [self._call("TOOL_CALL_START", call)]

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        return [self._call("TOOL_CALL_ARGS", call, args=parse_object(call.args)), self._call("TOOL_CALL_END", call)]

    def _call(self, type: str, call: ToolCallState, **fields: Json) -> Frame:
        return self._frame(
            type, call.id, messageId=call.message_id, toolCallId=call.id, toolCallName=call.name, **fields, stage=STAGE
        )

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        return [
            self._frame(
                "TOOL_CALL_RESULT",
                messageId=derive_result_id(call.id),
                role="tool",
                stage=STAGE,
                tool_name=call.name,
                tool_call_id=call.id,
                tool_call_args=parse_object(call.args),
                status="success" if error is None else "failure",
                result=content,
                error=error,
            )
        ]

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """Sent like any other result: the answer came from another connection than this stream."""
        return self.call_result(at, call, content, error)

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        message_fields = {
            **_REPORT,
            "answer": "\n".join(filter(None, (opened.heading, opened.message))),
            "result_type": "clarification",
            "suggested_actions": list(opened.options),
            "ui_schema": values.loads(encode_question_args(as_shown(self.profile, opened))),
        }
        return [self._message(opened.id, "assistant", message_fields)]

    def _frame(
        self, type: str, call: str | None = None, *, terminal: bool = False, run_id: str | None = None, **fields: Json
    ) -> Frame:
        event = {"type": type, "threadId": self.state.thread_id, "runId": run_id or self.run_id(), **fields}
        return Frame(type, dump(event), call, terminal)

    # A turn begins without its state, unlike in the dialects that patch it.
    SHOWN: ClassVar = {**TurnEncoder.SHOWN, e.TurnStarted: _turn_started}


class _SocialWords:
    """Messages as the history has them: the text in `content`, the other fields of the stream's message beside it."""

    def message(self, message: MessageState) -> dict[str, Json] | None:
        if message.path is None:  # posted
            content, report = message.content, {}
        else:
            report = report_of(message)
            if report is None:
                return None
            content = report["answer"]
        fields = {"id": message.id, "role": message.role, "content": content, "name": message.name}
        return {**strip_none({**fields, "timestamp": message.at, "extra": message.extra}), **report}

    def holder(self, id: str, at: int) -> dict[str, Json]:
        return {"id": id, "role": "assistant", "timestamp": at}


def report_of(message: MessageState) -> dict[str, Json] | None:
    """A message of the run as the fields of TEXT_MESSAGE_END; None if it is not shown."""
    if message.kind == "thinking":
        return None
    if message.kind == "text":
        report = {**_REPORT, "answer": message.content}
    else:
        output = parse_object(message.content)
        if output.get("type") == "thinking":
            return None
        report = {**_REPORT, **_report_fields(message, output)}
    if message.aborted:
        status = "partial_success" if message.content else "failed"
        report |= {"status": status, "result_type": "error_report", "error": "The message was cut off."}
    return report


def _report_fields(message: MessageState, output: dict[str, Json]) -> dict[str, Json]:
    data = output.get("data")
    if output.get("type") == REPORT and isinstance(data, dict):
        return {name: data[name] for name in _REPORT if name in data and _fits(name, data[name])}
    if output.get("type") == "text" and isinstance(output.get("content"), str):
        return {"answer": output["content"]}
    block = {"output": output, "layout": message.layout, "blockId": message.block_id, "style": message.style}
    return {"ui_schema": strip_none(block)}


def _fits(name: str, value: Json) -> bool:
    """Whether the document allows an author's value in that field."""
    if name in _WORDS:
        return value in _WORDS[name]
    if name == "error":
        return value is None or isinstance(value, str | dict)
    return type(value) is type(_REPORT[name])


def profile() -> Profile:
    """The profile of this dialect: it has no options, so streams differ only by their readers."""
    return Profile(dialect=SOCIAL.name)


SOCIAL: Final = Dialect("social", "social-1", SocialEncoder, framing=NAMED_SSE)
