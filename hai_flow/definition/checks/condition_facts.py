"""What conditions show: the paths that are there where one is true, or false, and facts.

A fact is a condition in one spelling, and whether it was true; by facts a step is known to have run. It stands among
the guards of a place (`Guards`), where its first element, None, tells it from a path. Facts are kept only of values
that stay as they are once they are there: the input, the outputs of steps that have ended, the variable of the loop
around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hai_flow.definition.checks.constant_conditions import DENIED, TURNED
from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Listing, Mapped, Name, Select, Tree
from hai_flow.definition.expressions.ast_paths import Chain, Segment, parse_static_path, spell
from hai_flow.definition.expressions.cel_macros import SORTED
from hai_flow.definition.expressions.evaluation import CompiledExpression, Guards
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import ROOTS

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
    return _collect_paths(tree, chains, outcome) | _collect_facts(tree, outcome) | _collect_rules(tree, chains, outcome)


def _collect_rules(tree: Tree, chains: Mapping[int, Chain], outcome: bool) -> Guards:
    """The rules that hold where `tree` has this outcome: of two conditions of which one has it, the other one has it
    where the first has not. A rule has a premise and a conclusion, of values that stay as they are."""
    match tree:
        case Call(function="!_", arguments=(operand,)):
            return _collect_rules(operand, chains, not outcome)
        case Call(function="_&&_" | "_||_", arguments=(left, right)) if outcome != (tree.function == "_&&_"):
            rules: set[tuple[object, ...]] = set()
            for one, other in ((left, right), (right, left)):
                guards = _collect_paths(other, chains, outcome) | _collect_facts(other, outcome)
                conclusion = frozenset(each for each in guards if each[0] in ("input", "steps") or _is_fact(each))
                premise = sufficient(one, not outcome)
                if premise is not None and conclusion:
                    rules.add((None, "rule", premise, conclusion))
            return frozenset(rules)
        case _:
            return frozenset()


def _is_fact(guard: tuple[object, ...]) -> bool:
    return guard[0] is None and guard[1] in ("equal", "true")


def conclude(guards: Guards) -> Guards:
    """The guards, with the conclusions of the rules among them whose premise holds."""
    rules = [each for each in guards if each[:2] == (None, "rule")]
    for _ in rules:
        more = guards.union(*(rule[3] for rule in rules if entails(guards, rule[2])))
        if more == guards:
            break
        guards = more
    return guards


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
            return fact(tree, outcome) or _mark_tested(tree)


def _mark_tested(tree: Tree) -> Guards:
    """That a condition over values that may change, or with a loop in it, has tested what it reads: all that it
    shows."""
    return frozenset([(None, "tested", _render_condition(tree, lasting=False))])


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
        case Call(function="_==_" | "_!=_", arguments=(Const() as left, right)) if not isinstance(right, Const):
            return _collect_paths(Call(tree.offset, tree.function, None, (right, left)), chains, outcome)
        case Call(function="@in", arguments=(read, Listing(elements=values))) if values:
            pairs = [Call(tree.offset, "_==_", None, (read, value)) for value in values]
            guards = [_collect_paths(pair, chains, outcome) for pair in pairs]
            return frozenset.intersection(*guards) if outcome else frozenset().union(*guards)
        case Call(function="_==_" | "_!=_", arguments=(left, Const(value=str() as word))):
            return _collect_status_guards(_find_path(left, chains), word, outcome == (tree.function == "_==_"))
        case Comprehension(step=Call(function="_&&_" | "_||_", arguments=(_, condition))):  # `all` and `exists`
            is_all = tree.step.function == "_&&_"
            return _collect_of_each(tree, condition, chains, is_all) if outcome == is_all else frozenset()
        case Call(function="_==_" | "_!=_", arguments=(left, Const(value=None))):
            path, is_null = _find_path(left, chains), outcome == (tree.function == "_==_")
            other = _BESIDE.get(str(path[-1])) if _is_of_item(path) else None
            path = path if not is_null else (*path[:-1], other) if other else ()
            return frozenset([path] if path else [])
        case _:
            return frozenset()


def _find_path(tree: Tree, chains: Mapping[int, Chain]) -> tuple[Segment, ...]:
    """The path that the tree is, into the data or into an item of a loop; () if it is none."""
    chain, path = chains.get(id(tree)), parse_static_path(tree)
    return chain.path if chain is not None else () if path is None else (path[0].name, *path[1])


def _collect_of_each(loop: Comprehension, condition: Tree, chains: Mapping[int, Chain], outcome: bool) -> Guards:
    """The guards of each item of the loop's list, where `condition` has this outcome for each."""
    guards, spelling = collect_guards(condition, chains, outcome), spell_tree(loop.range)
    return frozenset((None, "all", spelling, *path[1:]) for path in guards if path[0] == loop.variable)


def _collect_of_none(filtered: Tree, chains: Mapping[int, Chain]) -> Guards:
    """The guards of each item of a list where none is left by a filter."""
    match filtered:
        case Comprehension(step=Call(arguments=(condition, *_))) if is_filter(filtered):
            return _collect_of_each(filtered, condition, chains, False)
    return frozenset()


def _show_member(tree: Tree, member: Segment, outcome: bool) -> Guards:
    """The member as a guard, by a test for it, where the tree is a path inside of an item of a loop; else nothing."""
    path = parse_static_path(tree) if outcome else None
    return frozenset() if path is None else frozenset([(path[0].name, *path[1], member)])


def is_filter(loop: Comprehension) -> bool:
    """Whether the loop gives some of the items of its range: `filter`, but no `map`."""
    match loop.step:
        case Call(
            function="_?_:_", arguments=(_, Call(function="_+_", arguments=(_, Listing(elements=(Name() as kept,)))), _)
        ):
            return kept.name == loop.variable
        case _:
            return False


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
            has_items = outcome == (tree.function == "_!=_")
            return list_items(over, chains, 1) if has_items else _collect_of_none(over, chains)
        case Call(function=relation, arguments=(Const(), Call(function="size"))) if relation in TURNED:
            one, other = tree.arguments
            return _collect_items(Call(tree.offset, TURNED[relation], None, (other, one)), chains, outcome)
        case Call(function=relation, arguments=(Call(function="size", parts=(over,)), Const(value=int() as number))):
            relation = relation if outcome else DENIED.get(relation, "")
            if (relation, number) in (("_==_", 0), ("_<=_", 0), ("_<_", 1)):
                return _collect_of_none(over, chains)
            return list_items(over, chains, _find_least(relation, number))
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
_BESIDE: Final = {"output": "error", "error": "output"}
"""Of an item that a `for_each` gives one is null where the other is not."""


def _collect_status_guards(path: tuple[Segment, ...], word: str, is_equal: bool) -> Guards:
    """The members that are there where the status of a step, or of an item that a `for_each` gives, is this word, or
    another."""
    is_of_step = path[:1] == ("steps",) and len(path) == 3
    if path[-1:] != ("status",) or not (_is_of_item(path) or (is_of_step and is_equal)):
        return frozenset()
    members = _SHOWN_BY_STATUS.get(word, ()) if is_equal else _SHOWN_BY_OTHER_STATUS.get(word, ())
    return frozenset((*path[:-1], member) for member in members)


def _is_of_item(path: tuple[Segment, ...]) -> bool:
    """Whether the path may lead to a member of an item that a `for_each` gives: not one that the data of others has."""
    return path[:1] not in ((), ("input",), ("state",)) and (path[0] != "steps" or isinstance(path[-2], int))


_SHOWN_BY_OTHER_STATUS: Final = {"finished": ("error",), "failed": ("output",)}


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
    roots = {*names.types.roots, None, "input", "steps"}
    return frozenset(each for each in guards - {LATER_ROUND} if each[0] in roots)


def where_true(names: Names, condition: CompiledExpression | None) -> Names:
    """The same place, where `condition` is true, with all that follows from it."""
    names = names.with_guards(condition)
    return names.knowing(conclude(names.guarded))


def with_facts(names: Names, guards: Guards) -> Names:
    """The same place, where `guards` hold as well; beyond a number of them it stays as it is."""
    more = lasting(names, guards) - names.guarded
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


def _render_condition(tree: Tree, *, lasting: bool = True) -> str | None:
    """The condition in one spelling. With `lasting` None where it reads a value that may change, or has a loop."""
    match tree:
        case Name():
            return None if lasting and tree.name in _CHANGING else tree.name
        case Call(function="_[_]", arguments=(holder, Const(value=str() | int() as key))):
            operand = _render_condition(holder, lasting=lasting)
            return None if operand is None else spell((operand, key))
        case Const():
            return repr(tree.value)
        case Select():
            operand = _render_condition(tree.operand, lasting=lasting)
            return None if operand is None else f"{operand}.{tree.name}{'?' if tree.test else ''}"
        case Call():
            return _join_key(tree.function, tree.parts, lasting=lasting)
        case Listing():
            return _join_key("[]", tree.elements, lasting=lasting)
        case Mapped():
            return _join_key("{}", tree.parts, lasting=lasting)
        case Comprehension() if not lasting:
            return _join_key("loop", tree.parts, lasting=False)
    return None


def _join_key(word: str, parts: Iterable[Tree], *, lasting: bool) -> str | None:
    spelled = [_render_condition(part, lasting=lasting) for part in parts]
    return None if None in spelled else f"{word}({','.join(map(str, spelled))})"
