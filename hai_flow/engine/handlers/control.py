"""An operator controls the run: pause, resume, retry, skip, migrate."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on
from hai_flow.engine.draft import Draft
from hai_flow.engine.due import pass_time
from hai_flow.engine.handlers.replies import refuse_now, run_outcome
from hai_flow.engine.pendings import bypass, open
from hai_flow.engine.pendings.withdrawing import withdraw_unwanted
from hai_flow.engine.runs import children, migrate
from hai_flow.engine.state import run_size
from hai_flow.engine.steps import concurrency_slots, retry, skipping, wait_for_event
from hai_flow.errors import Rejected
from hai_flow.values import Json

FINISHED: Final = "run_finished"
"""The code with which a child refuses to be retried that has finished meanwhile."""


def _pause(draft: Draft, command: c.Pause) -> Json:
    status = draft.state.status
    if status == "paused":
        draft.already = True
        return run_outcome(draft)
    if status not in ("queued", "running", "waiting"):
        raise refuse_now(draft, "pause")
    draft.emit(e.RunPaused, by=command.by, reason=command.reason)
    children.pass_down(draft, "pause", command.by, command.reason)
    go_on(draft)
    return run_outcome(draft)


def _resume(draft: Draft, command: c.Resume) -> Json:
    if draft.state.status != "paused":
        if draft.state.status not in ("queued", "running", "waiting"):
            raise refuse_now(draft, "resume")
        draft.already = True
        return run_outcome(draft)
    status = "running" if draft.state.turn_open else "queued" if draft.state.slot else "waiting"
    draft.emit(e.RunResumed, by=command.by, status=status)
    if status == "queued":
        concurrency_slots.wait(draft)
    children.pass_down(draft, "resume", command.by)
    if status != "queued":
        pass_time(draft, draft.clock, since=draft.clock)
        go_on(draft)
    return run_outcome(draft)


def _retry(draft: Draft, command: c.Retry) -> Json:
    status = draft.state.status
    if status not in ("failed", "needs_attention"):
        if status in ("queued", "running", "waiting", "paused"):
            draft.already = True
            return run_outcome(draft)
        raise refuse_now(draft, "retry")
    _demand_own(draft)
    _go_on_from_failure(draft, command)
    return _on_again(draft, was=status)


def _retry_child(draft: Draft, command: c.RetryChild) -> Json:
    parent, status = draft.state.parent, draft.state.status
    if parent is None:
        raise Rejected(409, "run_no_child", f"run {draft.state.run_id} is no child: no run waits for it.")
    if parent.attempt >= command.awaited.attempt:
        draft.already = True
        return run_outcome(draft)
    if status == "finished":
        raise Rejected(409, FINISHED, f"run {draft.state.run_id} has finished.")
    if status not in ("failed", "stopped"):  # it was cut off, and has not come to its end yet
        raise Rejected(503, "run_active", f"run {draft.state.run_id} is {status}; it can go on when it has ended.")
    _go_on_from_failure(draft, command, command.awaited)
    return _on_again(draft, was="failed")


def _demand_own(draft: Draft) -> None:
    """Raises `Rejected` 409 where the run is a child that has ended: nobody waits for it any more, so nobody would hear
    how it goes on."""
    parent = draft.state.parent
    if draft.state.status == "failed" and parent is not None:
        root = children.root_of(parent)
        detail = (
            f"run {parent.run_id} has started this one, at its step {parent.path}, and does not wait for it any more. "
            f"Retry {root}: that goes on down here, and nothing is done twice."
        )
        raise Rejected(409, "run_not_awaited", detail, winner={"run_id": root})


def _go_on_from_failure(
    draft: Draft, command: c.Retry | c.RetryChild | c.Skip, awaited: e.Awaited | None = None
) -> None:
    """A run that failed, was stopped with the run above it, or needs attention, goes on from there. Raises `Rejected`:
    409 where its log is full or a fork has acted on its approval, 403 where the caller may not have asked anew what is
    asked then. (What the run above has retried was judged there, where it knows the questions below.)"""
    status = draft.state.status
    redo: tuple[str, ...] = ()
    if not isinstance(command, c.RetryChild):
        bypass.demand_unspent(draft, command)
    if draft.state.ended and run_size.used(draft.state, draft.log_bytes, draft.limits) >= 1:
        detail = "the run's log is full; it can't go on. Start another run."
        raise Rejected(409, "run_full", detail, winner={"status": status, "seq": draft.state.seq})
    if draft.state.ended:
        redo = retry.to_redo(draft.plan, draft.state)
        frontier = retry.retry_frontier(draft, redo)
        if not isinstance(command, c.RetryChild) and not command.again:
            skipped = draft.plan.ids.get(command.path, command.path) if isinstance(command, c.Skip) else None
            bypass.demand_retry(draft, command, (*frontier.ready, *redo), but=skipped)
    else:
        lost, ready = draft.state.steps, draft.state.ready
        running = [path for path in ready if path in lost and lost[path].status == "running"]
        frontier = retry.Frontier(running, list(ready))
    draft.emit(e.RunRetried, by=command.by, redo=redo, awaited=awaited, **frontier.fields())


def _on_again(draft: Draft, *, was: str) -> Json:
    """A run that was reopened goes on, as soon as there is a slot for it: its end has freed the one that it had."""
    if was == "failed" and draft.state.key is not None:
        concurrency_slots.queue(draft)
        return run_outcome(draft)
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    pass_time(draft, draft.clock, since=draft.clock)
    go_on(draft)
    return run_outcome(draft)


def _skip(draft: Draft, command: c.Skip) -> Json:
    status = draft.state.status
    if status not in ("running", "waiting", "paused", "failed", "needs_attention"):
        raise refuse_now(draft, "skip a step of")
    if status in ("failed", "needs_attention"):
        _demand_own(draft)
        _go_on_from_failure(draft, command)
    step = skipping.examine(draft, command)
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    skipping.skip(draft, step, command)
    if status in ("failed", "needs_attention"):
        return {**_on_again(draft, was=status), "path": step.path}
    go_on(draft)
    return {**run_outcome(draft), "path": step.path}


def _migrate(draft: Draft, command: c.Migrate) -> Json:
    plan, state = command.to, draft.state
    if state.sha256 == plan.sha256.hex():
        draft.already = True
        return run_outcome(draft)
    migrate.move(
        draft,
        draft.plan,
        to=plan,
        by=command.by,
        paths=command.paths,
        dev=command.dev,
        pins=command.pins,
        who=c.caller(command),
    )
    for pending in migrate.list_bound_pendings(draft.state):
        open.restamp(draft, pending)
    draft.move_to(plan)
    wait_for_event.await_other_withdrawals(draft)
    before = len(draft.events)
    withdraw_unwanted(draft)
    if len(draft.events) > before:
        go_on(draft)
    return run_outcome(draft)


RULES: Final = {
    c.Pause: _pause,
    c.Resume: _resume,
    c.Retry: _retry,
    c.RetryChild: _retry_child,
    c.Skip: _skip,
    c.Migrate: _migrate,
}
