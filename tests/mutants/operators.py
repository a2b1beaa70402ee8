"""Bugs made by rule, in functions that compute: each rule is a mistake that somebody might make.

    a condition      holds always, or never
    and, or          one of the operands is left out
    <  <=  >  >=     the bound belongs to the other side
    ==  is  in       the opposite
    +  -             the other one
    a number         one more
    min max any all  the other one
    a statement      a call, a change in place, `continue`, `break` or `raise` is left out

The text is changed where the syntax tree says that something stands; the rest of the file stays as it is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.mutants.mutant import ROOT, Mutant

Node: TypeAlias = ast.expr | ast.stmt
Change: TypeAlias = tuple[Node, str, str]  # what is replaced, by which text, and in words

_COMPARED: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_EXCHANGED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Target:
    """Functions of `file` (all, if none is named) that `tests` should know thoroughly. `without`: those left out."""

    file: str
    tests: tuple[str, ...]
    functions: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def mutants_of(target: Target) -> Iterator[Mutant]:
    """Every mutant of the target, named after its function and what is changed."""
    source = (ROOT / target.file).read_text()
    text = _Text(source)
    found: Counter[str] = Counter()
    for name, function in _functions(ast.parse(source)):
        chosen = name in target.functions if target.functions else name not in target.without
        if not chosen:
            continue
        for node, new, words in _changes(function, text):
            title = f"{target.file.removeprefix('hai_flow/')} {name}: {words}"
            found[title] += 1
            number = found[title]
            yield _Placed(
                name=title if number == 1 else f"{title} ({number})",
                file=target.file,
                edits=(),
                tests=target.tests,
                start=text.place(node)[0],
                end=text.place(node)[1],
                new=new,
                function=text.place(function),
            )


@dataclass(frozen=True, slots=True)
class _Placed(Mutant):
    """A mutant that knows where its text stands. It was made from today's source, so it fits it."""

    start: int = 0
    end: int = 0
    new: str = ""
    function: tuple[int, int] = (0, 0)

    def applied(self, source: str) -> str:
        before, behind = source[: self.start] + self.new, source[self.end :]
        first, last = self.function
        indented = " " * (first - source.rfind("\n", 0, first) - 1)
        # Whole files take a hundred times as long to parse, and there are a thousand of these.
        ast.parse(("if 1:\n" if indented else "") + indented + before[first:] + behind[: last - self.end])
        return before + behind


class _Text:
    """A source and where the nodes of its tree stand in it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def place(self, node: Node) -> tuple[int, int]:
        """The first character of the node and the one behind its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def of(self, node: Node) -> str:
        start, end = self.place(node)
        return self.source[start:end]

    def short(self, node: Node) -> str:
        """The text of the node on one line, cut where it is long."""
        words = " ".join(self.of(node).split())
        return words if len(words) <= 70 else words[:67] + "..."

    def _offset(self, line: int, column: int) -> int:
        """`ast` counts bytes of UTF-8 within a line."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.Module) -> Iterator[tuple[str, _Function]]:
    for node in tree.body:
        if isinstance(node, _Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, _Function):
                    yield f"{node.name}.{each.name}", each


def _changes(function: _Function, text: _Text) -> Iterator[Change]:
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    left_out: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Assert):  # says what is so anyway
            left_out.update(ast.walk(node))
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and _is_yes_or_no(node.test):
            left_out.add(node.test)  # its opposite is found where always and never are
    for node in nodes:
        if node not in left_out:
            yield from _changed(node, text)


def _is_yes_or_no(node: ast.expr) -> bool:
    """Whether it is a comparison without a bound."""
    return isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _changed(node: ast.AST, text: _Text) -> Iterator[Change]:
    match node:
        case ast.If() | ast.IfExp():
            yield node.test, "True", f"always `if {text.short(node.test)}`"
            yield node.test, "False", f"never `if {text.short(node.test)}`"
        case ast.While():
            yield node.test, "False", f"never `while {text.short(node.test)}`"
        case ast.comprehension():
            for test in node.ifs:
                yield test, "True", f"always `if {text.short(test)}`"
        case ast.BoolOp():
            for left_out in node.values:
                kept = [text.of(each) for each in node.values if each is not left_out]
                word = " and " if isinstance(node.op, ast.And) else " or "
                yield node, f"({word.join(kept)})", f"without `{text.short(left_out)}` in `{text.short(node)}`"
        case ast.Compare(ops=[operator], left=left, comparators=[right]):
            new = f"{text.of(left)} {_COMPARED[type(operator)]} {text.of(right)}"
            yield node, f"({new})", f"`{text.short(node)}` is `{' '.join(new.split())[:70]}`"
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not _is_text(node):
            other = "-" if isinstance(node.op, ast.Add) else "+"
            new = f"{text.of(node.left)} {other} {text.of(node.right)}"
            yield node, f"({new})", f"`{text.short(node)}` is `{' '.join(new.split())[:70]}`"
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield node, str(number + 1), f"{number} is {number + 1}"
        case ast.Call(func=ast.Name(id=name)) if name in _EXCHANGED:
            yield node.func, _EXCHANGED[name], f"{_EXCHANGED[name]} for `{text.short(node)}`"
        case ast.Continue() | ast.Break() | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield node, "pass", f"without `{text.short(node)}`"
        case ast.Expr(value=ast.Call()):
            yield node, "pass", f"without `{text.short(node)}`"
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield node, "pass", f"without `{text.short(node)}`"


def _is_text(node: ast.BinOp) -> bool:
    """Whether strings are put together: minus would be an error of types, and no mistake that anybody makes."""
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )
