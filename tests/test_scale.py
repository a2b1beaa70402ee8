"""docs/scale.md: its table is what the measured costs come to, and its numbers are metrics that there are."""

from __future__ import annotations

import re

from docs import scale_page
from hai_flow.telemetry.database_gauges import Census
from hai_flow.telemetry.metrics import Metrics


def test_the_table_is_computed_from_what_was_measured() -> None:
    assert scale_page.PAGE.read_text() == scale_page.page(), "run make docs"


def test_the_table_reaches_a_hundred_million_waiting_runs_in_cells() -> None:
    rows = scale_page.table().splitlines()[2:]
    assert rows[-1].startswith("| 100,000,000 |")
    assert rows[-1].endswith("| 10 |")


def test_the_numbers_that_the_page_tells_to_watch_are_shown() -> None:
    metrics = Metrics()
    Census(metrics)
    named = set(re.findall(r"`hai_flow_(\w+)`", scale_page.PAGE.read_text()))
    known = {family.name.removeprefix("hai_flow_") for family in metrics.collect()}
    elsewhere = {"committer_stalled_seconds", "followers", "database_connections"}  # of a runtime that is attached
    assert named
    assert named <= known | elsewhere
