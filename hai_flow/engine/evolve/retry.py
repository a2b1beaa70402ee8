"""Folds of a Retry: blocks that are opened again, and steps that run once more."""

from __future__ import annotations

from msgspec.structs import replace

from hai_flow.definition import paths
from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import derive_phase, following, with_handler, without
from hai_flow.engine.evolve.run import derive_status
from hai_flow.engine.state.state import Item, LoopState, RunState, StepState


def run_retried(state: RunState, event: e.RunRetried) -> RunState:
    awaited = event.awaited
    if awaited is not None:
        assert state.parent is not None, "only a child is awaited"
        parent = replace(state.parent, attempt=awaited.attempt)
        state = replace(state, parent=parent, allowance=awaited.allowance, stop_by="", stop_reason="")
    after = _open_blocks_again(state, event)
    if awaited is not None and awaited.timeout is not None:
        after = replace(after, timeouts=after.timeouts.set("", state.compute_working_time(event.at) + awaited.timeout))
    return following(
        after,
        event,
        **derive_status(state, event),
        ready=event.ready,
        ended_at=None,
        error=None,
        failure=None,
        undone=(),
        undo_failed=(),
        redo=event.redo,
        redone=state.redone or bool(event.redo),
        retried=state.retried + 1,
        retried_by=event.by,
    )


def step_reopened(state: RunState, event: e.StepReopened) -> RunState:
    ready = (*without(state.ready, event.path), *event.ready)
    return following(_open_blocks_again(state, event), event, ready=ready)


def _open_blocks_again(state: RunState, event: e.RunRetried | e.StepReopened) -> RunState:
    """`state` with the blocks open again that the event names."""
    steps, timeouts = state.steps, state.timeouts
    for path in event.reopened:
        step = steps[path]
        loop = None if step.loop is None else _open_loop_again(step, step.loop, path, (*event.ready, *event.reopened))
        changed = replace(
            step,
            phase=derive_phase(event, step, "working"),
            outcome=None,
            begun=(),
            replaced=None,
            error=None,
            ending=None,
            lost=0,
            dropped=0,
            left=event.branches.get(path, step.left),
            loop=loop,
        )
        steps = steps.set(path, changed)
        if step.timeout is not None:
            timeouts = timeouts.set(path, state.compute_working_time(event.at) + step.timeout)
    for path, handler in event.handling.items():
        steps = steps.set(path, _handling(event, steps[path], handler))
    return replace(state, steps=steps, timeouts=timeouts)


def _handling(event: e.Event, step: StepState, handler: str) -> StepState:
    """The step with a `catch` or its `finally` at work again."""
    phase = derive_phase(event, step, "handling")
    if handler == paths.FINALLY:
        outcome = "handled" if step.done is None and step.outcome == "failed" else step.done or step.outcome
        handlers = with_handler(step, handler)
        return replace(step, phase=phase, outcome=outcome, begun=handlers, replaced=None, error=None)
    return replace(step, phase=phase, outcome="handled", begun=(handler,), ending=None)


def _open_loop_again(step: StepState, loop: LoopState, path: str, begun_again: tuple[str, ...]) -> LoopState:
    """The loop as it goes on: unfinished iterations begin again, some of them now (they are `begun_again`). In a loop
    that was over no other iteration begins again: a failure in it is data. An agent that has failed behind
    its last answer goes on with the next one, and has as many more as `max_turns` allows."""
    if not loop.keys:
        behind = step.error is not None and paths.iteration(path, loop.last + 1) in begun_again
        return replace(loop, since=loop.last + 1) if behind else loop
    over = "finished" in (step.outcome, step.done)
    now = paths.collect_keys(begun_again, path)
    results = loop.results.mutate()
    again: list[str] = []
    for key in loop.keys[: loop.begun]:
        if key in results and (over or results[key].status == "finished") and key not in now:
            continue
        results.pop(key, None)
        if key not in now:
            again.append(key)
    started = loop.begun
    if over:  # a `break` has left the loop: an iteration that never began does not begin now
        results.update({key: Item("stopped") for key in loop.keys[started:]})
        started = len(loop.keys)
    while started < len(loop.keys) and loop.keys[started] in now:
        started += 1
    items = results.finish()
    return replace(loop, results=items, begun=started, ended=len(items), again=tuple(again))
