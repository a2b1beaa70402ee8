"""The bench beside other engines, as far as it needs none of them: it runs for ours, and ours loses nothing there."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.peers import chains, report
from bench.peers.subjects import OUR_AGENT, OUR_CHAIN
from bench.peers.talking import call_tool
from bench.peers.turns import MODEL, POINTS
from bench.peers.world import FREE, World
from tests.support.postgres import Server

TINY = report.Size(chains.Size(rounds=1, runs=8, alone=1), turns=1)
SOME = [point for point in POINTS if point.recording or point.waiting][:3]


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_ours_is_measured_and_killed_and_the_report_has_all_of_it(postgres_server: Server) -> None:
    with ExitStack() as stack:
        chain, agent, reference = (stack.enter_context(postgres_server.database()) for _ in range(3))
        measured = await report.measure(
            {OUR_CHAIN: chain}, {OUR_AGENT: agent}, reference, Path(sys.executable), TINY, SOME
        )
    assert measured["chain"]["to_ours"] == measured["chain"]["to_ours_alone"] == {"ours": 1.0}
    assert measured["chain"]["steps_per_second"]["ours"] > 0
    assert measured["turn"]["turn_in_commits"]["ours"] > 0
    again = [{MODEL: 1}, {FREE: 1}, {}]
    assert measured["turn"]["kills"]["ours"] == {
        point.title: {
            "repeated": repeated,
            "beyond_the_unavoidable": 0,
            "effects_repeated_in_spite_of_a_key": 0,
            "denied_calls_made": 0,
            "asked_a_person_again": 0,
            "finished_rightly": True,
        }
        for point, repeated in zip(SOME, again, strict=True)
    }
    lines = report.table(measured).splitlines()
    assert [line.split()[-1] for line in lines if line.startswith(tuple(point.title for point in SOME))] == ["="] * 3


async def test_a_held_call_is_made_when_released_and_never_when_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World() as world:
        monkeypatch.setenv("BENCH_WORLD", str(world.port))
        for answered in (True, False):
            world.forget(f"{FREE} asked")
            calling = asyncio.create_task(call_tool(FREE, 1, "k"))
            await world.reached.wait()
            assert world.made == []
            world.release(answered=answered)
            if answered:
                assert await calling == 1
                assert world.made == [(FREE, 1, "k")]
            else:
                with pytest.raises(asyncio.IncompleteReadError):
                    await calling
                assert world.made == []
