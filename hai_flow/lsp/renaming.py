"""The places at which a test of a workflow names its steps, for their renaming."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hai_flow.definition.yaml.document import YamlNode, parse
from hai_flow.errors import Edit

_NAMED: Final = frozenset(("pending",))  # keys whose values are steps, by id or path
_MAPS: Final = frozenset(("mock", "steps"))  # keys whose mappings have steps for keys


def workflow_of(text: str) -> str:
    """The `workflow` that a test names, as it stands there; "" where it names none."""
    root = parse(text.encode("utf-8", "replace"), "a.test.yaml").root
    named = root.children.get("workflow") if root is not None else None
    return named.value if named is not None and isinstance(named.value, str) else ""


def edits_in_test(text: str, old: str, new: str) -> list[Edit]:
    """The edits that give a step its new id in a test of its workflow: alone, or as a part of a path."""
    document = parse(text.encode("utf-8", "replace"), "a.test.yaml")
    part = re.compile(rf"(?:^|(?<=[\"'/])){re.escape(old)}(?=$|[\"'/\[])")
    edits: list[Edit] = []
    for start, end in _places(document.root, document.text):
        for match in part.finditer(document.text[start:end]):
            first, last = start + match.start(), start + match.end()
            edits.append(Edit(*document.lines.place(first), *document.lines.place(last), new))
    return sorted(edits, key=lambda each: (each.line, each.column))


def _places(root: YamlNode | None, text: str) -> Iterator[tuple[int, int]]:
    """Where the names of steps begin and end in a test."""
    waiting: list[tuple[str, YamlNode]] = [("", root)] if root is not None else []
    while waiting:
        word, node = waiting.pop()
        if word in _NAMED:
            for each in (node, *node.children.values()):
                if each.kind == "scalar" and isinstance(each.value, str):
                    yield each.start, each.end
        if word in _MAPS and node.kind == "mapping":
            for key, start in node.keys.items():
                yield start, start + len(key) + 2 * (text[start : start + 1] in ("'", '"'))
        waiting += [(key if isinstance(key, str) else "", child) for key, child in node.children.items()]
