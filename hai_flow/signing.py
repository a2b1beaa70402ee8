"""The keys that sign receipts: Ed25519 (RFC 8032) in a JWK Set (RFC 7517, RFC 8037), a file of the deployment.

The first key with a private half signs. A key without one is retired: what it signed can still be verified. A key's id
is its thumbprint (RFC 7638), so that the same key has one id everywhere."""

from __future__ import annotations

import base64
import functools
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hai_flow.errors import HaiFlowError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TYPE: Final = "hai-flow-receipt+jws"
ANSWER_TYPE: Final = "hai-flow-mcp-answer+jws"
_BYTES: Final = 32


class BadKeys(HaiFlowError):
    """A file of keys that can't be used. The message says why, and never has a part of a key."""


class NotVerified(HaiFlowError):
    """A signature that does not hold. The message says which part of it is wrong."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its `id`, its `public` half, and its `private` half where this process may sign. Both are 32 bytes.
    `retired`: it signs no more."""

    id: str
    public: bytes
    private: bytes | None = None
    retired: bool = False

    @classmethod
    def made(cls, private: bytes) -> Key:
        """The key with this private half."""
        public = _private(private).public_key().public_bytes_raw()
        return cls(thumbprint(public), public, private)

    def jwk(self, *, private: bool = False) -> dict[str, str]:
        """The key as a member of a JWK Set."""
        jwk = {"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.id, "x": encode(self.public)}
        status = {"status": "retired"} if self.retired else {}
        secret = {"d": encode(self.private)} if private and self.private is not None else {}
        return {**jwk, **status, **secret}

    @property
    def name(self) -> str:
        """The id as messages say it."""
        return f"{self.id} (retired)" if self.retired else self.id


class SigningKeys(msgspec.Struct, frozen=True):
    """The keys of a deployment, the signing one first."""

    keys: tuple[Key, ...]

    @property
    def signer(self) -> Key:
        return self.keys[0]

    @property
    def public(self) -> dict[str, Any]:
        """The JWK Set for everybody: no private half is in it."""
        return {"keys": [key.jwk() for key in self.keys]}

    def sign(self, payload: bytes, kind: str = TYPE) -> str:
        """The payload as a JWS in its compact form (RFC 7515). The same payload gives the same text. `kind`: the `typ`,
        so that nothing signed passes for something else."""
        header = {"alg": "EdDSA", "kid": self.signer.id, "typ": kind}
        assert self.signer.private is not None
        signed = f"{encode(json.dumps(header, separators=(',', ':')).encode())}.{encode(payload)}"
        return f"{signed}.{encode(_private(self.signer.private).sign(signed.encode()))}"

    def salt(self, text: str) -> str:
        """A salt for the text, in hexadecimal. Who has not the key can't try out short texts against a digest."""
        assert self.signer.private is not None
        return hmac.digest(self.signer.private, b"hai-flow receipt salt v1\0" + text.encode(), "sha256")[:16].hex()


def read_keys(path: Path) -> SigningKeys:
    """The keys in a file. Raises BadKeys."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadKeys(
            f"{path}: the keys can't be read: {getattr(error, 'strerror', None) or 'it is not text'}."
        ) from None
    keys = keys_of(text, str(path))
    if keys[0].private is None:
        raise BadKeys(
            f"{path}: expected a key with its private half `d` first, found none; `hai-flow receipt key` makes one."
        )
    return SigningKeys(tuple(replace(key, retired=key.private is None) for key in keys))


def keys_of(text: str, place: str) -> tuple[Key, ...]:
    """The keys of a JWK Set, or of one JWK; those with a private half come first. Raises BadKeys."""
    try:
        document = json.loads(text)
    except ValueError:
        raise BadKeys(f"{place}: expected a JWK Set in JSON, found something else.") from None
    jwks = document.get("keys", [document]) if isinstance(document, dict) else None
    if not isinstance(jwks, list) or not jwks:
        raise BadKeys(f'{place}: expected {{"keys": [...]}} with at least one key, found something else.')
    keys = [_key(jwk, f"{place}, key {n}") for n, jwk in enumerate(jwks, 1)]
    if doubled := {key.id for key in keys if sum(key.id == other.id for other in keys) > 1}:
        raise BadKeys(f"{place}: expected each key once, found {', '.join(sorted(doubled))} twice.")
    return tuple(sorted(keys, key=lambda key: key.private is None))


def rotate(keys: tuple[Key, ...], private: bytes) -> str:
    """The file with a new key in front of `keys`, which are retired: their private halves are gone."""
    jwks = [Key.made(private).jwk(private=True), *(key.jwk() for key in keys)]
    return json.dumps({"keys": jwks}, indent=2) + "\n"


def verify(token: str, keys: tuple[Key, ...], type: str = TYPE) -> bytes:
    """The payload of a JWS of this `typ` that one of the keys has signed. Raises NotVerified, which names the part
    that is wrong."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    parts = token.split(".")
    if len(parts) != 3:
        raise NotVerified(f"the signature: expected header.payload.signature, found {len(parts)} parts.")
    header, payload, signature = (
        _decode(part, name) for part, name in zip(parts, ("header", "payload", "signature"), strict=True)
    )
    try:
        named = json.loads(header)
        algorithm, kind, id = named["alg"], named["typ"], str(named["kid"])
        is_exact = len(named) == 3  # another member (`crit`, `jwk`) would say how to read the rest
    except (ValueError, TypeError, KeyError, RecursionError):
        algorithm, kind, id, is_exact = "", "", "", False
    if not is_exact:
        raise NotVerified("the header: expected alg, kid and typ in JSON and nothing else, found something else.")
    if algorithm != "EdDSA" or kind != type:
        raise NotVerified(
            f"the header: expected EdDSA and {type}, found {str(algorithm)[:40]!r} and {str(kind)[:40]!r}."
        )
    key = next((key for key in keys if key.id == id), None)
    if key is None:
        ids = ", ".join(key.name for key in keys)
        raise NotVerified(f"the key: it was signed with {id[:60]!r}, and the keys given are {ids}.")
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, f"{parts[0]}.{parts[1]}".encode())
    except InvalidSignature:
        raise NotVerified(
            f"the signature: it is not that of key {key.name} over this payload; one of them was changed."
        ) from None
    return payload


def thumbprint(public: bytes) -> str:
    """The id of the key with this public half (RFC 7638)."""
    members = {"crv": "Ed25519", "kty": "OKP", "x": encode(public)}
    return encode(sha256(json.dumps(members, separators=(",", ":")).encode()).digest())


def encode(data: bytes) -> str:
    """Base64 for addresses, without padding (RFC 4648, section 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The bytes that `encode` makes this text of. Raises ValueError for any other text: readers skip padding, signs
    that are none of the alphabet and the bits behind the last byte, so the same bytes would have several."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode(data) != text:
        raise ValueError("expected base64url as RFC 7515 writes it")
    return data


def _decode(text: str, part: str) -> bytes:
    try:
        return decode(text)
    except ValueError as error:
        raise NotVerified(f"the {part}: {error}, found something else.") from None


def _key(jwk: Any, place: str) -> Key:
    if not isinstance(jwk, Mapping) or jwk.get("kty") != "OKP" or jwk.get("crv") != "Ed25519":
        raise BadKeys(f"{place}: expected a JWK of kty OKP and crv Ed25519, found something else.")
    public, private = _half(jwk, "x", place), _half(jwk, "d", place) if "d" in jwk else None
    if private is not None and Key.made(private).public != public:
        raise BadKeys(f"{place}: its halves `d` and `x` do not belong together.")
    id = thumbprint(public)
    if jwk.get("kid", id) != id:
        raise BadKeys(f"{place}: expected its kid to be its thumbprint {id} (RFC 7638), found another.")
    return Key(id, public, private, retired=jwk.get("status") == "retired")


def _half(jwk: Mapping[str, Any], name: str, place: str) -> bytes:
    try:
        data = _decode(jwk[name], name)
    except (KeyError, TypeError, NotVerified):
        data = b""
    if len(data) != _BYTES:
        raise BadKeys(f"{place}: expected `{name}` to be {_BYTES} bytes in base64url, found something else.")
    return data


@functools.lru_cache(maxsize=1)  # of the key that signs: to read it takes longer than to sign
def _private(private: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # when first needed: 30 ms

    return Ed25519PrivateKey.from_private_bytes(private)
