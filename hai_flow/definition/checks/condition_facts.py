"""What conditions show: the paths that are there where one is true, or false, and facts.

A fact is a condition in one spelling, and whether it was true; by facts a step is known to have run. It stands among
the guards of a place (`Guards`), where its first element, None, tells it from a path. Facts are kept only of values
that stay as they are once they are there: the input, the outputs of steps that have ended, the variable of the loop
around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hai_flow.definition.checks.constant_conditions import DENIED, TURNED
from hai_flow.definition.checks.value_types import is_filter
from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Listing, Name, Select, Tree
from hai_flow.definition.expressions.ast_paths import Chain, Segment, parse_static_path
from hai_flow.definition.expressions.cel_macros import SORTED
from hai_flow.definition.names.known_names import ROOTS, Guards, Names
from hai_flow.definition.names.known_types import INFERRED

LATER_ROUND: Final = (None, "later round")
"""The guard that a round of the loop around has ended already."""
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


def collect_guards(tree: Tree, chains: Mapping[int, Chain], outcome: bool) -> Guards:
    """The paths that are certainly there when `tree` is `outcome`, and the facts that hold then."""
    return _collect_paths(tree, chains, outcome) | _collect_facts(tree, outcome)


def _collect_facts(tree: Tree, outcome: bool) -> Guards:
    match tree:
        case Call(function="!_", arguments=(operand,)):
            return _collect_facts(operand, not outcome)
        case Call(function="_&&_" | "_||_", arguments=(left, right)) if outcome == (tree.function == "_&&_"):
            return _collect_facts(left, outcome) | _collect_facts(right, outcome)
        case Call(function="@in", arguments=(read, Listing(elements=values))) if not outcome:
            denied = (fact(Call(tree.offset, "_==_", None, (read, value)), False) for value in values)
            return fact(tree, outcome).union(*denied)
        case _:
            return fact(tree, outcome)


def _collect_paths(tree: Tree, chains: Mapping[int, Chain], outcome: bool) -> Guards:
    items = _collect_items(tree, chains, outcome)
    if items or _is_later_round(tree, outcome):
        return items or frozenset([LATER_ROUND])
    match tree:
        case Select(test=True):
            chain = chains.get(id(tree.operand))
            if chain is None:
                return _show_member(tree.operand, tree.name, outcome)
            return frozenset([(*chain.path, tree.name)]) if outcome and chain.field else frozenset()
        case Call(function="hasValue", target=Call(function="_?._", arguments=(operand, Const(value=field)))):
            chain = chains.get(id(operand))
            if chain is None:
                return _show_member(operand, str(field), outcome)
            return frozenset([(*chain.path, chain.field)]) if outcome and chain.field else frozenset()
        case Call(function="hasValue", target=Call(function="_[?_]", arguments=(operand, Const(value=name)))):
            chain = chains.get(id(operand))
            is_name = outcome and chain is not None and chain.field is None and isinstance(name, str | int)
            return frozenset([(*chain.path, name)]) if chain is not None and is_name else frozenset()
        case Call(function="@in", arguments=(Const(value=str() as name), operand)):
            chain = chains.get(id(operand))
            if chain is None:
                return _show_member(operand, name, outcome)
            return frozenset([(*chain.path, name)]) if outcome and chain.field is None else frozenset()
        case Call(function="!_", arguments=(operand,)):
            return _collect_paths(operand, chains, not outcome)
        case Call(function="_&&_" | "_||_", arguments=(left, right)):
            one, other = _collect_paths(left, chains, outcome), _collect_paths(right, chains, outcome)
            return one | other if outcome == (tree.function == "_&&_") else one & other
        case Call(function="_==_" | "_!=_", arguments=(left, right)) if outcome == (tree.function == "_==_"):
            return _collect_status_guards(left, right, chains) or _collect_status_guards(right, left, chains)
        case Comprehension(step=Call(function="_&&_", arguments=(_, condition))) if outcome:  # `all`
            guards = collect_guards(condition, chains, True)
            list_spelling = spell_tree(tree.range)
            return frozenset((None, "all", list_spelling, *path[1:]) for path in guards if path[0] == tree.variable)
        case Call(function="_==_" | "_!=_", arguments=(left, Const(value=None))):
            chain = chains.get(id(left))
            return (
                frozenset([chain.path]) if chain is not None and outcome == (tree.function == "_!=_") else frozenset()
            )
        case _:
            return frozenset()


def _show_member(tree: Tree, member: Segment, outcome: bool) -> Guards:
    """The member as a guard, by a test for it, where the tree is a path inside of an item of a loop; else nothing."""
    path = parse_static_path(tree) if outcome else None
    return frozenset() if path is None else frozenset([(path[0].name, *path[1], member)])


def collect_kept(over: Tree, variable: str, chains: Mapping[int, Chain]) -> Guards:
    """What the filters of a list show of each of its items, as `variable`."""
    match over:
        case Comprehension(step=Call(arguments=(condition, *_))) if is_filter(over):
            guards = collect_guards(condition, chains, True)
            mine: Guards = frozenset((variable, *path[1:]) for path in guards if path[0] == over.variable)
            return mine | collect_kept(over.range, variable, chains)
        case Call(function=function, target=Comprehension() as pairs) if function == SORTED:
            return collect_kept(pairs.range, variable, chains)
        case _:
            return frozenset()


def collect_shown(over: Tree, variable: str, guards: Guards) -> Guards:
    """What an `all` of a list has shown of each of its items, as `variable`."""
    shows = [each for each in guards if each[:2] == (None, "all")]
    spelling = spell_tree(over) if shows else ""
    return frozenset((variable, *each[3:]) for each in shows if each[2] == spelling)


def _collect_items(tree: Tree, chains: Mapping[int, Chain], outcome: bool) -> Guards:
    """The items that a list certainly has, by a comparison of its size, or with `[]`, and by `exists`."""
    match tree:
        case Comprehension(step=Call(function="_||_"), range=over) if outcome:
            return list_items(over, chains, 1)
        case Comprehension(result=Call(function="_==_"), range=over) if outcome:  # `exists_one`
            return list_items(over, chains, 1)
        case Call(function="_==_" | "_!=_", arguments=(over, Listing(elements=()))):
            return list_items(over, chains, 1) if outcome == (tree.function == "_!=_") else frozenset()
        case Call(function=relation, arguments=(Const(), Call(function="size"))) if relation in TURNED:
            one, other = tree.arguments
            return _collect_items(Call(tree.offset, TURNED[relation], None, (other, one)), chains, outcome)
        case Call(function=relation, arguments=(Call(function="size", parts=(over,)), Const(value=int() as number))):
            least = _find_least(relation if outcome else DENIED.get(relation, ""), number)
            return list_items(over, chains, least)
    return frozenset()


def _is_later_round(tree: Tree, outcome: bool) -> bool:
    """Whether a comparison of `index` shows that a round of the loop has ended already."""
    match tree:
        case Call(function=relation, arguments=(Const() as number, Name() as name)) if relation in TURNED:
            return _is_later_round(Call(tree.offset, TURNED[relation], None, (name, number)), outcome)
        case Call(function=relation, arguments=(Name(name="index"), Const(value=int() as number))):
            return _find_least(relation if outcome else DENIED.get(relation, ""), number) > 0
    return False


def _find_least(relation: str, number: int) -> int:
    """The smallest size that has this relation to the number."""
    if relation == "_!=_":
        return 1 if number == 0 else 0
    return {"_>_": number + 1, "_>=_": number, "_==_": number}.get(relation, 0)


def list_items(over: Tree, chains: Mapping[int, Chain], count: int) -> Guards:
    chain = chains.get(id(over))
    if chain is None or chain.field is not None:
        return frozenset([(None, "items", spell_tree(over), count)]) if chain is None and count else frozenset()
    return frozenset((*chain.path, index) for index in range(min(count, _ITEMS_MAX)))


def spell_tree(tree: Tree, items: tuple[str, ...] = ()) -> str:
    """The tree in one spelling, wherever it stands, and whatever the loops in it call their `items`."""
    own = {name: getattr(tree, name) for name in ("value", "name", "function") if hasattr(tree, name)}
    if isinstance(tree, Name) and tree.name in items:
        own["name"] = f"item {items.index(tree.name)}"
    inner = (tree.variable, *items) if isinstance(tree, Comprehension) else items
    parts = (spell_tree(part, items if part is getattr(tree, "range", None) else inner) for part in tree.parts)
    return f"{type(tree).__name__}{own}({','.join(parts)})"


_ITEMS_MAX: Final = 20  # of one list, that a condition shows
_SHOWN_BY_STATUS: Final = {"finished": ("output", "usage", "parts"), "failed": ("error",)}


def _collect_status_guards(one: Tree, other: Tree, chains: Mapping[int, Chain]) -> Guards:
    chain = chains.get(id(one))
    if chain is None or not isinstance(other, Const) or not isinstance(other.value, str):
        return frozenset()
    if chain.path[0] != "steps" or chain.path[2:] != ("status",):
        return frozenset()
    return frozenset((*chain.path[:2], member) for member in _SHOWN_BY_STATUS.get(other.value, ()))


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


def lasting(names: Names, guards: Guards) -> Guards:
    """The guards that still hold behind further steps: not those of the state, which these may change."""
    lets = {root for root, schema in names.types.roots.items() if INFERRED in str(schema)}
    roots = lets | {None, "input", "steps"}
    return frozenset(each for each in guards - {LATER_ROUND} if each[0] in roots)


def with_facts(names: Names, guards: Guards) -> Names:
    """The same place, where `guards` hold as well; beyond a number of them it stays as it is."""
    more = lasting(names, guards)
    if not more or len(names.guarded) + len(more) > FACTS_MAX:
        return names
    return names.knowing(more)


def is_form_known(text: Tree, guards: Guards) -> bool:
    """Whether conditions tell what a text looks like: that it matches a pattern, say, or is one of some."""
    spelled = _render_condition(text)
    calls = tuple(f"{word}({spelled}," for word in ("matches", "startsWith", "endsWith", "@in"))
    return spelled is not None and any(
        each[4] and ((each[2] == spelled and each[3] != "''") if each[1] == "equal" else str(each[2]).startswith(calls))
        for each in guards
        if each[0] is None and len(each) == 5
    )


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
