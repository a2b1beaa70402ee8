"""Checks of a webhook's sender: the request proves that its sender knows a shared secret, and names its event. Pure.

There are four schemes, because senders use these already:

* `github`   HMAC-SHA256 of the body, in hex, with or without `sha256=` before it (X-Hub-Signature-256)
* `stripe`   `t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.body` (Stripe-Signature)
* `standard` Standard Webhooks: HMAC-SHA256 of `id.SECONDS.body`, in base64, behind `v1,`
* `token`    the secret itself, as `Authorization: Bearer` or in a header of its own

The signature covers the bytes as they arrived, so nothing is parsed before it is checked. A comparison takes the same
time wherever two signatures differ. A signed time is valid for five minutes, before and after.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from hai_flow import foreign
from hai_flow.errors import Rejected
from hai_flow.foreign import Foreign
from hai_flow.primitives.unpacking import NotUnpacked, Unpacker
from hai_flow.wire import posted_json
from hai_flow.wire.posted_json import Limits

Scheme: TypeAlias = Literal["github", "stripe", "standard", "token"]

TOLERANCE_SECONDS: Final = 300
FIELDS_MAX: Final = 1000
HEADERS: Final[dict[Scheme, str]] = {
    "github": "x-hub-signature-256",
    "stripe": "stripe-signature",
    "standard": "webhook-signature",
    "token": "authorization",
}
_KEPT_BACK: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
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


def is_genuine(call: Call, scheme: Scheme, header: str, secret: str, now: int) -> bool:
    """Whether the sender knows the secret. `header` is the one that proves it; "" means the scheme's own. `now` is in
    milliseconds since 1970."""
    proof = call.headers.get(header.lower() or HEADERS[scheme], "")
    if not secret.removeprefix("whsec_") or not proof:  # a prefix alone is an empty key, which proves nothing
        return False
    match scheme:
        case "github":
            return _same(proof.lower().removeprefix("sha256="), _hex(_sign(_key(secret), call.body)))
        case "token":
            bearer = proof.partition(" ") if not header or header.lower() == "authorization" else None
            if bearer is not None and bearer[0].lower() != "bearer":
                return False
            return _same(proof if bearer is None else bearer[2].strip(), _key(secret))
        case "stripe":
            sent_at, signatures = _parse_stripe_parts(proof)
            expected = _hex(_sign(_key(secret), sent_at.encode() + b"." + call.body))
            return _is_recent(sent_at, now) and _has_match(signatures, expected)
        case "standard":
            id, sent_at = call.headers.get("webhook-id", ""), call.headers.get("webhook-timestamp", "")
            content = id.encode() + b"." + sent_at.encode() + b"." + call.body
            expected = base64.b64encode(_sign(_decode_standard_key(secret), content))
            signatures = [
                value for version, _, value in (each.partition(",") for each in proof.split()) if version == "v1"
            ]
            return bool(id) and _is_recent(sent_at, now) and _has_match(signatures, expected)


def identity(call: Call, scheme: Scheme, header: str) -> str | None:
    """The identity of the event, made of signed bytes; None where nothing is signed. So a sender that only repeats a
    signed request repeats the same event."""
    match scheme:
        case "standard":
            return call.headers.get("webhook-id")
        case "github":  # the same body has the same signature
            return sha256(call.body).hexdigest()
        case "stripe":
            sent_at, _ = _parse_stripe_parts(call.headers.get(header.lower() or HEADERS[scheme], ""))
            return sha256(b"t=" + sent_at.encode() + b"." + call.body).hexdigest()
        case "token":
            return None


def filter_headers(call: Call, scheme: Scheme, header: str) -> dict[str, str]:
    """The headers that a workflow may see: none that holds a secret."""
    hidden = _KEPT_BACK | ({header.lower()} if scheme == "token" and header else set())
    return {name: value for name, value in sorted(call.headers.items()) if name not in hidden}


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


def _parse_stripe_parts(given: str) -> tuple[str, list[str]]:
    """The signed time, and the signatures. The proof and the identity of the event both come from this one reading.
    With two readings, an attacker could repeat a request with a header that proves one event and identifies another."""
    parts = [part.partition("=") for part in given.split(",")]
    sent_at = next((value for name, _, value in parts if name.strip() == "t"), "")
    return sent_at, [value for name, _, value in parts if name.strip() == "v1"]


def _sign(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


def _same(found: str, wanted: bytes) -> bool:
    """Compares in a time that reveals neither the place where they differ nor the length of `wanted`. `found` is a
    header's text, with one character for each byte."""
    return hmac.compare_digest(sha256(found.encode("latin-1", "replace")).digest(), sha256(wanted).digest())


def _hex(digest: bytes) -> bytes:
    return digest.hex().encode()


def _key(secret: str) -> bytes:
    """The secret's bytes as the environment has them, even if they are not UTF-8."""
    return secret.encode(errors="surrogateescape")


def _has_match(found: list[str], wanted: bytes) -> bool:
    """Whether one of the first eight signatures is right. A sender that changes its key signs with the old and the new
    one; no sender needs more than a few."""
    return any(_same(each.strip(), wanted) for each in found[:8])


def _is_recent(sent_at: str, now: int) -> bool:
    if not sent_at.isascii() or not sent_at.isdecimal() or len(sent_at) > 12:
        return False
    return abs(now / 1000 - int(sent_at)) <= TOLERANCE_SECONDS


def _decode_standard_key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:  # not base64: the bytes as they are
        return _key(secret)
