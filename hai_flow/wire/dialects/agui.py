"""The AG-UI dialect (docs/protocols/agui.md), in two profiles: version 1.0 for peers that send
`protocolVersion`, and for the others the events that all clients from 0.0.42 to 0.0.59 accept
(docs/design/protocols.md#older-peers).

Only this dialect's clients demand the following:

* An optional field is absent, never null; the client knows every event type; no delta is empty.
* A turn that waits for a frontend's tool ends without an outcome, even if questions to people are open too: these
  become interrupts once the tool has answered.
* A gate is shown as the call that it guards. The log gives that call the same id once it is performed, so the client
  sees it begin once, and its result comes in the next turn. The call of a tool that the client itself offers is shown
  only when it is approved, because the client performs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.state.ids import pending_of, tool_call_id
from hai_flow.engine.state.state import MessageState, PendingState, RunState, Spent, ToolCallState
from hai_flow.engine.steps.tool_calls import ABORTED, model_call
from hai_flow.values import Json
from hai_flow.wire import agent_input
from hai_flow.wire.dialects.agui_interrupts import build_pending_value, interrupt
from hai_flow.wire.dialects.agui_protobuf import PROTOBUF
from hai_flow.wire.dialects.dialect import (
    Dialect,
    Entry,
    Frame,
    Posted,
    Profile,
    ResumeEntry,
    error_message,
    list_misplaced_edits,
    list_misplaced_members,
)
from hai_flow.wire.dialects.frames import (
    FrameEncoder,
    call_args,
    call_end,
    call_frames,
    call_start,
    custom_frame,
    frame,
)
from hai_flow.wire.dialects.questions import (
    CONFIRM,
    Call,
    answer_of,
    as_shown,
    can_be_answered,
    confirmation,
    encode_question_args,
    renders_as_tool_call,
)
from hai_flow.wire.dialects.transcript import derive_result_id, history
from hai_flow.wire.dialects.turns import SPOKEN, TurnEncoder
from hai_flow.wire.posted_json import Limits
from hai_flow.wire.sent_json import strip_none

PROTOCOL: Final = "1.0"
"""The version that the server speaks and announces to every client."""

OLD: Final = "0"
"""The version of a peer that sends none."""

BLOCK: Final = "hai.block"
"""The activity that shows a structured output of HAI."""

CUT: Final = "hai.aborted"
"""The custom event that tells a peer of the older version that a message broke off: it has no metadata."""

ON_INTERRUPT: Final = "on_interrupt"
"""The custom event that showed interrupts to CopilotKit's frontends before the protocol had interrupts."""

# --- inward -------------------------------------------------------------------------------------------------------

_REASONING: Final = "agui.reasoning"
_FRESH: Final = "agui.fresh"


def decode(body: bytes, limits: Limits) -> Posted:
    """The POST in `body`. Raises `Rejected` (400 not JSON, 413 too large, 422 with every finding)."""
    posted = agent_input.read(body, limits, resumes=True)
    workflow, input = agent_input.wishes(posted)
    options: dict[str, str] = {}
    if _option(posted.forwarded, "reasoning") == "off":
        options[_REASONING] = "off"
    if not posted.history:  # a page that was just opened
        options[_FRESH] = "yes"
    if posted.parent_run_id is not None:
        options["agui.parent"] = posted.parent_run_id
    return Posted(
        thread_id=posted.thread_id,
        wire_run_id=posted.run_id,
        body_sha=posted.body_sha,
        profile=Profile(
            dialect=AGUI.name,
            version=_version(posted.protocol_version),
            client_tools=posted.client_tools,
            options=tuple(sorted(options.items())),
        ),
        user_messages=posted.user_messages,
        tool_messages=posted.tool_messages,
        resume=posted.resume or _parse_answers_of_command(posted.forwarded, limits),
        parent_run_id=posted.parent_run_id,
        history=posted.history,
        workflow=workflow,
        input=input,
        state=posted.state,
    )


def _parse_answers_of_command(forwarded: dict[str, Json], limits: Limits) -> tuple[ResumeEntry, ...]:
    """The answers of clients that do not know `resume` (docs/design/protocols.md#copilotkit). They send `command`
    {resume, interruptEvent} in its place; `interruptEvent` is the question as the server sent it, with its id.

    Without that id the question is unknown, so the command answers none. `forwardedProps` belongs to the application: a
    `command` of another form may be the application's own, and is no error."""
    command = forwarded.get("command")
    event = command.get("interruptEvent") if isinstance(command, dict) else None
    if isinstance(event, str):  # LangGraph's clients have it as text
        with suppress(values.NotJson):
            event = values.loads(event)
    if not isinstance(command, dict) or not isinstance(event, dict) or "resume" not in command:
        return ()
    id = event.get("id")
    if not isinstance(id, str) or not 0 < len(id) <= limits.id_chars_max:
        return ()
    misplaced, edits = list_misplaced_members(command), list_misplaced_edits(forwarded)
    return (ResumeEntry(id, payload=command["resume"], misplaced=misplaced, beside_decision=edits),)


def _version(said: str | None) -> str:
    match = re.match(r"(\d{1,9})", said or "")
    return PROTOCOL if match is not None and int(match[1]) >= 1 else OLD


def _option(forwarded: dict[str, Json], name: str) -> Json:
    wishes = forwarded.get("hai")
    return wishes.get(name) if isinstance(wishes, dict) else None


# --- outward: events ----------------------------------------------------------------------------------------------


class AguiEncoder(FrameEncoder):
    """The log as AG-UI events, for one profile."""

    def __init__(self, profile: Profile, state: RunState) -> None:
        super().__init__(profile, state)
        self._old = profile.version != PROTOCOL
        self._reasons = profile.option(_REASONING) != "off"
        self._attached = False
        self._streamed_anew: frozenset[str] = frozenset()
        self._fresh_asker: str | None = None

    # --- a turn

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        return [
            frame(
                "RUN_STARTED",
                at,
                threadId=self.state.thread_id,
                runId=run_id,
                parentRunId=self.profile.option("agui.parent"),
                protocolVersion=PROTOCOL,
            )
        ]

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        frames = [] if status is None else self._status(at, status, reason)
        if status == "stopped" and self._old:  # it has no outcome "cancelled": the turn would seem a success
            return [*frames, _error(at, reason or "The run was stopped.", "abort")]
        outcome = {"type": "cancelled"} if status == "stopped" else self._interrupts(status)
        if self._old and outcome is not None:  # the oldest frontends wait for this event; newer ones read the outcome
            frames += [custom_frame(ON_INTERRUPT, each, at) for each in outcome["interrupts"]]
        ids = {"threadId": self.state.thread_id, "runId": run_id}
        return [*frames, frame("RUN_FINISHED", at, terminal=True, **ids, outcome=outcome, usage=self._usage())]

    def _usage(self) -> list[Json] | None:
        """The tokens that the turn used, an entry for each model; the older version has no field for them."""
        if self._old or not self.state.turn_spent:
            return None
        return [_usage(label, spent) for label, spent in sorted(self.state.turn_spent.items())]

    def _status(self, at: int, status: str, reason: str) -> list[Frame]:
        return self.custom(at, "hai.status", strip_none({"status": status, "reason": reason or None}))

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        return [_error(at, error_message(error), error.code, usage=self._usage())]

    def break_off(self, at: int, reason: str, code: str) -> list[Frame]:
        return [_error(at, reason, code)]

    # --- state and snapshots

    def state_delta(self, at: int, ops: Sequence[Json]) -> list[Frame]:
        return [frame("STATE_DELTA", at, delta=list(ops))]

    def messages_snapshot(self, at: int, transcript: Sequence[Entry]) -> list[Frame]:
        """An empty thread has no snapshot: it would only delete messages that the client has not posted yet."""
        words, anew = _AguiWords(self._old, self._reasons), self._anew()
        messages = history(words, self.profile, self.state, transcript, self._call_of, anew)
        if not messages:
            return []
        return [*self._holder_of_interrupts(at, messages), frame("MESSAGES_SNAPSHOT", at, messages=messages)]

    # --- messages

    def message_started(self, at: int, message: MessageState) -> list[Frame]:
        match message.kind:
            case "text":
                metadata = None if self._old else _layout_of(message)
                return [frame("TEXT_MESSAGE_START", at, messageId=message.id, role="assistant", metadata=metadata)]
            case "thinking" if self._reasons:
                return [
                    frame("REASONING_START", at, messageId=message.id),
                    frame("REASONING_MESSAGE_START", at, messageId=message.id, role="reasoning"),
                ]
            case _:
                return []

    def message_content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        match message.kind:
            case "text":
                return [frame("TEXT_MESSAGE_CONTENT", at, messageId=message.id, delta=content)]
            case "thinking" if self._reasons:
                return [frame("REASONING_MESSAGE_CONTENT", at, messageId=message.id, delta=content)]
            case "data":
                block = _block(message, content)
                return [frame("ACTIVITY_SNAPSHOT", at, messageId=message.id, activityType=BLOCK, content=block)]
            case _:
                return []

    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        match message.kind:
            case "text":
                cut = [custom_frame(CUT, {"messageId": message.id}, at)] if self._old and message.aborted else []
                return [frame("TEXT_MESSAGE_END", at, messageId=message.id, metadata=self._cut(message)), *cut]
            case "thinking" if self._reasons:
                return [
                    frame("REASONING_MESSAGE_END", at, messageId=message.id, metadata=self._cut(message)),
                    frame("REASONING_END", at, messageId=message.id),
                ]
            case _:
                return []

    def _cut(self, message: MessageState) -> Json:
        return {"hai": {"aborted": True}} if message.aborted and not self._old else None

    # --- calls

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        if self._is_gated(call):
            return []
        return [call_start(call.id, call.name, at, self._parent(call))]

    def _parent(self, call: ToolCallState) -> str | None:
        """The id of the message that holds the call. Only a text message can, because the client sees it as the
        assistant's. None: the call gets a message of its own."""
        message = self.state.messages.get(call.parent_message_id or "")
        return message.id if message is not None and message.kind == "text" else None

    def call_args(self, at: int, call: ToolCallState, delta: str) -> list[Frame]:
        return [] if self._is_gated(call) else [call_args(call.id, delta, at)]

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        return [] if self._is_gated(call) else [call_end(call.id, at)]

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        return [_result(call.id, content, at)]

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """A frontend knows its own results. Only a call whose arguments broke off gets one here: no frontend performs
        it."""
        return self.call_result(at, call, content, error) if error == ABORTED else []

    # --- questions

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        if renders_as_tool_call(self.profile, opened):
            return call_frames(opened.id, CONFIRM[opened.kind], encode_question_args(opened), at)
        frames = self._question_event(at, opened)
        if self._shows_call(opened) and model_call(self.state, opened.path) is None:
            frames += self._call_behind_gate(at, opened)
        return frames

    def open_question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        if renders_as_tool_call(self.profile, opened):
            return []
        frames = self._question_event(at, opened)
        if opened.id in self._streamed_anew:
            frames += self._call_behind_gate(at, opened)
        return frames

    def _question_event(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        """The question as a custom event. Old clients get it because they may ignore interrupts; clients that cannot
        answer get it in place of an interrupt."""
        if self._is_interrupt(opened) and not self._old:
            return []
        return [custom_frame("hai.pending", build_pending_value(as_shown(self.profile, opened)), at)]

    def _call_behind_gate(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return call_frames(_gate_call(self.state, opened), opened.tool or opened.path, opened.args or "{}", at)

    def _is_interrupt(self, opened: e.PendingOpened) -> bool:
        if opened.kind == "tool" or renders_as_tool_call(self.profile, opened):
            return False
        return can_be_answered(self.profile, opened)

    def _interrupts(self, status: str | None) -> Json:
        """The outcome of a turn that waits for people; None if it has none.

        A question that got a vote in this turn is not asked again at its end, even if other people's votes are missing.
        """
        questions = self._list_interrupting(status)
        if not questions:
            return None
        interrupts = [interrupt(each.opened, self._call_id(each.opened), expires=not self._old) for each in questions]
        return {"type": "interrupt", "interrupts": interrupts}

    def _list_interrupting(self, status: str | None) -> list[PendingState]:
        """The questions that become interrupts if the turn ends now; `status` as in `run_finished`."""
        if status not in (None, "paused", "needs_attention"):
            return []
        pendings = self.state.open_questions
        if any(self._is_awaited_call(each.opened) for each in pendings):
            return []
        return [each for each in pendings if self._is_interrupt(each.opened) and not self._has_voted(each)]

    def _call_id(self, opened: e.PendingOpened) -> str | None:
        return _gate_call(self.state, opened) if self._shows_call(opened) else None

    def _is_awaited_call(self, opened: e.PendingOpened) -> bool:
        """Whether the client will answer this with a ToolMessage, without an interrupt."""
        if opened.kind == "tool":
            return self.profile.may_answer and opened.tool in self.profile.client_tools
        return renders_as_tool_call(self.profile, opened)

    def _has_voted(self, pending: PendingState) -> bool:
        turn = self.state.turn
        return not self._attached and turn is not None and any(vote.turn == turn.n for vote in pending.votes)

    # --- pages that were just opened

    # assistant-ui attaches an interrupt only to a message that began on this stream, and shows its approval card only
    # at a call that came on this stream. It drops that message if a snapshot ends with another message of the
    # assistant. So a client without a history gets more than a snapshot: it has seen no frame, so none can reach it
    # twice.

    def preface(self, asker_run_id: str | None, transcript: Sequence[Entry]) -> list[Frame]:
        self._attached = True
        if self.profile.option(_FRESH) is not None:
            self._fresh_asker = asker_run_id or self.run_id()
            questions = [each.opened for each in self._interrupting_now()]
            self._streamed_anew = frozenset(opened.id for opened in questions if self._shows_call(opened))
        frames = super().preface(asker_run_id, transcript)
        self._fresh_asker, self._streamed_anew = None, frozenset()
        return frames

    def _anew(self) -> set[str]:
        """The ids of the calls behind gates that this stream shows, in place of the snapshot."""
        gates = (self.state.questions[id].opened for id in self._streamed_anew)
        return {_gate_call(self.state, opened) for opened in gates}

    def _interrupting_now(self) -> list[PendingState]:
        return self._list_interrupting(self.state.status if self.state.status in SPOKEN else None)

    def _holder_of_interrupts(self, at: int, messages: Sequence[dict[str, Json]]) -> list[Frame]:
        """An empty message to which a client can attach interrupts that have no call. It is sent if this stream may end
        with interrupts and has no other message or call. Only assistant-ui keeps it: other clients drop it when the
        snapshot that follows lacks it."""
        if self._fresh_asker is None or self._streamed_anew or self.open_messages() or self.open_calls():
            return []
        roles = [message["role"] for message in messages if message["role"] != "activity"]
        goes_on = self.state.turn_open and not self.state.ended
        if not (goes_on or self._interrupting_now()) or roles[-1:] in ([], ["user"], ["system"], ["developer"]):
            return []
        id = f"{self._fresh_asker}:asked"
        return [
            frame("TEXT_MESSAGE_START", at, messageId=id, role="assistant"),
            frame("TEXT_MESSAGE_END", at, messageId=id),
        ]

    # --- gates

    def _shows_call(self, opened: e.PendingOpened) -> bool:
        """Whether the client sees the question as the call that it guards."""
        return opened.kind == "gate" and opened.tool not in self.profile.client_tools and self._is_interrupt(opened)

    def _is_gated(self, call: ToolCallState) -> bool:
        """Whether the client has seen this call already, as the call of a gate."""
        return call.executor == "server" and self._gate(call.path, call.id) is not None

    def _gate(self, path: str, call_id: str | None = None) -> PendingState | None:
        """The newest gate of the step that was shown as its call; with `call_id`, only if it guards that call."""
        step = self.state.steps.get(path)
        for n in range(step.asked if step else 0, 0, -1):
            pending = pending_of(self.state, path, n - 1)
            if pending is None or not self._shows_call(pending.opened):
                continue
            if call_id in (None, tool_call_id(self.state.run_id, path, n, behind=pending.opened.id)):
                return pending
        return None

    def _call_of(self, profile: Profile, pending: PendingState) -> Call | None:
        """The call that shows a question in the client's history; None if it has none, or is streamed anew."""
        opened = pending.opened
        if opened.id in self._streamed_anew:
            return None
        if not self._shows_call(opened):
            return confirmation(profile, pending)
        id = _gate_call(self.state, opened)
        return Call(id, opened.tool or opened.path, opened.args or "{}", self._find_gate_answer(id, pending))

    def _find_gate_answer(self, id: str, pending: PendingState) -> tuple[str, str | None] | None:
        """The result of the call behind a gate, else the gate's outcome; None as long as one of them is still to
        come."""
        call = self.state.tool_calls.get(id)
        if call is not None and call.result is not None:
            return call.result, call.error
        step = self.state.steps.get(pending.opened.path)
        goes_on = step is not None and step.status in ("running", "waiting") and not self.state.ended
        return None if goes_on and self._gate(pending.opened.path) is pending else answer_of(pending)

    def _call_result_behind_gate(
        self, event: e.StepFinished | e.StepFailed | e.StepStopped | e.StepSkipped
    ) -> list[Frame]:
        """The call that a gate guarded gets its result here, if the log does not show that call. A call that is not
        exposed hides its own result, so the result shown is the decision."""
        frames: list[Frame] = []
        gate = self._gate(event.path)
        if gate is not None:
            id = _gate_call(self.state, gate.opened)
            answer = answer_of(gate)
            if id not in self.state.tool_calls and answer is not None:
                frames.append(_result(id, answer[0], event.at))
        return [*frames, *self._step_ended(event)]

    SHOWN: ClassVar[dict[type[e.Event], Callable[[Any, Any], list[Frame]]]] = {
        **TurnEncoder.SHOWN,
        e.StepFinished: _call_result_behind_gate,
        e.StepFailed: _call_result_behind_gate,
        e.StepStopped: _call_result_behind_gate,
        e.StepSkipped: _call_result_behind_gate,
    }

    # --- the author's own

    def collaboration(self, at: int, id: str, event: e.CollaborationStarted) -> list[Frame]:
        value = {"id": id, "from": event.from_, "to": event.to, "task": event.task}
        return [custom_frame("hai.collaboration", strip_none(value), at)]


def _gate_call(state: RunState, opened: e.PendingOpened) -> str:
    """The id of the call that a gate guards: the id that the log gives the call if it is exposed and approved. The step
    counts the gate's pending first and the call next; a call that its model has shown keeps the id which it had. A
    ToolMessage with this id answers nothing, unlike one with the pending's id."""
    if (call := model_call(state, opened.path)) is not None:
        return call.id
    step = state.steps.get(opened.path)  # None: a run below asks
    for n in range(step.asked if step else 0):
        pending = pending_of(state, opened.path, n)
        if pending is not None and pending.opened.id == opened.id:
            return tool_call_id(state.run_id, opened.path, n + 1, behind=opened.id)
    return f"{opened.id}:call"


class _AguiWords:
    """Messages in a snapshot."""

    def __init__(self, old: bool, reasons: bool) -> None:
        self._old = old
        self._reasons = reasons

    def message(self, message: MessageState) -> dict[str, Json] | None:
        if message.path is None:
            return self._user_message(message)
        match message.kind:
            case "text":
                fields = {"id": message.id, "role": "assistant", "content": message.content or None}
                return strip_none({**fields, "metadata": None if self._old else _layout_of(message)})
            case "data":
                block = _block(message, message.content)
                return {"id": message.id, "role": "activity", "activityType": BLOCK, "content": block}
            case _ if self._old or not self._reasons or not message.content:  # a role that 0.0.42 does not know
                return None
            case _:
                fields = {"id": message.id, "role": "reasoning", "content": message.content}
                return strip_none({**fields, "metadata": _layout_of(message) if message.aborted else None})

    def _user_message(self, message: MessageState) -> dict[str, Json]:
        content = message.content
        if isinstance(content, list):
            content = [_old_part(part) if self._old else _part(part) for part in content]
        fields = {"id": message.id, "role": message.role, "content": content, "name": message.name}
        return strip_none(fields)

    def holder(self, id: str, at: int) -> dict[str, Json]:
        return {"id": id, "role": "assistant"}


def _part(part: dict[str, Json]) -> dict[str, Json]:
    """A content part in AG-UI's form. A part that another dialect's client posted may not fit that form; it is then
    shown as JSON text."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    source = part.get("source")
    if part.get("type") in agent_input.MEDIA and isinstance(source, dict):
        fields = {name: each for name in ("value", "mimeType") if isinstance(each := source.get(name), str)}
        complete = "value" in fields and ("mimeType" in fields or source.get("type") != "data")
        if complete and source.get("type") in ("data", "url", "file"):
            return {"type": part["type"], "source": {"type": source["type"], **fields}}
    return {"type": "text", "text": values.dumps(part).decode()}


def _old_part(part: dict[str, Json]) -> dict[str, Json]:
    """A content part that the oldest client can read too: it knows media as `binary`."""
    current = _part(part)
    if current["type"] == "text":
        return current
    source = current["source"]
    place = {"data": "data", "url": "url", "file": "id"}[source["type"]]
    mime = source.get("mimeType", "application/octet-stream")
    return {"type": "binary", "mimeType": mime, place: source["value"]}


# --- outward: frames ----------------------------------------------------------------------------------------------


def _error(at: int, message: str, code: str, usage: Json = None) -> Frame:
    return frame("RUN_ERROR", at, terminal=True, message=message, code=code, usage=usage)


def _usage(label: str, spent: Spent) -> dict[str, Json]:
    """AG-UI's TokenUsage of one provider's model."""
    provider, _, model = label.partition("/")
    return {
        "provider": provider,
        "model": model,
        "inputTokens": spent.input,
        "outputTokens": spent.output,
        "totalTokens": spent.input + spent.output,
        "reasoningTokens": spent.reasoning,
        "cachedInputTokens": spent.cached,
    }


def _layout_of(message: MessageState) -> Json:
    """The place of a message in HAI's layout, and whether it broke off."""
    cut = True if message.aborted else None
    place = {"blockId": message.block_id, "layout": message.layout, "style": message.style, "aborted": cut}
    place = strip_none(place)
    return {"hai": place} if place else None


def _block(message: MessageState, content: str) -> dict[str, Json]:
    fields = {
        "output": values.loads(content),
        "blockId": message.block_id,
        "layout": message.layout,
        "style": message.style,
    }
    return strip_none(fields)


def _result(id: str, content: str, at: int) -> Frame:
    return frame("TOOL_CALL_RESULT", at, messageId=derive_result_id(id), toolCallId=id, content=content, role="tool")


AGUI: Final = Dialect(
    "agui",
    "agui-1",
    AguiEncoder,
    decode,
    corrects=True,
    others=(Dialect("agui", "agui-1-protobuf", AguiEncoder, decode, framing=PROTOBUF, corrects=True),),
)
