"""Lists of a tenant that lives in several cells. No list's order depends on cells, and a cursor is a place in that
order: each cell is asked for a page behind the same place, and no page passes over a row that only one cell has. A cell
that is away is named in `missing`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar
from uuid import UUID

import structlog

from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.pagination import encode_cursor
from hai_flow.api.requests.run_visibility import RunFacts
from hai_flow.api.requests.schemas import Item
from hai_flow.errors import Rejected
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs.run_lists import RunRow, RunSummary

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """The answer of each cell, with the access to it, and the names of the cells that could not be asked."""

    by_cell: Sequence[tuple[Access, T]]
    missing: list[str]


async def ask_all_cells(access: Access, ask: Callable[[Access], Awaitable[T]]) -> Gathered[T]:
    """The answer of `ask` in each cell of the tenant. Raises Rejected 503 where none of the cells is there."""
    if not access.living.is_large:
        return Gathered([(access, await ask(access))], [])
    cells = access.everywhere
    answers = await asyncio.gather(*(_ask_cell(each, ask) for each in cells))
    answered = [
        (each, answer.value) for each, answer in zip(cells, answers, strict=True) if isinstance(answer, _CellAnswer)
    ]
    if not answered:
        raise next(each for each in answers if isinstance(each, Rejected))
    away = [each for each, answer in zip(cells, answers, strict=True) if isinstance(answer, Rejected)]
    return Gathered(answered, [access.cells.name(each.cell) for each in away])


@dataclass(frozen=True, slots=True)
class _CellAnswer(Generic[T]):
    value: T


async def _ask_cell(access: Access, ask: Callable[[Access], Awaitable[T]]) -> _CellAnswer[T] | Rejected:
    try:
        return _CellAnswer(await ask(access))
    except Rejected as rejected:
        if rejected.code != "cell_away":
            raise
        return rejected
    except FAILURES as error:  # it goes away just now
        name = access.cells.name(access.cell)
        log.warning("cell_not_asked", cell=name, error=str(error) or type(error).__name__)
        return Rejected(503, "cell_away", f"the cell {name!r} does not answer; try again later.")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list over all cells: each row with the access to its cell; the last row's key, if more follow."""

    rows: Sequence[tuple[Access, T]]
    following: Any
    missing: list[str]

    def show(self, items: list[Item]) -> schemas.PageOf[Item]:
        """The answer of a list by (time, id), whose rows are shown as `items`."""
        following = None if self.following is None else encode_cursor(*self.following)
        return {"items": items, "next_cursor": following, "missing": self.missing}


async def page(
    access: Access,
    ask: Callable[[Access], Awaitable[tuple[Sequence[T], Any]]],
    key: Callable[[T], Any],
    limit: int,
    *,
    newest_first: bool = True,
) -> Page[T]:
    """A page of at most `limit` rows. `ask` finds a cell's rows in the order of `key`, and the place behind which it
    has not looked yet; None: it has no more. Rows behind the nearest of these places are not shown: that cell may have
    rows before them."""
    answer = await ask_all_cells(access, ask)
    merged = sorted(
        ((key(row), where.cell, where, row) for where, (rows, _) in answer.by_cell for row in rows),
        key=itemgetter(0, 1),
        reverse=newest_first,
    )
    ends = [end for _, (_, end) in answer.by_cell if end is not None]
    end = (max if newest_first else min)(ends) if ends else None
    if end is not None:
        merged = [each for each in merged if (each[0] >= end if newest_first else each[0] <= end)]
    following = merged[limit - 1][0] if len(merged) > limit else end
    return Page([(where, row) for _, _, where, row in merged[:limit]], following, answer.missing)


async def redact_rows(rows: Sequence[tuple[Access, RunRow]]) -> list[RunRow]:
    """Rows of a list of runs, each without the personal values that are kept from the principal."""
    with_forms = await find_with_forms(rows)
    return [row for access, run in rows for row in await access.redact_rows([run], with_forms)]


async def find_with_forms(rows: Iterable[tuple[Access, RunSummary | RunFacts]]) -> set[UUID]:
    """Those of the runs whose tools may have asked people for personal values, by a statement for each cell."""
    cells: dict[int, tuple[Access, list[RunSummary | RunFacts]]] = {}
    for access, run in rows:
        cells.setdefault(access.cell, (access, []))[1].append(run)
    return {id for access, runs in cells.values() for id in await access.find_with_forms(runs)}


def cut_page(rows: Sequence[T], limit: int, key: Callable[[T], Any]) -> tuple[Sequence[T], Any]:
    """The answer of a cell that was asked for one row more than `limit`."""
    return rows[:limit], key(rows[limit - 1]) if len(rows) > limit else None


def sum_counts(counts: Iterable[dict[str, int]], most: int | None = None) -> dict[str, int]:
    """Counts of several cells together, each up to `most`."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
            if most is not None:
                total[name] = min(most, total[name])
    return total
