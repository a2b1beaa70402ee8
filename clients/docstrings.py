"""A docstring of the server as the Python client has it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping


def retold(docstring: str, closed: Mapping[str, list[str]], phrases: Iterable[tuple[str, str]] = ()) -> str:
    """The docstring, indented by four, with `phrases` replaced, and with the words of the `closed` lists (of which
    field, which ones) that it does not name itself. Empty: there is none."""
    paragraphs = [re.sub(r"\s+", " ", each) for each in docstring.split("\n\n") if each]
    for phrase, other in phrases:
        paragraphs = [each.replace(phrase, other) for each in paragraphs]
    unnamed = {name: known for name, known in closed.items() if not all(word in docstring for word in known)}
    lists = [f"`{name}`: {', '.join(known[:-1])} or {known[-1]}." for name, known in unnamed.items()]
    if lists:
        paragraphs.append(" ".join(lists))
    marks = ('"""', *[""] * len(paragraphs))
    text = "\n\n".join(textwrap.fill(mark + each, 116) for mark, each in zip(marks, paragraphs, strict=False))
    text = text.removeprefix('"""')
    last = text.splitlines()[-1] if text else ""
    return text + "\n" if "\n\n" in text else text if len(last) <= 110 else textwrap.fill(text, 110)
