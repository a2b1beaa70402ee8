"""Values that must be there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def require(value: Value | None) -> Value:
    """The value, which is not None."""
    assert value is not None
    return value
