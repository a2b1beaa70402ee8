"""The client's events are the log's, as REST shows them; what it does not know it lets pass."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hai_flow_client import events as client
from hai_flow_client.events import UnknownEvent, read_event
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow import values
from hai_flow.engine import events as engine
from hai_flow.wire.dialects.log import event_json

TIMES = ("at", "due", "deadline")
JSON_TEXTS = ("args", "evidence")

ENGINE = {str(kind.__struct_config__.tag): kind for kind in engine.EVENT_TYPES}


def fields_of(kind: type[Any]) -> dict[str, tuple[bool, Any]]:
    """Each field as it is called on the wire: whether it must be there, and what it is otherwise."""
    return {
        each.encode_name: (each.required, None if each.required else each.default)
        for each in msgspec.structs.fields(kind)
    }


def test_the_client_knows_every_event_of_the_log_and_no_other() -> None:
    assert set(client.EVENT_TYPES) == set(ENGINE)
    assert set(get_args(client.AnyEvent)) == {*client.EVENT_TYPES.values(), UnknownEvent}
    assert set(client.TERMINAL) == {kind.__struct_config__.tag for kind in engine.TERMINAL}


@pytest.mark.parametrize("name", sorted(ENGINE))
def test_an_event_has_the_fields_of_the_log_and_its_seq(name: str) -> None:
    assert fields_of(client.EVENT_TYPES[name]) == {"seq": (True, None), **fields_of(ENGINE[name])}


@pytest.mark.parametrize("name", ["Error", "Pin", "Parent", "UserMessage", "ModelUse"])
def test_a_part_of_an_event_has_the_fields_of_the_logs(name: str) -> None:
    ours, theirs = fields_of(getattr(client, name)), fields_of(getattr(engine, name))
    if name == "Error":
        theirs["at"] = (False, None)  # RFC 3339 where it is there
    assert ours == theirs


# --- read back ----------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)
JSON = st.none() | st.booleans() | st.integers(-9, 9) | TEXT | st.lists(st.integers(0, 9), max_size=2)
MOMENT = st.integers(1, 4_000_000_000_000)


def some(kind: Any, name: str) -> st.SearchStrategy[Any]:
    """Values that a field of an engine's event can have."""
    if name in TIMES and kind is int:
        return MOMENT
    if name in JSON_TEXTS and kind is str:
        return JSON.filter(lambda value: value is not None).map(lambda value: values.dumps(value).decode())
    if kind is Any:
        return JSON
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return instances(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        return st.lists(some(inner[0], ""), max_size=2).map(tuple)
    if origin is list:
        return st.lists(some(inner[0], ""), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXT, some(inner[1], ""), max_size=2)
    if inner and origin is not None and str(origin) == "typing.Literal":
        return st.sampled_from(inner)
    if inner and (origin is Union or str(origin) == "<class 'types.UnionType'>"):
        return st.one_of([st.none() if each is type(None) else some(each, name) for each in inner])
    return {str: TEXT, int: st.integers(0, 1000), float: st.floats(0, 9), bool: st.booleans()}[kind]


@cache
def instances(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any record of a kind, as it can be stored."""
    hints = get_type_hints(kind)
    given = {name: some(hint, name) for name, hint in hints.items() if name != "cause"}
    if "cause" in hints:  # of an error, once more an error: one is enough
        given["cause"] = st.none() | st.just(engine.Error("mine", "broken", at=5))
    return st.builds(kind, **given)


def shown(event: Any) -> Any:
    """A client's event as plain JSON, with times as REST writes them."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value

    return plain(msgspec.to_builtins(event, builtin_types=(datetime,)))


@pytest.mark.costly
@pytest.mark.parametrize("name", sorted(ENGINE))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_an_event_says_what_rest_said_of_it(name: str, data: st.DataObject) -> None:
    said = json.loads(values.dumps(event_json(7, data.draw(instances(ENGINE[name])))))
    event = read_event(said)
    assert type(event) is client.EVENT_TYPES[name]
    assert (event.type, event.seq) == (name, 7)
    # The turn is told even where it is 0, its default.
    assert {"turn": 0, **shown(event)} == said


# --- newer servers ------------------------------------------------------------------------------------------------

COMMON = {"seq": 3, "at": "2026-03-02T09:00:00.000Z", "turn": 1}


def test_an_event_that_nobody_knew_is_kept_as_it_is() -> None:
    event = read_event({**COMMON, "type": "run_teleported", "to": "mars"})
    assert isinstance(event, UnknownEvent)
    assert (event.seq, event.type, event.turn, event.fields) == (3, "run_teleported", 1, {"to": "mars"})


def test_a_field_that_nobody_knew_is_left_out() -> None:
    event = read_event({**COMMON, "type": "run_finished", "output": 1, "cost": 3})
    assert event == client.RunFinished(seq=3, at=event.at, turn=1, output=1)


def test_a_known_event_that_says_something_else_is_not_misread() -> None:
    event = read_event({**COMMON, "type": "run_paused", "by": {"user": "ann"}})
    assert isinstance(event, UnknownEvent)
    assert (event.type, event.fields) == ("run_paused", {"by": {"user": "ann"}})


def test_a_word_that_nobody_knew_is_read() -> None:
    event = read_event({**COMMON, "type": "pending_opened", "id": "p", "path": "x", "kind": "bet", "digest": "00"})
    assert isinstance(event, client.PendingOpened)
    assert event.kind == "bet"


@pytest.mark.parametrize(
    "wrong", [{}, {"type": "x"}, {**COMMON, "type": []}, {**COMMON, "type": 3}, {**COMMON, "type": "x", "at": "soon"}]
)
def test_what_is_no_event_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_event(wrong)
