"""Where in a workflow a cursor is: by its indentation, as the text may not be YAML while it is typed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from hai_flow.definition.yaml.document import Document, Path
from hai_flow.definition.yaml.keys import Shape, Type
from hai_flow.definition.yaml.language import SHAPES, STEP_SHAPES, VERBS

_KEY: Final = re.compile(r"""(?P<dashes>\s*(?:-\s+)*)(?P<key>["']?[\w./-]+["']?)\s*:(?=\s|$)""")
_LINES_MAX: Final = 5000
_HOLE_LINES_MAX: Final = 100


class SourcePosition(msgspec.Struct, frozen=True):
    """`keys`: those around the place, outermost first, without the indexes of lists; `siblings`: the other keys of the
    mapping that it stands in; `key`: the key on its own line, whose value it is in ("": it is where a key is written);
    `word`: the text before the cursor that is being written."""

    keys: tuple[str, ...]
    siblings: Mapping[str, str]
    key: str
    before: str
    is_item: bool


def cursor_at(text: str, line: int, column: int) -> SourcePosition:
    """The cursor before the character `column` of a line, both from 0."""
    lines = text.split("\n")
    own = lines[line] if line < len(lines) else ""
    before = own[:column]
    match = _KEY.match(own)
    is_key = match is None or column <= match.end("key")
    indent = len(before) - len(before.lstrip(" -")) if match is None else len(match["dashes"])
    siblings = dict(_siblings(lines, line, indent))
    keys = tuple(_around(lines, line, indent))
    inside = before if match is None else before[match.end() :]
    is_item = "-" in own[:indent] or (match is None and before.strip() == "-")
    key = "" if is_key or match is None else match["key"].strip("\"'")
    return SourcePosition(keys, siblings, key, before[indent:] if is_key else inside, is_item)


def is_in_hole(above: list[str], before: str) -> bool:
    """Whether a hole is open at the end of `before`, perhaps since a line `above` whose value goes on."""
    indent = len(before) - len(before.lstrip(" "))
    for line in (before, *above[:-_HOLE_LINES_MAX:-1]):
        start, end = line.rfind("${{"), line.rfind("}}")
        margin = len(line) - len(line.lstrip(" -"))
        if start > end:
            return line is before or indent > margin or (indent == margin and _KEY.match(line) is None)
        if end >= 0:
            return False
        if line.strip():
            indent = min(indent, margin)
    return False


def _entry(line: str) -> tuple[int, int, str, str] | None:
    """The indentation of the line, of its key, the key, and the text behind it."""
    match = _KEY.match(line)
    if match is None:
        return None
    dashes = match["dashes"]
    outer = len(dashes) - len(dashes.lstrip(" "))
    return outer, len(dashes), match["key"].strip("\"'"), line[match.end() :].strip()


def _around(lines: list[str], line: int, indent: int) -> list[str]:
    """The keys whose values hold a place with this indentation."""
    keys: list[str] = []
    has_dash = "-" in lines[line][:indent] if line < len(lines) else False
    limit = lines[line].index("-") + 1 if has_dash else indent
    for number in range(line - 1, max(-1, line - _LINES_MAX), -1):
        entry = _entry(lines[number])
        if entry is None:
            continue
        outer, inner, key, _ = entry
        if inner < limit:
            keys.append(key)
            limit = inner if inner == outer else outer + 1
        elif outer < limit <= inner:  # the first key of the item that the place is in
            limit = outer + 1
        if limit <= 0:
            break
    return keys[::-1]


def _siblings(lines: list[str], line: int, indent: int) -> Iterator[tuple[str, str]]:
    for step in (-1, 1):
        number = line + step
        if step == -1 and line < len(lines) and "-" in lines[line][:indent]:
            continue
        while 0 <= number < len(lines):
            text = lines[number]
            entry = _entry(text)
            if text.strip() and len(text) - len(text.lstrip(" ")) < indent and (entry is None or entry[1] != indent):
                break
            if entry is not None and entry[1] == indent:
                if step == 1 and entry[0] != entry[1]:
                    break
                yield entry[2], entry[3]
                if entry[0] != entry[1]:
                    break
            number += step


def type_at(keys: tuple[str, ...]) -> Type | None:
    """The type of the value under these keys; None where the language does not say it."""
    value_type: Type | None = Type("shape", "", shape="document")
    for key in keys:
        value_type = None if value_type is None else _below(value_type, key)
    return value_type


def _below(type_: Type, key: str) -> Type | None:
    match type_.kind:
        case "shape":
            return next((each.type for each in SHAPES[type_.shape].keys if each.name == key), None)
        case "steps":
            if key in VERBS:
                return VERBS[key].type
            return next((each.type for each in SHAPES["step"].keys if each.name == key), None)
        case "list":
            return _below(type_.parts[0], key)
        case "map":
            return type_.parts[0]
        case "either":
            return next((inner for part in type_.parts if (inner := _below(part, key)) is not None), None)
    return None


def shape_at(type_: Type | None, siblings: Mapping[str, str]) -> Shape | None:
    """The mapping that may stand there; of a step that of its verb, if it has one."""
    if type_ is None:
        return None
    match type_.kind:
        case "shape":
            return SHAPES[type_.shape]
        case "steps":
            verb = next((each for each in siblings if each in STEP_SHAPES), None)
            return STEP_SHAPES[verb] if verb else SHAPES["step"]
        case "list" | "either":
            return next((shape for part in type_.parts if (shape := shape_at(part, siblings)) is not None), None)
    return None


def path_at(document: Document, index: int) -> tuple[Path, bool]:
    """The path of the value at a place of the text, or (True) of the key there."""
    path: tuple[str | int, ...] = ()
    node = document.root
    while node is not None:
        for key, begin in node.keys.items():
            if begin <= index <= begin + len(key):
                return (*path, key), True
        inside = None
        for key, child in node.children.items():
            if child.start <= index and (inside is None or child.start > node.children[inside].start):
                inside = key
        if inside is None:
            break
        child = node.children[inside]
        if child.kind == "scalar" and index > child.end:
            break
        path, node = (*path, inside), child
    return path, False
