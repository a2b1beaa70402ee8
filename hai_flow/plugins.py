"""What installed packages add to this process: their entry points (PyPA's specification of that name).

Finding them reads a file of every installed package, so that is done once for each search path."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points


def list_offers(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, of all packages that can be imported from `sys.path` as it is now."""
    return tuple(_all_entry_points(tuple(sys.path)).select(group=group))


@cache
def _all_entry_points(_path: tuple[str, ...]) -> EntryPoints:
    return entry_points()  # type: ignore[return-value]  # Python 3.11's class is another one, with the same `select`
