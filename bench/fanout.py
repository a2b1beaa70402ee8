"""The cost of showing one run to many followers, against a bare Starlette StreamingResponse that sends the same bytes.

The followers are real connections from a process of their own. The measure is the CPU time of the serving process, user
and system, from the first to the last of a round's deliveries: `deliveries / CPU seconds` is a rate per core that other
load on the machine hardly touches. Both servers are up all the time; their rounds alternate.

Our events take the real way: the run is performed, committed and published in the serving process. The reference has no
engine, so the cost of the same rounds without any follower is measured first, and subtracted. (The encoding is not:
without followers nothing is encoded.) The bytes that the reference sends are those of our rounds, in the same groups
and at the same times: one event at a time (`fanout_vs_starlette`), or ten of one commit (`fanout_bursts_vs_starlette`).
`follower_memory_vs_starlette` compares the resident memory that an idle follower adds to each process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.fanout_servers import SETTINGS

BURST: Final = 10
SILENCE_SECONDS: Final = 0.3  # before and after the measured part of a round
TIMEOUT_SECONDS: Final = 60.0
ROUNDS_ALONE: Final = 3
_ROOT: Final = Path(__file__).resolve().parents[1]
_SSE: Final = {"accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure. The reference must not be busy all the time: a server that can't keep up sends events
    together that should come one at a time. Some followers connect before the memory is read first: a process needs
    memory for its first streams that later ones share."""

    rounds: int
    followers: int
    events: int
    bursts: int
    events_seconds: float = 0.05
    bursts_seconds: float = 0.3
    followers_before: int = 50


FULL = Size(rounds=5, followers=1000, events=30, bursts=6)
QUICK = Size(rounds=3, followers=1000, events=15, bursts=3)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of round. `opening`: the events of ours that come before those that count; these begin after `first`
    seconds."""

    name: str
    opening: int
    first: float
    groups: int
    group: int
    seconds: float

    @property
    def frames(self) -> int:
        return self.groups * self.group


async def measure(dsn: str, size: Size) -> dict[str, Any]:
    """Interleaved rounds of both servers; ours over the migrated database `dsn`."""
    kinds = (
        _Kind("one", 7, SILENCE_SECONDS, size.events, 1, size.events_seconds),
        _Kind("bursts", 9, SILENCE_SECONDS + size.bursts_seconds, size.bursts, BURST, size.bursts_seconds),
    )
    async with (
        _server("ours", dsn) as ours,
        _server("starlette") as starlette,
        httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as http,
    ):
        run = await _Run.start(http, ours, size)
        alone = [{kind.name: await run.cpu_alone(kind) for kind in kinds} for _ in range(ROUNDS_ALONE)]
        engine = _medians(alone)
        frames = {kind.name: await run.recorded(kind) for kind in kinds}
        async with _audience(ours, run.stream_path) as our_audience, _audience(starlette, "/follow") as their_audience:
            weights = {"ours": await _weight(our_audience, size), "starlette": await _weight(their_audience, size)}
            cpu: dict[str, list[dict[str, float]]] = {"ours": [], "starlette": []}
            for _ in range(size.rounds):
                our_round, their_round = {}, {}
                for kind in kinds:
                    used = await run.shown(kind, our_audience)
                    # With a few followers, in a test, the engine is most of it, and varies by more than the rest.
                    our_round[kind.name] = max(used - engine[kind.name], used / 10)
                    their_round[kind.name] = await _published(http, starlette, kind, frames[kind.name], their_audience)
                cpu["ours"].append(our_round)
                cpu["starlette"].append(their_round)
    deliveries = {kind.name: size.followers * kind.frames for kind in kinds}
    rates = {
        server: {name: deliveries[name] / seconds for name, seconds in _medians(rounds).items()}
        for server, rounds in cpu.items()
    }
    return {
        "fanout_vs_starlette": rates["ours"]["one"] / rates["starlette"]["one"],
        "fanout_bursts_vs_starlette": rates["ours"]["bursts"] / rates["starlette"]["bursts"],
        "follower_memory_vs_starlette": weights["ours"] / weights["starlette"],
        "followers": size.followers,
        "deliveries_per_core_second": rates,
        "follower_kib": {server: weight / 1024 for server, weight in weights.items()},
        "engine_cpu_ms_per_commit": {kind.name: engine[kind.name] / kind.groups * 1e3 for kind in kinds},
        "frame_bytes": statistics.mean(len(frame) for each in frames.values() for frame in each),
    }


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


# --- processes ----------------------------------------------------------------------------------------------------


class _Process:
    """A Python process of the bench: it gets lines, and answers each with one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def answer(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), TIMEOUT_SECONDS)
        assert line, "the process has ended; see its standard error"
        return line.decode().strip()

    async def told(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return await self.answer()

    def cpu(self) -> float:
        """The CPU seconds that it has used: its clock, by the kernel's rule for making the number of one."""
        return time.clock_gettime(~self._process.pid << 3 | 2)

    def resident(self) -> int:
        statm = Path(f"/proc/{self._process.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def _process(module: str, *arguments: str) -> AsyncIterator[_Process]:
    """`python -m bench.MODULE`, which ends with its standard input."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"bench.{module}", *arguments),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=_ROOT, env={**os.environ, **SETTINGS},
    )  # fmt: skip
    try:
        yield _Process(process)
    finally:
        process.kill()
        await process.communicate()


@dataclass(frozen=True, slots=True)
class _Server:
    url: str
    process: _Process


@contextlib.asynccontextmanager
async def _server(*arguments: str) -> AsyncIterator[_Server]:
    async with _process("fanout_servers", *arguments) as process:
        yield _Server(await process.answer(), process)


class _Audience:
    """The followers of a server. `size` of them have got `frames` together."""

    def __init__(self, server: _Server, path: str, process: _Process) -> None:
        self.server = server
        self.size = 0
        self.frames = 0
        self._url = server.url + path
        self._process = process

    async def grow(self, size: int) -> None:
        await self._told(f"connect {self._url} {size - self.size}")
        self.size = size

    async def reach(self, frames: int) -> None:
        """Wait until all followers together have got this many frames."""
        await self._told(f"await {frames * self.size}")

    async def _told(self, line: str) -> None:
        frames, lost = (await self._process.told(line)).split()
        self.frames = int(frames)
        assert lost == "0", f"{lost} followers were cut off"


@contextlib.asynccontextmanager
async def _audience(server: _Server, path: str) -> AsyncIterator[_Audience]:
    async with _process("fanout_clients") as process:
        yield _Audience(server, path, process)


async def _weight(audience: _Audience, size: Size) -> float:
    """The resident memory that an idle follower adds to the server, in bytes."""
    await audience.grow(size.followers_before)
    before = audience.server.process.resident()
    await audience.grow(size.followers)
    return (audience.server.process.resident() - before) / (size.followers - size.followers_before)


# --- ours ---------------------------------------------------------------------------------------------------------


class _Run:
    """The run that all followers follow. Between measurements it waits at the beginning of a round."""

    def __init__(self, http: httpx2.AsyncClient, server: _Server, run_id: str) -> None:
        self._http = http
        self._server = server
        self._url = f"{server.url}/v1/runs/{run_id}"
        self._heads: dict[str, int] = {}  # by kind: the seq after the opening of the round without followers
        self.stream_path = ""

    @classmethod
    async def start(cls, http: httpx2.AsyncClient, server: _Server, size: Size) -> _Run:
        input = {
            "events": size.events,
            "events_seconds": size.events_seconds,
            "bursts": list(range(size.bursts + 1)),  # the last one is longer: it ends the round
            "bursts_seconds": size.bursts_seconds,
            "silence_seconds": SILENCE_SECONDS,
        }
        started = await http.post(f"{server.url}/v1/runs", json={"workflow": "bench_audience", "input": input})
        run = cls(http, server, started.raise_for_status().json()["id"])
        await run._waiting()
        return run

    async def cpu_alone(self, kind: _Kind) -> float:
        """The CPU seconds of a round without followers."""
        before, _ = await self._waiting()
        self._heads[kind.name] = before + kind.opening
        await self._begin()
        await asyncio.sleep(kind.first - SILENCE_SECONDS / 2)
        cpu = self._server.process.cpu()
        await asyncio.sleep((kind.groups - 1) * kind.seconds + SILENCE_SECONDS)
        used = self._server.process.cpu() - cpu
        await self._waiting()
        return used

    async def recorded(self, kind: _Kind) -> list[str]:
        """The frames of that round."""
        head, text = self._heads[kind.name], ""
        path = f"{self._url}/events"
        async with self._http.stream("GET", path, params={"after": str(head)}, headers=_SSE) as response:
            async for piece in response.aiter_text():
                text += piece
                frames = text.split("\n\n")
                if len(frames) > kind.frames:
                    break
        seq, _ = await self._waiting()
        self.stream_path = f"{self._url.removeprefix(self._server.url)}/events?after={seq}"
        return [f"{frame}\n\n" for frame in frames[: kind.frames]]

    async def shown(self, kind: _Kind, audience: _Audience) -> float:
        """The CPU seconds of a round that `audience` follows."""
        before, _ = await self._waiting()
        got = audience.frames // audience.size
        await self._begin()
        await audience.reach(got + kind.opening)
        cpu = self._server.process.cpu()
        await audience.reach(got + kind.opening + kind.frames)
        used = self._server.process.cpu() - cpu
        seq, _ = await self._waiting()
        await audience.reach(got + seq - before)
        return used

    async def _begin(self) -> None:
        _, pending = await self._waiting()
        url = f"{self._server.url}/v1/pendings/{pending}/decide"
        (await self._http.post(url, json={"result": {}})).raise_for_status()

    async def _waiting(self) -> tuple[int, str]:
        """The run's seq and its open question, once it has one."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                now = (await self._http.get(f"{self._url}/snapshot")).raise_for_status().json()
                opened = [each["id"] for each in now["pendings"] if each["status"] == "open"]
                if opened and now["status"] == "waiting":
                    return now["seq"], opened[0]
                await asyncio.sleep(0.1)


# --- the reference ------------------------------------------------------------------------------------------------


async def _published(
    http: httpx2.AsyncClient, server: _Server, kind: _Kind, frames: list[str], audience: _Audience
) -> float:
    """The CPU seconds of a round of the reference."""
    groups = [frames[start : start + kind.group] for start in range(0, len(frames), kind.group)]
    got = audience.frames // audience.size
    cpu = server.process.cpu()
    order = {"groups": groups, "seconds": kind.seconds}
    publishing = asyncio.create_task(http.post(f"{server.url}/publish", json=order))
    await audience.reach(got + kind.frames)
    used = server.process.cpu() - cpu
    (await publishing).raise_for_status()
    return used
