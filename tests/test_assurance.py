"""The page of assurance is true: every requirement that is met names tests that are there and are not skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from docs import assurance_page
from docs.assurance_page import CHAPTERS, Chapter, Requirement


@pytest.mark.slow
def test_every_test_that_the_page_names_is_there_and_is_not_skipped() -> None:
    assert assurance_page.faults() == []


def test_the_page_is_up_to_date() -> None:
    assert assurance_page.PAGE.read_text() == assurance_page.page(), "run `make docs`"


def test_no_requirement_stands_there_twice() -> None:
    numbers = [each.number for each in assurance_page.requirements()]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tests": ("engine/test_approvals.py::test_nothing",)}, "there is no such test"),
        ({"tests": ("engine/test_absent.py::test_nothing",)}, "there is no such test"),
        ({"tests": ()}, "met, with 0 tests"),
        ({"status": "not met"}, "not met, with 4 tests"),
        ({"status": "deployment", "tests": ()}, "`doctor` looks at nothing for it"),
        ({"doctor": ("receipts.absent",)}, "no finding has it"),
    ],
)
def test_a_promise_without_its_test_is_a_fault(
    change: dict[str, object], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirement: Requirement = replace(CHAPTERS[0].requirements[0], **change)  # type: ignore[arg-type]
    monkeypatch.setattr(assurance_page, "CHAPTERS", (Chapter("One", (requirement,)),))
    assert fault in assurance_page.faults()[0]
