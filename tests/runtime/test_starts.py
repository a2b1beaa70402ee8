"""A plain start passes by everything that its run does not need, and no other start does."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hai_flow.runtime.runs import starts
from hai_flow.runtime.runs.concurrency_slots import Slots
from hai_flow.runtime.runs.thread_state import ThreadState
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from tests.runtime.conftest import ASKING, Make, start

KEEPS = "state: {n: {type: integer, default: 0, keep: thread}}\n" + ASKING
KEYED = "concurrency: {key: x}\n" + ASKING
RUNS = "steps:\n  - {id: below, run: child}\n"
CHILD = b"hai: flow/v1\nname: child\nversion: 1\n" + ASKING.encode()


@pytest.fixture
async def counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Runtime, Counter[str]]:
    """A runtime, and how often a start came by each of the extras."""
    runtime, counts = await make(), Counter[str]()
    pins, seated, kept = runtime.starts._find_pins, Slots.reserve_slot, ThreadState.with_thread_state

    async def find(*given: Any) -> Any:
        counts["pins"] += 1
        return await pins(*given)

    def counted(name: str, passed: Any) -> Any:
        @contextlib.asynccontextmanager
        async def count(*given: Any) -> AsyncIterator[Any]:
            counts[name] += 1
            async with passed(*given) as found:
                yield found

        return count

    monkeypatch.setattr(runtime.starts, "_find_pins", find)
    monkeypatch.setattr(Slots, "reserve_slot", counted("seated", seated))
    monkeypatch.setattr(ThreadState, "with_thread_state", counted("kept", kept))
    return runtime, counts


async def test_a_plain_start_passes_by_the_extras_as_a_group(counted: tuple[Runtime, Counter[str]]) -> None:
    runtime, counts = counted
    outcome = await start(runtime, ASKING)
    assert (outcome.status, counts) == ("waiting", Counter())


@pytest.mark.parametrize("flow", [KEEPS, KEYED, RUNS], ids=["keeps", "keyed", "runs"])
async def test_a_start_that_needs_one_of_them_comes_by_all(counted: tuple[Runtime, Counter[str]], flow: str) -> None:
    runtime, counts = counted
    await runtime.catalog.publish(LOCAL_TENANT, CHILD)
    await start(runtime, flow)
    assert counts == {"pins": 1, "seated": 1, "kept": 1}


async def test_how_many_documents_are_remembered_as_plain_is_bounded(
    counted: tuple[Runtime, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _ = counted
    monkeypatch.setattr(starts, "PLANS_MAX", 2)
    for number in range(5):
        await start(runtime, ASKING.replace("Sure?", f"Sure {number}?"))
    assert len(runtime.starts._plain) <= 2
