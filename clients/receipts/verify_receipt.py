"""Verify a receipt: python verify_receipt.py RECEIPT.json KEYS.json. Needs `cryptography`, and nothing of HAI Flow."""

import base64
import json
import sys
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def decoded(text: str) -> bytes:
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise ValueError("base64url is written otherwise than RFC 7515 says")
    return data


def digests(value: object) -> "set[str]":
    if isinstance(value, dict):
        own = {value["sha256"]} if set(value) == {"sha256"} else set()
        return own.union(*map(digests, value.values()))
    return set().union(*map(digests, value)) if isinstance(value, list) else set()


def verify(receipt: str, keys: str) -> dict:
    """The content of the receipt. Raises ValueError, which names the part that does not hold."""
    file = json.loads(receipt)
    if json.dumps(file, ensure_ascii=False, sort_keys=True, separators=(",", ":")) != receipt.rstrip("\n"):
        raise ValueError("the file: it is not as it was given out")
    token, texts = file.pop("receipt"), file.pop("texts")
    if file:
        raise ValueError("the file: it has parts that no receipt has")
    try:
        header, payload, signature = map(decoded, token.split("."))
        named = json.loads(header)
    except ValueError as error:
        raise ValueError(f"the signed part: {error}") from None
    if set(named) != {"alg", "kid", "typ"} or (named["alg"], named["typ"]) != ("EdDSA", "hai-flow-receipt+jws"):
        raise ValueError("the header: it is not one of a receipt")
    known = {key["kid"]: key["x"] for key in json.loads(keys)["keys"]}
    if named.get("kid") not in known:
        raise ValueError(f"the key: {named.get('kid')} is none of {', '.join(known)}")
    try:
        key = Ed25519PublicKey.from_public_bytes(decoded(known[named["kid"]]))
        key.verify(signature, token.rpartition(".")[0].encode())
    except InvalidSignature:
        raise ValueError("the signature: it is not that of the key over this content") from None
    content = json.loads(payload)
    for digest, text in texts.items():
        if set(text) != {"salt", "text"} or sha256((text["salt"] + text["text"]).encode()).hexdigest() != digest:
            raise ValueError(f"the texts: {digest} is not the digest of its text")
        if digest not in digests(content):
            raise ValueError(f"the texts: nothing that was signed has the digest {digest}")
    if any(each["arguments"] != content["decision"]["arguments"] for each in content["executed"]):
        raise ValueError("what was executed: its arguments are not those that were decided")
    return content


if __name__ == "__main__":
    try:
        print(json.dumps(verify(*(Path(path).read_text() for path in sys.argv[1:3])), indent=2))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        sys.exit(f"Not verified: {wrong}")
