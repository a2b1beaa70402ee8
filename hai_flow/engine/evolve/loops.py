"""Folds of iterations, and of their records in their loop."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hai_flow.definition import paths
from hai_flow.definition.paths import is_inside, loop_of
from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import add_inside, derive_phase, with_step, without
from hai_flow.engine.state.state import Item, Json, LoopState, Map, RunState, StepState

AGENT: Final = "agent"
AGENT_CALLS: Final = "agent_calls"


def begin_loop(state: RunState, event: e.StepStarted, before: StepState | None) -> LoopState:
    """A loop that begins; a `repeat` or an agent that begins anew counts its iterations on."""
    if event.verb in ("for_each", AGENT_CALLS):
        return LoopState(event.items, event.keys, len(event.ready))
    last = -1 if before is None or before.loop is None else before.loop.last
    return LoopState(begun=last + 1, last=last, entries=state.entries if event.verb == AGENT else 0)


def iteration_started(state: RunState, event: e.IterationStarted) -> RunState:
    path = event.path
    loop = loop_of(path)
    loop_state = state.steps[loop].loop
    assert loop_state is not None
    if not loop_state.keys:  # a `repeat`: the iteration before is over, and `steps.X` means this one
        if 0 <= loop_state.last != event.index and state.steps[loop].verb != AGENT:
            state = replace(state, **_remove_iteration(state, paths.iteration(loop, loop_state.last)))
        state = replace(state, steps=with_step(state, loop, loop=replace(loop_state, last=event.index)))
    phase = derive_phase(event, state.steps.get(path), "working")
    return replace(
        state,
        seq=state.seq + 1,
        at=event.at,
        steps=state.steps.set(path, StepState(phase, event.at, "iteration", event.turn, index=event.index)),
        inside=add_inside(state, path),
        ready=(*without(state.ready, path), *event.ready),
    )


def iteration_ended(state: RunState, event: e.IterationEnded) -> RunState:
    path = loop_of(event.path)
    loop = state.steps[path].loop
    assert loop is not None
    key = paths.key_of(event.path)
    changed = loop
    if loop.keys:
        started = paths.collect_keys(event.ready, path)
        again = tuple(each for each in loop.again if each not in started) if loop.again else ()
        begun_count = loop.begun + len(event.ready) - (len(loop.again) - len(again))
        results = loop.results.set(key, Item(event.status, event.output, event.error))
        changed = replace(loop, begun=begun_count, ended=loop.ended + 1, again=again, results=results)
    elif event.output is True:
        changed = replace(loop, closing=True)
    before = state.steps.get(event.path)
    step_state = StepState("pending", event.at) if before is None else before
    phase = derive_phase(event, before, "over")
    ended = replace(step_state, phase=phase, outcome=event.status, error=event.error, ending=None)
    after = replace(
        state,
        seq=state.seq + 1,
        at=event.at,
        steps=with_step(state, path, loop=changed).set(event.path, ended),
        inside=add_inside(state, event.path),
        ready=(*without(state.ready, event.path), *event.ready),
    )
    keeps_steps = not loop.keys or event.status != "finished" or state.steps[path].verb == AGENT_CALLS
    return after if keeps_steps else replace(after, **_remove_iteration(after, event.path))


def build_loop_output(loop: LoopState) -> list[Json]:
    """The output of a `for_each`: the outcome of each item, in their order."""
    none = Item("stopped")
    items = ((key, loop.results.get(key, none)) for key in loop.keys)
    return [
        {
            "key": paths.unescape(key),
            "status": item.status,
            "output": item.output,
            "error": None if item.error is None else msgspec.to_builtins(item.error),
        }
        for key, item in items
    ]


def close_loop(state: RunState, path: str, loop: LoopState) -> RunState:
    """A `for_each` that has finished needs none of its iterations any more, nor its items; unless something in it may
    yet be undone, and be done again. An agent that has finished is not asked any more."""
    verb = state.steps[path].verb
    if verb == AGENT:
        for number in range(loop.begun, loop.last + 1):
            state = replace(state, **_remove_iteration(state, paths.iteration(path, number)))
        return state
    if verb == AGENT_CALLS or not loop.keys or any(is_inside(each, path) for each in state.undoables):
        return state
    for key in loop.keys:
        iteration = paths.iteration(path, key)
        if iteration in state.steps:
            state = replace(state, **_remove_iteration(state, iteration))
    return replace(state, steps=with_step(state, path, loop=replace(loop, items=[], results=Map())))


def _remove_iteration(state: RunState, iteration: str) -> dict[str, Any]:
    """The changes that forget an iteration and everything in it; none if something in it could yet be undone, or if it
    is of a handler: that may run once more after a Retry, and its attempts are counted on."""
    if paths.is_in_handler(iteration) or (state.undoables and _has_undoable_inside(state, iteration)):
        return {}
    steps, inside, last_children = state.steps.mutate(), state.inside.mutate(), state.last_children
    waiting = [iteration]
    while waiting:
        path = waiting.pop()
        steps.pop(path, None)
        waiting.extend(inside.pop(path, ()))
        if path in last_children:
            last_children = last_children.delete(path)
    return {"steps": steps.finish(), "inside": inside.finish(), "last_children": last_children}


def _has_undoable_inside(state: RunState, iteration: str) -> bool:
    return any(path in state.undoables or _has_undoable_inside(state, path) for path in state.inside.get(iteration, ()))
