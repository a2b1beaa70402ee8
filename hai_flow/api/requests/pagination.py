"""Lists in pages: `?limit=&cursor=`, newest first by (time, id); a thread's messages by (run, n), oldest first."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias, TypeVar
from uuid import UUID

from fastapi import Query

from hai_flow.api.base.id_patterns import read_uuid
from hai_flow.errors import Rejected

T = TypeVar("T")

PAGE_MAX: Final = 200

PageLimit: TypeAlias = Annotated[int, Query(ge=1, le=PAGE_MAX, description="the most items of a page")]
PageCursor: TypeAlias = Annotated[str | None, Query(description="`next_cursor` of the page before")]

_CURSOR: Final = re.compile(r"([0-9]{1,16})\n([0-9a-z_-]{1,200})")  # 16 digits of microseconds: up to the year 2286
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def cut(found: Sequence[T], limit: int, cursor_of: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """The rows of a page, and the cursor of the next page, if there is one: `found` has one row more in that case."""
    rows = found[:limit]
    return rows, cursor_of(rows[-1]) if len(found) > limit else None


def encode_cursor(moment: datetime, id: str | UUID) -> str:
    """The cursor of a page whose last item is `id` of `moment`."""
    return encode_place((moment - _EPOCH) // timedelta(microseconds=1), id)


def decode_cursor(text: str | None) -> tuple[datetime, str] | None:
    """The (time, id) of the last item of the page before. Raises Rejected 400."""
    place = decode_place(text)
    return None if place is None else (_EPOCH + timedelta(microseconds=place[0]), place[1])


def decode_id_cursor(text: str | None) -> tuple[datetime, UUID] | None:
    """As `decode_cursor` of a list of UUIDs; None, too, where the cursor is of another list."""
    place = decode_cursor(text)
    id = None if place is None else read_uuid(place[1])
    return None if place is None or id is None else (place[0], id)


def demand_id_cursor(text: str | None) -> tuple[datetime, UUID] | None:
    """As `decode_id_cursor`. Raises Rejected 400, too, where the cursor is of another list."""
    place = decode_id_cursor(text)
    if place is None and text is not None:
        raise reject_cursor()
    return place


def encode_place(number: int, id: str | UUID) -> str:
    """The cursor of a page whose last item is the `number`-th of `id`."""
    return base64.urlsafe_b64encode(f"{number}\n{id}".encode()).decode().rstrip("=")


def decode_place(text: str | None) -> tuple[int, str] | None:
    """The (number, id) of the last item of the page before. Raises Rejected 400."""
    if text is None:
        return None
    try:
        match = _CURSOR.fullmatch(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except ValueError:
        match = None
    if match is None:
        raise reject_cursor()
    return int(match[1]), match[2]


def reject_cursor() -> Rejected:
    """The refusal of a cursor that no page of this list returned."""
    return Rejected(400, "cursor.invalid", "cursor: expected one that a page of this list returned.")
