"""`parallel`: branches side by side, of which all have to finish, or the first, or some: a race."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import paths
from hai_flow.definition.plan import Parallel, Step
from hai_flow.engine import events as e
from hai_flow.engine.block_results import collect_results
from hai_flow.engine.blocks.block import Block, BlockPlaces, Hindrance
from hai_flow.engine.completion.consequences import Consequence, End, FailStep, FinishStep
from hai_flow.engine.completion.open_steps import is_open_inside
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.retry_policy import UNDO_FAILED
from hai_flow.engine.state.state import Ending, StepState
from hai_flow.values import Json


def begin(draft: Draft, step: Step) -> None:
    branches = step.verb_as(Parallel).branches
    draft.pure_steps += 1
    draft.record_start(step, branches=len(branches), ready=tuple(first for _, first in branches))


def list_done(draft: Draft, step: Step, body: str) -> Consequence | None:
    draft.emit(e.BranchEnded, path=step.path, branch=body)
    _end_those_over(draft, step)
    joined, won = draft.state.steps[step.path], _winners(draft, step)
    if won:
        try:
            output = _build_race_output(draft, step, won)
        except Raised as raised:
            error = draft.error(raised.code, raised.message, step.path)
            return End(step, Ending("failed", error=error, reason=f"branch {', '.join(won)} won"))
        return End(step, Ending("finished", output, reason=f"branch {', '.join(won)} won"))
    return _finish(draft, step, won) if joined.left == 0 else None


def behind(draft: Draft, step: Step) -> Consequence | None:
    if not draft.state.steps[step.path].verb:
        return None
    _end_those_over(draft, step)
    won = _winners(draft, step)
    return _finish(draft, step, won)


def _end_those_over(draft: Draft, step: Step) -> None:
    """End the branches of a race that came to their end while it was cut off: a Retry counts them."""
    if step.verb_as(Parallel).wanted is not None:
        winners = draft.state.steps[step.path].winners
        for name, first in step.verb_as(Parallel).branches:
            if name not in winners and _is_over(draft, first):
                draft.emit(e.BranchEnded, path=step.path, branch=name)


def _is_over(draft: Draft, first: str) -> bool:
    """Whether all steps of a branch are over, and well."""
    path: str | None = first
    while path is not None:
        step, step_state = draft.step(path), draft.state.steps.get(path)
        if step_state is None or step_state.status not in ("finished", "skipped"):
            return False
        # its cleanup may have ended behind the race, which then heard nothing of it
        cleans_up = step_state.phase != "over"
        if cleans_up and (step.finally_ is None or not _is_over(draft, step.finally_)):
            return False
        path = step.next
    return True


def _finish(draft: Draft, step: Step, won: list[str]) -> Consequence:
    try:
        return FinishStep(step, _build_race_output(draft, step, won))
    except Raised as raised:
        return FailStep(step, draft.error(raised.code, raised.message, step.path))


def _winners(draft: Draft, step: Step) -> list[str]:
    """The branches that have won the race; none where it goes on, or is none."""
    needed = step.verb_as(Parallel).wanted
    if needed is None:
        return []
    finished = _list_branches_done(draft, step, draft.state.steps[step.path])
    return finished[:needed] if len(finished) >= needed else []


def _build_race_output(draft: Draft, step: Step, won: list[str]) -> Json:
    """The output: the winners, none where all have to finish; and the results of the branches that have finished.
    Raises `Raised`."""
    verb = step.verb_as(Parallel)
    output: dict[str, Json] = {"winner": None}
    if won:
        output = {"winner": won[0]} if verb.join == "any" else {"winners": won}
    if not verb.results:
        return output
    output["results"] = collect_results(draft, step, verb.results, won or verb.results)
    if verb.join == "any" and won and won[0] in verb.results:
        output["result"] = output["results"][won[0]]
    return output


def child_failed(draft: Draft, step: Step, child: Step, error: e.Error) -> Consequence | None:
    joined, needed, branch = draft.state.steps[step.path], step.verb_as(Parallel).wanted, child.body
    if needed is not None and len(joined.winners) < needed and error.code != UNDO_FAILED:
        draft.emit(e.BranchEnded, path=step.path, branch=branch, failed=True)
        joined = draft.state.steps[step.path]
        finished = len(_list_branches_done(draft, step, joined))
        if finished + joined.left - joined.dropped >= needed:
            return None
    return End(step, Ending("failed", error=error, reason=f"branch {branch} failed"))


def _list_branches_done(draft: Draft, step: Step, joined: StepState) -> list[str]:
    """The branches that have finished, the first first; not those that run again since a Retry."""
    return [name for name in joined.winners if not is_open_inside(draft, paths.inside(step.path, name))]


def winners(step: Step, known: StepState) -> tuple[str, ...]:
    """The branches that have won the race; none where it goes on, or is none."""
    needed = step.verb.wanted if isinstance(step.verb, Parallel) else None
    return () if needed is None or len(known.winners) < needed else known.winners[:needed]


def is_decided(step: Step, done: int) -> bool:
    """Whether the block is a race, and so many branches at their end decide it."""
    needed = step.verb.wanted if isinstance(step.verb, Parallel) else None
    return needed is not None and done >= needed


def resume(step: Step, known: StepState) -> BlockPlaces:
    """A race that is over goes on in the branches that won."""
    if not known.verb:
        return BlockPlaces()
    won = winners(step, known)
    return BlockPlaces(
        tuple(first for name, first in step.verb_as(Parallel).branches if not won or name in won), counted=True
    )


def may_move(was: Step, now: Step) -> Hindrance | None:
    before, after = was.verb_as(Parallel).join, now.verb_as(Parallel).join
    if before == after:
        return None
    return Hindrance("join", f"{was.path} is open and has `join: {before}`, there {after}.")


BLOCKS: Final = {
    Parallel: Block(
        begin=begin, list_done=list_done, child_failed=child_failed, resume=resume, behind=behind, may_move=may_move
    )
}
