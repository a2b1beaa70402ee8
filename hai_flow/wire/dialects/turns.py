"""A run's turns as streams of events, one turn at a time: the part that HAI and the dialects like it have in common.

`TurnEncoder` folds the log and knows which steps, messages and calls are open on the stream. It closes them before the
stream ends, opens them again for a client that attaches, and leaves the frames themselves to its subclass. An event
between two turns belongs to no stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.runs.children import SILENT_VERBS
from hai_flow.engine.state.ids import turn_id
from hai_flow.engine.state.state import MessageState, PendingState, RunState, ToolCallState
from hai_flow.primitives.json_pointers import pointer_of
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import CLOSING, Entry, Frame, Profile
from hai_flow.wire.pii_masking import mask_of
from hai_flow.wire.reader_redaction import CONVERSATION, strip_conversation, strip_conversation_from_event


def _list_steps_open(state: RunState) -> set[str]:
    """The steps that a stream has open at this moment: those that began in the open turn and that a client can see."""
    if not state.turn_open or state.turn is None:
        return set()
    turn = state.turn.n
    own = {
        path
        for path, step in state.steps.items()
        if step.turn == turn and step.status in ("running", "waiting") and step.verb not in SILENT_VERBS
    } - {""}
    return own | {path for path, turn_begun in state.below.items() if turn_begun == turn}


class TurnEncoder(ABC):
    """The log as one dialect's events, for one profile. A subclass writes the frames; of what its protocol has no event
    for, nothing is sent. Its methods may depend only on their arguments, the profile and the state, because followers
    share the bytes.

    `at` is a time in milliseconds since 1970; `run_id` is the wire's runId, which names a turn."""

    def __init__(self, profile: Profile, state: RunState) -> None:
        self.profile = profile
        self._kept = state  # with the parts that are kept from the reader
        self._keeps_back = profile.redaction == CONVERSATION
        self._mask = None if self._keeps_back else mask_of(profile)
        self.state = state = self._filter_state(state)
        self._before = state  # as it was before the event that is being encoded
        self._steps = _list_steps_open(state)

    # --- the words ------------------------------------------------------------------------------------------------

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        return []

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        """A turn is over; the last frame is terminal. `status` is one that RUN_FINISHED alone would not show
        (`SPOKEN`); None if the run has finished, or waits for the open questions in `state`."""
        return []

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        """The run has failed; the last frame is terminal."""
        return []

    def break_off(self, at: int, reason: str, code: str) -> list[Frame]:
        """The server has to close the stream, for the reason that `code` names; the last frame is terminal."""
        return []

    def state_snapshot(self, at: int) -> list[Frame]:
        return []

    def state_delta(self, at: int, ops: Sequence[Json]) -> list[Frame]:
        """A change of the shared state, an RFC 6902 patch."""
        return []

    def messages_snapshot(self, at: int, transcript: Sequence[Entry]) -> list[Frame]:
        """The closed messages of the thread; `transcript` are those of its earlier runs."""
        return []

    def step_edge(self, at: int, path: str, *, started: bool) -> list[Frame]:
        """A visible step begins or ends."""
        return []

    def step_below_ended(self, at: int, path: str, status: str) -> list[Frame]:
        """A step of a run below is over (`status` finished, failed, stopped or skipped). It is shown like a step of
        this run, if the stream has it open."""
        if path not in self._steps:
            return []
        self._steps.remove(path)
        return self.step_edge(at, path, started=False)

    def message_started(self, at: int, message: MessageState) -> list[Frame]:
        return []

    def message_content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        """A part of a message, never empty. A client that attaches gets all of it so far as one part."""
        return []

    @abstractmethod
    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        """A message is over."""

    def message_cut(self, at: int, message: MessageState) -> list[Frame]:
        """The stream ends before the message does."""
        return self.message_ended(at, message)

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        return []

    def call_args(self, at: int, call: ToolCallState, delta: str) -> list[Frame]:
        """A part of a call's arguments, JSON text, never empty."""
        return []

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        return []

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        return []

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """The result of a frontend's tool. Sends nothing by default: a frontend knows its own results
        (docs/design/protocols.md#tools-and-interrupts)."""
        return []

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        """A question to people: an approval, a form, a doubt. A frontend tool's call has events of its own."""
        return []

    def open_question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        """The open question for a client that attaches, where the snapshot of messages does not show it already."""
        return self.question(at, opened)

    def frontend_tool_asked(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        """A frontend tool's answer is awaited, from now on or since before a client attached. Sends nothing by default:
        the call itself shows it."""
        return []

    def question_decided(self, at: int, pending: PendingState) -> list[Frame]:
        """A question to people is decided. Sends nothing by default: the events that follow show the outcome. Never
        called for a frontend tool's call."""
        return []

    def custom(self, at: int, name: str, value: Json) -> list[Frame]:
        """A custom event that the author emits."""
        return []

    def raw(self, at: int, event: Json, source: str | None) -> list[Frame]:
        """An event of another system, unchanged."""
        return []

    def collaboration(self, at: int, id: str, event: e.CollaborationStarted) -> list[Frame]:
        """One agent hands a task to another."""
        return []

    # --- Encoder --------------------------------------------------------------------------------------------------

    def encode(self, event: e.Event) -> list[Frame]:
        before = self._before = self.state
        if not self._keeps_back and self._mask is None:
            self.state = evolve(before, event)
            return self._encode(event, before)
        self._kept = evolve(self._kept, event)
        if self._mask is None:
            self.state = self._filter_state(self._kept)
            visible = self.filter_event(event)
        else:
            visible = self._mask.event(event, self._kept)
            moved = isinstance(event, e.Migrated)
            self.state = self._filter_state(self._kept) if moved else evolve(before, visible)
        return [] if visible is None else self._encode(visible, before)

    def filter_event(self, event: e.Event) -> e.Event | None:
        """The event that was just folded, as the reader sees it; None: it is kept from them."""
        if self._mask is not None:
            return self._mask.event(event, self._kept)
        if not self._keeps_back:
            return event
        assert self.profile.reader is not None, "who starts a run sees all of it"
        return strip_conversation_from_event(event, self.state, self.profile.reader)

    def _filter_state(self, whole: RunState) -> RunState:
        if self._mask is not None:
            return self._mask.state(whole)
        if not self._keeps_back:
            return whole
        assert self.profile.reader is not None, "who starts a run sees all of it"
        return strip_conversation(whole, self.profile.reader)

    def _encode(self, event: e.Event, before: RunState) -> list[Frame]:
        closing = self._cut_below(event, before) if self.state.open_messages is not before.open_messages else []
        if before.below and self.state.below is not before.below:
            closing += self._end_steps_below(event, before.below)
        handler = self.SHOWN.get(type(event))
        if handler is None or not (self.state.turn_open or isinstance(event, _ENDS)):
            return closing
        return [*closing, *handler(self, event)] if closing else handler(self, event)

    def _end_steps_below(self, event: e.Event, before: Mapping[str, int]) -> list[Frame]:
        """The ends of the steps of a run below that were open when that run ended or when this run stopped awaiting
        it."""
        if isinstance(event, e.ChildStepped):
            return []
        ended_paths = sorted(set(before).difference(self.state.below), reverse=True)  # its keys have no `difference`
        return [frame for path in ended_paths for frame in self.step_below_ended(event.at, path, "stopped")]

    def _cut_below(self, event: e.Event, before: RunState) -> list[Frame]:
        """The ends of messages of a run below that will get no more text."""
        if isinstance(event, e.MessageStarted | e.MessageEnded):
            return []
        ended = event.message_id if isinstance(event, e.ChildSaid) else None
        cut = [self.state.messages[id] for id in before.open_messages if id not in self.state.open_messages]
        cut.sort(key=lambda message: message.n, reverse=True)
        return [f for each in cut if each.id != ended for f in self.message_cut(event.at, each)]

    def preface(self, asker_run_id: str | None, transcript: Sequence[Entry]) -> list[Frame]:
        state, at = self.state, self.state.at
        run_id = asker_run_id or self.run_id()
        frames = [*self.run_started(at, run_id), *self.state_snapshot(at), *self.messages_snapshot(at, transcript)]
        for pending in state.open_questions:
            show_question = self.frontend_tool_asked if pending.opened.kind == "tool" else self.open_question
            frames += show_question(at, pending.opened)
        if state.turn_open and not state.ended:  # a run that was terminated may have left its turn open
            return [*frames, *self._open_anew(at)]
        return [*frames, *self._ending(at, run_id)]

    def farewell(self, reason: str, code: str = CLOSING) -> list[Frame]:
        at = self.state.at
        return [*self._close_all(at), *self.break_off(at, reason, code)]

    # --- open on the stream ---------------------------------------------------------------------------------------

    def run_id(self) -> str:
        """The wire's runId of the open turn, or of the last one."""
        turn = self.state.turn
        if turn is None:
            return turn_id(self.state.run_id, 0)
        return turn.wire_run_id or turn_id(self.state.run_id, turn.n)

    def open_messages(self) -> list[MessageState]:
        """The open messages, in the order in which they began."""
        messages = [self.state.messages[id] for id in self.state.open_messages]
        return sorted(messages, key=lambda message: message.n)

    def open_calls(self) -> list[ToolCallState]:
        """The calls of this turn that are not complete, in the order in which they began."""
        turn = self.state.turn
        calls = [c for c in self.state.tool_calls.values() if c.open and turn is not None and c.turn == turn.n]
        return sorted(calls, key=lambda call: call.n)

    def _open_anew(self, at: int) -> list[Frame]:
        """Everything open, as if it had begun now: its start and its content so far."""
        frames = [frame for path in sorted(self._steps) for frame in self.step_edge(at, path, started=True)]
        for message in self.open_messages():
            frames += self.message_started(at, message)
            frames += self._content(at, message, message.content)
        for call in self.open_calls():
            if (foretold := self.state.predicted.get(call.path)) is not None:
                frames += self.custom(at, e.PREDICTED, foretold)
            frames += [*self.call_started(at, call), *self._args(at, call, call.args)]
        return frames

    def _close_all(self, at: int) -> list[Frame]:
        """The ends of everything open, the innermost first."""
        frames = [frame for call in reversed(self.open_calls()) for frame in self.call_ended(at, call)]
        frames += [frame for message in reversed(self.open_messages()) for frame in self.message_cut(at, message)]
        frames += [
            frame for path in sorted(self._steps, reverse=True) for frame in self.step_edge(at, path, started=False)
        ]
        self._steps.clear()
        return frames

    def _content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        return self.message_content(at, message, content) if content else []

    def _args(self, at: int, call: ToolCallState, delta: str) -> list[Frame]:
        return self.call_args(at, call, delta) if delta else []

    def _ending(self, at: int, run_id: str) -> list[Frame]:
        """The last frames of a turn that is over, by the run's status."""
        state = self.state
        if state.status == "failed" and state.error is not None:
            return self.run_failed(at, state.error)
        return self.run_finished(at, run_id, state.status if state.status in SPOKEN else None, state.stop_reason)

    # --- one method per event that is shown -----------------------------------------------------------------------

    def _turn_started(self, event: e.TurnStarted) -> list[Frame]:
        self._steps.clear()
        return [*self.run_started(event.at, self.run_id()), *self.state_snapshot(event.at)]

    def _turn_ended(self, event: e.TurnEnded) -> list[Frame]:
        """If the run ends with its turn, the run's own event sends the last frames. A stop is an exception, because a
        run may also be stopped between two turns."""
        frames = self._close_all(event.at)
        if event.reason in ("finished", "failed"):
            return frames
        status = None if event.reason == "waiting" else event.reason
        reason = self.state.stop_reason if event.reason == "stopped" else ""
        return [*frames, *self.run_finished(event.at, self.run_id(), status, reason)]

    def _run_finished(self, event: e.RunFinished) -> list[Frame]:
        return [*self._close_all(event.at), *self.run_finished(event.at, self.run_id(), None, "")]

    def _run_failed(self, event: e.RunFailed) -> list[Frame]:
        return [*self._close_all(event.at), *self.run_failed(event.at, event.error)]

    def _run_stopped(self, event: e.RunStopped) -> list[Frame]:
        if not self.state.turn_open:
            return []
        return [*self._close_all(event.at), *self.run_finished(event.at, self.run_id(), "stopped", event.reason)]

    def _step_started(self, event: e.StepStarted) -> list[Frame]:
        if event.verb in SILENT_VERBS or event.path in self._steps:
            return []
        self._steps.add(event.path)
        return self.step_edge(event.at, event.path, started=True)

    def _step_ended(self, event: e.StepFinished | e.StepFailed | e.StepStopped | e.StepSkipped) -> list[Frame]:
        if event.path not in self._steps:
            return []
        self._steps.remove(event.path)
        return self.step_edge(event.at, event.path, started=False)

    def _message_started(self, event: e.MessageStarted) -> list[Frame]:
        return self.message_started(event.at, self.state.messages[event.message_id])

    def _message_chunk(self, event: e.MessageChunk) -> list[Frame]:
        return self._content(event.at, self.state.messages[event.message_id], event.content)

    def _message_ended(self, event: e.MessageEnded) -> list[Frame]:
        return self.message_ended(event.at, self.state.messages[event.message_id])

    def _tool_call_started(self, event: e.ToolCallStarted) -> list[Frame]:
        return self.call_started(event.at, self.state.tool_calls[event.tool_call_id])

    def _tool_call_args_chunk(self, event: e.ToolCallArgsChunk) -> list[Frame]:
        return self._args(event.at, self.state.tool_calls[event.tool_call_id], event.content)

    def _tool_call_ended(self, event: e.ToolCallEnded) -> list[Frame]:
        return self.call_ended(event.at, self.state.tool_calls[event.tool_call_id])

    def _tool_call_resolved(self, event: e.ToolCallResolved) -> list[Frame]:
        call = self.state.tool_calls[event.tool_call_id]
        tell = self.frontend_result if call.executor == "frontend" else self.call_result
        return tell(event.at, call, event.content, event.error)

    def _pending_opened(self, event: e.PendingOpened) -> list[Frame]:
        """A frontend tool's call has events of its own; another question is shown in the form that this client can
        take."""
        show_question = self.frontend_tool_asked if event.kind == "tool" else self.question
        return show_question(event.at, event)

    def _pending_decided(self, event: e.PendingDecided) -> list[Frame]:
        pending = self.state.pendings[event.id]
        return [] if pending.opened.kind == "tool" else self.question_decided(event.at, pending)

    def _child_asked(self, event: e.ChildAsked) -> list[Frame]:
        """A question of a run below belongs to this thread. It is shown like one of this run's: once when it is asked
        and once when it is decided."""
        opened = event.opened
        if event.status == "open":
            return [] if event.known else self._question_below(event.at, opened)
        pending, call = self.state.questions[opened.id], self.state.tool_calls.get(opened.id)
        if not event.known or event.status == "voided":
            return []
        if opened.kind != "tool":
            return self.question_decided(event.at, pending)
        if call is None or call.result is None:
            return []
        return self.frontend_result(event.at, call, call.result, call.error)

    def _question_below(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        if opened.kind != "tool":
            return self.question(at, self.state.questions[opened.id].opened)
        call = self.state.tool_calls[opened.id]
        frames = [*self.call_started(at, call), *self._args(at, call, call.args), *self.call_ended(at, call)]
        return [*frames, *self._call_awaited(at, opened)]

    def _call_awaited(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        """The answer to a frontend tool's call is awaited, and the call has just been shown."""
        return self.frontend_tool_asked(at, opened)

    def _child_said(self, event: e.ChildSaid) -> list[Frame]:
        message, message_before = self.state.messages[event.message_id], self._before.messages.get(event.message_id)
        shown_text = "" if message_before is None or not message_before.open else message_before.content
        frames = [] if message_before is not None and message_before.open else self.message_started(event.at, message)
        frames += self._content(event.at, message, event.content[len(shown_text) :])
        return [*frames, *self.message_ended(event.at, message)]

    def _child_stepped(self, event: e.ChildStepped) -> list[Frame]:
        if event.status != "running":
            return self.step_below_ended(event.at, event.path, event.status)
        if event.path in self._steps:
            return []
        self._steps.add(event.path)
        return self.step_edge(event.at, event.path, started=True)

    def _state_changed(self, event: e.StateChanged) -> list[Frame]:
        return self.state_delta(event.at, event.ops) if event.ops else []

    def _child_shared(self, event: e.ChildShared) -> list[Frame]:
        before = self._before.shown
        ops = [
            {"op": "replace" if name in before else "add", "path": pointer_of(name), "value": value}
            for name, value in event.values.items()
        ]
        return self.state_delta(event.at, ops)

    def _custom_emitted(self, event: e.CustomEmitted) -> list[Frame]:
        return self.custom(event.at, event.name, event.value)

    def _raw_emitted(self, event: e.RawEmitted) -> list[Frame]:
        return self.raw(event.at, event.event, event.source)

    def _collaboration_started(self, event: e.CollaborationStarted) -> list[Frame]:
        return self.collaboration(event.at, f"{self.state.run_id}:{self.state.seq}", event)

    SHOWN: ClassVar[dict[type[e.Event], Callable[[Any, Any], list[Frame]]]] = {
        e.TurnStarted: _turn_started,
        e.TurnEnded: _turn_ended,
        e.RunFinished: _run_finished,
        e.RunFailed: _run_failed,
        e.RunStopped: _run_stopped,
        e.StepStarted: _step_started,
        e.StepFinished: _step_ended,
        e.StepFailed: _step_ended,
        e.StepStopped: _step_ended,
        e.StepSkipped: _step_ended,
        e.MessageStarted: _message_started,
        e.MessageChunk: _message_chunk,
        e.MessageEnded: _message_ended,
        e.ToolCallStarted: _tool_call_started,
        e.ToolCallArgsChunk: _tool_call_args_chunk,
        e.ToolCallEnded: _tool_call_ended,
        e.ToolCallResolved: _tool_call_resolved,
        e.PendingOpened: _pending_opened,
        e.PendingDecided: _pending_decided,
        e.StateChanged: _state_changed,
        e.CustomEmitted: _custom_emitted,
        e.RawEmitted: _raw_emitted,
        e.CollaborationStarted: _collaboration_started,
        e.ChildAsked: _child_asked,
        e.ChildSaid: _child_said,
        e.ChildStepped: _child_stepped,
        e.ChildShared: _child_shared,
    }


SPOKEN: Final = frozenset({"queued", "paused", "stopping", "stopped", "needs_attention"})
"""The statuses that RUN_FINISHED alone would not show."""

_ENDS: Final = (e.TurnEnded, e.RunFinished, e.RunFailed, e.RunStopped)

# Every other event shows nothing; each is listed on purpose.
IGNORED: Final[frozenset[type[e.Event]]] = frozenset(
    {
        e.RunStarted,  # the turn that follows shows its state
        e.RunQueued,  # status: turn_ended shows the outcome
        e.RunPaused,
        e.RunResumed,
        e.RunStopping,
        e.RunNeedsAttention,
        e.RunRetried,
        e.WorkTakenBack,
        e.StepsHeld,
        e.TimeJumped,  # each timer that is due then has its own event
        e.Forked,  # a follower attaches behind it
        e.Migrated,  # between two turns; the next one opens with a snapshot
        e.MessagesChanged,  # the client's own words
        e.AttemptStarted,  # retries: the step goes on
        e.StepRetried,
        e.StepEnding,  # how blocks end and go on: their steps show it
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
        e.PeoplePicked,
        e.PendingRestamped,
        e.PendingVoided,
        e.TimerSet,  # for the engine alone
        e.TimerFired,
        e.SignalsAwaited,
        e.SignalReceived,
        e.ChildMoved,
        e.PartsMade,  # each of them is a message, too
        e.ModelUsed,  # shown with the end of the turn, by dialects that have a field for it
        e.WarningRaised,
    }
)
