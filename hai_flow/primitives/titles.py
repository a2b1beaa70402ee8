"""The title of a question, as people read it on every surface. Pure.

The console has the same `humanise` (console/src/text/names.ts)."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

import msgspec

from hai_flow.primitives.invisible_characters import reveal

NAMED: Final = 3
LONG: Final = 60
LEVELS: Final = 4  # of objects in objects, in which the first arguments are looked for
TITLE_CHARS_MAX: Final = 200  # of a title that a server or a document gives a tool
_SHORT: Final = frozenset((
    "id", "url", "uri", "api", "vat", "iban", "bic", "sku", "eur", "usd", "gbp", "cny", "jpy",
    "chf", "ip", "json", "csv", "pdf", "html", "sql", "sla", "kpi", "gdpr", "hr", "pii",
))  # fmt: skip
"""Words that are written in capitals."""
MEMBERS: Final = 100
"""How many arguments of a call are looked at for those."""
_ENDS: Final = " \n.:?!"  # behind a title, whose arguments follow
_QUOTES: Final = str.maketrans('"\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}', "'" * 3)
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([_\- ][A-Za-z0-9]+)*", re.ASCII)


class _Own(msgspec.Struct):
    title: str | None = None


def title_call(title: str | None, tool: str | None, args: str | None, evidence: str | None = None) -> str | None:
    """The title that the author gave; of a call without one, the name of the tool, its own title in quotation marks,
    and its first arguments. `args`: JSON without the values that are kept from the reader; `evidence`: that of a gate,
    whose `title` is the tool's own. Its server may be hostile: the name stands first, and signs that can't be seen are
    codes. None: there is neither."""
    if tool is None or (title and title != f"{tool}?"):
        return title
    if "://" in tool:  # the method and the address of a request, which are its first arguments, too
        return f"{tool}?"
    try:
        own = msgspec.json.decode(evidence or "{}", type=_Own).title
    except msgspec.DecodeError:
        own = None
    name = humanise(tool.rpartition(".")[2]) or tool
    own = _cut(reveal((own or "").translate(_QUOTES)).rstrip(_ENDS))
    if own and own.casefold() != name.casefold():
        name = f"{name} \N{LEFT DOUBLE QUOTATION MARK}{own}\N{RIGHT DOUBLE QUOTATION MARK}"
    first = ", ".join(_list_plain(args)[:NAMED])
    return f"{name}: {first}?" if first else f"{name}?"


def humanise(name: str) -> str:
    """`value_eur` is "Value EUR", `askLegal` is "Ask legal"; any other than a plain name stays as it is."""
    if _PLAIN.fullmatch(name) is None:
        return name
    words = re.split(r"[_\- ]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name))
    text = " ".join(
        word.upper() if word.lower() in _SHORT else word if re.fullmatch(r"[A-Z0-9]+", word) else word.lower()
        for word in words
    )
    return text[:1].upper() + text[1:]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return f"{line[:LONG]}\N{HORIZONTAL ELLIPSIS}" if len(line) > LONG else line


def _list_plain(args: str | None, levels: int = LEVELS) -> list[str]:
    """The texts and numbers among the arguments, else those of the first object among them that has some; numbers as
    they were written."""
    try:
        members = msgspec.json.decode(args or "{}", type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return []
    texts, objects = [], []
    for raw in islice(members.values(), MEMBERS):
        literal = bytes(raw).decode()
        if literal[0] == '"':
            line = _cut(reveal(msgspec.json.decode(raw, type=str)))
            texts += [line] if line else []
        elif literal[0] in "-0123456789":
            texts.append(literal)
        elif literal[0] == "{" and levels > 1:
            objects.append(literal)
    return texts or next(filter(None, (_list_plain(each, levels - 1) for each in objects)), [])
