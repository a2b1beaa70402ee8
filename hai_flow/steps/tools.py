"""Python functions as tools: `@tool` registers one, `python: pkg.mod` and `python: pkg.mod:fn` find them by import.

A tool is an `async def` (runs on the loop), a `def` (runs in a thread), or an async generator (streams: yielded
strings are message chunks, its last other value is the output). Its parameters are the call's `with`; one annotated
`Context` receives what the runtime knows about the attempt.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_type_hints, overload

from hai_flow.errors import StepError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Context:
    """What a tool may ask for about the attempt that runs it.

    `idempotency_key` is the same for every attempt of the step: hand it to services that can recognise a repetition.
    """

    run_id: str
    path: str
    attempt: int
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A callable that workflows may call, inspected once."""

    function: Callable[..., Any]
    kind: Literal["async", "sync", "stream"]
    context_parameter: str | None
    parameters: tuple[str, ...]  # what a call may give by name, in their order
    required: frozenset[str]
    takes_any: bool  # **keywords

    def argument_fault(self, names: set[str]) -> str | None:
        """A sentence about missing or unknown arguments if a call with these names can't work, else None."""
        missing = sorted(self.required - names)
        if missing:
            return f"missing argument {', '.join(missing)}"
        unknown = [] if self.takes_any else sorted(names.difference(self.parameters))
        if unknown:
            return f"unknown argument {', '.join(unknown)}; it takes {', '.join(self.parameters) or 'none'}"
        return None


_registered: dict[str, PythonFunction] = {}


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(name: str, /) -> Callable[[Function], Function]: ...
def tool(function_or_name: Any, /) -> Any:
    """Register a function under its own name (`@tool`) or another (`@tool("shop.refund")`).

    Raises ValueError if another function has that name already.
    """
    if isinstance(function_or_name, str):
        return lambda function: _register(function_or_name, function)
    return _register(function_or_name.__name__, function_or_name)


def _register(name: str, function: Function) -> Function:
    known = _registered.get(name)
    if known is not None and known.function.__qualname__ != function.__qualname__:
        raise ValueError(f"the tool {name!r} is registered already, by {known.function.__qualname__}")
    _registered[name] = inspect_function(function)
    find_function.cache_clear()
    return function


def inspect_function(function: Callable[..., Any]) -> PythonFunction:
    """`function` as a tool. Raises ValueError for one whose parameters can't be given by name."""
    signature = inspect.signature(function)
    if any(p.kind is p.POSITIONAL_ONLY for p in signature.parameters.values()):
        raise ValueError(f"{function.__qualname__} has positional-only parameters; a call gives arguments by name")
    kind: Literal["async", "sync", "stream"] = "sync"
    if inspect.isasyncgenfunction(function):
        kind = "stream"
    elif inspect.iscoroutinefunction(function):
        kind = "async"
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):  # annotations that exist for a type checker only
        hints = {}
    context = next((name for name, hint in hints.items() if hint is Context and name != "return"), None)
    given = [parameter for parameter in signature.parameters.values() if parameter.name != context]
    named = [p for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return PythonFunction(
        function,
        kind,
        context,
        parameters=tuple(p.name for p in named),
        required=frozenset(p.name for p in named if p.default is p.empty),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in given),
    )


def full_name(target: str, function: str, name: str) -> str:
    """What people call the function that `find_function` finds: `pkg.mod:fn`, or the name that it is registered by."""
    if not target:
        return f"{name}.{function}" if function else name
    module, _, attribute = target.partition(":")
    return f"{module}:{attribute or function or name}"


@lru_cache(maxsize=4096)
def find_function(target: str, function: str, name: str) -> PythonFunction:
    """The function of a call. `target` is the tool's `python:` value, `function` the part after the dot of
    `call: tool.fn`, `name` the tool's name. Raises StepError(tool.unavailable) saying what was looked for."""
    if not target:
        wanted = full_name(target, function, name)
        registered = _registered.get(wanted)
        if registered is None:
            raise StepError(
                f"expected a Python function registered with @tool as {wanted!r}, found none; "
                f"import its module before the worker starts, or write python: pkg.mod",
                code="tool.unavailable",
            )
        return registered
    module_name, _, attribute = target.partition(":")
    attribute = attribute or function or name
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # an import runs whatever the module says
        fault = f"{type(error).__name__}: {error}"
        raise StepError(f"can't import {module_name}: {fault}", code="tool.unavailable") from error
    found = getattr(module, attribute, None)
    if attribute.startswith("_") or not callable(found):
        raise StepError(f"expected a function {attribute!r} in {module_name}, found none", code="tool.unavailable")
    try:
        return inspect_function(found)
    except (TypeError, ValueError) as error:
        raise StepError(f"{attribute!r} in {module_name} can't be a tool: {error}", code="tool.unavailable") from error
