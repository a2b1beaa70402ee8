"""The results of blocks: the `result` of the case that a switch took, and of the branches that have finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hai_flow.definition import paths
from hai_flow.definition.plan import Step, Template
from hai_flow.engine.completion.consequences import Consequence, FailStep, FinishStep
from hai_flow.engine.draft import Draft, Raised
from hai_flow.values import Json


def build_reader_at_end(step: Step, body: str) -> Step:
    """The block as a reader at the end of one of its lists, where the names of that list are known."""
    return msgspec.structs.replace(step, path=paths.inside(step.path, body))


def finish_with(draft: Draft, step: Step, output: Mapping[str, Json], result: Template | None) -> Consequence:
    """The block ends with `output`, and with the result where there is one. An expression that fails is its error."""
    if result is None:
        return FinishStep(step, dict(output))
    try:
        value = draft.render(result, build_reader_at_end(step, str(output["case"])))
        draft.json_text(value)
    except Raised as raised:
        return FailStep(step, draft.error(raised.code, raised.message, step.path))
    return FinishStep(step, {**output, "result": value})


def collect_results(
    draft: Draft, step: Step, results: Mapping[str, Template], finished: Iterable[str]
) -> dict[str, Json]:
    """The result of each branch that has finished. Raises `Raised`."""
    values = {
        name: draft.render(results[name], build_reader_at_end(step, name)) for name in finished if name in results
    }
    draft.json_text(values)
    return values
