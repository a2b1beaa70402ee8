"""Documents as what they show: their blocks of code, each with its language, its title and the text behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```\n', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands behind the fence, what is in it, and the prose up to the next one."""

    language: str
    title: str | None
    text: str
    behind: str


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document, in their order."""
    found = list(_BLOCK.finditer(document))
    ends = [match.start() for match in found[1:]] + [len(document)]
    return [Block(m[1], m[2], m[3], document[m.end() : end]) for m, end in zip(found, ends, strict=True)]
