"""The refusal of runs that would begin with a version which was retired."""

from __future__ import annotations

from hai_flow.definition.plan import Plan
from hai_flow.errors import Rejected


def refuse_retirement(plan: Plan, whose: str = "") -> Rejected:
    """409 `workflow_retired`. `whose`: which other workflow runs the plan, where a run of that one is asked for."""
    version = f"{plan.name}@{plan.version}"
    return Rejected(
        409,
        "workflow_retired",
        f"{version} was retired{whose}: no run, child or fork begins with it. A publisher can take that back: "
        f"`hai-flow unretire {version}`.",
    )
