"""The campaign of forks in small (`tests/chaos/forks.py`): servers are killed, and no work is nobody's."""

from __future__ import annotations

import pytest

from tests.chaos.forks import campaign
from tests.support.examples import SEED, by_night
from tests.support.postgres import Server


@pytest.mark.timeout(600)
async def test_all_work_is_undone_or_owned_after_random_forks_stops_and_kills(postgres_server: Server) -> None:
    print(f"seed {SEED}: python -m tests.chaos.forks --seed {SEED}")
    with postgres_server.database() as dsn:
        report = await campaign(dsn, seed=SEED, seconds=by_night(20.0, 10.0), kill_every=by_night(6.0, 3.0))
    assert report.faults == []
    assert report.forks > by_night(3, 0)  # how many fit into the time, the machine decides
    assert report.kills
