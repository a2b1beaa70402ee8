"""A browser's secret that the database keeps but can't read: it is encrypted with a key made of the cookie's text, of
which the database has the sha256 alone."""

from __future__ import annotations

import hmac
import os
from typing import Final

_NONCE: Final = 12


def seal(text: str, digest: bytes, secret: bytes) -> bytes:
    """The secret, encrypted. Only the session's `text` opens it, and only from the row that `digest` finds."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only a server with sign-in pays for its import

    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(_key(text)).encrypt(nonce, secret, digest)


def unseal(text: str, digest: bytes, sealed: bytes) -> bytes | None:
    """The secret. None: it was sealed for another text or row, or was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_key(text)).decrypt(sealed[:_NONCE], sealed[_NONCE:], digest)
    except (InvalidTag, ValueError):
        return None


def _key(text: str) -> bytes:
    return hmac.digest(text.encode(), b"hai-flow session seal v1", "sha256")
