"""How large the values of an expression can grow, and how long it takes, found before it is evaluated: the library
holds the interpreter's lock meanwhile and can't be interrupted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from hai_flow.definition.expressions.ast import (
    Call,
    Comprehension,
    Const,
    Listing,
    Name,
    Select,
    Tree,
    is_empty,
    walk,
)
from hai_flow.definition.expressions.cel_values import SCALAR, Size, widest
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.schemas.schema_work import count_states

GROWTH_MAX: Final = 4 * 1024 * 1024  # characters and elements that an intermediate value may have
WORK_MAX: Final = 250_000
"""Microseconds that an expression may take, by the estimate."""
PATTERN_STATES_MAX: Final = 5_000
"""States of one pattern of `matches`, which is compiled whenever it is used."""

_PRODUCTS: Final = frozenset(("replace", "join", "format"))
_WALKED: Final = frozenset(("sum", "join", "sort_by__", "group_by__"))
_ELEMENT: Final = 32  # what a copy takes for an element of a list, for one character of growth
_ROUNDS: Final = ""  # in place of a variable's name: how often a part of the tree is evaluated
_WORK: Final = " "  # likewise: microseconds of all that was looked at
ITERATIONS_MAX: Final = 10_000  # the library's own budget of rounds
_ROUND_WORK: Final = 2
STATE_WORK: Final = 2
"""Microseconds for a state of a pattern."""
_CLASS_STATES: Final = 400  # of a class of Unicode, whose hundreds of ranges become bytes
_UNKNOWN_STATES: Final = 40  # of a pattern that is made while the expression is evaluated
_COPIED_SHARE: Final = 50  # items of a list that are copied in a microsecond
_COPIED_MAX: Final = 1_000  # longer lists are taken in parts
_CALL_WORK: Final = {
    "format_time": (20, 8), "duration": (5, 32), "sum": (2, 32), "join": (3, 32), "split": (2, 32), "format": (2, 32),
    "replace": (1, 32), "reverse": (1, 128),
}  # fmt: skip
"""Microseconds of a call, and the characters of its first operand that take another one."""
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

    def check(self, sizes: Mapping[str, Size]) -> int:
        """The microseconds that the loops take with operands of these sizes. Raises ExpressionError(expression.budget)
        if these are more than WORK_MAX, or values could grow beyond GROWTH_MAX."""
        if not self.deep:
            self._allow(self._base + sum(size.total * self._uses[name] for name, size in sizes.items()))
            return 0
        work = Size(0)
        self._compute_bound(self._tree, {_WORK: work}, sizes)
        return work.total

    def _take(self, bound: Mapping[str, Size], units: int) -> None:
        """Count what a part of the tree takes each time that it is evaluated."""
        work = bound[_WORK]
        work.total += units * min(bound.get(_ROUNDS, SCALAR).total, ITERATIONS_MAX)
        if work.total > WORK_MAX:
            raise ExpressionError(
                "expression.budget", f"the expression could take longer than {WORK_MAX // 1_000} ms; use a tool"
            )

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
                parts = [self._compute_bound(part, bound, sizes) for part in tree.parts]
                if tree.function in _CALL_WORK:
                    work, characters = _CALL_WORK[tree.function]
                    self._take(bound, work + parts[0].total // characters)
                return self._call(tree, parts, bound)
            case _:
                parts = [self._compute_bound(part, bound, sizes) for part in tree.parts]
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
        self._take(inner, _ROUND_WORK)
        if isinstance(loop.start, Listing) and rounds > 1:
            self._take(inner, min(rounds, _COPIED_MAX) // _COPIED_SHARE)
            self._take(bound, _count_below(over) - over.count)
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

    def _call(self, call: Call, parts: list[Size], bound: Mapping[str, Size]) -> Size:
        if call.function in ("_?_:_",):
            return widest(parts[1:])
        if call.function in ("_[_]", "_?._", "_[?_]"):
            return self._part(parts[0])
        if call.function in _WALKED:
            self._take(bound, sum(3 * _count_below(part) for part in parts))
        if call.function == "matches":  # it makes nothing, but its work is a product
            pattern = call.parts[-1]
            try:
                states = check_states(str(pattern.value)) if isinstance(pattern, Const) else _UNKNOWN_STATES
            except ValueError as error:
                raise ExpressionError("expression.budget", f"{error}; use a tool") from None
            self._take(bound, 2 + states * STATE_WORK)
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


def check_states(pattern: str) -> int:
    """The states of the pattern. Raises ValueError where it is too large to be compiled for one text."""
    states = count_states(pattern, _CLASS_STATES)
    if states > PATTERN_STATES_MAX:
        raise ValueError(
            f"a pattern has at most {PATTERN_STATES_MAX:,} states, repetitions written out and a class of Unicode "
            f"counted as {_CLASS_STATES}, found {states:,}"
        )
    return states
