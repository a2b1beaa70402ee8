"""Python functions as effects: `async def` on the loop, `def` in a thread, async generators streaming."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from hai_flow import values
from hai_flow.definition.plan import Call, PythonTool, Step
from hai_flow.errors import StepError
from hai_flow.steps.runner import Attempt, Stream
from hai_flow.steps.threads import ToolThreads
from hai_flow.steps.toolbox import Toolbox
from hai_flow.steps.tools import Context, PythonFunction, full_name
from hai_flow.values import Json

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class PythonRunner:
    """Performs `call` of the Python tools in `toolbox`. `threads` makes the threads in which `def` tools run."""

    def __init__(self, toolbox: Toolbox, threads: Callable[[], ToolThreads] = ToolThreads) -> None:
        self._toolbox = toolbox
        self._make_threads = threads
        self._threads: ToolThreads | None = None

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        call = attempt.step.verb
        assert isinstance(call, Call)
        assert isinstance(call.tool, PythonTool)
        found = self._toolbox.find(call.tool.target, call.function, call.tool.name, from_disk=attempt.from_disk)
        arguments = self._arguments(found, attempt)
        try:
            if found.kind == "async":
                output = await found.function(**arguments)
            elif found.kind == "stream":
                output = await self._streamed(found.function(**arguments), stream if call.stream else None)
            else:
                output = await self._in_thread(attempt, call, partial(found.function, **arguments))
        except SystemExit as error:  # a tool must not end the process that performs for everybody else
            raise StepError(f"the tool tried to end its process: SystemExit: {error}", retriable=False) from error
        return _checked(output)

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        return None

    async def close(self) -> None:
        """Tools that still run in threads can't be stopped; they are left to themselves."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    async def _in_thread(self, attempt: Attempt, call: Call, function: Callable[[], Any]) -> Any:
        if self._threads is None:
            self._threads = self._make_threads()
        assert isinstance(call.tool, PythonTool)
        tool = full_name(call.tool.target, call.function, call.tool.name)
        work = partial(copy_context().run, _without_stop_iteration, function)
        return await self._threads.run(tool, f"{attempt.run_id}/{attempt.path}", work)

    def fault(self, step: Step, *, from_disk: bool = False) -> str | None:
        call = step.verb
        if not isinstance(call, Call) or not isinstance(call.tool, PythonTool):
            return None
        try:
            found = self._toolbox.find(call.tool.target, call.function, call.tool.name, from_disk=from_disk)
        except StepError as error:
            return error.message
        given = call.arguments.written
        fault = found.argument_fault(set(given)) if isinstance(given, dict) else None
        return fault and f"the call gives what the function does not take: {fault}"

    def _arguments(self, found: PythonFunction, attempt: Attempt) -> dict[str, Any]:
        arguments: dict[str, Any] = values.loads(attempt.args)
        fault = found.argument_fault(set(arguments))
        if fault is not None:
            raise StepError(f"{attempt.step.path}: {fault}", code="tool.invalid_arguments", retriable=False)
        if found.context_parameter is not None:
            arguments[found.context_parameter] = Context(
                attempt.run_id, attempt.path, attempt.number, attempt.idempotency_key
            )
        return arguments

    async def _streamed(self, generator: AsyncGenerator[Any], stream: Stream | None) -> Json:
        """Yielded strings are chunks; the last value that is not one is the output, else the whole text."""
        output: Json = None
        chosen = False
        texts: list[str] = []
        async with contextlib.aclosing(generator):
            async for item in generator:
                if not isinstance(item, str):
                    output, chosen = item, True
                    continue
                text = _storable(item)
                texts.append(text)
                if stream is not None:
                    await stream(text)
        return output if chosen else "".join(texts)


def _without_stop_iteration(function: Callable[[], Any]) -> Any:
    """A future can't carry StopIteration: the caller would wait for it for ever."""
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError(f"the tool raised StopIteration({error.value!r})") from error


def _storable(text: str) -> str:
    """Streamed text comes from models: characters that can't be stored are replaced, not refused
    (docs/design/promises.md#bounds)."""
    return _UNSTORABLE.sub("\ufffd", text)


def _checked(output: Any) -> Json:
    """The output as the log will have it: a copy, so that nothing the tool keeps can change it; tuples are lists."""
    try:
        values.check(output)
        return values.loads(values.dumps(output)) if isinstance(output, (dict, list, tuple)) else output
    except values.NotJson as error:
        raise StepError(
            f"the tool's result is not plain JSON: {error}", code="tool.invalid_result", retriable=False
        ) from None
