"""The ids of the calls in one answer: each call has one of its own, whatever the server has given it."""

from __future__ import annotations

from typing import Final

ID_CHARS_MAX: Final = 256  # some servers keep their state in it; a longer one is none


class CallIds:
    """The ids of one answer so far."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def own(self, given: str) -> str:
        """The id of one more call: that which it was given, or a new one where none or a repeated one was given."""
        id, number = given if len(given) <= ID_CHARS_MAX else "", len(self._taken)
        while not id or id in self._taken:
            number += 1
            id = f"call_{number}"
        self._taken.add(id)
        return id
