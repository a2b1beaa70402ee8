"""Values of others that are odd: whatever they hold, a run gets what can be kept of them, and a note on the rest."""

from __future__ import annotations

import json
import math
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow import foreign, values
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.errors import StepError
from hai_flow.models.structured import read_answer
from hai_flow.models.turn import Turn
from hai_flow.models.vocabulary import CallArgs, CallStart, Finish
from hai_flow.steps.python.signatures import plain
from hai_flow.steps.tools import read_function

BIG = 1234567890123456789


@dataclass
class Order:
    id: int
    tags: set[int]


class Receipt(pydantic.BaseModel):
    n: int
    at: datetime | None


class Level(Enum):
    LOW = "low"


class Text(str):
    __slots__ = ()


class Unreadable:
    def __repr__(self) -> str:
        raise ValueError("no text")


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'\xef\xbb\xbf{"ok": true}', {"ok": True}),
        ("\ufeff[1]", [1]),
        (b'{"id": 1234567890123456789}', {"id": "1234567890123456789"}),
        (b"[-9007199254740992, 9007199254740991]", ["-9007199254740992", 9007199254740991]),
        (b"[1e400, -1E+999, NaN, -Infinity, 1.5]", ["1e400", "-1E+999", "NaN", "-Infinity", 1.5]),
        (b"9" * 5000, "9" * 5000),
        (b'{"a\\u0000": "\\ud83d", "b": "\\ud83d\\ude80"}', {"a\ufffd": "\ufffd", "b": "🚀"}),
        ('"\ud800"', "\ufffd"),
        (b'"a\xff"', "a\ufffd"),
        (b'"a\nb"', "a\nb"),
    ],
)
def test_json_of_others_is_read_with_its_odd_parts_as_text(text: bytes | str, value: Any) -> None:
    assert foreign.read(text).value == value


def test_what_is_nested_too_deep_is_its_json_text() -> None:
    value, notes = foreign.read(b"[" * 80 + b'{"a": 1}' + b"]" * 80)
    for _ in range(values.DEPTH_MAX):
        (value,) = value
    assert value == "[" * 16 + '{"a":1}' + "]" * 16
    assert "deeper than 64" in notes[0]


def test_a_note_names_the_place_and_a_tidy_value_has_none() -> None:
    assert foreign.read('{"a/b": [0, 1234567890123456789]}').notes == (
        "/a~1b/1: an integer beyond 2^53 is kept as text",
    )
    assert foreign.read('{"a": 1}').notes == ()


@pytest.mark.parametrize("text", [b"<html>", b"", b"{", b"[" * 100_000, b'{"a": 1} x'])
def test_what_is_no_json_is_told(text: bytes) -> None:
    with pytest.raises(values.NotJson):
        foreign.read(text)


async def test_big_integers_are_refused_where_the_author_says_so() -> None:
    def receipt() -> dict[str, int]:
        return {"id": BIG}

    signature = read_function(receipt).signature
    assert await signature.output({"id": BIG}) == {"id": str(BIG)}
    with pytest.raises(StepError, match="refuse") as raised:
        await signature.output({"id": BIG}, "refuse")
    assert str(BIG) in raised.value.data["text"]
    with pytest.raises(values.NotJson, match="/id: an integer beyond"):
        foreign.read(b'{"id": 1234567890123456789}', "refuse")


@given(ODD)
def test_every_value_of_python_s_json_can_be_held_by_a_run(value: Any) -> None:
    kept = foreign.take(value).value
    values.check(kept)
    assert values.loads(values.dumps(kept)) == kept
    read = foreign.read(json.dumps(value)).value
    values.check(read)


@given(st.integers())
def test_no_digit_of_an_integer_is_lost(number: int) -> None:
    kept = foreign.read(str(number)).value
    assert int(kept) == number
    assert JsonSchema({"type": "integer"}).fit(kept) == (number, [])


def test_digits_become_an_integer_again_only_where_the_schema_wants_one() -> None:
    either = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    schema = JsonSchema({"properties": {"id": {"type": "integer"}, "or": either, "phone": {"type": "string"}}})
    digits = str(BIG)
    fitted, faults = schema.fit({"id": digits, "or": digits, "phone": digits})
    assert (fitted, faults) == ({"id": BIG, "or": BIG, "phone": digits}, [])
    assert [each["path"] for each in schema.fit({"id": "17"})[1]] == ["/id"], "a small one was written as text"


# --- the doors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        ({"order": BIG}, {"order": str(BIG)}),
        ([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
        ({"\x00": "a\ud800"}, {"\ufffd": "a\ufffd"}),
        ([datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1)], ["2026-01-01T00:00:00Z", "2026-01-01"]),
        ({"sum": Decimal("1.10"), "id": UUID(int=1)}, {"sum": "1.10", "id": str(UUID(int=1))}),
        ([timedelta(days=2), b"x", PurePosixPath("/a")], ["P2D", "eA==", "/a"]),
        ([Order(1, {2}), Receipt(n=1, at=None), Level.LOW], [{"id": 1, "tags": [2]}, {"n": 1, "at": None}, "low"]),
        ({1: "a", None: deque([1]), (1, 2): range(2)}, {"1": "a", "null": [1], "[1,2]": [0, 1]}),
        ({"a": OrderedDict(b=MappingProxyType({"c": Text("d")}))}, {"a": {"b": {"c": "d"}}}),
        ({"bad": Unreadable(), "n": [1j, math.nan, {2**60}]}, {"bad": "Unreadable", "n": ["1j", "NaN", [str(2**60)]]}),
        ([10**5000], [f"{10**5000:#x}"]),
    ],
)
def test_a_tool_that_has_done_its_work_finishes_with_an_odd_result(result: Any, kept: Any) -> None:
    assert plain(result) == kept


@pytest.mark.parametrize("result", [object(), {1: "a", "1": "b"}, {"a": iter([1])}, [map(str, [1])], print])
def test_a_result_that_has_no_form_in_json_is_in_the_error_s_data(result: Any) -> None:
    with pytest.raises(StepError) as failed:
        plain(result)
    assert failed.value.data == {"text": repr(result)}


async def test_a_result_unlike_its_annotation_is_in_the_data_bytes_are_kept() -> None:
    def pay() -> int:
        return "paid 7"  # type: ignore[return-value]

    with pytest.raises(StepError) as failed:
        await read_function(pay).signature.output(pay())
    assert failed.value.data["text"] == "'paid 7'"
    assert failed.value.data["faults"][0]["path"] == ""

    def draw() -> bytes:
        return b"\xff"

    assert await read_function(draw).signature.output(draw()) == "/w=="


@pytest.mark.parametrize(
    ("annotation", "result", "kept"),
    [
        (datetime, datetime(2026, 1, 1), "2026-01-01T00:00:00"),
        (list[datetime], [datetime(2026, 1, 1)], ["2026-01-01T00:00:00"]),
        (clock, clock(1, 2), "01:02:00"),
        (timedelta, timedelta(days=-3), "-P3D"),
        (list[float], [1.5, float("nan")], [1.5, "NaN"]),
        (dict[str, float], {"a": float("-inf")}, {"a": "-Infinity"}),
    ],
)
async def test_a_result_as_its_annotation_says_is_kept_in_whatever_form(
    annotation: Any, result: Any, kept: Any
) -> None:
    def work() -> Any: ...

    work.__annotations__["return"] = annotation
    assert await read_function(work).signature.output(result) == kept


async def test_a_function_that_takes_an_integer_gets_one_of_nineteen_digits() -> None:
    def delete(id: int, note: str) -> int:
        return id

    signature = read_function(delete).signature
    assert signature.arguments({"id": str(BIG), "note": str(BIG)}) == {"id": BIG, "note": str(BIG)}
    assert await signature.output(BIG) == str(BIG)


def test_a_model_s_call_and_answer_may_have_nineteen_digits() -> None:
    turn = Turn()
    for piece in (CallStart("c", "delete"), CallArgs("c", f'{{"id": {BIG}}}'), Finish("stop")):
        turn.add(piece)
    schema = JsonSchema({"type": "object", "properties": {"id": {"type": "integer"}}})
    assert turn.call_faults({"delete": schema}) == {}
    assert read_answer(f'{{"id": {BIG}}}', schema) == ({"id": str(BIG)}, "")


@pytest.mark.parametrize("number", [1e300, 5e-324, -1.7976931348623157e308])
def test_many_extreme_floats_are_refused_before_reading_and_texts_are_not(number: float) -> None:
    few = [number] * values.EXTREMES_MAX
    assert foreign.take(few).value == foreign.read(values.dumps(few)).value == few
    many = values.dumps([number] * 50_000)
    for read in (
        lambda: foreign.read(many),
        lambda: foreign.read(many.decode()),
        lambda: foreign.take([few, number]),
        lambda: foreign.take([2**60, few, number]),
    ):
        begun = time.thread_time()
        with pytest.raises(values.TooExtreme, match="more than 500 numbers"):
            read()
        assert time.thread_time() - begun < 0.2
    text = [",".join(["1e300"] * 1_000) + ","]
    assert foreign.read(values.dumps(text)).value == text
