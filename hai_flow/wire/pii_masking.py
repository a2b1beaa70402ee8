"""Masks personal values in a run's state and events (definition/personal/pii_flow finds out which values are personal).

They are hidden from everybody except the run's requester and the people that its questions ask; these see the personal
values of their own questions, and no others. Texts, arguments and values are masked; the fact that something happened,
and its time, is shown. Digests of masked values are hidden, too: with a digest somebody could try out a short list of
names or amounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition.paths import plan_path
from hai_flow.definition.personal.pii_flow import WHOLE, OfStep, Personal
from hai_flow.definition.personal.pii_marks import (
    MASK,
    Mark,
    join,
    mark_at,
    mark_of_schema,
    mask_items,
    mask_object,
    mask_value,
)
from hai_flow.engine import events as e
from hai_flow.engine.commands import Principal
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.state import (
    Ending,
    Item,
    LoopState,
    Map,
    MessageState,
    PendingState,
    RunState,
    StepState,
    ToolCallState,
)
from hai_flow.primitives.json_pointers import pointer_of, unescape
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.reader_redaction import concerns

_UNSAID: Final[dict[str, Any]] = {"content": MASK, "extra": None, "name": None}
_DOCUMENT: Final = values.dumps({"type": "text", "content": MASK}).decode()


class Mask:
    """Shows `reader` a run without its `personal` values, except in questions that ask them."""

    def __init__(self, personal: Personal, reader: Principal | None) -> None:
        self.personal = personal
        self.reader = reader
        self._is_fork = False
        self._forms: tuple[int, frozenset[str]] = (0, frozenset())  # of how many of the run's questions: marked ones

    def event(self, event: e.Event, whole: RunState) -> e.Event:
        """The event as the reader sees it; `whole` is the run after it, unmasked."""
        personal = self._personal(whole, event)
        hide = _EVENTS.get(type(event)) if personal.anything else None
        return event if hide is None else hide(self, event, whole, personal)

    def state(self, whole: RunState) -> RunState:
        """The run as the reader sees it."""
        personal = self._personal(whole)
        if not personal.anything:
            return whole
        return replace(
            whole,
            message=MASK if personal.message and whole.message else whole.message,
            input=mask_object(whole.input, personal.input),
            state=mask_object(whole.state, personal.state),
            output=mask_value(whole.output, personal.output),
            error=strip_personal(whole.error, personal),
            failure=strip_personal(whole.failure, personal),
            key=_key(whole.key, personal),
            slot=_key(whole.slot, personal),
            steps=_mask_each(whole.steps, lambda path, step: _step(step, personal.of(path), personal)),
            pendings=_mask_each(whole.pendings, lambda _, each: self.pending(each, personal)),
            messages=_mask_each(whole.messages, lambda _, each: message(each, personal)),
            tool_calls=_mask_each(whole.tool_calls, lambda _, each: self._call(each, whole, personal)),
            relayed=_mask_each(
                whole.relayed, lambda _, each: replace(each, pending=self.pending(each.pending, personal))
            ),
            shared=_mask_each(whole.shared, lambda _, each: mask_value(each, self._shares(whole, personal))),
        )

    def question(self, pending: PendingState, whole: RunState) -> PendingState:
        """A question of the run `whole` as the reader sees it."""
        personal = self._personal(whole)
        return self.pending(pending, personal) if personal.anything else pending

    def pending(self, pending: PendingState, personal: Personal) -> PendingState:
        """The question as the reader sees it."""
        of = personal.of(pending.opened.path)
        if pending.status == "voided" and pending.reason and not self._asks(pending):
            pending = replace(pending, reason=MASK)
        if self._asks(pending) or not _hides(of, pending.opened):
            return pending
        mark = _answer(of, pending.opened)
        return replace(
            pending,
            opened=mask_opened(pending.opened, of),
            value=mask_value(pending.value, mark),
            reason=_text(pending.reason, of.touches),
            answer_sha=None,
            votes=tuple(_vote(each, of, pending.opened) for each in pending.votes),
            edits=mask_value(pending.edits, bool(of.args)),
        )

    def _personal(self, whole: RunState, event: e.Event | None = None) -> Personal:
        """The personal values of the run's present version: it may have gone on with another version since its marks
        were made."""
        self._is_fork = self.reader is not None and whole.requester in ids_of(self.reader)
        if whole.sha256 not in (self.personal.sha256, "") or self.personal is WHOLE:
            return WHOLE
        if not self.personal.depends_on_answers:
            return self.personal
        count, forms = self._forms
        questions = len(whole.pendings) + len(whole.relayed)  # never taken out of a state
        if questions != count:
            opened = event.opened if isinstance(event, e.ChildAsked) else event
            is_next = isinstance(opened, e.PendingOpened) and questions == count + 1
            forms = forms | _list_forms((opened,)) if is_next else list_personal_forms(whole)
            self._forms = questions, forms
        return self.personal.after_answers(forms, is_limited=True)

    def _asks(self, pending: PendingState) -> bool:
        """Whether the question asks the reader. In a fork of another person's run it asks nobody: forking a run must
        not give access to its personal values."""
        return self.reader is not None and not self._is_fork and concerns(pending, self.reader)

    def _shares(self, whole: RunState, personal: Personal) -> bool:
        """Whether values that runs below share may be personal. It is not recorded which of these runs shared one."""
        return any(personal.of(path).touches for path, step in whole.steps.items() if step.verb == "run")

    def _call(self, call: ToolCallState, whole: RunState, personal: Personal) -> ToolCallState:
        question = whole.questions.get(call.id)
        if question is not None and self._asks(question):
            return call
        return tool_call(call, personal)

    # --- events ---------------------------------------------------------------------------------------------------

    def _mask_start(self, event: e.RunStarted, whole: RunState, personal: Personal) -> e.Event:
        return replace(
            event,
            input=mask_object(event.input, personal.input),
            state=mask_object(event.state, personal.state),
            message=MASK if personal.message and event.message else event.message,
            key=_key(event.key, personal),
        )

    def _mask_fork(self, event: e.Forked, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, input=mask_value(event.input, personal.input), key=_key(event.key, personal))

    def _mask_queued_run(self, event: e.RunQueued, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, slot=_key(event.slot, personal))

    def _mask_run_output(self, event: e.RunFinished, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, output=mask_value(event.output, personal.output))

    def _mask_failure(self, event: e.RunFailed, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, error=strip_personal(event.error, personal))

    def _mask_migration(self, event: e.Migrated, whole: RunState, personal: Personal) -> e.Event:
        return replace(
            event, input=mask_object(event.input, personal.input), state=mask_object(event.state, personal.state)
        )

    def _turn_started(self, event: e.TurnStarted, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, body_sha=None)

    def _messages(self, event: e.MessagesChanged, whole: RunState, personal: Personal) -> e.Event:
        if not personal.message:
            return event
        return replace(event, messages=tuple(replace(each, **_UNSAID) for each in event.messages))

    def _reason(self, event: Any, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, reason=_text(event.reason, personal.of(event.path).touches))

    def _cut(self, event: Any, whole: RunState, personal: Personal) -> e.Event:
        """The reason why a message or call was cut off may quote an error, so it is masked."""
        return replace(event, reason=MASK if event.reason else "")

    def _step_started(self, event: e.StepStarted, whole: RunState, personal: Personal) -> e.Event:
        of = personal.of(event.path)
        return replace(
            event,
            title=_text(event.title, of.title),
            args=_json(event.args, of.args),
            key=_text(event.key, of.touches),
            items=mask_items(event.items, of.items),
        )

    def _step_ended(self, event: Any, whole: RunState, personal: Personal) -> e.Event:
        of, changes = personal.of(event.path), {}
        for name, mark in (("output", _output(of)), ("approval", of.approval)):
            if hasattr(event, name):
                changes[name] = mask_value(getattr(event, name), mark)
        if getattr(event, "reason", ""):
            changes["reason"] = MASK
        if getattr(event, "notes", ()) and changes["output"] != event.output:  # they name the members of the output
            changes["notes"] = (MASK,) * len(event.notes)
        if getattr(event, "error", None) is not None:
            changes["error"] = strip_personal(event.error, personal, event.path)
        return replace(event, **changes)

    def _message_started(self, event: e.MessageStarted, whole: RunState, personal: Personal) -> e.Event:
        if not personal.of(event.path).words:
            return event
        return replace(event, block_id=None, layout=None, style=None)

    def _chunk(self, event: e.MessageChunk, whole: RunState, personal: Personal) -> e.Event:
        message = whole.messages[event.message_id]
        if not personal.of(message.path).words:
            return event
        return replace(event, content="" if event.n else _mask_text(message.kind))

    def _args_chunk(self, event: e.ToolCallArgsChunk, whole: RunState, personal: Personal) -> e.Event:
        call = whole.tool_calls[event.tool_call_id]
        visible_call = self._call(call, whole, personal)
        if visible_call.args == call.args:
            return event
        # with its first piece: all
        return replace(event, content=visible_call.args if call.args == event.content else "")

    def _mask_call_result(self, event: e.ToolCallResolved, whole: RunState, personal: Personal) -> e.Event:
        visible_call = self._call(whole.tool_calls[event.tool_call_id], whole, personal)
        return replace(event, content=visible_call.result or "", error=visible_call.error)

    def _mask_question(self, event: e.PendingOpened, whole: RunState, personal: Personal) -> e.Event:
        return self.pending(PendingState(event), personal).opened

    def _mask_vote(self, event: e.VoteCast, whole: RunState, personal: Personal) -> e.Event:
        pending = whole.pendings[event.id]
        return event if self._asks(pending) else _vote(event, personal.of(pending.opened.path), pending.opened)

    def _mask_edit(self, event: e.PendingEdited, whole: RunState, personal: Personal) -> e.Event:
        pending = whole.pendings[event.id]
        of = personal.of(pending.opened.path)
        if self._asks(pending) or not _hides(of, pending.opened):
            return event
        edits = mask_value(event.edits, bool(of.args))
        title, message = _text(event.title, of.title), _text(event.message, of.words)
        return replace(event, edits=edits, args=_json(event.args, of.args), digest="", title=title, message=message)

    def _mask_restamp(self, event: e.PendingRestamped, whole: RunState, personal: Personal) -> e.Event:
        pending = whole.pendings[event.id]
        hidden = not self._asks(pending) and _hides(personal.of(pending.opened.path), pending.opened)
        return replace(event, digest="") if hidden else event

    def _mask_decision(self, event: e.PendingDecided, whole: RunState, personal: Personal) -> e.Event:
        pending = whole.pendings[event.id]
        of = personal.of(pending.opened.path)
        if self._asks(pending) or not _hides(of, pending.opened):
            return event
        value = mask_value(event.value, _answer(of, pending.opened))
        return replace(event, value=value, reason=_text(event.reason, of.touches), answer_sha=None)

    def _state_changed(self, event: e.StateChanged, whole: RunState, personal: Personal) -> e.Event:
        """A patch need not fit a masked state. So each variable that it changes is shown whole, as it is now."""
        names = dict.fromkeys(_variable(op[key]) for op in event.ops for key in ("path", "from") if key in op)
        names = dict.fromkeys(whole.state) if "" in names else names
        if not any(mark_at(personal.state, (name,)) for name in names):
            return event
        variables: dict[str, Json] = mask_object(whole.state, personal.state)  # type: ignore[assignment]
        return replace(
            event, ops=tuple({"op": "add", "path": pointer_of(name), "value": variables[name]} for name in names)
        )

    def _signal(self, event: e.SignalReceived, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, data=mask_value(event.data, personal.of(event.path).output))

    def _mask_custom_event(self, event: e.CustomEmitted, whole: RunState, personal: Personal) -> e.Event:
        of = personal.of(event.path)
        if event.name == e.PREDICTED or not of.touches:  # names of variables and arguments
            return event
        if event.name == e.PROGRESS:
            return replace(event, value={"message": MASK})
        return replace(event, value=MASK, name=MASK if of.words else event.name)

    def _raw(self, event: e.RawEmitted, whole: RunState, personal: Personal) -> e.Event:
        of = personal.of(event.path)
        return replace(event, event={"masked": MASK}, source=None) if of.words else event

    def _task(self, event: Any, whole: RunState, personal: Personal) -> e.Event:
        of = personal.of(event.path)
        return replace(event, task=mask_value(event.task, bool(of.args) or of.words))

    def _child_asked(self, event: e.ChildAsked, whole: RunState, personal: Personal) -> e.Event:
        question = self.pending(
            PendingState(event.opened, votes=event.votes, value=event.value, reason=event.reason, edits=event.edits),
            personal,
        )
        return replace(
            event,
            opened=question.opened,
            votes=question.votes,
            value=question.value,
            reason=question.reason,
            edits=question.edits,
        )

    def _child_said(self, event: e.ChildSaid, whole: RunState, personal: Personal) -> e.Event:
        if not _below(event.path, personal):
            return event
        return replace(event, content=_mask_text(event.kind), block_id=None, layout=None, style=None)

    def _child_shared(self, event: e.ChildShared, whole: RunState, personal: Personal) -> e.Event:
        hidden = personal.of(event.path).touches
        return replace(event, values={name: mask_value(each, hidden) for name, each in event.values.items()})

    def _parts(self, event: e.PartsMade, whole: RunState, personal: Personal) -> e.Event:
        return replace(event, parts=()) if personal.of(event.path).touches else event

    def _mask_warning(self, event: e.WarningRaised, whole: RunState, personal: Personal) -> e.Event:
        hidden = event.path is not None and personal.of(event.path).touches
        return replace(event, message=MASK) if hidden else event


def list_personal_forms(whole: RunState) -> frozenset[str]:
    """The paths of the run's steps whose tools have asked people for personal values, by forms of their own."""
    questions = chain(whole.pendings.values(), (each.pending for each in whole.relayed.values()))
    return _list_forms(each.opened for each in questions)


def _list_forms(questions: Iterable[e.PendingOpened]) -> frozenset[str]:
    return frozenset(
        plan_path(each.path) for each in questions if each.inquiry is not None and mark_of_schema(each.schema)
    )


def mask_of(profile: Profile) -> Mask | None:
    """The mask that keeps personal values from the reader of a stream; None: they see all."""
    return None if profile.personal is None else Mask(profile.personal, profile.reader)


_EVENTS: Final[dict[type[e.Event], Callable[[Any, Any, RunState, Personal], e.Event]]] = {
    e.RunStarted: Mask._mask_start,
    e.RunQueued: Mask._mask_queued_run,
    e.Forked: Mask._mask_fork,
    e.RunFinished: Mask._mask_run_output,
    e.RunFailed: Mask._mask_failure,
    e.RunNeedsAttention: Mask._reason,
    e.Migrated: Mask._mask_migration,
    e.TurnStarted: Mask._turn_started,
    e.MessagesChanged: Mask._messages,
    e.StepStarted: Mask._step_started,
    e.StepFinished: Mask._step_ended,
    e.StepSkipped: Mask._step_ended,
    e.StepFailed: Mask._step_ended,
    e.StepEnding: Mask._step_ended,
    e.StepRetried: Mask._step_ended,
    e.StepStopped: Mask._cut,
    e.IterationEnded: Mask._step_ended,
    e.SignalsAwaited: Mask._step_ended,
    e.MessageStarted: Mask._message_started,
    e.MessageChunk: Mask._chunk,
    e.ToolCallArgsChunk: Mask._args_chunk,
    e.ToolCallResolved: Mask._mask_call_result,
    e.PendingOpened: Mask._mask_question,
    e.VoteCast: Mask._mask_vote,
    e.PendingEdited: Mask._mask_edit,
    e.PendingRestamped: Mask._mask_restamp,
    e.PendingDecided: Mask._mask_decision,
    e.PendingVoided: Mask._cut,
    e.StateChanged: Mask._state_changed,
    e.SignalReceived: Mask._signal,
    e.CustomEmitted: Mask._mask_custom_event,
    e.RawEmitted: Mask._raw,
    e.CollaborationStarted: Mask._task,
    e.CollaborationEnded: Mask._task,
    e.ChildAsked: Mask._child_asked,
    e.ChildSaid: Mask._child_said,
    e.ChildShared: Mask._child_shared,
    e.PartsMade: Mask._parts,
    e.WarningRaised: Mask._mask_warning,
}

# Every other event holds no value that a person gave or a step made; each is listed on purpose.
SHOWN_WHOLE: Final[frozenset[type[e.Event]]] = frozenset(
    {
        e.RunPaused,  # reasons that operators gave are not personal
        e.RunResumed,
        e.RunStopping,
        e.RunStopped,
        e.RunRetried,
        e.WorkTakenBack,
        e.StepsHeld,
        e.TimeJumped,
        e.TurnEnded,
        e.AttemptStarted,
        e.StepReopened,
        e.StepUndone,
        e.HandlerStarted,
        e.IterationStarted,
        e.BranchEnded,
        e.MessageEnded,
        e.ToolCallStarted,
        e.ToolCallEnded,
        e.PendingEscalated,
        e.PendingReminded,
        e.PeoplePicked,
        e.TimerSet,
        e.TimerFired,
        e.ChildMoved,
        e.ChildStepped,
        e.ModelUsed,
    }
)


# --- the parts of a run -----------------------------------------------------------------------------------------------


def message(known: MessageState, personal: Personal) -> MessageState:
    """A message of a transcript, masked."""
    if known.path is None:
        return replace(known, **_UNSAID) if personal.message else known
    of = personal.of(known.path)
    if not of.words and not _below(known.path, personal):
        return known
    content = _mask_text(known.kind) if known.chunks or known.content else ""
    return replace(known, content=content, block_id=None, layout=None, style=None)


def tool_call(call: ToolCallState, personal: Personal) -> ToolCallState:
    """A call of a transcript, with its result, masked."""
    of = personal.of(call.path)
    args = call.args and _json(call.args, of.args)
    failed = call.error is not None and of.touches
    result = _content(call.result, failed or join(_output(of), of.answer))
    error = call.error if call.error in (None, *_CODES) else _text(call.error, of.touches)
    return replace(call, args=args or "", result=result, error=error)


_CODES: Final = ("aborted", "tool.declined", "voided", "expired")


def mask_opened(question: e.PendingOpened, of: OfStep) -> e.PendingOpened:
    """A question without its personal values, and without the digest that was made of them."""
    if not _hides(of, question):
        return question
    return replace(
        question,
        title=_text(question.title, of.title),
        message=_text(question.message, of.words or question.inquiry is not None),
        args=_json(question.args, of.args),
        evidence=_json(question.evidence, of.touches if question.kind == "doubt" else of.evidence),
        schema={} if of.form is True else mask_value(question.schema, of.form),
        digest="",
    )


def _hides(of: OfStep, question: e.PendingOpened) -> bool:
    return of.touches or of.title or of.words or bool(mark_of_schema(question.schema))


def _answer(of: OfStep, question: e.PendingOpened) -> Mark:
    """Which parts of the value that decided a question are personal. The form itself may mark some, too: a tool may
    have written it."""
    if question.kind in ("approve", "gate"):
        return of.approval
    return join(join(_output(of), of.answer), mark_of_schema(question.schema))


def _vote(vote: e.VoteCast, of: OfStep, question: e.PendingOpened) -> e.VoteCast:
    if not _hides(of, question):
        return vote
    values_ = mask_value(vote.values, join(of.answer, mark_of_schema(question.schema)))
    return replace(vote, values=values_, reason=_text(vote.reason, of.touches), digest=None, answer_sha=None)


def _output(of: OfStep) -> Mark:
    """Which parts of a step's output are personal. If its effect was not performed, the output is the decision."""
    return join(of.output, of.approval)


def _step(step: StepState, of: OfStep, personal: Personal) -> StepState:
    if not of.touches and not of.items and step.ending is None and step.error is None and step.loop is None:
        return step  # a block that touches nothing may end with the error of a step inside, and so may an iteration
    return replace(
        step,
        args=_json(step.args, of.args),
        output=mask_value(step.output, _output(of)),
        error=strip_personal(step.error, personal, hidden=of.touches),
        approval=mask_value(step.approval, of.approval),
        ending=None if step.ending is None else _ending(step.ending, of, personal),
        received=tuple(replace(each, data=mask_value(each.data, of.output)) for each in step.received),
        loop=None if step.loop is None else _loop(step.loop, of, personal),
        key=_text(step.key, of.touches),
        parts=() if of.touches else step.parts,
    )


def _ending(ending: Ending, of: OfStep, personal: Personal) -> Ending:
    return replace(
        ending,
        output=mask_value(ending.output, of.output),
        error=strip_personal(ending.error, personal, hidden=True),
        reason=MASK if ending.reason else "",
    )


def _loop(loop: LoopState, of: OfStep, personal: Personal) -> LoopState:
    mark = mark_at(of.output, (0, "output"))

    def item(known: Item) -> Item:
        return replace(
            known, output=mask_value(known.output, mark), error=strip_personal(known.error, personal, hidden=of.touches)
        )

    return replace(
        loop, items=mask_items(loop.items, of.items), results=_mask_each(loop.results, lambda _, each: item(each))
    )


def _below(path: str, personal: Personal) -> bool:
    """Whether the step starts a run below whose words may be personal."""
    return personal.of(path).touches and personal.of(path).words


def strip_personal(error: Any, personal: Personal, path: str = "", *, hidden: bool = False) -> Any:
    """An error without personal values: its text may quote the arguments of a step. `path`: the step that it ended.
    None stays None."""
    if error is None:
        return None
    places: Iterable[str] = [each for each in (error.path, path) if each]
    hidden = hidden or any(personal.of(each).touches for each in places) or (not places and personal.anything)
    cause = strip_personal(error.cause, personal, path, hidden=hidden)
    if not hidden:
        return replace(error, cause=cause)
    return replace(error, message=MASK, data=mask_value(error.data, True), cause=cause)


def _key(key: str | None, personal: Personal) -> Any:
    return MASK if key is not None and personal.key else key


def _text(text: str | None, hidden: bool) -> str | None:
    return MASK if text and hidden else text


def _mask_text(kind: str) -> str:
    return _DOCUMENT if kind == "data" else MASK


def _json(text: str | None, mark: Mark) -> str | None:
    """JSON text of a value, masked by this mark. Text that is no JSON (a call that is still being written) becomes an
    empty object first."""
    if text is None or not mark:
        return text
    try:
        value = values.loads(text)
    except values.NotJson:
        value = {}
    return values.dumps(mask_object(value, mark)).decode()


def _content(text: str | None, mark: Mark) -> str | None:
    """A result as text, masked: as JSON, unless it is text itself."""
    if text is None or not mark:
        return text
    try:
        value = mask_value(values.loads(text), mark)
    except values.NotJson:
        return MASK
    return values.to_text(value)


def _variable(pointer: str) -> str:
    return unescape(pointer.split("/")[1]) if "/" in pointer else ""


def _mask_each(known: Map[str, Any], shown: Callable[[str, Any], Any]) -> Map[str, Any]:
    return Map({name: shown(name, each) for name, each in known.items()})
