"""The types of the data that expressions read, as far as they are known: by the schemas of `input`, `state` and the
outputs of steps, and of what every run has (docs/language.md#names)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from hai_flow.definition.expressions.ast_paths import Segment, spell
from hai_flow.definition.expressions.cel_values import Kind
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.schemas.schema_references import resolve
from hai_flow.values import Json

_STATUS: Final[dict[str, Json]] = {
    "type": "string",
    "enum": ["pending", "running", "waiting", "finished", "skipped", "failed", "stopped", "undone"],
}


def record(**properties: Json) -> dict[str, Json]:
    """The JSON Schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


NULL: Final[dict[str, Json]] = {"type": "null"}
REMEDY: Final = "x-remedy"
"""In the schema of a value that is always null: the remedy, as a clause."""

_FIXED: Final[dict[str, Json]] = {
    "run": record(
        id={},
        workflow={},
        version={},
        started_at={},
        requester={},
        trigger={},
        scheduled_at={"type": ["string", "null"]},
    ),
    "thread": record(id={}, message={}, content={}),
    "error": {
        **record(code={}, message={}, path={}, attempt={}, at={"type": "string"}, retriable={}, data={}, cause={}),
        "required": ["code", "message", "path", "attempt", "at", "retriable"],
    },
    "response": record(
        status={"type": "integer"}, headers={}, json={}, text={"type": "string"}, url={"type": "string"}
    ),
    "event": record(id={}, type={"type": "string"}, data={}, at={}),
    "index": {"type": "integer"},
}
# `event` of a webhook.
REQUEST: Final[Json] = record(
    id={"type": "string"}, type={"type": "string"}, data={}, at={}, headers={"additionalProperties": {"type": "string"}}
)

# `event` of a schedule.
INSTANT: Final[Json] = record(at={"type": "string"})

# `usage` of a step that asks a model.
USAGE: Final[dict[str, Json]] = record(
    **{name: {"type": "integer"} for name in ("calls", "input_tokens", "output_tokens", "cached_tokens")},
    reasoning_tokens={"type": "integer"},
    cost_usd={"type": ["number", "null"]},
)
PARTS: Final[dict[str, Json]] = {"type": "array", "items": {"type": "object"}}
ENVELOPE: Final[dict[str, Json]] = record(
    decision={}, reason={"type": ["string", "null"]}, values={}, edits={"type": ["object", "null"]}, votes={},
    expired={}, escalations={},
)  # fmt: skip

FILLED: Final = "x-filled"
"""In the schema of a form's property: a hole gives its default when the form is opened."""

NULL_INSTEAD: Final = "x-null-instead"
"""In the schema of an output: null stands for it where no event came."""

GIVEN: Final = "x-given"
"""In the schema of what may be null: it is there wherever it is read after an ordinary answer."""

INFERRED: Final = "x-inferred"
"""In the schema of a name that a `let` or a loop gives: what is known of its value by the expression that gives it. It
judges other expressions and never binds a value: numbers of such names are doubles."""

FILTERED: Final = "x-filtered"
"""In the schema of a list that an expression gives: of another list it has some of the items, or none."""

SoundPath: TypeAlias = tuple[tuple[Segment, ...], bool]  # the path, and whether its last property is optional

_SOURCES_MAX: Final = 20_000  # that many expressions are kept from text to text


@dataclass(frozen=True, slots=True)
class Types:
    """The static types of the data, as JSON Schemas; `{}` where nothing is known."""

    input: Json
    state: Json  # an object with a property for each name of `state`
    outputs: Mapping[str, Json] = field(default_factory=dict)  # id -> schema of steps.ID.output
    approvals: Mapping[str, Json] = field(default_factory=dict)  # id -> schema of steps.ID.approval; else ENVELOPE
    roots: Mapping[str, Json] = field(default_factory=dict)  # of roots that exist at some places only: item, args, ...
    ungated: Container[str] = ()  # ids of steps without `approval`
    rarely_gated: Container[str] = ()  # ids of steps whose `approval` has a `when`
    mindless: Container[str] = ()  # ids of steps that ask no model: they have no `usage`
    silent: Container[str] = ()  # ids of steps that a deadline approves: they may have no `votes`
    results: Mapping[str, Json] = field(default_factory=dict)
    """id -> schema of steps.ID.output of steps that call Python. Where a document is published the functions are not
    looked at, so these judge expressions and never bind them: a document means the same everywhere."""
    _looks: dict[tuple[Segment, ...], Look] = field(default_factory=dict, init=False, repr=False, compare=False)
    sound: dict[str, SoundPath] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Sound holes that are paths, by their source: most documents name few things often."""
    sound_sources: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Sound expressions that read no step, compiled, by their source and what holds at their place."""

    def reuse(self, before: Types) -> None:
        """Take over the compiled expressions that read no step, where all that they read is as it was."""
        if before.input == self.input and before.state == self.state and len(before.sound_sources) < _SOURCES_MAX:
            self.sound.update(before.sound)
            self.sound_sources.update(before.sound_sources)

    def look(self, path: Sequence[Segment]) -> Look:
        """`path` as the schemas see it."""
        key = tuple(path)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = self._look(key)
        return look

    def look_to_judge(self, path: Sequence[Segment]) -> Look:
        """As `look`, also with what functions of Python say of their results, and expressions of theirs."""
        inferred = self.roots.get(str(path[0]))
        if isinstance(inferred, Mapping) and INFERRED in inferred:
            return _look(inferred[INFERRED], tuple(path[1:]), 1, path)
        if len(path) > 2 and path[0] == "steps" and path[2] == "output" and path[1] in self.results:
            return _look(self.results[str(path[1])], tuple(path[3:]), 3, path)
        return self.look(path)

    def _look(self, path: tuple[Segment, ...]) -> Look:
        root = str(path[0])
        if root == "steps":
            return self._look_at_step(path)
        typed_roots = {"input": self.input, "state": self.state}
        schema = typed_roots[root] if root in typed_roots else self.roots.get(root, _FIXED.get(root, {}))
        return _look(schema, path[1:], 1, path)

    def _look_at_step(self, path: Sequence[Segment]) -> Look:
        member = path[2] if len(path) > 2 else None
        if member == "output":
            return _look(self.outputs.get(str(path[1]), {}), path[3:], 3, path)
        if member == "approval":
            return _look(self.approvals.get(str(path[1]), ENVELOPE), path[3:], 3, path)
        if member == "error":
            return _look(_FIXED["error"], path[3:], 3, path)
        if member == "usage":
            return _look(USAGE, path[3:], 3, path)
        if member == "parts":
            return _look(PARTS, path[3:], 3, path)
        return Look(_STATUS if path[2:] == ("status",) else {})

    def kind(self, path: Sequence[Segment]) -> Kind:
        """The CEL type of the value at `path`."""
        if tuple(path) == ("now",):
            return "timestamp"
        look = self.look(path)
        filled = isinstance(look.schema, Mapping) and FILLED in look.schema  # the hole may give null
        return "dyn" if look.optional or filled else _kind(look.schema)

    def kind_where_there(self, path: Sequence[Segment]) -> Kind:
        """The CEL type of the value at `path` where it is not absent; as it is bound then, a number is a double."""
        look = self.look(path) if str(path[0]) not in self.roots else self.look_to_judge(path)
        if not look.optional and look.schema == self.look(path).schema:
            return self.kind(path)
        kind = _kind(look.schema)
        return {"int": "double", "list:int": "list:double"}.get(kind, kind)


def may_be_null(schema: Json) -> bool:
    """Whether a schema has null beside another type, and a reader has to expect it."""
    if not isinstance(schema, Mapping) or GIVEN in schema:
        return False
    several = schema.get("anyOf") or schema.get("oneOf")
    words = schema.get("type")
    return ("null" in words and len(words) > 1 if isinstance(words, list) else False) or (
        isinstance(several, list) and {"type": "null"} in several
    )


def list_alternatives(schema: Json) -> list[Json]:
    """The schemas of which a value has one; of most schemas that is the schema alone."""
    parts = schema.get("anyOf") if isinstance(schema, Mapping) else None
    return parts if isinstance(parts, list) else [schema]


class Look(msgspec.Struct, frozen=True):
    """A path seen through the schemas."""

    schema: Json
    optional: tuple[int, ...] = ()  # lengths of the beginnings of the path that may be absent
    last_optional: bool = False  # the last property itself may be absent
    wrong: tuple[int, str] | None = None  # (index of the segment, message)
    barren: tuple[int, str] | None = None  # the same of a property that is asked of a list, a text or a number
    root: Json = None  # the schema that references inside `schema` point into


def _look(root: Json, rest: Sequence[Segment], depth: int, path: Sequence[Segment]) -> Look:
    schema, last = resolve(root, root), False
    optional: list[int] = [depth] if rest and isinstance(schema, dict) and NULL_INSTEAD in schema else []
    for index, part in enumerate(rest):
        if not isinstance(schema, dict):
            return Look({}, tuple(optional), root=root)
        if isinstance(part, int):
            schema, last = resolve(schema.get("items", {}), root), False
            continue
        properties = schema.get("properties")
        if not isinstance(properties, dict) or part not in properties:
            wrong = explain_unknown_property(schema, part, path[: depth + index])
            barren = _explain_no_property(schema, part, path[: depth + index])
            at = depth + index
            return Look(
                {}, tuple(optional), False, (at, wrong) if wrong else None, (at, barren) if barren else None, root
            )
        raw = resolve(properties[part], root)
        has_default = isinstance(raw, Mapping) and ("default" in raw or FILLED in raw)
        last = part not in schema.get("required", ()) and not has_default
        if last:
            optional.append(depth + index + 1)
        schema = raw
    return Look(schema, tuple(optional), last, root=root)


def explain_unknown_property(schema: Mapping[str, Json], part: str, parent: Sequence[Segment]) -> str | None:
    """Why `part` can't be there, or None where the schema leaves it open."""
    properties = schema.get("properties")
    if properties is None and schema.get("additionalProperties", True) is not False:
        return None
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        return None
    if any(key in schema for key in ("anyOf", "oneOf", "allOf", "if", "dependentSchemas")):
        return None
    names = list(properties or ())
    listed = f" (it has {', '.join(names)})" if 0 < len(names) <= 8 else ""
    dotted = [name for name in names if name.startswith(f"{part}.")]
    meant = f'; a name with a dot is written `{spell(parent)}["{dotted[0]}"]`' if dotted else ""
    if names == ["id", "type", "data", "at"] and not suggestion(part, names, likeness=0.8):
        meant = f"; what the event brings is in its `data`: {spell(parent)}.data.{part}"
    return f"there is no `{part}` in `{spell(parent)}`{meant or suggestion(part, names) or listed}"


_LENGTHS: Final = ("length", "len", "size", "count")
_BARREN: Final = {
    "array": "a list",
    "string": "text",
    "integer": "a number",
    "number": "a number",
    "boolean": "a boolean",
}


def _explain_no_property(schema: Mapping[str, Json], part: str, parent: Sequence[Segment]) -> str | None:
    """Why something that is no object has no property `part`, or None where it may be one."""
    types = schema.get("type")
    if types == "null":
        return f"`{spell(parent)}` is always null and has no `{part}`{schema.get(REMEDY, '')}"
    kinds = [kind for kind in (types if isinstance(types, list) else [types]) if kind != "null"]
    if not kinds or not all(kind in _BARREN for kind in kinds):
        return None
    text = spell(parent)
    remedy = ""
    if part in _LENGTHS and ("array" in kinds or "string" in kinds):
        remedy = f"; write size({text})"
    elif kinds == ["array"]:
        remedy = f"; write {text}.map(x, x.{part}), or {text}[0].{part}"
    return f"`{text}` is {_BARREN[str(kinds[0])]} and has no `{part}`{remedy}"


def _kind(schema: Json) -> Kind:
    if not isinstance(schema, Mapping):
        return "dyn"
    match schema.get("type"):
        case "integer":
            return "int"
        case "number":
            return "double"
        case "string":
            return "string"
        case "boolean":
            return "bool"
        case "object":
            return "map"
        case "array":
            element = _kind(schema.get("items", {}))
            return f"list:{element}" if element in ("int", "double", "string", "bool", "map") else "list:dyn"
        case _:
            return "dyn"


def as_inferred(look: Look) -> Json:
    """The schema of a name whose value an expression gives: its type is under `INFERRED`."""
    if not isinstance(look.schema, Mapping) or not look.schema:
        return {}
    defined = {key: look.root[key] for key in ("$defs", "definitions") if key in look.root} if look.root else {}
    return {INFERRED: {**defined, **look.schema}}


def look_inside(item: Look, path: tuple[Segment, ...]) -> Look:
    """The type of `path`, which begins with a variable of the type `item`."""
    schema = item.schema
    if isinstance(schema, Mapping) and isinstance(item.root, Mapping):
        schema = {**{key: item.root[key] for key in ("$defs", "definitions") if key in item.root}, **schema}
    return _look(schema, path[1:], 1, path)


def list_properties(look: Look) -> Mapping[str, Json]:
    """The schemas of the properties that are known of it, by their names."""
    properties = look.schema.get("properties") if isinstance(look.schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}
