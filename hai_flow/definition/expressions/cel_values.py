"""JSON values as CEL takes them, with their sizes, and CEL's results as JSON."""

from __future__ import annotations

import base64
import datetime
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cel_expr_python import cel

from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.primitives.beside_loop import spend
from hai_flow.primitives.instants import instant
from hai_flow.values import INTEGER_MAX, Json, NotJson, check, dumps

Kind: TypeAlias = str  # int double string bool timestamp map dyn, or list:<one of them>

RESULT_MAX: Final = 64 * 1024  # bytes of JSON
MEMBER_PARTS: Final = 2  # the library takes as long over a member of an object as over two items


@dataclass(slots=True)
class Size:
    """How large a value is: `total` characters and elements, `count` elements of its own, the largest element."""

    total: int
    count: int = 0
    element: Size | None = None


SCALAR: Final = Size(1)


def convert(value: Json, kind: Kind, deep: bool) -> tuple[Json, Size]:
    """`value` as the library wants it for a variable of `kind`, and its size (element by element only if `deep`)."""
    if kind == "dyn":
        return _dyn(value, deep)
    if kind == "string":
        if type(value) is not str:
            raise TypeError
        return value, Size(len(value) + 1)
    if kind == "double":
        if isinstance(value, bool):
            raise TypeError
        return float(value), SCALAR
    if kind == "int":
        if isinstance(value, bool) or value != int(value):
            raise TypeError
        return int(value), SCALAR
    if kind == "timestamp":
        return instant(value), SCALAR
    if kind == "bool":
        if type(value) is not bool:
            raise TypeError
        return value, SCALAR
    if kind == "map":
        if not isinstance(value, Mapping):
            raise TypeError
        return _dyn(value, deep)
    if type(value) is not list:
        raise TypeError
    spend(len(value))
    parts = [convert(item, kind.removeprefix("list:"), deep) for item in value]
    return [part for part, _ in parts], _sum_sizes([size for _, size in parts], len(value), deep)


def _dyn(value: Json, deep: bool) -> tuple[Json, Size]:
    """Data without a static type: every number is a double, so that 5 and 5.0 behave alike."""
    kind = type(value)
    if kind is str:
        return value, Size(len(value) + 1)
    if kind is int:
        return float(value), SCALAR
    if kind is not list and not isinstance(value, Mapping):
        return value, SCALAR
    levels: list[Size] = []
    converted, total = _convert_items(value, levels, 0)
    if deep:
        for size, element in itertools.pairwise(levels):
            size.element = element
    levels[0].total = total
    return converted, levels[0]


def _convert_items(value: Any, levels: list[Size], depth: int) -> tuple[Json, int]:
    """A list or a map as data, and its total. `levels` takes in the largest of what is at each depth: to make a size
    for each of 300,000 parts took longer than all else, and the collector of cycles went through them."""
    count, listed = len(value), type(value) is list
    spend(count if listed else MEMBER_PARTS * count)
    if len(levels) == depth:
        levels.append(Size(0))
    levels[depth].count = max(levels[depth].count, count)
    if count and len(levels) == depth + 1:
        levels.append(Size(1))
    total, largest = 1, 1
    items: list[Json] = []
    for item in value if listed else value.values():
        kind = type(item)
        if kind is int:
            items.append(float(item))
            total += 1
            continue
        size = 1
        if kind is str:
            size = len(item) + 1
        elif kind is list or kind is dict or isinstance(item, Mapping):
            item, size = _convert_items(item, levels, depth + 1)
        items.append(item)
        total += size
        if size > largest:
            largest = size
    if count and levels[depth + 1].total < largest:
        levels[depth + 1].total = largest
    if listed:
        return items, total
    return dict(zip(value, items, strict=True)), total + sum(map(len, value)) + count


def _sum_sizes(sizes: list[Size], count: int, deep: bool) -> Size:
    total = 1 + sum(size.total for size in sizes)
    return Size(total, count, widest(sizes) if deep and sizes else None)


def widest(sizes: Sequence[Size]) -> Size:
    """A size that none of `sizes` exceeds in any respect."""
    inner = [size.element for size in sizes if size.element is not None]
    return Size(max(size.total for size in sizes), max(size.count for size in sizes), widest(inner) if inner else None)


def plain(value: cel.Value) -> Json:
    """A result as JSON. Walked by type: the library's own plain_value() crashes the process on nested optionals. Raises
    `ExpressionError` as soon as it is certain to be longer than `RESULT_MAX`: each step costs microseconds."""
    return _plain(value, [RESULT_MAX])


def _plain(value: cel.Value, room: list[int]) -> Json:
    """`room`: how many bytes of JSON text may still come. A value has one at least, and a comma."""
    name = value.type().name()
    if name.startswith("LIST"):
        listed = value.value()
        _take_room(room, 2 * len(listed))
        return [_plain(item, room) for item in listed]
    if name.startswith("MAP"):
        items = {_key(key): item for key, item in value.value().items()}
        _take_room(room, sum(len(key) + 5 for key in items))
        return {key: _plain(items[key], room) for key in sorted(items)}
    read = _SCALARS.get(name)
    if read is None:
        # An optional inside a list says that it is an ERROR: its type has no name in the library.
        what = "an optional; add orValue(...)" if name == "ERROR" or name.startswith("optional") else name.lower()
        raise ExpressionError("expression.error", f"expected a JSON value as the result, found {what}")
    return read(value.value())


def _take_room(room: list[int], size: int) -> None:
    spend(size // 2)
    room[0] -= size
    if room[0] < 0:
        raise _too_large()


def _too_large() -> ExpressionError:
    return ExpressionError("expression.too_large", "the result is larger than 64 KiB; let a tool keep it")


def _key(key: Json) -> str:
    if type(key) is not str:
        raise ExpressionError("expression.error", f"expected text as the key of a map, found {key!r}")
    return key


def _number(number: float) -> int | float:
    """A whole double below 2^53 is an integer in JSON: the author wrote 5, not 5.0."""
    if not math.isfinite(number):
        raise ExpressionError("expression.error", f"the result {number} is not a JSON number; check the division")
    return int(number) if number.is_integer() and abs(number) <= INTEGER_MAX else number


def format_timestamp(moment: datetime.datetime) -> str:
    """RFC 3339 in UTC, with fractions only where there are any."""
    text = moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    text = text.rjust(19, "0")  # strftime does not pad years before 1000
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"


def format_instant(milliseconds: int) -> str:
    """Milliseconds since 1970 as RFC 3339 text in UTC."""
    return format_timestamp(instant(milliseconds))


def _format_duration(duration: datetime.timedelta) -> str:
    micros = duration // datetime.timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, fraction = divmod(micros, 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{sign}{seconds}{tail}s"


_SCALARS: Final[dict[str, Callable[[Any], Json]]] = {
    "NULL": lambda value: None,
    "BOOL": bool,
    "INT": int,
    "UINT": int,
    "DOUBLE": _number,
    "STRING": str,
    "BYTES": lambda value: base64.b64encode(bytes(value)).decode(),
    "TIMESTAMP": format_timestamp,
    "DURATION": _format_duration,
}


def check_result(value: Json) -> Json:
    """`value` if it may leave an expression: plain JSON, at most 64 KiB. Raises `ExpressionError`."""
    if type(value) is bool or value is None:
        return value
    try:
        check(value)
    except NotJson as error:
        raise ExpressionError("expression.error", f"the result can't be stored: {error}") from None
    if type(value) is not int and type(value) is not float and len(dumps(value)) > RESULT_MAX:
        raise _too_large()
    return value
