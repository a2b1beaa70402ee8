"""Python functions as tools: their registration by `@tool`, and the arguments that a call may give.

A tool is an `async def` (runs on the loop), a `def` (runs in a thread), or a generator of either kind (streams: yielded
strings are message chunks, its last other value is the output). Its parameters are the call's `with`; one annotated
`Context` receives the runtime's facts about the attempt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_type_hints, overload

from hai_flow.steps.context import Context

if TYPE_CHECKING:
    from hai_flow.steps.python.signatures import Signature

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class PythonFunction:
    """A callable that workflows may call, inspected once."""

    function: Callable[..., Any]
    kind: Literal["async", "sync", "stream", "sync_stream"]
    context_parameter: str | None
    parameters: tuple[str, ...]  # those that a call may give by name, in their order
    required: frozenset[str]
    takes_any: bool  # **keywords
    given: tuple[inspect.Parameter, ...] = ()  # all but the context's
    source: str | None = None  # `hash_source` of it, as it was when it was read

    @cached_property
    def signature(self) -> Signature:
        """Its arguments and its result, by its annotations. Made when it is first wanted."""
        from hai_flow.steps.python.signatures import Signature

        return Signature(self.function, self.given, streams=self.kind in ("stream", "sync_stream"))

    @cached_property
    def wants_host(self) -> bool:
        """Whether something has to stand behind its attempts: its context, or the stream of a thread."""
        return self.context_parameter is not None or self.kind == "sync_stream"

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.parameters)

    @property
    def description(self) -> str:
        return inspect.cleandoc(inspect.unwrap(unwrap_function(self.function)).__doc__ or "").strip()

    def argument_fault(self, names: Set[str]) -> str | None:
        """A sentence about missing or unknown arguments if a call with these names can't work, else None."""
        if self.required <= names and (self.takes_any or names <= self._names):
            return None
        faults: list[str] = []
        if missing := sorted(self.required - names):
            faults.append(f"missing argument {', '.join(missing)}")
        if not self.takes_any and (unknown := sorted(names - self._names)):  # a misspelt one is missing as well
            faults.append(f"unknown argument {', '.join(unknown)}; it takes {', '.join(self.parameters) or 'none'}")
        return ", ".join(faults)


class _Registered:
    """The functions that `@tool` has registered in this process, by the registering module and the given name."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], PythonFunction] = {}
        self.changes = 0  # grows with each registration

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Raises ValueError if the module has registered another function under this name."""
        key = function.__module__, name
        existing = self._functions.get(key)
        if existing is not None and existing.function.__qualname__ != function.__qualname__:
            raise ValueError(f"the tool {name!r} is registered already, by {existing.function.__qualname__}")
        self._functions[key] = read_function(function)
        self.changes += 1

    def modules(self) -> set[str]:
        return {module for module, _ in self._functions}

    def forget(self, modules: Collection[str]) -> dict[tuple[str, str], PythonFunction]:
        """Remove the functions that `modules` have registered. Returns them, for `restore`."""
        gone = {key: each_function for key, each_function in self._functions.items() if key[0] in modules}
        self._functions = {key: each_function for key, each_function in self._functions.items() if key not in gone}
        self.changes += 1
        return gone

    def restore(self, forgotten: Mapping[tuple[str, str], PythonFunction]) -> None:
        """Register the functions that `forget` returned again."""
        self._functions |= forgotten
        self.changes += 1

    def named(self, name: str) -> dict[str, PythonFunction]:
        """The functions of this name, by module."""
        return {module: each_function for (module, each), each_function in self._functions.items() if each == name}

    def found(self, function: object) -> PythonFunction | None:
        """The registration of this very function."""
        return next((each for each in self._functions.values() if each.function is function), None)

    def of(self, module: str) -> dict[str, PythonFunction]:
        """The functions of a module, by name."""
        return {name: each_function for (each, name), each_function in self._functions.items() if each == module}


registered: Final = _Registered()


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(name: str, /) -> Callable[[Function], Function]: ...
def tool(function_or_name: Any, /) -> Any:
    """Let workflows call a function under its own name (`@tool`) or another (`@tool("shop.refund")`).

    It counts where the deployment takes tools from the function's module (`Toolbox`). Raises ValueError if another
    function of the module has that name already."""
    if isinstance(function_or_name, str):
        return lambda function: _register(function_or_name, function)
    return _register(function_or_name.__name__, function_or_name)


def _register(name: str, function: Function) -> Function:
    registered.add(name, function)
    return function


def read_function(function: Callable[..., Any]) -> PythonFunction:
    """`function` as a tool. Raises ValueError for one whose parameters can't be given by name."""
    signature = inspect.signature(function)
    if any(p.kind is p.POSITIONAL_ONLY for p in signature.parameters.values()):
        raise ValueError(f"{function.__qualname__} has positional-only parameters; a call gives arguments by name")
    kind: Literal["async", "sync", "stream", "sync_stream"] = "sync"
    if inspect.isasyncgenfunction(function):
        kind = "stream"
    elif inspect.isgeneratorfunction(function):
        kind = "sync_stream"
    elif inspect.iscoroutinefunction(function):
        kind = "async"
    try:
        hints = get_type_hints(unwrap_function(function))
    except (NameError, TypeError):  # annotations that exist for a type checker only
        hints = {}
    context = next((name for name, hint in hints.items() if hint is Context and name != "return"), None)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != context]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return PythonFunction(
        function,
        kind,
        context,
        parameters=tuple(p.name for p in named),
        required=frozenset(p.name for p in named if p.default is p.empty),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
        given=tuple(parameters),
        source=hash_source(function),
    )


def hash_source(function: Callable[..., Any]) -> str | None:
    """The digest (hex) of the function's name and of the whole file that defines it; None where no file does. What that
    file imports is no part of it."""
    original = inspect.unwrap(unwrap_function(function))
    code = getattr(original, "__code__", None)
    content = None if code is None else _hash_file(code.co_filename)
    if content is None:
        return None
    return sha256(f"{original.__module__}\0{original.__qualname__}\0{content}".encode()).hexdigest()


def _hash_file(name: str) -> str | None:
    try:
        return sha256(Path(name).read_bytes()).hexdigest()
    except OSError:
        return None


def unwrap_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of which a partial gives some arguments."""
    while isinstance(function, partial):
        function = function.func
    return function


def format_name(target: str, function: str, name: str) -> str:
    """The name of a call's function for people: `pkg.mod:fn`, or the name that it is registered by."""
    if not target:
        return f"{name}.{function}" if function else name
    module, _, attribute = target.partition(":")
    return f"{module}:{attribute or function or name}"
