"""From a document's bytes to a plan, or to every finding at once (docs/language.md). Each pass reads the results of
those before it alone: the *outline* gives each step its path; the *declarations* are read whole; the *steps* are
compiled in order, each knowing the steps visible to it; the *lint* looks at steps together. Tools of `python: pkg.mod`
and `python: pkg.mod:fn` are found by import; `python: registered` is a function that the decorator has registered under
the name of the call."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.checks.asked_people import report_queues
from hai_flow.definition.checks.ineffective_settings import (
    check_declared_deadlines,
    check_limits,
    check_schema,
    check_steps,
)
from hai_flow.definition.checks.lint import lint
from hai_flow.definition.checks.plain_secrets import check_secrets
from hai_flow.definition.checks.unraised_errors import check_document_catch
from hai_flow.definition.checks.yaml_pitfalls import check_plain_values
from hai_flow.definition.child_interface import Children, find_no_child
from hai_flow.definition.declarations import read_declarations
from hai_flow.definition.incremental import UnchangedSteps
from hai_flow.definition.names.known_names import Names, NoSteps, Types
from hai_flow.definition.names.visible_steps import END, Visibility
from hai_flow.definition.outline import outline
from hai_flow.definition.people.notify import notify
from hai_flow.definition.personal.pii_checks import refuse_disclosures
from hai_flow.definition.raw_steps import Outline
from hai_flow.definition.schemas.python_modules import Modules, unread
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.steps import collect_types, compile_catch, compile_list
from hai_flow.definition.yaml.document import Document, parse, parse_once
from hai_flow.definition.yaml.fixes import complete_findings
from hai_flow.definition.yaml.include_keys import KIND, Part, list_service_names, split_source
from hai_flow.definition.yaml.includes import read_used
from hai_flow.definition.yaml.language import SHAPES
from hai_flow.definition.yaml.mapping_reader import Reader, TooMany
from hai_flow.errors import DefinitionError, Finding
from hai_flow.values import Json

Earlier: TypeAlias = "tuple[StepContext, Types] | tuple[()]"
"""The arguments of `note` for an earlier text of a file; (): there is none, but this one is to be used again."""
NoteNames: TypeAlias = "Callable[[StepContext, Types], None]"

_SECTIONS = {"defaults": ("retry", "timeout", "deadline"), "limits": ("duration", "tokens", "cost_usd", "tool_calls")}


def compile_workflow(
    source: bytes,
    file: str = "<workflow>",
    *,
    children: Children = find_no_child,
    modules: Modules = unread,
    stored: bool = False,
) -> plan.Plan:
    """The plan of a workflow. Raises `DefinitionError` with every finding, in document order, if any is an error.

    `children` finds the workflows that it runs, where they are known, `modules` the Python modules of its tools, where
    they are looked at. `stored`: it was published, maybe before some of the rules were made; their refusals are
    warnings."""
    compiled, findings = read_workflow(source, file, children=children, modules=modules, stored=stored)
    if compiled is None:
        raise DefinitionError(findings)
    return compiled


def _note_nothing(context: StepContext, types: Types) -> None:
    """Nobody asks for the names."""


def check_workflow(
    source: bytes, file: str = "<workflow>", *, children: Children = find_no_child, modules: Modules = unread
) -> list[Finding]:
    """Every error and warning of a workflow, in document order. Never raises."""
    return read_workflow(source, file, children=children, modules=modules)[1]


def read_workflow(
    source: bytes,
    file: str = "<workflow>",
    *,
    children: Children = find_no_child,
    modules: Modules = unread,
    stored: bool = False,
    note: NoteNames = _note_nothing,
    before: Earlier | None = None,
) -> tuple[plan.Plan | None, list[Finding]]:
    """The plan of a workflow, None where a finding is an error; and every finding, in document order. Never raises.
    `note` gets the steps and declarations, also of a document with errors, unless it can't be read as a mapping.
    `before`: an earlier text of the same file, whose unchanged steps are not compiled again."""
    document, parts = _documents(source, file)
    reader = Reader(document, stored=stored)
    readers = [reader]
    compiled = None
    # Without a whole tree (the scanner stopped) every further finding would be about the part that could not be read.
    if (document.value is not None or not document.findings) and not _is_another_kind(reader):
        with suppress(TooMany):
            compiled = _plan(source, readers, children, modules, parts, note, before)
            check_plain_values(reader)
    findings = [finding for each in readers for finding in _sort_findings(each)]
    if any(finding.severity == "error" for finding in findings):
        return None, [finding for finding in findings if finding.code not in _FOR_THE_END]
    assert compiled is not None, "a document without errors compiles"
    return dataclasses.replace(compiled, warnings=tuple(findings)), findings


def _documents(source: bytes, file: str) -> tuple[Document, list[Part]]:
    """The workflow, and the documents behind it that it uses. If it names none there must be none, which reading
    says."""
    first, parts = split_source(source)
    document = parse_once(first, file)
    if parts and not (
        isinstance(document.value, Mapping) and ("use" in document.value or list_service_names(document.value))
    ):
        return parse(source, file), []
    return document, parts


def _sort_findings(reader: Reader) -> list[Finding]:
    findings = sorted(dict.fromkeys(reader.findings), key=lambda finding: (finding.line, finding.column))
    errors = {(finding.line, finding.column) for finding in findings if finding.severity == "error"}
    findings = [each for each in findings if each.code != "text.path" or (each.line, each.column) not in errors]
    return complete_findings(reader.document, findings)


def _is_another_kind(reader: Reader) -> bool:
    """Whether this is no workflow but another kind of document, which is the only finding then."""
    value = reader.document.value
    kind = value.get("hai") if isinstance(value, Mapping) else None
    if kind == KIND:
        message = f"expected a workflow (`hai: flow/v1`), found `{KIND}`: it is checked with what uses it"
    elif str(kind).startswith("test/"):
        message = f"expected a workflow (`hai: flow/v1`), found `{kind}`; run tests with `hai-flow test`"
    else:
        return False
    reader.error(("hai",), "document.kind", message)
    return True


def _plan(
    source: bytes,
    readers: list[Reader],
    children: Children,
    modules: Modules,
    parts: Sequence[Part],
    note: NoteNames,
    before: Earlier | None,
) -> plan.Plan | None:
    """The plan; None, or one with holes in it, where findings say so. `readers` gets one for each file that is used."""
    reader = readers[0]
    fields = reader.fields(SHAPES["document"], reader.document.value, (), "the workflow", inside=_SECTIONS)
    if not fields:
        return None
    drafts = outline(reader, fields)
    declared = read_declarations(reader, fields, read_used(reader, fields, parts, readers), drafts)
    context = StepContext(reader, declared.tools, drafts.fail_codes, declared, drafts, children, modules, compile_list)
    types = collect_types(context)
    if before is not None:
        context.used = tuple(part.text for part in parts)
        context.unchanged = UnchangedSteps(context, types, before[0].unchanged if before else None)
    if before:
        types.reuse(before[1])
    note(context, types)
    top = Names(types, steps=Visibility(drafts, (), 0))
    default_notify = notify(context, fields["defaults"], ("defaults",), top) if "defaults" in fields else ()
    behind = compile_list(context, drafts.steps, top)
    catch = compile_catch(context, drafts.catch, top)
    compile_list(context, drafts.finally_, top)
    output = None
    if "output" in fields:
        end = Names(types, steps=Visibility(drafts, (), END)).behind(behind)  # there is no output behind a `catch`
        output = context.template(fields["output"], ("output",), end)
    summary = _summary(context, fields, top)
    lint(context)
    check_schema(context, fields.get("input"), ("input",))
    for name in context.declared.state:
        check_schema(context, fields["state"][name], ("state", name))
    check_steps(context)
    check_declared_deadlines(context, fields)
    check_limits(context, drafts.steps)
    check_document_catch(context, drafts.catch, drafts.steps)
    check_secrets(reader, fields)
    if "steps" not in fields or "name" not in fields or "version" not in fields:
        return None
    compiled = _make_plan(source, fields, context, catch, output, default_notify, summary)
    report_queues(compiled, reader)
    refuse_disclosures(context, reader, compiled)
    return compiled


def _make_plan(
    source: bytes,
    fields: Mapping[str, Json],
    context: StepContext,
    catch: tuple[plan.CatchClause, ...],
    output: plan.Template | None,
    default_notify: tuple[plan.Template, ...],
    summary: plan.Template | None,
) -> plan.Plan:
    declarations, drafts = context.declared, context.outline
    return plan.Plan(
        name=fields["name"],
        version=fields["version"],
        sha256=hashlib.sha256(source).digest(),
        source=source,
        title=fields.get("title", ""),
        description=fields.get("description", ""),
        input=declarations.input,
        state={name: variable for name, variable in declarations.state.items() if variable is not None},
        state_schema=_compile_schema_or_any(declarations.state_schema),
        tools={name: tool for name, tool in declarations.tools.items() if tool is not None},
        steps=context.sort_steps(),
        ids={name: draft.path for name, draft in drafts.ids.items()},
        first=drafts.steps[0].path if drafts.steps else "",
        output=output,
        catch=catch,
        finally_=drafts.finally_[0].path if drafts.finally_ else None,
        models={name: each for name, each in declarations.models.items() if each is not None},
        roles={name: members for name, members in declarations.roles.items() if members is not None},
        visibility=declarations.visibility,
        triggers=declarations.triggers,
        limits=declarations.limits,
        concurrency=declarations.concurrency,
        queue=fields.get("queue", plan.DEFAULT_QUEUE),
        on_message=fields.get("on_message", "reject"),
        default_retry=declarations.default_retry,
        default_notify=default_notify,
        lets=_collect_lets(drafts),
        summary=summary,
        calendar=fields.get("calendar", "default"),
        chat=fields.get("chat", True),
        tools_without_chat=declarations.without_chat,
    )


_FOR_THE_END: Final = frozenset((
    "combine.alone", "condition.certain", "errors.never", "escalate.same", "switch.same_case",
))  # fmt: skip
"""Doubts about a document that has no error: beside one they say little, and may follow from it."""
_OF_SUMMARY: Final = frozenset(("input", "state", "run", "thread"))


def _explain_summary(name: str) -> tuple[str, str]:
    """Why no step may be named in the `summary`."""
    message = f"lists show it at any time of a run, also before `{name}`: read `input`, or `state` that a step has set"
    return "summary.names", message


def _summary(context: StepContext, fields: Mapping[str, Json], names: Names) -> plan.Template | None:
    """The line that lists show. It is filled at any time of a run, so it reads nothing that is only sometimes there."""
    if "summary" not in fields:
        return None
    unseen = NoSteps(_explain_summary, names.steps.explain_let)
    template = context.template(
        fields["summary"], ("summary",), msgspec.structs.replace(names, steps=unseen), text=True
    )
    others = sorted(template.roots - _OF_SUMMARY)
    if others:
        message = (
            f"lists show it at any time of a run: expected `input`, `state`, `run` or `thread`, found `{others[0]}`"
        )
        context.reader.error(("summary",), "summary.names", message)
    if "\n" in fields["summary"].strip():
        message = "expected one line, found several; write it behind `summary: `"
        context.reader.error(("summary",), "summary.line", message)
    return template


def _collect_lets(drafts: Outline) -> dict[str, tuple[str, ...]]:
    """The paths of the steps that give each name of a `let`."""
    lets: dict[str, tuple[str, ...]] = {}
    for draft in (each for each in drafts.every if each.verb == "let"):
        for name in draft.fields.get("let", ()):
            lets[name] = (*lets.get(name, ()), draft.path)
    return lets


def _compile_schema_or_any(raw: Json) -> JsonSchema:
    """The compiled schema; one that accepts everything where there is a finding already."""
    try:
        return JsonSchema(raw)
    except ValueError:
        return JsonSchema({})
