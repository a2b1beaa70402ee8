"""JSON Pointers: RFC 6901, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.primitives.json_pointers import NotAPointer, find_key, parse_pointer, pointer_of, read_index
from tests.support.examples import examples


@given(st.lists(st.text()))
@settings(max_examples=examples(100), deadline=None)
def test_a_pointer_reads_back_as_it_was_written(parts: list[str]) -> None:
    assert parse_pointer(pointer_of(*parts)) == tuple(parts)


@pytest.mark.parametrize(
    ("pointer", "parts"),
    [("", ()), ("/", ("",)), ("/a~1b/m~0n", ("a/b", "m~n")), ("/~01", ("~1",)), ("/0/-", ("0", "-"))],
)
def test_a_pointer_is_read_as_the_rfc_says(pointer: str, parts: tuple[str, ...]) -> None:
    assert parse_pointer(pointer) == parts
    assert pointer_of(*parts) == pointer


@pytest.mark.parametrize(
    ("part", "index"),
    [
        ("0", 0),
        ("12", 12),
        ("01", None),
        ("-", None),
        ("", None),
        ("\u00b2", None),
        ("\u0663", None),
        ("9" * 5_000, None),
    ],
    ids=lambda each: str(each)[:9],
)
def test_a_part_is_the_position_that_it_is_written_as(part: str, index: int | None) -> None:
    assert read_index(part) == index


@pytest.mark.parametrize(
    ("holder", "part", "key"),
    [
        ({"a": None}, "a", "a"), ({"a": 1}, "b", None), ({"0": 1}, "0", "0"), ({}, "0", None), (["x"], "0", 0),
        (["x"], "1", None), ([], "0", None), (["x"], "-", None), (["x"], "a", None), ("text", "0", None),
    ],
)  # fmt: skip
def test_a_part_means_what_its_holder_has(holder: Any, part: str, key: str | int | None) -> None:
    assert find_key(holder, part) == key


@pytest.mark.parametrize("text", ["a", "a/b", None, 1])
def test_what_does_not_begin_with_a_slash_is_none(text: Any) -> None:
    with pytest.raises(NotAPointer, match="expected a JSON Pointer"):
        parse_pointer(text)
