"""`Context`: the data of an attempt, and the services of the runtime, that a tool written in Python gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hai_flow.errors import StepError

if TYPE_CHECKING:
    from hai_flow.steps.files import Content, RunFiles
    from hai_flow.steps.runner import Stream, Transactional
    from hai_flow.steps.secrets import Secrets
    from hai_flow.values import Json

Answer = TypeVar("Answer")

PROGRESS_CHARS_MAX: Final = 1000
FILE_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Host:
    """The parts of the runtime that the Context of one attempt uses. `is_over`: nothing waits for the tool any more."""

    loop: asyncio.AbstractEventLoop
    stream: Stream
    secrets: Secrets
    workflow: str = ""
    tenant: str = "default"
    tool: str = ""
    transaction: Transactional | None = None
    files: RunFiles | None = None
    is_over: bool = False

    def wait_for_result(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """The result of a coroutine, for a tool that runs in a thread. Raises RuntimeError on the event loop."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            coroutine.close()
            raise RuntimeError("this would block everything else; an `async def` tool awaits the other form")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class BlockingConnection:
    """A connection of asyncpg for a tool that runs in a thread: the same methods, without `await`."""

    def __init__(self, host: Host, connection: Any) -> None:
        self._host = host
        self._connection = connection

    def execute(self, query: str, *arguments: Any) -> str:
        return self._host.wait_for_result(self._connection.execute(query, *arguments))

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        return self._host.wait_for_result(self._connection.executemany(query, rows))

    def fetch(self, query: str, *arguments: Any) -> list[Any]:
        return self._host.wait_for_result(self._connection.fetch(query, *arguments))

    def fetchrow(self, query: str, *arguments: Any) -> Any:
        return self._host.wait_for_result(self._connection.fetchrow(query, *arguments))

    def fetchval(self, query: str, *arguments: Any) -> Any:
        return self._host.wait_for_result(self._connection.fetchval(query, *arguments))


class TransactionBlock:
    """The result of `Context.transaction`: `async with` it on the loop, `with` it in a thread."""

    def __init__(self, host: Host | None) -> None:
        if host is None or host.transaction is None:
            raise _without_run("transaction")
        self._host = host
        self._block = host.transaction.block()

    async def __aenter__(self) -> Any:
        return await self._block.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._block.__aexit__(*error)

    def __enter__(self) -> BlockingConnection:
        return BlockingConnection(self._host, self._host.wait_for_result(_await(self._block.__aenter__())))

    def __exit__(self, *error: Any) -> bool | None:
        return self._host.wait_for_result(_await(self._block.__aexit__(*error)))


async def _await(waiting: Awaitable[Answer]) -> Answer:
    return await waiting


class ToolSecrets:
    """The secrets of the deployment, for a tool. A value that it reads is hidden from then on in all that is
    recorded."""

    def __init__(self, host: Host | None) -> None:
        self._host = host

    async def get(self, name: str, *, host: str = "") -> str:
        """The value of a secret. `host`: where it will be sent, which the deployment may have bound it to.

        Raises StepError: `secret.missing`, or `secret.refused`."""
        from hai_flow.steps.secrets import Use

        if self._host is None:
            raise _without_run("secrets")
        of = self._host
        use = Use(host=host, workflow=of.workflow, from_disk=True, tool=of.tool, tenant=of.tenant)
        return await of.secrets.value(name, use)

    def read(self, name: str, *, host: str = "") -> str:
        """The same as `get`, for a `def` tool, which runs in a thread."""
        if self._host is None:
            raise _without_run("secrets")
        return self._host.wait_for_result(self.get(name, host=host))


class ToolFiles:
    """The files of the run, for a tool. Values hold their ids; here are the bytes."""

    def __init__(self, host: Host | None) -> None:
        self._host = host

    async def get(self, id: str, *, bytes_max: int = FILE_BYTES_MAX) -> Content:
        """The content of a file: `body`, `media_type`, `name`. Raises StepError: `step.file_unknown` where no run that
        may be seen refers to it, `step.file_too_large`, `step.file_unavailable`."""
        return await self._files().read(id, bytes_max)

    async def put(self, body: bytes, media_type: str = "application/octet-stream", name: str = "") -> dict[str, Json]:
        """Store a file of the run's; the content part that refers to it, for the tool's result: its id is
        `part["source"]["value"]`. Raises StepError `step.file_too_large` or `step.file_unavailable`."""
        return await self._files().put(body, media_type, name)

    def read(self, id: str, *, bytes_max: int = FILE_BYTES_MAX) -> Content:
        """The same as `get`, for a `def` tool, which runs in a thread."""
        files = self._files()
        return self._waited(files.read(id, bytes_max))

    def write(self, body: bytes, media_type: str = "application/octet-stream", name: str = "") -> dict[str, Json]:
        """The same as `put`, for a `def` tool."""
        files = self._files()
        return self._waited(files.put(body, media_type, name))

    def _files(self) -> RunFiles:
        if self._host is None or self._host.files is None:
            raise _without_run("files")
        return self._host.files

    def _waited(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        assert self._host is not None
        return self._host.wait_for_result(coroutine)


@dataclass(frozen=True, slots=True)
class Context:
    """The attempt that runs a tool, for the tool.

    `idempotency_key` is the same for every attempt of the step: hand it to services that can recognise a repetition.
    `traceparent` is its place in a trace, as W3C writes it, for services that record one; None: there is none."""

    run_id: str
    path: str
    attempt: int
    idempotency_key: str
    _host: Host | None = field(default=None, repr=False, compare=False)
    traceparent: str | None = None

    @property
    def cancelled(self) -> bool:
        """Whether nothing waits for the result any more: the step timed out, or the run is stopped. A function in a
        thread can't be ended from outside; one that takes long should look here and return."""
        return self._host is not None and self._host.is_over

    @property
    def log(self) -> Any:
        """A structlog logger whose lines name the run, the step and the attempt."""
        import structlog  # here: every command loads this module, and few log

        tool = "" if self._host is None else self._host.tool
        logger = structlog.get_logger("hai_flow.tools")
        return logger.bind(tool=tool, run_id=self.run_id, path=self.path, attempt=self.attempt)

    @property
    def secrets(self) -> ToolSecrets:
        return ToolSecrets(self._host)

    @property
    def files(self) -> ToolFiles:
        return ToolFiles(self._host)

    def transaction(self) -> TransactionBlock:
        """A transaction on the run's own PostgreSQL: the rows that the tool writes there and the step's result are
        committed together, when the tool has returned, or neither is.

        `async with` it in an `async def`, and there is a connection of asyncpg; `with` it in a `def`, and there is one
        with its methods `execute`, `executemany`, `fetch`, `fetchrow` and `fetchval`. A block that raises rolls back
        its own statements. A further block belongs to the same transaction. Raises StepError `tool.unavailable` where
        no connection is to be had."""
        return TransactionBlock(self._host)

    def progress(self, message: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Tell the run's followers how far the tool is. Of calls in quick succession, at most one a second is shown,
        the newest."""
        host = self._host
        if host is None or host.is_over:
            return
        value: dict[str, Json] = {"message": message[:PROGRESS_CHARS_MAX]} if message else {}
        value |= {name: number for name, number in (("done", done), ("total", total)) if number is not None}
        host.loop.call_soon_threadsafe(host.stream.progress, value)


def _without_run(what: str) -> StepError:
    return StepError(f"this context belongs to no run: it has no {what}", code="tool.unavailable", retriable=False)
