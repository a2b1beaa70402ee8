"""Parts of an expression that read nothing and always fail, which is known before they are computed in a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition.expressions import cel
from hai_flow.definition.expressions.ast import (
    Call,
    Comprehension,
    Const,
    Listing,
    Mapped,
    Select,
    Tree,
    begin,
    walk,
)
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault, Faults
from hai_flow.values import Json

_FAILS: Final = ("expression.error", "expression.absent")  # not one that would take too long, or grow too large


def find_failing_constants(tree: Tree, offsets: Collection[int]) -> Iterator[ExpressionFault]:
    """The smallest parts that fail whenever they are computed. `offsets`: where other faults are, about which nothing
    more is said. A part whose condition is constant and false is never computed."""
    if not any(_may_fail(node) for node in walk(tree)):
        return
    source = _write(tree)
    keyed = source or _write(_without_values(tree))
    why = None if keyed is None else _evaluate(keyed)[1]
    if source is None and why is None:
        parts = tree.parts
        if isinstance(tree, Call) and tree.function == "_?_:_" and (condition := _write(parts[0])) is not None:
            value, _ = _evaluate(condition)
            parts = (parts[1],) if value is True else (parts[2],) if value is False else parts
        for part in parts:
            yield from find_failing_constants(part, offsets)
    if why is None:
        return
    inner = [fault for part in tree.parts for fault in find_failing_constants(part, offsets)]
    yield from inner
    if not inner and not any(node.offset in offsets for node in walk(tree)):
        yield ExpressionFault(begin(tree), "expression.literal", f"this fails whenever it is computed: {why}")


def _may_fail(node: Tree) -> bool:
    return isinstance(node, Call | Select) or (isinstance(node, Mapped) and len(node.entries) > 1)


def _without_values(tree: Tree) -> Tree:
    """A member of a map literal, as if its values were null: whether it is there depends on the keys."""
    match tree:
        case Select(operand=Mapped() as literal, test=False):
            return replace(tree, operand=_empty(literal))
        case Call(function="_[_]", arguments=(Mapped() as literal, key)):
            return replace(tree, arguments=(_empty(literal), key))
        case _:
            return tree


def _empty(literal: Mapped) -> Mapped:
    return replace(literal, entries=tuple((key, Const(value.offset, None)) for key, value in literal.entries))


def evaluate_constant(source: str) -> Json:
    """The value of a source that reads nothing; None for any other."""
    try:
        constant = _write(cel.parse(source))
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


def _write(tree: Tree) -> str | None:
    """The source of a tree without names and loops; None for any other."""
    if isinstance(tree, Comprehension):
        return None
    parts = [_write(part) for part in tree.parts]
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts):
        return None
    match tree:
        case Const(value=None | bool() | int() | float() | str() as value):
            return values.dumps(value).decode() + "u" * tree.unsigned
        case Listing(optional=optional) if not optional:
            return f"[{', '.join(texts)}]"
        case Mapped(type_name="", optional=optional) if not optional:
            pairs = zip(texts[::2], texts[1::2], strict=True)
            return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        case Select():
            member = f"{texts[0]}.{tree.name}"
            return f"has({member})" if tree.test else member
        case Call(function=function) if function.startswith(("_", "-", "!", "@")):
            return _write_operator(function, texts)
        case Call(function=function) if function.isidentifier():
            first, arguments = (f"{texts[0]}.", texts[1:]) if tree.target is not None else ("", texts)
            return f"{first}{function}({', '.join(arguments)})"
        case _:
            return None


def _write_operator(function: str, texts: list[str]) -> str | None:
    match texts:
        case [operand] if function in ("!_", "-_"):
            return f"({function[0]}{operand})"
        case [left, right] if function in ("_[_]", "@in"):
            return f"{left}[{right}]" if function == "_[_]" else f"({left} in {right})"
        case [left, right] if function[0] == function[-1] == "_" and "?" not in function:
            return f"({left} {function.strip('_')} {right})"
        case [condition, left, right] if function == "_?_:_":
            return f"({condition} ? {left} : {right})"
        case _:
            return None
