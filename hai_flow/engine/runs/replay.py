"""Checks a log: each command is made again from the events that it led to, decided again on the state before, and must
give the same events. A command that no event holds in full can't be decided again; the result says so, and proves
nothing. A later release may decide otherwise on purpose; then the log is right."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.definition.people.calendars import Calendar
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.draft import DecisionContext, Sources
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings.answers import HAPPENED
from hai_flow.engine.pendings.unknown_outcome import find_doubt
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.runs.children import TIMED_OUT
from hai_flow.engine.state import budget
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.run_size import TRACE
from hai_flow.engine.state.state import LastChild, RunState
from hai_flow.engine.steps.held_steps import Freeze
from hai_flow.errors import Rejected
from hai_flow.values import Json


class Again(NamedTuple):
    """The result for one commit. `commands` were decided again. `left` is the first event that none of them gave, None
    if all were given; `surely`: and the commit holds every command of the run."""

    commands: tuple[str, ...]
    left: e.Event | None = None
    surely: bool = False


Read: TypeAlias = Callable[[RunState, Sequence[Any]], Iterable[c.Command]]


def decide_again(
    plan: Plan,
    state: RunState,
    events: Sequence[e.Event],
    log_bytes: int = 0,
    limits: Bounds = DEFAULT_BOUNDS,
    known_at: int | None = None,
) -> Again:
    """Decide the commands again that have led from `state` to these events, one commit of a log.

    `known_at`: the time of the run behind its last decision. Text that was streamed since decides nothing, and the
    process that decides may not have seen it. So its state has that earlier time."""
    names: list[str] = []
    last = done = 0
    try:
        for match in match_commands(plan, state, events, log_bytes, limits, known_at):
            names += [] if match.command is None else [type(match.command).__name__]
            last, done = done, done + len(match.events)
    except _Unfoldable:  # the fold itself reports why
        return Again(tuple(names), events[last])
    if done < len(events):
        return Again(tuple(names), events[done], not any(isinstance(each, _ELSEWHERE) for each in events))
    return Again(tuple(names))


class Match(NamedTuple):
    """A command that gives these `events` of a log: `state` is the run before it, `now` when it was decided. None:
    they were streamed, without a decision."""

    command: c.Command | None
    now: int
    state: RunState
    events: Sequence[e.Event]
    held_elsewhere: bool = False


class _Unfoldable(Exception):
    """The log does not fold."""


def match_commands(
    plan: Plan,
    state: RunState,
    events: Sequence[e.Event],
    log_bytes: int = 0,
    limits: Bounds = DEFAULT_BOUNDS,
    known_at: int | None = None,
) -> Iterator[Match]:
    """The commands that have led from `state` to these events, one commit of a log, in order. It ends at the first
    event that no command gives. Arguments as of `decide_again`."""
    least = state.at if known_at is None else min(known_at, state.at)
    done, is_deciding = 0, False
    while done < len(events):
        rest, matched = events[done:], 0
        match = None
        for command in _guess_commands(state, rest):
            for at in dict.fromkeys((state.at, least)):
                if not matched:
                    matched, now, elsewhere = _count_matching(plan, _as_of(state, at), command, rest, log_bytes, limits)
                    match = Match(command, now, state, rest[:matched], elsewhere)
            if matched:
                is_deciding = True
                break
        if not matched and not is_deciding and isinstance(rest[0], STREAMED):
            match, matched = Match(None, rest[0].at, state, rest[:1]), 1  # they go before decided ones
        if not matched or match is None:
            return
        yield match
        try:
            state, done = fold(state, rest[:matched]), done + matched
        except Exception as error:
            raise _Unfoldable from error
        least = min(state.at, max(least, *(each.at for each in rest[:matched])))


def guess_command(
    plan: Plan, state: RunState, events: Sequence[e.Event], limits: Bounds = DEFAULT_BOUNDS
) -> tuple[c.Command, int] | None:
    """A command, and its time, that gives the first of these events as to its kind and its step, where none gives
    all of them: the log does not hold it in full."""
    first, context = events[0], DecisionContext(sources=pin_as_recorded(events))
    for command in _guess_commands(state, events):
        for now in dict.fromkeys(max(each.at, state.at) for each in events):
            try:
                decided = decide(plan, state, command, now, limits, context=context).events
            except (Rejected, AssertionError, KeyError, ValueError, AttributeError):
                continue
            if decided and _kind_of(decided[0]) == _kind_of(first):
                return command, now
    return None


def _kind_of(event: Any) -> tuple[type[e.Event], str | None]:
    return type(event), getattr(event, "path", None)


def _as_of(state: RunState, at: int) -> RunState:
    return state if at == state.at else msgspec.structs.replace(state, at=at)


def _count_matching(
    plan: Plan, state: RunState, command: c.Command, events: Sequence[e.Event], log_bytes: int, limits: Bounds
) -> tuple[int, int, bool]:
    """How many of the events the command gives, if it gives nothing else; when it was decided, and whether by a process
    that did not hold the run."""
    context = DecisionContext(list_recorded_freezes(state, events), sources=pin_as_recorded(events))
    limits = _with_recorded_calendar(plan, events, limits)
    instants = dict.fromkeys(max(each.at, state.at) for each in events)
    for elsewhere, now in itertools.product((False, True), instants):
        try:
            decision = decide(plan, state, command, now, limits, log_bytes, elsewhere, context)
        except (Rejected, AssertionError, KeyError, ValueError, AttributeError):  # it was not this one
            continue
        decided = e.decode_events(e.encode_events(decision.events)) if decision.events else []
        recorded = [_with_run_time(each, state.at) for each in events[: len(decided)]]
        if len(recorded) != len(decided) or not decided:
            continue
        if recorded == decided or recorded == list(map(_without_new_words, recorded, decided)):
            return len(decided), now, elsewhere
    return 0, 0, False


def _with_recorded_calendar(plan: Plan, events: Sequence[e.Event], limits: Bounds) -> Bounds:
    """The bounds with the calendar by which a question of the commit was opened: the deployment may have another."""
    for event in events:
        policy = event.policy if isinstance(event, e.PendingOpened) else None
        if isinstance(policy, dict) and "calendar" in policy:
            calendar = msgspec.convert(policy["calendar"], Calendar)
            return msgspec.structs.replace(limits, calendars={plan.calendar: calendar})
    return limits


def pin_as_recorded(events: Sequence[e.Event]) -> Sources:
    """The tools as the process that has decided these events knew them."""
    recorded = list_recorded_sources(events)
    return lambda _, step: recorded.get(step.path)


def list_recorded_sources(events: Sequence[e.Event]) -> dict[str, str]:
    """The digests of the tools behind questions, by the paths of their steps; "": an attempt had to find it out."""
    recorded: dict[str, str] = {}
    for event in events:
        if isinstance(event, e.StepStarted) and event.reading:
            recorded.setdefault(event.path, "")
        elif isinstance(event, e.PendingOpened) and event.source is not None:
            recorded.setdefault(event.path, event.source)
    return recorded


def list_recorded_freezes(state: RunState, events: Sequence[e.Event]) -> list[Freeze]:
    """The freezes under which the commit was decided, each of one step: as far as they held any."""
    holds = [event for event in events if isinstance(event, e.StepsHeld)]
    held = {path: id for event in holds for path, id in event.held.items()} if holds else dict(state.held)
    reasons = {next(iter(event.held.values())): event.reason for event in holds if event.held}
    return [Freeze(id, "frozen", "step", path, reasons.get(id, "")) for path, id in held.items()]


_LIMIT_IN_MS: Final = re.compile(r"The run has taken longer than its limit of \d+ ms\.")


def _without_new_words(recorded: Any, decided: Any) -> Any:
    """The decided event as a release wrote it that did not tell the class of an effect: a question of such a log has
    none, and nobody was asked to confirm an answer because of it. Or as one that told the run's limit in ms."""
    if type(recorded) is type(decided) and (sentence := _LIMIT_IN_MS.search(str(recorded))):
        error = getattr(decided, "error", None)
        if isinstance(error, e.Error):
            return msgspec.structs.replace(decided, error=msgspec.structs.replace(error, message=sentence[0]))
        if hasattr(decided, "reason"):
            return msgspec.structs.replace(decided, reason=sentence[0])
    opened = isinstance(recorded, e.PendingOpened) and isinstance(decided, e.PendingOpened)
    if not opened or recorded.effect is not None or decided.effect is None:
        return decided
    policy = recorded.policy if decided.effect == "irreversible" else decided.policy
    return msgspec.structs.replace(decided, effect=None, policy=policy)


def _with_run_time(event: e.Event, least: int) -> e.Event:
    """The event as the fold takes it: within a run time never goes back."""
    return msgspec.structs.replace(event, at=least) if event.at < least else event


# --- reading commands off events --------------------------------------------------------------------------------------


def _guess_commands(state: RunState, events: Sequence[e.Event]) -> Iterator[c.Command]:
    """The commands that may have led to the first of these events. Time may have passed before it: timers fire without
    a command of their own."""
    for number, event in enumerate(events):
        read = _READERS.get(type(event))
        if read is not None:
            yield from read(state, events[number:])
    yield c.TimerFired(_list_receipts(events))
    yield c.Continue()


def _list_receipts(events: Sequence[e.Event]) -> dict[str, Json]:
    """What had come of the answers that time-outs cut off: those of steps, of blocks around them, and of the run."""
    errors = [each.error for each in events if isinstance(each, e.StepFailed | e.StepRetried)]
    doubts = (each for each in events if isinstance(each, e.PendingOpened) and each.kind == "doubt")
    receipts = {each.path: values.loads(each.evidence) for each in doubts if each.evidence is not None}
    for error in errors:
        if error.code in ("step.timeout", "limit.duration") and isinstance(error.data, dict):
            receipts |= error.data.get("received") or {error.path: error.data}
    return receipts


def _start_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    turn = next((each for each in events if isinstance(each, e.TurnStarted)), e.TurnStarted(at=0))
    posted = next((each.messages for each in events if isinstance(each, e.MessagesChanged)), ())
    yield c.Start(
        run_id=UUID(state.run_id),
        thread_id=event.thread_id,
        requester=event.requester,
        instigators=event.instigators,
        input=event.input,
        state=event.state or {},
        kept=event.state or {},
        message=event.message,
        messages=posted,
        trigger=event.trigger,
        scheduled_at=event.scheduled_at,
        dev=event.dev,
        turn=_turn(turn),
        pins=event.pins,
        parent=event.parent,
        origin=event.origin,
        timeout=event.timeout,
        key=event.key,
        queued=any(isinstance(each, e.RunQueued) for each in events),
        allowance=event.allowance,
        trace=event.trace,
    )


def _turn(event: e.TurnStarted | None) -> c.Turn:
    if event is None:
        return c.Turn()
    return c.Turn(event.wire_run_id, event.dialect, event.profile, event.client_tools, event.body_sha)


def _guess_admit_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    if state.status == "queued":
        yield c.Admit()


def _find_attempt(state: RunState, path: str) -> int | None:
    """The step's attempt whose outcome would be taken: it is open, or people are asked whether it happened."""
    if path in state.attempts or path not in state.steps:
        return state.attempts.get(path)
    attempt = state.steps[path].attempt
    return None if find_doubt(state, path, attempt) is None else attempt


def _guess_success_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    attempt = _find_attempt(state, event.path)
    if attempt is not None and event.path not in state.children:
        yield from _guess_succeeding(state, c.StepSucceeded(path=event.path, attempt=attempt, output=event.output))


def _guess_succeeding(state: RunState, command: c.StepSucceeded) -> Iterator[c.Command]:
    """No event says when an attempt ended, so the command is made for three cases: it came at once; it came late, and
    the timers that were due meanwhile fired before it ended; it came late, and they fired behind it."""
    for ended_at in (None, state.at, 0):
        yield msgspec.structs.replace(command, ended_at=ended_at)


def _used(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    """The tokens of a model, and the files in its answer, come before the answer."""
    path, attempt = events[0].path, events[0].attempt
    if path in state.children:
        yield from _child_ended(state, events)
        return
    used = tuple(each.use for each in events if isinstance(each, e.ModelUsed) and each.path == path)
    parts = next((each.parts for each in events if isinstance(each, e.PartsMade) and each.path == path), ())
    for number, event in enumerate(events):
        if getattr(event, "path", None) != path:
            continue
        if isinstance(event, e.StepFinished | e.SignalsAwaited):
            succeeded = c.StepSucceeded(path=path, attempt=attempt, output=event.output, used=used, parts=parts)
            yield from _guess_succeeding(state, succeeded)
        elif isinstance(event, e.StepRetried | e.StepFailed | e.PendingOpened):
            for command in _READERS[type(event)](state, events[number:]):
                if isinstance(command, c.StepFailed | c.StepAsks):
                    yield msgspec.structs.replace(command, used=used)


def _guess_failure_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    attempt, error = _find_attempt(state, event.path), event.error
    if attempt is None or event.path in state.children:
        return
    if getattr(event, "held", False):
        yield c.StepLost(path=event.path, attempt=attempt, held=True, reason=error.message)
        return
    if getattr(event, "lost", False):
        yield c.StepLost(path=event.path, attempt=attempt)
        yield c.StepLost(path=event.path, attempt=attempt, reason=error.message)
        return
    common: dict[str, Any] = {"path": event.path, "attempt": attempt, "code": error.code, "message": error.message}
    traces = [each for each in events if isinstance(each, e.WarningRaised) and each.code == TRACE]
    trace = traces[0].message if traces else None
    due = getattr(event, "due", None)
    for after in dict.fromkeys((None, None if due is None else due - event.at)):
        yield c.StepFailed(**common, retriable=error.retriable, data=error.data, retry_after=after, trace=trace)


def _guess_traced_failures(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    """Where in its code a tool failed is noted before its failure."""
    warning = events[0]
    for number, event in enumerate(events):
        if isinstance(event, e.StepFailed | e.StepRetried) and event.path == warning.path and warning.code == TRACE:
            for command in _guess_failure_commands(state, events[number:]):
                if isinstance(command, c.StepFailed):
                    yield msgspec.structs.replace(command, trace=warning.message)
            return


def _guess_cancelled_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    """The effect was asked to cancel, and did."""
    event = events[0]
    attempt = state.attempts.get(event.path)
    if attempt is not None and event.path not in state.children:
        yield c.StepFailed(path=event.path, attempt=attempt, code="step.cancelled", message=event.reason)


def _guess_question_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    attempt = state.attempts.get(event.path)
    if event.inquiry is not None and attempt is not None:
        inquiry = event.inquiry
        text = (event.message or "").partition("\n\n")[2]  # behind a sentence of ours
        yield c.StepAsks(
            path=event.path, attempt=attempt, message=text, form=event.schema, state=inquiry.state, keys=inquiry.keys
        )
    elif event.kind == "gate" and attempt is not None:
        yield _read_check(event, attempt)
    elif event.kind == "doubt" and attempt is not None:
        yield c.StepLost(path=event.path, attempt=attempt)
        reason, why, _ = (event.message or "").partition(" It may have happened, so it is not simply done again: ")
        if why:
            yield c.StepLost(path=event.path, attempt=attempt, reason=reason)


def _guess_picks(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    stages = len(derive_rules(state.pendings[event.id]).escalations)
    yield c.PickPeople(id=event.id, stages_left=stages, before=event.before, people=event.people, note=event.note)


def _read_check(event: e.PendingOpened, attempt: int) -> c.GateChecked:
    """What the attempt had found out, as the question has it."""
    evidence: Any = {} if event.evidence is None else values.loads(event.evidence)
    return c.GateChecked(
        path=event.path,
        attempt=attempt,
        values=evidence.get("values", {}),
        source=event.source,
        description=evidence.get("description"),
        fault=evidence.get("unknown", ""),
        why=None if event.anew is None else event.anew.why,
    )


def _guess_checked_children(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    """The approval of a child run was looked at, and the run begins."""
    attempt = state.attempts.get(events[0].path)
    if attempt is not None and events[0].path not in state.children:
        yield c.GateChecked(path=events[0].path, attempt=attempt)


def _answer_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    """The answers of one POST: votes, edits with their votes, and answers that need no vote, all by one person. The
    answers of another person in the same commit were a command of their own; and so, perhaps, were later ones of the
    first person."""
    by_rule = _guess_vote_of_rule(events)
    if by_rule is not None:
        yield by_rule
        return
    by_id: dict[str, c.PendingAnswer] = {}
    edits: dict[str, Any] = {}
    selectors: dict[str, None] = {}  # that the person matches
    who: Any = None
    for event in events:
        if isinstance(event, e.PendingEdited):
            before = state.pendings[event.id].edits or {}
            edits[event.id] = {name: value for name, value in event.edits.items() if before.get(name) != value}
        elif isinstance(event, e.VoteCast):
            who = who or event
            if event.by != who.by:
                break
            selectors |= dict.fromkeys((*event.matched, *event.barred))
            fields = {"values": event.values} if event.values is not None else {}
            if event.id in edits:
                fields["edits"] = edits[event.id]
            by_id[event.id] = c.PendingAnswer(id=event.id, decision=event.decision, reason=event.reason, **fields)
        elif isinstance(event, e.PendingDecided) and event.by is not None and event.id not in by_id:
            pending = state.pendings.get(event.id)
            if pending is None or pending.opened.kind in ("approve", "gate"):
                continue
            who = who or event
            if event.by != who.by:
                break
            # No event tells which of its selectors let somebody give an answer that needs no vote.
            selectors |= dict.fromkeys(derive_rules(pending).selectors())
            by_id[event.id] = _build_plain_answer(event, pending.opened.kind)
    if who is None:
        return
    turn = next((each for each in events if isinstance(each, e.TurnStarted)), None)
    posted = next((each.messages for each in events if isinstance(each, e.MessagesChanged)), ())
    roles = tuple(each.removeprefix("role:") for each in selectors if each.startswith("role:"))
    groups = tuple(each.removeprefix("group:") for each in selectors if each.startswith("group:"))
    lent = (getattr(who, "aliases", ()), getattr(who, "lent_aliases", ()), getattr(who, "issuer", None))
    other = (getattr(who, "on_behalf_of", None), None, None, *lent, getattr(who, "through", ()))
    people = (
        c.Principal(who.by, roles or ("operator", "admin"), groups, *other),
        c.Principal(who.by, roles, groups, *other),
    )
    answers = tuple(by_id.values())
    for by, count in itertools.product(people, range(len(answers), 0, -1)):
        yield c.Answer(
            answers=answers[:count],
            by=by,
            via=who.via,
            messages=posted,
            turn=_turn(turn) if state.parent is None else c.Turn(),
            state=_build_state_of_post(events),
        )


def _guess_vote_of_rule(events: Sequence[Any]) -> c.ApplyRule | None:
    """The vote of the standing rule that voted first; None: a person did."""
    first = next((each for each in events if isinstance(each, e.VoteCast)), None)
    if first is None or first.rule is None:
        return None
    cast = [each for each in events if isinstance(each, e.VoteCast) and (each.id, each.rule) == (first.id, first.rule)]
    voters = tuple(
        c.Principal(
            vote.by,
            tuple(each.removeprefix("role:") for each in vote.matched if each.startswith("role:")),
            tuple(each.removeprefix("group:") for each in vote.matched if each.startswith("group:")),
            vote.on_behalf_of,
            aliases=vote.aliases,
            lent_aliases=vote.lent_aliases,
            through=vote.through,
        )
        for vote in cast
    )
    return c.ApplyRule(
        id=first.id, digest=first.digest or "", rule=first.rule, voters=voters, reason=first.reason or ""
    )


def _build_plain_answer(event: e.PendingDecided, kind: str) -> c.PendingAnswer:
    if event.outcome == "declined":
        return c.PendingAnswer(id=event.id, error=event.reason)
    if kind == "tool":
        return c.PendingAnswer(id=event.id, result=event.value)
    if kind == "doubt" and event.outcome == HAPPENED:
        return c.PendingAnswer(id=event.id, decision=event.outcome, reason=event.reason, result=event.value)
    if kind == "doubt" or event.outcome != "answered":
        return c.PendingAnswer(id=event.id, decision=event.outcome, reason=event.reason, values=event.value)
    return c.PendingAnswer(id=event.id, values=event.value)


def _build_state_of_post(events: Sequence[e.Event]) -> dict[str, Any]:
    posted: dict[str, Any] = {}
    for event in events:
        if isinstance(event, e.StateChanged) and event.path == "":
            posted.update({str(op["path"])[1:]: op["value"] for op in event.ops if "value" in op})
    return posted


def _guess_turn_answer_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    yield from _guess_admit_commands(state, events)
    yield from _answer_commands(state, events)
    if state.children:
        yield from _child_told(state, events)


def _guess_signal_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    yield c.Signal(
        id=event.id,
        name=event.name,
        data=event.data,
        sent_at=event.sent_at,
        place=event.place,
        own=event.own,
        by=event.by,
    )


def _child_ended(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    """The tokens and the last news of the run below come before its end, its outcome behind it."""
    at = next((n for n, each in enumerate(events) if isinstance(each, e.CollaborationEnded)), None)
    if at is None:
        return
    end, before, behind = events[at], events[:at], events[at + 1 :]
    path = end.path
    last = state.last_children.get(path)
    counted = LastChild("", "", "") if last is None or last.run_id != end.run_id else last
    used = (each.use for each in before if isinstance(each, e.ModelUsed) and each.path == path)
    common: dict[str, Any] = {
        "path": path,
        "attempt": state.attempts.get(path, state.steps[path].attempt if path in state.steps else 0),
        "tool_calls": counted.calls + end.tool_calls,
        "used": tuple(budget.build_usage_report(each, counted) for each in used),
        "told": tuple(_guess_news_of_child(path, before)),
        "senders": end.senders,
        "run_id": end.run_id,
    }
    for event in behind:
        if getattr(event, "path", None) != path:
            continue
        if isinstance(event, e.StepFinished):
            yield c.ChildEnded(**common, status="finished", output=event.output)
            return
        if isinstance(event, e.StepFailed | e.StepRetried):
            error = event.error
            if error.code == "run.failed":
                yield c.ChildEnded(**common, status="failed", error=error.cause)
            yield c.ChildEnded(**common, status="stopped", reason=TIMED_OUT)
            reason = error.message.partition(" was stopped: ")[2].removesuffix(".")
            yield c.ChildEnded(**common, status="stopped", reason=reason)
            return
    yield c.ChildEnded(**common, status="stopped")


def _guess_news_of_child(path: str, events: Sequence[Any]) -> Iterator[Any]:
    """News of the run below the step, with its own paths."""
    for event in events:
        if isinstance(event, e.ChildAsked):
            opened = msgspec.structs.replace(event.opened, path=event.opened.path.removeprefix(f"{path}/"))
            yield msgspec.structs.replace(event, opened=opened, path="")
        elif isinstance(event, e.ChildSaid | e.ChildStepped | e.ChildShared) and event.path.startswith(path):
            yield msgspec.structs.replace(event, path=event.path[len(path) + 1 :])


def _child_told(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    yield from _child_ended(state, events)
    turn = next((each for each in events if isinstance(each, e.TurnStarted)), None)
    for path, attempt in state.attempts.items():
        if path not in state.children:
            continue
        news = tuple(_guess_news_of_child(path, events))
        moved = next((each for each in events if isinstance(each, e.ChildMoved) and each.path == path), None)
        if news:
            yield c.ChildTold(
                path=path,
                attempt=attempt,
                told=news,
                working=None if moved is None else moved.working,
                turn=_turn(turn),
                state=_build_state_of_post(events),
                used=() if moved is None else moved.used,
                tool_calls=0 if moved is None else moved.tool_calls,
                senders=() if moved is None else moved.senders,
            )


def _child_moved(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    if event.path in state.attempts:
        yield c.ChildMoved(
            path=event.path,
            attempt=state.attempts[event.path],
            working=event.working,
            used=event.used,
            tool_calls=event.tool_calls,
            senders=event.senders,
        )


def _stop_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    if event.terminated:
        yield c.Terminate(by=event.by, reason=event.reason)


def _guess_stopping(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    yield c.Stop(by=event.by, reason=event.reason, inherited=event.inherited, heir=event.heir)


def _skip_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    if event.by is not None:
        yield c.Skip(by=event.by, path=event.path, output=event.output, reason=event.reason, again=True)


def _retry_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    event = events[0]
    if event.awaited is None:
        yield c.Retry(by=event.by, again=True)
    else:
        yield c.RetryChild(by=event.by, awaited=event.awaited)


def _guess_jump_commands(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    ms = sum(each.ms for each in events if isinstance(each, e.TimeJumped))
    yield c.Jump(by=events[0].by, ms=ms)


def _guess_attention(state: RunState, events: Sequence[Any]) -> Iterator[c.Command]:
    if events[0].path == "":
        yield c.NeedAttention(reason=events[0].reason)


_READERS: Final[Mapping[type[e.Event], Read]] = {
    e.RunStarted: _start_commands,
    e.TurnStarted: _guess_turn_answer_commands,
    e.VoteCast: _answer_commands,
    e.PendingEdited: _answer_commands,
    e.PendingDecided: _answer_commands,
    e.ToolCallResolved: _answer_commands,
    e.StateChanged: _answer_commands,
    e.ModelUsed: _used,
    e.PartsMade: _used,
    e.CollaborationEnded: _child_ended,
    **dict.fromkeys((e.ChildAsked, e.ChildSaid, e.ChildStepped, e.ChildShared), _child_told),
    e.StepFinished: _guess_success_commands,
    e.SignalsAwaited: _guess_success_commands,
    e.StepFailed: _guess_failure_commands,
    e.StepRetried: _guess_failure_commands,
    e.WarningRaised: _guess_traced_failures,
    e.StepStopped: _guess_cancelled_commands,
    e.PendingOpened: _guess_question_commands,
    e.PeoplePicked: _guess_picks,
    e.CollaborationStarted: _guess_checked_children,
    e.SignalReceived: _guess_signal_commands,
    e.ChildMoved: _child_moved,
    e.RunPaused: lambda _, events: [c.Pause(by=events[0].by, reason=events[0].reason)],
    e.RunResumed: lambda _, events: [c.Resume(by=events[0].by)],
    e.RunStopping: _guess_stopping,
    e.RunStopped: _stop_commands,
    e.RunRetried: _retry_commands,
    e.WorkTakenBack: lambda state, events: [c.TakeBack(heir=events[0].heir, seized=state.ended)],
    e.StepSkipped: _skip_commands,
    e.TimeJumped: _guess_jump_commands,
    e.RunNeedsAttention: _guess_attention,
}
STREAMED: Final = (
    e.MessageStarted | e.MessageChunk | e.MessageEnded | e.ToolCallStarted | e.ToolCallArgsChunk | e.CustomEmitted
)
"""Events that the holder of a run writes while an effect streams, without a decision."""
_ELSEWHERE: Final = (
    e.Forked | e.Migrated | e.ChildAsked | e.ChildSaid | e.ChildStepped | e.ChildShared | e.CollaborationEnded
    | e.SignalReceived | e.WarningRaised | e.StepStopped | e.RunNeedsAttention | e.StepFailed | e.StepRetried
)  # fmt: skip
"""Where these events are, the log does not hold the run's command in full: it needs the log of another run, another
plan, news of the runs below, places of signals, or errors of attempts that were cut off."""
