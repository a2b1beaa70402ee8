"""Unquoted values that YAML reads in another sense than their author: a text that a ` #` cuts off, a number that loses
its leading zeros.

Both are right YAML, so they are doubts. Hardly a document has one: a look at the text decides whether the nodes are
walked at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hai_flow.definition.names.wording import shorten
from hai_flow.definition.yaml.document import Document, YamlNode
from hai_flow.definition.yaml.mapping_reader import Reader

_CUT: Final = re.compile(r" #(?=\$\{\{|[0-9])")  # `Order #5`; a remark has a space behind its `#`
_ZEROS: Final = re.compile(r"(?<![\w.\"'#$/:-])[-+]?0[0-9]+(?![\w.:/-])")
_ANY_ZEROS: Final = re.compile(r"0(?:(?<![\w.\"'#$/:-]0)|(?<=[-+]0)(?<![\w.\"'#$/:-][-+]0))[0-9]+(?![\w.:/-])")
"""The same, wherever it may begin: a search that begins at a 0 passes quickly over all the rest of a text."""
_CUT_OFF: Final = re.compile(r"[ \t]*(?= #(?:\$\{\{|[0-9]))")


def check_plain_values(reader: Reader) -> None:
    """Report such values of the document."""
    document = reader.document
    if _CUT.search(document.text) is None and _ANY_ZEROS.search(document.text) is None:
        return
    for node in _plain(document):
        end = node.start + len(document.text[node.start : node.end].rstrip())
        if isinstance(node.value, str):
            if _CUT_OFF.match(document.text, end):
                message = "` #` begins a comment, so the text ends before it; quote the whole text"
                reader.warning_at(document.text.index("#", end), "yaml.comment", message)
        elif _ZEROS.fullmatch(document.text, node.start, end):
            source = shorten(document.text[node.start : end])
            message = f"YAML reads {source} as the number {node.value}; quote it to keep its zeros"
            reader.warning_at(node.start, "yaml.zeros", message)


def _plain(document: Document) -> Iterator[YamlNode]:
    """Every unquoted value, once for each place in the text."""
    waiting: list[YamlNode] = [document.root] if document.root is not None else []
    starts: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node.start in starts and node.kind == "scalar":
            continue
        if node.kind == "scalar":
            starts.add(node.start)
        waiting.extend(node.children.values())
        if node.plain:
            yield node
