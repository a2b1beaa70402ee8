"""Optionals of CEL, and the places of an expression where one is used as if it were a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hai_flow.definition.expressions.ast import (
    Call,
    Comprehension,
    Listing,
    Mapped,
    Name,
    Select,
    Tree,
    is_empty,
    walk,
)
from hai_flow.definition.expressions.ast_paths import HOW_SECRETS_ARE_NAMED, NO_DEFAULT
from hai_flow.definition.expressions.expression_error import ExpressionFault

_GIVE_OPTIONALS: Final = frozenset(
    ("_?._", "_[?_]", "first", "last", "none", "of", "ofNonZeroValue", "optional.none", "optional.of", "or")
)
_TAKE_OPTIONALS: Final[Mapping[str, Sequence[int]]] = {
    "_==_": (0, 1), "_!=_": (0, 1), "_?_:_": (1, 2), "_?._": (0,), "_[?_]": (0,), "_[_]": (0,),
    "hasValue": (0,), "or": (0, 1), "orValue": (0,), "value": (0,),
}  # fmt: skip


def check_optionals(tree: Tree, *, taken: bool) -> Iterator[ExpressionFault]:
    """A fault for each optional in `tree` that is used as if it were a value. `taken`: the call around `tree` takes an
    optional.

    The library has no form of an optional for the functions that are written in Python: one that comes to them, itself
    or inside a list or a map, ends the process. So an optional ends where it began, in `orValue` and the like."""
    if not taken and _is_optional(tree):
        if any(isinstance(part, Name) and part.name == "secrets" for part in walk(tree)):
            yield ExpressionFault(tree.offset, "expression.secret", f"{HOW_SECRETS_ARE_NAMED}: {NO_DEFAULT}")
        else:
            message = "this may be absent, which is no value yet; end it with .orValue(...)"
            yield ExpressionFault(tree.offset, "expression.optional", message)
        return
    for part, part_taken in _parts(tree, taken=taken):
        yield from check_optionals(part, taken=part_taken)


def _is_optional(tree: Tree) -> bool:
    match tree:
        case Call(function="_?_:_"):
            return any(_is_optional(branch) for branch in tree.arguments[1:])
        case Call(function="_[_]"):
            return _is_optional(tree.arguments[0])
        case Call():
            return tree.function in _GIVE_OPTIONALS
        case Select(test=False):
            return _is_optional(tree.operand)
        case Comprehension():  # the parser's form of optFlatMap
            return is_empty(tree.range) and _is_optional(tree.result)
        case _:
            return False


def _parts(tree: Tree, *, taken: bool) -> Iterator[tuple[Tree, bool]]:
    match tree:
        case Select():
            yield tree.operand, True
        case Call():
            places = _TAKE_OPTIONALS.get(tree.function, ())
            yield from ((operand, index in places) for index, operand in enumerate(tree.parts))
        case Listing():
            yield from ((element, index in tree.optional) for index, element in enumerate(tree.elements))
        case Mapped():
            for index, (key, value) in enumerate(tree.entries):
                if key is not None:
                    yield key, False
                yield value, index in tree.optional
        case Comprehension():
            yield from ((part, False) for part in (tree.range, tree.start, tree.condition, tree.step))
            yield tree.result, taken and is_empty(tree.range)
        case _:
            pass
