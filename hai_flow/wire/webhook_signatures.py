"""Signatures of webhooks: what arrives proves that its sender knows a shared secret, and names its event; what we send
is signed. Pure.

There are four schemes, because senders use these already:

* `github`   HMAC-SHA256 of the body, in hex, with or without `sha256=` before it (X-Hub-Signature-256)
* `stripe`   `t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.body` (Stripe-Signature)
* `standard` Standard Webhooks: HMAC-SHA256 of `id.SECONDS.body`, in base64, behind `v1,`. Svix, from which they come,
             and the services that send by it have other names for the same three headers (svix-signature)
* `token`    the secret itself, as `Authorization: Bearer` or in a header of its own

The signature covers the bytes as they arrived, so nothing is parsed before it is checked. A comparison takes the same
time wherever two signatures differ. A signed time is valid for five minutes, before and after."""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from hai_flow.wire.webhook_body import Call

Scheme: TypeAlias = Literal["github", "stripe", "standard", "token"]

TOLERANCE_SECONDS: Final = 300
HEADERS: Final[dict[Scheme, str]] = {
    "github": "x-hub-signature-256",
    "stripe": "stripe-signature",
    "standard": "webhook-signature",
    "token": "authorization",
}
_SVIX: Final = "svix-signature"
_KEPT_BACK: Final = frozenset({"authorization", "proxy-authorization", "cookie"})


def is_genuine(call: Call, scheme: Scheme, header: str, secret: str, now: int) -> bool:
    """Whether the sender knows the secret. `header` is the one that proves it; "" means the scheme's own. `now` is in
    milliseconds since 1970."""
    name = f"{_standard_prefix(call, header)}signature" if scheme == "standard" else HEADERS[scheme]
    proof = call.headers.get(header.lower() or name, "")
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
            prefix = _standard_prefix(call, header)
            id, sent_at = call.headers.get(f"{prefix}id", ""), call.headers.get(f"{prefix}timestamp", "")
            expected = base64.b64encode(_sign_standard(secret, id, sent_at, call.body))
            signatures = [
                value for version, _, value in (each.partition(",") for each in proof.split()) if version == "v1"
            ]
            return bool(id) and _is_recent(sent_at, now) and _has_match(signatures, expected)


def identity(call: Call, scheme: Scheme, header: str) -> str | None:
    """The identity of the event, made of signed bytes; None where nothing is signed. So a sender that only repeats a
    signed request repeats the same event."""
    match scheme:
        case "standard":
            return call.headers.get(f"{_standard_prefix(call, header)}id")
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


def sign(secret: str, id: str, sent_at: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks. `sent_at`: seconds since 1970 of the try, for a receiver refuses old ones."""
    signature = base64.b64encode(_sign_standard(secret, id, str(sent_at), body)).decode()
    return {"webhook-id": id, "webhook-timestamp": str(sent_at), "webhook-signature": f"v1,{signature}"}


def _standard_prefix(call: Call, header: str) -> str:
    """How the names of the three headers of Standard Webhooks begin in this request. The proof and the identity of the
    event both come from this one reading."""
    name = header.lower() or next((each for each in (HEADERS["standard"], _SVIX) if each in call.headers), "")
    return "svix-" if name == _SVIX else "webhook-"


def _parse_stripe_parts(given: str) -> tuple[str, list[str]]:
    """The signed time, and the signatures. The proof and the identity of the event both come from this one reading.
    With two readings, an attacker could repeat a request with a header that proves one event and identifies another."""
    parts = [part.partition("=") for part in given.split(",")]
    sent_at = next((value for name, _, value in parts if name.strip() == "t"), "")
    return sent_at, [value for name, _, value in parts if name.strip() == "v1"]


def _sign_standard(secret: str, id: str, sent_at: str, body: bytes) -> bytes:
    return _sign(_decode_standard_key(secret), f"{id}.{sent_at}.".encode() + body)


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
    key = secret.removeprefix("whsec_")
    try:
        return base64.b64decode(key, validate=True)
    except ValueError:  # not Base64: the bytes as they are
        return _key(key)
