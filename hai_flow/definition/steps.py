"""Steps compiled: the keys of every step, around the node that its verb makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from hai_flow.definition import plan
from hai_flow.definition.checks.condition_facts import where_true, with_facts
from hai_flow.definition.expressions.evaluation import Guards
from hai_flow.definition.fields import KNOWN_CODES, RESERVED_PREFIXES
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.names.known_types import ENVELOPE, GIVEN, NULL, REMEDY
from hai_flow.definition.names.visible_steps import Visibility, is_caught
from hai_flow.definition.paths import catch
from hai_flow.definition.people.deadlines import find_outcome
from hai_flow.definition.people.forms import collect_literal_form
from hai_flow.definition.people.policies import OPTIONS, approval
from hai_flow.definition.raw_steps import DOCUMENT, Clause, StepDraft, ends, is_end_certain, leaving
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.calls import derive_delivery, result_of_python
from hai_flow.definition.verbs.http import SENT
from hai_flow.definition.verbs.state import let_schemas
from hai_flow.definition.verbs.still import with_still
from hai_flow.definition.yaml.language import VERBS
from hai_flow.values import Json


def compile_list(context: StepContext, drafts: Sequence[StepDraft], names: Names) -> Names:
    """Compile the steps of a list and all that is inside of them. `names` are those around it; returns those behind
    it."""
    unchanged = context.unchanged if drafts is context.outline.steps else None
    for draft in drafts:
        here = replace(names, steps=Visibility(context.outline, draft.chain, draft.order, draft))
        if unchanged is None:
            denials = _compile_step(context, draft, here)
        else:
            denials = unchanged.compile(context, _compile_step, draft, here)
        denials |= _collect_cases_not_taken(draft) | _collect_end_of_block(draft)
        names = with_facts(names, denials) if denials else names
        if draft.verb == "let":
            schemas = let_schemas(draft, replace(here, guarded=names.guarded))
            names = names.with_roots(schemas=schemas) if schemas else names
    block = drafts[0].chain[-1] if drafts and drafts[0].chain else None
    if block is not None and block.owner is not None and block.owner.blocks.get(block.body) is drafts:
        block.owner.facts[block.body] = names.guarded
    return names


def _collect_cases_not_taken(draft: StepDraft) -> Guards:
    """The facts behind a `switch` of which some cases always end the list."""
    if draft.verb != "switch" or "if" in draft.fields or draft.catch:
        return frozenset()
    denied: Guards = frozenset()
    for body, steps in draft.blocks.items():
        if not is_end_certain(steps):
            break  # this one may have been taken, whatever the conditions behind it say
        denied |= draft.cases[body].denials if body in draft.cases else frozenset()
    return denied


def _collect_end_of_block(draft: StepDraft) -> Guards:
    """The facts behind a block whose lists all run to their end: those that their steps have shown, and the condition
    that ends a `repeat`."""
    if draft.verb not in ("try", "parallel", "repeat") or "if" in draft.fields or is_caught(draft):
        return frozenset()
    exits = {step.verb for step in leaving(draft)} if draft.verb == "repeat" else set[str]()
    until = draft.conditions.get("until")
    ended: Guards = until.guards if until is not None and "break" not in exits else frozenset()
    if not exits and "while" not in draft.params and draft.fields.get("join", "all") == "all":
        ended = ended.union(*draft.facts.values())
    lets = {name for each in draft.inside() for name in let_schemas(each, _NOWHERE)} if ended else set[str]()
    return frozenset(each for each in ended if lets.isdisjoint(_WORD.findall(str(each)))) if lets else ended


_NOWHERE: Final = Names(Types({}, {}))
_WORD: Final = re.compile(r"\w+")


def _compile_step(context: StepContext, draft: StepDraft, names: Names) -> Guards:
    """Compile a step. Returns what holds behind it: where it ends the list, that its `if` was false."""
    fields, at = draft.fields, draft.at
    condition = None
    if "if" in fields:
        condition = context.condition(fields["if"], (*at, "if"), names)
        names = where_true(names, condition)
        draft.condition = condition
    verb = VERBS[draft.verb].compile(context, draft, names) if draft.verb in fields else None
    gate = _gate(context, draft, verb, names) if "approval" in fields else None
    handlers = _compile_handlers(context, draft, names) if draft.handlers else {}
    clauses = compile_catch(context, draft.catch, names) if draft.catch else ()
    if fields.get("continue_on_error") is True and draft.verb in fields:
        clauses = (*clauses, _build_clause_ignoring_errors(context, draft, names))
    if draft.finally_:
        compile_list(context, draft.finally_, names)
    undo = _compile_undo(context, draft.undo, names) if draft.undo is not None else None
    title = context.text(fields, "title", at, names) if "title" in fields else None
    key = draft.key = context.text(fields, "idempotency_key", at, names) if "idempotency_key" in fields else None
    retry = context.retry(fields, at, names) if "retry" in fields else None
    timeout = _compile_timeout(context, draft, verb, names)
    denials = condition.denials if condition is not None and not draft.catch and ends(draft) else frozenset()
    if verb is None:
        return denials
    around = draft.chain[-1] if draft.chain else DOCUMENT
    delivery = derive_delivery(verb) if isinstance(verb, plan.Call) else "at_least_once"
    step = plan.Step(
        path=draft.path,
        id=draft.id,
        verb=verb,
        next=draft.next,
        parent=around.parent,
        body=around.body,
        title=title,
        condition=condition,
        retry=retry,
        timeout=timeout,
        idempotency_key=key,
        delivery=fields.get("delivery", delivery),
        approval=gate,
        handlers=handlers,
        undo=undo,
        catch=clauses,
        finally_=draft.finally_[0].path if draft.finally_ else None,
        expose=fields.get("expose", False),
        line=draft.line,
    )
    context.add(step, 2 * draft.order)
    if isinstance(verb, plan.Agent) and retry is not None:  # it is tried again answer by answer
        answers = [each for each in context.steps.values() if each.path.startswith(f"{verb.iteration}/")]
        for answer in (each for each in answers if isinstance(each.verb, plan.AgentTurn)):
            context.add(replace(answer, retry=retry), 2 * draft.order + 1)
    return denials


def _build_clause_ignoring_errors(context: StepContext, draft: StepDraft, names: Names) -> plan.CatchClause:
    """The clause of `continue_on_error`: it takes what the others leave, and names nothing."""
    body = catch(len(draft.catch))
    path = f"{draft.path}/{body}/let#1"
    nothing = plan.Let(context.template({}, (*draft.at, "continue_on_error"), names))
    step = plan.Step(path=path, id="let#1", verb=nothing, parent=draft.path, body=body, line=draft.line)
    context.add(step, 2 * draft.order + 1)
    return plan.CatchClause((), path)


def _compile_timeout(
    context: StepContext, draft: StepDraft, verb: plan.Verb | None, names: Names
) -> plan.Duration | None:
    """The step's own timeout, its tool's, or the default of its kind. Never for people: they have a deadline."""
    if "timeout" in draft.fields:
        return context.duration(draft.fields, "timeout", draft.at, names)
    kind = VERBS.get(draft.verb)
    if kind is None or "retry" not in kind.keys:  # effects alone are tried again
        return None
    if isinstance(verb, plan.Call):
        if isinstance(verb.tool, plan.FrontendTool):
            return None
        if verb.tool.timeout is not None:
            return verb.tool.timeout
    return context.declared.default_timeout if context.declared.default_timeout is not None else kind.timeout


def _gate(context: StepContext, draft: StepDraft, verb: plan.Verb | None, names: Names) -> plan.Approval | None:
    value = draft.fields["approval"]
    raw_arguments = draft.fields.get("http" if draft.verb == "http" else "with", {})
    arguments: list[str] = [str(key) for key in raw_arguments] if isinstance(raw_arguments, Mapping) else []
    if draft.verb == "http":
        arguments = ["method", "url", *(key for key in arguments if key in SENT)]
    at = (*draft.at, "approval")
    return with_still(context, approval(context, value, at, names, arguments), value, at, names, arguments, verb)


def _compile_handlers(context: StepContext, draft: StepDraft, names: Names) -> dict[str, str]:
    for option, steps in draft.handlers.items():
        inside = _know_no_vote(draft, names) if option == "reject" else _know_reason(draft, option, names)
        compile_list(context, steps, inside)
    return {option: steps[0].path for option, steps in draft.handlers.items() if steps}


def _know_no_vote(draft: StepDraft, names: Names) -> Names:
    """The names of the handler of `reject`, where a deadline may have rejected, without a vote."""
    policy = draft.fields.get("approve" if draft.verb == "approve" else "approval")
    is_rejecting = isinstance(policy, Mapping) and find_outcome(policy) == "reject"
    names = names.with_roots("error")
    return names.with_no_vote(draft.id) if is_rejecting else names


def _know_reason(draft: StepDraft, option: str, names: Names) -> Names:
    """The names of the handler of `option`: people have given a reason, where they need to for this answer.

    Not of `reject`, which a deadline may give as well.
    """
    policy = draft.fields.get("approve" if draft.verb == "approve" else "approval")
    reasons = policy.get("reasons") if isinstance(policy, Mapping) else None
    if not isinstance(reasons, Mapping) or reasons.get(option) != "required":
        return names
    member = "output" if draft.verb == "approve" else "approval"
    return names.knowing({("steps", draft.id, each, "reason") for each in (member, "approval")})


def compile_catch(context: StepContext, clauses: Sequence[Clause], names: Names) -> tuple[plan.CatchClause, ...]:
    compiled: list[plan.CatchClause] = []
    for clause in clauses:
        errors = clause.fields.get("errors", ())
        compile_list(context, clause.steps, names.with_roots("error").knowing(_find_certain_members(errors)))
        context.patterns(errors, (*clause.at, "errors"))
        if clause.steps:
            compiled.append(plan.CatchClause(tuple(errors), clause.steps[0].path))
    return tuple(compiled)


_WITH_DATA: Final = frozenset(("http.status", "http.expect", "tool.invalid_arguments", "tool.invalid_result"))


def _find_certain_members(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """The members of `error` that every error of a clause has, of those which some lack. Codes of the author's own are
    believed to have data."""
    codes = KNOWN_CODES - _WITH_DATA
    lacking = [
        each
        for each in patterns
        if each == "*" or each in codes or (each.endswith(".*") and each[:-2] in RESERVED_PREFIXES)
    ]
    of_runs = all(each == "run.failed" for each in patterns)
    return [("error", name) for name, has in (("data", not lacking), ("cause", of_runs)) if has and patterns]


def _compile_undo(context: StepContext, draft: StepDraft, names: Names) -> str | None:
    compile_list(context, [draft], names)
    return draft.path if draft.path in context.steps else None


def collect_types(context: StepContext) -> Types:
    """The types of the input, the state, and the output and approval of each step."""
    outputs: dict[str, Json] = {}
    results: dict[str, Json] = {}
    approvals: dict[str, Json] = {}
    ungated: set[str] = set()
    rarely_gated: set[str] = set()
    mindless: set[str] = set()
    silent: set[str] = set()
    for name, draft in context.outline.ids.items():
        outputs[name] = _derive_output_type(context, draft)
        if not outputs[name] and (result := result_of_python(context, draft)) is not None:
            results[name] = dict(result)
        if draft.verb and (judge := VERBS[draft.verb].judges) is not None:
            results[name] = judge(context, draft)
        if draft.verb not in ("llm", "agent"):
            mindless.add(name)
        gate = draft.fields.get("approve" if draft.verb == "approve" else "approval")
        if isinstance(gate, Mapping):
            approvals[name] = _build_envelope_type(gate)
            if "when" in gate:
                rarely_gated.add(name)
            if find_outcome(gate) == "approve":
                silent.add(name)
            if draft.verb == "approve":
                outputs[name] = approvals[name]
        elif draft.verb:
            ungated.add(name)
    declared = context.declared
    return Types(
        declared.input.raw,
        declared.state_schema,
        outputs,
        approvals,
        {},
        ungated,
        rarely_gated,
        mindless,
        silent,
        results,
    )


def _derive_output_type(context: StepContext, draft: StepDraft) -> Json:
    gives = VERBS[draft.verb].gives if draft.verb else None
    return (gives(context, draft) if callable(gives) else gives) or {}


def _build_envelope_type(gate: Mapping[str, Json]) -> Json:
    """The type of an approval's envelope, with the values of its form."""
    form, combine = gate.get("form"), gate.get("combine")
    values: Json = {} if "form" in gate else {**NULL, REMEDY: "; give the question a `form`, whose values these are"}
    if isinstance(form, Mapping):
        values = {**collect_literal_form(form), "type": ["object", "null"], GIVEN: True}
        properties = values.get("properties")
        if isinstance(combine, Mapping) and isinstance(properties, Mapping):
            listed = {name for name in properties if combine.get(name) == "list"}
            values["properties"] = {
                name: {"type": "array", "items": each, "minItems": 1} if name in listed else each
                for name, each in properties.items()
            }
    options = gate.get("options", list(OPTIONS))
    decision = {"enum": options} if isinstance(options, list) and all(isinstance(o, str) for o in options) else {}
    return {**ENVELOPE, "properties": {**ENVELOPE["properties"], "values": values, "decision": decision}}
