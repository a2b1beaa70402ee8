"""JSON values at the edge: which values may enter a run, and the one way to read and write them.

A value that PostgreSQL, JavaScript or JSON itself could not carry unchanged must be refused where it enters, because
later it would poison a whole batch (docs/design/promises.md#bounds)."""

# Written by `make generate` from hai_flow/values.py: change that, or clients/generate.py.

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = Any
"""A JSON value: null, a boolean, a number, text, or a list or a mapping of these."""

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class NotJson(ValueError):
    """A value that is not plain JSON. The message says where (a JSON Pointer) and why."""


EXTREMES_MAX: Final = 500
_EXTREME: Final = re.compile(r"[\d.][eE][+-]?0*[1-9]\d\d(?=[\s,\]}])")
_EXTREME_BYTES: Final = re.compile(_EXTREME.pattern.encode())


class TooExtreme(NotJson):
    """A value with too many numbers of very large exponents. To read one takes up to 0.05 ms, a thousand times as long
    as others, each time that its run is read."""

    def __init__(self, pointer: str) -> None:
        super().__init__(
            f"{pointer or 'the value'}: more than {EXTREMES_MAX} numbers are above 1e100 or below 1e-99; round them, "
            "or send them as text"
        )


def demand_few_extremes(text: bytes | str) -> None:
    """Raises `TooExtreme` for JSON text with too many numbers of three-digit exponents, before it is read. Where texts
    in it look like such numbers, the reader of Python tells, which is no slower with them than with others."""
    matches = _EXTREME_BYTES.finditer(text) if isinstance(text, bytes) else _EXTREME.finditer(text)
    if next(islice(matches, EXTREMES_MAX, None), None) is None:
        return
    count = 0

    def note(number: str) -> float:
        nonlocal count
        count += _is_extreme(value := float(number))
        if count > EXTREMES_MAX:
            raise TooExtreme("")
        return value

    try:
        json.loads(text, parse_float=note, strict=False)
    except TooExtreme:
        raise
    except (ValueError, RecursionError):
        return  # whoever reads it says what is wrong


def _is_extreme(number: float) -> bool:
    return number != 0 and not 1e-99 < abs(number) < 1e100


def dumps(value: Any) -> bytes:
    """`value` as compact JSON text (UTF-8). Key order is kept, so that a value is stored as it was given."""
    return _encode(value)


_HALF_AT_END: Final = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"\s*[\]}]*\s*\Z')
"""Half a character so near to the end that the library calls the text truncated."""


def to_text(value: Any) -> str:
    """A text as it is, any other value as its JSON. Raises as `dumps`."""
    return value if isinstance(value, str) else dumps(value).decode()


def loads(text: bytes | str) -> Any:
    """The JSON value written in `text`. Raises `NotJson`."""
    try:
        return _decode(text)
    except UnicodeEncodeError as error:  # text that can't be written as UTF-8
        raise NotJson(f"expected JSON, found a lone surrogate at character {error.start}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        tail = text[-12:]
        tail = tail.encode(errors="replace") if isinstance(tail, str) else tail
        if "surrogate" in str(error) or ("truncated" in str(error) and _HALF_AT_END.search(tail)):
            raise NotJson("expected JSON, found a lone surrogate, which is half a character") from None
        raise NotJson(f"expected JSON, found something else: {error}") from None
    except RecursionError:
        raise NotJson(f"expected JSON, found what is nested deeper than {DEPTH_MAX} levels") from None


def find_repeated_key(text: str) -> str | None:
    """A key that stands twice in one object of the JSON text; None: none does. `loads` takes the last one of them,
    other parsers take the first."""
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            repeated.append(next(name for name, count in counts.items() if count > 1))
        return record

    json.loads(text, object_pairs_hook=note, parse_int=str, parse_float=str)
    return repeated[0] if repeated else None


_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # the halves of one character, joined from two pieces


def storable(text: str) -> str:
    """Text of the world outside, from models, tools and servers: the halves of a character are joined, and characters
    that `check` refuses are replaced (docs/design/promises.md#bounds)."""
    if _UNSTORABLE.search(text) is None:
        return text
    joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _UNSTORABLE.sub("\ufffd", joined)


def with_texts(value: Json, change: Callable[[str], str], *, names: bool = False) -> Json:
    """A JSON value with each text in it as `change` gives it; with `names` also the names of members."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if names else key: with_texts(each, change, names=names) for key, each in value.items()}
    return [with_texts(each, change, names=names) for each in value] if isinstance(value, list) else value


def check(value: Any) -> Any:
    """`value` itself if it is plain JSON; else raises `NotJson`, which names the place.

    Refused: NaN and infinities, integers beyond 2^53 - 1, NUL and lone surrogates in strings, keys that are not
    strings, nesting deeper than 64, and every Python type that JSON does not have (tuples become lists on the way).
    Raises `TooExtreme` for more than 500 numbers at the ends of what a float can be."""
    _check(value, "", 0, [])
    return value


def is_json(value: Any) -> bool:
    """Whether `check` takes the value."""
    try:
        check(value)
    except NotJson:
        return False
    return True


def _check(value: Any, pointer: str, depth: int, extremes: list[float]) -> None:
    kind = type(value)
    if kind is str:
        if "\x00" in value:
            raise NotJson(f"{pointer or 'the value'}: a NUL character can't be stored; remove it")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise NotJson(f"{pointer or 'the value'}: a lone surrogate is not text; replace it") from None
    elif kind is int:
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise NotJson(f"{pointer or 'the value'}: integers beyond 2^53 lose digits; send it as a string")
    elif value is None or kind is bool:
        return
    elif kind is float:
        if not math.isfinite(value):
            raise NotJson(f"{pointer or 'the value'}: {value} is not a JSON number")
        if _is_extreme(value):
            extremes.append(value)
            if len(extremes) > EXTREMES_MAX:
                raise TooExtreme(pointer)
    elif depth >= DEPTH_MAX:
        raise NotJson(f"{pointer}: nested deeper than {DEPTH_MAX} levels")
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            _check(item, f"{pointer}/{index}", depth + 1, extremes)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise NotJson(f"{pointer or 'the value'}: keys are strings, found {type(key).__name__}")
            _check(key, f"{pointer}/{key}", depth + 1, extremes)
            _check(item, f"{pointer}/{key}", depth + 1, extremes)
    else:
        raise NotJson(f"{pointer or 'the value'}: {kind.__name__} is not a JSON type")
