"""A rate bounds what each name does in a minute, and remembers only so many names."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.api.permissions.rate_limits import TICKETS_MAX, Rate, TicketRate
from hai_flow.errors import Rejected
from hai_flow.settings import Settings


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_a_minute_holds_may_be_done_at_once_and_then_as_time_passes() -> None:
    clock = Clock()
    rate = Rate(60, clock=clock)
    assert [rate.take("a") for _ in range(60)] == [0.0] * 60
    assert round(rate.take("a"), 6) == 1.0
    assert rate.take("b") == 0.0
    clock.now += 1.0
    assert rate.take("a") == 0.0
    assert rate.take("a") > 0
    clock.now += 3600.0
    assert [rate.take("a") for _ in range(60)] == [0.0] * 60
    assert rate.take("a") > 0


@given(st.integers(1, 50), st.lists(st.floats(0, 5), max_size=200))
def test_nobody_does_more_in_any_minute_than_twice_what_it_holds(per_minute: int, pauses: list[float]) -> None:
    clock, done = Clock(), []
    rate = Rate(per_minute, clock=clock)
    for pause in pauses:
        clock.now += pause
        if rate.take("a") == 0.0:
            done.append(clock.now)
    for began in done:
        assert sum(began <= each <= began + 60 for each in done) <= 2 * per_minute


@given(st.integers(1, 20), st.lists(st.integers(0, 200), max_size=300))
def test_many_names_do_not_fill_the_memory(names_max: int, names: list[int]) -> None:
    rate = Rate(3, names_max=names_max, clock=Clock())
    for name in names:
        rate.take(str(name))
        assert len(rate) <= names_max


def test_tickets_of_a_principal_are_limited_by_the_minute_with_retry_after() -> None:
    rate, tenant = TicketRate(replace(Settings(), identity="keys")), uuid4()
    for _ in range(TICKETS_MAX):
        rate.take(tenant, "user:ann")
    with pytest.raises(Rejected) as refused:
        rate.take(tenant, "user:ann")
    assert (refused.value.status, refused.value.code) == (429, "tickets.too_often")
    assert (refused.value.retry_after or 0) >= 1
    rate.take(tenant, "user:bob")
    rate.take(uuid4(), "user:ann")


def test_where_everybody_is_the_same_person_tickets_are_not_counted() -> None:
    rate = TicketRate(Settings())
    for _ in range(2 * TICKETS_MAX):
        rate.take(uuid4(), "user:local")
