"""Folds of questions to people and their answers, and of signals."""

from __future__ import annotations

from bisect import insort
from typing import Any

from msgspec.structs import replace

from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following, remove_entry, remove_timers, waiting, with_step, without, working
from hai_flow.engine.state.instigators import read_senders, with_senders
from hai_flow.engine.state.state import Map, PendingState, RunState, TakenSignal, Timer, is_heard


def pending_opened(state: RunState, event: e.PendingOpened) -> RunState:
    step = state.steps[event.path]
    changes: dict[str, Any] = {}
    of_step: dict[str, Any] = {"asked": step.asked + 1}
    if step.attempt and event.kind == "gate":  # which has performed nothing
        of_step |= {"attempt": 0, "past": max(step.attempt, step.past), "approval": None, "reading": False}
    if event.kind in ("doubt", "gate") or event.inquiry is not None:  # the attempt is over, though not the call
        changes["attempts"] = remove_entry(state.attempts, event.path)
        changes["timeouts"] = remove_entry(state.timeouts, event.path)
    return following(
        state,
        event,
        steps=waiting(state, event, event.path, **of_step),
        pendings=state.pendings.set(event.id, PendingState(event, since=event.at)),
        open_pendings=state.open_pendings.set(event.path, event.id),
        ready=without(state.ready, event.path),
        **changes,
    )


def _pending(state: RunState, id: str, **changes: Any) -> Map[str, PendingState]:
    return state.pendings.set(id, replace(state.pendings[id], **changes))


def vote_cast(state: RunState, event: e.VoteCast) -> RunState:
    votes = (*state.pendings[event.id].votes, event)
    return following(state, event, pendings=_pending(state, event.id, votes=votes))


def pending_edited(state: RunState, event: e.PendingEdited) -> RunState:
    opened = as_edited(state.pendings[event.id].opened, event)
    return following(state, event, pendings=_pending(state, event.id, opened=opened, edits=event.edits))


def as_edited(opened: e.PendingOpened, event: e.PendingEdited) -> e.PendingOpened:
    """The question with the arguments, and the words, that the edit gives it."""
    texts = {"title": event.title or opened.title, "message": event.message or opened.message}
    return replace(opened, args=event.args, digest=event.digest, **texts)


def pending_escalated(state: RunState, event: e.PendingEscalated) -> RunState:
    pending = state.pendings[event.id]
    escalated = _pending(
        state,
        event.id,
        opened=replace(pending.opened, policy=event.policy, deadline=event.deadline),
        since=event.began,
        reminded=0,
        escalations=(*pending.escalations, event),
    )
    return following(state, event, pendings=escalated, timers=remove_timers(state, event.path))


def pending_reminded(state: RunState, event: e.PendingReminded) -> RunState:
    return following(state, event, pendings=_pending(state, event.id, reminded=event.n))


def people_picked(state: RunState, event: e.PeoplePicked) -> RunState:
    opened = state.pendings[event.id].opened
    policy = {**(opened.policy or {}), "picked": list(event.people), "pick_note": event.note}
    return following(state, event, pendings=_pending(state, event.id, opened=replace(opened, policy=policy)))


def pending_restamped(state: RunState, event: e.PendingRestamped) -> RunState:
    """Votes on the question as it was are votes on it as it is."""
    pending = state.pendings[event.id]
    before, bound = pending.opened.digest, event.digest
    votes = tuple(replace(vote, digest=bound) if vote.digest == before else vote for vote in pending.votes)
    opened = replace(pending.opened, digest=bound)
    return following(state, event, pendings=_pending(state, event.id, opened=opened, votes=votes))


def pending_decided(state: RunState, event: e.PendingDecided) -> RunState:
    """The step goes on: behind a gate with the arguments that were decided upon, and the decision."""
    pending = replace(
        state.pendings[event.id],
        status=event.outcome,
        by=event.by,
        on_behalf_of=event.on_behalf_of,
        at=event.at,
        value=event.value,
        reason=event.reason,
        answer_sha=event.answer_sha,
    )
    path = pending.opened.path
    if event.ready and pending.opened.inquiry is None:
        steps = working(state, event, path, approval=event.value, args=pending.opened.args)
    else:
        steps = working(state, event, path)
    return _pending_closed(state, event, pending, steps=steps, ready=(*state.ready, *event.ready))


def pending_voided(state: RunState, event: e.PendingVoided) -> RunState:
    pending = replace(state.pendings[event.id], status="voided", at=event.at, reason=event.reason)
    return _pending_closed(state, event, pending)


def _pending_closed(state: RunState, event: e.Event, pending: PendingState, **changes: Any) -> RunState:
    path = pending.opened.path
    return following(
        state,
        event,
        pendings=state.pendings.set(pending.opened.id, pending),
        open_pendings=state.open_pendings.delete(path),
        timers=remove_timers(state, path),
        subscriptions=state.subscriptions.delete(path) if path in state.subscriptions else state.subscriptions,
        **changes,
    )


def signals_awaited(state: RunState, event: e.SignalsAwaited) -> RunState:
    path = event.path
    subscriptions = state.subscriptions.set(path, event.types) if event.types else state.subscriptions.delete(path)
    if path in state.open_pendings:  # it waits for people, and these signals would take its question back
        return following(state, event, subscriptions=subscriptions)
    steps = waiting(state, event, path, output=event.output)
    after = following(state, event, steps=steps, subscriptions=subscriptions)
    if path not in state.attempts:
        return after
    return replace(after, attempts=state.attempts.delete(path), timeouts=remove_entry(state.timeouts, path))


def signal_received(state: RunState, event: e.SignalReceived) -> RunState:
    received = (*state.steps[event.path].received, event)
    return following(
        state,
        event,
        steps=with_step(state, event.path, received=received),
        subscriptions=state.subscriptions.set(event.path, event.awaits),
        senders=with_senders(state.senders, read_senders(event.by)),
        **record_signal(state, event),
    )


def record_signal(state: RunState, event: e.SignalReceived) -> dict[str, Any]:
    """The changes by which the run remembers that it has taken a signal: by its id, or by how far it has heard."""
    signals = state.signals.set(event.id, TakenSignal(event.name, event.own, event.place))
    before = state.heard.get(event.name)
    if before is None and event.heard is None:
        return {"signals": signals}
    before, news = before or e.Heard(), event.heard or e.Heard()
    missed = tuple(id for id in (*before.left, *news.left) if id != event.id)
    heard = e.Heard(max(before.to_all, news.to_all), max(before.own, news.own), missed)
    covered = [id for id, signal in signals.items() if signal.type == event.name and is_heard(heard, signal)]
    remaining = signals.mutate()
    for id in covered:
        del remaining[id]
    return {"signals": remaining.finish(), "heard": state.heard.set(event.name, heard)}


def timer_set(state: RunState, event: e.TimerSet) -> RunState:
    timers = list(state.timers)
    insort(timers, Timer(event.due, event.path, event.kind))
    changes: dict[str, Any] = {"timers": tuple(timers)}
    if event.kind == "wait":
        changes["steps"] = waiting(state, event, event.path)
    return following(state, event, **changes)


def timer_fired(state: RunState, event: e.TimerFired) -> RunState:
    timers = tuple(t for t in state.timers if not (t.path == event.path and t.kind == event.kind))
    ready = (*state.ready, event.path) if event.kind == "retry" else state.ready
    return following(state, event, timers=timers, ready=ready)


def time_jumped(state: RunState, event: e.TimeJumped) -> RunState:
    halted = ("halting_deadline",) if state.status == "paused" else ()
    still = {timer.path for timer in state.timers if timer.kind in halted}
    moved = (timer if timer.kind in halted else replace(timer, due=timer.due - event.ms) for timer in state.timers)
    pendings = state.pendings
    for path, id in state.open_pendings.items():
        pendings = pendings.set(id, later(pendings[id], -event.ms, halted=path in still))
    return following(state, event, timers=tuple(sorted(moved)), pendings=pendings)


def later(pending: PendingState, ms: int, *, halted: bool = False) -> PendingState:
    """The pending as if it had been opened so much later; a deadline that is `halted` stays."""
    deadline = pending.opened.deadline
    if deadline is not None and not halted:
        pending = replace(pending, opened=replace(pending.opened, deadline=deadline + ms))
    return replace(pending, since=pending.since + ms)
