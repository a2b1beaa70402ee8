"""Twenty seconds of the campaign of forks (`tests/chaos/forks.py`): servers are killed, and no work is nobody's."""

from __future__ import annotations

import os
import random

import pytest

from tests.chaos.forks import campaign
from tests.support.postgres import Server


@pytest.mark.timeout(600)
async def test_all_work_is_undone_or_owned_after_random_forks_stops_and_kills(
    postgres_server: Server,
) -> None:
    seed = int(os.environ.get("HAI_FLOW_TEST_SEED") or random.randrange(10**6))
    print(f"seed {seed}: python -m tests.chaos.forks --seed {seed}")
    with postgres_server.database() as dsn:
        report = await campaign(dsn, seed=seed, seconds=20.0, kill_every=6.0)
    assert report.faults == []
    assert report.forks > 3
    assert report.kills
