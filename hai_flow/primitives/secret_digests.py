"""The digests of secret texts: of sessions, tickets, keys, callbacks, buttons, links and codes."""

from hashlib import sha256


def hash_secret(text: str) -> bytes:
    """The digest by which a secret text is stored, in its place. The texts are long and random: it needs no salt."""
    return sha256(text.encode()).digest()
