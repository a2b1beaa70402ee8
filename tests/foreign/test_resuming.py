"""Servers of MCP whose streams end and are asked for again: never at once, ever more seldom, and not without an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from hai_flow.errors import OutcomeLost
from hai_flow.steps.mcp import resuming
from hai_flow.steps.mcp.resuming import ResumePace
from tests.foreign.test_mcp import OK, Odd, serving
from tests.steps.test_mcp import call
from tests.support.service import Received, Reply

TOOL = {"name": "t", "description": "Pays", "inputSchema": {"type": "object"}}


class Ending(Odd):
    """A server that ends each stream at once, and wants it asked for again in a millisecond. `answers_at`: the stream
    of the call that brings its answer; 0: none does. `says`: each brings a message."""

    def __init__(self, answers_at: int = 0, *, says: bool = False) -> None:
        super().__init__([TOOL], OK, sessions=True)
        self._answers_at = answers_at
        self._says = says
        self._call: Any = None
        self.times: list[float] = []
        self.listened: list[float] = []

    def __call__(self, received: Received) -> Reply:
        now = asyncio.get_running_loop().time()
        if received.method == "GET" and received.headers.get("last-event-id") != "call":
            self.listened.append(now)
            return Reply(type="text/event-stream", pieces=self._stream(b"own", b""))
        asked = json.loads(received.body) if received.body else {}
        if received.method == "GET" or asked.get("method") == "tools/call":
            if asked:
                self.calls.append("t")
                self._call = asked["id"]
            self.times.append(now)
            answer = json.dumps({"jsonrpc": "2.0", "id": self._call, "result": OK}).encode()
            note = b'{"jsonrpc": "2.0", "method": "notifications/x"}' if self._says else b""
            data = answer if len(self.times) == self._answers_at else note
            return Reply(type="text/event-stream", pieces=self._stream(b"call", data))
        return super().__call__(received)

    async def _stream(self, id: bytes, data: bytes) -> AsyncIterator[bytes]:
        yield b"retry: 1\nid: " + id + b"\ndata: " + data + b"\n\n"


def _fasten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PAUSE_SECONDS", 0.04), ("PAUSE_SECONDS_MAX", 0.2), ("BARREN_MAX", 6)):
        monkeypatch.setattr(resuming, name, value)


async def test_a_stream_without_an_answer_is_asked_for_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    _fasten(monkeypatch)
    ending = Ending()
    async with asyncio.timeout(20), serving(ending) as (runner, declared):
        with pytest.raises(OutcomeLost, match="its stream ended without an answer"):
            await call(runner, "t", declared)
    pauses = [later - earlier for earlier, later in zip(ending.times, ending.times[1:], strict=False)]
    assert ending.calls == ["t"]
    assert len(ending.times) == resuming.BARREN_MAX
    assert all(pause >= wanted for pause, wanted in zip(pauses, (0.04, 0.08, 0.16, 0.2, 0.2), strict=True))
    assert len(ending.listened) <= resuming.BARREN_MAX


async def test_an_answer_on_a_later_stream_is_the_result_of_the_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    _fasten(monkeypatch)
    ending = Ending(answers_at=4)
    async with asyncio.timeout(20), serving(ending) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert ending.calls == ["t"]


async def test_streams_that_bring_something_are_asked_for_as_long_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    _fasten(monkeypatch)
    ending = Ending(answers_at=resuming.BARREN_MAX * 2, says=True)
    async with asyncio.timeout(20), serving(ending) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert ending.times[-1] - ending.times[0] >= 0.04 * (len(ending.times) - 1)


class Clock:
    """Stands for the loop's clock and for `asyncio.sleep`. `pauses` are those that were waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.pauses = 0.0, list[float]()
        monkeypatch.setattr(resuming, "asyncio", SimpleNamespace(sleep=self.sleep, get_running_loop=lambda: self))

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += max(seconds, 0)


async def test_streams_that_bring_nothing_are_asked_for_for_two_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), ResumePace()
    pace.note_end(has_said=False)
    while await pace.wait():
        pace.note_end(has_said=False)
    assert clock.pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert max(clock.pauses) == resuming.PAUSE_SECONDS_MAX
    assert 1.9 < clock.now / 3600 < 2


@pytest.mark.parametrize(("seconds", "has_said"), [(30, False), (0, True), (30, True)])
async def test_a_stream_that_lasted_or_brought_something_is_asked_for_soon(
    monkeypatch: pytest.MonkeyPatch, seconds: float, has_said: bool
) -> None:
    clock, pace = Clock(monkeypatch), ResumePace()
    for _ in range(resuming.BARREN_MAX - 1):
        assert await pace.wait()
        pace.note_end(has_said=False)
    for _ in range(resuming.BARREN_MAX):
        assert await pace.wait()
        clock.now += seconds
        pace.note_end(has_said=has_said)
    assert clock.pauses[-1] == resuming.PAUSE_SECONDS
