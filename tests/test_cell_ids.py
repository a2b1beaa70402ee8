"""Ids say their cell, and those that other releases have made say home."""

from __future__ import annotations

from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from hai_flow.cells import (
    CELLS_MAX,
    HOME,
    TenantCells,
    cell_in_thread_id,
    cell_of,
    cell_of_address,
    draw_cell,
    place_id,
    sign_address,
)
from hai_flow.engine.state import ids
from hai_flow.primitives import uuids

NUMBERS = st.integers(min_value=1, max_value=CELLS_MAX)
BITS = st.integers(min_value=0, max_value=2**128 - 1)
VERSIONS = st.sampled_from([4, 7, 8])  # of tests; by time; by a digest


@given(BITS, VERSIONS, NUMBERS)
def test_an_id_of_any_make_says_the_cell_that_it_was_placed_in(bits: int, version: int, cell: int) -> None:
    id = place_id(uuids.uuid_of(bits, version), cell)
    assert cell_of(id) == cell
    assert cell_of(UUID(str(id))) == cell
    assert place_id(id, cell) == id
    assert id.version == 6  # one that validators of ids know


@given(BITS, VERSIONS)
def test_an_id_that_another_release_made_is_homes(bits: int, version: int) -> None:
    id = uuids.uuid_of(bits, version)
    assert cell_of(id) == HOME
    assert place_id(id, HOME) == id


@given(BITS, BITS, NUMBERS)
def test_ids_stay_apart_where_the_bits_that_stay_do(one: int, other: int, cell: int) -> None:
    gone = 0xF << 76 | 0b11 << 62 | CELLS_MAX << 52
    same = place_id(uuids.uuid_of(one, 8), cell) == place_id(uuids.uuid_of(other, 8), cell)
    assert same == (one & ~gone == other & ~gone)


@given(st.integers(min_value=0, max_value=2**47), NUMBERS)
def test_later_ids_of_a_cell_sort_later(ms: int, cell: int) -> None:
    assert place_id(uuids.uuid7(ms), cell) < place_id(uuids.uuid7(ms + 1), cell)


@given(BITS, NUMBERS, st.text(max_size=20))
def test_children_questions_and_turns_of_a_run_say_its_cell(bits: int, cell: int, path: str) -> None:
    run = place_id(uuids.uuid_of(bits, 7), cell)
    assert cell_of(UUID(ids.derive_child_run_id(str(run), path, 1))) == cell
    assert ids.run_of_pending(ids.pending_id(str(run), path, 0)) == run
    turn = ids.turn_of(ids.turn_id(str(run), 1))
    assert turn is not None
    assert cell_of(turn[0]) == cell


def test_a_child_of_home_has_the_id_that_it_always_had() -> None:
    assert (
        ids.derive_child_run_id("00000000-0000-4000-8000-000000000001", "a", 1)
        == "8faf5c23-87b8-8626-8c19-56e3681ec92c"
    )


CELLS = st.lists(NUMBERS, min_size=1, max_size=8, unique=True)


@given(st.text(max_size=50), CELLS, st.randoms())
def test_a_name_is_drawn_to_the_same_cell_of_a_set_in_whatever_order(name: str, cells: list[int], any: Random) -> None:
    shuffled = any.sample(cells, len(cells))
    assert draw_cell(name, cells) in cells
    assert draw_cell(name, cells) == draw_cell(name, shuffled)


@given(st.text(max_size=50), CELLS, NUMBERS)
def test_a_further_cell_takes_names_and_moves_none_between_the_others(name: str, cells: list[int], more: int) -> None:
    assert draw_cell(name, [*cells, more]) in (draw_cell(name, cells), more)


@given(BITS, NUMBERS)
def test_a_thread_that_is_named_after_its_first_run_says_its_cell(bits: int, cell: int) -> None:
    run = place_id(uuids.uuid_of(bits, 7), cell)
    assert cell_in_thread_id(str(run)) == cell
    assert cell_in_thread_id(str(run).upper()) in (HOME, cell)
    assert cell_in_thread_id(f"{run} ") == HOME


def test_the_threads_of_a_tenant_spread_over_its_cells() -> None:
    found = [draw_cell(f"thread-{number}", [3, 5, 7, 9]) for number in range(1000)]
    assert all(200 < found.count(cell) < 300 for cell in (3, 5, 7, 9))


def test_a_tenant_begins_nothing_in_a_closed_cell_and_still_reads_it() -> None:
    before, after = TenantCells((3, 5), (3,)), TenantCells((3, 5, 7), (3,), closed=(3,))
    for number in range(200):
        name = f"thread-{number}"
        assert before.anchor(name) == after.anchor(name) == 3
        assert after.place(name) in (5, 7)
    assert after.seat == 3


@given(NUMBERS, st.from_regex(r"[A-Za-z0-9_-]{43}", fullmatch=True))
def test_an_address_says_its_cell_and_one_of_home_is_as_it_was(cell: int, secret: str) -> None:
    assert sign_address(secret, HOME) == secret
    assert cell_of_address(secret) == HOME
    assert cell_of_address(sign_address(secret, cell)) == cell


@given(st.text(max_size=60))
def test_an_address_that_somebody_made_up_says_a_cell_that_there_can_be(text: str) -> None:
    assert HOME <= cell_of_address(text) <= CELLS_MAX
