"""A fork: a run that begins as another one was when it waited.

Its log begins with that run's events, as if they were its own: pendings and tool calls are called by the fork's ids,
and whatever finished there is finished here, never done again. Then comes `forked`, and with it everything that could
not be taken over:

* votes that were cast on open questions, and digests: people gave them to another run;
* clocks, which have as long to go as they had there;
* children, which are started anew, and subscriptions.

A run is forked where it waits, behind the end of a turn. Nothing is in flight there, so nothing is in doubt. Where a
call was approved and had yet to be performed (again), it is not: that approval is for one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from hai_flow.definition.paths import is_undo, undone_by
from hai_flow.engine import children, pendings, signals
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft
from hai_flow.engine.ids import call_prefix
from hai_flow.engine.state import RunState
from hai_flow.errors import Rejected


def take_over(draft: Draft, command: c.Fork) -> None:
    """The run is there, and is as the other one was. Raises `Rejected` 409 where that can't be gone on with."""
    of = str(command.of)
    draft.take_over(tuple(_renamed(command.events, of, draft.state.run_id)))
    _demand_rest(draft.state, of)
    _demand_unspent(draft, command, of)
    draft.emit(e.Forked, of=of, copied=len(command.events), by=command.answer.by.id)


def make_own(draft: Draft) -> None:
    """Open questions and waits are this run's from here on. To be called when the answers have been read, which may
    name digests that the other run has shown."""
    for id in sorted(draft.state.open_pendings.values()):
        pendings.restamp(draft, draft.state.pendings[id])
    signals.subscribe_again(draft)
    children.start_anew(draft)


def undone_in(state: RunState) -> tuple[str, ...]:
    """The steps that a run has undone, or is about to, since its last Retry."""
    undoing = {path for path in (*state.ready, *state.steps) if is_undo(path)}
    begun = {undone_by(path) for path in undoing}
    return tuple(sorted({*state.undone, *state.undo_failed, *begun}))


def answer_of(command: c.Fork) -> c.Answer:
    """The answer by the ids that its pendings have in the fork."""
    old, new = call_prefix(str(command.of)), call_prefix(str(command.run_id))
    answers = tuple(msgspec.structs.replace(each, id=_said(each.id, old, new)) for each in command.answer.answers)
    return msgspec.structs.replace(command.answer, answers=answers)


_IDS: Final = ("id", "tool_call_id", "message_id", "parent_message_id")


def _renamed(events: Sequence[e.Event], of: str, run_id: str) -> Iterator[e.Event]:
    """`events` with the ids of pendings and tool calls as they are in the run `run_id`. Messages keep theirs, by which
    the thread knows them."""
    old, new = call_prefix(of), call_prefix(run_id)
    for event in events:
        said = {name: getattr(event, name, None) for name in _IDS}
        changed = {name: _said(id, old, new) for name, id in said.items() if isinstance(id, str) and id.startswith(old)}
        yield msgspec.structs.replace(event, **changed) if changed else event


def _said(id: str, old: str, new: str) -> str:
    return new + id.removeprefix(old) if id.startswith(old) else id


def _demand_rest(state: RunState, of: str) -> None:
    if state.parent is not None:
        raise Rejected(
            409, "fork_of_child", f"run {of} is the child of run {state.parent.run_id}: only that one can be forked."
        )
    if state.status != "waiting" or state.turn_open:
        what = "in the middle of a turn" if state.turn_open else state.status
        raise Rejected(
            409,
            "fork_not_waiting",
            f"run {of} was {what} at its event {state.seq}; it can be forked where a turn ended and it waited.",
        )


def _demand_unspent(draft: Draft, command: c.Fork, of: str) -> None:
    """That everything taken over still holds, and that no permission is used a second time."""
    state = draft.state
    undone = sorted(path for path in command.undone if path in state.undoables)
    if undone:
        raise Rejected(
            409,
            "fork_undone",
            f"run {of} has undone {', '.join(undone)} since then; a fork would go on as if that were done.",
        )
    for path, known in sorted(state.steps.items()):
        if not path or known.status not in ("running", "waiting"):
            continue
        step = draft.step(path)
        if step.approval is not None and pendings.approved_gate(state, step) is not None:
            raise Rejected(
                409,
                "fork_approved",
                f"{path} was approved in run {of} and not finished then; what people approve they approve for one run.",
            )
