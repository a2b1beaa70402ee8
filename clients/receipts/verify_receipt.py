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
    return data if base64.urlsafe_b64encode(data).rstrip(b"=").decode() == text else b""  # one text for the same bytes


def digests(value: object) -> "set[str]":
    if isinstance(value, dict):
        return {value["sha256"]} if set(value) == {"sha256"} else digests([*value.values()])
    return set().union(*map(digests, value)) if isinstance(value, list) else set()


def verify(receipt: str, keys: str) -> dict:
    """The content of the receipt. Raises ValueError, which names the part that does not hold."""
    file = json.loads(receipt)
    form = json.dumps(file, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if form != receipt.rstrip("\n") or set(file) != {"receipt", "texts"}:
        raise ValueError("the file: it is not as it was given out")
    try:
        header, payload, signature = map(decoded, file["receipt"].split("."))
        named = json.loads(header)
    except ValueError as error:
        raise ValueError(f"the signed part: {error}") from None
    if set(named) != {"alg", "kid", "typ"} or (named["alg"], named["typ"]) != ("EdDSA", "hai-flow-receipt+jws"):
        raise ValueError("the header: it is not one of a receipt")
    known = {key["kid"]: key for key in json.loads(keys)["keys"]}
    if (key := known.get(named["kid"])) is None:
        raise ValueError(f"the key: {named['kid']} is none of {', '.join(known)}")
    try:
        public = Ed25519PublicKey.from_public_bytes(decoded(key["x"]))
        public.verify(signature, file["receipt"].rpartition(".")[0].encode())
    except InvalidSignature:
        raise ValueError(f"the signature: not of the {key.get('status', 'given')} key {key['kid']}") from None
    content = json.loads(payload)
    for digest, text in file["texts"].items():
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
