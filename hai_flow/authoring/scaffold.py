"""The workflows that `hai-flow new` begins with: read from the package's templates and recipes, and renamed."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, Literal, TypeAlias

import msgspec

TemplateName: TypeAlias = Literal[
    "minimal", "approval", "form", "revise", "loop", "schedule", "agent", "event", "parallel", "undo"
]  # fmt: skip
TEMPLATES: Final[dict[TemplateName, str]] = {
    "minimal": "a message and an output",
    "approval": "a gate in front of a call, with a deadline",
    "form": "a question to the person who started the run",
    "revise": "approve, revise or reject, round by round",
    "loop": "a list, several items at once, each failure isolated",
    "schedule": "started by a schedule, with retries and a fallback",
    "agent": "a model with tools, which asks before it writes",
    "event": "a wait for an event from outside, with a deadline",
    "parallel": "two gates at once; the first rejection ends both",
    "undo": "an effect that is undone if a later step fails",
}
DEFAULT: Final[TemplateName] = "approval"
RECIPES: Final[dict[str, str]] = {
    "access": "access for some hours, withdrawn automatically",
    "contract": "reviewed by two departments at once, sent, with a wait for the signature",
    "data-deletion": "deletion after two approvals, thirty days and a final check",
    "deploy": "a canary, a check, a gate, and a rollback",
    "expense": "small amounts paid at once, larger ones approved by a team lead, then by finance",
    "import": "rows of a file, imported independently, and a question to a person about failed rows",
    "invoice": "started by a webhook, paid once, larger amounts approved by two people",
    "leave": "days off, approved by the manager named in the form, then by HR",
    "maintenance": "a vote with a veto, a wait until night, a final check",
    "moderation": "judged by a model, and by a person in cases of doubt",
    "newsletter": "drafted by a model, revised with an editor, sent",
    "nightly-report": "started by a schedule, over a list, sent in one mail",
    "on-call": "an alert, escalated until a person takes it, withdrawn if its cause ends",
    "onboarding": "questions to two teams at once, then a mail with their answers",
    "order": "paid, cancelled or late, whichever comes first",
    "purchase": "approved by three of five people",
    "refund-agent": "an agent that asks support before it pays more than a limit",
    "survey": "one question to many people, and the mean of their answers",
    "triage": "a letter classified by a model, answered by the responsible team",
    "watch": "a check every five minutes, and a question to a person after an hour",
}
"""Complete workflows of everyday work, each with a description."""


class WorkflowTemplate(msgspec.Struct, frozen=True):
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
