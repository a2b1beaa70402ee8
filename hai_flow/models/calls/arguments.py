"""The arguments of a call as a server writes them, piece by piece: objects, placeholders, repetitions. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

from hai_flow.models.calls.text_pieces import TextJoiner, whole_text
from hai_flow.values import Json

_EMPTY: Final = re.compile(r'(?:null|""|\{\s*\}|\[\s*\])?\Z')  # `[]`: PHP's empty object
_PLACEHOLDER: Final = re.compile(r'(?:null|""|\{\s*\})\s*(?=[{"])')
_TOKEN: Final = re.compile(r"(?:<\|[^|<>]{1,40}\|>|</?\w{1,40}>|```)\s*")
"""What a server's parser has left behind the arguments: tokens of the model's template, the end of a block."""
_FENCE: Final = re.compile(r"(?:```(?:json)?|<\|\w{1,40}\|>)\s*(?=\{)", re.IGNORECASE)  # or a token of the template
_OBJECT: Final = re.compile(r"\{\s*[^\s}]")  # an object that has something in it
_UNDECIDED: Final = re.compile(
    r'(?:n(?:u(?:ll?)?)?|(?:null|""|\{\s*\}?|\[\s*\]?|```(?:j(?:s(?:on?)?)?)?|<\|\w{1,40}\|>)\s*|"|`{1,2}'
    r"|<(?:\|(?:\w{1,40}\|?)?)?)?\Z",
    re.IGNORECASE,
)
"""The beginning of a placeholder, or of an object."""
_BLANKS_MAX: Final = 1_000  # characters of white space in front of an object: more say nothing
_SPACE: Final = " \t\r\n\ufeff"


class Contradiction(Exception):
    """One call has two different forms in an answer. The message names both."""


class ArgumentStage(StrEnum):
    """How far the arguments are: nothing that counts has come, an object is open, an object is whole."""

    BLANK = "blank"
    OPEN = "open"
    WHOLE = "whole"


class Arguments:
    """The arguments of one call. The text that `take` returns may be shown: `end` returns one that begins with it.

    Servers put `null`, `{}` or `""` in front as a placeholder, repeat the whole object behind itself (also encoded a
    second time, as a JSON string), say in each piece all that came before, or send nothing at all for a call without
    arguments.

    A piece that begins with all that came before may be such a repetition, or an object of the same shape in the
    object (`{"a": ` and `{"a": 1}}`). Both can't be JSON, as a whole object inside another leaves that one open: so the
    pieces wait, and `end` tells them apart."""

    __slots__ = ("_behind", "_chars", "_depth", "_escaped", "_head", "_joiner", "_quoted", "_text", "_waiting", "stage")

    def __init__(self) -> None:
        self.stage = ArgumentStage.BLANK
        self._joiner = TextJoiner()
        self._head = ""  # what came and may become an object
        self._text: list[str] = []  # the object
        self._chars = 0  # of it
        self._behind: list[str] = []  # what came behind the object, or can become none
        self._waiting: list[str] = []  # pieces since the first that began with all before it
        self._depth = 0
        self._quoted = self._escaped = False

    @property
    def is_blank(self) -> bool:
        """Whether nothing has come, or only placeholders."""
        is_beginning = self.stage is ArgumentStage.BLANK and not self._behind
        return is_beginning and _EMPTY.match(self._head.rstrip(_SPACE)) is not None

    def take(self, piece: str) -> str:
        """The next piece. Returns the part of the object that it brings."""
        piece = self._joiner.take(piece)
        if self._head.startswith("{") and piece.startswith(self._head):
            self._head = ""  # `{`, and again `{` with a name behind it
        if self._waiting or self._begins_anew(piece):
            if piece:
                self._waiting.append(piece)
            return ""
        return self._take(piece)

    def _begins_anew(self, piece: str) -> bool:
        """Whether a piece begins with all that came before, which is joined only for pieces of its size."""
        is_as_long = self.stage is ArgumentStage.OPEN and len(piece) >= self._chars
        return is_as_long and piece.startswith("".join(self._text))

    def end(self) -> str:
        """The arguments as they stand, without placeholders and repetitions; "" for none. They may be no JSON.

        Raises Contradiction where another object follows the whole one."""
        rest = self._joiner.end()
        if self._waiting:
            return self._end_of_waiting(rest)
        self._take(rest)
        if self.stage is ArgumentStage.BLANK:
            return _unwrap("".join([*self._behind, self._head]).rstrip(_SPACE))
        text = "".join(self._text)
        behind = "".join(self._behind)
        return text if _repeats(behind, text) else text + behind

    def says(self, text: str) -> bool:
        return is_equal_json(self.end(), Arguments.of(text))

    @classmethod
    def of(cls, text: str) -> str:
        """The arguments that a text holds as a whole."""
        arguments = cls()
        arguments.take(text)
        return arguments.end()

    def agree(self, text: str) -> None:
        """Hold the arguments against those that the server gives at the end. These count where nothing had come before,
        or only their beginning. Raises Contradiction."""
        final = Arguments.of(text)
        if not final:
            return
        so_far = "".join(self._text)
        if self._waiting and is_growing([so_far, *self._waiting, final]):
            self._waiting = []
        if self.is_blank:
            self._head = ""
            self._take(final)
        elif self.stage is ArgumentStage.OPEN and final.startswith(so_far):
            self._take(final[len(so_far) :])
        elif not is_equal_json(final, self.end()):
            raise Contradiction(f"its arguments are {_short(self.end())} and {_short(final)}")

    def _end_of_waiting(self, rest: str) -> str:
        so_far = "".join(self._text)
        in_parts = so_far + "".join(self._waiting) + rest
        grown = self._waiting[-1]
        is_grown = not rest and is_object(grown) and is_growing([so_far, *self._waiting])
        return grown if is_grown and not is_object(in_parts) else Arguments.of(in_parts)

    def _take(self, text: str) -> str:
        if self.stage is ArgumentStage.WHOLE or self._behind:
            self._behind.append(text)
            return ""
        if self.stage is ArgumentStage.BLANK:
            if len(self._head) > _BLANKS_MAX and not text.strip(_SPACE):
                return ""
            text, at = (self._head + text).lstrip(_SPACE), 0
            while placeholder := _PLACEHOLDER.match(text, at) or _FENCE.match(text, at):
                at = placeholder.end()
            self._head = text = text[at:]
            if not _OBJECT.match(text):
                if not _UNDECIDED.match(text):
                    self._behind, self._head = [text], ""
                return ""
            self.stage, self._head = ArgumentStage.OPEN, ""
        end = self._end_of_object(text)
        self._chars += len(text)
        if end is None:
            self._text.append(text)
            return text
        self.stage = ArgumentStage.WHOLE
        self._text.append(text[:end])
        self._behind.append(text[end:])
        return text[:end]

    def _end_of_object(self, text: str) -> int | None:
        """The place behind the open object; None where it does not end in this text."""
        for at, sign in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = sign == "\\"
                self._quoted = sign != '"'
            elif sign == '"':
                self._quoted = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at + 1
        return None


def is_equal_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON value, or the same text."""
    if one == other:
        return True
    try:
        return _same(_parse(one), _parse(other))
    except ValueError:
        return False


def is_growing(texts: Sequence[str]) -> bool:
    """Whether each text begins with the one before it."""
    return all(later.startswith(earlier) for earlier, later in pairwise(texts))


def is_object(text: str) -> bool:
    try:
        return isinstance(_parse(text), dict)
    except ValueError:
        return False


def _parse(text: str) -> Json:
    """Raises ValueError."""
    try:
        return json.loads(text, strict=False)  # some models break the lines of a text
    except RecursionError:
        raise ValueError("nested too deep") from None


def _same(one: Json, other: Json) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _unwrap(text: str) -> str:
    """Arguments that are no object as they stand: "" for a placeholder, the object in a JSON string, else the text."""
    if _EMPTY.match(text):
        return ""
    try:
        inner = _parse(text)
    except ValueError:
        return text
    if not isinstance(inner, str):
        return text
    inner = _unwrap(whole_text(inner).strip(_SPACE))
    return inner if not inner or is_object(inner) else text


def _repeats(behind: str, text: str) -> bool:
    """Whether the text behind a whole object only repeats it. Raises Contradiction for another object."""
    behind, at, decode = behind.strip(_SPACE), 0, json.JSONDecoder(strict=False).raw_decode
    try:
        value = _parse(text) if behind else None
    except ValueError:
        value = text
    while at < len(behind) and not _TOKEN.match(behind, at):
        try:
            _, end = decode(behind, at)
        except (ValueError, RecursionError):
            return False
        repeated = _unwrap(behind[at:end])
        if repeated and repeated != text and not _same(_parse(repeated), value):
            if is_object(repeated) and isinstance(value, dict):
                raise Contradiction(f"its arguments are {_short(text)} and {_short(repeated)}")
            return False
        at = end
        while behind[at : at + 1].isspace():
            at += 1
    while token := _TOKEN.match(behind, at):
        at = token.end()
    return at == len(behind)


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}…"
