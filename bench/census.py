"""A census of a process: the sizes of its collections and the number of its objects, by name.

Memory that the system reports goes up and down for many reasons; a count does not. So a collection that keeps objects
of runs that are long over is found here by its name, within a few dozen runs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import asyncpg

OURS: Final = "hai_flow"
_MANY: Final = (list, tuple, set, frozenset, deque)


def census(root: object) -> Counter[str]:
    """The size of each collection that can be reached from `root` or from a module of ours, and the number of objects
    of each class of ours, and of asyncio's futures and handles, in the whole process."""
    gc.collect()
    found = Counter(_kept(each) for each in gc.get_objects() if _is_counted(each))
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == OURS]
    seen: dict[int, object] = {}
    left: list[tuple[str, object]] = [(type(root).__name__, root)]
    for module in modules:
        left += [(f"{module.__name__}.{name}", value) for name, value in vars(module).items() if name[:2] != "__"]
    while left:
        name, value = left.pop()
        if id(value) in seen:
            continue
        inside = list(_inside(name, value))
        if inside or isinstance(value, (Mapping, *_MANY)):
            seen[id(value)] = value
        if isinstance(value, (Mapping, *_MANY)):
            found[name] += len(value)
        left += inside
    return +found


def grown(before: Counter[str], after: Counter[str], bounds: Mapping[str, int]) -> dict[str, str]:
    """The counts that have grown, as "before -> after" by name. One with a bound counts only beyond it."""
    more = {name: count for name, count in after.items() if count > max(before[name], bounds.get(name, 0))}
    return {name: f"{before[name]} -> {count}" for name, count in more.items()}


def _is_counted(value: object) -> bool:
    if isinstance(value, asyncio.Handle):
        # asyncio throws away the cancelled ones by and by; the driver has one for each statement that it prepared.
        return not value.cancelled() and not str(
            getattr(getattr(value, "_callback", None), "__module__", "")
        ).startswith("asyncpg")
    module = type(value).__module__.split(".")
    # Rows of the store live in the variables of their last reader; any collection that keeps them is counted itself.
    return (module[0] == OURS and module[1:2] != ["store"]) or isinstance(value, asyncio.Future)


def _kept(value: object) -> str:
    return f"objects of {type(value).__module__}.{type(value).__qualname__}"


def _inside(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The items of a collection, or the attributes of an object of ours, each with a name by which it is counted."""
    if isinstance(value, Mapping):
        yield from ((f"{name}[]", each) for each in _both(value))
    elif isinstance(value, _MANY):
        yield from ((f"{name}[]", each) for each in tuple(value))
    elif _is_ours(value):
        for attribute in _attributes(value):
            yield f"{type(value).__name__}.{attribute}", getattr(value, attribute, None)


def _is_ours(value: object) -> bool:
    # A session with the database is the driver's but for its deadlines; whether one is open here just now is chance.
    return type(value).__module__.split(".")[0] == OURS and not isinstance(value, asyncpg.Connection)


def _both(mapping: Mapping[Any, Any]) -> Iterable[Any]:
    return (*mapping.keys(), *mapping.values())


def _attributes(value: object) -> set[str]:
    slots = (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ()))
    return {*slots, *getattr(value, "__dict__", ())}
