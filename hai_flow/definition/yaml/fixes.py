"""Where a finding ends, and the edit that mends it, where the meaning is certain enough.

Where a message says "did you mean `x`?", x replaces the very word that the finding points at; so does "write `x`" of a
name and of a line that YAML can't read. Only this module knows that, so no rule has to write its remedy twice. A
replacement for a key that is not misspelt becomes no edit: the value under the key would have to change as well."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hai_flow.definition.yaml.document import Document, YamlNode
from hai_flow.errors import Edit, Finding

_MEANT: Final = re.compile(r"; did you mean `([^`]+)`\?")
_NAMED: Final = re.compile(r", found `[^`]*`; write `([^`]+)`$")
_STEP: Final = re.compile(r"^`steps\..* is read as a subtraction; ids have no hyphens; write `steps\.([^`]+)`$")
_BARE: Final = re.compile(r"drop the `\$\{\{ \}\}`: (.+)$", re.DOTALL)
_QUOTED: Final = re.compile(r"must be quoted: write (.+), or be written under `\|`$")
_HABIT: Final = re.compile(r"^`([^`]+)` is not CEL; write `([^`]+)`$")
_WORD: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[A-Za-z_]\w*(?:-\w+)*|[^\w\s]+|.")


def complete_findings(document: Document, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with their ends and edits."""
    if not findings:
        return []
    starts = [0]
    for match in re.finditer("\n", document.text):
        starts.append(match.end())
    spans = dict(_spans(document))
    return [_complete(finding, document.text, starts, spans) for finding in findings]


def _complete(finding: Finding, text: str, starts: Sequence[int], spans: dict[tuple[int, int], int]) -> Finding:
    if not 1 <= finding.line <= len(starts):
        return finding
    begin = starts[finding.line - 1] + finding.column - 1
    inside = finding.code.startswith("expression.") and finding.code != "expression.holes"
    end = None if inside else spans.get((finding.line, finding.column))
    if end is None or end < begin:
        word = _WORD.match(text, begin)
        end = word.end() if word else begin
    line = text.count("\n", 0, end) + 1
    column = end - starts[line - 1] + 1
    done = replace(finding, end_line=line, end_column=column)
    edit = _build_edit(done, text, begin, end, starts)
    return replace(done, fix=(edit,)) if edit is not None else done


def _build_edit(finding: Finding, text: str, begin: int, end: int, starts: Sequence[int]) -> Edit | None:
    message = finding.message
    quoted = _QUOTED.search(message)
    if quoted:
        key = quoted[1].partition(" ")[0]
        line = text[starts[finding.line - 1] :].split("\n", 1)[0]
        column = line.find(key) + 1
        return Edit(finding.line, column, finding.line, len(line.rstrip()) + 1, quoted[1]) if column else None
    meant = _MEANT.search(message) or _NAMED.search(message) or _STEP.search(message) or _BARE.search(message)
    habit = _HABIT.match(message)
    if (meant is None and habit is None) or finding.end_line != finding.line:
        return None
    current = text[begin:end]
    suggested = _MEANT.search(message)
    name = current.strip("\"'")
    part = find_part(name, suggested[1]) if suggested is not None else name
    if suggested is not None and finding.code != "duration.invalid" and not _is_near(part, suggested[1]):
        return None
    if habit is not None:
        if not text.startswith(habit[1], begin) or habit[2] == "!":  # YAML would read a tag
            return None
        end_column = finding.column + len(habit[1])
        return Edit(finding.line, finding.column, finding.line, end_column, habit[2])
    assert meant is not None, "one of the two was found"
    new = name.replace(part, meant[1], 1)
    quote = current[:1] if current[:1] in ('"', "'") and current[-1:] == current[:1] else ""
    if quote and quote in new:
        return None
    return Edit(finding.line, finding.column, finding.end_line, finding.end_column, f"{quote}{new}{quote}")


def find_part(name: str, meant: str) -> str:
    """The part of a name (`shp` of `shp.pay`, `plans` of `/plans/0`) for which a word is meant that has no parts.
    All of the name where that is nearer to the word: `order.total` for `order_total`."""
    parts = [part for part in re.split(r"[./:]", name) if part]
    if len(parts) < 2 or meant in parts or re.search(r"[./:]", meant):
        return name
    return max((name, *parts), key=lambda part: difflib.SequenceMatcher(None, part.lower(), meant.lower()).ratio())


def _is_near(written: str, meant: str) -> bool:
    return written in meant or difflib.SequenceMatcher(None, written.lower(), meant.lower()).ratio() >= 0.6


def _spans(document: Document) -> Iterator[tuple[tuple[int, int], int]]:
    """(line, column) of every key and every scalar, and the index behind it."""
    waiting: list[YamlNode] = [document.root] if document.root is not None else []
    while waiting:
        node = waiting.pop()
        for key, begin in node.keys.items():
            length = len(key) + (2 if document.text[begin : begin + 1] in ('"', "'") else 0)
            yield document.lines.place(begin), begin + length
        waiting.extend(node.children.values())
        if node.kind == "scalar":
            end = len(document.text[: node.end].rstrip())
            line, column = document.lines.place(node.start)
            yield (line, column), end
            if document.text[node.start : node.start + 1] in ('"', "'"):
                yield (line, column + 1), end - 1


def apply_fixes(text: str, findings: Sequence[Finding]) -> str:
    """`text` with the edits of the findings made, from its end to its beginning; of two that overlap the later one."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    edits = sorted({edit for finding in findings for edit in finding.fix}, key=lambda each: (each.line, each.column))
    limit = len(text) + 1
    for edit in reversed(edits):
        begin = starts[edit.line - 1] + edit.column - 1
        end = starts[edit.end_line - 1] + edit.end_column - 1
        if end <= limit and begin < limit:
            text = text[:begin] + edit.text + text[end:]
            limit = begin
    return text
