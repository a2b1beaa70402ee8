"""A text that a regular expression matches, for samples: the first that can be written down without any search.

Read by a small grammar of our own, from left to right, once: an alternative is its first one, a repetition as short as
it may be. What the grammar does not have (lookaround, references, properties of Unicode) gives no text. Whether the
text matches is asked of the schema, so a pattern that is read in another sense costs a sample and nothing else."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 200  # characters; longer ones are no samples, and `a{99999}` is not written out
_PATTERN_MAX: Final = 1000
_DEPTH_MAX: Final = 20
_CLASSES: Final = {"d": "1", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
_MEMBERS: Final = {"d": "0123456789", "w": "abcABC012_", "s": " \t"}  # enough of each to find what is outside
_PLAIN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_OUTSIDE: Final = "aA1-_ .x!"  # what a `[^...]` may be, in this order
_NO_TEXT: Final = "^$"


class _Unknown(Exception):
    """Something that the grammar does not have, or a text that becomes too long."""


def matching(pattern: str, more: int = 0) -> str | None:
    """A text with a match of `pattern`; None: none is known. `more`: how much longer than the shortest repetitions may
    be, where a text has to have some length."""
    if len(pattern) > _PATTERN_MAX:
        return None
    reader = _PatternReader(pattern, more)
    try:
        text = reader.alternatives(0)
    except _Unknown:
        return None
    return text if reader.at == len(pattern) else None


class _PatternReader:
    def __init__(self, pattern: str, more: int) -> None:
        self.pattern = pattern
        self.more = more
        self.at = 0

    def alternatives(self, depth: int) -> str:
        """The text of the first alternative; the others are read and left out."""
        if depth > _DEPTH_MAX:
            raise _Unknown
        first = self._sequence(depth)
        while self._takes("|"):
            self._sequence(depth)
        return first

    def _sequence(self, depth: int) -> str:
        text = ""
        while self.at < len(self.pattern) and self._ahead() not in "|)":
            text += self._repeat(self._atom(depth))
            if len(text) > LONGEST:
                raise _Unknown
        return text

    def _atom(self, depth: int) -> str:
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                return self._read_escape()
            case ".":
                return "a"
            case "*" | "+" | "?" | "{":
                raise _Unknown
            case _:
                return "" if character in _NO_TEXT else character

    def _group(self, depth: int) -> str:
        if self._takes("?") and not self._takes(":"):
            if not self._takes("<") or self._ahead() in "=!":
                raise _Unknown
            while self._next() != ">":
                pass
        text = self.alternatives(depth + 1)
        if not self._takes(")"):
            raise _Unknown
        return text

    def _read_escape(self) -> str:
        letter = self._next()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _PLAIN:
            return _PLAIN[letter]
        if letter in "bB":
            return ""
        if letter.isalnum():  # a reference, a code, a property
            raise _Unknown
        return letter

    def _class(self) -> str:
        inverted = self._takes("^")
        singles, ranges = self._members()
        if not inverted:
            character = "".join([*singles[:1], *(low for low, _ in ranges[:1])])[:1]
            if not character:
                raise _Unknown
            return character
        for candidate in _OUTSIDE:
            if candidate not in singles and not any(low <= candidate <= high for low, high in ranges):
                return candidate
        raise _Unknown

    def _members(self) -> tuple[str, list[tuple[str, str]]]:
        """The single characters of a class, and its ranges."""
        singles: str = ""
        ranges: list[tuple[str, str]] = []
        while (character := self._next()) != "]":
            if character == "[":
                raise _Unknown  # classes in classes differ between engines
            if character == "\\":
                letter = self._next()
                if letter in _MEMBERS:
                    singles += _MEMBERS[letter]
                    continue
                if letter.isalnum() and letter not in _PLAIN:
                    raise _Unknown
                character = _PLAIN.get(letter, letter)
            if self._ahead() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", "\\", ""):
                self.at += 1
                ranges.append((character, self._next()))
            else:
                singles += character
        return singles, ranges

    def _repeat(self, text: str) -> str:
        least, most = self._bounds()
        times = min(least + self.more, most) if most is not None else least + self.more
        if len(text) * times > LONGEST:
            raise _Unknown
        return text * times

    def _bounds(self) -> tuple[int, int | None]:
        """How often at least and at most what stands before is repeated; None: without end."""
        bounds: tuple[int, int | None] = (1, 1)
        if self._takes("*"):
            bounds = (0, None)
        elif self._takes("+"):
            bounds = (1, None)
        elif self._takes("?"):
            bounds = (0, 1)
        elif self._takes("{"):
            bounds = self._read_count()
        else:
            return bounds
        self._takes("?")  # lazy, which changes nothing here
        return bounds

    def _read_count(self) -> tuple[int, int | None]:
        end = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at : max(end, self.at)].partition(",")
        if not _is_count(least) or (most and not _is_count(most)):
            raise _Unknown
        self.at = end + 1
        return int(least), int(most) if most else None if comma else int(least)

    def _ahead(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _takes(self, character: str) -> bool:
        is_next = self._ahead() == character
        self.at += is_next
        return is_next

    def _next(self) -> str:
        if self.at >= len(self.pattern):
            raise _Unknown
        self.at += 1
        return self.pattern[self.at - 1]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
