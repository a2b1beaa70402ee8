"""Facts: the outcomes of conditions that hold at a place of a document, by which a step is known to have run.

A fact is a condition in one spelling, and whether it was true. It stands among the guards of a place (`Guards`), where
its first element, None, tells it from a path. Facts are kept only of values that stay as they are once they are there:
the input, the outputs of steps that have ended, the variable of the loop around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hai_flow.definition.expressions.ast import Call, Const, Listing, Name, Select, Tree
from hai_flow.definition.names.known_names import ROOTS, Guards, Names
from hai_flow.definition.names.known_types import INFERRED

FACTS_MAX: Final = 200  # carried to one place: each path there is held against all of them
_CHANGING: Final = (ROOTS - {"input", "steps", "item"}) | {"index", "answer", "callback"}


def fact(tree: Tree, outcome: bool) -> Guards:
    """The fact that the condition `tree` had this outcome; none of a condition over values that may change."""
    match tree:
        case Call(function="_==_" | "_!=_", arguments=(read, Const() as value)) if not isinstance(read, Const):
            text = _render_condition(read)
            equal = outcome == (tree.function == "_==_")
            return frozenset() if text is None else frozenset([(None, "equal", text, repr(value.value), equal)])
        case Call(function="_==_" | "_!=_", arguments=(Const() as value, read)) if not isinstance(read, Const):
            return fact(Call(tree.offset, tree.function, None, (read, value)), outcome)
    text = _render_condition(tree)
    return frozenset() if text is None else frozenset([(None, "true", text, "", outcome)])


def sufficient(tree: Tree, outcome: bool) -> Guards | None:
    """Facts from which it follows that the condition `tree` has this outcome; None where there are none, because a
    part of it reads a value that may change."""
    match tree:
        case Call(function="!_", arguments=(operand,)):
            return sufficient(operand, not outcome)
        case Call(function="_&&_" | "_||_", arguments=(left, right)) if outcome == (tree.function == "_&&_"):
            one, other = sufficient(left, outcome), sufficient(right, outcome)
            return None if one is None or other is None else one | other
    return fact(tree, outcome) or None


def entails(guards: Guards, wanted: Guards | None) -> bool:
    """Whether all of `wanted` follow from `guards`. None never does."""
    return wanted is not None and all(each in guards or _is_excluded(each, guards) for each in wanted)


def _is_excluded(wanted: tuple[object, ...], known: Guards) -> bool:
    """Whether something is known to be equal to another value than that which it is wanted not to be equal to."""
    if wanted[:2] != (None, "equal") or wanted[4]:
        return False
    return any(each[:3] == wanted[:3] and each[4] and each[3] != wanted[3] for each in known if len(each) == 5)


def collect_facts(guards: Guards) -> frozenset[tuple[object, ...]]:
    """The facts among guards, without the paths."""
    return frozenset(each for each in guards if each[0] is None)


def lasting(names: Names, guards: Guards) -> Guards:
    """The guards that still hold behind further steps: not those of the state, which these may change."""
    lets = {root for root, schema in names.types.roots.items() if INFERRED in str(schema)}
    return frozenset(each for each in guards if each[0] in (None, "input", "steps") or each[0] in lets)


def with_facts(names: Names, guards: Guards) -> Names:
    """The same place, where `guards` hold as well; beyond a number of them it stays as it is."""
    more = lasting(names, guards)
    if not more or len(names.guarded) + len(more) > FACTS_MAX:
        return names
    return names.with_guards(_ShownGuards(more))


class _ShownGuards:
    """Guards in the form of an expression that shows them."""

    def __init__(self, guards: Guards) -> None:
        self.guards = guards


def _render_condition(tree: Tree) -> str | None:
    """The condition in one spelling; None where it reads a value that may change."""
    match tree:
        case Name():
            return None if tree.name in _CHANGING else tree.name
        case Const():
            return repr(tree.value)
        case Select():
            operand = _render_condition(tree.operand)
            return None if operand is None else f"{operand}.{tree.name}{'?' if tree.test else ''}"
        case Call():
            return _join_key(tree.function, tree.parts)
        case Listing():
            return _join_key("[]", tree.elements)
    return None


def _join_key(word: str, parts: Iterable[Tree]) -> str | None:
    spelled = [_render_condition(part) for part in parts]
    return None if None in spelled else f"{word}({','.join(map(str, spelled))})"
