"""Names and ids as requests may give them: their patterns and lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from fastapi import Path
from pydantic import AfterValidator, AwareDatetime, Field

from hai_flow.definition.names.name_forms import WORKFLOW
from hai_flow.primitives.invisible_characters import compose, visible
from hai_flow.store.identity import keys

NO_CONTROL_CHARACTERS: Final = r"^[^\x00-\x1f\x7f]*$"
SPAN: Final = r"^[1-9][0-9]{0,3}[mhdw]$"
VERSION: Final = r"^[1-9][0-9]{0,8}(\+[0-9a-f]{8})?$"
ERROR_CODE: Final = r"^[a-zA-Z0-9_.-]{1,200}$"
QUEUE: Final = rf"^{WORKFLOW}$"
PERSON: Final = r"^user:\S{1,200}$"
SELECTOR: Final = r"^(user|role|group):\S{1,200}$"
DIGEST: Final = r"^[0-9a-f]{64}$"
PRINTABLE_ASCII: Final = r"^[\x21-\x7e]+$"
WORDS: Final = r"\S"
EXPECTED: Final[Mapping[str, str]] = {
    NO_CONTROL_CHARACTERS: "expected no control characters",
    SPAN: "expected a number of minutes, hours, days or weeks, such as 12h or 30d",
    VERSION: "expected a version, such as 2 or 2+3f2a9c11",
    ERROR_CODE: "expected the code of an error, such as tool.failed",
    QUEUE: "expected the name of a queue: a lower-case letter, then letters, digits, _ and -, such as gpu",
    PERSON: "expected user: and a name without spaces, such as user:ann",
    SELECTOR: "expected user:, role: or group:, and a name without spaces, such as role:finance",
    DIGEST: "expected a digest of 64 hexadecimal digits in lower case",
    PRINTABLE_ASCII: "expected printable ASCII characters without spaces",
    WORDS: "expected text, found only spaces",
    keys.PRINCIPAL.pattern: "expected user:, service: or agent:, and a name without spaces, such as user:ann",
    keys.PATTERN.pattern: "expected user:, service: or agent:, and a name or its beginning with *, such as user:shop-*",
    keys.NAMED: "expected a name without spaces and control characters",
}
"""The patterns in words, for refusals."""

Visible = AfterValidator(visible)
Composed = AfterValidator(compose)
PrincipalId = Annotated[
    str, Field(pattern=keys.PRINCIPAL.pattern, description="`user:ann`, or `service:ci`"), Visible, Composed
]
PrincipalPattern = Annotated[
    str,
    Field(pattern=keys.PATTERN.pattern, description="`user:ann`, or `user:shop-*` for all that begin so"),
    Visible,
    Composed,
]
Named = Annotated[str, Field(min_length=1, max_length=200, pattern=keys.NAMED), Visible, Composed]
Names = Annotated[list[Named], Field(max_length=100)]
# A client names its threads freely; also with slashes in them, which a proxy may have decoded on the way.
ThreadId: TypeAlias = Annotated[str, Path(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)]


def _check_calculable(time: datetime) -> datetime:
    """The time, with room for a sum and for every offset. Raises ValueError for one at an end of the calendar."""
    if not 1000 <= time.year <= 9000:
        raise ValueError(f"expected a time between the years 1000 and 9000, found the year {time.year}.")
    return time


Instant = Annotated[AwareDatetime, AfterValidator(_check_calculable)]


def read_uuid(text: str) -> UUID | None:
    """The id; None if it is none as we write it."""
    return UUID(text) if is_run_id(text) else None


def is_run_id(text: str) -> bool:
    """Whether `text` is an id as we write it."""
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None
