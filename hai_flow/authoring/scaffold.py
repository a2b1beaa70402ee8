"""The workflows that `hai-flow new` begins with: read from the package's templates and recipes, and renamed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
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
RECIPES: Final[dict[str, str]] = {
    "access": "access for some hours, which is taken back by itself",
    "contract": "read by two departments at once, sent, and waited for until it is signed",
    "data-deletion": "two people agree, thirty days pass, a last look, then it is deleted",
    "deploy": "a canary, a check, a gate, and the way back",
    "expense": "small ones at once, others by a team lead, then by finance",
    "import": "rows of a file, each on its own, and a person for those that failed",
    "invoice": "from another system's webhook, paid once, larger ones by two people",
    "leave": "days off: the manager whom the form names, then HR",
    "maintenance": "a vote with a veto, a wait until night, a last look",
    "moderation": "a model judges, a person decides where it is in doubt",
    "newsletter": "drafted by a model, revised with an editor, sent",
    "nightly-report": "by the clock, over a list, in one mail",
    "on-call": "an alert, escalated until somebody takes it, withdrawn if it goes away",
    "onboarding": "questions to two teams at once, then a mail with their answers",
    "order": "paid, cancelled or late, whichever is first",
    "purchase": "three of five people have to agree",
    "refund-agent": "an agent that asks support before it pays more than a limit",
    "survey": "one question to many, and the mean of their answers",
    "triage": "a model reads a letter, the team that it concerns sends the answer",
    "watch": "look every five minutes, and ask somebody after an hour",
}
"""Whole workflows of everyday work, and what each has."""


@dataclass(frozen=True, slots=True)
class WorkflowTemplate:
    """A workflow and its tests, as text."""

    workflow: str
    tests: str


def template(name: TemplateName, workflow: str | None = None) -> WorkflowTemplate:
    """The template `name`, its workflow called `workflow` (default: as the template)."""
    return _read(resources.files("hai_flow.templates"), name, workflow)


def recipe(name: str, workflow: str | None = None) -> WorkflowTemplate:
    """The recipe `name` of RECIPES, its workflow called `workflow` (default: as the recipe)."""
    return _read(resources.files("hai_flow.templates") / "recipes", name, workflow)


def _read(folder: Traversable, name: str, workflow: str | None) -> WorkflowTemplate:
    source = (folder / f"{name}.flow.yaml").read_text(encoding="utf-8")
    tests = (folder / f"{name}.test.yaml").read_text(encoding="utf-8")
    if workflow is None:
        return WorkflowTemplate(source, tests)
    return WorkflowTemplate(
        re.sub(r"^name: \S+$", f"name: {workflow}", source, count=1, flags=re.MULTILINE),
        tests.replace(f"workflow: {name}.flow.yaml", f"workflow: {workflow}.flow.yaml", 1),
    )
