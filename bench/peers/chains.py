"""Durable steps per second of chains of trivial steps, of many runs at once and of one after the other."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.subjects import Kind, Subject, running
from bench.peers.talking import STEPS


@dataclass(frozen=True, slots=True)
class Size:
    """`runs` of ours in a round; the others have a share of them, they need longer. `alone`: one after the other."""

    rounds: int
    runs: int
    alone: int


FULL = Size(rounds=7, runs=1024, alone=30)
QUICK = Size(rounds=3, runs=512, alone=10)
SHARE = 8  # of `runs`, for a kind that is not ours


async def measure(databases: Mapping[Kind, str], python: Path, size: Size) -> dict[str, Any]:
    """Medians of interleaved rounds: steps per second of each kind over its database, and as ratios to ours."""
    busy: dict[str, list[float]] = {kind.name: [] for kind in databases}
    alone: dict[str, list[float]] = {kind.name: [] for kind in databases}
    async with AsyncExitStack() as stack:
        subjects = {
            kind: await stack.enter_async_context(running(kind, python, dsn)) for kind, dsn in databases.items()
        }
        versions = {name: text for subject in subjects.values() for name, text in subject.versions.items()}
        for number in range(-1, size.rounds):  # one before it counts
            for kind, subject in subjects.items():
                runs = size.runs // SHARE if kind.theirs else size.runs
                fast = await _rate(subject, runs, kind.concurrency)
                slow = await _rate(subject, size.alone, 1)
                if number >= 0:
                    busy[kind.name].append(fast)
                    alone[kind.name].append(slow)
    return {
        "steps_per_second": (rates := _medians(busy)),
        "to_ours": _ratios(rates),
        "steps_per_second_alone": (rates := _medians(alone)),
        "to_ours_alone": _ratios(rates),
        "versions": versions,
    }


async def _rate(subject: Subject, runs: int, concurrency: int) -> float:
    return runs * STEPS / await subject.ask("chain", runs=runs, concurrency=concurrency)


def _medians(rates: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in rates.items()}


def _ratios(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: rate / rates["ours"] for name, rate in rates.items()}
