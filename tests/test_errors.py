"""What a sentence of ours names is told beside it, for readers of other languages."""

from __future__ import annotations

import pytest

from hai_flow.errors import Finding, particulars


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("unknown key `retrun`; did you mean `return`? There is no `retrun`", ["retrun", "return"]),
        ("there is no run 'x-1', and that is nobody's fault", ["x-1"]),
        ('expected one of "a" or "b"', ["a", "b"]),
        ("nothing is named", []),
        (f"`{'a' * 999}`", ["a" * 120]),
        (" ".join(f"`k{n}`" for n in range(50)), [f"k{n}" for n in range(6)]),
    ],
)
def test_what_stands_in_quotes_is_told_each_once_and_bounded(message: str, named: list[str]) -> None:
    assert particulars(message) == named


def test_a_finding_carries_what_it_names() -> None:
    assert Finding("f", 1, 1, "error", "shape.unknown_key", "no `x` here").as_dict()["params"] == ["x"]
