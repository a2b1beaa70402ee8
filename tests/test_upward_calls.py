"""No call between a POST and its commit goes to a package that stands above its caller's (decision 84)."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest

from hai_flow import values
from hai_flow.api.app import create_app
from hai_flow.runtime.runs import starts
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.commit import commits

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "hai_flow"
REQUESTS = 4
HINTS = {"hints"}
HANDS_ON = "primitives/beside_loop.py"  # it does its caller's work, here or in a thread
FLOW = b"""
hai: flow/v1
name: walked
version: 1
steps:
  - {id: hello, say: "Hello"}
  - {id: sure, approve: {title: "Sure?", from: role:lead}}
"""


class Recorder:
    """The calls of a package above the caller's own, while it records."""

    def __init__(self) -> None:
        self.upwards: set[str] = set()
        self._heights = _heights()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or (file := _file_of(frame)) is None:
            return
        task = asyncio.current_task()
        if task is None or task.get_name() in HINTS:
            return  # it goes to other processes, or comes from them, behind the commit of an earlier request
        caller = _caller_of(frame)
        if caller is not None and self._heights[_room_of(file)] > self._heights[_room_of(caller)]:
            self.upwards.add(f"{caller} calls {file}: {frame.f_code.co_qualname}")


def _caller_of(frame: FrameType) -> str | None:
    """The next file of ours outwards."""
    outer = frame.f_back
    while outer is not None:
        if (file := _file_of(outer)) not in (None, HANDS_ON):
            return file
        outer = outer.f_back
    return None


def _heights() -> dict[str, int]:
    """How high each room stands, by the contract of imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = contracts[0]["layers"]
    return {
        room.strip().removeprefix("hai_flow."): -depth
        for depth, layer in enumerate(layers)
        for room in layer.split("|")
    }


def _file_of(frame: FrameType) -> str | None:
    path = frame.f_code.co_filename
    return path.removeprefix(f"{HOUSE}/") if path.startswith(f"{HOUSE}/") else None


def _room_of(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


@pytest.fixture
def upward_calls(database_url: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """From `POST /v1/runs` to the statement that commits the run's first events, in a process that has started other
    runs before."""
    real, seen = commits.commit, []

    async def commit(*given: Any) -> Any:
        done = await real(*given)
        sys.setprofile(None)
        return done

    async def walked() -> None:
        settings = Settings.from_environment(dev=True)
        runtime = Runtime(database_url, settings, performs=False)
        async with runtime.lifespan():
            await runtime.catalog.publish(LOCAL_TENANT, FLOW, "walked.flow.yaml")
            transport = httpx2.ASGITransport(create_app(settings, runtime, act_as=True))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
                begin = {"workflow": "walked", "input": {}}
                assert (await http.post("/v1/runs", json=begin)).status_code == 201
                monkeypatch.setattr(commits, "commit", commit)
                for _ in range(REQUESTS):
                    seen.append(Recorder())
                    with seen[-1].recorded():
                        assert (await http.post("/v1/runs", json=begin)).status_code == 201
                    assert sys.getprofile() is None

    asyncio.run(walked())
    first, *others = seen
    return first.upwards.intersection(*(each.upwards for each in others))


def test_a_call_back_into_a_room_above_is_seen() -> None:
    async def call_back() -> Recorder:
        seen = Recorder()
        with seen.recorded():
            values.with_texts("a text", lambda text: str(starts.new_run_id(len(text))))
        return seen

    assert asyncio.run(call_back()).upwards == {"values.py calls runtime/runs/starts.py: new_run_id"}


def test_no_package_is_called_from_below_on_the_way_to_a_commit(upward_calls: set[str]) -> None:
    assert not upward_calls
