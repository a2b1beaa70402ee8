"""Lists in pages: `?limit=&cursor=`, newest first by (time, id)."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

from fastapi import Query

from hai_flow.errors import Rejected

PAGE_MAX: Final = 200

PageLimit: TypeAlias = Annotated[int, Query(ge=1, le=PAGE_MAX, description="the most items of a page")]
PageCursor: TypeAlias = Annotated[str | None, Query(description="`next_cursor` of the page before")]

_CURSOR: Final = re.compile(r"([0-9]{1,16})\n([0-9a-z_-]{1,200})")  # 16 digits of microseconds: up to the year 2286
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def encode_cursor(moment: datetime, id: str) -> str:
    """The cursor of a page whose last item is `id` of `moment`."""
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{microseconds}\n{id}".encode()).decode().rstrip("=")


def decode_cursor(text: str | None) -> tuple[datetime, str] | None:
    """The (time, id) of the last item of the page before. Raises Rejected 400."""
    if text is None:
        return None
    try:
        match = _CURSOR.fullmatch(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except ValueError:
        match = None
    if match is None:
        raise bad_cursor()
    return _EPOCH + timedelta(microseconds=int(match[1])), match[2]


def bad_cursor() -> Rejected:
    """The refusal of a cursor that no page of this list returned."""
    return Rejected(400, "cursor.invalid", "cursor: expected one that a page of this list returned.")
