"""Ids are made from what they name. They are kept in logs and databases for ever: no release makes them otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from hai_flow.engine.pendings import open
from hai_flow.engine.state import ids
from tests.support.runs import Play
from tests.support.values import require

RUN = "01900000-0000-7000-8000-000000000001"
OTHER = "01900000-0000-7000-8000-000000000002"


def test_ids_are_those_that_every_release_has_made() -> None:
    assert ids.message_id(RUN, "a/b", 2, 0) == "msg_0df8bd93ae1e337d9c232099958a0397"
    assert ids.pending_id(RUN, "a/b", 1) == "call_agiaaaaaabyabaaaaaaaaaaaae_thjgxdo5axpcmwl2yah6aguhgq"
    assert ids.tool_call_id(RUN, "a/b", 1) == "call_agiaaaaaabyabaaaaaaaaaaaae_ypjwgfobc6in5osep4uvfr7d7q"
    assert ids.derive_child_run_id(RUN, "a/b", 1) == "f62f4410-6e5c-854e-80a3-5b0eb4dd610d"
    assert ids.turn_id(RUN, 3) == f"{RUN}.3"
    assert [ids.jitter(RUN, "a/b", attempt) for attempt in (1, 2)] == [0.9808293599635363, 0.5344731148798019]


def test_a_pending_with_a_shorter_id_is_found_and_its_call_has_that_id() -> None:
    short = ids.derive_short_pending_id(RUN, "a/b", 1)
    assert short == "call_agiaaaaaabyabaaaaaaaaaaaae_99d26b8ddd05"
    assert (ids.is_short(short), ids.is_short(ids.pending_id(RUN, "a/b", 1))) == (True, False)
    assert ids.run_of_pending(short) == UUID(RUN)
    assert ids.tool_call_id(RUN, "a/b", 1, behind=short) == "call_agiaaaaaabyabaaaaaaaaaaaae_c3d36315c117"
    long = ids.tool_call_id(RUN, "a/b", 1)
    assert ids.tool_call_id(RUN, "a/b", 1, behind=ids.pending_id(RUN, "a/b", 0)) == long


def test_keys_of_a_loop_cannot_give_two_questions_one_id() -> None:
    """128 bits: with 48, one of the ids of some millions of keys was that of another (a birthday in 2^24 tries)."""
    made = [ids.pending_id(RUN, "each[1]/gate", 0), ids.tool_call_id(RUN, "each[1]/gate", 0)]
    assert [len(id) - len(ids.call_prefix(RUN)) for id in made] == [26, 26]
    assert {len(id) for id in made} == {58}
    assert len(ids.message_id(RUN, "each[1]/gate", 1, 0)) == len("msg_") + 32


def test_a_gate_that_a_release_before_has_opened_lets_its_call_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play("steps: [{id: a, call: t.f, expose: true, approval: {from: anyone, deadline: 1h}}]", start=False)
    play.is_by_hand = True  # two releases have decided
    monkeypatch.setattr(open, "pending_id", ids.derive_short_pending_id)
    play.start()
    monkeypatch.undo()
    assert ids.is_short(play.pending("a"))
    play.answer("a", decision="approve")
    (call,) = play.state.tool_calls
    assert call == ids.tool_call_id(str(play.run_id), "a", 1, behind=play.pending("a")), "as the client was shown it"
    play.succeed("a", 7)
    assert play.state.tool_calls[call].result == "7"
    assert play.status == "finished"


@pytest.mark.parametrize("make", [ids.pending_id, ids.derive_short_pending_id])
def test_a_pending_is_found_by_step_and_number_whatever_release_opened_it(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[str, str, int], str]
) -> None:
    monkeypatch.setattr(open, "pending_id", make)
    play = Play("steps: [{id: a, call: t.f, approval: {from: anyone, deadline: 1h}}]")
    assert require(ids.pending_of(play.state, "a", 0)).opened.id == make(str(play.run_id), "a", 0)
    assert ids.pending_of(play.state, "a", 1) is None


def test_the_first_question_of_a_call_has_the_id_that_its_model_has_shown() -> None:
    play = Play(
        "models: {smart: {use: smart}}\ntools: {web: {python: acme.web}}\n"
        "steps: [{id: chat, agent: {model: smart, prompt: Go., tools: [web.f]}}]"
    )
    path = "chat[0]/call[x]/web"
    id = ids.derive_model_call_id(str(play.run_id), "chat[0]/call[x]", 1)
    assert ids.find_id_as_written(play.state, path) == id
    assert ids.find_id_as_written(play.state, "other[0]/call[x]/web") is None
    shown = msgspec.structs.replace(play.state, pendings=play.state.pendings.set(id, cast(Any, "the question")))
    assert ids.pending_of(shown, path, 0) == "the question"
    assert ids.pending_of(shown, path, 1) is None, "the next one is another"
    hidden = play.state.pendings.set(ids.pending_id(str(play.run_id), path, 0), cast(Any, "the gate"))
    assert ids.pending_of(msgspec.structs.replace(play.state, pendings=hidden), path, 0) == "the gate"


def test_a_step_beside_one_that_is_called_model_is_shown_by_no_model() -> None:
    play = Play("steps: [{id: a, try: [{id: model, call: t.f}, {id: b, try: [{id: s, call: t.f}]}]}]")
    play.succeed("a/model", 1)
    assert ids.find_id_as_written(play.state, "a/b/s") is None


def test_each_part_of_what_an_id_names_makes_another_id() -> None:
    made = {
        ids.message_id(run, path, attempt, n)
        for run in (RUN, "other") for path in ("a", "b") for attempt in (1, 2) for n in (0, 1)
    }  # fmt: skip
    assert len(made) == 16
    children = {ids.derive_child_run_id(run, path, n) for run in (RUN, OTHER) for path in ("a", "b") for n in (1, 2)}
    assert len(children) == 8


def test_the_id_of_a_child_is_a_uuid_of_our_own_making() -> None:
    for attempt in range(100):
        made = UUID(ids.derive_child_run_id(RUN, "a", attempt))
        assert (made.int >> 76) & 0xF == 8
        assert (made.int >> 62) & 0b11 == 0b10


def test_the_id_of_a_pending_names_its_run() -> None:
    assert ids.run_of_pending(ids.pending_id(RUN, "a", 1)) == UUID(RUN)
    assert ids.run_of_pending(ids.tool_call_id(RUN, "a", 1)) == UUID(RUN)


@pytest.mark.parametrize(
    "id",
    [
        "", "call", "call__", "call_short_x", f"{ids.call_prefix(RUN)}x_y", f"msg_{'a' * 26}_x", f"call_{'a' * 25}_x",
        f"call_{'a' * 27}_x", f"call_{'a' * 25}!_x", f"call_{'a' * 26}_é", f"call_{'é' * 26}_x", f"call_{'0' * 26}_x",
    ],
)  # fmt: skip
def test_what_is_not_of_the_form_of_a_pendings_id_names_no_run(id: str) -> None:
    assert ids.run_of_pending(id) is None


@pytest.mark.parametrize("n", [1, 10, 999_999_999])
def test_the_id_of_a_turn_names_its_run_and_its_number(n: int) -> None:
    assert ids.turn_of(ids.turn_id(RUN, n)) == (UUID(RUN), n)


@pytest.mark.parametrize(
    "id", ["", RUN, f"{RUN}.0", f"{RUN}.01", f"{RUN}.1234567890", f"{RUN}.x", f"x{RUN}.1", f"{RUN}.1\n"]
)
def test_what_is_not_of_the_form_of_a_turns_id_names_no_turn(id: str) -> None:
    assert ids.turn_of(id) is None
