"""The measured processes: starts them, sends them commands, kills them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

ROOT: Final = Path(__file__).resolve().parents[2]
LINE_BYTES_MAX: Final = 1 << 20


class SubjectError(Exception):
    """A subject has failed or ended. The message has the last lines of its output."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A program that is a subject, and its `role`, which is its argument. `records`: the tables without which its agent
    can't record a step; `concurrency`: how many runs of its chain go on at a time."""

    name: str
    module: str
    role: str
    records: tuple[str, ...] = ()
    concurrency: int = 16
    theirs: bool = True


_OURS: Final = "bench.peers.ours"
_DBOS: Final = "bench.peers.theirs.dbos_subject"
_LANGGRAPH: Final = "bench.peers.theirs.langgraph_subject"
_CHECKPOINTS: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

OUR_CHAIN: Final = Kind("ours", _OURS, "chain", concurrency=256, theirs=False)
OUR_AGENT: Final = Kind("ours", _OURS, "agent", ("log",), theirs=False)
CHAINS: Final = (
    OUR_CHAIN,
    Kind("dbos", _DBOS, "chain"),
    Kind("langgraph", _LANGGRAPH, "chain"),
    Kind("langgraph_async", _LANGGRAPH, "chain-async"),
)
AGENTS: Final = (
    OUR_AGENT,
    Kind("pydantic_ai_dbos", _DBOS, "agent", ("dbos.operation_outputs",)),
    Kind("langgraph", _LANGGRAPH, "agent", _CHECKPOINTS),
    Kind("langgraph_per_call", _LANGGRAPH, "agent-per-call", _CHECKPOINTS),
)


class Subject:
    """A running process of a kind."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Json]] = {}
        self._news: asyncio.Queue[Json] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())
        self.versions: dict[str, str] = {}

    @classmethod
    async def started(cls, kind: Kind, python: Path, dsn: str, world: int = 0) -> Subject:
        """Start one, return when it takes commands. `world`: the port of an agent's. Raises SubjectError."""
        process = await asyncio.create_subprocess_exec(
            str(python if kind.theirs else sys.executable),
            *("-m", kind.module, kind.role, dsn),
            cwd=ROOT,
            env={**os.environ, "BENCH_WORLD": str(world), "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        subject = cls(process)
        subject.versions = (await subject.news())["versions"]
        return subject

    async def ask(self, do: str, **given: Json) -> Json:
        """The reply to a command. Raises SubjectError."""
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps({"number": number, "do": do, **given}) + "\n").encode())
        return await reply

    async def news(self) -> Json:
        """The next of its news. Raises SubjectError if it has ended."""
        news = await self._news.get()
        if news is None:
            self._news.put_nowait(None)
            raise SubjectError("the subject has ended")
        return news

    async def kill(self) -> None:
        """SIGKILL; return when it is dead."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            reply = self._replies.pop(message["number"]) if "number" in message else None
            if reply is None:
                self._news.put_nowait(message)
            elif "error" in message:
                reply.set_exception(SubjectError(message["error"]))
            else:
                reply.set_result(message["value"])
        self._news.put_nowait(None)
        for reply in self._replies.values():
            reply.cancel()


@contextlib.asynccontextmanager
async def running(kind: Kind, python: Path, dsn: str) -> AsyncIterator[Subject]:
    """A subject that is killed at the end."""
    subject = await Subject.started(kind, python, dsn)
    try:
        yield subject
    finally:
        await subject.kill()
