"""Who may decide, and how many of them it takes: `from`, `exclude` and `quorum` (docs/language.md#people)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hai_flow import values
from hai_flow.definition import plan
from hai_flow.definition.checks.type_mismatches import doubt_fraction, misfits
from hai_flow.definition.expressions.ast_paths import Segment
from hai_flow.definition.expressions.evaluation import CompiledTemplate
from hai_flow.definition.expressions.expressions import list_sources, list_values
from hai_flow.definition.fields import is_hole, strip_hole
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import ROOTS
from hai_flow.definition.names.wording import kind_of, suggestion
from hai_flow.definition.raw_steps import Outline
from hai_flow.definition.schemas.schema_paths import Look, resolve
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.keys import ANY, HOLE, SELECTORS, Key, either, enum, integer, map_of
from hai_flow.values import Json

FROM: Final = Key(
    "from", SELECTORS, "who may decide: `user:id agent:id role:name group:name requester anyone`, one or a list",
    required=True, example="[user:ann, role:controller]",
)  # fmt: skip
EXCLUDE: Final = Key(
    "exclude", SELECTORS, "who may not, also `editor`; without it the requester, unless `from` has `requester` or "
    "`anyone`; `[]` = nobody", example="[requester, editor]",
)  # fmt: skip
QUORUM: Final = Key(
    "quorum", either(integer(1), enum("all"), map_of(integer(1), "any"), HOLE),
    "how many distinct people: a number, `all` of `from`, seats by selector (`any`: people in all), or a hole that "
    "gives a number or `all` when it is asked",
    default="1", example="{role:sre: 1, any: 2}", read=ANY,
)  # fmt: skip
PICK: Final = Key(
    "pick", integer(1), "so many of `from`, those with the fewest open picks, decide; the others see it",
    default="everybody", example="2",
)  # fmt: skip

_SELECTOR: Final = re.compile(r"(user|agent|role|group):.+|requester|anyone")
_SPACED: Final = re.compile(r"(user|role|group)\s*:\s+(\S.*)")  # which names nobody
REQUESTER: Final = "requester"


_SELECTORS_TAKEN: Final[Json] = {"type": ["string", "array"], "items": {"type": ["string", "array"]}}


def selectors_of(
    context: StepContext, value: Json, at: Path, names: Names, extra: Sequence[str] = (), empty: bool = False
) -> CompiledTemplate:
    """A selector or a list of them, as a template of a list (a whole hole may give the list itself)."""
    value = [strip_hole(each) for each in value] if isinstance(value, list) else strip_hole(value)
    is_one_hole = isinstance(value, str) and is_hole(value)
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not value and not empty:
        message = "expected at least one selector such as `role:manager`, found an empty list"
        context.reader.error(at, "selector.none", message)
    for index, item in enumerate(items):
        _check_selector(context, item, (*at, index) if isinstance(value, list) else at, extra)
    if is_one_hole or isinstance(value, list):
        template = context.template(value, at, names)
        for path, fault in misfits(value, template, _SELECTORS_TAKEN, {}, names):
            message = f"the hole never gives people: {fault}; it gives a selector such as user:ann, or a list of them"
            context.reader.refuse((*at, *path), "selector.invalid", message)
        for index, item in enumerate(items):
            _check_given(context, item, (*at, index) if isinstance(value, list) else at, names, extra)
        return template
    return context.template([value], at, names, wrapped=True)


def names_requester(outline: Outline, value: Json, names: Names) -> bool:
    """Whether the author's own words let the requester decide: `requester` or `anyone` in the text, as a literal that a
    hole gives or that a step has given it, or as a choice or default of its schema. What data says is no such word."""
    sources, holes = [value], set[str]()
    while sources:
        match sources.pop():
            case list(several):
                sources += several
            case "requester" | "anyone":
                return True
            case str(text) if is_hole(text) and text not in holes:
                holes.add(text)
                literals, paths = list_sources(text, names)
                sources += literals
                for path in paths:
                    sources += _list_choices(names.types.look_to_judge(path))
                    sources += _list_written(outline, path)
    return False


def _list_choices(look: Look) -> Iterator[Json]:
    """The values that a type lists, for the value itself or its items."""
    schemas = [look.schema]
    for _ in range(3):  # of the type, of what it may be, and of their items
        schemas = [schema for each in schemas if isinstance(schema := resolve(each, look.root), Mapping)]
        for schema in schemas:
            yield from (schema.get("const"), schema.get("default"), schema.get("enum"))
        inner = (each.get(key) for each in schemas for key in ("items", "anyOf", "oneOf"))
        schemas = [part for each in inner for part in (each if isinstance(each, list) else [each])]


def _list_written(outline: Outline, path: Sequence[Segment]) -> Iterator[Json]:
    """What the document gives for the path: as the result of a case of a `switch`, or by a `let` or a `set`."""
    match path:
        case ("steps", str(id), "output", "result", *_) if (draft := outline.ids.get(id)) is not None:
            cases = draft.fields.get("switch")
            cases = cases if isinstance(cases, list) else []
            yield from (each.get("result") for each in cases if isinstance(each, Mapping))
        case ("state", str(name), *_):
            yield from _list_given(outline, "set", name)
        case (str(name), *_) if name not in ROOTS:
            yield from _list_given(outline, "let", name)


def _list_given(outline: Outline, verb: str, name: str) -> Iterator[Json]:
    mappings = (draft.fields.get(verb) for draft in outline.every if draft.verb == verb)
    return (each[name] for each in mappings if isinstance(each, Mapping) and name in each)


def compile_exclusion(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names
) -> CompiledTemplate | None:
    """The selectors of `exclude`; None where it is not there."""
    if "exclude" not in fields:
        return None
    return selectors_of(context, fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)


def _check_selector(
    context: StepContext, item: Json, at: Path, extra: Sequence[str] = (), *, key: bool = False
) -> None:
    if isinstance(item, str) and (("${{" in item and not key) or _is_selector(item) or item in extra):
        if item.startswith("role:") and context.declared.roles and item[5:] not in context.declared.roles:
            _check_role(context, item[5:], at, key=key)
        return
    words = (REQUESTER, "anyone", *extra)
    hint = suggestion(item, words) if isinstance(item, str) and len(item) > 4 else ""  # `ann` is no `anyone`
    if not hint:
        hint = _suggest_selector(item)
    message = f"expected user:ID, role:NAME, group:NAME, {', '.join(words)}, found {kind_of(item)}{hint}"
    report = context.reader.refuse if isinstance(item, str) and is_selector_like(item) else context.reader.error
    report(at, "selector.invalid", message, key=key)


def _check_given(context: StepContext, item: Json, at: Path, names: Names, extra: Sequence[str]) -> None:
    """Report values of the hole of a selector that are no selectors, as far as they are known."""
    if not isinstance(item, str) or not is_hole(item):
        return
    if (doubt := names.doubt_value(item)) is not None:
        context.reader.warning(at, "selector.nullable", doubt)
    for selector in list_values(item, names):
        if not (isinstance(selector, str) and (_is_selector(selector) or selector in extra)):
            message = f"the hole may give {kind_of(selector) if selector is None else repr(selector)}, which is nobody"
            context.reader.refuse(at, "selector.invalid", f"{message}{_suggest_selector(selector)}")


def _check_role(context: StepContext, name: str, at: Path, *, key: bool) -> None:
    """Roles that `roles` does not have come from the deployment: only a near match is worth a word."""
    hint = suggestion(name, context.declared.roles)
    if hint:
        context.reader.warning(at, "role.unknown", f"`roles` has no `{name}`{hint}", key=key)


def compile_quorum(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names
) -> plan.Quorum | plan.Template | None:
    """The quorum; None where there is none, or after a finding."""
    quorum = fields.get("quorum")
    if "quorum" not in fields:
        return None
    at = (*at, "quorum")
    if isinstance(quorum, str) and is_hole(quorum):
        return _compile_quorum_hole(context, quorum.strip(), at, names)
    if type(quorum) is int and quorum >= 1:
        return quorum
    if quorum == "all":
        return "all"
    if isinstance(quorum, Mapping) and quorum and all(type(n) is int and n >= 1 for n in quorum.values()):
        for selector in quorum:
            if selector != "any":
                _check_selector(context, selector, (*at, selector), key=True)
        return quorum
    place, value = at, quorum
    if isinstance(quorum, Mapping) and quorum:
        key = next(key for key, n in quorum.items() if type(n) is not int or n < 1)
        place, value = (*at, key), quorum[key]
    message = f"expected a number from 1, `all` or a mapping of such numbers by selector, found {kind_of(value)}"
    context.reader.error(place, "quorum.invalid", message)
    return None


def _compile_quorum_hole(context: StepContext, quorum: str, at: Path, names: Names) -> plan.Template | None:
    type_name = names.type_of(quorum)
    if type_name not in (None, "integer", "number", "string"):
        message = f"expected a hole that gives a number or `all`, found something of type {type_name}"
        context.reader.error(at, "quorum.invalid", message)
        return None
    if (doubt := names.doubt_value(quorum) or doubt_fraction(quorum, {"type": "integer"}, {}, names)) is not None:
        context.reader.warning(at, "quorum.nullable", doubt)
    for number in list_values(quorum, names):
        if number != "all" and not (type(number) in (int, float) and number >= 1 and number == int(number)):
            message = f"expected a number from 1 or `all`, and the hole may give {values.dumps(number).decode()}"
            context.reader.refuse(at, "quorum.invalid", message)
    return context.template(quorum, at, names)


def is_selector_like(item: str) -> bool:
    """Whether `item` begins as a selector does, sound or not."""
    return _SELECTOR.fullmatch(item) is not None


def _is_selector(item: str) -> bool:
    return is_selector_like(item) and _SPACED.fullmatch(item) is None


def _suggest_selector(item: Json) -> str:
    if isinstance(item, Mapping) and len(item) == 1:  # YAML takes `role: lead` for a mapping
        ((kind, name),) = item.items()
        return f"; write `{kind}:{name}`, without a space" if _is_selector(f"{kind}:{name}") else ""
    if not isinstance(item, str):
        return ""
    kind, colon, name = (part.strip() for part in item.partition(":"))
    near = difflib.get_close_matches(kind, ("user", "role", "group"), n=1, cutoff=0.6) if colon and name else []
    if near:
        return f"; did you mean `{near[0]}:{name}`?"
    return f"; did you mean `user:{item}` or `role:{item}`?" if re.fullmatch(r"[\w.@-]+", item) else ""
