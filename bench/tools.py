"""The tools of the measured workflows: as trivial as a tool can be, so that what is measured is the engine."""

from __future__ import annotations


async def plus_one(n: int) -> int:
    """The next number."""
    return n + 1
