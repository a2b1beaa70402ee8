"""Characters that nobody sees: two names that differ by one of them look the same, and a text may be turned around by
them. No id of a person, role or group and no name of a file has one.

They are those of the category Cf and the other default ignorable code points of Unicode 15, fixed here so that every
release of Python judges alike.
"""

from __future__ import annotations

import re
from typing import Final

INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff]"
)

_TURNING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def has_invisible(text: str) -> bool:
    """Whether a character of the text can't be seen, or turns the others around."""
    return INVISIBLE.search(text) is not None


def visible(text: str) -> str:
    """The text. Raises ValueError where a character of it can't be seen."""
    found = INVISIBLE.search(text)
    if found is not None:
        raise ValueError(f"expected characters that can be seen, found U+{ord(found[0]):04X}")
    return text


def straight(text: str) -> str:
    """The text without characters that turn parts of it around: a name of a file that reads as it is."""
    return _TURNING.sub("", text)


def unturned(text: str) -> str:
    """The text. Raises ValueError where a character of it turns others around."""
    found = _TURNING.search(text)
    if found is not None:
        raise ValueError(f"expected no characters that turn a text around, found U+{ord(found[0]):04X}")
    return text
