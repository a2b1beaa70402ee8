"""`set`: the state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hai_flow.definition import plan
from hai_flow.definition.checks.type_mismatches import doubt_fraction, misfits, spell_types, types_taken
from hai_flow.definition.expressions.evaluation import CompiledTemplate
from hai_flow.definition.expressions.expressions import infer_type
from hai_flow.definition.fields import DATA, is_literal
from hai_flow.definition.names.holes import find_only_hole
from hai_flow.definition.names.known_names import Names, as_inferred
from hai_flow.definition.names.known_types import FILTERED, INFERRED, ROOTS, SOURCE
from hai_flow.definition.names.name_forms import check_name
from hai_flow.definition.names.wording import shorten, suggestion
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.schemas.schema_paths import explain_unknown_property, find_part, resolve
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import ENDED_KEYS
from hai_flow.definition.yaml.keys import ANY, LITERAL, MAPPING, Key, Shape, either, enum, list_of, map_of, shape_of
from hai_flow.primitives.json_pointers import find_key, unescape
from hai_flow.values import Json

OPERATION: Final = Shape("operation", "An operation of `set` (RFC 6902)", (
    Key("op", enum("add", "remove", "replace", "move", "copy", "test"), "the operation", required=True,
        example="remove"),
    Key("path", LITERAL, "a JSON Pointer into the state", required=True, example="/plan/-"),
    Key("from", LITERAL, "source pointer of `move` and `copy`", example="/plan/0"),
    Key("value", ANY, "value of `add`, `replace` and `test`", example="{status: pending}"),
))  # fmt: skip


def _set(context: StepContext, draft: StepDraft, names: Names) -> plan.Set | None:
    value, at = draft.value, draft.value_at
    if isinstance(value, list):
        for index, raw in enumerate(value):
            _check_operation(context, raw, (*at, index), value[index + 1 :])
        template = context.template(value, at, names)
        for index, raw in enumerate(value):
            if isinstance(raw, Mapping) and not any(_has_within(raw, each) for each in value[index + 1 :]):
                _check_patched(context, raw, (*at, index), names, template)
        return plan.Set(ops=template)
    if not value:
        context.reader.error(at, "set.empty", "expected at least one state variable in `set`, found none")
        return None
    pairs: list[tuple[str, plan.Template]] = []
    for key, item in value.items():
        _check_target(context, key, (*at, key), pointer_form=key.startswith("/"))
        template = context.template(item, (*at, key), names)
        pairs.append((key, template))
        if key.startswith("/"):
            schema = _find_place(context, key, (*at, key), key=True)
            if schema is not None:
                _check_placed(context, key, item, (*at, key), names, template, schema)
            _report_no_place(context, key, (*at, key), key=True)
        else:
            _check_value(context, key, item, (*at, key), names, template)
    return plan.Set(assign=tuple(pairs))


def _check_value(
    context: StepContext, name: str, value: Json, at: Path, names: Names, template: CompiledTemplate
) -> None:
    """A value against the variable's type; of a hole, whether it may be null."""
    variable = context.declared.state.get(name)
    if variable is None:
        return
    nullable = names.find_null_path(value)
    if nullable is not None and not _can_take_null(variable):
        message = (
            f"`{nullable}` may be null, which the state `{name}` does not take; give the step "
            f"`if: {nullable} != null`, or set a value in its place"
        )
        context.reader.warning(at, "set.nullable", message)
    raw = variable.schema.raw
    if variable.reduce == "append":
        raw = raw.get("items")
        if not isinstance(raw, Mapping) or "$ref" in str(raw):
            return
    elif variable.reduce == "add":
        raw = {"type": "number"}
        _report_counted_twice(context, name, value, at)
    elif variable.reduce == "merge":
        raw = {"type": "object"}
    elif value is None and "default" not in variable.schema.raw:
        return
    if not is_literal(value):
        for path, fault in misfits(value, template, raw, raw, names):
            hint = _ONE_BY_ONE if variable.reduce == "append" and fault.endswith("found a list") else ""
            message = f"the value never fits the state `{name}`: {fault}{hint}"
            context.reader.refuse((*at, *path), "set.type", message)
        if (doubt := doubt_fraction(value, raw, raw, names)) is not None:
            context.reader.warning(at, "set.fraction", doubt)
        return
    schema = variable.schema if raw is variable.schema.raw else JsonSchema(raw)
    for fault in schema.findings(value)[:1]:
        what = "an element of " if variable.reduce == "append" else ""
        several = variable.reduce == "append" and isinstance(value, list)
        reads = isinstance(value, str) and re.match(r"(input|state|steps)\.[a-z]", value)
        hint = f"; an expression is written ${{{{ {shorten(value)} }}}}" if reads else ""
        if several:
            hint = _ONE_BY_ONE
        message = f"the value does not fit {what}the state `{name}`: {fault['message']}{hint}"
        report = context.reader.refuse if variable.reduce == "merge" else context.reader.error
        report(at, "set.type", message)


def _check_patched(
    context: StepContext, raw: Mapping[str, Json], at: Path, names: Names, template: CompiledTemplate
) -> None:
    """An operation of a patch against the type of its variable."""
    pointer, op = raw.get("path"), raw.get("op")
    if not isinstance(pointer, str) or not pointer.startswith("/") or op not in ("add", "replace", "remove"):
        return
    _report_no_place(context, pointer if op == "add" else f"{pointer}/", (*at, "path"), key=False)
    schema = _find_place(context, pointer, (*at, "path"), key=False)
    if schema is not None and op != "remove" and "value" in raw:
        _check_placed(context, pointer, raw["value"], (*at, "value"), names, template, schema, (at[-1], "value"))


def _find_place(context: StepContext, pointer: str, at: Path, *, key: bool) -> Json:
    """The schema of the place of a pointer; None where that is not known, or after a finding: there never is one."""
    name, *rest = (unescape(part) for part in pointer.split("/")[1:])
    variable = context.declared.state.get(name)
    if variable is None or variable.reduce:
        return None
    root = schema = variable.schema.raw
    for part in rest:
        types = types_taken(schema, root)
        schema = resolve(schema, root)
        if types is not None and types.isdisjoint(("object", "array")):
            message = f"`{pointer}` leads into {spell_types(types)}, which has no parts; set `{name}` by its name"
            context.reader.refuse(at, "set.place", message, key=key)
            return None
        if types == {"array"} and not _INDEX.fullmatch(part):
            message = f"`{shorten(part)}` is no item of a list; write a number, or `-` for a new one at the end"
            context.reader.refuse(at, "set.place", message, key=key)
            return None
        if not isinstance(schema, Mapping):
            return None
        inner = find_part(schema, 0 if types == {"array"} else part)
        if inner is None:
            fault = explain_unknown_property(schema, part, ("state", name))
            if fault is not None and schema.get("additionalProperties") is False:
                context.reader.refuse(at, "set.place", fault, key=key)
            return None
        schema = inner
    return schema


def _check_placed(
    context: StepContext, pointer: str, value: Json, at: Path, names: Names, template: CompiledTemplate, schema: Json,
    inside: Path = (),
) -> None:  # fmt: skip
    """A value against the type of the place where it is set; `inside`: its path in the template."""
    variable = context.declared.state[unescape(pointer.split("/")[1])]
    root = variable.schema.raw if variable is not None else None
    faults = [fault for _, fault in misfits(value, template, schema, root, names, inside)]
    if (doubt := doubt_fraction(value, schema, root, names)) is not None:
        context.reader.warning(at, "set.fraction", doubt)
    if is_literal(value) and isinstance(schema, Mapping) and "$ref" not in str(schema):
        faults = [fault["message"] for fault in JsonSchema(schema).findings(value)]
    for fault in faults[:1]:
        context.reader.refuse(at, "set.type", f"the value never fits the state at `{pointer}`: {fault}")


def _report_no_place(context: StepContext, pointer: str, at: Path, *, key: bool) -> None:
    """Doubt a pointer whose parents are not in the default of the variable, and which no step sets."""
    parts = [unescape(part) for part in pointer.split("/")[1:]]
    variable = context.declared.state.get(parts[0])
    if variable is None or variable.reduce or variable.client or variable.kept:
        return
    missing = _find_missing(variable.default, parts)
    if missing is None or any(_is_within(missing, each) for each in _list_written_places(context)):
        return
    place = "".join(f"/{part}" for part in missing)
    message = f"nothing is at `{place}` when a run begins, and no step sets it; set it before, or give it a `default`"
    context.reader.warning(at, "set.place", message, key=key)


def _is_within(place: list[str], written: list[str]) -> bool:
    """Whether a place may be that which a step writes, or inside of it; `-` is the next item of a list."""
    pairs = zip(place, written, strict=False)
    return len(written) <= len(place) and all(
        one == other or (other == "-" and one.isdecimal()) for one, other in pairs
    )


def _find_missing(value: Any, parts: list[str]) -> list[str] | None:
    """The first parts of a pointer up to the one that the `value` of its variable lacks; None: it has all parents."""
    for index, part in enumerate(parts[1:-1], 1):
        key = find_key(value, part)
        if key is None:
            return parts[: index + 1]
        value = value[key]
    return None


def _list_written_places(context: StepContext) -> Iterator[list[str]]:
    """The places of the state that steps of the document set, each as its parts."""
    for draft in (each for each in context.outline.every if each.verb == "set"):
        value = draft.fields.get("set")
        if isinstance(value, Mapping):
            yield from ([unescape(part) for part in f"/{key}".replace("//", "/").split("/")[1:]] for key in value)
            continue
        for raw in value if isinstance(value, list) else ():
            pointer = raw.get("path") if isinstance(raw, Mapping) and raw.get("op") in ("add", "move", "copy") else None
            if isinstance(pointer, str):
                yield [unescape(part) for part in pointer.split("/")[1:]]


def _has_within(operation: Mapping[str, Json], later: Json) -> bool:
    """Whether a later operation of the same patch takes away, or replaces, the place of the operation."""
    paths = [later.get("path"), later.get("from")] if isinstance(later, Mapping) else []
    return any(isinstance(each, str) and f"{operation.get('path')}/".startswith(f"{each}/") for each in paths)


_INDEX: Final = re.compile(r"-|0|[1-9][0-9]{0,15}")
_ONE_BY_ONE: Final = "; `reduce: append` adds the value as one element: set each element in a step of its own"


def _report_counted_twice(context: StepContext, name: str, value: Json, at: Path) -> None:
    """Doubt a sum that is added to the variable of which it is a part."""
    hole = find_only_hole(value) if isinstance(value, str) else None
    if hole is None:
        return
    own = rf"\s*state\.{re.escape(name)}\s*"
    rest = re.fullmatch(rf"{own}\+(.+)", hole.source, re.S) or re.fullmatch(rf"(.+)\+{own}", hole.source, re.S)
    if rest is not None:
        message = (
            f"`reduce: add` adds this to `{name}`, of which it is made: the variable counts twice; write "
            f"`${{{{ {rest[1].strip()} }}}}` alone"
        )
        context.reader.warning(at, "set.twice", message)


def _check_operation(context: StepContext, raw: Json, at: Path, later: Sequence[Json]) -> None:
    """Report what is wrong with an operation, in front of `later` ones of the same patch."""
    fields = context.reader.fields(OPERATION, raw, at, "an operation of `set`")
    op = fields.get("op")
    if op in ("add", "replace", "test") and "value" not in fields:
        context.reader.error(at, "shape.missing_key", f"`value` is missing: `{op}` needs one")
    if op in ("move", "copy") and "from" not in fields:
        context.reader.error(at, "shape.missing_key", f"`from` is missing: `{op}` needs one")
    for key in ("path", "from") if op else ():
        if key in fields and fields[key] == "" and op != "test":
            context.reader.error((*at, key), "set.root", "the whole state can't be replaced; name a variable: /name")
        elif key in fields and fields[key] != "":
            _check_target(context, fields[key], (*at, key), pointer_form=True, key=False)
            removes_variable = op == "remove" or (op == "move" and key == "from")
            is_variable = fields[key].startswith("/") and fields[key].count("/") == 1
            if removes_variable and is_variable and not any(_puts(each, fields[key]) for each in later):
                message = (
                    f"a variable can't be taken out of the state; give it a value: set: {{{fields[key][1:]}: ...}}"
                )
                context.reader.refuse((*at, key), "set.place", message)


def _puts(operation: Json, pointer: str) -> bool:
    """Whether an operation gives a value to the variable at `pointer`, whether or not it has one."""
    return (
        isinstance(operation, Mapping)
        and operation.get("op") in ("add", "move", "copy")
        and operation.get("path") == pointer
    )


def _check_target(context: StepContext, target: str, at: Path, *, pointer_form: bool, key: bool = True) -> None:
    """Report a `target` (a state name or a JSON Pointer) that does not begin with a declared variable, or can't be
    set."""
    name = target
    if pointer_form:
        if not target.startswith("/"):
            message = f"expected a JSON Pointer such as /name/0, found `{shorten(target)}`"
            context.reader.error(at, "set.pointer", message, key=key)
            return
        name = unescape(target.split("/")[1])
    if name not in context.declared.state:
        hint = suggestion(name, context.declared.state) or "; declare it under `state`"
        if name.removeprefix("state.") in context.declared.state:
            hint = f"; did you mean `{name.removeprefix('state.')}`?"
        context.reader.error(at, "set.unknown", f"there is no state variable `{shorten(name)}`{hint}", key=key)
        return
    variable = context.declared.state[name]
    if pointer_form and variable is not None and variable.reduce:
        message = f"`{name}` has `reduce: {variable.reduce}`: set it by its name, not by a pointer"
        context.reader.error(at, "set.reduce", message, key=key)


def _can_take_null(variable: plan.StateVariable) -> bool:
    """Whether a `set` of null fits: replacing the variable, or as one more element."""
    if variable.reduce is None:
        return not variable.schema.findings(None)
    items = variable.schema.raw.get("items")
    return variable.reduce != "append" or not isinstance(items, Mapping) or not JsonSchema(items).findings(None)


def _let(context: StepContext, draft: StepDraft, names: Names) -> plan.Let | None:
    value, at = draft.value, draft.value_at
    if "if" in draft.fields:
        message = "a `let` takes no `if`: the names would not always be there; write `${{ condition ? one : other }}`"
        context.reader.error((*draft.at, "if"), "let.if", message, key=True)
    for name in value:
        fault = check_name(name)
        if fault is None and name in names.roots:
            fault = f"`{name}` is a name here already, of a `let` before or of a loop around; choose another name"
        if fault is not None:
            context.reader.error((*at, name), "let.name", fault, key=True)
        elif isinstance(value[name], str) and "${{" not in value[name] and not value[name].startswith(DATA):
            path = names.find_path_named(value[name])
            if path is not None:
                message = f"this is text; an expression is written ${{{{ {path} }}}}"
                context.reader.warning((*at, name), "let.text", message)
    return plan.Let(context.template(value, at, names))


def let_schemas(draft: StepDraft, names: Names) -> dict[str, Json]:
    """The names that a `let` gives to the steps behind it, with their types."""
    value = draft.fields.get("let")
    if draft.verb != "let" or not isinstance(value, Mapping):
        return {}
    return {
        name: names.schema_of(each) or _with_source(as_inferred(infer_type(each, names)), each)
        for name, each in value.items()
        if name not in ROOTS and check_name(name) is None
    }


def _with_source(schema: Json, value: Json) -> Json:
    """The type of a name, with the expression that conditions over the name stand for."""
    inferred = schema.get(INFERRED) if isinstance(schema, Mapping) else None
    hole = find_only_hole(value) if isinstance(value, str) else None
    if hole is None or not isinstance(inferred, Mapping):
        return schema
    if inferred.get("type") not in ("boolean", "integer") and FILTERED not in inferred:
        return schema
    return schema if _CHANGING.search(hole.source) else {INFERRED: inferred, SOURCE: hole.source.strip()}


_CHANGING: Final = re.compile(r"\b(state|now|index|error|answer|callback|response|event|args)\b|//")


VERBS: Final = (
    VerbRules(
        "let",
        type=map_of(ANY, "id", 1),
        does="names values: later steps in its list, and steps inside them, use the name alone (`large`); no state",
        output="the values",
        example='{late: "${{ input.days > 30 }}"}',
        compile=_let,
        kind="state",
        gives=lambda context, draft: {},
        aka=("vars", "var", "const", "compute"),
    ),
    VerbRules(
        "set",
        type=either(map_of(ANY, "any", 1), list_of(shape_of("operation"), 1)),
        does="writes state: names or JSON Pointers with values, or a list of RFC 6902 operations",
        keys=ENDED_KEYS,
        output="null",
        fails="`state.invalid`",
        example="{status: booked}",
        read=either(MAPPING, list_of(ANY)),
        compile=_set,
        gives={"type": "null"},
        kind="state",
        shapes=(OPERATION,),
        aka=("assign",),
    ),
)
