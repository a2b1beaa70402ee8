"""`run`: another workflow."""

from __future__ import annotations

import re
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.child_interface import Child
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import record
from hai_flow.definition.names.name_forms import WORKFLOW, suggest_name
from hai_flow.definition.names.wording import shorten
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.calls import check_arguments
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.key_table import DECIDED_KEYS, EFFECT_KEYS
from hai_flow.definition.yaml.keys import LITERAL
from hai_flow.values import Json

_FILE: Final = re.compile(r"\S+\.(yaml|yml|json)")
_COMMAND: Final = re.compile(r"\s|^[./~]|\.\w+$")
_REFERENCE: Final = re.compile(rf"(?P<name>{WORKFLOW})(@(?P<version>[1-9][0-9]{{0,8}}))?")


def _run(context: StepContext, draft: StepDraft, names: Names) -> plan.Run | None:
    value, at = draft.value, draft.value_at
    arguments = context.template(draft.fields.get("with", {}), (*draft.at, "with"), names)
    child = _REFERENCE.fullmatch(value)
    if child is None:
        hint = "; it is literal, holes are not filled here" if "${{" in value else _suggest_reference(value)
        message = f"expected a workflow's name, or name@version, found `{shorten(value)}`{hint}"
        context.reader.error(at, "run.name", message)
        return None
    callee = _child(context, value)
    if callee is not None:
        check_arguments(context, f"the workflow `{value}`", callee.input.raw, "run", draft, names, arguments)
    detach = draft.fields.get("detach", False)
    if detach and "timeout" in draft.fields:
        message = (
            "`timeout` bounds the work of a child that is waited for; nobody waits for a run with `detach: true`: "
            f"write `limits: {{duration: ...}}` in `{child['name']}`"
        )
        context.reader.error((*draft.at, "timeout"), "run.detached_timeout", message, key=True)
    version = child["version"]
    return plan.Run(child["name"], int(version) if version else None, arguments, detach)


def _suggest_reference(written: str) -> str:
    """What to write in place of a file, a command, or a version that is none."""
    name, _, version = written.partition("@")
    if _FILE.fullmatch(written):
        return f"; write the `name` that stands in that file, such as `run: {suggest_name(written, 'workflow')}`"
    if _COMMAND.search(name):
        return "; programs are functions of a tool: declare it under `tools`, and `call` it"
    near = suggest_name(name, "workflow")
    number = re.fullmatch(r"v?([1-9][0-9]{0,8})(\.0)*", version)
    if number is not None:
        return f"; write `{near}@{number[1]}`"
    return f"; without a version it is the latest: write `{near}`" if version else f"; write `{near}`"


def _child(context: StepContext, reference: str) -> Child | None:
    """The workflow that `run` names, where it is known. A workflow may run itself."""
    named = _REFERENCE.fullmatch(reference)
    if named is None:
        return None
    name, version = named["name"], int(named["version"]) if named["version"] else None
    own = context.declared
    if name == own.name and version in (None, own.version):
        return Child(own.input)
    return context.children(name, version)


def _gives(context: StepContext, draft: StepDraft) -> Json:
    if draft.fields.get("detach") is True:
        return record(run_id={"type": "string"})
    value = draft.fields.get("run")
    child = _child(context, value) if isinstance(value, str) else None
    return child.output if child is not None else {}


VERBS: Final = (
    VerbRules(
        "run",
        type=LITERAL,
        does="another workflow (`name` or `name@n`) as a child; `with` is its input",
        keys=("with", "detach", "approval", *DECIDED_KEYS, *EFFECT_KEYS),
        output="the child's output; with `detach` its `{run_id}`",
        fails="`run.failed`, `run.stopped`",
        example="refund@2",
        compile=_run,
        kind="effect",
        gives=_gives,
        aka=("workflow", "call_workflow", "subworkflow", "sub_workflow", "subflow", "child", "include"),
    ),
)
