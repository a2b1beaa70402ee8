"""The HAI dialect (PROTOCOLS section 2; the decisions are in 2.4).

What its client demands and nothing else does:

* The `delta` of BUSINESS_DATA_CONTENT is a string that holds one JSON document. The client concatenates all deltas of a
  message and splits at `}{`; so no `}{` may stand inside a document (`document`).
* The snapshot of messages is called MESSAGE_SNAPSHOT, and its contents are such concatenated deltas too.
* An operation of STATE_DELTA always has a `from`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.ids import turn_id
from hai_flow.engine.state import MessageState, PendingState, RunState, ToolCallState, evolve
from hai_flow.errors import Rejected
from hai_flow.wire import agent_input
from hai_flow.wire.dialect import (
    Dialect,
    Entry,
    Frame,
    Limits,
    Posted,
    Profile,
    dump,
    entries_of,
    without_none,
)

Json: TypeAlias = Any

# --- inward -------------------------------------------------------------------------------------------------------

# `forwardedProps.hai`: which spelling of the protocol the client wants where its documents disagree (section 8.4).
_OPTIONS: Final = {"text": ("document", "plain"), "snapshot": ("MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT")}


def decode(body: bytes, limits: Limits) -> Posted:
    """What a POST to `/awp` says. Raises `Rejected` (400 not JSON, 413 too large, 422 with every finding)."""
    posted = agent_input.read(body, limits)
    workflow = posted.forwarded.get("workflow")
    if workflow is not None and not isinstance(workflow, str):
        raise _unknown("/forwardedProps/workflow", "expected the name of a workflow")
    given = posted.forwarded.get("input")
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
        input={} if given is None else given,
    )


def _options(wishes: Json) -> tuple[tuple[str, str], ...]:
    """The client's wishes that differ from the default, so that equal streams have equal profiles."""
    if wishes is None:
        return ()
    if not isinstance(wishes, dict):
        raise _unknown("/forwardedProps/hai", "expected an object")
    options: list[tuple[str, str]] = []
    for name, allowed in sorted(_OPTIONS.items()):
        wish = wishes.get(name, allowed[0])
        if wish not in allowed:
            raise _unknown(f"/forwardedProps/hai/{name}", f"expected {' or '.join(allowed)}")
        if wish != allowed[0]:
            options.append((f"hai.{name}", wish))
    return tuple(options)


def _unknown(path: str, message: str) -> Rejected:
    return Rejected(422, "body.invalid", f"{path}: {message}", findings=[{"path": path, "message": message}])


# --- outward: documents -------------------------------------------------------------------------------------------


def document(output: Json, layout: Json = None, block_id: str | None = None, style: Json = None) -> str:
    """The document that one BUSINESS_DATA_CONTENT carries (H3 to H5).

    Compact JSON has `}{` only inside strings, where `{` may as well be written `\\u007b`: the client, which splits the
    concatenation of all documents at `}{`, then finds the seams and nothing else, and reads the same text.
    """
    fields = {"output": output, "style": style, "blockId": block_id, "layout": layout or {}}
    return dump(without_none(fields)).decode().replace("}{", "}\\u007b")


def _thinking(content: str, *, thinking: bool, elapsed: int | None = None) -> Json:
    data = {"content": content, "elapsed": elapsed, "thinking": thinking, "collapse": True}
    return {"type": "thinking", "data": without_none(data)}


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


# --- outward: the snapshot of messages ----------------------------------------------------------------------------

_CONFIRM: Final = {"approve": "confirmAction", "gate": "confirmAction", "ask": "requestInput"}


def shown_as_call(profile: Profile, opened: e.PendingOpened) -> bool:
    """Whether the client is handed this question as a call: it advertised the tool for it and may answer. A question
    that does not ask who started the run is never a call."""
    asked = opened.policy is None or opened.policy.get("asks_requester", True)
    return asked and profile.may_answer and _CONFIRM.get(opened.kind) in profile.client_tools


def _question_args(opened: e.PendingOpened) -> str:
    """The arguments of confirmAction and requestInput (LANGUAGE section 7, Shown to a client)."""
    fields = {
        "title": opened.title,
        "message": opened.message,
        "evidence": None if opened.evidence is None else values.loads(opened.evidence),
        "tool": opened.tool,
        "arguments": None if opened.args is None else values.loads(opened.args),
        "options": list(opened.options) or None,
        "form": opened.schema,
        "deadline": opened.deadline,
        "digest": opened.digest,
    }
    return values.dumps(without_none(fields)).decode()


def _answer_of(pending: PendingState) -> tuple[str, str | None] | None:
    """What became of a pending, as a tool message's (content, error); None while it is open."""
    match pending.status:
        case "open":
            return None
        case "answered":
            value = pending.value
            return (value if isinstance(value, str) else values.dumps(value).decode()), None
        case "declined" | "expired" | "voided":
            error = pending.reason or pending.status
            return error, error
        case decision:
            return values.dumps({"decision": decision}).decode(), None


class _History:
    """The messages of a snapshot under construction (H9, H11)."""

    def __init__(self, plain: bool) -> None:
        self.messages: list[dict[str, Json]] = []
        self._plain = plain
        self._by_id: dict[str, dict[str, Json]] = {}

    def add_message(self, message: MessageState) -> None:
        content = message.content
        if message.path is not None:  # ours, not posted
            content = _delta(message, content, plain=self._plain) if content else None
        fields = {
            "id": message.id,
            "role": message.role,
            "content": content,
            "name": message.name,
            "timestamp": message.at,
            "extra": {"aborted": True} if message.aborted else message.extra,
        }
        self._append(without_none(fields))

    def add_call(
        self,
        id: str,
        name: str,
        args: str,
        at: int,
        parent: str | None,
        answer: tuple[str, str | None] | None,
    ) -> None:
        """A call hangs on its parent message, else on one of its own with the call's id (DESIGN section 11, Ids)."""
        if (parent or id) not in self._by_id:
            self._append({"id": parent or id, "role": "assistant", "timestamp": at})
        holder = self._by_id[parent or id]
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": args}}
        holder.setdefault("toolCalls", []).append(call)
        if answer is not None:
            content, error = answer
            result = {"id": _result_id(id), "role": "tool", "content": content, "toolCallId": id}
            self._append(result if error is None else {**result, "error": error})

    def _append(self, message: dict[str, Json]) -> None:
        self.messages.append(message)
        self._by_id.setdefault(message["id"], message)


def _result_id(tool_call_id: str) -> str:
    return f"{tool_call_id}:result"


def _before(pending: PendingState, entry: Entry) -> bool:
    """Whether `pending` was opened before `entry` began. Pendings have no `n`, and a posted message's time is alien."""
    opened = pending.opened
    if entry.turn != opened.turn:
        return opened.turn < entry.turn
    return entry.path is not None and opened.at < entry.at


def history(profile: Profile, state: RunState, transcript: Iterable[Entry]) -> list[dict[str, Json]]:
    """The closed messages of the thread. Only calls that are still open are left without an answer."""
    shown = _History(profile.option("hai.text") == "plain")

    def add_call(call: ToolCallState, answer: tuple[str, str | None] | None) -> None:
        shown.add_call(call.id, call.name, call.args, call.at, call.parent_message_id, answer)

    def add_pending(pending: PendingState) -> None:
        opened = pending.opened
        args = _question_args(opened)
        shown.add_call(opened.id, _CONFIRM[opened.kind], args, opened.at, None, _answer_of(pending))

    for entry in transcript:
        if isinstance(entry, MessageState):
            shown.add_message(entry)
        else:  # its run is over: nobody waits for an answer any more
            add_call(entry, _resolved(entry) or ("voided", "voided"))

    asked = [each for each in state.pendings.values() if shown_as_call(profile, each.opened)]
    asked.sort(key=lambda each: (each.opened.at, each.opened.id), reverse=True)
    for entry in entries_of(state):
        while asked and _before(asked[-1], entry):
            add_pending(asked.pop())
        if isinstance(entry, MessageState):
            shown.add_message(entry)
        else:
            pending = state.pendings.get(entry.id)
            add_call(entry, _resolved(entry) or (_answer_of(pending) if pending else None))
    for pending in reversed(asked):
        add_pending(pending)
    return shown.messages


def _resolved(call: ToolCallState) -> tuple[str, str | None] | None:
    return None if call.result is None else (call.result, call.error)


# --- outward: events ----------------------------------------------------------------------------------------------

# Steps without an effect that anybody could watch (section 2.4).
_SILENT_VERBS: Final = frozenset({"say", "emit", "set", "switch", "try", "iteration", "return", "fail"})

# LANGUAGE section 5: an author's own codes never begin with one of these.
_RESERVED: Final = frozenset(
    {
        "input",
        "state",
        "expression",
        "step",
        "tool",
        "http",
        "llm",
        "agent",
        "approval",
        "ask",
        "wait_for",
        "for_each",
        "repeat",
        "run",
        "undo",
        "limit",
    }
)


def error_message(error: e.Error) -> str:
    """The author's words for what the author raised (`fail`, rejections); else only where it happened.

    PROTOCOLS section 7, rule 12: nothing else may reach a client. An error with an attempt comes from an effect,
    whatever its code: its message may quote the world.
    """
    prefix, dot, _ = error.code.partition(".")
    authored = not error.attempt and not (prefix in _RESERVED and dot)
    if authored or prefix == "approval":
        return error.message
    return f"Step {error.path} failed." if error.path else "The run failed."


def _steps_open(state: RunState) -> set[str]:
    """The steps that a stream has open at this moment: begun in the turn that is open, and to be seen."""
    if not state.turn_open or state.turn is None:
        return set()
    return {
        path
        for path, step in state.steps.items()
        if step.turn == state.turn.n and step.status in ("running", "waiting") and step.verb not in _SILENT_VERBS
    } - {""}


class HaiEncoder:
    """The log as HAI events, for one profile."""

    def __init__(self, profile: Profile, state: RunState) -> None:
        self._profile = profile
        self._state = state
        self._plain = profile.option("hai.text") == "plain"
        self._snapshot_type = profile.option("hai.snapshot") or "MESSAGE_SNAPSHOT"
        self._steps = _steps_open(state)

    def encode(self, event: e.Event) -> list[Frame]:
        self._state = evolve(self._state, event)
        shown = SHOWN.get(type(event))
        if shown is None or not (self._state.turn_open or isinstance(event, _ENDS)):
            return []  # what happens between turns belongs to no stream
        return shown(self, event)

    def preface(self, asker_run_id: str | None, transcript: Sequence[Entry]) -> list[Frame]:
        state, at = self._state, self._state.at
        run_id = asker_run_id or self._run_id()
        messages = history(self._profile, state, transcript)
        frames = [
            self._lifecycle("RUN_STARTED", at, run_id),
            self._state_snapshot(at),
            _frame(self._snapshot_type, at, messages=messages),
        ]
        for pending in sorted(state.pendings.values(), key=lambda each: (each.opened.at, each.opened.id)):
            if pending.status == "open" and self._shown_as_custom(pending.opened):
                frames.append(_pending(pending.opened, at))
        if state.turn_open and not state.ended:  # terminating a run may leave its turn as it was
            return [*frames, *self._reopened(at)]
        return [*frames, *self._ending(at, run_id)]

    def farewell(self, reason: str) -> list[Frame]:
        at = self._state.at
        error = _frame("RUN_ERROR", at, terminal=True, message=reason, code="server_closing")
        return [*self._closed(at), error]

    # --- pieces

    def _run_id(self) -> str:
        turn = self._state.turn
        if turn is None:
            return turn_id(self._state.run_id, 0)
        return turn.wire_run_id or turn_id(self._state.run_id, turn.n)

    def _lifecycle(self, type: str, at: int, run_id: str, *, terminal: bool = False) -> Frame:
        state = self._state
        message_id = f"msg_{turn_id(state.run_id, state.turn.n if state.turn else 0)}"
        return _frame(
            type,
            at,
            terminal=terminal,
            threadId=state.thread_id,
            runId=run_id,
            messageId=message_id,
            role="assistant",
        )

    def _state_snapshot(self, at: int) -> Frame:
        state = self._state.state
        return _frame("STATE_SNAPSHOT", at, snapshot={} if state is None else state)

    def _open_messages(self) -> list[MessageState]:
        messages = [self._state.messages[id] for id in self._state.open_messages]
        return sorted(messages, key=lambda message: message.n)

    def _open_calls(self) -> list[ToolCallState]:
        turn = self._state.turn
        calls = [c for c in self._state.tool_calls.values() if c.open and turn is not None and c.turn == turn.n]
        return sorted(calls, key=lambda call: call.n)

    def _reopened(self, at: int) -> list[Frame]:
        """What is open, as if it had begun now: its start and all of it so far."""
        frames = [_frame("STEP_STARTED", at, stepName=path) for path in sorted(self._steps)]
        for message in self._open_messages():
            frames.append(_message_edge("BUSINESS_DATA_START", message, at))
            frames += self._content(message, message.content, at)
        for call in self._open_calls():
            frames += [_call_start(call, at), *_call_args(call.id, call.args, at)]
        return frames

    def _closed(self, at: int) -> list[Frame]:
        """The ends of all that is open, what is inside first."""
        frames = [_call_end(call.id, at) for call in reversed(self._open_calls())]
        frames += [_message_edge("BUSINESS_DATA_END", message, at) for message in reversed(self._open_messages())]
        frames += [_frame("STEP_FINISHED", at, stepName=path) for path in sorted(self._steps, reverse=True)]
        self._steps.clear()
        return frames

    def _content(self, message: MessageState, content: str, at: int) -> list[Frame]:
        if not content:
            return []
        return [_message_content(message, _delta(message, content, plain=self._plain, at=at), at)]

    def _ending(self, at: int, run_id: str) -> list[Frame]:
        """How the stream of a turn that is over ends, by what became of the run."""
        state = self._state
        if state.status == "failed" and state.error is not None:
            return [_run_error(state.error, at)]
        status = state.status if state.status in _SPOKEN_STATUSES else None
        return self._finished(at, run_id, status, state.stop_reason)

    def _finished(self, at: int, run_id: str, status: str | None, reason: str = "") -> list[Frame]:
        finished = self._lifecycle("RUN_FINISHED", at, run_id, terminal=True)
        if status is None:
            return [finished]
        value = without_none({"status": status, "reason": reason or None})
        return [_custom("hai.status", value, at), finished]

    def _shown_as_custom(self, opened: e.PendingOpened) -> bool:
        return opened.kind != "tool" and not shown_as_call(self._profile, opened)

    # --- one method per event that is shown

    def _turn_started(self, event: e.TurnStarted) -> list[Frame]:
        self._steps.clear()
        return [self._lifecycle("RUN_STARTED", event.at, self._run_id()), self._state_snapshot(event.at)]

    def _turn_ended(self, event: e.TurnEnded) -> list[Frame]:
        """A turn that ends with its run is finished by what says so, except a stop: it may also come without a turn."""
        frames = self._closed(event.at)
        match event.reason:
            case "finished" | "failed":
                return frames
            case "waiting":
                return [*frames, *self._finished(event.at, self._run_id(), None)]
            case "stopped":
                return [
                    *frames,
                    *self._finished(event.at, self._run_id(), "stopped", self._state.stop_reason),
                ]
            case status:
                return [*frames, *self._finished(event.at, self._run_id(), status)]

    def _run_finished(self, event: e.RunFinished) -> list[Frame]:
        return [*self._closed(event.at), *self._finished(event.at, self._run_id(), None)]

    def _run_failed(self, event: e.RunFailed) -> list[Frame]:
        return [*self._closed(event.at), _run_error(event.error, event.at)]

    def _run_stopped(self, event: e.RunStopped) -> list[Frame]:
        if not self._state.turn_open:
            return []
        return [*self._closed(event.at), *self._finished(event.at, self._run_id(), "stopped", event.reason)]

    def _step_started(self, event: e.StepStarted) -> list[Frame]:
        if event.verb in _SILENT_VERBS or event.path in self._steps:
            return []
        self._steps.add(event.path)
        return [_frame("STEP_STARTED", event.at, stepName=event.path)]

    def _step_ended(self, event: e.StepFinished | e.StepFailed | e.StepStopped) -> list[Frame]:
        if event.path not in self._steps:
            return []
        self._steps.remove(event.path)
        return [_frame("STEP_FINISHED", event.at, stepName=event.path)]

    def _message_started(self, event: e.MessageStarted) -> list[Frame]:
        return [_message_edge("BUSINESS_DATA_START", self._state.messages[event.message_id], event.at)]

    def _message_chunk(self, event: e.MessageChunk) -> list[Frame]:
        return self._content(self._state.messages[event.message_id], event.content, event.at)

    def _message_ended(self, event: e.MessageEnded) -> list[Frame]:
        message, at = self._state.messages[event.message_id], event.at
        end = _message_edge("BUSINESS_DATA_END", message, at)
        if message.kind != "thinking" or not message.content:
            return [end]
        done = _thinking("", thinking=False, elapsed=(at - message.at) // 1000)
        delta = document(done, message.layout, message.block_id, message.style)
        return [_message_content(message, delta, at), end]

    def _tool_call_started(self, event: e.ToolCallStarted) -> list[Frame]:
        return [_call_start(self._state.tool_calls[event.tool_call_id], event.at)]

    def _tool_call_args_chunk(self, event: e.ToolCallArgsChunk) -> list[Frame]:
        return _call_args(event.tool_call_id, event.content, event.at)

    def _tool_call_ended(self, event: e.ToolCallEnded) -> list[Frame]:
        return [_call_end(event.tool_call_id, event.at)]

    def _tool_call_resolved(self, event: e.ToolCallResolved) -> list[Frame]:
        """The result of a server tool. A frontend knows its own (section 8.4)."""
        id = event.tool_call_id
        if self._state.tool_calls[id].executor == "frontend":
            return []
        return [
            _frame(
                "TOOL_CALL_RESULT",
                event.at,
                messageId=_result_id(id),
                toolCallId=id,
                content=event.content,
                role="tool",
                error=event.error,
            )
        ]

    def _pending_opened(self, event: e.PendingOpened) -> list[Frame]:
        """A frontend tool's call has events of its own; our questions are shown as this client can take them."""
        if event.kind == "tool":
            return []
        if self._shown_as_custom(event):
            return [_pending(event, event.at)]
        start = _frame(
            "TOOL_CALL_START",
            event.at,
            call=event.id,
            toolCallId=event.id,
            toolCallName=_CONFIRM[event.kind],
        )
        return [start, *_call_args(event.id, _question_args(event), event.at), _call_end(event.id, event.at)]

    def _state_changed(self, event: e.StateChanged) -> list[Frame]:
        if not event.ops:
            return []
        delta = [{**operation, "from": operation.get("from", "")} for operation in event.ops]
        return [_frame("STATE_DELTA", event.at, delta=delta)]

    def _custom_emitted(self, event: e.CustomEmitted) -> list[Frame]:
        return [_custom(event.name, event.value, event.at)]

    def _raw_emitted(self, event: e.RawEmitted) -> list[Frame]:
        return [_frame("RAW", event.at, event=event.event, source=event.source)]

    def _collaboration_started(self, event: e.CollaborationStarted) -> list[Frame]:
        """One message with exactly one content: the client parses what it has when the message ends (H6)."""
        id, type = f"{self._state.run_id}:{self._state.seq}", "AGENT_COLLABORATIVE_MESSAGE"
        return [
            _frame(f"{type}_START", event.at, **{"from": event.from_, "to": event.to}, messageId=id),
            _frame(f"{type}_CONTENT", event.at, delta=dump({"task": event.task}).decode(), messageId=id),
            _frame(f"{type}_END", event.at, messageId=id),
        ]


# What a status says that RUN_FINISHED alone would not.
_SPOKEN_STATUSES: Final = frozenset({"queued", "paused", "stopping", "stopped", "needs_attention"})

SHOWN: Final[dict[type[e.Event], Callable[[HaiEncoder, Any], list[Frame]]]] = {
    e.TurnStarted: HaiEncoder._turn_started,
    e.TurnEnded: HaiEncoder._turn_ended,
    e.RunFinished: HaiEncoder._run_finished,
    e.RunFailed: HaiEncoder._run_failed,
    e.RunStopped: HaiEncoder._run_stopped,
    e.StepStarted: HaiEncoder._step_started,
    e.StepFinished: HaiEncoder._step_ended,
    e.StepFailed: HaiEncoder._step_ended,
    e.StepStopped: HaiEncoder._step_ended,
    e.StepSkipped: HaiEncoder._step_ended,
    e.MessageStarted: HaiEncoder._message_started,
    e.MessageChunk: HaiEncoder._message_chunk,
    e.MessageEnded: HaiEncoder._message_ended,
    e.ToolCallStarted: HaiEncoder._tool_call_started,
    e.ToolCallArgsChunk: HaiEncoder._tool_call_args_chunk,
    e.ToolCallEnded: HaiEncoder._tool_call_ended,
    e.ToolCallResolved: HaiEncoder._tool_call_resolved,
    e.PendingOpened: HaiEncoder._pending_opened,
    e.StateChanged: HaiEncoder._state_changed,
    e.CustomEmitted: HaiEncoder._custom_emitted,
    e.RawEmitted: HaiEncoder._raw_emitted,
    e.CollaborationStarted: HaiEncoder._collaboration_started,
}

_ENDS: Final = (e.TurnEnded, e.RunFinished, e.RunFailed, e.RunStopped)

# Every other event, each on purpose.
IGNORED: Final[frozenset[type[e.Event]]] = frozenset(
    {
        e.RunStarted,  # the turn that follows shows its state
        e.RunQueued,  # status: turn_ended says what came of it
        e.RunPaused,
        e.RunResumed,
        e.RunStopping,
        e.RunNeedsAttention,
        e.RunRetried,
        e.Migrated,  # between two turns; the next one opens with a snapshot
        e.MessagesChanged,  # the client's own words
        e.AttemptStarted,  # retries: the step goes on
        e.StepRetried,
        e.StepEnding,  # how blocks end and go on: its steps tell
        e.StepReopened,
        e.StepUndone,
        e.HandlerStarted,
        e.IterationStarted,
        e.IterationEnded,
        e.BranchEnded,
        e.CollaborationEnded,  # HAI shows a task once, when it is handed over
        e.VoteCast,  # people: HAI knows only the question
        e.PendingEdited,
        e.PendingEscalated,
        e.PendingReminded,
        e.PendingRestamped,
        e.PendingDecided,
        e.PendingVoided,
        e.TimerSet,  # the engine's own
        e.TimerFired,
        e.SignalsAwaited,
        e.SignalReceived,
        e.ChildMoved,
        e.WarningRaised,
    }
)


# --- outward: frames ----------------------------------------------------------------------------------------------


def _frame(type: str, at: int, *, call: str | None = None, terminal: bool = False, **fields: Json) -> Frame:
    """One HAI event. Fields that are None are left out; `call` is the toolCallId of a frame that streams a call."""
    return Frame(type, dump(without_none({"type": type, **fields, "timestamp": at})), call, terminal)


def _custom(name: str, value: Json, at: int) -> Frame:
    """CUSTOM's value may be null, and is there then: no other field of HAI is."""
    return Frame("CUSTOM", dump({"type": "CUSTOM", "name": name, "value": value, "timestamp": at}))


def _pending(opened: e.PendingOpened, at: int) -> Frame:
    value = {
        "id": opened.id,
        "kind": opened.kind,
        "title": opened.title,
        "message": opened.message,
        "tool": opened.tool,
        "arguments": None if opened.args is None else values.loads(opened.args),
        "form": opened.schema,
        "options": list(opened.options) or None,
        "deadline": opened.deadline,
    }
    return _custom("hai.pending", without_none(value), at)


def _run_error(error: e.Error, at: int) -> Frame:
    return _frame("RUN_ERROR", at, terminal=True, message=error_message(error), code=error.code)


def _message_edge(type: str, message: MessageState, at: int) -> Frame:
    return _frame(type, at, messageId=message.id, role=message.role)


def _message_content(message: MessageState, delta: str, at: int) -> Frame:
    return _frame(
        "BUSINESS_DATA_CONTENT",
        at,
        messageId=message.id,
        delta=delta,
        blockId=message.block_id,
        style=message.style,
    )


def _call_start(call: ToolCallState, at: int) -> Frame:
    return _frame(
        "TOOL_CALL_START",
        at,
        call=call.id,
        toolCallId=call.id,
        toolCallName=call.name,
        parentMessageId=call.parent_message_id,
    )


def _call_args(id: str, delta: str, at: int) -> list[Frame]:
    return [_frame("TOOL_CALL_ARGS", at, call=id, toolCallId=id, delta=delta)] if delta else []


def _call_end(id: str, at: int) -> Frame:
    return _frame("TOOL_CALL_END", at, call=id, toolCallId=id)


HAI: Final = Dialect("hai", "hai-1", HaiEncoder, decode)
