"""The functions of a Python module as its source shows them, read without running it.

A call of a workflow is held against them: its function, the names and types of its arguments, and what others read of
its result, as far as annotations show it (`python_annotations`). What only running the module could show is not judged:
`unsure`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard

import msgspec
from msgspec.structs import replace

from hai_flow.definition.schemas.python_annotations import Annotations
from hai_flow.values import Json

CONTEXT: Final = "Context"  # the annotation of the parameter that the runtime fills in

_BINDING: Final = frozenset(("tool", "exec", "eval", "globals", "locals", "vars", "setattr"))


class FunctionSource(msgspec.Struct, frozen=True):
    """A function that a call may name. `parameters` are those that a call gives by name; `types` the JSON Schema of
    each whose annotation shows it, `result` that of what it returns. `unsure`: a decorator may have changed what it
    takes."""

    parameters: tuple[str, ...]
    required: frozenset[str]
    takes_any: bool
    types: Mapping[str, Mapping[str, Json]]
    unsure: bool
    result: Mapping[str, Json] | None = None


class PythonModule(msgspec.Struct, frozen=True):
    """`functions` by the names that a call may use. `registered` are those that `@tool` marks, `others` what else the
    module binds, which may be functions too. `unsure`: it may have functions that its source does not show."""

    functions: Mapping[str, FunctionSource]
    registered: frozenset[str]
    others: frozenset[str]
    unsure: bool

    def filter_registered(self) -> PythonModule:
        """The module as others than its own project see it: only what `@tool` marks may be called."""
        marked = {name: each for name, each in self.functions.items() if name in self.registered}
        return replace(self, functions=marked)

    def find(self, names: Sequence[str]) -> FunctionSource | None:
        """The function that a call means by the first of these names that the module has."""
        return next((self.functions[name] for name in names if name in self.functions), None)

    def is_sure_of(self, names: Sequence[str]) -> bool:
        """Whether it is known that the module has a function of one of these names, and what it takes; or that it has
        none."""
        function = self.find(names)
        return not function.unsure if function is not None else not self.unsure and self.others.isdisjoint(names)


Modules: TypeAlias = Callable[[str, Sequence[str]], PythonModule | str | None]
"""Finds a module by its dotted name, to call a function in it by one of the names. The name "" means all modules in
which functions are registered for everybody. A text is the reason why there certainly is no such module; None: it was
not looked at."""


def unread(name: str, functions: Sequence[str]) -> None:
    """No module is looked at."""


def python_module(source: bytes) -> PythonModule:
    """The functions of a module. Raises SyntaxError, also for text that is no Python at all."""
    try:
        tree = ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from None
    reading = _ModuleReading(Annotations(tree.body))
    reading.read(tree.body)
    functions = reading.functions
    return PythonModule(functions, frozenset(reading.registered), frozenset(reading.others), reading.unsure)


class _ModuleReading:
    """One walk over the statements of a module."""

    def __init__(self, annotations: Annotations) -> None:
        self._annotations = annotations
        self.functions: dict[str, FunctionSource] = {}
        self.registered: set[str] = set()
        self.others: set[str] = set()
        self.unsure = False

    def read(self, statements: Sequence[ast.stmt], *, maybe: bool = False) -> None:
        """`maybe`: these statements may not be executed."""
        for node in statements:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    function, names, marked = _function(node, self._annotations)
                    names = names if marked else [each for each in names if not each.startswith("_")]  # else private
                    function = replace(function, unsure=True) if maybe or node.name in self.functions else function
                    self.functions.update(dict.fromkeys(names, function))
                    self.registered.update(names if marked else ())
                    self.unsure = self.unsure or node.name == "__getattr__"
                case ast.ClassDef(name=name):
                    self.others.add(name)
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    bound = {(each.asname or each.name).partition(".")[0] for each in aliases}
                    self.unsure = self.unsure or "*" in bound
                    self.others |= bound
                case ast.Expr(value=value):
                    self.unsure = self.unsure or any(_is_tool(each) for each in ast.walk(value))
                case ast.If(body=body, orelse=orelse):
                    self.read([*body, *orelse], maybe=True)
                case ast.Try():
                    inside = (*node.body, *node.orelse, *(each for clause in node.handlers for each in clause.body))
                    self.read([*inside, *node.finalbody], maybe=True)
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                    self.others |= {each.id for each in ast.walk(node) if _is_bound(each)}
                    self.unsure = self.unsure or any(_is_tool(each) for each in ast.walk(node))
                case ast.Pass() | ast.Assert() | ast.Delete():
                    pass
                case _:
                    self.unsure = True


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _is_tool(node: ast.AST) -> bool:
    """Whether this names `tool`, which may register a function that is not beside it, or a word of Python by which a
    module gives itself names."""
    return (isinstance(node, ast.Name) and node.id in _BINDING) or (
        isinstance(node, ast.Attribute) and node.attr == "tool"
    )


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, annotations: Annotations
) -> tuple[FunctionSource, list[str], bool]:
    """The function, the names of a call for it, and whether `@tool` marks it."""
    names, marked, others = [node.name], False, 0
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        word = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if word != "tool":
            others += 1
            continue
        marked = True
        explicit_name = decorator.args[0] if isinstance(decorator, ast.Call) and decorator.args else None
        if isinstance(explicit_name, ast.Constant) and isinstance(explicit_name.value, str):
            names = list(dict.fromkeys((node.name, explicit_name.value, explicit_name.value.rpartition(".")[2])))
        elif explicit_name is not None:
            others += 1
    return _read_signature(node, annotations, unsure=others > 0), names, marked


def _read_signature(
    node: ast.FunctionDef | ast.AsyncFunctionDef, annotations: Annotations, *, unsure: bool
) -> FunctionSource:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = {each.arg for each in positional[len(positional) - len(arguments.defaults) :]}
    optional |= {
        each.arg
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    arguments_shown = [each for each in (*positional, *arguments.kwonlyargs) if CONTEXT not in _words(each.annotation)]
    types = {
        each.arg: schema for each in arguments_shown if (schema := annotations.schema(each.annotation)) is not None
    }
    return FunctionSource(
        tuple(each.arg for each in arguments_shown),
        frozenset(each.arg for each in arguments_shown) - optional,
        arguments.kwarg is not None,
        types,
        unsure or bool(arguments.posonlyargs),
        None if _streams(node) else annotations.schema(node.returns),
    )


def _streams(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function yields its result in pieces."""
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))


def _words(annotation: ast.expr | None) -> Iterator[str]:
    """The last names in an annotation, also in one that is written as text."""
    if annotation is None:
        return
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
