"""`repeat`: one iteration behind the other, as long as its condition asks for more."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import paths
from hai_flow.definition.plan import Repeat, Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import loop_rules
from hai_flow.engine.blocks.block import Block
from hai_flow.engine.completion.consequences import Consequence, End, FailStep, FinishStep, Settle
from hai_flow.engine.completion.open_steps import is_ending
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.state import Ending, LoopState
from hai_flow.values import Json

EXHAUSTED: Final = "repeat.exhausted"


def begin(draft: Draft, step: Step) -> Consequence | None:
    draft.pure_steps += 1
    first = loop_rules.next_number(draft, step)
    if _should_repeat(draft, step, step, 0):
        draft.record_start(step, ready=(paths.iteration(step.path, first),))
        return None
    draft.record_start(step)
    return FinishStep(step, {"count": 0})


def iteration_done(draft: Draft, step: Step, iteration: Step, output: Json) -> Consequence | None:
    """The next iteration, or the end of the loop."""
    loop, verb = loop_rules.loop_of(draft, step), step.verb_as(Repeat)
    count = _count(loop)
    try:
        again = _should_repeat(draft, step, iteration, count)
    except Raised as raised:
        return FailStep(iteration, draft.error(raised.code, raised.message, step.path))
    exhausted = again and count >= verb.max
    ready = (paths.iteration(step.path, loop.last + 1),) if again and not exhausted else ()
    draft.emit(e.IterationEnded, path=iteration.path, status="finished", ready=ready)
    if exhausted and (verb.while_ is not None or verb.until is not None):
        message = f"After {count} iterations its condition still asks for more."
        return FailStep(step, draft.error(EXHAUSTED, message, step.path))
    return None if ready else FinishStep(step, {"count": count})


def loop_left(draft: Draft, step: Step, iteration: Step) -> Consequence:
    draft.emit(e.IterationEnded, path=iteration.path, status="finished")
    if is_ending(draft, step.path):  # the loop is being cut off as a whole
        return Settle(step)
    count = _count(loop_rules.loop_of(draft, step))
    return End(step, Ending("finished", {"count": count}, reason=f"{iteration.path} left the loop"))


def _should_repeat(draft: Draft, step: Step, reader: Step, count: int) -> bool:
    """Whether it asks for a further iteration after `count` of them. Raises `Raised`."""
    verb = step.verb_as(Repeat)
    if verb.while_ is not None:
        return draft.truth(verb.while_, reader, index=count)
    if verb.until is not None and count:
        return not draft.truth(verb.until, reader)
    return count < verb.max


def _count(loop: LoopState) -> int:
    return loop.last + 1 - loop.begun


def behind(draft: Draft, step: Step) -> Consequence | str | None:
    """Behind its last iteration its condition is asked once more; one that was exhausted begins anew, and counts its
    iterations on. Raises `Raised`."""
    loop, error = draft.state.steps[step.path].loop, draft.state.steps[step.path].error
    if loop is None or loop.last < 0 or (error is not None and error.code == EXHAUSTED):
        return None
    last, count = draft.step(paths.iteration(step.path, loop.last)), _count(loop)
    if _should_repeat(draft, step, last, count):
        return paths.iteration(step.path, loop.last + 1)
    return FinishStep(step, {"count": count})


BLOCKS: Final = {
    Repeat: Block(
        begin=begin,
        child_failed=loop_rules.fail_loop,
        iteration_done=iteration_done,
        loop_left=loop_left,
        resume=loop_rules.resume_last,
        behind=behind,
    )
}
