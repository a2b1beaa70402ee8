"""Templates (docs/language.md#expressions): values with holes in their texts, checked against the names of their place
and compiled.

A hole that is only a path never gets to CEL: the value itself is taken, so integers, nulls and large values pass
unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from hai_flow.definition.expressions.ast_paths import MISSING, Segment, absent, look_up
from hai_flow.definition.expressions.cel import Program
from hai_flow.definition.expressions.cel_growth import GROWTH_MAX, WORK_MAX
from hai_flow.definition.expressions.cel_values import format_instant
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault, Faults
from hai_flow.definition.expressions.expressions import EVERYWHERE_ALIKE, compile_source, find_roots_and_steps
from hai_flow.definition.expressions.value_text import as_text
from hai_flow.definition.names.holes import WrittenHole, split_holes
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.plan import Hole
from hai_flow.definition.yaml.document import Path
from hai_flow.primitives.beside_loop import THIS_THREAD, is_large, spend
from hai_flow.values import Json

_FEW_HOLES: Final = 16  # a value with so many has a bound by that


class _Part(Protocol):
    def render(self, scope: Mapping[str, Json]) -> Json: ...


class CompiledTemplate:
    """plan.Template: a YAML value with its holes compiled. `written` is that value."""

    __slots__ = ("_part", "_render", "holes", "is_literal", "roots", "steps", "written")

    def __init__(self, part: _Part, holes: Sequence[Hole], written: Json) -> None:
        self.holes = tuple(holes)
        self.roots, self.steps = find_roots_and_steps(path for hole in holes for path in hole.paths)
        self.written = written
        self.is_literal = isinstance(part, _Literal)
        self._part = part
        self._render: Callable[[Mapping[str, Json]], Json] = part.render

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value with every hole filled. Raises `ExpressionError`."""
        work = THIS_THREAD.work
        work.most = work.units + WORK_MAX
        value = self._render(scope)
        if len(self.holes) > _FEW_HOLES and is_large(value, GROWTH_MAX):
            raise _too_large()
        return value

    def type_at(self, path: Path) -> str | None:
        """The JSON type of what the expression gives that is the whole hole at `path`; None: it may be of any."""
        part: Any = self._part
        for key in path:
            match part:
                case _Map(parts=parts):
                    part = dict(parts).get(str(key))
                case _List(parts=parts) if isinstance(key, int) and key < len(parts):
                    part = parts[key]
                case _:
                    return None
        return _type_of(part)

    @property
    def type_before_text(self) -> str | None:
        """The JSON type of a single hole, before its value becomes text."""
        return _type_of(self._part.parts[0]) if isinstance(self._part, _Text) and len(self._part.parts) == 1 else None


_JSON_TYPES: Final = {
    "bool": "boolean", "double": "number", "int": "number", "uint": "number", "list": "array", "map": "object",
    "string": "string", "timestamp": "string", "duration": "string", "null": "null",
}  # fmt: skip


def _type_of(part: Any) -> str | None:
    word = part.program.result_type.lower().partition("<")[0] if isinstance(part, _CelHole) else ""
    return _JSON_TYPES.get(word)


class _Literal(msgspec.Struct, frozen=True):
    value: Json

    def render(self, scope: Mapping[str, Json]) -> Json:
        return self.value


class _PathHole(msgspec.Struct, frozen=True):
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


class _NowHole(msgspec.Struct, frozen=True):
    """`${{ now }}`: the scope has milliseconds, a document sees RFC 3339 text."""

    def render(self, scope: Mapping[str, Json]) -> Json:
        return format_instant(scope["now"])


class _CelHole(msgspec.Struct, frozen=True):
    program: Program

    def render(self, scope: Mapping[str, Json]) -> Json:
        value = self.program.evaluate(scope)
        _demand_room()
        return value


class _Text(msgspec.Struct, frozen=True):
    """Literal pieces and holes, joined as text."""

    parts: tuple[str | _Part, ...]

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


class _List(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        return [part.render(scope) for part in self.parts]


class _Map(msgspec.Struct, frozen=True):
    parts: tuple[tuple[str, _Part], ...]

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


Reporter: TypeAlias = Callable[[Path, ExpressionFault], None]  # path inside the value


def compile_template(value: Json, names: Names, report: Reporter, *, text: bool = False) -> CompiledTemplate:
    """`value` with its holes compiled. With `text` a single hole becomes text as well, where it else keeps its type.

    Faults (and doubts: see DOUBTS) go to `report`, by the path inside `value`; a faulty hole is null."""
    compiler = _TemplateCompiler(names, report)
    part = compiler.part(value, ())
    if not text or isinstance(part, _Literal):
        return CompiledTemplate(part, compiler.holes, value)
    return CompiledTemplate(_Text((part,)), [hole._replace(is_whole=False) for hole in compiler.holes], value)


class _TemplateCompiler:
    def __init__(self, names: Names, report: Reporter) -> None:
        self.names = names
        self.report = report
        self.holes: list[Hole] = []

    def part(self, value: Json, at: Path) -> _Part:
        """Recursion is bounded by the document's depth (40)."""
        if isinstance(value, str):
            return self._text(value, at)
        if isinstance(value, list):
            parts = [self.part(item, (*at, index)) for index, item in enumerate(value)]
            return (
                _Literal(value)
                if all(isinstance(p, _Literal) for p in parts) and "$" not in str(value)
                else _List(tuple(parts))
            )
        if isinstance(value, dict):
            return self._mapping(value, at)
        return _Literal(value)

    def _mapping(self, value: Mapping[str, Json], at: Path) -> _Part:
        pairs: list[tuple[str, _Part]] = []
        for key, item in value.items():
            if "${{" in key:
                self.report(
                    (*at, key), ExpressionFault(0, "expression.hole_in_key", "a key can't have holes; only values can")
                )
            pairs.append((key, self.part(item, (*at, key))))
        if all(isinstance(part, _Literal) for _, part in pairs):
            return _Literal({key: part.render({}) for key, part in pairs})
        return _Map(tuple(pairs))

    def _text(self, text: str, at: Path) -> _Part:
        if "{{" not in text:
            return _Literal(text)
        pieces = self._pieces(text, at)
        holes = [piece for piece in pieces if not isinstance(piece, str)]
        if not holes:
            return _Literal("".join(piece for piece in pieces if isinstance(piece, str)))
        compiled = {id(hole): self._hole(hole, at) for hole in holes}
        if len(pieces) == 1:
            part = compiled[id(holes[0])]
            if isinstance(part, _PathHole):
                self.holes[-1] = self.holes[-1]._replace(is_whole=True)
            return part
        return _Text(tuple(piece if isinstance(piece, str) else compiled[id(piece)] for piece in pieces))

    def _pieces(self, text: str, at: Path) -> list[str | WrittenHole]:
        try:
            return split_holes(text)
        except Faults as faults:
            for fault in faults.faults:
                self.report(at, fault)
            return [""]

    def _hole(self, hole: WrittenHole, at: Path) -> _Part:
        try:
            return self._compile_hole(hole, at)
        except Faults as faults:
            for fault in faults.faults:
                self.report(at, ExpressionFault(fault.offset + hole.offset, fault.code, fault.message))
            return _Literal(None)

    def _compile_hole(self, hole: WrittenHole, at: Path) -> _Part:
        names = self.names
        sound = names.types.sound.get(hole.source)
        if sound is None or sound.path[0] not in names.roots:
            sound = names.judge_path(hole.source)
            if sound is None:
                program, scanned, doubts = compile_source(hole.source, names)
                self._doubt(doubts, hole, at)
                self.holes.append(Hole(at, tuple(chain.path for chain in scanned.found.chains)))
                return _CelHole(program)
            if sound.doubt is not None:
                self._doubt([sound.doubt], hole, at)
            elif sound.path[0] in EVERYWHERE_ALIKE and not names.guarded:
                names.types.sound[hole.source] = sound
        self.holes.append(Hole(at, (sound.path,)))
        return _NowHole() if sound.path == ("now",) else _PathHole(sound.path, sound.is_optional)

    def _doubt(self, doubts: Sequence[ExpressionFault], hole: WrittenHole, at: Path) -> None:
        for doubt in doubts:
            self.report(at, ExpressionFault(doubt.offset + hole.offset, doubt.code, doubt.message))
