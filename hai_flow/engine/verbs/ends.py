"""`return`, `break`, `continue` and `fail`: the flow leaves the steps around."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Break, Continue, Fail, Return, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion import consequences
from hai_flow.engine.completion.consequences import Consequence, End
from hai_flow.engine.completion.open_steps import find_iteration_around
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.state import Ending


def begin_return(draft: Draft, step: Step) -> Consequence:
    value = draft.render(step.verb_as(Return).value, step)
    _over(draft, step)
    return End(draft.step(""), Ending("finished", value, reason="the run returned"), of=step)


def begin_break(draft: Draft, step: Step) -> Consequence:
    _over(draft, step)
    return End(find_iteration_around(draft, step), Ending("left", reason="the loop was left"), of=step)


def begin_continue(draft: Draft, step: Step) -> Consequence:
    _over(draft, step)
    return End(
        find_iteration_around(draft, step), Ending("next", reason="the rest of the iteration is skipped"), of=step
    )


def _over(draft: Draft, step: Step) -> None:
    """The step itself has finished: nothing follows on that but the end of the steps around it."""
    draft.record_start(step)
    draft.pure_steps += 1
    draft.emit(e.StepFinished, path=step.path)


def begin_fail(draft: Draft, step: Step) -> Consequence:
    verb = step.verb_as(Fail)
    message = draft.text(verb.message, step)
    data = None if verb.data is None else draft.render(verb.data, step)
    draft.record_start(step)
    draft.pure_steps += 1
    return consequences.FailStep(step, draft.error(verb.code, message, step.path, data))


VERBS: Final = {Return: begin_return, Break: begin_break, Continue: begin_continue, Fail: begin_fail}
