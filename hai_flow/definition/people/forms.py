"""The form that goes with an answer, and how several people's become one: `form` and `combine`
(docs/language.md#people)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow.definition.checks.type_mismatches import misfits
from hai_flow.definition.expressions.evaluation import CompiledTemplate
from hai_flow.definition.fields import texts
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import FILLED
from hai_flow.definition.names.wording import kind_of, suggestion
from hai_flow.definition.schemas.schema_work import TOO_LARGE
from hai_flow.definition.schemas.schemas import fault_of_size
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.keys import SCHEMA, Key, enum, map_of
from hai_flow.values import Json

FORM: Final = Key(
    "form", SCHEMA, "a form that goes with the answer (only an approval must fill in what is `required`); holes are "
    "allowed in `default enum const title description "
    "minimum maximum`",
    example="{type: object, required: [cost_center], properties: {cost_center: {type: string}}}",
)  # fmt: skip
COMBINE: Final = Key(
    "combine", map_of(enum("same", "min", "max", "first", "last", "list", "any", "all"), "any"),
    "how the answers of several people become one, by property of the form; `same` refuses a differing answer",
    default="same", example="{amount: min}",
)  # fmt: skip

_HOLED: Final = ("default", "enum", "const", "title", "description", "minimum", "maximum")
_OF_HOLES: Final[dict[str, Json]] = {
    "enum": {"type": "array"}, "minimum": {"type": "number"}, "maximum": {"type": "number"},
}  # fmt: skip
_JOINS: Final[tuple[str, ...]] = COMBINE.type.parts[0].values


def form_of(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names
) -> tuple[CompiledTemplate | None, dict[str, Json] | None]:
    """The template of the form, and its literal part; None and None without one, or after a finding."""
    if "form" not in fields:
        return None, None
    form, place = fields["form"], (*at, "form")
    if form.get("type", "object") != "object":
        message = f"expected a form with `type: object`, found `{form['type']}`; put it under `properties`"
        context.reader.error((*place, "type"), "form.type", message)
        return None, None
    clean = True
    literal = collect_literal_form(form)
    for path, text in texts(literal, ()):
        if "${{" in text.replace("$${{", ""):
            clean = False
            message = f"a form's holes can stand in {', '.join(_HOLED)} only; write this out"
            context.reader.error((*place, *path), "schema.hole", message)
    if not clean or context.compile_schema(literal, place) is None:
        return None, None
    if (fault := fault_of_size(literal)) is not None:
        context.reader.error(place, TOO_LARGE, fault)
        return None, None
    properties = form.get("properties")
    for name, raw in properties.items() if isinstance(properties, Mapping) else ():
        for word, schema in _OF_HOLES.items() if isinstance(raw, Mapping) else ():
            for path, fault in misfits(raw.get(word), None, schema, {}, names):
                at = (*place, "properties", name, word, *path)
                context.reader.refuse(at, "form.hole", f"`{word}` never fits here: {fault}")
    return context.template({"type": "object", **form}, place, names), literal


def check_combine(context: StepContext, fields: Mapping[str, Json], at: Path, form: Mapping[str, Json] | None) -> None:
    combine = fields.get("combine", {})
    if combine and "form" not in fields:
        context.reader.error(
            (*at, "combine"), "combine.form", "`combine` needs a `form`: it joins its values", key=True
        )
        return
    properties = (form or {}).get("properties", {})
    if combine and fields.get("quorum", 1) == 1 and not _has_stage_of_several(fields.get("on_deadline")):
        message = "`combine` joins the answers of several people, and one decides here; take it out"
        context.reader.warning((*at, "combine"), "combine.alone", message, key=True)
    for name, word in combine.items():
        place = (*at, "combine", name)
        if form is not None and name not in properties:
            hint = suggestion(name, properties) or f"; it has {', '.join(properties) or 'none'}"
            message = f"the form has no property `{name}`{hint}"
            context.reader.error(place, "combine.unknown", message, key=True)
        elif word not in _JOINS:
            hint = suggestion(word, _JOINS) if isinstance(word, str) else ""
            message = f"expected one of {', '.join(_JOINS)}, found {kind_of(word)}{hint}"
            context.reader.error(place, "combine.word", message)
        else:
            _check_combine_type(context, word, properties.get(name), place)


def _has_stage_of_several(on_deadline: Json) -> bool:
    stages = on_deadline if isinstance(on_deadline, list) else [on_deadline]
    bodies = [stage.get("escalate") for stage in stages if isinstance(stage, Mapping)]
    return any(isinstance(body, Mapping) and body.get("quorum", 1) != 1 for body in bodies)


def _check_combine_type(context: StepContext, word: str, schema: Json, at: Path) -> None:
    allowed = {"min": ("number", "integer"), "max": ("number", "integer"), "any": ("boolean",), "all": ("boolean",)}
    type_name = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(type_name, str) and word in allowed and type_name not in allowed[word]:
        message = f"`{word}` combines values of `type: {allowed[word][0]}`, found `{type_name}`; use `same` or `list`"
        context.reader.error(at, "combine.type", message)


def collect_literal_form(form: Mapping[str, Json]) -> dict[str, Json]:
    """The form without the values that have holes, which are filled in when it is opened; `FILLED` stands in a
    property that has a default then."""
    literal = _without_holes({"type": "object", **form})
    return literal if isinstance(literal, dict) else {}


def _without_holes(value: Json, *, names: bool = False) -> Json:
    """`names`: the keys are not keywords but names of properties or definitions."""
    if isinstance(value, Mapping):
        literals = {
            key: _without_holes(item, names=not names and key in ("properties", "patternProperties", "$defs"))
            for key, item in value.items()
            if names or key not in _HOLED or not any("${{" in text for _, text in texts(item, ()))
        }
        return (
            {**literals, FILLED: True} if not names and "default" in value and "default" not in literals else literals
        )
    if isinstance(value, list):
        return [_without_holes(item) for item in value]
    return value
