"""Folds of signals that a step waits for."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following, remove_entry, waiting, with_step
from hai_flow.engine.state.instigators import with_senders
from hai_flow.engine.state.state import RunState, TakenSignal, is_heard


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
        senders=with_senders(state.senders, () if event.by is None else (event.by,)),
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
