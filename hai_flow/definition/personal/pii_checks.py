"""Refuses, when a workflow is published, personal values in places that can't be masked.

Every reader of a run sees these: the keys of iterations, which are in paths; the people that may decide, which are in
lists of questions; and the input of a child run, which is masked only as far as the child's own schema marks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hai_flow.definition import plan
from hai_flow.definition.personal.pii_flow import Flow, declares
from hai_flow.definition.personal.pii_marks import covers, mark_of_schema, part
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.mapping_reader import Reader

_PEOPLE: Final = {"from_": "from", "exclude": "exclude", "veto": "veto", "quorum": "quorum", "notify": "notify"}


def refuse_disclosures(context: StepContext, reader: Reader, workflow: plan.Plan) -> None:
    """Report every place that gives a personal value away. The outputs of child runs are not known here."""
    if not declares(workflow):
        return
    flow = Flow(workflow)
    flow.resolve()
    if flow.mark(workflow.summary, None):
        message = "lists of runs show the `summary`, with a personal value here; use one that is not marked `pii: true`"
        reader.refuse(("summary",), "pii.shown", message)
    for draft in context.outline.every:
        step = workflow.steps.get(draft.path)
        if step is None:
            continue
        for at, what in _find_disclosures(flow, step, draft):
            reader.refuse(at, "pii.shown", f"{what}; use a value that is not marked `pii: true`")
        _check_child(context, reader, flow, step, draft)


def _find_disclosures(flow: Flow, step: plan.Step, draft: StepDraft) -> Iterator[tuple[Path, str]]:
    verb, gate = step.verb, step.approval
    if isinstance(verb, plan.ForEach):
        if flow.mark(verb.key, flow.workflow.steps.get(verb.iteration)):
            yield (*draft.value_at, "key"), "the key of an iteration stands in paths, which show a personal value here"
        elif verb.key is None and part(flow.mark(verb.items, step), 0) is True:
            what = "an item that is a text is the key of its iteration and stands in paths: give a `key`"
            yield (*draft.value_at, "items"), what
    policies: tuple[tuple[plan.Policy | None, Path], ...] = (
        (getattr(verb, "policy", None), draft.value_at),
        (None if gate is None else gate.policy, (*draft.at, "approval")),
    )
    for policy, at in policies:
        stages = () if policy is None else (policy, *policy.escalations)
        for name, key in _PEOPLE.items():
            templates = [each for stage in stages for each in _collect_templates(getattr(stage, name, None))]
            if any(flow.mark(each, step) for each in templates):
                yield (*at, key), f"`{key}` is shown to all who see the question, with a personal value here"


def _collect_templates(field: Any) -> list[plan.Template]:
    return [each for each in (field if isinstance(field, tuple) else (field,)) if hasattr(each, "holes")]


def _check_child(context: StepContext, reader: Reader, flow: Flow, step: plan.Step, draft: StepDraft) -> None:
    """Report personal arguments of a child run that the child's own input schema does not mark."""
    run, workflow = step.verb, flow.workflow
    if not isinstance(run, plan.Run):
        return
    input_schema: plan.Schema | None = workflow.input
    if run.workflow != workflow.name or run.version not in (None, workflow.version):
        child = context.children(run.workflow, run.version)
        input_schema = None if child is None else child.input
    if input_schema is None or covers(
        declared := mark_of_schema(input_schema.raw), arguments := flow.mark(run.arguments, step)
    ):
        return
    names: list[str] = []
    if isinstance(arguments, Mapping):
        names = [name for name, mark in arguments.items() if not covers(part(declared, name), mark)]
    message = (
        f"`{run.workflow}` is given a personal value{f' as `{names[0]}`' if names else ''}, which its `input` does not "
        "mark: write `pii: true` there, or its runs show the value"
    )
    reader.refuse((*draft.at, "with", *names[:1]), "pii.undeclared", message)
