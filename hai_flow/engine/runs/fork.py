"""A fork: a run that begins as another one was at one of its events (docs/decisions/0064). Its log begins with that
run's events, with pendings and tool calls under ids of its own; then comes `forked`. Votes on open questions and
digests stay behind, since people gave them to another run; clocks have as long to go as they had there; children are
started anew. A run is forked where nothing is in flight and everything that followed was drawn: at the end of a commit,
or in front of a step that began; not between a call's approval and its performance, nor behind an `approve`, but at the
end of a turn where nothing is edited and no run has acted on the approval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from hai_flow.definition.checks.question_guards import acts
from hai_flow.definition.paths import is_undo, plan_path, undone_by
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.pendings import bypass, gates, open
from hai_flow.engine.runs import children, migrate
from hai_flow.engine.state import shared_state
from hai_flow.engine.state.ids import call_prefix
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.instigators import list_people_behind
from hai_flow.engine.state.jobs import next_ready, open_attempts
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps import wait_for_event
from hai_flow.errors import Rejected
from hai_flow.values import Json


def take_over(draft: Draft, command: c.Fork) -> None:
    """Begin the new run in the state of the other one, with the edits. Raises `Rejected`: 409 where that state can't be
    gone on with, 422 where an edit does not fit."""
    of, edits = str(command.of), command.edits
    plan = draft.plan if edits is None or edits.was is None else edits.was
    draft.take_over(tuple(_rename_ids(command.events, of, draft.state.run_id)))
    refused = obstacle(
        plan, draft.state, command.following, command.undone, of=of, edited=edits is not None, acted=command.acted
    )
    if refused is not None:
        raise refused
    _demand_people_are_heard(draft, plan, command)
    if command.behind:
        _add_instigators(draft, command.behind)
    input = None if edits is None else _check_input(draft.plan, edits)
    draft.emit(e.Forked, of=of, copied=len(command.events), by=command.answer.by.id, input=input, key=command.key or "")
    draft.end_turn("paused" if draft.state.status == "paused" else "waiting")
    if edits is not None and edits.state is not msgspec.UNSET:
        shared_state.edit(draft, edits.state)
    if edits is not None and edits.was is not None:
        migrate.move(draft, edits.was, by=command.answer.by.id, paths=edits.paths, dev=edits.dev, pins=edits.pins)
        draft.move_to(draft.plan)
        wait_for_event.await_other_withdrawals(draft)


def _add_instigators(draft: Draft, people: tuple[str, ...]) -> None:
    """Let these people be behind the run, too, from its first event on."""
    first, state = draft.events[0], draft.state
    assert isinstance(first, e.RunStarted), "a log begins so"
    draft.events[0] = replace(first, instigators=list_people_behind("", people, first.instigators))
    draft.state = replace(state, instigators=list_people_behind("", people, state.instigators))


def _demand_people_are_heard(draft: Draft, plan: Plan, command: c.Fork) -> None:
    """Raises `Rejected` where the fork would lead its requester around a question, or back in front of a no: 403 or
    409."""
    who, edits = command.answer.by, command.edits
    bypass.demand_fork(
        plan,
        draft.state,
        who,
        command.rejected,
        edited=edits is not None,
        values=_find_changed_values(draft.plan, draft.state, edits),
        to=draft.plan,
        below=command.below,
    )
    if edits is not None and edits.was is not None:
        less = migrate.find_less_asked(edits.was, draft.plan, draft.state, who, edits.paths)
        if less:
            raise migrate.refuse_migration(draft.plan, less)


def _find_changed_values(plan: Plan, there: RunState, edits: c.Edits | None) -> frozenset[str]:
    """Of `input` and `state` those that the fork begins with otherwise than the run was `there`."""
    if edits is None:
        return frozenset()
    state = edits.state if isinstance(edits.state, dict) else {}
    edited = set[str]()
    if edits.input is not msgspec.UNSET and plan.input.with_defaults(edits.input) != there.input:
        edited.add("input")
    if any(name not in there.state or there.state[name] != value for name, value in state.items()):
        edited.add("state")
    return frozenset(edited)


def _check_input(plan: Plan, edits: c.Edits) -> Json:
    """The other input, as an event has it; None: it is as it was. Raises `Rejected` 422 if it does not fit."""
    if edits.input is msgspec.UNSET:
        return None
    input = plan.input.with_defaults(edits.input)
    findings = plan.input.fit(input)[1]
    if findings or not isinstance(input, dict):
        message = f"the input does not fit workflow {plan.name}@{plan.version}."
        raise Rejected(422, "input.invalid", message, findings=findings)
    return input


def make_own(draft: Draft) -> None:
    """Open questions and waits are this run's from here on. To be called when the answers have been read, which may
    name digests that the other run has shown."""
    for id in sorted(draft.state.open_pendings.values()):
        open.restamp(draft, draft.state.pendings[id])
    wait_for_event.subscribe_again(draft)
    children.start_anew(draft)


def list_undone(state: RunState) -> tuple[str, ...]:
    """The steps that a run has undone, or is about to, since its last Retry."""
    undoing = {path for path in (*state.ready, *state.steps) if is_undo(path)}
    undone = {undone_by(path) for path in undoing}
    return tuple(sorted({*state.undone, *state.undo_failed, *undone}))


def find_first_effects(plan: Plan, events: Iterable[tuple[int, e.Event]]) -> dict[str, int]:
    """The steps that the events of a run of `plan` (each with its seq) began to perform and that change the world, each
    with the last seq at which they did. What a run cleans up when it is left to its heir is none of them."""
    first_seqs, handed_over = dict[str, int](), False
    for seq, event in events:
        if isinstance(event, e.RunStopping):
            handed_over = event.heir is not None
        elif isinstance(event, e.WorkTakenBack):
            handed_over = False
        elif isinstance(event, (e.StepStarted, e.AttemptStarted)) and event.attempt and not handed_over:
            step = plan.steps.get(plan_path(event.path))
            if step is None or acts(step):  # a step of an older version, of which nothing is known, counts
                first_seqs[event.path] = seq
    return first_seqs


def refuse_overtaken(now: RunState) -> Rejected:
    """The refusal of a fork whose run was stopped meanwhile, and has not left its work to it."""
    what = "is being" if now.status == "stopping" else "was"
    whom = f"for run {now.heir.run_id}, which goes on with its work" if now.heir else "and undoes its work itself"
    detail = f"run {now.run_id} {what} stopped meanwhile, {whom}; look at the thread, and fork what is active there."
    winner = {"run_id": now.heir.run_id if now.heir else now.run_id}
    return Rejected(409, "fork_overtaken", detail, winner=winner)


def demand_left(now: RunState, run_id: str, inherited: e.Inherited | None) -> None:
    """Raises Rejected 409 unless the run, as it is now, was stopped for the run `run_id` and has left to it its work so
    far."""
    seq = 0 if inherited is None else inherited.seq
    if now.heir is None or now.heir.run_id != run_id or now.left_at != seq:
        raise refuse_overtaken(now)


def list_steps_finished_by(events: Sequence[e.Event], seq: int) -> set[str]:
    """The steps that had finished within the first `seq` events."""
    return {each.path for each in events[:seq] if isinstance(each, e.StepFinished)}


def inheritance(there: RunState) -> e.Inherited | None:
    """How far a fork goes on with a run that was `there`, for the stop of that run."""
    if there.turn is None:
        return None
    if not there.turn.open:
        return e.Inherited(there.turn.n, there.seq)
    paths = {path for path, step in there.steps.items() if step.turn == there.turn.n}
    return e.Inherited(there.turn.n - 1, there.seq, tuple(sorted({"", *paths})))  # "": the document's own `finally`


def answer_of(command: c.Fork) -> c.Answer:
    """The answer by the ids that its pendings have in the fork."""
    old, new = call_prefix(str(command.of)), call_prefix(str(command.run_id))
    answers = tuple(replace(each, id=_renamed_id(each.id, old, new)) for each in command.answer.answers)
    return replace(command.answer, answers=answers)


_IDS: Final = ("id", "tool_call_id", "message_id", "parent_message_id")


def _rename_ids(events: Sequence[e.Event], of: str, run_id: str) -> Iterator[e.Event]:
    """`events` with the ids of pendings and tool calls as they are in the run `run_id`. Messages keep theirs, by which
    the thread knows them."""
    old, new = call_prefix(of), call_prefix(run_id)
    for event in events:
        ids = {name: getattr(event, name, None) for name in _IDS}
        changed = {
            name: _renamed_id(id, old, new) for name, id in ids.items() if isinstance(id, str) and id.startswith(old)
        }
        yield replace(event, **changed) if changed else event


def _renamed_id(id: str, old: str, new: str) -> str:
    return new + id.removeprefix(old) if id.startswith(old) else id


def obstacle(
    plan: Plan,
    state: RunState,
    following: e.Event | None,
    undone: Sequence[str] = (),
    *,
    of: str = "",
    edited: bool = False,
    acted: Sequence[str] = (),
) -> Rejected | None:
    """Why a run of `plan` that was in `state` can't be forked there; None: it can. `following` as in the command; `of`
    is its id; `edited`: the fork would begin with something else than the run had there; `acted` as in the command."""
    of = of or state.run_id
    for code, detail in (
        _explain_unrest(state, following),
        _explain_spent(plan, state, edited=edited, acted=acted),
        _explain_promised_elsewhere(state),
        _undone(state, undone),
    ):
        if code:
            return Rejected(409, code, f"run {of}{detail}")
    return None


_FREE: Final = ("", "")
_FORKABLE: Final = ("running", "waiting", "paused")
_BEGINNINGS: Final = (
    e.StepStarted,
    e.AttemptStarted,
    e.StepSkipped,
    e.StepFailed,
    e.StepReopened,
    e.IterationStarted,
)
"""The first event of a step that begins, goes on with its next attempt, or fails when it should."""


def begins(state: RunState, following: e.Event) -> str | None:
    """The step that begins with the event, if it does: everything that followed from the ones before it was drawn. A
    run that takes longer than its limit fails steps that were ready, too."""
    path = next_ready(state)
    if path is None or path == RUN_END or not isinstance(following, _BEGINNINGS) or following.path != path:
        return None
    if isinstance(following, e.StepFailed) and following.error.code == "limit.duration":
        return None
    return path


def _explain_unrest(state: RunState, following: e.Event | None) -> tuple[str, str]:
    if state.parent is not None:
        return "fork_of_child", f" is the child of run {state.parent.run_id}: only that one can be forked."
    if state.status not in _FORKABLE:
        was = "had not begun" if state.status in ("new", "queued") else f"was {state.status}"
        return "fork_ended", f" {was} at its event {state.seq}; it can be forked where it could go on."
    flying = sorted(open_attempts(state))
    if flying:
        return "fork_in_flight", f" was performing {', '.join(flying)} at its event {state.seq}: nobody knows how far."
    between_turns = state.status in ("waiting", "paused") and not state.turn_open
    if following is not None and not between_turns and begins(state, following) is None:
        return "fork_unsettled", f" was in the middle of a decision at its event {state.seq}."
    return _FREE


def _explain_spent(plan: Plan, state: RunState, *, edited: bool, acted: Sequence[str]) -> tuple[str, str]:
    """The obstacle where an approval would count for the fork as well, if there is one."""
    waited = state.status == "waiting" and not state.turn_open
    place = bypass.find_approval(state)
    if place is not None and (edited or not waited):
        return (
            "fork_approved",
            f" was approved at {place}; what people approve they approve for one run, so it is forked before that, "
            "or where it waited behind it and nothing is edited.",
        )
    again = sorted({*acted, *state.children})  # a fork starts the runs below anew, whatever they have done
    if place is not None and again:
        return (
            "fork_approved",
            f" was approved at {place}, and {', '.join(again)} was begun on that approval, here or in a fork; what "
            "people approve they approve for one run, so it is forked before that, and they are asked anew.",
        )
    for path, step_state in sorted(state.steps.items()):
        if not path:
            continue
        if step_state.status not in ("running", "waiting"):
            continue
        step = resolve_step(plan, path)
        if step.approval is not None and gates.find_last_approved_gate(state, step) is not None:
            detail = f": {path} was approved and not finished; what people approve they approve for one run."
            return "fork_approved", detail
    return _FREE


def _explain_promised_elsewhere(state: RunState) -> tuple[str, str]:
    for path, types in sorted(state.subscriptions.items()):
        if any(type.startswith(wait_for_event.CALLBACK) for type in types):
            return "fork_callback", f" waited for a callback at {path}, which comes to that run alone."
    return _FREE


def _undone(state: RunState, undone: Sequence[str]) -> tuple[str, str]:
    """The obstacle where the other run has undone a step since then, if it has."""
    gone = sorted(path for path in undone if path in state.undoables)
    if gone:
        return "fork_undone", f" has undone {', '.join(gone)} since then; a fork would go on as if that were done."
    return _FREE
