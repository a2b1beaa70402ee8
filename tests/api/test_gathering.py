"""Pages over several cells, each of which may have looked at a part: all of them together show everything once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.api.requests import cross_cell
from hai_flow.api.requests.access import Access
from hai_flow.errors import Rejected


def _access(*cells: int) -> Access:
    """A tenant's access, as far as a list is concerned."""
    made: list[Any] = [SimpleNamespace(cell=cell) for cell in cells]
    for each in made:
        each.living = SimpleNamespace(is_large=len(cells) > 1)
        each.everywhere = made
        each.cells = SimpleNamespace(name=lambda number: f"cell{number}")
    return cast("Access", made[0])


async def _pages(rows: dict[int, list[int]], limit: int, looked_at: int, *, newest_first: bool) -> list[int]:
    """All pages one after the other. A cell looks at so many of its rows for a page, and shows the even ones."""
    ordered = {cell: sorted(found, reverse=newest_first) for cell, found in rows.items()}
    shown, after = list[int](), None
    for _ in range(200):

        async def ask(access: Access, after: int | None = after) -> tuple[Sequence[int], int | None]:
            behind = [
                each for each in ordered[access.cell]
                if after is None or (each < after if newest_first else each > after)
            ]  # fmt: skip
            seen, found = behind[:looked_at], list[int]()
            for each in seen:
                if each % 2 == 0:
                    found.append(each)
                if len(found) == limit:
                    return found, each
            return found, seen[-1] if len(behind) > looked_at else None

        page = await cross_cell.page(_access(*rows), ask, lambda row: row, limit, newest_first=newest_first)
        assert len(page.rows) <= limit
        assert all(row in rows[where.cell] for where, row in page.rows)
        shown += [row for _, row in page.rows]
        after = page.following
        if after is None:
            return shown
    raise AssertionError("it comes to no end")


@given(
    st.lists(st.integers(0, 400), unique=True, max_size=60), st.lists(st.sampled_from([1, 2, 3]), min_size=60),
    st.integers(1, 7), st.integers(1, 9), st.booleans(),
)  # fmt: skip
async def test_all_pages_together_show_everything_once_and_in_order(
    numbers: list[int], cells: list[int], limit: int, looked_at: int, newest_first: bool
) -> None:
    rows: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for number, cell in zip(numbers, cells, strict=False):
        rows[cell].append(number)
    shown = await _pages(rows, limit, looked_at, newest_first=newest_first)
    assert shown == sorted((each for each in numbers if each % 2 == 0), reverse=newest_first)


async def test_nothing_is_shown_behind_the_place_where_a_cell_stopped_looking() -> None:
    async def ask(access: Access) -> tuple[Sequence[int], int | None]:
        return ([9], 8) if access.cell == 1 else ([7, 6], None)

    page = await cross_cell.page(_access(1, 2), ask, lambda row: row, 5)
    assert ([row for _, row in page.rows], page.following) == ([9], 8)


async def test_a_cell_that_is_away_is_named_and_the_others_are_asked() -> None:
    async def ask(access: Access) -> tuple[Sequence[int], int | None]:
        if access.cell == 2:
            raise Rejected(503, "cell_away", "it is away.")
        if access.cell == 3:
            raise ConnectionResetError("it goes away just now")
        return [1], None

    page = await cross_cell.page(_access(1, 2, 3), ask, lambda row: row, 5)
    assert ([row for _, row in page.rows], page.missing) == ([1], ["cell2", "cell3"])


async def test_where_no_cell_is_there_the_list_is_refused() -> None:
    async def ask(access: Access) -> tuple[Sequence[int], int | None]:
        raise Rejected(503, "cell_away", "it is away.")

    with pytest.raises(Rejected, match="it is away"):
        await cross_cell.page(_access(1, 2), ask, lambda row: row, 5)


async def test_a_refusal_is_not_taken_for_a_cell_that_is_away() -> None:
    async def ask(access: Access) -> tuple[Sequence[int], int | None]:
        raise Rejected(403, "right_missing", "this is not for you.")

    with pytest.raises(Rejected, match="not for you"):
        await cross_cell.page(_access(1, 2), ask, lambda row: row, 5)
