"""Steps with steps inside: `switch`, `for_each`, `repeat`, `parallel`, `try`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from hai_flow.definition import plan
from hai_flow.definition.checks.condition_facts import FACTS_MAX, where_true
from hai_flow.definition.checks.type_mismatches import misfits
from hai_flow.definition.checks.value_types import drop_constant, find_element
from hai_flow.definition.expressions.constants import evaluate_constant
from hai_flow.definition.expressions.evaluation import CompiledExpression, CompiledTemplate, Guards
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.expressions.expressions import infer_type, is_never_first
from hai_flow.definition.fields import is_literal, strip_hole
from hai_flow.definition.names.holes import find_only_hole
from hai_flow.definition.names.known_names import Names, Types, as_inferred
from hai_flow.definition.names.known_types import NULL, NULL_UNLESS, REMEDY, ROOTS, STATUS, record
from hai_flow.definition.names.name_forms import check_name
from hai_flow.definition.names.wording import kind_of, shorten
from hai_flow.definition.raw_steps import Enclosure, Lists, StepDraft, is_end_certain, leaving
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import ENDED_KEYS
from hai_flow.definition.yaml.keys import (
    ANY,
    CEL,
    ID,
    STEPS,
    TEXT,
    Key,
    Shape,
    either,
    enum,
    integer,
    list_of,
    map_of,
    shape_of,
)
from hai_flow.values import Json

CASE: Final = Shape("case", "An entry of `switch`", (
    Key("when", CEL, "condition; the first true case runs", example='input.kind == "refund"'),
    Key("default", enum(True), "only in the last case: it runs if no other does", example="true"),
    Key("steps", STEPS, "steps of the case; optional with a `result`", required=True, instead="result",
        example='[{say: "A refund."}]'),
    Key("result", ANY, "value of the switch, `steps.X.output.result`; sees the steps of the case",
        example='"${{ steps.find.output.price }}"'),
), exactly_one=(("when", "default"),))  # fmt: skip
BRANCH: Final = Shape("branch", "A branch with a value", (
    Key("steps", STEPS, "steps of the branch", required=True, example='[{say: "One."}]'),
    Key("result", ANY, "value in `steps.X.output.results`, and that of the `join: any` winner in `output.result`",
        required=True, example='"${{ steps.find.output.price }}"'),
))  # fmt: skip
FOR_EACH: Final = Shape("for_each", "`for_each`", (
    Key("items", ANY, "a list (at most 10,000), evaluated once", required=True, example='"${{ input.services }}"'),
    Key("as", ID, "name of the item in the steps", default="item", example="svc"),
    Key("key", TEXT, "a stable name for each item", default="the item, or its position",
        example='"${{ svc.name }}"'),
    Key("max_parallel", integer(1, 256), "maximum number of items at once", default="1", example="4"),
    Key("on_failure", enum("stop", "isolate"), "`isolate`: the other items go on, and failures are data",
        default="stop", example="isolate"),
    Key("rollback", enum("item", "all", "none"), "items to undo when one fails", default="item", example="all"),
    Key("steps", STEPS, "steps for each item", required=True, example='[{say: "${{ item }}"}]'),
    Key("output", ANY, "output of each item", default="null", example='"${{ steps.deploy.output.url }}"'),
))  # fmt: skip
REPEAT: Final = Shape("repeat", "`repeat`", (
    Key("max", integer(1, 10_000), "maximum number of iterations", required=True, example="5"),
    Key("while", CEL, "condition, checked before each iteration", example="state.open > 0"),
    Key("until", CEL, "condition, checked after each iteration; sees its steps",
        example='steps.send.approval.decision != "revise"'),
    Key("steps", STEPS, "steps to repeat", required=True, example='[{say: "Again."}]'),
), at_most_one=(("while", "until"),))  # fmt: skip
_CASES: Final = {word: CASE.of(word) for word in ("when", "default")}
_VALUED: Final = {
    word: Shape("case", "A case of `switch`", tuple(key for key in CASE.of(word).keys if key.name != "steps"))
    for word in ("when", "default")
}
_ERROR: Final[Json] = {"anyOf": [{}, NULL], NULL_UNLESS: 'status == "failed"'}
_PERHAPS: Final[Json] = {"anyOf": [{}, NULL], NULL_UNLESS: 'status == "finished"'}
_LEFT: Final[Json] = {"anyOf": [{}, NULL]}  # an item that is left by `continue` has finished
_NO_OUTPUT: Final[Json] = {**NULL, REMEDY: "; give the `for_each` an `output`"}
_SAME_FOR_ALL: Final = frozenset(("input", "run", "thread"))
_LIST: Final[Json] = {"type": "array"}
_KEYS_MAX: Final = 500  # literal items whose keys are compared
_LOOPS: Final = {"for_each": FOR_EACH, "repeat": REPEAT}


def _switch(context: StepContext, draft: StepDraft, names: Names) -> plan.Verb:
    cases: list[tuple[CompiledExpression | None, str]] = []
    results: list[plan.Template | None] = []
    here = names  # what holds where the cases before are false
    for body, steps in draft.blocks.items():
        raw = draft.fields["switch"][int(body)]
        when = raw.get("when") if isinstance(raw, Mapping) else None
        condition = None
        if isinstance(when, (str, bool)):
            condition = context.condition(when, (*draft.at, "switch", int(body), "when"), here)
        if condition is not None:
            _report_narrower(context, condition, cases, (*draft.at, "switch", int(body), "when"), names)
            draft.cases[body] = condition
        inside = where_true(here, condition)
        behind = context.compile(steps, inside)
        cases.append((condition, steps[0].path if steps else ""))
        result = None
        if isinstance(raw, Mapping) and "result" in raw:
            at_end = _build_names_at_end(context, draft, steps, inside, behind)
            result = context.template(raw["result"], (*draft.at, "switch", int(body), "result"), at_end)
        results.append(result)
        if condition is not None and len(here.guarded) < FACTS_MAX:
            here = here.knowing(condition.denials)
    return plan.Switch(tuple(cases), tuple(results) if any(results) else ())


_COMPARED_MAX: Final = 12


def _report_narrower(
    context: StepContext,
    condition: CompiledExpression,
    cases: Sequence[tuple[CompiledExpression | None, str]],
    at: Path,
    names: Names,
) -> None:
    """Report a case that is true only where one before it is true as well."""
    for number, (earlier, _) in enumerate(cases[:_COMPARED_MAX]):
        if earlier is None or earlier.source == condition.source or earlier.source == "true":
            continue
        if is_never_first(condition.source, earlier.source, names):
            message = (
                f"this case is never taken: whenever it is true, case {number + 1} is true before; put it first, or "
                "change one of them"
            )
            context.reader.warning(at, "switch.same_case", message)
            return


def _build_names_at_end(
    context: StepContext, draft: StepDraft, steps: Sequence[StepDraft], names: Names, behind: Names
) -> Names:
    if not steps:
        return names
    here = context.elsewhere(names, steps[0].chain, draft.body_end, at_end=True)
    return here.behind(behind)


_Derive: TypeAlias = Callable[[Json], Json]


def _build_switch_record(context: StepContext, draft: StepDraft, derive: _Derive | None = None) -> Json:
    cases = [(raw, draft.blocks.get(str(number), [])) for number, raw in enumerate(draft.fields.get("switch", ()))]
    mappings = [raw for raw, _ in cases if isinstance(raw, Mapping)]
    if not any("result" in raw for raw in mappings):
        return record(case={})
    covers = bool(mappings) and "default" in mappings[-1]
    covers = covers and all(
        "result" in raw or is_end_certain(steps) for raw, steps in cases if isinstance(raw, Mapping)
    )
    kinds = [(derive or _derive_literal_type)(raw["result"]) for raw in mappings if "result" in raw]
    return _with_result(record(case={}), kinds, covers=covers)


def _with_result(output: dict[str, Json], kinds: Sequence[Json], *, covers: bool) -> Json:
    """The type of an output that has a `result`: the type of all results, or those of each, where they differ."""
    schema = kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else _list_types(kinds)
    required = [*output["required"], "result"] if covers else output["required"]
    return {**output, "properties": {**output["properties"], "result": schema}, "required": required}


def _list_types(kinds: Sequence[Json]) -> Json:
    if {} in kinds:
        return {"anyOf": [{}, NULL]} if NULL in kinds else {}
    return {"anyOf": list(kinds)}


def _infer_type_anywhere(value: Json) -> Json:
    """As `_derive_literal_type`, with texts that an expression gives, as instants and lengths of time are outside of
    it. Nothing but a judgement of other expressions may use that."""
    schema = infer_type(value, _NOWHERE).schema
    is_text = isinstance(schema, Mapping) and schema.get("type") == "string"
    return drop_constant(schema) if is_text else _derive_literal_type(value)


_NOWHERE: Final = Names(Types({}, {}))


def _derive_literal_type(value: Json) -> Json:
    match value:
        case None:
            return NULL
        case str() if find_only_hole(value) is None:
            return {"type": "string"}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case Mapping():
            return record(**{str(name): _derive_literal_type(each) for name, each in value.items()})
    return {}


def _compile_for_each(context: StepContext, draft: StepDraft, names: Names) -> plan.Verb | None:
    at = (*draft.at, "for_each")
    params = {key: strip_hole(value) if key == "items" else value for key, value in draft.params.items()}
    _check_items(context, params, at, names)
    raw_items = params.get("items")
    items = context.template(raw_items, (*at, "items"), names) if "items" in params else None
    if "${{" in str(raw_items) and names.type_of(raw_items) is None:
        for _, fault in misfits(raw_items, items, _LIST, {}, names):
            context.reader.refuse((*at, "items"), "for_each.items", f"this does not give a list: {fault}")
    variable = _read_loop_variable(context, draft, at, names)
    element = names.find_element_schema(raw_items) or as_inferred(find_element(infer_type(raw_items, names)))
    inside = names.within(raw_items).with_roots("index", schemas={variable: element})
    key = context.text(params, "key", at, inside)
    outer = _SAME_FOR_ALL | (names.types.roots.keys() - {variable, "index"})
    if key is not None and key.roots <= outer and not (isinstance(raw_items, list) and len(raw_items) < 2):
        message = (
            "`key` is the same for every item, and each needs its own; "
            f"write `key: ${{{{ {variable} }}}}`, or a part of it"
        )
        report = context.reader.refuse if key.holes else context.reader.error
        report((*at, "key"), "for_each.constant_key", message)
    elif (type_name := inside.type_of(params.get("key"))) in ("object", "array"):
        message = f"expected text, found something of type {type_name}, whose JSON is the key; name a part of it"
        context.reader.warning((*at, "key"), "for_each.key", message)
    _report_same_keys(context, key, variable, raw_items, (*at, "items"))
    behind = context.compile(draft.blocks[""], inside)
    output = None
    if "output" in params:
        frame = _frame(draft)
        here = context.elsewhere(inside, (*draft.chain, frame), draft.body_end, at_end=True)
        output = context.template(params["output"], (*at, "output"), here.behind(behind))
    iteration = _compile_iteration(context, draft, output)
    if items is None or iteration is None:
        return None
    return plan.ForEach(
        items,
        iteration,
        variable,
        key,
        params.get("max_parallel", 1),
        params.get("on_failure", "stop"),
        params.get("rollback", "item"),
    )


def _build_output_of_items(context: StepContext, draft: StepDraft) -> Json:
    items = draft.params.get("items")
    exits = {step.verb for step in leaving(draft)}
    output = {} if draft.params.get("on_failure") != "isolate" and not exits else _PERHAPS
    output = _NO_OUTPUT if "output" not in draft.params else _LEFT if "continue" in exits else output
    item = record(key={"type": "string"}, status=STATUS, output=output, error=_ERROR)
    return {"type": "array", "items": item, "minItems": len(items) if isinstance(items, list) else 0}


def _report_same_keys(context: StepContext, key: CompiledTemplate | None, variable: str, items: Json, at: Path) -> None:
    """Report a literal item whose key, which nothing but the item determines, is that of one before it."""
    is_list = isinstance(items, list)
    hole = find_only_hole(items) if isinstance(items, str) else None
    items = evaluate_constant(hole.source) if hole is not None else items
    is_known = key is None or key.roots <= {variable, "index"}
    if not isinstance(items, list) or not is_known or len(items) > _KEYS_MAX:
        return
    before: dict[Json, int] = {}
    for index, item in enumerate(items):
        if not is_literal(item) or (key is None and type(item) not in (str, int)):
            continue
        try:
            text = str(item) if key is None else key.render({variable: item, "index": index})
        except ExpressionError:
            return
        if text in before:
            message = (
                f"the key `{shorten(str(text))}` stands twice, of the items {before[text]} and {index}, and each needs "
                "its own; remove one, or give a `key` that tells them apart"
            )
            context.reader.refuse((*at, index) if is_list else at, "for_each.duplicate_key", message)
            return
        before[text] = index


def _check_items(context: StepContext, params: Mapping[str, Json], at: Path, names: Names) -> None:
    items = params.get("items", [])
    type_name = names.type_of(items)
    if type_name not in (None, "array"):
        message = f"expected a list, found something of type {type_name}; name a list"
        context.reader.error((*at, "items"), "for_each.items", message)
        return
    if doubt := names.doubt_value(items):
        context.reader.warning((*at, "items"), "for_each.items", doubt)
    if isinstance(items, list) or (isinstance(items, str) and "${{" in items):
        return
    hint = "; write it as a hole: ${{ ... }}" if isinstance(items, str) else ""
    message = f"expected a list or a hole that gives one, found {kind_of(items)}{hint}"
    context.reader.error((*at, "items"), "for_each.items", message)


def _read_loop_variable(context: StepContext, draft: StepDraft, at: Path, names: Names) -> str:
    params, raw = draft.params, draft.fields["for_each"]
    variable = params.get("as", "item")
    if "as" not in params and isinstance(raw, Mapping) and isinstance(raw.get("as"), str):
        return raw["as"]  # it is wrong, which a finding says; what reads it is not
    if variable in names.roots and (variable == "item" or variable not in ROOTS):
        message = f"`{variable}` is the variable of a loop around already, or of a `let`; name this one with `as`"
        context.reader.error((*at, "as"), "for_each.as", message, key="as" not in params)
    return variable


def _repeat(context: StepContext, draft: StepDraft, names: Names) -> plan.Verb | None:
    params, at = draft.params, (*draft.at, "repeat")
    if "while" in params and "until" in params:
        message = "expected `while` or `until`, found both; one loop has one condition"
        context.reader.error((*at, "until"), "repeat.conditions", message, key=True)
    inside = names.with_roots("index")
    chain = (*draft.chain, _frame(draft))
    again = None
    if "while" in params:
        here = context.elsewhere(inside, chain, draft.body_end, at_end=True, before=draft)
        again = draft.conditions["while"] = context.condition(params["while"], (*at, "while"), here)
    behind = context.compile(draft.blocks[""], inside.knowing(_list_paths(again)) if again else inside)
    done = None
    if "until" in params:
        here = context.elsewhere(inside, chain, draft.body_end, at_end=True)
        here = here if any(leaving(draft)) else here.behind(behind)
        done = draft.conditions["until"] = context.condition(params["until"], (*at, "until"), here)
    iteration = _compile_iteration(context, draft, None)
    if "max" not in params or iteration is None:
        return None
    return plan.Repeat(params["max"], iteration, again, done)


def _list_paths(condition: CompiledExpression) -> Guards:
    """The paths that the condition of a loop shows, without its facts: those may be of the round before."""
    return frozenset(each for each in condition.guards if each[0] is not None)


def _frame(draft: StepDraft) -> Enclosure:
    """The body of a loop, as its steps have it."""
    steps = draft.blocks[""]
    return steps[0].chain[-1] if steps else Enclosure(draft, "", f"{draft.path}[]")


def _compile_iteration(context: StepContext, draft: StepDraft, output: plan.Template | None) -> str | None:
    """The pseudo-step of a loop's body; None where it has no steps."""
    steps = draft.blocks[""]
    if not steps:
        return None
    path = f"{draft.path}[]"
    body = plan.Step(
        path=path,
        id=f"{draft.id}[]",
        verb=plan.Iteration(steps[0].path, output),
        parent=draft.path,
        body="[]",
        line=draft.line,
    )
    context.add(body, 2 * draft.order + 1)
    return path


def _join(context: StepContext, draft: StepDraft) -> Any:
    join, count = draft.fields.get("join", "all"), len(draft.fields["parallel"])
    if join in ("all", "any") if isinstance(join, str) else (type(join) is int and 1 <= join <= count):
        return join
    actual = join if type(join) is int else kind_of(join)
    message = f"expected `all`, `any` or a number from 1 to {count}, as there are branches, found {actual}"
    context.reader.error((*draft.at, "join"), "parallel.join", message)
    return "all"


def _cases(lists: Lists, draft: StepDraft) -> None:
    cases = draft.fields["switch"]
    for number, raw in enumerate(cases):
        at = (*draft.at, "switch", number)
        is_default = isinstance(raw, Mapping) and "default" in raw and "when" not in raw
        shape = _CASES["default" if is_default else "when"]
        valued = isinstance(raw, Mapping) and "result" in raw and "steps" not in raw
        if valued:
            shape = _VALUED["default" if is_default else "when"]
        fields = lists.reader.fields(shape, raw, at, "the default case" if is_default else "a case of `switch`")
        if is_default and number < len(cases) - 1:
            message = "expected the default case last: nothing behind it would run; move it to the end"
            lists.reader.error((*at, "default"), "switch.default", message, key=True)
        inner = (*draft.chain, Enclosure(draft, str(number), draft.path))
        prefix = f"{draft.path}/{number}/"
        if valued:
            draft.blocks[str(number)] = []
            continue
        draft.blocks[str(number)] = lists.steps(fields.get("steps", ()), (*at, "steps"), prefix, inner)


def _branches(lists: Lists, draft: StepDraft) -> None:
    for name, raw in draft.fields["parallel"].items():
        at = (*draft.at, "parallel", name)
        fault = check_name(name)
        if fault:
            lists.reader.error(at, "name.invalid", fault, key=True)
        place = at
        if isinstance(raw, Mapping) and ("steps" in raw or "result" in raw):
            raw = lists.reader.fields(BRANCH, raw, at, f"the branch `{name}`").get("steps")
            place = (*at, "steps")
            if raw is None:  # a finding says so
                draft.blocks[name] = []
                continue
        steps = lists.steps_of(raw, place, f"the branch `{name}`")
        inner = (*draft.chain, Enclosure(draft, name, draft.path))
        draft.blocks[name] = lists.steps(steps, place, f"{draft.path}/{name}/", inner)


def _group(lists: Lists, draft: StepDraft) -> None:
    inner = (*draft.chain, Enclosure(draft, "", draft.path))
    draft.blocks[""] = lists.steps(draft.fields["try"], (*draft.at, "try"), f"{draft.path}/", inner)


def _body(lists: Lists, draft: StepDraft) -> None:
    at = (*draft.at, draft.verb)
    draft.params = lists.reader.fields(_LOOPS[draft.verb], draft.fields[draft.verb], at, f"`{draft.verb}`")
    parent = f"{draft.path}[]"
    inner = (*draft.chain, Enclosure(draft, "", parent))
    draft.blocks[""] = lists.steps(draft.params.get("steps", ()), (*at, "steps"), f"{parent}/", inner)


def _compile_parallel(context: StepContext, draft: StepDraft, names: Names) -> plan.Parallel:
    results: dict[str, plan.Template] = {}
    for name, steps in draft.blocks.items():
        behind = context.compile(steps, names)
        raw = draft.fields["parallel"][name]
        if isinstance(raw, Mapping) and "result" in raw:
            here = _build_names_at_end(context, draft, steps, names, behind)
            results[name] = context.template(raw["result"], (*draft.at, "parallel", name, "result"), here)
    branches = tuple((name, steps[0].path) for name, steps in draft.blocks.items() if steps)
    return plan.Parallel(branches, _join(context, draft), results)


def _winners(context: StepContext, draft: StepDraft, derive: _Derive | None = None) -> Json:
    join = draft.fields.get("join", "all")
    named = type(join) is int
    output = record(winners={"type": "array", "items": {"type": "string"}}) if named else record(winner={})
    branches = draft.fields.get("parallel", {})
    valued = {name: raw["result"] for name, raw in branches.items() if isinstance(raw, Mapping) and "result" in raw}
    if not valued:
        return output
    kinds = {name: (derive or _derive_literal_type)(each) for name, each in valued.items()}
    results = record(**kinds)
    if join != "all":
        results = {**results, "required": []}
    output = {
        **output,
        "properties": {**output["properties"], "results": results},
        "required": [*output["required"], "results"],
    }
    return _with_result(output, list(kinds.values()), covers=len(valued) == len(branches)) if join == "any" else output


def _try(context: StepContext, draft: StepDraft, names: Names) -> plan.Try:
    context.compile(draft.blocks[""], names)
    return plan.Try(draft.blocks[""][0].path)


VERBS: Final = (
    VerbRules(
        "switch",
        type=list_of(shape_of("case"), 1),
        does="the first case that is true",
        keys=("timeout", *ENDED_KEYS),
        output="`{case: n or null}`, and the `result` of the case",
        example='[{when: "input.amount > 100.0", steps: [{say: "Much."}]}, {default: true, steps: [{say: "Little."}]}]',
        compile=_switch,
        kind="block",
        shapes=(CASE,),
        lists=_cases,
        gives=_build_switch_record,
        judges=partial(_build_switch_record, derive=_infer_type_anywhere),
        aka=("branch", "case", "else", "choose"),
    ),
    VerbRules(
        "for_each",
        type=shape_of("for_each"),
        does="steps for each item of a list",
        keys=("timeout", *ENDED_KEYS),
        output="list of `{key, status, output, error}`",
        fails="`for_each.duplicate_key`",
        example='{items: "${{ input.names }}", steps: [{say: "${{ item }}"}]}',
        compile=_compile_for_each,
        kind="block",
        shapes=(FOR_EACH,),
        lists=_body,
        gives=_build_output_of_items,
        aka=("foreach", "loop", "for", "map"),
    ),
    VerbRules(
        "repeat",
        type=shape_of("repeat"),
        does="steps again and again",
        keys=("timeout", *ENDED_KEYS),
        output="`{count}`",
        fails="`repeat.exhausted`",
        example='{max: 3, until: "state.done", steps: [{say: "Again."}]}',
        compile=_repeat,
        kind="block",
        shapes=(REPEAT,),
        lists=_body,
        gives=record(count={"type": "integer"}),
        aka=("while", "until"),
    ),
    VerbRules(
        "parallel",
        type=map_of(either(STEPS, shape_of("branch")), "id", 2, 64),
        does="branches side by side",
        keys=("join", "timeout", *ENDED_KEYS),
        output="`{winner: branch or null}`; of `join: n` `{winners: branches}`; and the `results` of branches",
        example='{legal: [{say: "One."}], finance: [{say: "Two."}]}',
        compile=_compile_parallel,
        kind="block",
        shapes=(BRANCH,),
        read=map_of(ANY, "id", 2, 64),
        lists=_branches,
        gives=_winners,
        judges=partial(_winners, derive=_infer_type_anywhere),
    ),
    VerbRules(
        "try",
        type=STEPS,
        does="groups steps for `catch`, `finally`, `timeout` and `if`",
        keys=("timeout", *ENDED_KEYS),
        output="null",
        example='[{say: "Hello"}]',
        compile=_try,
        gives={"type": "null"},
        kind="block",
        lists=_group,
    ),
)
