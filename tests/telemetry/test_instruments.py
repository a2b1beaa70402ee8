"""Counting, and what Prometheus reads of it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hai_flow.telemetry.instruments import OTHER, SERIES_MAX, Distribution, Sum
from tests.support.scraping import scraped

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20)


@given(st.dictionaries(TEXTS, st.integers(0, 10**12) | st.floats(0, 1e9, allow_subnormal=False), max_size=20))
def test_prometheus_reads_what_was_counted_whatever_the_labels_hold(amounts: dict[str, float]) -> None:
    counted = Sum("counter", "hai_flow_things_total", 'A line\nand "another" \\ one.', ("kind",))
    for kind, amount in amounts.items():
        counted.add(amount / 2, (kind,))
        counted.add(amount / 2, (kind,))
    read = scraped([counted])
    assert {kind: read.value("things_total", kind=kind) for kind in amounts} == amounts


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_distribution_counts_each_observation_below_every_larger_bound(seen: list[float]) -> None:
    spread = Distribution("hai_flow_wait_seconds", "A wait.", bounds=(0.5, 1.0, 10.0))
    for value in seen:
        spread.observe(value)
        if value > 50:
            spread.count()
    spread.count()
    read = scraped([spread])
    for bound in ("0.5", "1", "10"):
        assert read.value("wait_seconds_bucket", le=bound) == sum(value <= float(bound) for value in seen)
    assert read.value("wait_seconds_bucket", le="+Inf") == read.value("wait_seconds_count") == len(seen)
    total = read.value("wait_seconds_sum")
    assert total is not None
    assert math.isclose(total, sum(seen))


def test_series_beyond_the_bound_count_as_one() -> None:
    counted = Sum("counter", "hai_flow_things_total", "Things.", ("workflow", "verb"))
    spread = Distribution("hai_flow_wait_seconds", "A wait.", ("workflow",))
    for number in range(SERIES_MAX + 50):
        for _ in range(2):
            counted.add(1, (f"w{number}", "call"))
            spread.observe(1.0, (f"w{number}",))
    spread.count()
    assert len(counted.series) == len(spread.series) == SERIES_MAX + 1
    assert sum(counted.series.values()) == 2 * (SERIES_MAX + 50)
    assert counted.series[OTHER, OTHER] == sum(spread.series[OTHER,]) == 100


def test_a_gauge_stands_where_it_was_put_last_and_forgets_what_is_no_more() -> None:
    gauge = Sum("gauge", "hai_flow_runs", "Runs.", ("status",))
    gauge.put(7, ("waiting",))
    gauge.put(3, ("waiting",))
    assert scraped([gauge]).value("runs", status="waiting") == 3
    gauge.clear()
    assert not scraped([gauge]).samples
