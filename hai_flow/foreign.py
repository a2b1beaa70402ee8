"""Values of the world outside (services, servers, models, tools), made into values that a run can hold. `values.check`
refuses what can't be kept unchanged; that is wrong where an effect has happened and only its receipt is odd. So each
odd part is kept as text and named in a note: inexact numbers as written, NUL and lone surrogates as U+FFFD, what is
nested deeper than `values.DEPTH_MAX` as its JSON. Pure."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from hai_flow import values
from hai_flow.primitives.json_pointers import escape
from hai_flow.values import DEPTH_MAX, INTEGER_MAX, Json, NotJson, storable

BigIntegers: TypeAlias = Literal["text", "refuse"]
NOTES_MAX: Final = 20  # of one value; more notes of the same kind tell nothing new
_DIGITS_MAX: Final = 4000  # of an integer in Python: the interpreter converts no more than 4300
_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|[\[\]{}]', re.DOTALL)

BIG: Final = "an integer beyond 2^53 is kept as text"
NO_NUMBER: Final = "a number that JSON can't carry is kept as text"
_CHARACTERS: Final = "characters that can't be stored became U+FFFD"
_LEFT_OUT: Final = f"what is nested deeper than {DEPTH_MAX} levels is left out: its text can't be written either"
DEEP: Final = f"what is nested deeper than {DEPTH_MAX} levels is kept as its JSON text"
_CHARSETS: Final = re.compile(r"(ascii|big5|cp|euc|gb|hp|hz|iso|johab|koi8|kz|mac|ptcp|shift|tis|utf)[\w-]*")
_MARKS: Final = (  # the longer ones first: one of them begins as a shorter one does
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
_ZEROS: Final[dict[tuple[bool, ...], str]] = {
    (True, True, True, False): "utf-32-be",
    (False, True, True, True): "utf-32-le",
    (True, False, True, False): "utf-16-be",
    (False, True, False, True): "utf-16-le",
}


class Foreign(NamedTuple):
    """A value that a run can hold, and a note for each part that was made into text: its place, and why."""

    value: Json
    notes: tuple[str, ...] = ()


class NotTyped(NotJson):
    """A part has a type, or an object a key, that JSON does not have."""


Pairs: TypeAlias = Callable[[list[tuple[str, Json]]], dict[str, Json]]


def find_codec(charset: str | None) -> str:
    """The codec of a charset that a sender names; UTF-8 where that is none. Python has codecs of texts that are no
    charsets: `punycode` and `idna` take minutes for some megabytes, and `unicode_escape` makes other signs of them."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _CHARSETS.fullmatch(name) else "utf-8"


def _find_wide(content: bytes) -> str | None:
    """UTF-16 or UTF-32 by a byte order mark, or by the zeros of the first two signs, if they are of ASCII (RFC 4627,
    section 3). No other charset begins a text so."""
    for marks, charset in _MARKS:
        if content.startswith(marks):
            return charset
    return _ZEROS.get(tuple(byte == 0 for byte in content[:4]))


def decode(content: bytes, charset: str | None) -> tuple[str, list[str]]:
    """A body as text, without a byte order mark, and notes on what could not be read. `charset`: what its sender names;
    None: UTF-8."""
    charset = _find_wide(content) or charset
    try:
        text, notes = content.decode(find_codec(charset)), []
    except UnicodeError:
        text = content.decode(errors="replace")
        notes = [f"`text` has U+FFFD where the body is no {charset or 'UTF-8'}"]
    return text.removeprefix("\ufeff"), notes


class Utf8:
    """A text of bytes that come in pieces, in UTF-8: as they come, unless they begin as UTF-16 or UTF-32 does."""

    def __init__(self) -> None:
        self._head: bytes | None = b""  # until there are four bytes, by which the charset is known
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, piece: bytes) -> bytes:
        """The next piece; b"" is the end, and gives what is held back."""
        if self._head is not None:
            self._head += piece
            if piece and len(self._head) < 4:
                return b""
            if (charset := _find_wide(self._head)) is not None:
                self._decoder = codecs.getincrementaldecoder(charset)(errors="replace")
            piece, self._head = self._head, None
        return piece if self._decoder is None else self._decoder.decode(piece).removeprefix("\ufeff").encode()


def to_utf8(content: bytes, charset: str | None) -> bytes:
    """A body in UTF-8, without a byte order mark; as it is where it is not of the charset that its sender names."""
    text, notes = decode(content, charset)
    return content if notes else text.encode()


def read(text: str | bytes, big: BigIntegers = "text", *, pairs: Pairs | None = None) -> Foreign:
    """The JSON value in `text`. `pairs` makes an object of its members; None: the last of those with one name counts.

    Raises NotJson where it is no JSON at all, or `big` is `refuse` and it holds an integer beyond 2^53."""
    text = text.removeprefix(b"\xef\xbb\xbf") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    values.demand_few_extremes(text)
    if pairs is not None:
        return _read_slowly(text, big, pairs)
    try:
        return Foreign(values.check(values.loads(text)))
    except values.TooExtreme:
        raise
    except NotJson:
        return _read_slowly(text, big, None)


def demand_one_value_each(members: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object of its members, for `pairs`: one that is to be acted upon. A name that comes again has to have the same
    value, or one of the two is null, empty or blank. Raises ValueError."""
    members_by_name: dict[str, Json] = {}
    for name, value in members:
        if name in members_by_name and members_by_name[name] not in (None, "", [], {}):
            if value in (None, "", [], {}):
                continue
            if value != members_by_name[name] or type(value) is not type(members_by_name[name]):
                raise ValueError(f"the name {name[:100]!r} stands in one object twice, with two values")
        members_by_name[name] = value
    return members_by_name


def take(value: Any, big: BigIntegers = "text") -> Foreign:
    """A value of Python as one that a run can hold. Raises NotJson for what JSON has no type for, and as `read`
    does."""
    try:
        return Foreign(values.check(value))
    except values.TooExtreme:
        raise
    except NotJson:
        pass
    try:
        return _check_extremes(_convert(value, big))
    except RecursionError:  # so deep that not even its text can be written
        return _check_extremes(_convert(value, big, leave_out=True))


def with_integers_at(value: Json, places: Iterable[Sequence[str]]) -> Json:
    """`value` with integers where it has the digits of integers beyond 2^53 as text: at the places, each by its names
    from the outermost, or below them. `value` itself where it has none there."""
    tree: dict[str, Any] = {}  # None: all that is below
    for place in places:
        if not place:
            return _with_integers(value)
        here = tree
        for name in place[:-1]:
            here = here.setdefault(name, {})
            if here is None:
                break
        else:
            here[place[-1]] = None
    return _at_places(value, tree)


def make_shallow(text: str, depth: int = DEPTH_MAX) -> str | None:
    """JSON text in which what is nested deeper than `depth` levels is a text that holds it. None: nothing is, or the
    brackets don't match. However deep it is, it takes time in proportion to its length."""
    parts: list[str] = []
    open_brackets: list[str] = []
    start = end = 0
    for match in _BRACKET.finditer(text):
        sign = match[0]
        if sign in ("[", "{"):
            open_brackets.append("]" if sign == "[" else "}")
            if len(open_brackets) == depth + 1:
                start = match.start()
        elif sign in ("]", "}"):
            if not open_brackets or open_brackets.pop() != sign:
                return None
            if len(open_brackets) == depth:
                parts += text[end:start], json.dumps(text[start : match.end()], ensure_ascii=False)
                end = match.end()
    return "".join((*parts, text[end:])) if parts and not open_brackets else None


def _check_extremes(converted: Foreign) -> Foreign:
    values.check(converted.value)
    return converted


def _read_slowly(text: str | bytes, big: BigIntegers, pairs: Pairs | None) -> Foreign:
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
    try:
        return _check_extremes(_parse(decoded, big, pairs))
    except RecursionError:
        shallow = make_shallow(decoded)
    if shallow is None:
        raise NotJson(f"expected JSON, found more than {DEPTH_MAX} levels of brackets that don't match")
    value, notes = _parse(shallow, big, pairs)
    return _check_extremes(Foreign(value, (*notes, f"the value: {DEEP}")))


def _parse(text: str, big: BigIntegers, pairs: Pairs | None) -> Foreign:
    """Raises RecursionError, too."""
    try:
        value = json.loads(
            text,
            strict=False,
            parse_int=_int,
            parse_float=_float,
            parse_constant=_WrittenNumber,
            object_pairs_hook=pairs,
        )
    except ValueError as error:
        raise NotJson(f"expected JSON, found something else: {error}") from None
    return _convert(value, big)


class _WrittenNumber(str):
    __slots__ = ()


def _int(text: str) -> int | _WrittenNumber:
    return int(text) if len(text) <= 16 and abs(int(text)) <= INTEGER_MAX else _WrittenNumber(text)


def _float(text: str) -> float | _WrittenNumber:
    number = float(text)
    return number if math.isfinite(number) else _WrittenNumber(text)


def _convert(value: Any, big: BigIntegers, *, leave_out: bool = False) -> Foreign:
    """Raises RecursionError where the JSON text of a part that is too deep can't be written, and is not left out."""
    converter = _KeptNumber(big, leave_out)
    return Foreign(converter.of(value, (), 0), tuple(converter.notes))


@dataclass(slots=True)
class _KeptNumber:
    big: BigIntegers
    leave_out: bool
    notes: list[str] = field(default_factory=list)

    def of(self, value: Any, place: tuple[object, ...], depth: int) -> Json:
        kind = type(value)
        if kind is str:
            return self._text(value, place)
        if kind is _WrittenNumber:
            return self._number(value, place)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -INTEGER_MAX <= value <= INTEGER_MAX else self._integer(_digits(value), place)
        if kind is float:
            if math.isfinite(value):
                return value
            self._note(place, NO_NUMBER)
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if kind not in (list, tuple, dict):
            raise NotTyped(f"{_pointer(place) or 'the value'}: {kind.__name__} is not a JSON type")
        if depth >= DEPTH_MAX:
            self._note(place, _LEFT_OUT if self.leave_out else DEEP)
            return None if self.leave_out else storable(_json_text(value))
        if kind is dict:
            return {self._key(key, place): self.of(each, (*place, key), depth + 1) for key, each in value.items()}
        return [self.of(each, (*place, index), depth + 1) for index, each in enumerate(value)]

    def _text(self, text: str, place: tuple[object, ...]) -> str:
        stored = storable(text)
        if stored != text:
            self._note(place, _CHARACTERS)
        return stored

    def _key(self, key: Any, place: tuple[object, ...]) -> str:
        if type(key) is not str:
            raise NotTyped(f"{_pointer(place) or 'the value'}: keys are strings, found {type(key).__name__}")
        return self._text(key, (*place, key))

    def _number(self, written: str, place: tuple[object, ...]) -> Json:
        if not written.lstrip("-").isdecimal():
            self._note(place, NO_NUMBER)
            return str(written)
        return self._integer(str(written), place)

    def _integer(self, digits: str, place: tuple[object, ...]) -> str:
        if self.big == "refuse":
            raise NotJson(f"{_pointer(place) or 'the value'}: an integer beyond 2^53, and `big_integers` is `refuse`")
        self._note(place, BIG)
        return digits

    def _note(self, place: tuple[object, ...], what: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(f"{storable(_pointer(place)) or 'the value'}: {what}")


def _pointer(place: Sequence[object]) -> str:
    return "".join(f"/{escape(str(part))}" for part in place)


def _digits(number: int) -> str:
    if number.bit_length() > 3 * _DIGITS_MAX:
        return f"{number:#x}"  # decimal digits of so many bits take time that grows with their square
    return str(number)


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise NotJson(f"expected JSON, found something else: {error}") from None


def _with_integers(value: Json) -> Json:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        is_number = 16 <= len(digits) <= _DIGITS_MAX and digits.isascii() and digits.isdecimal() and digits[0] != "0"
        return int(value) if is_number and abs(int(value)) > INTEGER_MAX else value
    if isinstance(value, dict | list):
        return _change_value(value, dict.fromkeys(value if isinstance(value, dict) else range(len(value))))
    return value


def _change_value(value: Json, below: Mapping[Any, Any]) -> Json:
    """`value` with the parts that `below` names made into integers where they can be; it is copied once at most."""
    copy: Any = None
    for key, further in below.items():
        before = value[key]
        after = _with_integers(before) if further is None else _at_places(before, further)
        if after is not before:
            if copy is None:
                copy = value.copy()
            copy[key] = after
    return value if copy is None else copy


def _at_places(value: Json, tree: Mapping[str, Any]) -> Json:
    if isinstance(value, dict):
        return _change_value(value, {name: below for name, below in tree.items() if name in value})
    if isinstance(value, list):
        places = ((int(name), below) for name, below in tree.items() if name.isdecimal() and len(name) < 10)
        return _change_value(value, {place: below for place, below in places if place < len(value)})
    return value
