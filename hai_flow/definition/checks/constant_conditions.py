"""What is certain of an expression, whatever a run is given: conditions that are always or never true, divisions by
zero, items that a list does not have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from hai_flow.definition.expressions.ast import (
    Call,
    Comprehension,
    Const,
    Listing,
    Tree,
    begin,
)
from hai_flow.definition.expressions.ast_paths import Chain, parse_static_path
from hai_flow.definition.expressions.expression_error import ExpressionFault
from hai_flow.definition.names.known_names import Names
from hai_flow.values import Json

_RELATIONS: Final = ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_")
TURNED: Final = {"_==_": "_==_", "_!=_": "_!=_", "_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_"}
DENIED: Final = {
    "_==_": "_!=_", "_!=_": "_==_", "_<_": "_>=_", "_>=_": "_<_", "_>_": "_<=_", "_<=_": "_>_",
}  # fmt: skip
_STATUSES: Final = (100.0, 599.0)  # of HTTP

_Value: TypeAlias = "float | str | bool | None"


class _Claim(NamedTuple):
    """A comparison of one part of the data with a literal."""

    subject: str
    relation: str
    value: _Value


class _Bound(NamedTuple):
    relation: str
    value: float


class Certainty:
    """One walk through a tree. `chains`: its paths by the id of their node."""

    def __init__(self, tree: Tree, chains: Mapping[int, Chain], names: Names) -> None:
        self._chains = chains
        self._names = names
        self._why = "whatever a run is given"
        self.faults: list[ExpressionFault] = []
        self.doubts: list[ExpressionFault] = []
        self._visit(tree)

    def _visit(self, tree: Tree) -> None:
        outcome = None if isinstance(tree, Const) else self.find_outcome(tree)
        if outcome is not None:
            self.doubts.append(ExpressionFault(begin(tree), "condition.certain", _certain(outcome, self._why)))
            return
        if isinstance(tree, Comprehension):
            for part in (tree.range, tree.step):
                self._visit(part)
            return
        if isinstance(tree, Call):
            self._check_division(tree)
            self._index(tree)
        for part in tree.parts:
            self._visit(part)

    # -- conditions ------------------------------------------------------------------------------------------------

    def find_outcome(self, tree: Tree) -> bool | None:
        """Whether the condition is true (or false) for whatever a run is given; None: that depends."""
        match tree:
            case Const(value=bool() as value):
                return value
            case Call(function="!_", arguments=(operand,)):
                outcome = self.find_outcome(operand)
                return None if outcome is None else not outcome
            case Call(function="_&&_" | "_||_", arguments=(left, right)):
                return self._joined(tree, left, right)
            case Call(function=relation, target=None, arguments=(left, right)) if relation in _RELATIONS:
                return self._compared(relation, left, right)
            case _:
                return None

    def _joined(self, tree: Call, left: Tree, right: Tree) -> bool | None:
        decides = tree.function == "_||_"
        outcomes = (self.find_outcome(left), self.find_outcome(right))
        if decides in outcomes:
            return decides
        if outcomes == (not decides, not decides):
            return not decides
        if not _is_contradiction(list(self._claims(tree, tree.function, denied=decides))):
            return None
        self._why = "a value is always one of these" if decides else "no value is both"
        return decides

    def _claims(self, tree: Tree, function: str, *, denied: bool) -> Iterator[_Claim]:
        """The comparisons that are joined by `function`; `denied`: the opposite of each."""
        match tree:
            case Call(function=joint, arguments=(left, right)) if joint == function:
                yield from self._claims(left, function, denied=denied)
                yield from self._claims(right, function, denied=denied)
            case Call(function="!_", arguments=(operand,)):
                other = "_||_" if function == "_&&_" else "_&&_"
                yield from self._claims(operand, other, denied=not denied)
            case Call(function=relation, target=None, arguments=(left, right)) if relation in _RELATIONS:
                claim = self._claim(relation, left, right)
                if claim is not None:
                    yield claim._replace(relation=DENIED[claim.relation]) if denied else claim

    def _claim(self, relation: str, subject_tree: Tree, right: Tree) -> _Claim | None:
        if isinstance(subject_tree, Const):
            subject_tree, right, relation = right, subject_tree, TURNED[relation]
        subject = self._subject(subject_tree)
        if subject is None or not isinstance(right, Const) or isinstance(right.value, bytes):
            return None
        value = right.value
        return _Claim(subject, relation, float(value) if type(value) in (int, float) else value)

    def _subject(self, tree: Tree) -> str | None:
        """A part of the data in one spelling; None: it is no such part."""
        chain = self._chains.get(id(tree))
        if chain is not None:
            return None if chain.field is not None else ".".join(map(str, chain.path))
        match tree:
            case Const():
                return None
            case Call(function="size", parts=(operand,)):
                inner = self._subject(operand)
                return None if inner is None else f"size({inner})"
            case _:
                path = parse_static_path(tree)
                return None if path is None else ".".join((path[0].name, *map(str, path[1])))

    def _compared(self, relation: str, left: Tree, right: Tree) -> bool | None:
        if isinstance(left, Const) and isinstance(right, Const):
            return _hold(relation, left.value, right.value)
        one, other = self._subject(left), self._subject(right)
        if one is not None and one == other:
            self._why = "it compares a value with itself"
            return relation in ("_==_", "_<=_", "_>=_")
        claim = self._claim(relation, left, right)
        bounds = self._bounds(left if not isinstance(left, Const) else right)
        if claim is None or bounds is None or not isinstance(claim.value, float):
            return None
        outcome = _within(claim.relation, claim.value, *bounds)
        if outcome is not None:
            least, most = (_spelt(bound) for bound in bounds)
            range_text = f"at least {least}" if not most else f"at most {most}" if not least else f"{least} to {most}"
            self._why = f"`{claim.subject}` is {range_text}"
        return outcome

    def _bounds(self, tree: Tree) -> tuple[float, float] | None:
        """The numbers between which the value is, both included; None: it may be any."""
        match tree:
            case Call(function="size", parts=(operand,)):
                schema = self._schema(operand) or {}
                least = max(_number(schema.get(word), 0.0) for word in ("minItems", "minLength", "minProperties"))
                most = [_number(schema.get(word), math.inf) for word in ("maxItems", "maxLength", "maxProperties")]
                return least, min(most)
        chain = self._chains.get(id(tree))
        if chain is not None and chain.path == ("response", "status"):
            return _STATUSES
        schema = self._schema(tree)
        if schema is None or schema.get("type") not in ("integer", "number"):
            return None
        return _number(schema.get("minimum"), -math.inf), _number(schema.get("maximum"), math.inf)

    def _schema(self, tree: Tree) -> Mapping[str, Json] | None:
        chain = self._chains.get(id(tree))
        if chain is None or chain.path[0] not in self._names.roots:
            return None
        schema = self._names.types.look(chain.path).schema
        return schema if isinstance(schema, Mapping) else None

    # -- values ----------------------------------------------------------------------------------------------------

    def _check_division(self, call: Call) -> None:
        if call.function in ("_/_", "_%_") and _parse_number(call.arguments[1]) == 0:
            what = "a division" if call.function == "_/_" else "a remainder"
            message = f"{what} by zero fails whenever it is computed; write another divisor"
            self.faults.append(ExpressionFault(begin(call.arguments[1]), "expression.literal", message))

    def _index(self, call: Call) -> None:
        if call.function != "_[_]":
            return
        operand, index = call.arguments
        at = _parse_number(index)
        if at is None:
            return
        if at < 0:
            message = "there is no negative index; the last one of a list `x` is x[size(x) - 1]"
            self.faults.append(ExpressionFault(begin(index), "expression.literal", message))
            return
        schema = self._schema(operand) or {}
        most = len(operand.elements) if isinstance(operand, Listing) else _number(schema.get("maxItems"), math.inf)
        if at >= most:
            message = f"there is no item [{int(at)}]: the list has {int(most)} at most, and counting begins at 0"
            self.faults.append(ExpressionFault(begin(index), "expression.literal", message))


def doubt_literal_condition(tree: Tree) -> list[ExpressionFault]:
    """The doubt about a condition that is nothing but `true` or `false`."""
    if isinstance(tree, Const) and isinstance(tree.value, bool):
        return [ExpressionFault(0, "condition.certain", _certain(tree.value))]
    return []


def _certain(outcome: bool, why: str = "whatever a run is given") -> str:
    return f"this is {'always' if outcome else 'never'} true: {why}; compare something else, or take it out"


def _spelt(bound: float) -> str:
    return "" if math.isinf(bound) else str(int(bound)) if bound == int(bound) else str(bound)


def _number(value: Json, otherwise: float) -> float:
    return float(value) if type(value) in (int, float) else otherwise


def _parse_number(tree: Tree) -> float | None:
    match tree:
        case Const(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
        case Call(function="-_", arguments=(Const(value=int() | float() as value),)) if not isinstance(value, bool):
            return -float(value)
        case _:
            return None


def _hold(relation: str, one: Json, other: Json) -> bool | None:
    if relation == "_==_":
        return bool(one == other)
    if relation == "_!=_":
        return bool(one != other)
    numbers = type(one) in (int, float) and type(other) in (int, float)
    if not numbers and not (isinstance(one, str) and isinstance(other, str)):
        return None
    return bool({"_<_": one < other, "_<=_": one <= other, "_>_": one > other, "_>=_": one >= other}[relation])


def _within(relation: str, value: float, least: float, most: float) -> bool | None:
    """Whether a number between the bounds has this relation to the value, for certain."""
    match relation:
        case "_<_":
            return True if most < value else False if least >= value else None
        case "_<=_":
            return True if most <= value else False if least > value else None
        case "_>_":
            return True if least > value else False if most <= value else None
        case "_>=_":
            return True if least >= value else False if most < value else None
        case _:
            inside = least <= value <= most
            return None if inside else relation == "_!=_"


def _is_contradiction(claims: list[_Claim]) -> bool:
    """Whether no value keeps all of these."""
    by_subject: dict[str, list[_Claim]] = {}
    for claim in claims:
        by_subject.setdefault(claim.subject, []).append(claim)
    return any(len(each) > 1 and _is_kept_by_none(each) for each in by_subject.values())


def _is_kept_by_none(claims: list[_Claim]) -> bool:
    equal = [claim.value for claim in claims if claim.relation == "_==_"]
    if equal:
        return any(_hold(claim.relation, equal[0], claim.value) is False for claim in claims)
    bounds = [_Bound(claim.relation, claim.value) for claim in claims if isinstance(claim.value, float)]
    lower = [bound for bound in bounds if bound.relation in ("_>_", "_>=_")]
    upper = [bound for bound in bounds if bound.relation in ("_<_", "_<=_")]
    return any(
        low.value > high.value or (low.value == high.value and (low.relation, high.relation) != ("_>=_", "_<=_"))
        for low in lower
        for high in upper
    )
