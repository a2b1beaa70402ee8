"""Forms as plain HTML: fields made of a JSON Schema, and values made of the texts that a browser posts. Pure.

A text that is no number where a number is expected is handed on as it is: the same schema that refuses it everywhere
then reports the fault at its field. A form that is shown again has every text that was typed."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from hai_flow import values
from hai_flow.api.http.visitor_pages import say, tell_fault
from hai_flow.definition.schemas.schema_paths import resolve
from hai_flow.primitives.invisible_characters import reveal
from hai_flow.primitives.json_pointers import unescape
from hai_flow.primitives.titles import humanise
from hai_flow.values import Json

Given: TypeAlias = Mapping[str, Sequence[str]]
"""The fields that a browser posted: texts by name."""

PREFIX: Final = "value."
LINES_FROM: Final = 200  # a text that may be so long gets several lines


class Field(NamedTuple):
    """A property of the form. `kind`: choice (of `choices`), choices (several), text, lines, number, json."""

    name: str
    kind: str
    label: str
    hint: str
    required: bool
    choices: tuple[Json, ...] = ()
    default: Json = None
    type: str = "text"


def fields_of(schema: Json) -> list[Field]:
    """The fields of a form, in the schema's order."""
    root = resolve(schema, schema)
    properties = root.get("properties", {}) if isinstance(root, Mapping) else {}
    required = root.get("required", ()) if isinstance(root, Mapping) else ()
    return [_field(name, resolve(each, schema), name in required) for name, each in properties.items()]


def _field(name: str, schema: Json, required: bool) -> Field:
    raw: Mapping[str, Json] = schema if isinstance(schema, Mapping) else {}
    label, hint, default = str(raw.get("title") or humanise(name)), str(raw.get("description", "")), raw.get("default")
    kind, choices, input_type = _kind(raw)
    return Field(name, kind, label, hint, required, choices, default, input_type)


def _kind(schema: Mapping[str, Json]) -> tuple[str, tuple[Json, ...], str]:
    if isinstance(schema.get("enum"), list):
        return "choice", tuple(schema["enum"]), ""
    types = schema.get("type")
    names = [each for each in (types if isinstance(types, list) else [types]) if each != "null"]
    match names:
        case ["boolean"]:
            return "choice", (True, False), ""
        case ["integer"] | ["number"] | ["integer", "number"] | ["number", "integer"]:
            return "number", (), "text"
        case ["string"]:
            long = schema.get("maxLength", 0) >= LINES_FROM
            return ("lines" if long else "text"), (), "date" if schema.get("format") == "date" else "text"
        case ["array"]:
            items = schema.get("items")
            if isinstance(items, Mapping) and isinstance(items.get("enum"), list):
                return "choices", tuple(items["enum"]), ""
    return "json", (), ""


# --- from a browser ---------------------------------------------------------------------------------------------------


def values_of(schema: Json, given: Given) -> dict[str, Json]:
    """The values that were filled in. A field that was left empty is not there."""
    values: dict[str, Json] = {}
    for field in fields_of(schema):
        texts = [text for text in given.get(PREFIX + field.name, ()) if text != ""]
        if texts:
            values[field.name] = _value(field, texts)
    return values


def _value(field: Field, texts: Sequence[str]) -> Json:
    match field.kind:
        case "choice":
            return _choice(field, texts[0])
        case "choices":
            return [_choice(field, text) for text in texts]
        case "number" | "json":
            return read_value(texts[0])
        case _:
            return texts[0].replace("\r\n", "\n")


def _choice(field: Field, text: str) -> Json:
    return next((each for each in field.choices if values.to_text(each) == text), text)


def read_value(text: str) -> Json:
    """The JSON value of a text; the text itself, if it is none."""
    try:
        return values.loads(text.strip())
    except values.NotJson:
        return text


# --- to a browser -----------------------------------------------------------------------------------------------------


def render_form(language: str, schema: Json, given: Given | None, findings: Sequence[Mapping[str, str]] = ()) -> str:
    """The fields as HTML, filled in with the texts `given` (None: with the defaults), and each finding at its field."""
    rows = []
    for number, field in enumerate(fields_of(schema)):
        faults = [tell_fault(language, each) for each in findings if is_at(each, field)]
        rows.append(_row(language, f"f{number}", field, _texts(field, given), faults))
    return "".join(rows)


def elsewhere(language: str, schema: Json, findings: Sequence[Mapping[str, str]]) -> list[str]:
    """The messages of findings that belong to no field."""
    fields = fields_of(schema)
    return [tell_fault(language, each) for each in findings if not any(is_at(each, field) for field in fields)]


def is_at(finding: Mapping[str, str], field: Field) -> bool:
    """Whether a finding is about the field. A missing property is a finding of the object around it."""
    pointer = finding.get("path", "")
    if not pointer:
        return finding["message"] == f'"{field.name}" is a required property'
    return unescape(pointer.split("/")[1]) == field.name


def _texts(field: Field, given: Given | None) -> list[str]:
    if given is not None:
        return list(given.get(PREFIX + field.name, ()))
    if field.default is None:
        return []
    if field.kind == "choices" and isinstance(field.default, list):
        return [values.to_text(each) for each in field.default]
    return [values.to_text(field.default)]


def _row(language: str, id: str, field: Field, texts: Sequence[str], faults: Sequence[str]) -> str:
    described_by = [f"{id}-hint"] if field.hint else []
    described_by += [f"{id}-error"] if faults else []
    state = f' aria-describedby="{" ".join(described_by)}"' if described_by else ""
    state += ' aria-invalid="true"' if faults else ""
    label = _escape(reveal(field.label))
    label = say(language, "{} (required)", label) if field.required else label
    about = f'<br><small id="{id}-hint">{_escape(reveal(field.hint))}</small>' if field.hint else ""
    about += f'<br><strong id="{id}-error">{_escape(" ".join(faults))}</strong>' if faults else ""
    if field.kind == "choices":
        boxes = "".join(
            f'<br><label><input type="checkbox" name="{_name(field)}" value="{_escape(values.to_text(each))}"'
            f"{' checked' if values.to_text(each) in texts else ''}> {_escape(reveal(values.to_text(each)))}</label>"
            for each in field.choices
        )
        return f"<fieldset{state}><legend>{label}</legend>{boxes}{about}</fieldset>"
    control = _control(language, id, field, texts[0] if texts else "", state)
    return f'<p><label for="{id}">{label}</label><br>{control}{about}</p>'


def _control(language: str, id: str, field: Field, text: str, state: str) -> str:
    named = f'id="{id}" name="{_name(field)}"{state}'
    if field.kind == "choice":
        words = {True: say(language, "yes"), False: say(language, "no")}
        options = "".join(
            f'<option value="{_escape(values.to_text(each))}"{" selected" if values.to_text(each) == text else ""}>'
            f"{_escape(words[each] if isinstance(each, bool) else reveal(values.to_text(each)))}</option>"
            for each in field.choices
        )
        return f'<select {named}><option value=""></option>{options}</select>'
    if field.kind in ("lines", "json"):
        return f'<textarea {named} rows="4" cols="60">\n{_escape(text)}</textarea>'  # its first line end is dropped
    mode = ' inputmode="decimal"' if field.kind == "number" else ""
    return f'<input type="{field.type}" {named}{mode} size="40" value="{_escape(text)}">'


def _name(field: Field) -> str:
    return _escape(PREFIX + field.name)


def _escape(text: str) -> str:
    return html.escape(text, quote=True)
