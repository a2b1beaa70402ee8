"""Signs that people can't see, that turn the order of others, or that look like others: one list for all that is shown
for somebody to judge, where they stand as their codes (`[U+202E]`). What is stored and sent is never changed. A joiner
or a variation selector stays where writing needs it: in an emoji, in Persian, in Indian scripts. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from hai_flow.primitives.late_patterns import compile_late

RANGES: Final[tuple[tuple[int, int], ...]] = (
    (0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F),  # controls; tabs and line ends are seen
    (0xAD, 0xAD), (0x34F, 0x34F), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891),
    (0x8E2, 0x8E2), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E),
    (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xD800, 0xDFFF), (0xE000, 0xF8FF), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFC), (0xFFFE, 0xFFFF), (0x110BD, 0x110BD), (0x110CD, 0x110CD),
    (0x13430, 0x1343F), (0x16FE4, 0x16FE4), (0x1BCA0, 0x1BCA3), (0x1D159, 0x1D159), (0x1D173, 0x1D17A),
    (0xE0000, 0x10FFFF),
)  # fmt: skip
"""Hidden and turning signs, and those that have no meaning of their own."""

JOINED: Final[tuple[tuple[int, int], ...]] = (
    (0x600, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8FF), (0x900, 0xDFF), (0x1000, 0x109F), (0x1780, 0x17B3),
    (0x1800, 0x180A), (0x1820, 0x18AA), (0x2190, 0x21FF), (0x2300, 0x23FF), (0x2460, 0x24FF), (0x25A0, 0x27BF),
    (0x2900, 0x2BFF), (0x3030, 0x303D), (0x3297, 0x3299), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFE0F, 0xFE0F),
    (0x1F000, 0x1FAFF), (0x20000, 0x3FFFF),
)  # fmt: skip
"""Signs between which joiners stand, and behind which variation selectors do, as their writing needs it."""

ALIKE: Final = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf\u0475\u0433\u043a"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u04c0\u0474\u0492"
    "\u03b1\u03bf\u03bd\u03c1\u03b9\u03c5\u03ba\u03c4\u03c7\u03b3\u03f2\u03f3"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0251\u0261\u026a\u0131\u0237\u1d00\u1d04\u1d0f\u1d1c\u1d20\u1d21\u1d22"
)
"""Letters of other scripts that look like Latin ones. They are shown as codes in words that have Latin ones, too."""

WARNING: Final = "Invisible and look-alike characters are shown as codes such as [U+202E]."

_JOINERS: Final = "\u200c\u200d"


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


_ODD: Final = compile_late(f"[{_class(RANGES)}]")
_UNSEEN: Final = compile_late(f"[{_class(RANGES)}\t\n]")
_TURNING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_JOINED: Final = compile_late(f"[{_class(JOINED)}]")
_ALIKE: Final = re.compile(f"[{ALIKE}]")
_JSON_WORD: Final = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|[^\W\d_]+")
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile(r"[A-Za-z]")


def reveal(text: str) -> str:
    """`text` as people can judge it: hidden, turning and look-alike signs as their codes."""
    if not text.isascii() and _ALIKE.search(text):
        text = _WORD.sub(_reveal_word, text)
    return _ODD.sub(_reveal_sign, text)


def escape_json(text: str) -> str:
    """JSON text in which these signs are escaped: the same value for programs, and seen by people."""
    if not text.isascii() and _ALIKE.search(text):
        text = _JSON_WORD.sub(lambda match: _reveal_word(match, _escape), text)
    return _ODD.sub(lambda match: match[0] if match[0] in "\r" else _reveal_sign(match, _escape), text)


def has_hidden(text: str) -> bool:
    """Whether `reveal` changes the text."""
    return reveal(text) != text


def compose(text: str) -> str:
    """The id, role or group in its composed form (NFC): `é` is one sign, however it was written. Two texts that Unicode
    takes for the same are one name."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def list_spellings(text: str) -> tuple[str, ...]:
    """The composed form, and the decomposed one where that is another: as ids were stored before they were composed."""
    if text.isascii():
        return (text,)
    return tuple(dict.fromkeys(unicodedata.normalize(form, text) for form in ("NFC", "NFD")))


def has_invisible(text: str) -> bool:
    """Whether a sign of the text can't be seen, or turns the others around. No id of a person, role or group has one:
    two that differ by it look the same."""
    return _UNSEEN.search(text) is not None


def visible(text: str) -> str:
    """The text. Raises ValueError where a sign of it can't be seen."""
    return _demand_none(_UNSEEN, text, "expected characters that can be seen")


def straight(text: str) -> str:
    """The text without signs that turn parts of it around: a name of a file that reads as it is."""
    return _TURNING.sub("", text)


def refuse_turns(text: str) -> str:
    """The text. Raises ValueError where a sign of it turns others around."""
    return _demand_none(_TURNING, text, "expected no characters that turn a text around")


def _demand_none(signs: re.Pattern[str], text: str, expected: str) -> str:
    sign = signs.search(text)
    if sign is not None:
        raise ValueError(f"{expected}, found U+{ord(sign[0]):04X}")
    return text


def code_of(sign: str) -> str:
    """The code of a sign, as people are shown it."""
    return f"[U+{ord(sign):04X}]"


def _escape(sign: str) -> str:
    return json.dumps(sign)[1:-1]


def _reveal_word(match: re.Match[str], code: Callable[[str], str] = code_of) -> str:
    word = match[0]
    if word.startswith("\\") or not _LATIN.search(word):
        return word
    return _ALIKE.sub(lambda each: code(each[0]), word)


def _reveal_sign(match: re.Match[str], code: Callable[[str], str] = code_of) -> str:
    sign, text, at = match[0], match.string, match.start()
    before, behind = text[at - 1 : at], text[at + 1 : at + 2]
    if sign in _JOINERS and _JOINED.match(before) and _JOINED.match(behind):
        return sign
    if sign == "\ufe0f" and (
        _JOINED.match(before) or before in tuple("#*0123456789\u00a9\u00ae\u203c\u2049\u2122\u2139")
    ):
        return sign if before != "\ufe0f" else code(sign)
    if sign == "\ufe0e" and _JOINED.match(before) and before != "\ufe0f":
        return sign
    return code(sign)
