"""How loops go on: the keys of a `for_each`'s items, and which iteration comes next. Emits nothing."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.paths import escape, iteration
from hai_flow.definition.plan import ForEach, Step
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.state import LoopState
from hai_flow.values import Json

ITEMS_MAX: Final = 10_000
ITEMS_BYTES_MAX: Final = 1024 * 1024


def read_items(draft: Draft, step: Step, verb: ForEach) -> tuple[list[Json], tuple[str, ...]]:
    """The items of a `for_each`, and the escaped key of each. Raises `Raised`: nothing has started then."""
    items = draft.render(verb.items, step)
    if not isinstance(items, list):
        raise Raised("expression.error", f"for_each.items: expected a list, found {kind_of(items)}.")
    if len(items) > ITEMS_MAX:
        raise Raised("expression.too_large", f"for_each.items: at most {ITEMS_MAX} items, found {len(items)}.")
    draft.take(len(values.dumps(items)), ITEMS_BYTES_MAX)
    keys: dict[str, int] = {}
    for index, item in enumerate(items):
        key = escape(_key(draft, step, verb, item, index))
        if key in keys:
            raise Raised(
                "for_each.duplicate_key",
                f"items {keys[key]} and {index} have the same key {key!r}; give `key` an expression that tells them "
                f"apart.",
            )
        keys[key] = index
    return items, tuple(keys)


def _key(draft: Draft, step: Step, verb: ForEach, item: Json, index: int) -> str:
    if verb.key is not None:
        return draft.text(verb.key, step, **{verb.as_: item, "index": index})
    if isinstance(item, str) or (isinstance(item, int) and not isinstance(item, bool)):
        return str(item)
    return str(index)


def first_iterations(path: str, keys: tuple[str, ...], verb: ForEach) -> tuple[str, ...]:
    """The paths of the iterations that a `for_each` begins with."""
    return tuple(iteration(path, key) for key in keys[: verb.max_parallel])


def index_of(loop: LoopState, key: str) -> int:
    """The position of an iteration that is about to begin. It is one of those begun last: looked for from there, so
    that ten thousand items don't cost ten thousand times as much each."""
    for index in range(min(loop.begun, len(loop.keys)) - 1, -1, -1):
        if loop.keys[index] == key:
            return index
    raise AssertionError(f"{key} is no key of the loop")


def next_iteration(path: str, loop: LoopState) -> tuple[str, ...]:
    """The path of the iteration that comes when one has ended, in a tuple that is empty if there is none."""
    if loop.again:
        return (iteration(path, loop.again[0]),)
    if loop.begun < len(loop.keys):
        return (iteration(path, loop.keys[loop.begun]),)
    return ()
