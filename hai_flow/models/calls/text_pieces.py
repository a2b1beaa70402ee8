"""Text that comes in pieces: characters that were cut in two, and thinking that stands within the text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hai_flow.models.vocabulary import Piece, Retraction, Text, Thinking

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BYTES: Final = re.compile("[\udc80-\udcff]+")  # bytes that were no UTF-8 by themselves, as `surrogateescape` has them
_CUT: Final = re.compile(
    "(?:[\ud800-\udbff]|[\udcc2-\udcdf]|[\udce0-\udcef][\udc80-\udcbf]?|[\udcf0-\udcf4][\udc80-\udcbf]{0,2})\\Z"
)
"""Half a character: the first of two escapes, or fewer bytes than its first byte announces."""
_TAGS: Final = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # Gemma
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi
}
"""The tags around the thinking of a model, each with its closing one."""


class TextJoiner:
    """Joins pieces of text where a server has cut a character in two: between the two escapes of an emoji, or between
    the bytes of a character. Half a character is held back until its other half comes."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: str) -> str:
        if not self._half and (piece.isascii() or not _SURROGATE.search(piece)):
            return piece
        text = _join_surrogates(self._half + piece)
        cut = _CUT.search(text)
        self._half = text[cut.start() :] if cut else ""
        return _plain(text[: cut.start()] if cut else text)

    def end(self) -> str:
        """What is left behind the last piece: U+FFFD for half a character."""
        half, self._half = self._half, ""
        return _plain(half)


def whole_text(text: str) -> str:
    """The text with every pair of surrogates joined, and U+FFFD for each that is alone."""
    return text if text.isascii() or not _SURROGATE.search(text) else _plain(_join_surrogates(text))


def _join_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _plain(text: str) -> str:
    if text.isascii():
        return text
    text = _BYTES.sub(lambda run: run[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), text)
    return _SURROGATE.sub("\ufffd", text)


class ThinkTags:
    """Divides text in which thinking stands between two of `_TAGS`, however it is cut into pieces.

    `opened`: the model's template writes the first tag itself, so that the answer begins within the thinking."""

    def __init__(self, *, opened: bool = False) -> None:
        self._thinks = opened
        self._opened = opened  # a tag at the very beginning is expected no more, and no part of the thinking
        self._kept = ""
        self._begins = True  # in front of the answer: blank lines there are no part of it
        self._tagged = opened
        self._pairs = _TAGS  # those that count: of the first tag on, one

    def read(self, text: str) -> Iterator[Piece]:
        text, self._kept = self._kept + text, ""
        at = 0  # what stands in front of it has been divided: it is not copied for each of many tags
        while at < len(text):
            if self._opened:
                text, at = text.lstrip(), 0
                if any(len(text) < len(tag) and tag.startswith(text) for tag in _TAGS):
                    self._kept = text
                    return
                at = len(next((tag for tag in _TAGS if text.startswith(tag)), ""))
                self._opened = False
                continue
            if self._begins and not self._thinks:
                while text.startswith("\n", at):
                    at += 1
                self._begins = at == len(text)
            tag, end = self._next_tag(text, at)
            yield from self._piece(text[at:end])
            if not tag:
                self._kept = text[end:]
                return
            at = end + len(tag)
            closes = tag not in self._pairs
            if closes and not self._thinks and not self._tagged:
                yield Retraction()  # the template opened the thinking: all the text so far was part of it
            self._pairs = {first: last for first, last in self._pairs.items() if tag in (first, last)}
            self._thinks, self._begins, self._tagged = not closes, True, True

    def end(self) -> Iterator[Piece]:
        rest, self._kept = self._kept, ""
        yield from self._piece(rest)

    def _next_tag(self, text: str, start: int) -> tuple[str, int]:
        """The next tag that counts here ("": none), and its place; of a text without one, the place of what may be the
        beginning of a tag."""
        tags = [
            *([] if self._thinks else self._pairs),
            *(self._pairs.values() if self._thinks or not self._tagged else ()),
        ]
        places = [(at, tag) for tag in tags if (at := text.find(tag, start)) >= 0]
        if places:
            at, tag = min(places)
            return tag, at
        return "", len(text) - max(_beginning(text[start:], tag) for tag in tags)

    def _piece(self, text: str) -> Iterator[Piece]:
        if text:
            yield Thinking(text) if self._thinks else Text(text)


def _beginning(text: str, tag: str) -> int:
    """How many of the last characters may be the beginning of `tag`."""
    end = text[1 - len(tag) :]
    if tag[0] not in end:
        return 0
    return next((size for size in range(len(end), 0, -1) if tag.startswith(end[-size:])), 0)
