"""YAML read into a value in which every key and every value knows its line and column (docs/language.md#notation).

Only the *events* of PyYAML's C parser are used: its `compose` recurses in C and dies of `'[' * 50000`. Everything that
YAML would quietly drop, merge, guess or expand without bound is a finding here. Absent on purpose: any meaning."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import msgspec
import yaml

from hai_flow.definition.names.holes import PRIVATE, Masked, end_of_hole, mask_holes
from hai_flow.definition.names.wording import describe_odd_sign, shorten
from hai_flow.errors import Edit, Finding
from hai_flow.values import INTEGER_MAX, Json

Path: TypeAlias = tuple[str | int, ...]

BYTES_MAX: Final = 256 * 1024
DEPTH_MAX: Final = 40
NODES_MAX: Final = 20_000
FINDINGS_MAX: Final = 200  # a broken document repeats itself; the two hundredth finding helps no reader

_MISSES_MAX: Final = 100  # escaped words that `locate` looks for in vain before it gives the text's beginning

_AFTER_QUOTE = re.compile(r"""(?:^|[:-])\s+(?:"[^"]*"|'[^']*')\s*[^\s,#:\]}]""")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NOTHING: Final[dict[Any, Any]] = {}  # the keys and children of every scalar
_NUMERIC: Final = frozenset("+-.0123456789")
_WORDS: Final[dict[str, Json]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Characters that PostgreSQL and JSON can't carry, or that an editor would not show. TAB, LF and CR are fine.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


# Signs that look like a space, or like nothing, and are none to YAML: it reads `-\u00a0say` as one word.
_BREAKS: Final = "\x85\u2028\u2029"  # line breaks of YAML 1.1, which no editor takes for one
_UNSEEN = (
    f"{_BREAKS}\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f"
    "\u202a-\u202f\u205f-\u2064\u2066-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SPOILT = re.compile(rf"[{_UNSEEN}]")
# In an unquoted text: where it begins with one, or has one behind the `-` of an item or the colon of a key.
_SPOILT_TEXT = re.compile(rf"^(?:-|[\w-]+:)?([{_UNSEEN}])")
_SPOILT_BY_MARK = re.compile(r"(?:(?<=[\w-])|\n *)(?P<mark>\ufeff)(?=[\w-])|\n *(?P<indent>\ufeff) *[\w-]")
_SPOILT_INDENT = re.compile(rf" *([{_UNSEEN}])")
_PAIR = re.compile(r"\\(?:\\|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_HALF = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F][0-9a-fA-F]{2}")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PAIRS_MAX: Final = 200  # texts with pairs in a document that is not JSON; each is looked for when YAML stops at it


class Lines:
    """Where the lines of a text begin. A place is kept as an index; few are ever asked for their line."""

    __slots__ = ("_starts",)

    def __init__(self, text: str) -> None:
        self._starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))][:-1]

    def place(self, index: int) -> tuple[int, int]:
        """(line, column) of the character at `index`, from 1."""
        line = bisect_right(self._starts, index)
        return line, index - self._starts[line - 1] + 1


@dataclass(slots=True)
class YamlNode:
    """One value. `start` and `end` are indexes of characters; `keys`: where each key of a mapping begins; `size`: its
    nodes, aliases expanded."""

    kind: Literal["scalar", "mapping", "list"]
    value: Json
    start: int
    end: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    children: dict[str | int, YamlNode] = field(default_factory=dict)
    size: int = 1
    depth: int = 1
    plain: bool = False
    lenient: bool = False  # an unquoted text with a hole in which YAML itself might read something else


class Document(msgspec.Struct, frozen=True):
    """A parsed file. `value` is plain JSON (None where nothing could be read); `findings` are in document order."""

    file: str
    text: str
    value: Json
    findings: tuple[Finding, ...]
    root: YamlNode | None
    lines: Lines
    broken: frozenset[int] = frozenset()  # lines that YAML could not read; each now holds a filler

    def position(self, path: Path, key: bool = False) -> tuple[int, int]:
        """(line, column) of the value at `path`, or of its key; of the nearest existing parent where it is absent."""
        index = self._index(path, key)
        return (1, 1) if index is None else self.lines.place(index)

    def locate(self, path: Path, offset: int) -> tuple[int, int]:
        """(line, column) of the character `offset` of the text at `path`, found in the file as it was written.

        Indentation and folding are looked through word by word; where escapes hide the place, the text's beginning."""
        node = self.node(path)
        if node is None or not isinstance(node.value, str):
            return self.position(path)
        index = _index_of(self.text, node, offset)
        return self.lines.place(node.start if index is None else index)

    def node(self, path: Path) -> YamlNode | None:
        """The node of the value at `path`; None where there is none."""
        node = self.root
        for part in path:
            node = node.children.get(part) if node else None
        return node

    def _index(self, path: Path, key: bool) -> int | None:
        if not path:
            return self.root.start if self.root else None
        parent = self.node(path[:-1])
        if parent is None or path[-1] not in parent.children:
            return self._index(path[:-1], key=True)
        if key and isinstance(path[-1], str):
            return parent.keys[path[-1]]
        return parent.children[path[-1]].start


def _index_of(text: str, node: YamlNode, offset: int) -> int | None:
    """Where in `text` the character `offset` of the scalar `node` stands."""
    words, last = _find_words(text, node.start, node.end, node.value)
    at = bisect_right(words, offset, key=lambda word: word[1])
    if at == len(words):
        return last
    begins, _, index = words[at]
    return None if index is None else index + max(0, offset - begins)


@lru_cache(maxsize=4)
def _find_words(text: str, start: int, end: int, value: str) -> tuple[list[tuple[int, int, int | None]], int | None]:
    """The words of a scalar: where each begins and ends in its value, and stands in `text`, if it is seen there. And
    where the last one of them ends; None: too many were not seen, and none is told behind these."""
    words: list[tuple[int, int, int | None]] = []
    cursor, misses = start, 0
    for word in re.finditer(r"\S+", value):
        index = text.find(word.group(), cursor, max(end, cursor))
        words.append((word.start(), word.end(), None if index < 0 else index))
        if index >= 0:
            cursor = index + len(word.group())
            continue
        misses += 1
        if misses > _MISSES_MAX:
            return words, None
    return words, max(cursor - 1, start) if cursor > start else None


class _Stop(Exception):
    """Reading can't go on; the finding has been made."""


def parse(source: bytes, file: str = "<workflow>", *, strict: bool = False) -> Document:
    """Read `source`. Never raises: whatever is wrong is in `.findings` (docs/language.md#notation).

    An unquoted hole is read as it is meant (see holes.py); with `strict`, as YAML reads it."""
    builder = _Builder(file)
    text = builder.decode(source)
    root = None
    if text is not None:
        builder = _read(builder, text, Masked(text) if strict else mask_holes(text))
        if not strict and "${{" in text and any(f.code in _UNREADABLE for f in builder.findings):
            # braces of a hole inside of braces of YAML
            again = _read(_Builder(file), text, mask_holes(text, flow=True))
            builder = again if _is_better(again, builder) else builder
        root = builder.root
        if root is None and not strict:
            mended = _mend(builder, file, text)
            if mended is not None:
                return mended
    findings = tuple(sorted(builder.findings, key=lambda finding: (finding.line, finding.column)))
    return Document(file, text or "", root.value if root else None, findings, root, builder.lines)


@lru_cache(maxsize=2)
def parse_once(source: bytes, file: str) -> Document:
    """As `parse`, for several readers of one file at a time: its findings, its names, the files beside it. Nobody
    changes a document."""
    return parse(source, file)


_MENDS_MAX: Final = 8
_FENCE: Final = "```"  # of a block of Markdown, as language models write one around their YAML
_LINE = re.compile(r"([ \t]*(?:- +)*)((?:[\w-]+:(?: +|$))?)(.*)")


def _mend(builder: _Builder, file: str, text: str) -> Document | None:
    """The document without the lines that YAML can't read, so that one of them hides no other finding; None if there
    are too many.

    A filler of the same length replaces the value of each, so that everything else keeps its place."""
    findings_before: list[Finding] = []
    lines = builder.hidden.text.split("\n")
    broken: dict[int, int] = {}  # line -> how often it was in the way
    for _ in range(_MENDS_MAX):
        first = min(builder.findings, key=lambda finding: (finding.line, finding.column), default=None)
        if first is None or first.code != "yaml.syntax" or not first.line <= len(lines) or broken.get(first.line) == 2:
            return None
        findings_before += [] if first.line in broken else [first]
        broken[first.line] = broken.get(first.line, 0) + 1
        lines[first.line - 1] = _fill_line(lines[first.line - 1], whole=broken[first.line] > 1)
        builder = _read(_Builder(file), text, Masked("\n".join(lines), builder.hidden.back))
        if builder.root is not None:
            findings = sorted([*findings_before, *builder.findings], key=lambda finding: (finding.line, finding.column))
            return Document(
                file, text, builder.root.value, tuple(findings), builder.root, builder.lines, frozenset(broken)
            )
    return None


def _fill_line(line: str, *, whole: bool) -> str:
    """The line with an `x` for each character of its value, or (`whole`) as an empty one of its length."""
    match = _LINE.fullmatch(line)
    assert match is not None, "every line matches"
    indent, key, value = match.groups()
    indent = indent.replace("\t", " ")
    return " " * len(line) if whole or line.startswith(_FENCE) else indent + key + "x" * len(value)


_UNREADABLE: Final = ("yaml.syntax", "yaml.key")


def _read(builder: _Builder, text: str, hidden: Masked) -> _Builder:
    hidden = _with_breaks_kept(hidden)
    builder.text = text
    builder.lines = Lines(text)
    builder.hidden = hidden
    with suppress(_Stop):
        builder.build()
    for _ in range(_PAIRS_MAX):
        joined = None if builder.half is None else _with_pairs_joined(builder.hidden, builder.half)
        if joined is None:
            break
        builder = _Builder(builder.file)
        builder.text, builder.lines, builder.hidden = text, Lines(text), joined
        with suppress(_Stop):
            builder.build()
    return builder


def _with_breaks_kept(hidden: Masked) -> Masked:
    """The text, in which YAML takes U+0085, U+2028 and U+2029 for characters like all others: it would count lines by
    them, and make spaces of them."""
    breaks = [sign for sign in _BREAKS if sign in hidden.text]
    if not breaks:
        return hidden
    used = {*hidden.text, *map(chr, hidden.back or ())}
    free = (chr(code) for code in PRIVATE if chr(code) not in used)
    masks = dict(zip(breaks, free, strict=False))
    text = hidden.text.translate({ord(sign): mask for sign, mask in masks.items()})
    return Masked(text, {**(hidden.back or {}), **{ord(mask): sign for sign, mask in masks.items()}})


def _with_pairs_joined(hidden: Masked, at: int) -> Masked | None:
    """The text, in which two escapes that are one character (`\\ud83d\\ude80`, as in JSON) are an escape that YAML
    knows: in the quoted text that begins at `at`, and in all texts of JSON. As long as before: what is left over is a
    sign that is taken out again. None where there are none."""
    free = next(
        chr(code) for code in PRIVATE if chr(code) not in hidden.text and not (hidden.back and code in hidden.back)
    )

    def join(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        code = 0x10000 + ((int(match[1], 16) - 0xD800) << 10) + (int(match[2], 16) - 0xDC00)
        return f"\\U{code:08X}{free}{free}"

    def joined(match: re.Match[str]) -> str:
        return _PAIR.sub(join, match[0])

    text = hidden.text
    if text.lstrip().startswith("{"):
        text = _QUOTED.sub(joined, text)
    elif (quoted := _QUOTED.match(text, at)) is not None:
        text = text[:at] + joined(quoted) + text[quoted.end() :]
    return None if text == hidden.text else Masked(text, {**(hidden.back or {}), ord(free): ""})


def _is_better(one: _Builder, other: _Builder) -> bool:
    """Whether `one` has no findings, or the first of them later in the text."""
    first, second = (min(((f.line, f.column) for f in each.findings), default=None) for each in (one, other))
    return first is None or (second is not None and first > second)


@dataclass(slots=True)
class _Open:
    """A mapping or list that is still being read. `key` is the key whose value comes next."""

    node: YamlNode
    anchor: str | None
    key: tuple[str, int] | None = None


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.text = ""
        self.lines = Lines("")
        self.hidden = Masked("")
        self.is_plain = False  # no scalar can have a character that has to be looked at
        self.findings: list[Finding] = []
        self.root: YamlNode | None = None
        self.anchors: dict[str, YamlNode] = {}
        self.stack: list[_Open] = []
        self.nodes = 0
        self.documents = 0
        self.half: int | None = None  # where the quoted text begins in which YAML stopped at half of a character

    # -- findings ------------------------------------------------------------------------------------------------

    def find(self, line: int, column: int, code: str, message: str, fix: tuple[Edit, ...] = ()) -> None:
        self.findings.append(Finding(self.file, line, column, "error", code, message, fix=fix))
        if len(self.findings) >= FINDINGS_MAX:
            raise _Stop

    def find_at(self, index: int, code: str, message: str) -> None:
        self.find(*self.lines.place(index), code, message)

    # -- bytes to text -------------------------------------------------------------------------------------------

    def decode(self, source: bytes) -> str | None:
        """The text of `source` without a byte-order mark, lines ended by LF; None where it can't be read at all."""
        if len(source) > BYTES_MAX:
            self.find(
                1, 1, "yaml.too_large", f"expected at most 256 KiB, found {len(source)} bytes; split the workflow"
            )
            return None
        if source[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self.find(1, 1, "yaml.encoding", "expected UTF-8, found UTF-16; save the file as UTF-8")
            return None
        try:
            text = source.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = source.count(b"\n", 0, error.start) + 1
            column = error.start - (source.rfind(b"\n", 0, error.start) + 1) + 1
            self.find(line, column, "yaml.encoding", "expected UTF-8, found other bytes; save the file as UTF-8")
            return None
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        spoilt = _SPOILT_BY_MARK.search(text) if "\ufeff" in text else None
        if spoilt is not None:
            place = spoilt.start("mark") if spoilt["mark"] else spoilt.start("indent")
            self.find(*Lines(text).place(place), "yaml.unseen", _describe_invisible("\ufeff", "a word", "remove it"))
            return None
        text = text.replace("\ufeff", " ")
        control = _CONTROL.search(text)
        if control:
            line, column = Lines(text).place(control.start())
            name = "a NUL" if control.group() == "\x00" else f"the control character U+{ord(control.group()):04X}"
            self.find(line, column, "yaml.control", f"expected text, found {name}; remove it")
            return None
        return text

    # -- events to nodes -----------------------------------------------------------------------------------------

    def build(self) -> YamlNode | None:
        try:
            self._read()
        except yaml.MarkedYAMLError as error:
            self._report_scanner_error(error)
        except (yaml.YAMLError, UnicodeError) as error:
            self.find(1, 1, "yaml.syntax", f"expected YAML, found something else: {error}")
        if self.root is None and not self.findings:
            self.find(1, 1, "yaml.empty", "expected a workflow, found an empty file; begin with `hai: flow/v1`")
        return self.root

    def _read(self) -> None:
        """Take the events one by one from the parser itself: `yaml.parse` would ask it twice for each."""
        self.is_plain = self.hidden.text.isascii() and "\\" not in self.hidden.text
        parser = yaml.CLoader(self.hidden.text)
        try:
            while (event := parser.get_event()) is not None:
                if type(event) is yaml.ScalarEvent:
                    self._scalar(event)
                else:
                    self._event(event)
        finally:
            parser.dispose()

    def _event(self, event: yaml.Event) -> None:
        kind = type(event)
        if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event)  # type: ignore[arg-type]
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            self._check_alias(event)  # type: ignore[arg-type]
        elif kind is yaml.DocumentStartEvent:
            self._document(event)  # type: ignore[arg-type]

    def _document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            self.find_at(
                _start(event), "yaml.second_document", "expected one document, found a second after `---`; remove it"
            )
            raise _Stop

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        kind: Literal["mapping", "list"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "list"
        node = YamlNode(kind, {} if kind == "mapping" else [], _start(event))
        self._count(node.start, 1)
        if len(self.stack) >= DEPTH_MAX:
            self.find_at(node.start, "yaml.too_deep", f"expected at most {DEPTH_MAX} levels, found more; flatten it")
            raise _Stop
        if event.tag is not None:
            self._check_tag(node.start, event.tag)
        if self._is_awaiting_key():
            self._check_complex_key(node.start)
        self.stack.append(_Open(node, event.anchor))

    def _close(self, event: yaml.Event) -> None:
        done = self.stack.pop()
        done.node.end = _end(event)
        if done.anchor:
            self.anchors[done.anchor] = done.node
        self._place(done.node)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        start = _start(event)
        lenient = False
        if self.hidden.back is not None:
            restored = event.value.translate(self.hidden.back)
            lenient = not event.style and restored != event.value
            event.value = restored
        self.nodes += 1
        if self.nodes > NODES_MAX:
            self._count(start, 0)
        if self.stack:
            top = self.stack[-1]
            if top.key is None and top.node.kind == "mapping":
                if event.tag is not None:
                    self._check_tag(start, event.tag)
                if not self.is_plain:
                    self._mend_key(event, start)
                top.key = (event.value, start)
                return
        if not self.is_plain:
            self._mend_text(event, start)
        value = self._resolve(event, start) if event.tag is not None or not event.style else event.value
        node = YamlNode("scalar", value, start, _end(event), _NOTHING, _NOTHING, 1, 1, not event.style, lenient)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._place(node)

    def _mend_key(self, event: yaml.ScalarEvent, start: int) -> None:
        if not event.value.isprintable():
            event.value = self._check_scalar(event, start)
        if not event.style and not event.value.isascii() and (spoilt := _SPOILT.search(event.value)):
            event.value = _SPOILT.sub(lambda each: _find_replacement(each[0]), event.value)
            self._spoilt(event, start, spoilt[0], f"the key `{event.value.strip()}`")
            event.value = event.value.strip().removeprefix("- ")

    def _mend_text(self, event: yaml.ScalarEvent, start: int) -> None:
        if not event.value.isprintable():
            event.value = self._check_scalar(event, start)
        if not event.style and not event.value.isascii() and (spoilt := _SPOILT_TEXT.search(event.value)):
            self._spoilt(event, start, spoilt[1], "an unquoted text")

    def _check_scalar(self, event: yaml.ScalarEvent, start: int) -> str:
        """The text of a scalar. A finding where it has a character, written by an escape, that nothing can store."""
        control = _UNSTORABLE.search(event.value)
        if control is None:
            return event.value
        name = "a NUL" if control[0] == "\x00" else f"half of a character (U+{ord(control[0]):04X})"
        self.find_at(start, "yaml.control", f"expected text, found {name} in it, written by an escape; remove it")
        return _UNSTORABLE.sub("\ufffd", event.value)

    def _spoilt(self, event: yaml.ScalarEvent, start: int, sign: str, what: str) -> None:
        index = max(self.text.find(sign, start, _end(event)), start)
        line, column = self.lines.place(index)
        mended = _find_replacement(sign)
        remedy = "write a space" if mended else "remove it"
        fix = (Edit(line, column, line, column + 1, mended),)
        message = _describe_invisible(sign, what, f"{remedy}, or quote the text if it is meant")
        self.find(line, column, "yaml.unseen", message, fix)

    def _check_alias(self, event: yaml.AliasEvent) -> None:
        start = _start(event)
        name = event.anchor or ""
        if self._is_awaiting_key():
            self.find_at(start, "yaml.alias_key", f"expected a key, found the alias `*{name}`; write the key as text")
            raise _Stop
        if any(entry.anchor == name for entry in self.stack):
            self.find_at(
                start, "yaml.alias_cycle", f"the alias `*{name}` stands inside its own anchor; copy what is meant"
            )
            raise _Stop
        target = self.anchors.get(name)
        if target is None:
            self.find_at(
                start, "yaml.alias_unknown", f"there is no anchor `&{name}`; text that begins with `*` must be quoted"
            )
            target = YamlNode("scalar", None, start)
        self._count(start, target.size)
        if len(self.stack) + target.depth > DEPTH_MAX:
            self.find_at(start, "yaml.too_deep", f"expected at most {DEPTH_MAX} levels, found more; flatten it")
            raise _Stop
        self._place(target)

    def _count(self, start: int, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > NODES_MAX:
            self.find_at(
                start,
                "yaml.too_many_nodes",
                f"expected at most {NODES_MAX:,} values after aliases are expanded, found more; split the workflow",
            )
            raise _Stop

    def _is_awaiting_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].node.kind == "mapping" and self.stack[-1].key is None

    def _place(self, node: YamlNode) -> None:
        """Put a finished node where it belongs."""
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        target = parent.node
        target.size += node.size
        target.depth = max(target.depth, node.depth + 1)
        if target.kind == "list":
            target.children[len(target.value)] = node
            target.value.append(node.value)
            return
        assert parent.key is not None, "a value of a mapping has its key before it"
        (key, start), parent.key = parent.key, None
        if key in target.keys:
            first, _ = self.lines.place(target.keys[key])
            in_list = len(self.stack) > 1 and self.stack[-2].node.kind == "list"
            more = ", or begin another item with `- `" if in_list else ""
            message = f"the key `{key}` is written twice (first at line {first}); remove one{more}"
            self.find_at(start, "yaml.duplicate_key", message)
        elif key == "<<":
            self.find_at(start, "yaml.merge_key", "merge keys (`<<`) are not part of flow/v1; write the keys out")
            self._merge(target, node)
        else:
            target.keys[key] = start
            target.children[key] = node
            target.value[key] = node.value

    def _merge(self, target: YamlNode, other: YamlNode) -> None:
        """Merge as the key asks, so that no key is reported as missing."""
        for key, start in other.keys.items():
            if key not in target.keys:
                target.keys[key] = start
                target.children[key] = other.children[key]
                target.value[key] = other.children[key].value

    def _check_complex_key(self, start: int) -> None:
        line, _ = self.lines.place(start)
        remedy = self._suggest_hole_remedy(line)
        if not remedy and self.text.startswith("{{", start - 1):
            remedy = "; a hole is written ${{ }}, and a text that begins with `{` must be quoted"
        self.find_at(start, "yaml.key", "expected a key (text), found a list or a mapping" + remedy)
        raise _Stop

    def _check_tag(self, start: int, tag: str) -> None:
        name = tag.replace("tag:yaml.org,2002:", "!!")
        self.find_at(
            start,
            "yaml.tag",
            f"found the YAML tag `{name}`; tags are not part of flow/v1. Text or an expression that begins with `!` "
            f'must be quoted: "{name} ..."',
        )

    def _resolve(self, event: yaml.ScalarEvent, start: int) -> Json:
        """The value of a scalar by YAML 1.2's core schema: `on`, `no`, `12:30` and dates are text."""
        if event.tag is not None:
            self._check_tag(start, event.tag)
            return None
        text: str = event.value
        if event.style:  # C reads plain text as ""
            return text
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in _NUMERIC:
            return text
        if _INTEGER.fullmatch(text):
            return self._integer(text, start)
        if _NOT_FINITE.fullmatch(text):
            self.find_at(start, "yaml.number", f"{text} is not a JSON number; quote it if it is text")
            return None
        if _FLOAT.fullmatch(text):
            number = float(text)
            if math.isinf(number):
                self.find_at(start, "yaml.number", f"{shorten(text)} is too large for a number; quote it")
                return None
            return number
        return text

    def _integer(self, text: str, start: int) -> int | None:
        base = 16 if text.startswith("0x") else 8 if text.startswith("0o") else 10
        number = int(text, base) if len(text) <= 40 else INTEGER_MAX + 1
        if abs(number) > INTEGER_MAX:
            self.find_at(
                start,
                "yaml.number",
                f"{shorten(text)} is beyond 2^53 and would lose digits; quote it to keep it as text",
            )
            return None
        return number

    # -- errors of the scanner -----------------------------------------------------------------------------------

    def _report_scanner_error(self, error: yaml.MarkedYAMLError) -> None:
        """A finding, with a remedy, for the place where the scanner stopped."""
        raw = error.problem_mark or error.context_mark
        line, column = (raw.line + 1, raw.column + 1) if raw else (1, 1)
        problem = str(error.problem or "it is not YAML")
        context = error.context_mark
        if _NO_CHARACTER in problem:
            self.half = None if context is None else context.index
            half = _HALF.search(self._line(line), max(0, column - 12))
            if half is not None:
                message = f"`{half[0]}` is half of a character; write both halves, or the character itself"
                self.find(line, half.start() + 1, "yaml.surrogate", message)
                return
            beyond = _BEYOND.search(self._line(line), max(0, column - 12))
            if beyond is not None:
                message = f"`{beyond[0]}` is no character: the last one is `\\U0010FFFF`; remove it"
                self.find(line, beyond.start() + 1, "yaml.syntax", message)
                return
        if (key := self._find_long_key(line, column)) is not None:
            start, size = key
            message = f"a key has at most {_KEY_MAX} characters, this one has {size} as it is written; shorten it"
            self.find(line, start + 1, "yaml.syntax", message)
            return
        for number in sorted({line, line - 1, *(() if context is None else (context.line + 1,))}):
            indent = _SPOILT_INDENT.match(self._line(number))
            if indent is not None:
                message = _describe_invisible(indent[1], "the indentation", "write a space, or remove it")
                self.find(number, indent.start(1) + 1, "yaml.unseen", f"{message}; YAML stops here: {problem}")
                return
        unseen = _SPOILT.search(self._line(line))
        if unseen is not None and not _QUOTED.search(self._line(line)):
            message = (
                _describe_invisible(unseen[0], "this line", "write a space, or remove it")
                + f"; YAML stops here: {problem}"
            )
            self.find(line, unseen.start() + 1, "yaml.unseen", message)
            return
        for number in sorted({line, line - 1, *(() if context is None else (context.line + 1,))}):
            if (odd := describe_odd_sign(self._line(number))) is not None:
                message = f"can't read this as YAML: {odd}; YAML stops at line {line}: {problem}"
                self.find(number, self._line(number).index(odd[1]) + 1, "yaml.syntax", message)
                return
        if "could not find expected ':'" in problem and context is not None and context.line + 1 < line:
            message = (
                f"can't read this as YAML ({problem}); line {context.line + 1} is read as a key: write a colon behind "
                "it, or indent it further, if it goes on with the text before"
            )
            self.find(line, column, "yaml.syntax", message)
            return
        self.find(
            line,
            column,
            "yaml.syntax",
            f"can't read this as YAML ({problem}){self._suggest_remedy(problem, line, column)}",
        )

    def _find_long_key(self, number: int, column: int) -> tuple[int, int] | None:
        """Where a key that ends in front of this place begins, and its length, if it is too long for YAML."""
        line = self._line(number)
        if len(line) <= _KEY_MAX:
            return None
        end = line.find(":", max(0, column - 2))
        begin = next((each.start() for each in _KEY_QUOTED.finditer(line) if each.end() == end), -1)
        if begin < 0 and end > 0 and line[end - 1] not in "\"'":
            begin = max(map(line[:end].rfind, ("{", ",", " ", "[", ":"))) + 1
        size = end - begin
        return (begin, size) if begin >= 0 and size > _KEY_MAX else None

    def _suggest_remedy(self, problem: str, number: int, column: int) -> str:
        line = self._line(number)
        if "\t" in line[: len(line) - len(line.lstrip())] or "tab" in problem:
            return "; indent with spaces, not with tabs"
        if "cannot start any token" in problem and line[column - 1 : column] == "\t":
            return "; indent with spaces, not with tabs"
        if "mapping values" in problem and _ITEM_KEY.fullmatch(line[: column - 1]):
            return (
                "; a list belongs to a key, as `steps:`, on a line before it, and the line before has a value already"
            )
        if "mapping values" in problem and _KEY_ALONE.fullmatch(line[: column - 1]):
            if _NO_SPACE.match(self._line(number - 1)):
                return "; the line before needs a space after its colon"
            return "; the line is indented too far, or the one before needs quotes: it has a value already"
        if "mapping values" in problem:
            return f"; text that contains `: ` must be quoted{_quote_line(line)}, or be written under `|`"
        if (sign := next((sign for words, sign in _BEGINNINGS if words in problem), None)) is not None:
            return f"; text that begins with {sign} must be quoted"
        hole = self._suggest_hole_remedy(number)
        if hole:
            return hole
        if len(line) < _LINE_MAX and _STARTS_FLOW.search(line):
            return "; text that begins with `{`, `[`, `*` or `&` must be quoted"
        if line.startswith(_FENCE):
            return "; leave out the lines with ``` around the YAML"
        if "cannot start any token" in problem:
            return "; text that begins with `@`, `%` or a backtick must be quoted"
        if "quoted scalar" in problem or "<scalar>" in problem:
            return "; text that begins with a quote must be quoted as a whole, or be written under `|`"
        if "',' or" in problem:
            return "; close the bracket, put commas between the items, and quote text that holds `: ` or any of `[]{},`"
        if _AFTER_QUOTE.search(line):
            return "; text that begins with a quote must be quoted as a whole, or be written under `|`"
        if "simple key" in problem or "expected ':'" in problem:
            return "; write `key: value`, with a space after the colon"
        return "; check the indentation and the quotes of this line and the one before"

    def _suggest_hole_remedy(self, last: int) -> str:
        """The remedy for a hole that does not end on its line: the line `last` or the one before."""
        for number in (last, last - 1):
            line = self._line(number)
            begin = line.rfind("${{")
            if begin >= 0 and end_of_hole(line, begin) is None:
                return f"; the hole on line {number} has no end: write }}}} on that line, or the text under `|`"
        return ""

    def _line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


_BEGINNINGS: Final = (
    ("alphabetic or numeric character", "`*` or `&`"),
    ("expected comment or line break", "`>` or `|`"),
    ("mapping keys are not allowed", "`? `"),
    ("block sequence entries are not allowed", "`- `"),
)
"""Words of the scanner that stops at a sign with which a text began, and that sign."""
_LINE_MAX: Final = 400  # of lines that are looked at again and again
_NO_SPACE: Final = re.compile(r"\s*[\w-]+:[^\s/]")
_KEY_ALONE: Final = re.compile(r"\s*[\w-]+")
_ITEM_KEY: Final = re.compile(r"\s*- +[\w-]+")
_STARTS_FLOW: Final = re.compile(r"(?:^|[:-])\s+(?:\{[^{}]*\}|\[[^\[\]]*\]|[*&]\S*)\s*[^\s,#:\]}*]")
_KEY_AND_TEXT: Final = re.compile(r"\s*(?:- +)*([\w-]+: +)([^\s\"'\[{|>#&*!].*?)\s*")


_KEY_MAX: Final = 1024  # of libyaml, as it is written
_KEY_QUOTED: Final = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^']|'')*+'")
_BEYOND: Final = re.compile(r"\\U(?!000)(?:0010|[0-9a-fA-F]{4})[0-9a-fA-F]{4}")
_NO_CHARACTER: Final = "invalid Unicode character escape code"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_NAMES: Final[dict[str, str]] = {
    "\u00a0": "no-break space", "\u00ad": "soft hyphen", "\u200b": "zero-width space",
    "\u200c": "zero-width non-joiner", "\u200d": "zero-width joiner", "\u3000": "ideographic space",
    "\ufeff": "byte order mark",
}  # fmt: skip


def _find_replacement(sign: str) -> str:
    """What belongs in the place of a sign: a space, or nothing where the sign has no width."""
    return (
        ""
        if sign in "\u00ad\u034f\u061c\u17b4\u17b5\u180e\ufeff"
        or "\u200b" <= sign <= "\u200f"
        or (sign >= "\u202a" and sign not in "\u202f\u205f\u2800\u3000\u3164")
        else " "
    )


def _describe_invisible(sign: str, where: str, remedy: str) -> str:
    name = f" ({_NAMES[sign]})" if sign in _NAMES else ""
    return f"found U+{ord(sign):04X}{name}, which looks like a space or like nothing, in {where}; {remedy}"


def _quote_line(line: str) -> str:
    """The line with its text in quotes, where it is one key and one text."""
    parts = None if len(line) > 120 else _KEY_AND_TEXT.fullmatch(line)  # which takes a time of the length's square
    if parts is None:
        return ""
    text = parts[2]
    quoted = f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"
    return f": write {parts[1].rstrip()} {quoted}"


def _start(event: yaml.Event) -> int:
    assert event.start_mark is not None, "the C parser marks every event"
    return event.start_mark.index


def _end(event: yaml.Event) -> int:
    assert event.end_mark is not None, "the C parser marks every event"
    return event.end_mark.index
