"""One way to write a document (`hai-flow fmt`). Its meaning is never changed.

Works on the text itself, guided by where the parser found things, because a YAML writer would lose things that authors
care about: comments, blank lines, quotes, the choice between flow and block. In four passes:

1. An unquoted hole that YAML alone would read in another way is quoted: `{a: ${{ x }}}`, `a: ${{ b ? c : d }}`.
2. The `${{ }}` around a whole bare expression goes: `if: ${{ x }}`.
3. Keys of the document and of steps come in their order, each with the comments above it.
4. No space at the ends of lines, no two empty lines in a row, one line feed at the end.

After each pass the text is read again; a pass that would change a value is not made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from hai_flow.authoring.walking import expressions, mappings_with_order
from hai_flow.definition.expressions.expression_error import Faults
from hai_flow.definition.names.holes import split_holes
from hai_flow.definition.yaml.document import Document, Path, YamlNode, parse
from hai_flow.definition.yaml.language import DOCUMENT_ORDER, STEP_ORDER
from hai_flow.errors import DefinitionError
from hai_flow.values import Json

_STEP_RANKS: Final = {key: rank for rank, key in enumerate(STEP_ORDER)}
_DOCUMENT_RANKS: Final = {key: rank for rank, key in enumerate(DOCUMENT_ORDER)}


def format_source(source: bytes, file: str = "<workflow>") -> str:
    """The document in its one form. Raises `DefinitionError` if YAML can't read it."""
    document = parse(source, file)
    if document.findings:
        raise DefinitionError(document.findings)
    document = _keep_meaning(document, _quote_holes(document))
    while (unwrapped := _keep_meaning(document, _unwrap_holes(document))) is not document:
        document = unwrapped
    document = _keep_meaning(document, _reorder_keys(document))
    return _keep_meaning(document, _trim(document)).text


def _keep_meaning(document: Document, text: str) -> Document:
    """`text`, read, if it means the same; else `document`."""
    if text == document.text:
        return document
    changed = parse(text.encode(), document.file)
    return changed if not changed.findings and _meaning(changed) == _meaning(document) else document


def _meaning(document: Document) -> Json:
    """The document's value, its bare expressions without the holes around them."""
    bare = {path: _inside(text) or text.strip() for path, text in expressions(document.value)}

    def visit(value: Json, path: Path) -> Json:
        if isinstance(value, dict):
            return {key: visit(part, (*path, key)) for key, part in value.items()}
        if isinstance(value, list):
            return [visit(part, (*path, index)) for index, part in enumerate(value)]
        return bare.get(path, value)

    return visit(document.value, ())


# -- bare expressions ----------------------------------------------------------------------------------------------


def _unwrap_holes(document: Document) -> str:
    """The text without the holes around whole bare expressions."""
    edits: dict[tuple[int, int], str] = {}
    for path, text in expressions(document.value):
        node = document.node(path)
        inner = _inside(text)
        if node is None or inner is None:
            continue
        source = document.text[node.start : node.end]
        bare = _write_bare(source, inner, _is_in_flow(document, path))
        if bare is not None:
            edits[node.start, node.end] = bare
    return _apply_edits(document.text, edits)


def _inside(text: str) -> str | None:
    """The expression in a text that is one whole hole; None for any other."""
    try:
        pieces = split_holes(text.strip())
    except Faults:
        return None
    if len(pieces) != 1 or isinstance(pieces[0], str):
        return None
    return pieces[0].source.strip()


def _is_in_flow(document: Document, path: Path) -> bool:
    for length in range(len(path)):
        node = document.node(path[:length])
        if node is not None and node.kind != "scalar" and document.text[node.start : node.start + 1] in "{[":
            return True
    return False


def _write_bare(written: str, inner: str, in_flow: bool) -> str | None:
    """How `inner` is written in the place of `written`; None where that is not certain."""
    if written.startswith(("|", ">")):
        return _block_bare(written)
    if "\n" in inner:
        return None
    for candidate in (inner, _quote(inner)):
        sample = f"- {{a: {candidate}, b: 1}}\n" if in_flow else f"- a: {candidate}\n  b: 1\n"
        read = parse(sample.encode(), strict=True)
        if not read.findings and read.value == [{"a": inner, "b": 1}]:
            return candidate
    return None


def _block_bare(written: str) -> str | None:
    """A block scalar without the marks of its hole, if its first line keeps something."""
    begin, end = written.find("${{"), written.rfind("}}")
    if begin < 0 or end < begin or written[begin + 3 :].lstrip(" ").startswith("\n"):
        return None
    before = re.sub(r"\$\{\{ *$", "", written[: begin + 3])
    return before + written[begin + 3 : end].strip(" ") + written[end + 2 :]


# -- the order of keys ---------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, frozen=True):
    """A key of a block mapping with all of its lines: `start` the first (comments above included), `key` its own."""

    name: str
    start: int
    key: int
    end: int  # exclusive


def _reorder_keys(document: Document) -> str:
    """The text with the keys of the document and of every step in their order."""
    lines = document.text.split("\n")
    mappings = [(node, ranks) for node, ranks in _find_unordered(document)]
    # From the bottom up: inner mappings begin later, and a permutation inside an entry moves none of its borders.
    for node, ranks in sorted(mappings, key=lambda each: each[0].start, reverse=True):
        entries = _entries(document, node, lines)
        if entries:
            _permute(lines, entries, ranks, _indent(document, node))
    return "\n".join(lines)


def _find_unordered(document: Document) -> Iterator[tuple[YamlNode, dict[str, int]]]:
    """Every block mapping that has an order and does not keep it, once."""
    starts: set[int] = set()
    for path, is_step in mappings_with_order(document.value):
        node = document.node(path)
        ranks = _STEP_RANKS if is_step else _DOCUMENT_RANKS
        if node is None or node.start in starts or document.text[node.start : node.start + 1] == "{":
            continue
        starts.add(node.start)
        keys = list(node.keys)
        if keys != _sort_keys(keys, ranks):
            yield node, ranks


def _sort_keys(keys: Sequence[str], ranks: dict[str, int]) -> list[str]:
    return sorted(keys, key=lambda key: ranks.get(key, len(ranks)))


def _entries(document: Document, node: YamlNode, lines: Sequence[str]) -> list[_Entry]:
    """The entries of a block mapping; none where two keys share a line or a key is written in an unusual way."""
    places = [document.lines.place(begin) for begin in node.keys.values()]
    keys = [line - 1 for line, _ in places]
    indent = _indent(document, node)
    if any(column - 1 != indent for _, column in places) or len(set(keys)) < len(keys):
        return []
    starts = [keys[0], *(_first_line(lines, key, indent, before) for before, key in pairwise(keys))]
    last = _last_line(document, node, list(node.keys)[-1]) + 1
    while last < len(lines) and re.match(rf" {{{indent},}}#", lines[last]):
        last += 1
    ends = [*starts[1:], last]
    return [_Entry(*each) for each in zip(node.keys, starts, keys, ends, strict=True)]


def _indent(document: Document, node: YamlNode) -> int:
    """How many characters stand before the first key."""
    return document.lines.place(next(iter(node.keys.values())))[1] - 1


def _first_line(lines: Sequence[str], key: int, indent: int, after: int) -> int:
    """The first of the empty lines and comments right above a key that are its own: not indented deeper."""
    first = key
    while first - 1 > after and re.fullmatch(rf"\s*|\s{{0,{indent}}}#.*", lines[first - 1]):
        first -= 1
    return first


def _last_line(document: Document, node: YamlNode, key: str) -> int:
    """The last line (from 0) on which something of the value of `key` stands."""
    begin = node.keys[key]
    return max(_line(document, begin), *_last_lines(document, node.children[key], begin))


def _last_lines(document: Document, node: YamlNode, after: int) -> Iterator[int]:
    """The last line of everything below; an alias stands for a value elsewhere, and counts for nothing."""
    if node.start < after:
        yield -1
        return
    yield _end_line(document, node) if not node.children else _line(document, node.start)
    for child in node.children.values():
        yield from _last_lines(document, child, after)


def _end_line(document: Document, node: YamlNode) -> int:
    """The line (from 0) of the last character of a scalar, or of an empty collection."""
    return _line(document, max(node.start, node.end - 1))


def _line(document: Document, index: int) -> int:
    return document.lines.place(index)[0] - 1


def _permute(lines: list[str], entries: Sequence[_Entry], ranks: dict[str, int], indent: int) -> None:
    """Put the entries in order, in place. The number of lines stays."""
    order = _sort_keys([entry.name for entry in entries], ranks)
    by_name = {entry.name: entry for entry in entries}
    head = entries[0]
    dash = lines[head.key][:indent]
    blocks = {name: lines[entry.start : entry.end] for name, entry in by_name.items()}
    blocks[head.name][0] = " " * indent + lines[head.key][indent:]
    first = by_name[order[0]]
    above = blocks[first.name][: first.key - first.start]
    body = blocks[first.name][first.key - first.start :]
    if first is head:
        above, body = [], blocks[first.name]
    comments = [line for line in above if line.strip()]
    empty = [line for line in above if not line.strip()]
    body[0] = dash + body[0][indent:]
    if dash.strip():
        comments = [dash[: dash.index("-")] + line.lstrip() for line in comments]
    rest = [line for name in order[1:] for line in blocks[name]]
    at = order[1:].index(head.name) if first is not head else 0
    position = sum(len(blocks[name]) for name in order[1:][:at])
    rest[position:position] = empty
    lines[head.start : entries[-1].end] = [*comments, *body, *rest]


# -- white space ---------------------------------------------------------------------------------------------------


def _trim(document: Document) -> str:
    """The text without invisible space."""
    protected_lines = _lines_of_texts(document)
    result: list[str] = []
    for number, line in enumerate(document.text.split("\n")):
        if number in protected_lines:
            result.append(line)
            continue
        line = line.rstrip()
        if line or (result and result[-1]):
            result.append(line)
    while result and not result[-1]:
        result.pop()
    return "\n".join(result) + "\n"


def _lines_of_texts(document: Document) -> set[int]:
    """Every line (from 0) of a text that goes over several: its spaces may be part of it."""
    lines: set[int] = set()

    def visit(node: YamlNode) -> None:
        if node.kind == "scalar":
            first, last = _line(document, node.start), _end_line(document, node)
            if last > first:
                lines.update(range(first, last + 1))
        for child in node.children.values():
            visit(child)

    if document.root:
        visit(document.root)
    return lines


# -- holes without quotes ------------------------------------------------------------------------------------------


def _quote_holes(document: Document) -> str:
    """The text with quotes around each unquoted text that YAML alone would read in another way."""
    edits: dict[tuple[int, int], str] = {}

    def visit(node: YamlNode, in_flow: bool) -> None:
        if node.lenient and not _reads_alike(document, node, in_flow):
            edits[node.start, node.end] = _quote(node.value)
        flow = in_flow or document.text[node.start : node.start + 1] in ("{", "[")
        for child in node.children.values():
            visit(child, flow)

    if document.root:
        visit(document.root, False)
    return _apply_edits(document.text, edits)


def _reads_alike(document: Document, node: YamlNode, in_flow: bool) -> bool:
    """Whether YAML alone reads the text there as it is meant."""
    source = document.text[node.start : node.end]
    sample = f"- {{a: {source}, b: 1}}\n" if in_flow else f"- a: {source}\n  b: 1\n"
    read = parse(sample.encode(), strict=True)
    return not read.findings and read.value == [{"a": node.value, "b": 1}]


def _apply_edits(text: str, edits: Mapping[tuple[int, int], str]) -> str:
    for (start, end), new in sorted(edits.items(), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _quote(text: str) -> str:
    """`text` in the quotes that need the fewest escapes."""
    if '"' in text or "\\" in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'
