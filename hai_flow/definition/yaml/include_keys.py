"""`use`: tools, models and roles that several workflows share, in files of their own. A published workflow holds them:
its document, and behind it, after `---`, the documents that its `use` names and the services that tools describe with
`openapi`. So one sha256 covers all of them. A file that could not be read is a sentence in its place, which becomes a
finding."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from hai_flow.definition.yaml.document import parse
from hai_flow.values import Json

KIND: Final = "shared/v1"
USES_MAX: Final = 16
SERVICES_MAX: Final = 16
_MARK: Final = re.compile(rb"^---(?:[ \t][^\n]*|\r)?(?:\n|\Z)", re.M)
# A line can match in one way only: with two, the regular expression would try 2^n ways for n lines.
_NOTHING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*|\r)?(?:\n|\Z))*")
_FAULT: Final = b"--- #! "


class UnusableFile(Exception):
    """The file can't be used; the sentence says why."""


class Part(msgspec.Struct, frozen=True):
    """A document behind the first. `fault`: why it is not there."""

    text: bytes
    fault: str = ""


def split_source(source: bytes) -> tuple[bytes, list[Part]]:
    """The first document of `source`, and those behind it."""
    marks = [] if b"---" not in source else list(_MARK.finditer(source))
    if marks and _NOTHING.fullmatch(source, 0, marks[0].start()):
        del marks[0]  # it begins the first
    if not marks:
        return source, []
    ends = [*(mark.start() for mark in marks[1:]), len(source)]
    parts = [
        Part(source[mark.end() : end], _explain_fault(mark.group())) for mark, end in zip(marks, ends, strict=True)
    ]
    return source[: marks[0].start()], parts


def _explain_fault(mark: bytes) -> str:
    return mark.removeprefix(_FAULT).decode(errors="replace").strip() if mark.startswith(_FAULT) else ""


def first_of(source: bytes) -> bytes:
    """The workflow's own document, without the files that it uses."""
    return split_source(source)[0]


def list_uses(source: bytes) -> list[str]:
    """The names in `use` of the workflow; [] also where it is no list of texts."""
    if b"use" not in source:
        return []
    value = parse(first_of(source)).value
    named = value.get("use") if isinstance(value, Mapping) else None
    return [each for each in named if isinstance(each, str)][:USES_MAX] if isinstance(named, list) else []


def list_service_names(value: Json) -> list[str]:
    """The documents of services that the tools of a document name, as it names them."""
    tools = value.get("tools") if isinstance(value, Mapping) else None
    services = (
        [tool.get("http") for tool in tools.values() if isinstance(tool, Mapping)] if isinstance(tools, Mapping) else []
    )
    named = [service.get("openapi") for service in services if isinstance(service, Mapping)]
    return list(dict.fromkeys(each for each in named if isinstance(each, str) and "://" not in each))[:SERVICES_MAX]


def list_services(value: Json, used: Iterable[tuple[str, bytes]]) -> list[str]:
    """The documents of services behind those of `use`: as the workflow `value` names them, or would. `used` are the
    names and texts of the files of its `use`."""
    names = [posixpath.normpath(name) for name in list_service_names(value)]
    for name, text in used:
        if b"openapi" in text:
            names += [label(name, each) for each in list_service_names(parse(text).value)]
    return list(dict.fromkeys(names))[:SERVICES_MAX]


def behind(source: bytes) -> list[str]:
    """The names of all documents behind the workflow's own."""
    main, parts = split_source(source)
    named = list_uses(source)
    texts = ((name, part.text) for name, part in zip(named, parts, strict=False))
    return [*named, *(list_services(parse(main).value, texts) if b"openapi" in source else ())]


Read: TypeAlias = Callable[[str], bytes]
"""The bytes of a file as the workflow names it, or would. Raises `UnusableFile`."""


def include_files(source: bytes, read: Read, read_service: Read | None = None) -> bytes:
    """The workflow with the files that it uses. `read_service` reads documents of services, where they are read in
    another way."""
    named = list_uses(source)
    if split_source(source)[1] or (not named and b"openapi" not in source):
        return source
    used = [_part(name, read) for name in named]
    texts = zip(named, (part.partition(b"\n")[2] for part in used), strict=True)
    services = list_services(parse(source).value, texts)
    if not named and not services:
        return source
    return b"".join([_with_line_end(source), *used, *(_part(name, read_service or read) for name in services)])


def _part(name: str, read: Callable[[str], bytes]) -> bytes:
    try:
        text = read(name)
        if _MARK.search(text):
            raise UnusableFile("a file that is used is one document: take its line `---` out")
    except UnusableFile as error:
        return _FAULT + " ".join(str(error).split()).encode() + b"\n"
    return b"--- # " + " ".join(name.split()).encode() + b"\n" + _with_line_end(text.removeprefix(b"\xef\xbb\xbf"))


def _with_line_end(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"


def is_shared(source: bytes) -> bool:
    """Whether this is a file for others to use, not a workflow."""
    if KIND.encode() not in source:
        return False
    value = parse(source).value
    return isinstance(value, Mapping) and value.get("hai") == KIND


def label(file: str, name: str) -> str:
    """How findings call a file that the workflow `file` uses as `name`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), name))


def read_texts(source: bytes, file: str) -> dict[str, str]:
    """The text of each document of `source`, by the name that findings give it."""
    main, parts = split_source(source)
    texts = {file: main.decode(errors="replace")}
    for name, part in zip(behind(source) if parts else (), parts, strict=False):
        texts.setdefault(label(file, name), part.text.decode(errors="replace"))
    return texts
