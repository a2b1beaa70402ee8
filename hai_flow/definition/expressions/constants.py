"""Constant parts of an expression: literals that mean nothing where they stand, and parts that read nothing and always
fail. Both are known before they are computed in a run, maybe after a week of approvals."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from hai_flow.definition.expressions import cel
from hai_flow.definition.expressions.ast import (
    Call,
    Const,
    Listing,
    Mapped,
    Name,
    Select,
    Tree,
    begin,
    walk,
    write,
)
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault, Faults
from hai_flow.definition.expressions.functions import check_foreign_pattern, check_pattern, check_zone
from hai_flow.definition.names.durations import guess_duration
from hai_flow.definition.names.zones import check_sign, guess_zone
from hai_flow.values import Json

_FAILS: Final = ("expression.error", "expression.absent")  # not one that would take too long, or grow too large


def find_failing_constants(tree: Tree, offsets: Collection[int]) -> Iterator[ExpressionFault]:
    """The smallest parts that fail whenever they are computed. `offsets`: where other faults are, about which nothing
    more is said. A part whose condition is constant and false is never computed."""
    if not any(
        isinstance(node, Call | Select) or (isinstance(node, Mapped) and len(node.entries) > 1) for node in walk(tree)
    ):
        return
    source = write(tree)
    keyed = source or _write_member(tree)
    why = None if keyed is None else _evaluate(keyed)[1]
    if source is None and why is None:
        parts = tree.parts
        if isinstance(tree, Call) and tree.function == "_?_:_" and (condition := write(parts[0])) is not None:
            value, _ = _evaluate(condition)
            parts = (parts[1],) if value is True else (parts[2],) if value is False else parts
        for part in parts:
            if not isinstance(part, Const | Name):
                yield from find_failing_constants(part, offsets)
    if why is None:
        return
    inner = [fault for part in tree.parts for fault in find_failing_constants(part, offsets)]
    yield from inner
    if not inner and not any(node.offset in offsets for node in walk(tree)):
        yield ExpressionFault(begin(tree), "expression.literal", f"this fails whenever it is computed: {why}")


def _write_member(tree: Tree) -> str | None:
    """A member of a map literal, as if its values were null: whether it is there depends on the keys; None: it is no
    member."""
    match tree:
        case Select(operand=Mapped() as literal, test=False):
            return write(replace(tree, operand=_empty(literal)))
        case Call(function="_[_]", arguments=(Mapped() as literal, key)):
            return write(replace(tree, arguments=(_empty(literal), key)))
        case _:
            return None


def _empty(literal: Mapped) -> Mapped:
    return replace(literal, entries=tuple((key, Const(value.offset, None)) for key, value in literal.entries))


def evaluate_constant(source: str) -> Json:
    """The value of a source that reads nothing; None for any other."""
    try:
        constant = write(cel.parse(source))
    except Faults:
        return None
    return None if constant is None else _evaluate(constant)[0]


@lru_cache(maxsize=4096)
def _evaluate(source: str) -> tuple[Json, str | None]:
    """The value, or why there is none."""
    try:
        return cel.compile_tree(source, cel.parse(source), (), lambda _: "dyn").evaluate({}), None
    except Faults:  # of its types: the whole expression has it, too
        return None, None
    except ExpressionError as error:
        return None, error.message.removeprefix(f"{source!r}: ") if error.code in _FAILS else None


def doubt_literals(tree: Tree) -> tuple[ExpressionFault, ...]:
    """The faults of literals that releases before took, and the doubts about others."""
    return (*_check_arguments(tree), *_check_formats(tree), *_doubt_zones(tree))


def _check_arguments(tree: Tree) -> Iterator[ExpressionFault]:
    """Literal durations, instants, patterns, zones and numbers that are none: they would fail a step."""
    for node in walk(tree):
        if isinstance(node, Const) and isinstance(node.value, str) and "\0" in node.value:
            yield ExpressionFault(
                node.offset, "expression.literal", "expected text, found a NUL in it, which can't be stored; remove it"
            )
        expected = _LITERALS.get(node.function) if isinstance(node, Call) else None
        if expected is None or not isinstance(node, Call) or len(node.parts) <= expected.position:
            continue
        text = _join_literals(node.parts[expected.position])
        fault = None if text is None else cel.check_literal(expected.tried, text)
        if text is not None and fault is not None:
            hint = expected.hint(text) or (f": {fault}" if expected.tried == "matches" else "")
            message = f"`{node.function}` expects {expected.what}, found {text[:80]!r}{hint}"
            yield ExpressionFault(node.parts[expected.position].offset, "expression.literal", message)


def _join_literals(tree: Tree) -> str | None:
    """The text that a literal or a sum of literals gives; None: it depends on more."""
    if isinstance(tree, Const):
        return tree.value if isinstance(tree.value, str) else None
    if not isinstance(tree, Call) or tree.function != "_+_":
        return None
    texts = [_join_literals(each) for each in tree.parts]
    return None if None in texts else "".join(text for text in texts if text is not None)


_DIRECTIVE: Final = re.compile(r"%(?:%|(?:\.\d+)?[A-Za-z])")


def _check_formats(tree: Tree) -> Iterator[ExpressionFault]:
    """Literal texts of `format` whose places are not as many as the values behind them."""
    for node in walk(tree):
        if not isinstance(node, Call) or node.function != "format" or len(node.parts) != 2:
            continue
        text, values = node.parts
        if not isinstance(text, Const) or not isinstance(text.value, str) or not isinstance(values, Listing):
            continue
        places = sum(each != "%%" for each in _DIRECTIVE.findall(text.value))
        if places > len(values.elements):
            message = (
                f"`format` has {places} places and {len(values.elements)} values; add a value, or write `%%` for a "
                "percent sign"
            )
            yield ExpressionFault(text.offset, "expression.literal", message)


class _LiteralArgument(NamedTuple):
    what: str
    tried: str
    position: int = 0
    hint: Callable[[str], str] = lambda text: ""


def _duration_hint(text: str) -> str:
    meant = guess_duration(text)
    return f"; write {meant}" if meant else ""


def _suggest_instant(text: str) -> str:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return f"; write {text}T00:00:00Z, or another hour and offset"
    spaced = text.strip().replace(" ", "T")
    for meant in (spaced, f"{spaced}Z", re.sub(r"(T\d\d:\d\d)(?=Z|[+-]|$)", r"\1:00", spaced)):
        if meant != text and cel.check_literal("timestamp", meant) is None:
            return f"; write {meant}"
    return ""


_LITERALS: Final = {
    "duration": _LiteralArgument("a duration such as 90s, 1h30m or 2d", "duration", hint=_duration_hint),
    "timestamp": _LiteralArgument("an instant such as 2026-03-29T08:00:00Z", "timestamp", hint=_suggest_instant),
    "matches": _LiteralArgument("a pattern (RE2)", "matches", 1),
    "int": _LiteralArgument("a whole number", "int"),
    "double": _LiteralArgument("a number", "double"),
    "bool": _LiteralArgument("true or false", "bool"),
    **{
        f"get{part}": _LiteralArgument("a time zone such as Europe/Berlin", "getHours", 1, hint=guess_zone)
        for part in ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hours", "Minutes", "Seconds")
    },
}


def check_literals(tree: Tree) -> Iterator[ExpressionFault]:
    """Literal patterns and time zones of `format_time` that are none, which no release took."""
    for node in walk(tree):
        if isinstance(node, Call) and node.function == "format_time" and len(node.parts) > 1:
            for operand, fault_of in zip(node.parts[1:], (check_pattern, check_zone), strict=False):
                literal = operand.value if isinstance(operand, Const) else None
                fault = fault_of(literal) if isinstance(literal, str) else None
                if fault is not None:
                    yield ExpressionFault(operand.offset, "expression.format_time", fault)
            pattern = node.parts[1].value if isinstance(node.parts[1], Const) else None
            foreign = check_foreign_pattern(pattern) if isinstance(pattern, str) else None
            if foreign is not None:  # releases before took it
                yield ExpressionFault(node.parts[1].offset, "expression.literal", foreign)


def _doubt_zones(tree: Tree) -> Iterator[ExpressionFault]:
    """Literal time zones that hardly mean what their names say (`check_sign`)."""
    for node in walk(tree):
        position = _ZONES.get(node.function) if isinstance(node, Call) else None
        if isinstance(node, Call) and position is not None and len(node.parts) > position:
            text = _join_literals(node.parts[position])
            if text is not None and (doubt := check_sign(text)) is not None:
                yield ExpressionFault(node.parts[position].offset, "expression.zone", doubt)


_ZONES: Final = {"format_time": 2, **{name: each.position for name, each in _LITERALS.items() if name[:3] == "get"}}
