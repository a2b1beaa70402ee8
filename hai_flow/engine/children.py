"""Child runs: an effect that no process performs, because it is a run of its own."""

from __future__ import annotations

from hai_flow.definition.plan import Run, Step
from hai_flow.engine.draft import Draft


def start(draft: Draft, step: Step, verb: Run, args: str) -> None:
    raise NotImplementedError
