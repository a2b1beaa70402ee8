"""`sort_by` and `group_by` as CEL can read them.

`rows.sort_by(r, r.name)` is read as the loop `rows.map(r, [r.name, r])` with a function behind it, and so is
`group_by`: their places stay those of the source, and they count as loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hai_flow.definition.expressions import functions
from hai_flow.definition.expressions.ast import Call, Comprehension, Listing, Name, Tree, rebuilt
from hai_flow.definition.expressions.cel_messages import TOKEN
from hai_flow.definition.expressions.expression_error import ExpressionFault, Faults

PAIRED: Final = {"sort_by": functions.sort_pairs, "group_by": functions.group_pairs}
SORTED: Final = "sort_by__"  # behind the loop that a `sort_by` is, in rewritten sources and their trees
GROUPED: Final = "group_by__"


class Macro(msgspec.Struct, frozen=True):
    """`.sort_by(x, body)`: offsets in the source of the name, the bracket that opens, the body, and the one that
    closes."""

    name: str
    begins: int
    opens: int
    variable: str
    body: int
    closes: int


def find_macros(source: str) -> list[Macro]:
    """The calls of `sort_by` and `group_by`, in the order in which they close. Raises `Faults` for one without its two
    arguments."""
    if not any(name in source for name in PAIRED):
        return []
    macros: list[Macro] = []
    around: list[tuple[int, str, int, list[int]]] = []  # of each open bracket: offset, name before it, its, commas
    before: list[tuple[str, int]] = [("", 0), ("", 0)]
    for token in TOKEN.finditer(source):
        word, at = token.group(), token.start()
        if not word.strip() or word.startswith("//"):
            continue
        if word in ("(", "[", "{"):
            name, begins = before[1] if word == "(" and before[0][0] == "." else ("", 0)
            around.append((at, name, begins, []))
        elif word == "," and around:
            around[-1][3].append(at)
        elif word in (")", "]", "}") and around:
            opens, name, begins, commas = around.pop()
            if name in PAIRED and len(commas) != 1:
                message = f"write rows.{name}(r, r.name): a word for each item, and what is asked of it"
                raise Faults([ExpressionFault(begins, "expression.syntax", message)])
            if name in PAIRED:
                macros.append(Macro(name, begins, opens, source[opens + 1 : commas[0]].strip(), commas[0] + 1, at))
        before = [before[1], (word, at)]
    return macros


def as_maps(source: str, macros: Sequence[Macro]) -> str:
    """The source with each of these calls named `map`, in which nothing moves."""
    for macro in macros:
        source = source[: macro.begins] + "map".ljust(len(macro.name)) + source[macro.begins + len(macro.name) :]
    return source


def with_pairs(tree: Tree, names: Mapping[int, str]) -> Tree:
    """The tree in which these loops (by the offset of their bracket) give pairs of result and item, and the function
    that takes the pairs behind them."""

    def change(node: Tree) -> Tree:
        if not isinstance(node, Comprehension) or node.offset not in names:
            return node
        step = node.step
        assert isinstance(step, Call), "a map adds to its accumulator"
        added, listed = step.arguments
        assert isinstance(listed, Listing), "one element at a time"
        pair = Listing(listed.offset, (*listed.elements, Name(node.offset, node.variable)))
        loop = replace(node, step=replace(step, arguments=(added, replace(listed, elements=(pair,)))))
        return Call(node.offset, f"{names[node.offset]}__", loop, ())

    return rebuilt(tree, change)


class Insertion(NamedTuple):
    """A text that comes into a source at an offset; `rank` orders those that come in at the same."""

    offset: int
    rank: int
    text: str


def pairings(macros: Sequence[Macro]) -> Iterator[Insertion]:
    """The texts to insert so that a loop named `map` gives pairs, and the function takes them."""
    for macro in macros:
        yield Insertion(macro.body, 4, "[")
        yield Insertion(macro.closes, 3, f", {macro.variable}]")
        yield Insertion(macro.closes + 1, 1, f".{macro.name}__()")
