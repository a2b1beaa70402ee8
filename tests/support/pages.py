"""The visible parts of documents: their blocks of code, their headings as anchors, their links."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```\n', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: the words behind its opening fence, its text, and the prose up to the next block."""

    language: str
    title: str | None
    text: str
    behind: str


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document, in their order."""
    found = list(_BLOCK.finditer(document))
    ends = [match.start() for match in found[1:]] + [len(document)]
    return [Block(m[1], m[2], m[3], document[m.end() : end]) for m, end in zip(found, ends, strict=True)]


def prose(document: str) -> str:
    """The document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", document, flags=re.MULTILINE | re.DOTALL)


def anchors(document: str) -> list[str]:
    """The anchors of the headings, as code hosts and the site make them."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", prose(document), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip().lower()
        found.append(re.sub(r"\s", "-", words))
    return found


def links(document: str) -> list[str]:
    """The targets of the document's links and pictures."""
    text = re.sub(r"`[^`\n]*`", "", prose(document))
    return re.findall(r"\]\(([^()\s]+)\)", text)
