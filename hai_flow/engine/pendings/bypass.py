"""Passing a question by other means than an answer: a skip, a retry, a fork, a rerun or a migration could lead around
it, or back in front of one that was answered with no. So what people decide is passed by those alone who may decide it;
never by the requester or the people behind the run where these may not, and never after a no. A run that failed behind
an approval goes on by nobody's command once a fork has acted on it. The same holds for steps, input and variables that
decide whether people are asked, or whom. An operator may pass what only the requester is asked. docs/passing.md has
every case, and each is tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hai_flow.definition.checks.asked_people import Asks, asks, collect_asks, collect_runs, find_policy
from hai_flow.definition.checks.question_guards import (
    collect_guards,
    find_questions_that_read,
    find_unguarded_step,
    is_guarded_by_arguments,
    question_behind,
)
from hai_flow.definition.diff import to_plain
from hai_flow.definition.paths import is_inside, plan_path, rename_path
from hai_flow.definition.plan import BLOCKS, Approve, Ask, Plan, Run, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.eligibility import Obstacle, describe_deciders, ids_of, ineligible, obstacle, world_of
from hai_flow.engine.pendings.gates import find_last_approved_gate
from hai_flow.engine.pendings.policies import fill_rules
from hai_flow.engine.pendings.selectors import REQUESTER, World, list_excluding_selectors, list_matching_selectors
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.ids import pending_of
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.invisible_characters import compose

_VOTED_ON: Final = ("approve", "gate")


def demand_skip(draft: Draft, step: Step, command: c.Skip) -> None:
    """Raises `Rejected` unless the caller may skip the step: 403 where that would pass a question which others decide,
    409 where they have said no."""
    who = c.caller(command)
    _demand_no_say_in_what_is_asked(draft, step, who, command.below)
    if isinstance(step.verb, (Run, *BLOCKS)):
        _demand_nothing_asked_inside(draft, step, command)
    pending = _find_last(draft.state, step.path)
    if pending is None:
        pending = _before_it_is_asked(draft, step)
    if pending is None or pending.opened.kind == "doubt" or pending.opened.inquiry is not None:
        return
    if find_last_approved_gate(draft.state, step) is not None:
        return  # the people said yes; what failed is the call
    said_no = refusers(pending)
    if said_no is not None:
        detail = f"{said_no} has said no at {step.path}; what was rejected is not skipped. {_ANEW}"
        raise Rejected(409, "skip.rejected", detail, winner={"seq": draft.state.seq})
    world = world_of(draft.plan, draft.state)
    fault = _find_obstacle_to_sole_approval(pending, who, world)
    if fault is None or (command.output is None and _is_for_requester_alone(pending)):
        return
    detail = f"{step.path} asks people, and {who.id} can't skip it: {fault.reason}. {describe_deciders(pending)}"
    raise Rejected(403, "skip.forbidden", detail)


def _demand_no_say_in_what_is_asked(draft: Draft, step: Step, who: c.Principal, below: tuple[str, ...] | None) -> None:
    """Raises `Rejected` 403 where the result of the step decides whether people are asked, or whom, and the caller is
    the requester or behind the run. A step that asks people has rules of its own."""
    if asks(step) is not Asks.NOBODY or not _is_of_the_request(who, world_of(draft.plan, draft.state)):
        return
    question = question_behind(draft.plan, plan_path(step.path), below)
    if question is not None:
        detail = (
            f"what {step.path} gives decides whether people are asked at {question}, and {who.id} is behind this run"
        )
        raise Rejected(403, "skip.forbidden", f"{detail}; somebody else must skip it.")


def demand_settlement(draft: Draft, pending: PendingState, who: c.Principal) -> None:
    """Raises `Rejected` 403 where a requester or instigator settles a call in doubt with a result that decides about a
    question, as in a skip with an output. To have it done again, or let it fail, is theirs. Where the server knows
    nobody, there is nobody else."""
    if who.id == c.LOCAL_PRINCIPAL.id:
        return
    path = pending.opened.path
    question = question_behind(draft.plan, plan_path(path), ())
    if question is not None and _is_of_the_request(who, world_of(draft.plan, draft.state)):
        detail = f"what {path} gave decides whether people are asked at {question}, and {who.id} is behind this run"
        raise Rejected(403, "pending_forbidden", f"{detail}; somebody else must tell it. The question is still open.")


_ANEW: Final = "Somebody else that its rules let decide may retry the run: then they are asked anew."


def demand_retry(draft: Draft, command: c.Retry | c.Skip, again: Sequence[str], *, but: str | None = None) -> None:
    """Raises `Rejected` 403 where the steps that begin `again` would ask anew what was answered with no, and the caller
    may not. `but`: the step that is skipped, for which there is a rule of its own."""
    who, world = c.caller(command), world_of(draft.plan, draft.state)
    refused = [
        (path, pending)
        for path, pending in find_rejected(draft.state)
        if path != but and any(path == each or is_inside(path, each) for each in again)
    ]
    for path, pending in refused:
        _demand_anew(path, pending, who, world, "retry.forbidden", "retry the run")
    if not refused and _has_rejecting_end(draft.state.error) and _is_of_the_request(who, world):
        detail = f"a run below was rejected, and {who.id} can't have it asked anew: {world.requester} started this run"
        raise Rejected(403, "retry.forbidden", f"{detail}, or is behind it; somebody else must retry it.")


def demand_unspent(draft: Draft, command: c.Retry | c.Skip) -> None:
    """Raises `Rejected` 409 where another run has acted on an approval on which this one would go on."""
    if command.acted and not command.again:
        place = find_approval(draft.state) or "a step before"
        detail = (
            f"run {draft.state.run_id} was approved at {place}, and {', '.join(command.acted)} was begun on that "
            "approval in a fork of it, or in a run that it was forked from; what people approve they approve for one "
            "run. Fork it before that, and they are asked anew."
        )
        raise Rejected(409, "retry_approved", detail, winner={"seq": draft.state.seq})


def _has_rejecting_end(error: e.Error | None) -> bool:
    while error is not None and error.cause is not None:
        error = error.cause
    return error is not None and error.code == "approval.rejected"


def demand_fork(
    plan: Plan,
    there: RunState,
    who: c.Principal,
    rejected: Iterable[tuple[str, PendingState]],
    *,
    edited: bool = False,
    values: frozenset[str] = frozenset(),
    to: Plan | None = None,
    below: tuple[str, ...] | None = None,
) -> None:
    """Raises `Rejected` 403 where a fork of the run as it was `there` would ask anew what is `rejected` now, keep an
    answer to another input (`edited`), or begin with other `values` (of `input`, `state`) that decide whether people
    are asked, and the caller may not. `plan` is that of the run, `to` that of the fork if it is another; `below` as in
    `Fork`."""
    world = world_of(plan, there)
    if values and _is_of_the_request(who, world):
        _demand_no_value_in_what_is_asked(plan, there, who, values, below)
        if to is not None and to is not plan:
            _demand_no_value_in_what_is_asked(to, there, who, values, None)
    for pending in there.questions.values() if edited else ():
        if pending.opened.kind == "ask" and _has_let_through(pending) and not _is_for_requester_alone(pending):
            fault = ineligible(pending, who, world)
            if fault is not None:
                path = pending.opened.path
                detail = f"people have answered {path}, and {who.id} can't keep their answer for something else"
                raise Rejected(
                    403, "fork.forbidden", f"{detail}: {fault.reason}. {describe_deciders(pending)} Or fork it before."
                )
    for path, pending in rejected:
        if not _is_past(there, path):
            _demand_anew(path, pending, who, world, "fork.forbidden", "go on in front of it")


def _demand_no_value_in_what_is_asked(
    plan: Plan, there: RunState, who: c.Principal, values: frozenset[str], below: tuple[str, ...] | None
) -> None:
    """Raises `Rejected` 403 where a question that is yet to come depends on one of these values."""
    for question in find_questions_that_read(plan, values, below):
        if not _is_past(there, question):
            detail = (
                f"the {' and the '.join(sorted(values))} of the run decide whether people are asked at {question}, and "
                f"{who.id} is behind this run"
            )
            raise Rejected(403, "fork.forbidden", f"{detail}; somebody else must edit it, or you start another run.")


def _is_past(state: RunState, path: str) -> bool:
    """Whether the run has been at the question and is behind it: the innermost step of its own around it is over."""
    while path:
        step_state = state.steps.get(path)
        if step_state is not None:
            return step_state.phase == "over" and path not in state.ready
        path = path[: path.rindex("[")] if path.endswith("]") else path.rpartition("/")[0]
    return False


def _demand_anew(path: str, pending: PendingState, who: c.Principal, world: World, code: str, what: str) -> None:
    fault = ineligible(pending, who, world)
    if fault is not None:
        detail = f"{refusers(pending)} has said no at {path}, and {who.id} can't {what}: {fault.reason}"
        raise Rejected(403, code, f"{detail}. {describe_deciders(pending)} Or start another run.")


def find_rejected(state: RunState) -> list[tuple[str, PendingState]]:
    """The questions of the run and of the runs below it that were last answered with no, or have a vote that says no,
    with the paths at which the run asks them (again)."""
    return list_last_rejected((*state.pendings.values(), *(each.pending for each in state.relayed.values())))


def list_last_rejected(pendings: Iterable[PendingState]) -> list[tuple[str, PendingState]]:
    """Of these questions those which were the last at their path, and have a no."""
    last: dict[str, PendingState] = {}
    for pending in pendings:
        before = last.get(pending.opened.path)
        if before is None or before.opened.at <= pending.opened.at:
            last[pending.opened.path] = pending
    return [(path, each) for path, each in last.items() if refusers(each) is not None]


SKIPPED: Final = "it was skipped"
"""Why a question is void whose step a person has skipped."""


def find_approval(state: RunState) -> str | None:
    """The step at which the run was let go on by an `approve`: one of its own that was approved or skipped, also in an
    iteration that is over, or one of a run below that has finished. None: there is none."""
    for path, step in sorted(state.steps.items()):
        if step.verb == "approve" and (step.outcome == "finished" or (step.outcome == "skipped" and step.given)):
            return path
    gone = (each for each in state.pendings.values() if each.opened.path not in state.steps)
    below = (
        each.pending
        for each in state.relayed.values()
        if each.path not in state.steps or state.steps[each.path].outcome == "finished"
    )
    for pending in (*gone, *below):
        if pending.opened.kind == "approve" and _has_let_through(pending):
            return pending.opened.path
    return None


def _has_let_through(pending: PendingState) -> bool:
    if pending.status == "voided":
        return pending.reason == SKIPPED
    return pending.status not in ("open", votes.REJECT)


def refusers(pending: PendingState) -> str | None:
    """Who has said no to the question, if somebody has."""
    voters = [votes.voter(each) for each in pending.votes if each.decision == votes.REJECT]
    if voters:
        return ", ".join(dict.fromkeys(voters))
    return pending.by if pending.status == votes.REJECT else None


def list_obstacles_to_move(
    old: Plan, new: Plan, state: RunState, who: c.Principal, paths: dict[str, str]
) -> Iterable[tuple[str, str]]:
    """The steps that ask people in the old version, and that the requester, or who is behind the run, can't have asked
    otherwise by moving to the new one: (path, why). Nothing for other people."""
    world = world_of(old, state)
    if not _is_of_the_request(who, world):
        return
    for step in old.steps.values():
        waits_for_run = isinstance(step.verb, Run) and not step.verb.detach  # in which people may decide
        if asks(step) is not Asks.DECIDERS and not waits_for_run:
            continue
        moved = new.steps.get(rename_path(step.path, paths))
        what = None
        if moved is None:
            what = "is not there"
        elif _describe_way_of_asking(new, moved) != _describe_way_of_asking(old, step):
            what = "asks otherwise there"
        elif (without := find_unguarded_step(old, step, new, moved, paths)) is not None:
            what = f"is not asked there in front of {without}"
        if what is not None:
            yield step.path, f"{step.path} {what}; {who.id} is behind this run, so somebody else must move it."


def _describe_way_of_asking(plan: Plan, step: Step) -> object:
    when = None if step.approval is None else step.approval.when
    arguments = to_plain(step.verb) if isinstance(step.verb, Run) or is_guarded_by_arguments(step) else None
    return asks(step), to_plain(find_policy(step)), to_plain(when), arguments, collect_guards(plan, step)


# --- who may ----------------------------------------------------------------------------------------------------------


def _demand_nothing_asked_inside(draft: Draft, step: Step, command: c.Skip) -> None:
    """A block, or a run below, in which people decide is not skipped as a whole: nobody can tell what they would be
    asked. Raises `Rejected` 403."""
    place = plan_path(step.path)
    inside = collect_asks(draft.plan, place)
    below = command.asks_below and bool(collect_runs(draft.plan, place))
    if inside is Asks.DECIDERS or below or (inside is Asks.REQUESTER and command.output is not None):
        where = "the run below it" if isinstance(step.verb, Run) else "a run below it" if below else "it"
        detail = f"{step.path} is not skipped as a whole, for people decide in {where}"
        raise Rejected(403, "skip.forbidden", f"{detail}; they decide when they are asked, or you stop the run.")


def _find_last(state: RunState, path: str) -> PendingState | None:
    """The question that the step has open, or had open last."""
    if path in state.open_pendings:
        return state.pendings[state.open_pendings[path]]
    step_state = state.steps.get(path)
    return pending_of(state, path, step_state.asked - 1) if step_state is not None and step_state.asked else None


def _before_it_is_asked(draft: Draft, step: Step) -> PendingState | None:
    """The question that the step would ask, as far as its rules go; None: it asks nobody."""
    policy = find_policy(step)
    if policy is None:
        return None
    kind = "approve" if isinstance(step.verb, Approve) else "ask" if isinstance(step.verb, Ask) else "gate"
    try:
        rules = fill_rules(draft, step, policy, {"args": {}} if kind == "gate" else {}, may_exclude=kind != "ask")
    except Raised as raised:
        detail = f"{step.path} asks people, and can't be skipped before it does: {raised.message}"
        raise Rejected(403, "skip.forbidden", detail) from None
    opened = e.PendingOpened(at=draft.now, id="", path=step.path, kind=kind, digest="", policy=votes.to_json(rules))
    return PendingState(opened)


def _find_obstacle_to_sole_approval(pending: PendingState, who: c.Principal, world: World) -> Obstacle | None:
    """Why an approval by this person would not decide the question, or None."""
    fault = obstacle(pending, who, world)
    if fault is not None or pending.opened.kind not in _VOTED_ON:
        return fault
    rules = derive_rules(pending)
    vote = e.VoteCast(
        at=pending.opened.at,
        id=pending.opened.id,
        by=who.id,
        on_behalf_of=who.on_behalf_of,
        decision=votes.APPROVE,
        digest=pending.opened.digest,
        matched=list_matching_selectors(rules.selectors(), who, world),
        barred=list_excluding_selectors(rules.exclusions(), who, world),
    )
    after = PendingState(pending.opened, votes=(*pending.votes, vote))
    if votes.verdict(rules, after) == votes.APPROVE:
        return None
    return Obstacle("quorum", "it takes more people than one")


def _is_for_requester_alone(pending: PendingState) -> bool:
    """Whether it asks the requester and nobody else, and nothing but an answer of theirs goes on behind it."""
    return pending.opened.kind != "approve" and derive_rules(pending).from_ == (REQUESTER,)


def _is_of_the_request(who: c.Principal, world: World) -> bool:
    people = map(compose, (*ids_of(who), *who.through))
    return not set(map(compose, (world.requester, *world.instigators))).isdisjoint(people)
