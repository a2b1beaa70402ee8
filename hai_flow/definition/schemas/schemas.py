"""JSON Schema 2020-12, compiled once, with every reference out of the document denied (docs/language.md#the-document).
Formats are asserted. Work is bounded here for all callers: that of a schema, of a value (`schema_work`), and of the
words about a value that does not fit. A `pattern` with a lookaround or a backreference may take the square of the
text's length, so such texts are bounded once more (`LOOKING_CHARS_MAX`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from math import isqrt
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import jsonschema_rs

from hai_flow import foreign, values
from hai_flow.definition.names.wording import kind_of, suggestion
from hai_flow.definition.schemas.schema_defaults import Defaults
from hai_flow.definition.schemas.schema_paths import resolve, resolve_reference
from hai_flow.definition.schemas.schema_work import INSTANCES_MAX, WORK_MAX, TooLarge, Work, count_parts, measure
from hai_flow.definition.yaml.document import Path
from hai_flow.primitives.file_ids import sha256_of_file
from hai_flow.primitives.json_pointers import pointer_of, unescape
from hai_flow.values import Json

Report: TypeAlias = Callable[[Path, str, str], None]  # path inside the schema, code, message

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_OTHER_TYPES: Final = {
    "text": "string", "str": "string", "date": "string", "datetime": "string", "email": "string", "file": "string",
    "int": "integer", "long": "integer", "float": "number", "double": "number", "decimal": "number", "money": "number",
    "bool": "boolean", "list": "array", "tuple": "array", "dict": "object", "map": "object", "json": "object",
    "none": "null",
}  # fmt: skip
_BOOLEANS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}  # text in YAML 1.2
_NO_LIST: Final = ' is not of type "array"'
_NO_PATTERN: Final = ' is not a "regex"'  # as the library ends its message
_ROUNDS_MAX: Final = 8  # of `fit`: each round converts at least one text
_FITTED_PARTS_MAX: Final = 30_000  # of a value, added up over the rounds
_FAULTS_MAX: Final = 100
_MESSAGE_CHARS_MAX: Final = 500
_PARAMS_MAX: Final = 20
_PARAM_CHARS_MAX: Final = 120
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
TOO_LONG_TO_MATCH: Final = "value.too_long_to_match"
LOOKING_CHARS_MAX: Final = 4000
"""How long the one text of a value may be where the schema has one pattern that looks around or back. More texts and
more patterns share the time that this may take."""
_EXPLAINED_WORK_MAX: Final = 1_000
_EXPLAINED_CHARS_MAX: Final = 2_000_000
"""What is wrong is told at once of values for which that makes at most so many sentences, of so many characters: the
library makes all of them, each with the value in it, before it gives the first. Of others it is told part by part."""
_EXPLAINED_PARTS_MAX: Final = 5_000
_EXPLAINED_IN_PARTS_MAX: Final = 4_000  # units of work of all parts of one value together
_EXPLAINED_SCHEMA_MAX: Final = 1_000
"""Parts of schemas that are compiled once more, to say what is wrong of parts of one value."""
_CHECKED_DEFAULTS_MAX: Final = 5_000
_WORD_BITS: Final = 63
_WITH_TEXT: Final = (str, list, dict)
_HUGE_WORK: Final = 50  # of one comparison with an integer of twenty digits

_MAP_OF_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONE_SCHEMA: Final = (
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_LIST_OF_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_PLAIN_KEYWORDS: Final = (
    "$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "$vocabulary", "type", "enum",
    "const", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "pattern",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
    "maxItems", "uniqueItems", "minContains", "maxContains", "required", "minProperties", "maxProperties",
    "dependentRequired", "contentEncoding", "contentMediaType",
    "enumNames",  # titles of an `enum`, as forms of MCP 2025-06-18 have them
)  # fmt: skip
PII: Final = "pii"
"""The one keyword of ours: `pii: true` marks values as personal (definition/personal/pii_flow)."""
KEYWORDS: Final = frozenset((*_MAP_OF_SCHEMAS, *_ONE_SCHEMA, *_LIST_OF_SCHEMAS, *_PLAIN_KEYWORDS, PII))


class JsonSchema:
    """plan.Schema over jsonschema-rs. Build it with `compile_schema`, or directly from a schema known to be sane.

    `binds_formats`: a `format` binds, as in schemas of workflows. JSON Schema has it as an annotation, and services
    write it of values that do not have it, such as times without a zone.

    Raises `TooLarge`, a ValueError, for a schema that would make too much work, and what the library raises for others
    that are none."""

    __slots__ = ("_defaults", "_looking", "_validator", "_work", "binds_formats", "raw")

    def __init__(self, raw: Json, *, binds_formats: bool = True) -> None:
        self.raw = raw
        self.binds_formats = binds_formats
        self._work = measure(raw)
        self._validator = _validator(raw, binds_formats=binds_formats)
        for path, reference in self._work.unresolved:
            raise ValueError(f"{pointer_of(*path)}: {reference} leads nowhere in this schema")
        self._defaults = Defaults(raw, self._work) if _has_default(raw) else None
        self._looking = sum(not _is_linear(pattern) for pattern in _iter_patterns(raw))

    @property
    def circles(self) -> list[TooLarge]:
        """The references that lead back to themselves without looking at a part of a value."""
        return self._work.circles

    def findings(self, value: Json) -> list[dict[str, Any]]:
        """Every fault of `value` (the first hundred) as `{"path": JSON Pointer, "message": text, "code", "params"}`;
        empty = valid. `code` names the keyword that refuses, and `params` has its value in the schema, as texts:
        clients make a sentence in another language of them. A value that takes too much work has that fault alone."""
        fault = self._work.fault(value) or (self._defaults.fault(value) if self._defaults is not None else None)
        if fault is None and self._looking:
            fault = _too_long(value, self._looking)
        if fault is not None:
            return [fault]
        if self._validator.is_valid(value):
            return []
        return list(islice(self._explain(value), _FAULTS_MAX))

    def fit(self, value: Json) -> tuple[Json, list[dict[str, Any]]]:
        """`value` as the schema wants it, and its findings. Where the schema wants a number and `value` has the digits
        of an integer beyond 2^53 as text, it becomes that integer: for a tool, or a server, that takes such numbers
        (decision 85)."""
        faults = self.findings(value)
        rounds = _compute_rounds(value) if faults else 0
        while faults and rounds:
            rounds -= 1
            places = [[unescape(part) for part in fault["path"].split("/")[1:]] for fault in faults]
            fitted = foreign.with_integers_at(value, places)
            if fitted is value or self._measure_huge(fitted) > WORK_MAX:
                break
            remaining = self.findings(fitted)
            if len(remaining) >= len(faults):
                break
            value, faults = fitted, remaining
        return value, faults

    def _measure_huge(self, value: Json) -> int:
        """The units of work that integers beyond 64 bits make: the library compares each by its digits, with each
        value of an `enum` and each item of a list that is to be unique, which it does not do with others."""
        count, weight = _count_huge_integers(value)
        if not count:
            return 0
        schemas = [schema for _, schema in _walk_subschemas(self.raw) if isinstance(schema, Mapping)]
        longest = max((len(each) for schema in schemas if isinstance(each := schema.get("enum"), list)), default=0)
        others = count // 2 if any(schema.get("uniqueItems") is True for schema in schemas) else 0
        return _HUGE_WORK * weight * (self._work.most * (1 + longest) + others)

    def admits(self, value: Json) -> bool:
        """Whether a value, of which is known that it is not too large, fits."""
        return self._validator.is_valid(value)

    def measure_work(self, value: Json) -> int:
        return self._work.measure_work(value)

    def is_explainable(self, value: Json) -> bool:
        return _is_explainable(self._work, value)

    def _explain(self, value: Json) -> Iterator[dict[str, Any]]:
        if self.is_explainable(value):
            yield from (_fault(error, self.raw) for error in self._validator.iter_errors(value))
        else:
            yield from _explain_parts(self.raw, self.raw, value, (), binds_formats=self.binds_formats)

    def with_defaults(self, value: Json) -> Json:
        """A copy of `value` in which absent properties, at any depth, have their schema's `default`; `value` itself
        where that takes too much work, which `findings` tells."""
        return self._defaults.fill(value) if self._defaults is not None else value

    def __repr__(self) -> str:
        return f"JsonSchema({self.raw!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(repr(self.raw))


@lru_cache(maxsize=1024)
def compile_cached(text: bytes, *, binds_formats: bool = True) -> JsonSchema:
    """The schema that is written in JSON, compiled once for all who ask. Raises what `JsonSchema` raises."""
    return JsonSchema(values.loads(text), binds_formats=binds_formats)


def _compute_rounds(value: Json) -> int:
    """How often a value may be made to fit: the larger it is, the fewer times."""
    parts, _ = count_parts(value, _FITTED_PARTS_MAX, texts=False)
    return min(_ROUNDS_MAX, _FITTED_PARTS_MAX // parts)


def _count_huge_integers(value: Json) -> tuple[int, int]:
    """How many integers beyond 64 bits there are in a value, and how much it is to compare each of them once."""
    count = weight = 0
    stack: list[Json] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
        elif isinstance(part, int) and (bits := part.bit_length()) > _WORD_BITS:
            count += 1
            weight += 1 + bits // 100 + (bits // 300) ** 2
    return count, weight


def _is_explainable(work: Work, value: Json) -> bool:
    """Whether the library may make its sentences of all faults of the value."""
    nodes, characters = count_parts(value, _EXPLAINED_WORK_MAX)
    if nodes > _EXPLAINED_WORK_MAX:
        return False
    units = work.measure_work(value)
    return units <= _EXPLAINED_WORK_MAX and units * characters <= _EXPLAINED_CHARS_MAX


def _explain_parts(
    schema: Json, root: Json, value: Json, path: tuple[str | int, ...], *, binds_formats: bool
) -> Iterator[dict[str, Any]]:
    """The faults of a value that is large for its schema: its own, and those of the smallest of its parts."""
    schema = resolve(schema, root)
    explained = False
    for fault in _explain_outside(schema, value):
        explained = True
        yield {**fault, "path": pointer_of(*path)}
    schemas: dict[int, JsonSchema | None] = {}
    budget, sentences = _EXPLAINED_SCHEMA_MAX, _EXPLAINED_IN_PARTS_MAX
    for name, part, inner in islice(_parts_of(schema, value), _EXPLAINED_PARTS_MAX):
        if id(inner) not in schemas:
            schemas[id(inner)] = None
            own = _with_definitions(inner, root)
            budget -= count_parts(own, budget, texts=False)[0]
            if budget < 0:
                break
            with suppress(Exception):  # it refers to something that only the whole schema has
                schemas[id(inner)] = JsonSchema(own, binds_formats=binds_formats)
        own = schemas[id(inner)]
        if own is None or own.admits(part):
            continue
        if sentences <= 0:
            return
        explained = True
        if own.is_explainable(part):
            sentences -= own.measure_work(part)
            for fault in own.findings(part):
                yield {**fault, "path": pointer_of(*path, name) + fault["path"]}
        else:
            yield from _explain_parts(inner, root, part, (*path, name), binds_formats=binds_formats)
    if not explained:
        message = "it does not fit its schema, and is too large to say in which way; send less at once"
        yield {"path": pointer_of(*path), "message": message, "code": "value.invalid", "params": []}


_OUTSIDE: Final = (
    "type", "required", "dependentRequired", "minProperties", "maxProperties", "minItems", "maxItems",
)  # fmt: skip


def _explain_outside(schema: Json, value: Json) -> Iterator[dict[str, Any]]:
    """The faults of a list or an object that have nothing to do with what is in its parts."""
    if not isinstance(schema, Mapping) or not isinstance(value, dict | list) or len(value) > _EXPLAINED_WORK_MAX:
        return
    outside = {key: schema[key] for key in _OUTSIDE if key in schema}
    if isinstance(value, dict):
        if isinstance(outside.get("required"), list):
            outside["required"] = [name for name in outside["required"] if name not in value][:_FAULTS_MAX]
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            outside |= {"properties": dict.fromkeys(schema.get("properties", ()), True), "additionalProperties": False}
    empty = dict.fromkeys(value) if isinstance(value, dict) else [None] * len(value)
    yield from (_fault(error, outside) for error in _validator(outside).iter_errors(empty))


def _parts_of(schema: Json, value: Json) -> Iterator[tuple[str | int, Json, Json]]:
    if not isinstance(schema, Mapping):
        return
    if isinstance(value, Mapping):
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, Mapping) else ():
            if name in value:
                yield name, value[name], inner
    elif isinstance(value, list):
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        yield from ((index, value[index], inner) for index, inner in enumerate(first[: len(value)]))
        if "items" in schema:
            yield from ((index, value[index], schema["items"]) for index in range(len(first), len(value)))


def _with_definitions(schema: Json, root: Json) -> Json:
    """A part of a schema as a schema of its own, with those of the definitions that it leads to."""
    if not isinstance(schema, Mapping) or not isinstance(root, Mapping):
        return schema
    definitions: dict[str, dict[str, Json]] = {}
    waiting: list[Json] = [schema]
    while waiting:
        for _, part in _walk_subschemas(waiting.pop()):
            reference = part.get("$ref") if isinstance(part, Mapping) else None
            place = reference.split("/") if isinstance(reference, str) else ()
            if len(place) >= 3 and place[0] == "#" and place[1] in ("$defs", "definitions"):
                group, name = root.get(place[1]), unescape(unquote(place[2]))
                if isinstance(group, Mapping) and name in group and name not in definitions.get(place[1], {}):
                    definitions.setdefault(place[1], {})[name] = group[name]
                    waiting.append(group[name])
    return {**{key: part for key, part in schema.items() if key not in definitions}, **definitions}


def _fault(error: jsonschema_rs.ValidationError, raw: Json) -> dict[str, Any]:
    kind = type(error.kind).__name__
    return {
        "path": pointer_of(*error.instance_path),
        "message": _NO_FILE
        if error.kind.value == "file" and kind == "Format"
        else _limit_message(error.message) + _suggest_property(error, kind, raw),
        "code": derive_code(kind),
        "params": _params(error.kind.value),
    }


def _suggest_property(error: jsonschema_rs.ValidationError, kind: str, raw: Json) -> str:
    """Of a property that is not expected, or a text that is not one of some: the one that was meant, if one is near."""
    if kind not in ("AdditionalProperties", "Enum"):
        return ""
    schema = raw
    for part in list(error.schema_path)[:-1]:
        schema = schema.get(part) if isinstance(schema, Mapping) else None
    if kind == "Enum":
        options = schema.get("enum") if isinstance(schema, Mapping) else None
        texts = [each for each in options if isinstance(each, str)] if isinstance(options, list) else []
        return suggestion(error.instance, texts) if isinstance(error.instance, str) else ""
    if not isinstance(error.kind.value, list):
        return ""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    names = [*properties] if isinstance(properties, Mapping) else []
    hints = (suggestion(str(name), names) for name in error.kind.value[:_PARAMS_MAX])
    return next((hint for hint in hints if hint), "")


def derive_code(kind: str) -> str:
    """The code of faults of a kind that the library names: `MinLength` is `value.min_length`."""
    return "value." + _CAPITAL.sub("_", kind).lower()


def _params(wanted: object) -> list[str]:
    """The value of a keyword (or its values) as texts. Objects among them (some kinds of faults hold other faults) are
    left out."""
    each = wanted if isinstance(wanted, list) else [wanted]
    plain = [one for one in each if isinstance(one, (str, int, float)) and not isinstance(one, bool)]
    return [str(one)[:_PARAM_CHARS_MAX] for one in plain][:_PARAMS_MAX]


def _limit_message(message: str) -> str:
    """A message without its middle, if it is too long: the value, which may be a whole body, comes first in it, and the
    fault last."""
    if len(message) <= _MESSAGE_CHARS_MAX:
        return message
    half = (_MESSAGE_CHARS_MAX - 3) // 2
    return f"{message[:half]} … {message[-half:]}"


def _too_long(value: Json, patterns: int) -> dict[str, Any] | None:
    """The fault of a value whose texts (keys of objects among them) are too long for this many patterns with lookaround
    or backreferences; None: they are not."""
    most = isqrt(LOOKING_CHARS_MAX**2 // patterns)
    if _sum_squares(value) <= most**2:
        return None
    longest, place = -1, ""
    stack: list[tuple[tuple[str | int, ...], Json]] = [((), value)]
    while stack:
        path, part = stack.pop()
        if isinstance(part, Mapping):
            stack.extend(((*path, name), each) for name, each in part.items())
            stack.extend((path, name) for name in part)
        elif isinstance(part, list):
            stack.extend(((*path, index), each) for index, each in enumerate(part))
        elif isinstance(part, str) and len(part) > longest:
            longest, place = len(part), pointer_of(*path)
    message = (
        f"too long, with {longest} characters, for a schema with a `pattern` that looks around or back, whose time "
        f"grows with the square of a text; there is room for one of {most}"
    )
    return {"path": place, "message": message, "code": TOO_LONG_TO_MATCH, "params": [str(most)]}


def _sum_squares(value: Json) -> int:
    """The squares of the lengths of a value's texts and keys, added up."""
    squares = 0
    stack: list[Json] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            squares += sum(len(name) ** 2 for name in part)
            stack.extend(each for each in part.values() if each.__class__ in _WITH_TEXT)
        elif isinstance(part, list):
            stack.extend(each for each in part if each.__class__ in _WITH_TEXT)
        elif isinstance(part, str):
            squares += len(part) ** 2
    return squares


def _iter_patterns(raw: Json) -> Iterator[str]:
    for _, schema in _walk_subschemas(raw):
        if isinstance(schema, Mapping):
            if isinstance(schema.get("pattern"), str):
                yield schema["pattern"]
            if isinstance(schema.get("patternProperties"), Mapping):
                yield from schema["patternProperties"]


@lru_cache(maxsize=4096)
def _is_linear(pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        return False
    return True


class _Enough(Exception):
    """More faults than anybody reads: each takes its time, as they guess what was meant."""


def compile_schema(raw: Json, report: Report, *, closed: bool = False) -> JsonSchema | None:
    """`raw` compiled (`closed`: as `close_schema` makes it), or None after every fault was handed to `report` (path
    inside the schema, code, message)."""
    faulty = 0

    def fault(path: Path, code: str, message: str) -> None:
        nonlocal faulty
        faulty += 1
        report(path, code, message)
        if faulty >= _FAULTS_MAX:
            raise _Enough

    try:
        for path, schema in _walk_subschemas(raw):
            _check_schema(path, schema, raw, fault)
    except _Enough:
        return None
    if faulty:
        return None
    try:
        compiled = JsonSchema(close_schema(raw) if closed else raw)
    except TooLarge as error:
        fault(error.path, error.code, error.message)
        return None
    except Exception as error:  # the library raises several unrelated types here, ValueError among them
        path: Path = tuple(getattr(error, "instance_path", ()))
        text = _first_line(error)
        if path and path[-1] in ("required", "enum") and text.endswith(_NO_LIST):
            text = f"`{path[-1]}` is a list; write `{path[-1]}: [{_list_words(text.removesuffix(_NO_LIST))}]`"
        elif text.endswith(_NO_PATTERN):
            text = f"`pattern` takes a regular expression (`regex`), and {text.removesuffix(_NO_PATTERN)} is none"
        fault(path, "schema.invalid", f"expected a JSON Schema (2020-12): {text}")
        return None
    with suppress(_Enough):
        for circle in compiled.circles:
            fault(circle.path, circle.code, circle.message)
        _check_defaults(raw, fault)
    return None if faulty else compiled


FORM_SCHEMAS_MAX: Final = 1_000
"""Schemas in a form: it is compiled on the loop when it is answered."""


def fault_of_size(form: Json) -> str | None:
    """Why a schema is too large for a form, or None."""
    count = sum(1 for _ in islice(_walk_subschemas(form), INSTANCES_MAX))
    if count <= FORM_SCHEMAS_MAX:
        return None
    return f"a form has at most {FORM_SCHEMAS_MAX:,} schemas, and this one has {count:,}; ask in several steps"


def close_schema(raw: Mapping[str, Json]) -> dict[str, Json]:
    """The workflow's `input`: unknown properties are refused unless `additionalProperties` says otherwise."""
    return dict(raw) if "additionalProperties" in raw else {**raw, "additionalProperties": False}


def strip_marks(raw: Json) -> Json:
    """The schema without `pii`: providers of models take only the keywords of JSON Schema."""
    if not isinstance(raw, Mapping):
        return raw
    plain: dict[str, Json] = {}
    for keyword, value in raw.items():
        if keyword in _MAP_OF_SCHEMAS and isinstance(value, Mapping):
            plain[keyword] = {name: strip_marks(inner) for name, inner in value.items()}
        elif keyword in _LIST_OF_SCHEMAS and isinstance(value, list):
            plain[keyword] = [strip_marks(inner) for inner in value]
        elif keyword != PII:
            plain[keyword] = strip_marks(value) if keyword in _ONE_SCHEMA else value
    return plain


def _deny(uri: str) -> Json:
    raise ValueError(f"{uri}: references out of the document are not allowed; put the schema under $defs")


def _is_file(text: str) -> bool:
    return sha256_of_file(text) is not None


_FORMATS: Final = {"file": _is_file}
_NO_FILE: Final = "expected the id of a file, `file_` and its sha256, as an upload returns it (docs/client.md#files)"


def _validator(raw: Json, *, binds_formats: bool = True) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        raw,
        validate_formats=binds_formats,
        formats=_FORMATS,
        retriever=_deny,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000),
    )


def _list_words(text: str) -> str:
    """The words of a quoted text, as the items of a list."""
    return ", ".join(re.findall(r"[\w./@-]+", text))


def _first_line(error: Exception) -> str:
    return (str(getattr(error, "message", "")) or str(error)).splitlines()[0]


def _walk_subschemas(root: Json) -> Iterator[tuple[Path, Json]]:
    """Every schema inside `root` with its path, parents first. A stack, because documents are as deep as they like."""
    stack: list[tuple[Path, Json]] = [((), root)]
    while stack:
        path, schema = stack.pop()
        yield path, schema
        if isinstance(schema, Mapping):
            stack.extend(reversed(list(_children(path, schema))))


def _children(path: Path, schema: Mapping[str, Json]) -> Iterator[tuple[Path, Json]]:
    for keyword, value in schema.items():
        if keyword in _MAP_OF_SCHEMAS and isinstance(value, Mapping):
            yield from (((*path, keyword, name), inner) for name, inner in value.items())
        elif keyword in _LIST_OF_SCHEMAS and isinstance(value, list):
            yield from (((*path, keyword, index), inner) for index, inner in enumerate(value))
        elif keyword in _ONE_SCHEMA:
            yield (*path, keyword), value


_MEANT_KEYWORDS: Final = {
    **dict.fromkeys(("options", "choices", "values", "allowed"), "enum"),
    **dict.fromkeys(("label", "name", "placeholder"), "title"),
    **dict.fromkeys(("regex", "match"), "pattern"),
    **dict.fromkeys(("help", "hint"), "description"),
    "min": "minimum", "max": "maximum", "fields": "properties", "nullable": "type: [string, 'null']",
}  # fmt: skip
"""The names that other forms have for a keyword."""


def _check_schema(path: Path, schema: Json, root: Json, fault: Report) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        meant = _type_of(schema)
        hint = f"; write `{{type: {meant}}}`" if meant else ""
        fault(path, "schema.invalid", f"expected a JSON Schema (a mapping), found {kind_of(schema)}{hint}")
        return
    for keyword in schema:
        if keyword not in KEYWORDS and not keyword.startswith("x-"):
            meant = _MEANT_KEYWORDS.get(keyword)
            hint = f"; write `{meant}`" if meant else suggestion(keyword, KEYWORDS)
            if schema[keyword] in _TYPES or (not hint and isinstance(schema[keyword], Mapping)):
                hint = f"; if it is a property, write it under `properties`: `{keyword}: {{type: ...}}`"
            fault((*path, keyword), "schema.unknown_keyword", f"`{keyword}` is no keyword of JSON Schema{hint}")
    if not isinstance(schema.get(PII, True), bool):
        fault((*path, PII), "schema.invalid", f"expected true or false, found {kind_of(schema[PII])}")
    _check_type(path, schema, fault)
    _check_required(path, schema, fault)
    _check_reference(path, schema, root, fault)


def _check_type(path: Path, schema: Mapping[str, Json], fault: Report) -> None:
    if "type" not in schema:
        return
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for name in types:
        if name not in _TYPES:
            hint = f"; did you mean `{meant}`?" if (meant := _type_of(name)) else ""
            actual = f"`{name}`" if isinstance(name, str) else kind_of(name)
            fault((*path, "type"), "schema.invalid", f"expected a type ({', '.join(_TYPES)}), found {actual}{hint}")
            return


def _type_of(word: Json) -> str:
    """The type that was meant by a word of other languages; "" for others."""
    if not isinstance(word, str):
        return ""
    near = difflib.get_close_matches(word, _TYPES, n=1, cutoff=0.6)
    return _OTHER_TYPES.get(word.lower()) or (near[0] if near else "")


def _check_required(path: Path, schema: Mapping[str, Json], fault: Report) -> None:
    """A required property that `properties` does not have is nearly always a misspelt one."""
    if isinstance(schema.get("required"), bool):
        name = path[-1] if path else "name"
        message = f"in JSON Schema `required` is a list beside `properties`: write `required: [{name}]` there"
        fault((*path, "required"), "schema.required", message)
        return
    required, properties = schema.get("required"), schema.get("properties")
    if not isinstance(required, list) or not isinstance(properties, Mapping):
        return
    open_ended = "additionalProperties" in schema or "patternProperties" in schema
    for index, name in enumerate(required):
        if isinstance(name, str) and name not in properties and not open_ended:
            hint = suggestion(name, properties)
            fault(
                (*path, "required", index), "schema.required", f"`{name}` is required but not among `properties`{hint}"
            )


def _check_reference(path: Path, schema: Mapping[str, Json], root: Json, fault: Report) -> None:
    for keyword in ("$ref", "$dynamicRef", "$schema"):
        target = schema.get(keyword)
        if not isinstance(target, str):
            continue
        if keyword == "$schema":
            if not target.startswith("https://json-schema.org/draft/2020-12/"):
                fault(
                    (*path, keyword), "schema.draft", f"expected JSON Schema 2020-12, found {target}; remove `$schema`"
                )
        elif not target.startswith("#"):
            fault(
                (*path, keyword),
                "schema.reference",
                f"expected a reference inside this schema (#/$defs/...), found {target}; copy the schema here",
            )
        elif target.startswith("#/") and resolve_reference(root, target) == {} and keyword == "$ref":
            fault((*path, keyword), "schema.reference", f"{target} leads nowhere; it counts from this schema's own top")


def _check_defaults(root: Json, fault: Report) -> None:
    """A default that its own schema refuses would fail every run that relies on it."""
    budget = _CHECKED_DEFAULTS_MAX
    for path, schema in _walk_subschemas(root):
        if not isinstance(schema, Mapping) or "default" not in schema or "$ref" in schema:
            continue
        value = schema["default"]
        if isinstance(value, str) and "${{" in value:  # a form's default may hold holes, filled at opening
            continue
        plain = {key: part for key, part in schema.items() if key != "default"}
        try:
            own = _with_definitions(plain, root)
            budget -= sum(1 for _ in _walk_subschemas(own))
            if budget < 0:  # the value itself is checked in each run
                return
            if isinstance(value, dict | list):  # its parts may have defaults
                value = JsonSchema(_with_definitions(schema, root)).with_defaults(value)
            faults = JsonSchema(own).findings(value)
        except Exception:  # a reference that only the whole schema can follow: nothing to say about its default
            continue
        if faults:
            word = _BOOLEANS.get(value.lower()) if isinstance(value, str) and schema.get("type") == "boolean" else None
            hint = f"; write {word}" if word else ""
            message = f"the default does not fit its schema: {faults[0]['message']}{hint}"
            fault((*path, "default"), "schema.default", message)


def _has_default(raw: Json) -> bool:
    return any(isinstance(schema, Mapping) and "default" in schema for _, schema in _walk_subschemas(raw))
