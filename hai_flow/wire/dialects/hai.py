"""The HAI dialect (docs/design/protocols.md#hai).

Only this dialect's client demands the following:

* The `delta` of BUSINESS_DATA_CONTENT is a string that holds one JSON document. The client concatenates all deltas of a
  message and splits at `}{`; so no `}{` may stand inside a document (`document`).
* The snapshot of messages is called MESSAGE_SNAPSHOT, and its contents are concatenated deltas too.
* An operation of STATE_DELTA always has a `from`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.state.ids import turn_id
from hai_flow.engine.state.state import MessageState, PendingState, RunState, ToolCallState
from hai_flow.engine.steps.tool_calls import ABORTED
from hai_flow.errors import Rejected
from hai_flow.values import Json
from hai_flow.wire import agent_input
from hai_flow.wire.dialects.dialect import Dialect, Entry, Frame, Posted, Profile, error_message
from hai_flow.wire.dialects.frames import (
    FrameEncoder,
    call_args,
    call_end,
    call_frames,
    call_start,
    custom_frame,
    frame,
)
from hai_flow.wire.dialects.questions import CONFIRM, answer_of, as_shown, encode_question_args, renders_as_tool_call
from hai_flow.wire.dialects.transcript import derive_result_id, history
from hai_flow.wire.posted_json import Limits
from hai_flow.wire.sent_json import dump, strip_none
from hai_flow.wire.sse import MESSAGE_PACK

# --- inward -------------------------------------------------------------------------------------------------------

# `forwardedProps.hai`: the client chooses a spelling of the protocol where the protocol's documents disagree
# (docs/protocols/hai.md). The first is the default.
_OPTIONS: Final = {
    "results": ("server", "all"),
    "snapshot": ("MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT"),
    "text": ("document", "plain"),
}


_OF_THE_SERVER: Final = ("results", "snapshot")


def decode(body: bytes, limits: Limits) -> Posted:
    """The body of a POST to `/awp`. Raises `Rejected` (400 not JSON, 413 too large, 422 with every finding)."""
    posted = agent_input.read(body, limits)
    workflow = posted.forwarded.get("workflow")
    if workflow is not None and not isinstance(workflow, str):
        raise _unknown("/forwardedProps/workflow", "expected the name of a workflow")
    input = posted.forwarded.get("input")
    return Posted(
        thread_id=posted.thread_id,
        wire_run_id=posted.run_id,
        body_sha=posted.body_sha,
        profile=Profile(
            dialect=HAI.name,
            version="1",
            client_tools=posted.client_tools,
            options=_options(posted.forwarded.get("hai")),
        ),
        user_messages=posted.user_messages,
        tool_messages=posted.tool_messages,
        history=posted.history,
        workflow=workflow,
        input={} if input is None else input,
        state=posted.state,
    )


def _options(wishes: Json) -> tuple[tuple[str, str], ...]:
    """The options that the client chose. A default is left out, so that equal streams have equal profiles. An option
    for which the server may set another default is kept if the client names it, because the client's choice wins."""
    if wishes is None:
        return ()
    if not isinstance(wishes, dict):
        raise _unknown("/forwardedProps/hai", "expected an object")
    options: list[tuple[str, str]] = []
    for name, allowed in sorted(_OPTIONS.items()):
        wish = wishes.get(name, allowed[0])
        if wish not in allowed:
            raise _unknown(f"/forwardedProps/hai/{name}", f"expected {' or '.join(allowed)}")
        if wish != allowed[0] or (name in wishes and name in _OF_THE_SERVER):
            options.append((f"hai.{name}", wish))
    return tuple(options)


def _unknown(path: str, message: str) -> Rejected:
    return Rejected(422, "body.invalid", f"{path}: {message}", findings=[{"path": path, "message": message}])


# --- outward: documents -------------------------------------------------------------------------------------------


def document(output: Json, layout: Json = None, block_id: str | None = None, style: Json = None) -> str:
    """The document that one BUSINESS_DATA_CONTENT carries (docs/design/protocols.md#hai-documents).

    The client concatenates all documents and splits them at `}{`. Compact JSON has `}{` only inside strings, and there
    `{` is written `\\u007b`. So the client splits between documents only, and reads the same text."""
    fields = {"output": output, "style": style, "blockId": block_id, "layout": layout or {}}
    return dump(strip_none(fields)).decode().replace("}{", "}\\u007b")


def _thinking(content: str, *, thinking: bool, elapsed: int | None = None) -> Json:
    data = {"content": content, "elapsed": elapsed, "thinking": thinking, "collapse": True}
    return {"type": "thinking", "data": strip_none(data)}


def _delta(message: MessageState, content: str, *, plain: bool, at: int | None = None) -> str:
    """`content`, a part of `message` or all of it, as a delta. `at` is now, if the message is still growing."""
    if message.kind == "text" and plain:
        return content
    if message.kind == "text":
        output = {"type": "text", "content": content}
    elif message.kind == "thinking":
        elapsed = None if at is None else (at - message.at) // 1000
        output = _thinking(content, thinking=at is not None, elapsed=elapsed)
    else:
        output = values.loads(content)
    return document(output, message.layout, message.block_id, message.style)


# --- outward: events ----------------------------------------------------------------------------------------------


class HaiEncoder(FrameEncoder):
    """The log as HAI events, for one profile."""

    def __init__(self, profile: Profile, state: RunState) -> None:
        super().__init__(profile, state)
        self._plain = profile.option("hai.text") == "plain"
        self._snapshot_type = profile.option("hai.snapshot") or "MESSAGE_SNAPSHOT"
        self._all_results = profile.option("hai.results") == "all"

    # --- a turn

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        return [self._lifecycle("RUN_STARTED", at, run_id)]

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        """RUN_FINISHED has no field for the run's output, nor for another reason why the turn ended. An event before it
        carries them."""
        finished = self._lifecycle("RUN_FINISHED", at, run_id, terminal=True)
        if status is not None:
            status_event = {"status": status, "reason": reason or None}
            return [custom_frame("hai.status", strip_none(status_event), at), finished]
        if self.state.status == "finished" and self.state.output is not None:
            return [custom_frame("hai.output", {"output": self.state.output}, at), finished]
        return [finished]

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        return [frame("RUN_ERROR", at, terminal=True, message=error_message(error), code=error.code)]

    def break_off(self, at: int, reason: str, code: str) -> list[Frame]:
        return [frame("RUN_ERROR", at, terminal=True, message=reason, code=code)]

    def _lifecycle(self, type: str, at: int, run_id: str, *, terminal: bool = False) -> Frame:
        state = self.state
        message_id = f"msg_{turn_id(state.run_id, state.turn.n if state.turn else 0)}"
        return frame(
            type, at, terminal=terminal, threadId=state.thread_id, runId=run_id, messageId=message_id, role="assistant"
        )

    # --- state and snapshots

    def state_delta(self, at: int, ops: Sequence[Json]) -> list[Frame]:
        return [frame("STATE_DELTA", at, delta=[{**operation, "from": operation.get("from", "")} for operation in ops])]

    def messages_snapshot(self, at: int, transcript: Sequence[Entry]) -> list[Frame]:
        messages = history(_Words(self._plain), self.profile, self.state, transcript)
        return [frame(self._snapshot_type, at, messages=messages)]

    # --- messages

    def message_started(self, at: int, message: MessageState) -> list[Frame]:
        return [_message_edge("BUSINESS_DATA_START", message, at)]

    def message_content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        return [_message_content(message, _delta(message, content, plain=self._plain, at=at), at)]

    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        if message.kind != "thinking" or not message.content:
            return self.message_cut(at, message)
        done = _thinking("", thinking=False, elapsed=(at - message.at) // 1000)
        delta = document(done, message.layout, message.block_id, message.style)
        return [_message_content(message, delta, at), *self.message_cut(at, message)]

    def message_cut(self, at: int, message: MessageState) -> list[Frame]:
        return [_message_edge("BUSINESS_DATA_END", message, at)]

    # --- calls and questions

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        return [call_start(call.id, call.name, at, call.parent_message_id)]

    def call_args(self, at: int, call: ToolCallState, delta: str) -> list[Frame]:
        return [call_args(call.id, delta, at)]

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        return [call_end(call.id, at)]

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        return [_call_result(call.id, content, error, at)]

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """The HAI document shows this result and AG-UI forbids it, so it is sent only if the option `results` is `all`
        (docs/design/protocols.md#hai-results). A call whose arguments broke off always gets a result, because no
        frontend performs it."""
        return self.call_result(at, call, content, error) if self._all_results or error == ABORTED else []

    def question_decided(self, at: int, pending: PendingState) -> list[Frame]:
        """The result of a question that this client got as a call, if the option `results` is `all`."""
        answer = answer_of(pending)
        if answer is None or not self._all_results or not renders_as_tool_call(self.profile, pending.opened):
            return []
        return [_call_result(pending.opened.id, *answer, at)]

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        if not renders_as_tool_call(self.profile, opened):
            return self._question_event(at, opened)
        return call_frames(opened.id, CONFIRM[opened.kind], encode_question_args(opened), at)

    def open_question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return [] if renders_as_tool_call(self.profile, opened) else self._question_event(at, opened)

    def _question_event(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return [_pending(as_shown(self.profile, opened), at)]

    # --- the author's own

    def collaboration(self, at: int, id: str, event: e.CollaborationStarted) -> list[Frame]:
        """One message with exactly one content: the client parses the content when the message ends
        (docs/design/protocols.md#hai-events)."""
        type = "AGENT_COLLABORATIVE_MESSAGE"
        return [
            frame(f"{type}_START", at, **{"from": event.from_, "to": event.to}, messageId=id),
            frame(f"{type}_CONTENT", at, delta=dump({"task": event.task}).decode(), messageId=id),
            frame(f"{type}_END", at, messageId=id),
        ]


class _Words:
    """Messages in a snapshot (docs/design/protocols.md#hai-snapshots): the run's own as concatenated deltas, a client's
    as it posted them."""

    def __init__(self, plain: bool) -> None:
        self._plain = plain

    def message(self, message: MessageState) -> dict[str, Json]:
        content = message.content
        if message.path is not None:  # the run's own, not posted
            content = _delta(message, content, plain=self._plain) if content else None
        fields = {
            "id": message.id,
            "role": message.role,
            "content": content,
            "name": message.name,
            "timestamp": message.at,
            "extra": {"aborted": True} if message.aborted else message.extra,
        }
        return strip_none(fields)

    def holder(self, id: str, at: int) -> dict[str, Json]:
        return {"id": id, "role": "assistant", "timestamp": at}


# --- outward: frames ----------------------------------------------------------------------------------------------


def _pending(opened: e.PendingOpened, at: int) -> Frame:
    """A question as a custom event, with all the arguments that a call of its tool would have."""
    return custom_frame(
        "hai.pending", {"id": opened.id, "kind": opened.kind, **values.loads(encode_question_args(opened))}, at
    )


def _message_edge(type: str, message: MessageState, at: int) -> Frame:
    extra = {"aborted": True} if message.aborted else None
    return frame(type, at, messageId=message.id, role=message.role, extra=extra)


def _message_content(message: MessageState, delta: str, at: int) -> Frame:
    return frame(
        "BUSINESS_DATA_CONTENT", at, messageId=message.id, delta=delta, blockId=message.block_id, style=message.style
    )


def _call_result(id: str, content: str, error: str | None, at: int) -> Frame:
    return frame(
        "TOOL_CALL_RESULT", at, messageId=derive_result_id(id), toolCallId=id, content=content, role="tool", error=error
    )


HAI: Final = Dialect(
    "hai",
    "hai-1",
    HaiEncoder,
    decode,
    others=(Dialect("hai", "hai-1-binary", HaiEncoder, decode, framing=MESSAGE_PACK),),
)
