"""A webhook's request, and its body as a value: a form, JSON or text, in any charset or encoding. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from hai_flow import foreign
from hai_flow.errors import Rejected
from hai_flow.foreign import Foreign
from hai_flow.primitives.unpacking import NotUnpacked, Unpacker
from hai_flow.wire import posted_json
from hai_flow.wire.posted_json import Limits

FIELDS_MAX: Final = 1000
FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
_CHARSET: Final = re.compile(r'charset="?([^\s";]+)', re.IGNORECASE)
_BOUNDARY: Final = re.compile(r'boundary=(?:"([^"]{1,200})"|([^\s";]{1,200}))', re.IGNORECASE)
_DISPOSITION: Final = re.compile(rb"^content-disposition:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_PARAMETER: Final = re.compile(rb';\s*([^\s=;"]+)=(?:"([^"]*)"|([^\s";]+))')
_TEXTS: Final = re.compile(r"text/.+|.+[/+](?:xml|yaml)")
OPENAPI_BODY: Final[dict[str, object]] = {
    "requestBody": {
        "description": "In any charset that its type names, and also packed (`Content-Encoding`: gzip, deflate). "
        "Whatever its type, JSON is read as JSON.",
        "content": {
            "application/json": {"schema": {}},
            FORM: {"schema": {"type": "object"}},
            MULTIPART: {"schema": {"type": "object"}},
            **{kind: {"schema": {"type": "string"}} for kind in ("text/*", "application/xml", "application/yaml")},
        },
    }
}
"""What `content_of` reads, as OpenAPI describes it."""


class Call(msgspec.Struct, frozen=True):
    """A request as it arrived. Names of headers are in lower case; a header that came twice has its first value."""

    headers: Mapping[str, str]
    body: bytes


def read_first_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of a `Call`, in one pass over them: an unknown sender may send tens of thousands."""
    headers: dict[str, str] = {}
    for name, value in items:
        headers.setdefault(name, value)
    return headers


def content_of(call: Call, limits: Limits) -> Foreign:
    """The value of the body: a form's fields, JSON, or the text of a type of text; null if it is empty. What a run
    can't hold is text in it: its sender can't be changed. Raises Rejected 400 and 413."""
    body = _unpack(call, limits.body_bytes_max)
    if not body.strip():
        return Foreign(None)
    media = call.headers.get("content-type", "")
    kind = media.partition(";")[0].strip().lower()
    charset = _CHARSET.search(media)
    try:
        if kind == MULTIPART:
            return _collect_fields(_read_parts(body, media))
        name = None if charset is None else charset[1]
        text, notes = foreign.decode(body, name)
        if kind == FORM:
            codec = foreign.find_codec(name)
            fields = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, encoding=codec)
            return _collect_fields(fields)
    except ValueError as error:
        raise Rejected(400, "body.not_form", f"expected a form of at most {FIELDS_MAX} fields: {error}") from None
    try:
        value, odd = posted_json.load_foreign(text)
    except Rejected:
        if not _TEXTS.fullmatch(kind):
            raise
        value, odd = foreign.take(text)
    return Foreign(value, (*notes, *odd))


def _unpack(call: Call, bytes_max: int) -> bytes:
    """The body without its `Content-Encoding`; no more of it is unpacked than may be kept."""
    unpacker, body = Unpacker(call.headers.get("content-encoding", "")), bytearray()
    try:
        for piece in chain(unpacker.feed(call.body), unpacker.end()):
            body += piece
            if len(body) > bytes_max:
                raise posted_json.too_large(f"a body of at most {bytes_max} bytes", "more")
    except NotUnpacked as error:
        raise Rejected(400, "body.not_json", f"the body can't be unpacked: {error}") from None
    return bytes(body)


def _collect_fields(fields: Iterable[tuple[str, str]]) -> Foreign:
    """The fields of a form; the values of a name that stands in it more than once are a list."""
    values_of: dict[str, list[str]] = {}
    for name, value in fields:
        values_of.setdefault(name, []).append(value)
    return foreign.take({name: each if len(each) > 1 else each[0] for name, each in values_of.items()})


def _read_parts(body: bytes, media: str) -> Iterator[tuple[str, str]]:
    """The fields of `multipart/form-data`, the content of files as text. Raises ValueError."""
    boundary = _BOUNDARY.search(media)
    if boundary is None:
        raise ValueError("its type names no boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + (boundary[1] or boundary[2]).encode(), FIELDS_MAX + 2)
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise ValueError("it has too many parts" if len(parts) > FIELDS_MAX + 1 else "its last part breaks off")
    for part in parts[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        disposition = _DISPOSITION.search(head)
        named = () if disposition is None else _PARAMETER.findall(disposition[1])
        names = [quoted or bare for key, quoted, bare in named if key.lower() == b"name"]
        if not names:
            raise ValueError("a part has no name")
        yield names[0].decode(errors="replace"), content.decode(errors="replace")
