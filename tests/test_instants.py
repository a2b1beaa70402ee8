"""Instants: texts as RFC 3339 has them, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow
from hai_flow.primitives.instants import instant, read_rfc3339, rfc3339
from tests.support.runs import HEAD

NINE = 1_772_442_000_000  # 2026-03-02T09:00:00Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-03-02T09:00:00Z", NINE),
        ("2026-03-02t09:00:00z", NINE),
        ("2026-03-02T10:00:00+01:00", NINE),
        ("2026-03-02T10:00:00+0100", NINE),
        ("2026-03-02T09:00:00.5Z", NINE + 500),
        ("2026-03-02T09:00:00.1239999Z", NINE + 123),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
    ],
)
def test_an_instant_is_read_in_each_form_that_the_rfc_allows(text: str, ms: int) -> None:
    assert read_rfc3339(text) == ms


@given(st.integers(0, 253_402_300_799_999))
def test_an_instant_that_is_written_is_read_as_itself(ms: int) -> None:
    assert rfc3339(ms) == instant(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert read_rfc3339(rfc3339(ms)) == ms == read_rfc3339(instant(ms).isoformat(timespec="milliseconds").lower())


REFUSED = [
    "2026-03-02 09:00:00Z", "2026-03-02T09:00:00", "2026-03-02T09:00Z", "2026-02-30T09:00:00Z", "20260302T090000Z",
    "2026-03-02T24:00:00Z", "2026-03-02T09:00:60Z", "2026-03-02T09:00:00+24:00", "2026-03-02T09:00:00Z ", "tomorrow",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_other_texts_are_refused_at_validation_and_at_run_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_rfc3339(text)
    (finding,) = check_workflow(f'{HEAD}steps: [{{wait: {{until: "{text}"}}}}]\n'.encode())
    assert finding.code == "wait.until"
