"""Folds by which a run goes on as another one: under another version, or as a fork."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hai_flow.definition import paths
from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following
from hai_flow.engine.evolve.pendings import later
from hai_flow.engine.state.instigators import list_people_behind
from hai_flow.engine.state.state import Map, PendingState, RunState


def apply_migration(state: RunState, event: e.Migrated) -> RunState:
    """The same run under another plan: renamed paths, and nothing else."""
    if event.paths:
        state = _rename_paths(state, event.paths)
    return following(
        state,
        event,
        version=event.version,
        sha256=event.sha256,
        dev=event.dev,
        pins={**state.pins, **event.pins},
        input=state.input if event.input is None else event.input,
        state=state.state if event.state is None else event.state,
    )


def _rename_paths(state: RunState, moved: dict[str, str]) -> RunState:
    """`state` with every path in it as the new plan has it."""

    def new(path: str) -> str:
        return paths.rename_path(path, moved)

    def keys(mapping: Map[str, Any]) -> Map[str, Any]:
        return Map({new(path): value for path, value in mapping.items()})

    def all_of(found: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(new, found))

    def opened(pending: PendingState) -> PendingState:
        return replace(pending, opened=replace(pending.opened, path=new(pending.opened.path)))

    def entry(known: Any) -> Any:
        return known if known.path is None else replace(known, path=new(known.path))

    return replace(
        state,
        steps=keys(state.steps),
        attempts=keys(state.attempts),
        timers=tuple(sorted(replace(timer, path=new(timer.path)) for timer in state.timers)),
        timeouts=keys(state.timeouts),
        pendings=Map({id: opened(pending) for id, pending in state.pendings.items()}),
        open_pendings=keys(state.open_pendings),
        messages=Map({id: entry(message) for id, message in state.messages.items()}),
        open_messages=Map({id: new(path) for id, path in state.open_messages.items()}),
        tool_calls=Map({id: entry(call) for id, call in state.tool_calls.items()}),
        last_message=keys(state.last_message),
        subscriptions=keys(state.subscriptions),
        children=keys(state.children),
        relayed=Map({id: replace(each, path=new(each.path)) for id, each in state.relayed.items()}),
        idle=all_of(state.idle),
        below=keys(state.below),
        ready=all_of(state.ready),
        inside=Map({new(path): all_of(children) for path, children in state.inside.items()}),
        undoables=keys(state.undoables),
        undone=all_of(state.undone),
        undo_failed=all_of(state.undo_failed),
        redo=all_of(state.redo),
        inherited_steps=all_of(state.inherited_steps),
        left=keys(state.left),
        owed=all_of(state.owed),
        expenses=Map({id: replace(each, path=new(each.path)) for id, each in state.expenses.items()}),
    )


def apply_fork(state: RunState, event: e.Forked) -> RunState:
    passed = event.at - state.at
    pendings = state.pendings
    for id in state.open_pendings.values():
        pendings = pendings.set(id, replace(later(pendings[id], passed), votes=()))
    assert state.turn is not None
    return following(
        state,
        event,
        requester=event.by,
        instigators=list_people_behind(state.requester, state.instigators),
        input=state.input if event.input is None else event.input,
        last_children=Map(),  # they are the other run's
        running_since=None if state.running_since is None else state.running_since + passed,
        paused_at=None if state.paused_at is None else state.paused_at + passed,
        pendings=pendings,
        timers=tuple(replace(timer, due=timer.due + passed) for timer in state.timers),
        forked=state.turn.n,
        key=state.key if event.key is None else event.key or None,
        granted=Map(),  # no child of the other run tells the fork its end
    )
