"""Values inside of texts: null as nothing, JSON with sorted keys, numbers as ECMAScript writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hai_flow.values import Json


def as_text(value: Json) -> str:
    """`value` inside a text: ECMAScript's numbers, JSON with sorted keys, null as nothing
    (docs/language.md#expressions)."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return json_text(value)


def json_text(value: Json) -> str:
    """`value` as compact JSON with sorted keys and ECMAScript's numbers."""
    # Nearly RFC 8785, but the library `rfc8785` writes other texts: it sorts keys by UTF-16 units, where this sorts
    # them by characters, and it refuses integers beyond 2^53, which documents may have. These texts stand in logs.
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return format_number(float(value)) if abs(value) >= 10**21 else str(value)
        case float():
            return format_number(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return "{" + ",".join(f"{json_text(key)}:{json_text(value[key])}" for key in sorted(value)) + "}"
        case _:
            return "[" + ",".join(map(json_text, value)) + "]"


def format_number(number: float) -> str:
    """A double as ECMAScript's Number::toString writes it: 900, 0.1, 1e+21, 1e-7."""
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    integer, _, fraction = mantissa.partition(".")
    digits = (integer + ("" if fraction == "0" else fraction)).lstrip("0")
    point = len(integer) + int(exponent or 0)  # where the decimal point stands among whole + fraction
    if integer == "0":
        point -= len(fraction) - len(fraction.lstrip("0")) + 1
    digits = digits.rstrip("0") or "0"
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = point - 1
    tail = f"e{'+' if exponent >= 0 else '-'}{abs(exponent)}"
    return f"{digits[0]}.{digits[1:]}{tail}" if count > 1 else f"{digits}{tail}"
