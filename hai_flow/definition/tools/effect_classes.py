"""Classes of effect: how grave a call of a tool is, for its default gate and for whoever decides about it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Effect: TypeAlias = Literal["read", "reversible", "external", "irreversible", "write"]
"""`read` changes nothing; `reversible` can be taken back; `external` reaches somebody outside; `irreversible` can't be
taken back. `write` changes something, and nobody has said more."""
EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
ASKS_NOBODY: Final[frozenset[Effect]] = frozenset({"read", "reversible"})
_GRAVITY: Final[dict[Effect, int]] = {"read": 0, "reversible": 1, "external": 2, "write": 3, "irreversible": 4}
_SAFE_METHODS: Final = ("GET", "HEAD")


def effect_of_method(method: object) -> Effect:
    """The class of a request with this method (RFC 9110, 9.2.1 and 9.3.5)."""
    return "read" if method in _SAFE_METHODS else "irreversible" if method == "DELETE" else "write"


def effect_of_hints(read_only: bool | None, destructive: bool | None) -> Effect:
    """The class that a trusted MCP server gives a function by its hints; None: it says nothing.

    What is not destructive adds something, which need not be something that can be taken back: so no hint makes a
    function `reversible`, and it still asks."""
    if read_only is True:
        return "read"
    return "write" if destructive is None else "irreversible" if destructive else "external"


def gravest(effects: list[Effect]) -> Effect:
    """The class of a chain of effects; `read` if there is none."""
    return max(effects, key=_GRAVITY.__getitem__, default="read")
