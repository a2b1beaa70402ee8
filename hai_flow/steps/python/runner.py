"""Python functions as effects: `async def` on the loop, `def` in a thread, generators of either kind streaming.

The arguments are checked against the function's annotations before it runs, and its result afterwards (`signatures`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from hai_flow import values
from hai_flow.definition.fields import is_literal
from hai_flow.definition.paths import answer_of_call
from hai_flow.definition.plan import ANY_FUNCTION, Call, PythonTool, Schema, Step, Tool
from hai_flow.errors import StepError
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.steps.context import Context, Host
from hai_flow.steps.offered_tools import OfferedFunction
from hai_flow.steps.pins import UNKNOWN, ToolIdentity
from hai_flow.steps.python.threads import ToolThreads
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.steps.python.trace import text_of
from hai_flow.steps.runner import Attempt, Runner, Stream, demand_call
from hai_flow.steps.secrets import Secrets
from hai_flow.steps.tools import PythonFunction, format_name
from hai_flow.values import Json, storable


class PythonRunner(Runner):
    """Performs `call` of the Python tools in `toolbox`. `threads` makes the threads in which `def` tools run; `secrets`
    are those that tools may ask for."""

    def __init__(
        self, toolbox: Toolbox, threads: Callable[[], ToolThreads] = ToolThreads, secrets: Secrets | None = None
    ) -> None:
        self._toolbox = toolbox
        self._make_threads = threads
        self._threads: ToolThreads | None = None
        self._secrets = Secrets() if secrets is None else secrets

    @property
    def left_behind(self) -> int:
        """How many calls of tools were given up and still run in their threads."""
        return 0 if self._threads is None else self._threads.left_behind

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        call, tool = demand_call(attempt.step, PythonTool)
        python_function = self._toolbox.find(tool.target, call.function, tool.name, from_disk=attempt.from_disk)
        host = self._host(attempt, stream, call, tool) if python_function.wants_host else None
        heard = stream if call.stream else None
        try:  # validators and serializers are the tool's code, too
            arguments = await run_by_size(len(attempt.args), _arguments, python_function, attempt, host)
            work = partial(python_function.function, **arguments)
            match python_function.kind:
                case "async":
                    output = await work()
                case "stream":
                    output = await _stream_values(work(), heard)
                case "sync":
                    output = await self._run_in_thread(attempt, _name_of(call, tool), work)
                case "sync_stream":
                    assert host is not None
                    output = await self._run_in_thread(attempt, host.tool, partial(_drain_generator, work, host, heard))
            return await python_function.signature.output(output, tool.big_integers, stream.noted)
        except (SystemExit, KeyboardInterrupt) as error:  # it must not end the process that performs for others
            raise StepError(f"the tool tried to end its process: {text_of(error)}", retriable=False) from error
        except BaseException as error:
            if isinstance(error, (Exception, asyncio.CancelledError)):
                raise
            raise StepError(text_of(error)) from error
        finally:
            if host is not None:
                host.is_over = True

    def source_of(self, step: Step, *, from_disk: bool = False) -> str | None:
        function = self._find_imported(step, from_disk=from_disk)
        return UNKNOWN if function is None else function.source

    def find_schema(self, step: Step, source: str | None, *, from_disk: bool = False) -> Schema | None:
        function = self._find_imported(step, from_disk=from_disk)
        return None if function is None else function.signature.schema

    def _find_imported(self, step: Step, *, from_disk: bool) -> PythonFunction | None:
        call, tool = demand_call(step, PythonTool)
        module = tool.target.partition(":")[0]
        if module and module not in sys.modules:
            return None
        try:
            return self._toolbox.find(tool.target, call.function, tool.name, from_disk=from_disk)
        except StepError:
            return None

    async def identify(self, attempt: Attempt) -> ToolIdentity:
        call, tool = demand_call(attempt.step, PythonTool)
        function = self._toolbox.find(tool.target, call.function, tool.name, from_disk=attempt.from_disk)
        return ToolIdentity(function.source)

    def _host(self, attempt: Attempt, stream: Stream, call: Call, tool: PythonTool) -> Host:
        loop = asyncio.get_running_loop()
        of = attempt.workflow, attempt.tenant, _name_of(call, tool)
        return Host(loop, stream, self._secrets, *of, attempt.transaction, attempt.files)

    async def offered(self, name: str, tool: Tool, *, from_disk: bool = False) -> Sequence[OfferedFunction]:
        """The functions of a Python tool. Raises StepError."""
        assert isinstance(tool, PythonTool)
        functions = self._toolbox.functions(tool.target, name, from_disk=from_disk)
        return [
            OfferedFunction(
                f"{name}.{function}" if function else name,
                each.description,
                each.signature.parameters,
                each.signature.result,
                tool.effect,
            )
            for function, each in functions.items()
        ]

    async def close(self) -> None:
        """Tools that still run in threads can't be stopped; they are left to themselves."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    async def _run_in_thread(self, attempt: Attempt, tool: str, function: Callable[[], Any]) -> Any:
        if self._threads is None:
            self._threads = self._make_threads()
        work = partial(copy_context().run, _raise_as_error, function)
        caller = f"{attempt.run_id}/{attempt.path}"
        return await self._threads.run(tool, caller, work, batch=answer_of_call(caller))

    def fault(self, step: Step, *, from_disk: bool = False) -> str | None:
        call = step.verb
        if not isinstance(call, Call) or not isinstance(call.tool, PythonTool):
            return None
        try:
            if call.function == ANY_FUNCTION:
                self._toolbox.functions(call.tool.target, call.tool.name, from_disk=from_disk)
                return None
            python_function = self._toolbox.find(call.tool.target, call.function, call.tool.name, from_disk=from_disk)
        except StepError as error:
            return error.message
        arguments = call.arguments.written
        if not isinstance(arguments, dict):
            return None
        fault = python_function.argument_fault(set(arguments)) or python_function.signature.fault(arguments, is_literal)
        return fault and f"the call does not fit the function: {fault}"


def _name_of(call: Call, tool: PythonTool) -> str:
    return format_name(tool.target, call.function, tool.name)


def _arguments(found: PythonFunction, attempt: Attempt, host: Host | None) -> dict[str, Any]:
    raw: dict[str, Any] = values.loads(attempt.args)
    fault = found.argument_fault(raw.keys())
    if fault is not None:
        raise StepError(f"{attempt.step.path}: {fault}", code="tool.invalid_arguments", retriable=False)
    arguments = found.signature.arguments(raw)
    if found.context_parameter is not None:
        about = Context(
            attempt.run_id, attempt.path, attempt.number, attempt.idempotency_key, host, attempt.traceparent
        )
        arguments = {**arguments, found.context_parameter: about}
    return arguments


async def _stream_values(generator: AsyncGenerator[Any], stream: Stream | None) -> Any:
    """Yielded strings are chunks; the last value that is not one is the output, else the whole text."""
    heard = _Yielded()
    async with contextlib.aclosing(generator):
        async for item in generator:
            text = heard.take(item)
            if text is not None and stream is not None:
                await stream(text)
    return heard.output


def _drain_generator(work: Callable[[], Generator[Any]], host: Host, stream: Stream | None) -> Any:
    """The same for a generator in a thread. It is closed where nothing waits for it any more."""
    heard = _Yielded()
    with contextlib.closing(work()) as generator:
        for item in generator:
            if host.is_over:
                break
            text = heard.take(item)
            if text is not None and stream is not None:
                host.wait_for_result(stream(text))
    return heard.output


class _Yielded:
    """The values that a generator has yielded so far."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._chosen: Any = None
        self._is_chosen = False

    def take(self, item: Any) -> str | None:
        """The text to stream; None for a value that is no text."""
        if not isinstance(item, str):
            self._chosen, self._is_chosen = item, True
            return None
        self._texts.append(item)
        return item

    @property
    def output(self) -> Any:
        return self._chosen if self._is_chosen else storable("".join(self._texts))


def _raise_as_error(function: Callable[[], Any]) -> Any:
    """What ends a coroutine without a word is an error: with StopIteration its caller would wait for ever."""
    try:
        return function()
    except (StopIteration, GeneratorExit, asyncio.CancelledError) as error:
        raise RuntimeError(f"the tool raised {text_of(error)}") from error
