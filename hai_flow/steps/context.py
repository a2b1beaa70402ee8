"""What a tool is told of the attempt that runs it, and what it may ask for: `Context`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from hai_flow.errors import StepError
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.steps.runner import Stream
    from hai_flow.steps.secrets import Secrets

Answer = TypeVar("Answer")

PROGRESS_CHARS_MAX: Final = 1000


@dataclass(slots=True)
class Host:
    """What stands behind the Context of one attempt. `is_over`: nothing waits for the tool any more."""

    loop: asyncio.AbstractEventLoop
    stream: Stream
    secrets: Secrets
    workflow: str = ""
    tool: str = ""
    is_over: bool = False

    def waited_for(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """The result of a coroutine, for a tool that runs in a thread. Raises RuntimeError on the event loop."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            coroutine.close()
            raise RuntimeError("this would block everything else; an `async def` tool awaits the other form")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class ToolSecrets:
    """The secrets of the deployment, for a tool. What it reads is hidden from then on in all that is recorded."""

    def __init__(self, host: Host | None) -> None:
        self._host = host

    async def get(self, name: str, *, host: str = "") -> str:
        """The value of a secret. `host`: where it will be sent, which the deployment may have bound it to.

        Raises StepError: `secret.missing`, or `secret.refused`.
        """
        from hai_flow.steps.secrets import Use

        if self._host is None:
            raise _without_run("secrets")
        use = Use(host=host, workflow=self._host.workflow, from_disk=True)
        return await self._host.secrets.value(name, use)

    def read(self, name: str, *, host: str = "") -> str:
        """The same as `get`, for a `def` tool, which runs in a thread."""
        if self._host is None:
            raise _without_run("secrets")
        return self._host.waited_for(self.get(name, host=host))


@dataclass(frozen=True, slots=True)
class Context:
    """The attempt that runs a tool, for the tool.

    `idempotency_key` is the same for every attempt of the step: hand it to services that can recognise a repetition.
    """

    run_id: str
    path: str
    attempt: int
    idempotency_key: str
    _host: Host | None = field(default=None, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether nothing waits for the result any more: the step timed out, or the run is stopped. A function in a
        thread can't be ended from outside; one that takes long should look here and return."""
        return self._host is not None and self._host.is_over

    @property
    def log(self) -> Any:
        """A structlog logger whose lines name the run, the step and the attempt."""
        tool = "" if self._host is None else self._host.tool
        logger = structlog.get_logger("hai_flow.tools")
        return logger.bind(tool=tool, run_id=self.run_id, path=self.path, attempt=self.attempt)

    @property
    def secrets(self) -> ToolSecrets:
        return ToolSecrets(self._host)

    def progress(self, message: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Tell the run's followers how far the tool is. What comes in quick succession is told at most once a second,
        the newest of it."""
        host = self._host
        if host is None or host.is_over:
            return
        value: dict[str, Json] = {"message": message[:PROGRESS_CHARS_MAX]} if message else {}
        value |= {name: number for name, number in (("done", done), ("total", total)) if number is not None}
        host.loop.call_soon_threadsafe(host.stream.progress, value)


def _without_run(what: str) -> StepError:
    return StepError(f"this context belongs to no run: it has no {what}", code="tool.unavailable", retriable=False)
