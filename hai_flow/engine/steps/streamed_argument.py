"""The JSON text of a call whose one argument grows: the part before the text, a piece of it, the part behind.

The performer writes the pieces, decisions write the rest: none of them has to read the text so far.
"""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.plan import Growing

GROWN_BEHIND: Final = '"}'


def encode_grown_start(growing: Growing) -> str:
    """The arguments up to where the text begins."""
    return values.dumps({growing.argument: ""}).decode().removesuffix(GROWN_BEHIND)


def encode_grown_piece(text: str) -> str:
    """A piece of the text, as it stands between the two."""
    return values.dumps(text).decode()[1:-1]
