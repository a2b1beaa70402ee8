"""`concurrency`: a run that waits until a slot of its key is free (docs/design/store.md#slots). The engine counts no
slots: a run that must wait says so in the outbox, as does one that ends, and delivery keeps the queue. A paused run
holds its slot; one in the queue is passed over. A workflow with `on_message: enqueue` says in the same way that its
thread is free."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.state import RunState

AWAIT: Final = "await_slot"
FREED: Final = "slot_freed"
THREAD_FREED: Final = "thread_freed"


def queue(draft: Draft, *, cancels: bool = False) -> None:
    """The run waits for a slot of its key. `cancels`: the runs that hold it longest are stopped for it."""
    assert draft.state.key is not None, "who waits for a slot has a key"
    draft.end_turn("queued")
    draft.emit(e.RunQueued, slot=draft.state.key)
    wait(draft, cancels=cancels)


def wait(draft: Draft, *, cancels: bool = False) -> None:
    """Say that the run waits. Saying so twice changes nothing."""
    concurrency = draft.plan.concurrency
    seats = 1 if concurrency is None else concurrency.limit
    body = {"key": draft.state.slot, "seats": seats, "cancels": cancels, "since": draft.now}
    draft.send(AWAIT, draft.state.run_id, body)


def _compute_key_of_its_version(draft: Draft) -> str | None:
    """The key under which the run counts since it was moved to another version of its workflow."""
    plan, key = draft.plan, draft.state.key
    is_own = key is None or key.startswith(f"{plan.name}:")
    if plan.concurrency is None or draft.state.parent is not None or not is_own:
        return None
    try:
        return f"{plan.name}:{draft.text(plan.concurrency.key, None)}"
    except Raised:
        return None


def tell_freed(draft: Draft, before: RunState) -> None:
    """The end of a run frees its slot, or its place in the queue, and its thread for a message that waits."""
    state = draft.state
    if not state.ended or before.ended:
        return
    for key in dict.fromkeys((state.key, _compute_key_of_its_version(draft))):
        if key is not None:
            draft.send(FREED, state.run_id, {"key": key})
    if draft.plan.on_message == "enqueue" and state.parent is None:
        draft.send(THREAD_FREED, state.run_id, {"thread": state.thread_id})
