"""What would have become of a recorded run under another plan (`hai-flow backtest`). Pure.

The verdict goes by what is certain first: the run would fail; it asks more people or fewer; it comes to an effect of
which nothing is recorded, so nobody can tell; or it takes another path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import msgspec

from hai_flow.definition.paths import plan_path
from hai_flow.definition.plan import Plan
from hai_flow.engine.runs.migrate import MOVABLE, Obstacle, examine
from hai_flow.engine.runs.rehearsal import (
    Asking,
    Pairing,
    Recording,
    RunRehearsal,
    Trace,
    TraceMark,
    list_open_effects,
    move_origin,
)
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected

Kind: TypeAlias = Literal["same", "path", "people", "fails", "unknown"]
KINDS: Final[tuple[Kind, ...]] = ("same", "path", "people", "fails", "unknown")
"""The same; another path; asks more or fewer people; would fail; can't be told, because an effect is new."""


class Verdict(msgspec.Struct, frozen=True):
    """What would have become of one run. `step` is the first that differs ("" is the run), `recorded` and `now` what
    it did and would do. `more` and `fewer`: the questions that would be asked besides, or no more. `reason`: the error
    with which it would fail, or why it can't be told."""

    kind: Kind
    step: str = ""
    recorded: str = ""
    now: str = ""
    more: tuple[Asking, ...] = ()
    fewer: tuple[Asking, ...] = ()
    reason: str = ""


def pair_plans(old: Plan, new: Plan) -> Pairing:
    """The pairing of a run's plan with the new one, which counts as a version of the same workflow: neither its name
    nor its number is a difference."""
    return Pairing(old, replace(new, name=old.name, version=old.version))


def rehearse(recording: Recording, pairing: Pairing, limits: Bounds = DEFAULT_BOUNDS) -> Verdict:
    """Decide the recorded inputs again under the new plan of the pairing. Raises `Rejected` for a run that begins
    behind a fork or a migration, and could not be there under the new plan."""
    recorded = recording.trace if pairing.old is pairing.new else recording.trace.rename(pairing.rename)
    origin = recording.origin
    if origin is not None:
        origin, obstacle = move_origin(origin, pairing)
        if origin is None:
            raise Rejected(409, "migration_refused", obstacle)
    rehearsal = RunRehearsal(pairing, recording.state.run_id, recorded, limits, recording.sources, origin)
    rehearsal.play(recording.inputs, recording.state)
    return _judge(rehearsal, recorded, recording.state, pairing)


def is_faithful(recording: Recording, plan: Plan, limits: Bounds = DEFAULT_BOUNDS) -> bool:
    """Whether the inputs that were read off the log lead where it does, under the run's own plan."""
    return recording.exact or rehearse(recording, Pairing(plan, plan), limits).kind == "same"


def list_obstacles(recording: Recording, pairing: Pairing, now: int) -> tuple[Obstacle, ...] | None:
    """The obstacles to a move of the run to the new plan; None: it does not wait, or an attempt is in flight."""
    state = recording.state
    if state.status not in MOVABLE or state.attempts:
        return None
    return examine(pairing.old, pairing.new, state, {}, now).obstacles


def _judge(rehearsal: RunRehearsal, recorded: Trace, end: RunState, pairing: Pairing) -> Verdict:
    state, marks = rehearsal.state, rehearsal.trace.marks
    if "" in rehearsal.refused:
        return Verdict("fails", "", "begins", "does not begin", reason=rehearsal.refused[""])
    if marks == recorded.marks:
        return Verdict("same")
    step, was, now = _find_first_difference(recorded.marks, marks)
    more, fewer = _compare_questions(rehearsal, recorded, pairing.new)
    kind: Kind = "path"
    reason = ""
    unknown = list(_explain_unknown(rehearsal, end, pairing))
    if state.status == "failed" and end.status != "failed" and state.error is not None:
        kind, reason = "fails", f"{state.error.code}: {state.error.message}"
    elif more or fewer:
        kind = "people"
    elif unknown:
        kind, reason = "unknown", "; ".join(unknown)
    return Verdict(kind, step, was, now, more, fewer, reason)


def _find_first_difference(recorded: list[TraceMark], marks: list[TraceMark]) -> tuple[str, str, str]:
    """The step, what it did, and what it would do."""
    at = next((n for n, pair in enumerate(zip(recorded, marks, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(recorded), len(marks)) if at is None else at
    was = recorded[at] if at < len(recorded) else None
    now = marks[at] if at < len(marks) else None
    step = now.path if now is not None else "" if was is None else was.path
    if was is not None and now is not None and was[:2] == now[:2]:
        return step, was.words, f"{now.words}, with other content"
    return step, _tell(was, step), _tell(now, step)


def _tell(mark: TraceMark | None, step: str) -> str:
    if mark is None:
        return "nothing more happens"
    return mark.words if mark.path == step else f"{mark.path or 'the run'} {mark.words}"


def _compare_questions(
    rehearsal: RunRehearsal, recorded: Trace, plan: Plan
) -> tuple[tuple[Asking, ...], tuple[Asking, ...]]:
    """(asked besides, asked no more). A question to which the run has not come is not one that is asked no more."""
    before, after = Counter(recorded.questions), Counter(rehearsal.trace.questions)
    more = tuple((after - before).elements())
    places = {question.path for question in more}
    state = rehearsal.state
    fewer = [
        question
        for question in (before - after).elements()
        if state.ended or question.path in places or _is_passed(state, plan, question.path)
    ]
    return more, tuple(fewer)


def _is_passed(state: RunState, plan: Plan, path: str) -> bool:
    """Whether the run will not come to a question at this step any more: there is none, or the step is done, or its
    effect has begun."""
    step, progress = plan.steps.get(plan_path(path)), state.steps.get(path)
    if step is None or (step.approval is None and step.verb_name not in ("ask", "approve")):
        return True
    return progress is not None and (progress.attempt > 0 or progress.outcome is not None)


def _explain_unknown(rehearsal: RunRehearsal, end: RunState, pairing: Pairing) -> Iterable[str]:
    """Why the run can't be followed further: an effect has no recorded result, or an answer does not fit."""
    state = rehearsal.state
    waited_for = {pairing.rename(path) for path in list_open_effects(end)}
    for path in sorted(set(list_open_effects(state))):
        if path in rehearsal.refused:
            yield rehearsal.refused[path]
        elif path not in waited_for:
            yield f"{path} has no recorded result"
    for path, reason in rehearsal.refused.items():
        id = state.open_pendings.get(path)
        if id is not None and state.pendings[id].opened.kind != "tool":
            yield reason
