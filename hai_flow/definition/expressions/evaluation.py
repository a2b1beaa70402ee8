"""Expressions and templates as a plan holds them, and their evaluation with the data of a run.

A hole that is only a path never gets to CEL: the value itself is taken, so integers, nulls and large values pass
unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from hai_flow.definition.expressions.ast_paths import MISSING, Segment, absent, look_up
from hai_flow.definition.expressions.cel import Program
from hai_flow.definition.expressions.cel_growth import GROWTH_MAX, WORK_MAX
from hai_flow.definition.expressions.cel_values import format_instant
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault
from hai_flow.definition.expressions.value_text import as_text
from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.plan import Hole
from hai_flow.definition.yaml.document import Path
from hai_flow.primitives.beside_loop import THIS_THREAD, is_large, spend
from hai_flow.values import Json

Guards: TypeAlias = frozenset[tuple[Any, ...]]
"""Paths that are there, and facts, which begin with None (`condition_facts`)."""
_FEW_HOLES: Final = 16  # a value with so many has a bound by that


class Outcomes(msgspec.Struct, frozen=True, eq=False):
    """The properties of an expression that its source alone decides.

    `paths`, `roots` and `steps` are what it reads; `guards` and `denials` are the paths that are there, and the facts
    that hold, whenever its result is true, and whenever it is false; `proof` and `disproof` are the facts that make it
    so."""

    paths: tuple[tuple[Segment, ...], ...]
    roots: frozenset[str]
    steps: frozenset[str]
    guards: Guards
    denials: Guards
    proof: Guards | None
    disproof: Guards | None


class CompiledExpression(Outcomes, frozen=True, eq=False):
    """plan.Expression: CEL that was checked. The result of a condition must be a boolean; `doubts` are for warnings."""

    source: str
    program: Program
    is_condition: bool
    doubts: tuple[ExpressionFault, ...]

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value. Raises `ExpressionError` with an `expression.*` code."""
        value = self.program.evaluate(scope)
        if self.is_condition and type(value) is not bool:
            raise ExpressionError(
                "expression.error", f"{self.source!r}: expected true or false, found {kind_of(value)}"
            )
        return value

    def __repr__(self) -> str:
        return f"CompiledExpression({self.source!r})"


class TemplatePart(Protocol):
    """A part of a template."""

    def render(self, scope: Mapping[str, Json]) -> Json: ...


class CompiledTemplate(msgspec.Struct, frozen=True, eq=False):
    """plan.Template: a YAML value with its holes compiled. `written` is that value."""

    part: TemplatePart
    written: Json
    holes: tuple[Hole, ...] = ()
    roots: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value with every hole filled. Raises `ExpressionError`."""
        work = THIS_THREAD.work
        work.most = work.units + WORK_MAX
        value = self.part.render(scope)
        if len(self.holes) > _FEW_HOLES and is_large(value, GROWTH_MAX):
            raise _too_large()
        return value

    def type_at(self, path: Path) -> str | None:
        """The JSON type of what the expression gives that is the whole hole at `path`; None: it may be of any."""
        part: Any = self.part
        for key in path:
            match part:
                case MapPart(parts=parts):
                    part = dict(parts).get(str(key))
                case ListPart(parts=parts) if isinstance(key, int) and key < len(parts):
                    part = parts[key]
                case _:
                    return None
        return _type_of(part)

    @property
    def type_before_text(self) -> str | None:
        """The JSON type of a single hole, before its value becomes text."""
        return _type_of(self.part.parts[0]) if isinstance(self.part, TextPart) and len(self.part.parts) == 1 else None


_JSON_TYPES: Final = {
    "bool": "boolean", "double": "number", "int": "number", "uint": "number", "list": "array", "map": "object",
    "string": "string", "timestamp": "string", "duration": "string", "null": "null",
}  # fmt: skip


def _type_of(part: Any) -> str | None:
    word = part.program.result_type.lower().partition("<")[0] if isinstance(part, CelHole) else ""
    return _JSON_TYPES.get(word)


class LiteralPart(msgspec.Struct, frozen=True):
    value: Json

    def render(self, scope: Mapping[str, Json]) -> Json:
        return self.value


class PathHole(msgspec.Struct, frozen=True):
    """A hole that is only a path: the value itself, without CEL."""

    path: tuple[Segment, ...]
    is_optional: bool  # its last property is optional by its schema: absent is null

    def render(self, scope: Mapping[str, Json]) -> Json:
        value: Any = scope
        try:
            for part in self.path:
                if type(value) is str:  # "text"[0] would be a character
                    return self._slow(scope)
                value = value[part]
        except (KeyError, IndexError, TypeError):
            return self._slow(scope)
        return value

    def _slow(self, scope: Mapping[str, Json]) -> Json:
        value = look_up(scope, self.path)
        if value is not MISSING:
            return value
        if self.is_optional and look_up(scope, self.path[:-1]) is not MISSING:
            return None
        raise absent(self.path)


class NowHole(msgspec.Struct, frozen=True):
    """`${{ now }}`: the scope has milliseconds, a document sees RFC 3339 text."""

    def render(self, scope: Mapping[str, Json]) -> Json:
        return format_instant(scope["now"])


class CelHole(msgspec.Struct, frozen=True):
    program: Program

    def render(self, scope: Mapping[str, Json]) -> Json:
        value = self.program.evaluate(scope)
        _demand_room()
        return value


class TextPart(msgspec.Struct, frozen=True):
    """Literal pieces and holes, joined as text."""

    parts: tuple[str | TemplatePart, ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        if len(self.parts) <= _FEW_HOLES:
            return "".join([part if isinstance(part, str) else as_text(part.render(scope)) for part in self.parts])
        pieces, size = [], 0
        for part in self.parts:
            pieces.append(part if isinstance(part, str) else as_text(part.render(scope)))
            size += len(pieces[-1])
            spend(len(pieces[-1]) // 4)
            if size > GROWTH_MAX:
                raise _too_large()
            _demand_room()
        return "".join(pieces)


class ListPart(msgspec.Struct, frozen=True):
    parts: tuple[TemplatePart, ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        return [part.render(scope) for part in self.parts]


class MapPart(msgspec.Struct, frozen=True):
    parts: tuple[tuple[str, TemplatePart], ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        return {key: part.render(scope) for key, part in self.parts}


def _demand_room() -> None:
    """Raises ExpressionError where the value whose holes are filled has taken as long as it may."""
    work = THIS_THREAD.work
    if work.units > work.most:
        message = f"the holes of one value could take longer than {WORK_MAX // 1_000} ms; use a tool"
        raise ExpressionError("expression.budget", message)


def _too_large() -> ExpressionError:
    return ExpressionError("expression.too_large", "a value with its holes filled is larger than 4 MiB; use a tool")
