"""How a mapping is described: its keys, each with the kind of its values. Pure data.

`key_table` and the verbs describe the language with these, and files of a deployment (identities, secrets) their own
mappings; `reader` holds what is written against them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from hai_flow.values import Json

Kind: TypeAlias = Literal[
    "any", "text", "hole", "literal", "cel", "duration", "schema", "steps", "selectors", "id", "variable",
    "workflow", "name", "integer", "number",
    "boolean", "enum", "list", "map", "shape", "either",
]  # fmt: skip


class Type(msgspec.Struct, frozen=True):
    """The kind of a value. `word` is how the pages call it.

    `parts`: the members of an `either`, or the one of a `list` or `map`; `values` those of an `enum`; `shape` names one
    of the language; `minimum` and `maximum` bound a number, or the length of a text, a list or a map; `above`: a number
    has to be more than the minimum; `keys` is the kind of the keys of a `map`."""

    kind: Kind
    word: str
    parts: tuple[Type, ...] = ()
    values: tuple[Json, ...] = ()
    shape: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    keys: Kind = "any"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping. `default` and `example` are YAML; "" = none. `beside`: goes only with one of these keys.

    `read`: the type that the reader takes, where the compiler has a better sentence for some values that are not of
    `type`. `needed_by`: it must be there where that key is. `instead`: the key that may stand in its place, where it is
    required."""

    name: str
    type: Type
    does: str
    required: bool = False
    default: str = ""
    example: str = ""
    beside: tuple[str, ...] = ()
    read: Type | None = None
    needed_by: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One mapping of the language. `exactly_one` lists groups of keys of which one must be there."""

    name: str
    title: str
    keys: tuple[Key, ...]
    exactly_one: tuple[tuple[str, ...], ...] = ()
    at_most_one: tuple[tuple[str, ...], ...] = ()
    open: bool = False  # whether other keys may stand there (those of a JSON Schema)

    @property
    def words(self) -> tuple[str, ...]:
        """The names of its keys, in order."""
        return tuple(key.name for key in self.keys)

    def of(self, word: str) -> Shape:
        """The mapping with `word` as the key that is chosen from its group of `exactly_one`: the group's other keys are
        gone."""
        others = {each for group in self.exactly_one for each in group if word in group} - {word}
        keys = (key for key in self.keys if key.name not in others and (not key.beside or word in key.beside))
        return dataclasses.replace(
            self, keys=tuple(dataclasses.replace(key, required=True) if key.name == word else key for key in keys)
        )

    def without(self, word: str) -> Shape:
        return dataclasses.replace(self, keys=tuple(key for key in self.keys if key.name != word))


ANY: Final = Type("any", "any")
TEXT: Final = Type("text", "text")
HOLE: Final = Type("hole", "hole")
LITERAL: Final = Type("literal", "lit")
CEL: Final = Type("cel", "cel")
DURATION: Final = Type("duration", "dur")
SCHEMA: Final = Type("schema", "schema")
STEPS: Final = Type("steps", "steps")
SELECTORS: Final = Type("selectors", "sel")
ID: Final = Type("id", "id")
NAME: Final = Type("name", "name")
WORKFLOW: Final = Type("workflow", "name")
BOOLEAN: Final = Type("boolean", "true or false")
MAPPING: Final = Type("map", "map", (ANY,))


def integer(minimum: int | None = None, maximum: int | None = None) -> Type:
    return Type("integer", "int" if minimum is None else f"int >= {minimum}", minimum=minimum, maximum=maximum)


def number(minimum: float | None = None, *, above: bool = False) -> Type:
    return Type("number", "number", minimum=minimum, above=above)


def literal(minimum: int, maximum: int | None = None) -> Type:
    return msgspec.structs.replace(LITERAL, minimum=minimum, maximum=maximum)


def enum(*values: str | bool) -> Type:
    words = [str(value).lower() if isinstance(value, bool) else value for value in values]
    return Type("enum", " or ".join(f"`{word}`" for word in words), values=values)


def list_of(part: Type, minimum: int | None = None, maximum: int | None = None) -> Type:
    return Type("list", f"list of {part.word}", (part,), minimum=minimum, maximum=maximum)


def map_of(part: Type, keys: Kind = "name", minimum: int | None = None, maximum: int | None = None) -> Type:
    key = {"name": "name", "variable": "id", "id": "id"}.get(keys, "key")
    return Type("map", f"map {key}: {part.word}", (part,), keys=keys, minimum=minimum, maximum=maximum)


def shape_of(name: str) -> Type:
    return Type("shape", f"`{name}`", shape=name)


def either(*parts: Type, word: str = "") -> Type:
    return Type("either", word or " or ".join(part.word for part in parts), parts)


def stages(words: Type, stage: str) -> Type:
    """A word, a mapping with one key, or a list of these."""
    one = either(words, shape_of(stage))
    return either(*one.parts, list_of(one, 1), word=f"word, {shape_of(stage).word}, or list of them")
