"""The functions of the engine can be read one by one: few of them need each other in a circle.

A knot is a strongly connected part of the graph of functions, in which an edge is the name of a function in the body of
another one (so a table of functions that a body names counts, too). What goes round by data is no knot: a consequence
that a rule returns, an event that is folded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hai_flow.engine

LARGEST = 5
ROOT = Path(hai_flow.engine.__file__).parent
PACKAGE = "hai_flow.engine"
FOUND_BY_THEMSELVES = (f"{PACKAGE}.blocks.BLOCKS", f"{PACKAGE}.verbs.VERBS")
DRAFT = f"{PACKAGE}.draft"
Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((PACKAGE, *(part for part in parts if part != "__init__")))


def graph_of(modules: dict[str, ast.Module]) -> Graph:
    """function -> the functions, and the tables, that it names; module.Class.method, module.function, module.TABLE."""
    own = {name: dict(definitions(tree)) for name, tree in modules.items()}
    graph: Graph = {}
    for module, tree in modules.items():
        names = imported(module, tree, own)
        names |= {local: f"{module}.{local}" for local in own[module]}
        for local, node in own[module].items():
            graph[f"{module}.{local}"] = set(uses(node, names, methods_known(module, own), local))
    for table in FOUND_BY_THEMSELVES:  # the tables of a package's modules stand in that of the package
        package, _, name = table.rpartition(".")
        graph.get(table, set()).update(each for each in graph if each.startswith(package + ".") and each.endswith(name))
    return {node: {each for each in targets if each in graph} for node, targets in graph.items()}


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield f"{node.name}.{method.name}", method
        elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id, node.value


def imported(module: str, tree: ast.Module, own: dict[str, dict[str, ast.AST]]) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(PACKAGE):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def methods_known(module: str, own: dict[str, dict[str, ast.AST]]) -> dict[str, list[str]]:
    """The methods that an object in the module may have: of the classes there, and of `Draft`. name -> full names."""
    known: dict[str, list[str]] = {}
    for place in {module, DRAFT}:
        for name in own.get(place, ()):
            if "." in name and (place == module or name.startswith("Draft.")):
                known.setdefault(name.partition(".")[2], []).append(f"{place}.{name}")
    return known


def uses(node: ast.AST, names: dict[str, str], methods: dict[str, list[str]], local: str) -> Iterator[str]:
    """Names, attributes of modules, and methods: of `self`, of `draft`, and of other objects but not of modules."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in names:
            yield names[each.id]
        elif isinstance(each, ast.Attribute):
            value = each.value.id if isinstance(each.value, ast.Name) else ""
            found = methods.get(each.attr, [])
            if value in names:
                yield f"{names[value]}.{each.attr}"
            elif value == "self":
                yield from (name for name in found if f".{local.partition('.')[0]}." in name)
            elif value == "draft":
                yield from (name for name in found if name.startswith(f"{DRAFT}.Draft."))
            elif value != "paths" and not isinstance(each.value, ast.Call | ast.Attribute):
                yield from (name for name in found if not name.startswith(DRAFT))
            elif isinstance(each.value, ast.Call) and isinstance(each.value.func, ast.Name):
                made = names.get(each.value.func.id, "")
                yield f"{made}.{each.attr}"


def knots(graph: Graph) -> list[list[str]]:
    """The strongly connected parts with more than one function (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in graph[node]:
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            place = stack.index(node)
            part, stack[place:] = stack[place:], []
            if len(part) > 1:
                found.append(sorted(part))

    for node in graph:
        if node not in order:
            visit(node)
    return found


@pytest.mark.slow
def test_no_cycle_of_engine_functions_is_larger_than_a_reader_can_hold() -> None:
    modules = {module_name(path): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    graph = graph_of(modules)
    assert f"{PACKAGE}.completion.fail.fail" in graph[f"{PACKAGE}.completion.loop._RULES"]
    assert f"{PACKAGE}.blocks.repeat.BLOCKS" in graph[f"{PACKAGE}.blocks.BLOCKS"]
    assert f"{PACKAGE}.verbs.wait.begin" in graph[f"{PACKAGE}.verbs.wait.VERBS"]
    assert [knot for knot in knots(graph) if len(knot) > LARGEST] == []


def test_a_knot_is_found_across_modules_methods_and_tables() -> None:
    one = ast.parse("from hai_flow.engine import two\ndef f():\n    two.g()\ndef alone(): pass\n")
    two = ast.parse("from hai_flow.engine.three import C\ndef g():\n    C().run()\n")
    three = ast.parse(
        "from hai_flow.engine.one import f\nTABLE = {1: f}\n"
        "class C:\n    def run(self):\n        self.step()\n    def step(self):\n        TABLE[1]()\n"
    )
    found = knots(graph_of({f"{PACKAGE}.{name}": tree for name, tree in zip("123", (one, two, three), strict=True)}))
    assert found == []  # the modules are called otherwise than they are imported
    names = {f"{PACKAGE}.one": one, f"{PACKAGE}.two": two, f"{PACKAGE}.three": three}
    assert [[each.removeprefix(PACKAGE + ".") for each in knot] for knot in knots(graph_of(names))] == [
        ["one.f", "three.C.run", "three.C.step", "three.TABLE", "two.g"]
    ]
