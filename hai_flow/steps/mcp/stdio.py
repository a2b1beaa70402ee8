"""A server of the Model Context Protocol that is a program: messages are lines of its standard input and output.

The SDK has a transport for programs, too. This one bounds a line (a program that writes for ever would take all
memory), sends the program's standard error to the log instead of to our own standard error, and reports the program's
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, RequestId

from hai_flow.errors import StepError
from hai_flow.foreign import Utf8
from hai_flow.steps.mcp.messages import make_stand_in, measure, read_all
from hai_flow.steps.mcp.tolerant_reader import WrappedStream

log = structlog.get_logger(__name__)

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The variables that a program inherits from our environment: none of them could be a secret."""
SAID_LINES_MAX: Final = 20
_SAID_CHARS_MAX: Final = 500
_PIECE_BYTES: Final = 64 * 1024
_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark
_BEGINNING_BYTES: Final = 4096  # of a message that is too long; they hold the id of the call that it answers
_VALUE: Final = re.compile(rb'\{\s*(?:["}]|$)|\[\s*(?:\{|$)|"\{\s*\\"')
"""The beginning of a message, of a batch, or of a message that is encoded twice."""
_PROMPT: Final = re.compile(rb"(?:\x1b\[[0-9;?]*+[A-Za-z]|[\x00-\x20>])++")  # of a terminal: colours, signs, a prompt
_END_SECONDS: Final = 2.0  # to end by itself once its input is closed, and again after a signal


@contextlib.asynccontextmanager
async def program(
    command: Sequence[str], env: Mapping[str, str], line_max: int, ended: asyncio.Event
) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of messages from and to a program that runs meanwhile. `ended` is set when it says nothing more.

    Raises StepError `mcp.unavailable` where it can't be started.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**inherited, **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StepError(f"{command[0]} can't be started: {reason}", code="mcp.unavailable", retriable=True) from None
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    from_session, to_server = anyio.create_memory_object_stream[SessionMessage](0)
    last_lines: deque[str] = deque(maxlen=SAID_LINES_MAX)
    messages = _Messages(process.stdout, line_max, last_lines)
    tasks = [
        asyncio.create_task(_read(messages, to_session, ended, command[0])),
        asyncio.create_task(_write(process, to_server, to_session)),
        asyncio.create_task(_listen(process, last_lines)),
    ]
    try:
        yield _FromProgram(from_server, messages), from_session
    finally:
        to_session.close()
        from_session.close()
        await asyncio.shield(_end(process, tasks))
        for stream in (from_server, to_server):
            stream.close()
        is_odd = process.returncode not in (0, None, -signal.SIGTERM, -signal.SIGKILL)
        if last_lines and (is_odd or not messages.has_spoken):
            log.warning("mcp_server_ended", command=command[0], code=process.returncode, said=list(last_lines))


async def _read(messages: _Messages, to_session: Any, ended: asyncio.Event, name: str) -> None:
    try:
        async for message in messages.read():
            messages.has_spoken = True
            await to_session.send(SessionMessage(message))
    except ValueError:  # one that is too long, and the call that it answers is unknown
        log.warning("mcp_line_too_long", command=name)
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
        pass
    finally:
        ended.set()
        to_session.close()


class _Messages:
    """The messages of a program, each of at most `bytes_max` bytes. Each should be a line; a batch is read, too, and a
    value that goes on over several lines."""

    def __init__(self, output: asyncio.StreamReader | None, bytes_max: int, last_lines: deque[str]) -> None:
        assert output is not None
        self.has_spoken = False  # a message came
        self._last_lines = last_lines  # of what else the program prints
        self._bytes_max = bytes_max
        self._output = output
        self._line = bytearray()  # that has not ended
        self._is_skipping = False  # of it everything that comes yet
        self._value = bytearray()  # the lines of the value that has not ended
        self._depth = 0  # of its brackets

    async def read(self) -> AsyncIterator[JSONRPCMessage]:
        """Raises ValueError for a message that is too long, and answers nobody knows what."""
        charset = Utf8()
        is_over = False
        while not is_over:
            piece = await self._output.read(_PIECE_BYTES)
            is_over = not piece
            *ends, rest = charset.feed(piece).split(b"\n")
            for each in ends:
                for message in (*self._add(each), *self._end_line()):
                    yield message
            for message in self._add(rest):
                yield message
        for message in (*self._end_line(), *self._end_value()):
            yield message

    def _add(self, piece: bytes) -> Iterator[JSONRPCMessage]:
        if not self._is_skipping:
            self._line += piece
            if len(self._value) + len(self._line) > self._bytes_max:
                beginning = bytes(self._value + self._line)[:_BEGINNING_BYTES]
                self._is_skipping = True
                self._end_value()
                why = f"it answers with more than {self._bytes_max} bytes at once"
                if (message := make_stand_in(beginning, why)) is not None:
                    yield message

    def _end_line(self) -> Iterator[JSONRPCMessage]:
        line = bytes(self._line).removeprefix(_MARK).strip()
        if not self._value and (prompt := _PROMPT.match(line)):
            line = line[prompt.end() :]
        is_skipped = self._is_skipping
        self._line.clear()
        self._is_skipping = False
        if is_skipped or not line or not (self._value or _VALUE.match(line)):
            if line:  # programs print other things, too
                self._last_lines.append(line.decode(errors="replace")[:_SAID_CHARS_MAX])
            return
        depth = measure(line.decode(errors="replace"))
        if self._value and depth == 0 and line.startswith(b"{") and b'"jsonrpc"' in line:
            if self._value.startswith(b"["):  # maybe a batch, maybe no more than a bracket: it waits for neither
                yield from _list_messages(line.rstrip(b","))
                return
            if line.endswith(b"}"):
                yield from self._end_value()
        self._value += line + b"\n"
        self._depth += depth or 0
        if depth is None or self._depth <= 0:  # no text of JSON goes on in the next line
            yield from self._end_value()

    def _end_value(self) -> Iterator[JSONRPCMessage]:
        value = bytes(self._value)
        self._value.clear()
        self._depth = 0
        return _list_messages(value)

    def read_partial(self, id: RequestId) -> bytes:
        """What has come of the answer to a call: the value that has not ended, if it names the call."""
        partial = bytes(self._value + self._line)
        try:
            message = make_stand_in(partial[:_BEGINNING_BYTES], "")
        except ValueError:
            return b""
        return partial if isinstance(message, JSONRPCError) and message.id == id else b""


def _list_messages(value: bytes) -> Iterator[JSONRPCMessage]:
    return (each.message for each in read_all(value))


class _FromProgram(WrappedStream):
    def __init__(self, inner: Any, messages: _Messages) -> None:
        super().__init__(inner)
        self.read_partial = messages.read_partial


async def _write(process: asyncio.subprocess.Process, to_server: Any, to_session: Any) -> None:
    assert process.stdin is not None
    try:
        async for message in to_server:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except (ConnectionError, anyio.ClosedResourceError):
        to_session.close()


async def _listen(process: asyncio.subprocess.Process, said: deque[str]) -> None:
    """Read the program's standard error: a program whose pipe is full would block."""
    assert process.stderr is not None
    while piece := await process.stderr.read(4096):
        said.extend(line[:_SAID_CHARS_MAX] for line in piece.decode(errors="replace").splitlines() if line.strip())


async def _end(process: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Close its input, then ask its group of processes to end, then kill it."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # whatever it has started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
