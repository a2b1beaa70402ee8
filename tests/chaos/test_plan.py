"""A plan is drawn from the seed alone, and has what a campaign of its length should have."""

from __future__ import annotations

from collections import Counter

import pytest
from hai_flow_chaos.plan import RATES, Campaign, names, planned
from hypothesis import given, settings
from hypothesis import strategies as st

campaigns = st.builds(
    Campaign,
    seed=st.integers(0, 10**6),
    minutes=st.floats(0.2, 30),
    servers=st.integers(1, 5),
    workers=st.integers(1, 6),
)


@settings(max_examples=50)
@given(campaigns)
@pytest.mark.slow
def test_a_campaign_has_a_repeatable_plan_and_each_fault_ends_in_time(campaign: Campaign) -> None:
    plan = planned(campaign)
    assert plan == planned(campaign)
    servers, workers = names(campaign)
    for fault in plan:
        assert 0 <= fault.at <= fault.ends <= campaign.seconds + 0.5
        assert fault.whom in {*servers, *workers, "postgres", "others", "all"}
    assert {fault.kind for fault in plan} == {*RATES, "deafen", "freeze"}


def test_another_seed_gives_another_plan() -> None:
    assert planned(Campaign(1)) != planned(Campaign(2))


@pytest.mark.parametrize("seed", range(20))
def test_a_campaign_kills_a_hundred_processes_and_is_deaf_for_a_minute(seed: int) -> None:
    plan = planned(Campaign(seed, minutes=12, runs=2000))
    counts = Counter(fault.kind for fault in plan)
    assert counts["kill_worker"] + counts["kill_server"] >= 100
    assert counts["crash_postgres"] >= 3
    assert counts["cut"] >= 100
    assert counts["stall"] >= 20
    (deaf,) = [fault for fault in plan if fault.kind == "deafen"]
    assert deaf.seconds == 60


@pytest.mark.parametrize("seed", range(20))
def test_each_stall_of_a_short_campaign_outlasts_the_lease(seed: int) -> None:
    campaign = Campaign(seed, minutes=0.35, servers=2, workers=2, runs=60)
    plan = planned(campaign)
    assert all(fault.seconds >= campaign.lease for fault in plan if fault.kind == "stall")
    counts = Counter(fault.kind for fault in plan)
    assert counts["lose_answers"] > RATES["lose_answers"][1]
    assert counts["crash_postgres"] >= 2


def test_a_campaign_says_how_to_repeat_it() -> None:
    campaign = Campaign(7, minutes=0.5, servers=2, workers=1, runs=9, settle=30)
    assert campaign.command == "hai-flow chaos --seed 7 --minutes 0.5 --servers 2 --workers 1 --runs 9 --settle 30"
