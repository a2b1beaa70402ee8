"""A process over several cells shows the numbers of each, with its name, and which of them answer."""

from __future__ import annotations

import re
from collections import Counter
from uuid import uuid4

import httpx2

from hai_flow.cells import place_id
from hai_flow.engine import commands as c
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.telemetry.watching import CELL_SERIES_MAX, CELLS_MAX, Watching
from tests.support.cells import cell, schemas, settle
from tests.support.scraping import Scrape
from tests.support.waiting import until

ASKING = b"""
hai: flow/v1
name: asking
version: 1
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
GONE = cell(2, "postgresql://nobody@127.0.0.1:1/none")


async def test_each_cells_numbers_carry_its_name_and_an_absent_one_is_named(database_url: str) -> None:
    settings = Settings(metrics="127.0.0.1:0", poll_seconds=0.1)
    async with schemas(database_url, 1) as (north,):
        tenant = await settle(database_url, "far", [north])
        watching = Watching(settings)
        home = Runtime(database_url, settings, performs=False, observers=watching.observers)
        cells = Cells(home, [north, GONE], observers=watching.observers_of)
        async with (
            watching.serve(home, cells) as place,
            httpx2.AsyncClient(base_url=place or "", timeout=60) as client,
            cells.lifespan(),
        ):
            await until(lambda: north.name not in cells.away, 30)
            there = cells.at(1)
            _, plan = await there.catalog.publish(tenant, ASKING)
            run_id = place_id(uuid4(), 1)
            start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
            await there.starts.start(tenant, plan, start)

            async def seen() -> str | None:
                text = (await client.get("/metrics")).text
                waiting = 'hai_flow_runs{workflow="asking",status="waiting",cell="cell1"} 1'
                home_too = 'hai_flow_census_age_seconds{cell="home"} '
                return text if waiting in text and home_too in text else None

            text = await until(seen, 60)
        assert text is not None
        lines = text.splitlines()
        assert 'hai_flow_runs_started_total{workflow="asking",cell="cell1"} 1' in lines
        assert 'hai_flow_commit_seconds_count{cell="home"} 0' in lines, "what a cell commits is its own"
        assert 'hai_flow_cell_up{cell="cell1"} 1' in lines
        assert 'hai_flow_cell_up{cell="cell2"} 0' in lines
        assert {each for each in lines if 'cell="cell2"' in each} == {'hai_flow_cell_up{cell="cell2"} 0'}
        declared = Counter(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        assert set(declared.values()) == {1}, "a family is declared once"
        assert all('cell="' in each for each in lines if not each.startswith("#"))
        assert Scrape(text).names()


async def test_a_process_with_one_cell_shows_what_it_always_has(database_url: str) -> None:
    settings = Settings(metrics="127.0.0.1:0")
    watching = Watching(settings)
    home = Runtime(database_url, settings, performs=False, observers=watching.observers)
    cells = Cells(home, observers=watching.observers_of)
    async with watching.serve(home, cells) as place, httpx2.AsyncClient(base_url=place or "", timeout=60) as client:
        async with cells.lifespan():
            assert watching.metrics is not None
            watching.metrics.attach(home)  # as of a cell whose start failed and is tried again
            text = (await client.get("/metrics")).text
        assert len(re.findall(r"^# TYPE hai_flow_commands_queued ", text, re.MULTILINE)) == 1
        assert "hai_flow_commit_seconds_count 0" in text
        assert "cell=" not in text


def test_no_more_than_a_number_of_cells_is_watched_each_with_few_series() -> None:
    watching = Watching(Settings(metrics="127.0.0.1:0"))
    watched = [watching.observers_of(cell(number, f"postgresql://h/{number}")) for number in range(1, CELLS_MAX + 3)]
    assert [bool(each) for each in watched] == [True] * CELLS_MAX + [False] * 2
    (metrics, _) = watched[0]
    for number in range(CELL_SERIES_MAX + 10):
        metrics.runs_started.add(1, (f"w{number}",))  # type: ignore[attr-defined]
    assert len(metrics.runs_started.series) == CELL_SERIES_MAX + 1  # type: ignore[attr-defined]
    assert Watching(Settings()).observers_of(GONE) == ()
