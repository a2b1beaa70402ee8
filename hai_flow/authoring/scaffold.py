"""The workflows that `hai-flow new` begins with: read from the package's templates and renamed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal, TypeAlias

TemplateName: TypeAlias = Literal[
    "minimal", "approval", "form", "revise", "loop", "schedule", "agent", "event", "parallel", "undo"
]  # fmt: skip
TEMPLATES: Final[dict[TemplateName, str]] = {
    "minimal": "a message and an output",
    "approval": "a gate in front of a call, with a deadline",
    "form": "a question to whoever started the run",
    "revise": "approve, revise or reject, round by round",
    "loop": "a list, several at once, failures apart",
    "schedule": "started by the clock, retries, a fallback",
    "agent": "a model with tools, which asks before it writes",
    "event": "wait for an event from outside, with a deadline",
    "parallel": "two gates at once, whose first no ends both",
    "undo": "take back what was done when a later step fails",
}
DEFAULT: Final[TemplateName] = "approval"


@dataclass(frozen=True, slots=True)
class WorkflowTemplate:
    """A workflow and its tests, as text."""

    workflow: str
    tests: str


def template(name: TemplateName, workflow: str | None = None) -> WorkflowTemplate:
    """The template `name`, its workflow called `workflow` (default: as the template)."""
    folder = resources.files("hai_flow.templates")
    source = (folder / f"{name}.flow.yaml").read_text(encoding="utf-8")
    tests = (folder / f"{name}.test.yaml").read_text(encoding="utf-8")
    if workflow is None:
        return WorkflowTemplate(source, tests)
    return WorkflowTemplate(
        re.sub(r"^name: \S+$", f"name: {workflow}", source, count=1, flags=re.MULTILINE),
        tests.replace(f"workflow: {name}.flow.yaml", f"workflow: {workflow}.flow.yaml", 1),
    )
