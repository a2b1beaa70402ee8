"""How large the values of an expression can grow, found before it is evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Name, Select, Tree, children, is_empty, walk
from hai_flow.definition.expressions.cel_values import SCALAR, Size, widest
from hai_flow.definition.expressions.expression_error import ExpressionError

GROWTH_MAX: Final = 4 * 1024 * 1024  # characters and elements that an intermediate value may have

_PRODUCTS: Final = frozenset(("replace", "join", "format"))
_WALKED: Final = frozenset(("sum", "join", "sort_by__", "group_by__"))
_ELEMENT: Final = 32  # what these, and a copy, take for an element of a list, for one character of growth
_PATTERN: Final = 3_000  # what it takes to compile a pattern that is made while the expression is evaluated
_ROUNDS: Final = ""  # in place of a variable's name: how often a part of the tree is evaluated
_MATCH_SHARE: Final = 8  # characters of text times of pattern, for one character of growth: RE2 is that much cheaper


class Growth:
    """An upper bound of the size to which an expression can grow. Cheap (a sum) where nothing in it multiplies."""

    __slots__ = ("_base", "_tree", "_uses", "_variables", "deep")

    def __init__(self, tree: Tree, variables: Mapping[int, str]) -> None:
        nodes = list(walk(tree))
        self._tree = tree
        self._variables = dict(variables)
        self._uses: dict[str, int] = {}
        for name in variables.values():
            self._uses[name] = self._uses.get(name, 0) + 1
        self._base = 64 * len(nodes) + sum(len(n.value) for n in nodes if isinstance(n, Const) and type(n.value) is str)
        self.deep = any(
            isinstance(node, Comprehension) or (isinstance(node, Call) and node.function in (*_PRODUCTS, "matches"))
            for node in nodes
        )

    def check(self, sizes: Mapping[str, Size]) -> None:
        """Raises ExpressionError(expression.budget) if operands of these sizes could grow beyond GROWTH_MAX."""
        if self.deep:
            self._compute_bound(self._tree, {}, sizes)
        else:
            self._allow(self._base + sum(size.total * self._uses[name] for name, size in sizes.items()))

    def _allow(self, total: int) -> int:
        if total > GROWTH_MAX:
            raise ExpressionError(
                "expression.budget", "the expression could grow beyond 4 Mi characters and elements; use a tool"
            )
        return total

    def _compute_bound(self, tree: Tree, bound: Mapping[str, Size], sizes: Mapping[str, Size]) -> Size:
        """The largest that `tree` can be. Every intermediate value passes through `_allow`."""
        if id(tree) in self._variables:
            return sizes.get(self._variables[id(tree)], SCALAR)
        match tree:
            case Const():
                return Size(len(tree.value) + 1) if isinstance(tree.value, (str, bytes)) else SCALAR
            case Name():
                return bound.get(tree.name, SCALAR)
            case Comprehension():
                return self._loop(tree, bound, sizes)
            case Select():
                return self._part(self._compute_bound(tree.operand, bound, sizes))
            case Call():
                parts = [self._compute_bound(part, bound, sizes) for part in tree.operands]
                return self._call(tree, parts, bound.get(_ROUNDS, SCALAR).total)
            case _:
                parts = [self._compute_bound(part, bound, sizes) for part in children(tree)]
                self._allow(bound.get(_ROUNDS, SCALAR).total * _ELEMENT * sum(map(_count_below, parts)))
                total = self._allow(1 + len(parts) + sum(part.total for part in parts))
                return Size(total, len(parts), widest(parts) if parts else None)

    def _loop(self, loop: Comprehension, bound: Mapping[str, Size], sizes: Mapping[str, Size]) -> Size:
        over = self._compute_bound(loop.range, bound, sizes)
        start = self._compute_bound(loop.start, bound, sizes)
        # A macro's step is `accumulator + [element]`, a boolean, or the accumulator itself: linear in the rounds.
        rounds = over.count or (over.total if over.element is None else 0)
        often = Size(bound.get(_ROUNDS, SCALAR).total * max(1, rounds))
        inner = {**bound, loop.variable: self._part(over), loop.accumulator: SCALAR, _ROUNDS: often}
        self._compute_bound(loop.condition, inner, sizes)
        step = self._compute_bound(loop.step, inner, sizes)
        total = self._allow(start.total + rounds * step.total)
        gathered = Size(
            max(total, step.total), start.count + rounds * max(1, step.count), step.element or start.element
        )
        if is_empty(loop.range):  # optMap: the accumulator is the value itself
            gathered = start
        behind = {**inner, loop.accumulator: gathered, _ROUNDS: bound.get(_ROUNDS, SCALAR)}
        return self._compute_bound(loop.result, behind, sizes)

    def _part(self, whole: Size) -> Size:
        return whole.element or whole

    def _call(self, call: Call, parts: list[Size], rounds: int) -> Size:
        if call.function in ("_?_:_",):
            return widest(parts[1:])
        if call.function in ("_[_]", "_?._", "_[?_]"):
            return self._part(parts[0])
        if call.function in _WALKED:
            self._allow(rounds * _ELEMENT * sum(part.count for part in parts))
        if call.function == "matches":  # it makes nothing, but its work is a product
            if not isinstance(call.operands[-1], Const):
                self._allow(rounds * _PATTERN)
            return Size(self._allow(math.prod(part.total for part in parts) // _MATCH_SHARE + 1))
        total = sum(part.total for part in parts) + 32
        if call.function == "format_time":
            total *= 8  # the longest names of days and months
        if call.function in _PRODUCTS:
            total += parts[0].total * sum(part.total for part in parts[1:])
            if call.function == "join" and parts[0].element is not None and parts[0].element.total == 1:
                total += 24 * parts[0].count  # the longest numbers
            if call.function == "format":
                total += 1_024 * parts[0].total
        elements = [part.element for part in parts if part.element is not None]
        count = sum(part.count for part in parts)
        if call.function in ("split",):
            count, elements = parts[0].total, [parts[0]]
            total += 32 * count  # an element costs far more than its one character
        return Size(self._allow(total), count, widest(elements) if elements else None)


def _count_below(size: Size) -> int:
    """The elements of a list, of the lists in it, and so on."""
    return 0 if size.element is None else size.count * (1 + _count_below(size.element))
