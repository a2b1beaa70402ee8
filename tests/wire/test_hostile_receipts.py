"""Receipts by somebody who wants them believed: no verifier takes one, and ours says which part is wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hai_flow import signing
from hai_flow.wire.receipt import UnprovenReceipt, canonical, check_payload, read_texts
from tests.clients import rig

OUTSIDE = Path(__file__).parents[2] / "clients" / "receipts"
OWN, EVIL = signing.Key.made(bytes(32)), signing.Key.made(bytes([7]) * 32)
KEYS = json.dumps({"keys": [OWN.jwk()]})
_SPEC = importlib.util.spec_from_file_location("verify_receipt", OUTSIDE / "verify_receipt.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_OUTSIDE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_OUTSIDE)


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def digest(text: str, salt: str = "s") -> str:
    return hashlib.sha256((salt + text).encode()).hexdigest()


def payload(executed: str = '{"n":1}') -> bytes:
    arguments = {"sha256": digest('{"n":1}')}
    content = {
        "form": 1,
        "question": {"arguments": arguments},
        "decision": {"arguments": arguments, "outcome": "approve"},
        "executed": [{"arguments": {"sha256": digest(executed)}}],
    }
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def token(header: dict[str, Any] | str, body: bytes = payload(), key: signing.Key = OWN) -> str:
    """A JWS with any header, signed by the key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    signed = f"{encode(text.encode())}.{encode(body)}"
    assert key.private is not None
    return f"{signed}.{encode(Ed25519PrivateKey.from_private_bytes(key.private).sign(signed.encode()))}"


def file(jws: str, texts: dict[str, Any] | None = None) -> str:
    named = {digest('{"n":1}'): {"salt": "s", "text": '{"n":1}'}} if texts is None else texts
    return json.dumps({"receipt": jws, "texts": named}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


HEADER = {"alg": "EdDSA", "kid": OWN.id, "typ": signing.TYPE}
GOOD = file(token(HEADER))


def with_hmac() -> str:
    """The public key as the secret of another algorithm."""
    signed = f"{encode(json.dumps({**HEADER, 'alg': 'HS256'}).encode())}.{encode(payload())}"
    return f"{signed}.{encode(hmac.digest(OWN.public, signed.encode(), 'sha256'))}"


def with_other_signature() -> str:
    """The order of the curve is added to the second half of the signature (RFC 8032, 5.1.7)."""
    head, body, signature = token(HEADER).split(".")
    data = base64.urlsafe_b64decode(signature + "==")
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = (int.from_bytes(data[32:], "little") + order).to_bytes(32, "little")
    return f"{head}.{body}.{encode(data[:32] + scalar)}"


HOSTILE = {
    "no algorithm": file(token({**HEADER, "alg": "none"}).rpartition(".")[0] + "."),
    "no algorithm, signed all the same": file(token({**HEADER, "alg": "none"})),
    "the public key as a secret": file(with_hmac()),
    "a key of its own": file(token(HEADER, key=EVIL)),
    "another's key by its own name": file(token({**HEADER, "kid": EVIL.id}, key=EVIL)),
    "a key in the header": file(token({**HEADER, "jwk": EVIL.jwk()}, key=EVIL)),
    "a key in the header, and a known name": file(token({**HEADER, "jwk": EVIL.jwk()})),
    "an address of keys in the header": file(token({**HEADER, "jku": "https://evil.example/keys"})),
    "a member that has to be understood": file(token({**HEADER, "crit": ["b64"], "b64": False})),
    "another kind of document": file(token({**HEADER, "typ": "JWT"})),
    "a header that is no object": file(token("[]")),
    "a header that is null": file(token("null")),
    "another signature of the same": file(with_other_signature()),
    "two parts": file(token(HEADER).rpartition(".")[0]),
    "four parts": file(token(HEADER) + ".x"),
    "padding": file(token(HEADER) + "=="),
    "what was executed is something else": file(token(HEADER, payload('{"n":2}'))),
    "a text of nothing that was signed": file(token(HEADER), {digest("x"): {"salt": "s", "text": "x"}}),
    "a text under another digest": file(token(HEADER), {digest('{"n":1}'): {"salt": "s", "text": '{"n":2}'}}),
    "a text without salt": file(token(HEADER), {digest('{"n":1}', ""): {"text": '{"n":1}'}}),
    "a member twice": GOOD.replace('"texts":', '"texts":{},"texts":'),
    "the signed part twice": GOOD.replace('{"receipt":', '{"receipt":"x","receipt":'),
    "another order": json.dumps(dict(reversed(json.loads(GOOD).items())), separators=(",", ":")),
    "blanks": json.dumps(json.loads(GOOD)),
    "escaped signs": GOOD.replace("salt", "s\\u0061lt"),
    "a mark in front": "\ufeff" + GOOD,
    "one more member": json.dumps({**json.loads(GOOD), "zz": 1}, separators=(",", ":"), sort_keys=True),
    "no object": "[]",
    "a number too big for a double": '{"receipt":1e400,"texts":{}}',
    "nested too deeply": "[" * 200_000,
    "nothing": "",
}


def check_inside(receipt: str) -> None:
    jws, texts = read_texts(receipt)
    check_payload(signing.verify(jws, (OWN,)), texts)


def test_what_is_right_is_taken_by_each() -> None:
    check_inside(GOOD)
    assert _OUTSIDE.verify(GOOD, KEYS)["form"] == 1


@pytest.mark.parametrize("receipt", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_receipt_is_refused_with_the_part_that_is_wrong(receipt: str) -> None:
    with pytest.raises((UnprovenReceipt, signing.NotVerified), match=r"^(the|what) [a-z ]+: "):
        check_inside(receipt)


@pytest.mark.parametrize("receipt", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_receipt_is_refused_by_the_verifier_in_python(receipt: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError, RecursionError)):
        _OUTSIDE.verify(receipt, KEYS)


def test_hostile_receipts_are_refused_by_the_verifier_in_typescript(tmp_path: Path) -> None:
    cases, script = tmp_path / "cases.json", tmp_path / "all.mjs"
    cases.write_text(json.dumps({"good": GOOD, **HOSTILE}))
    script.write_text(
        f"import {{ verify }} from {json.dumps((OUTSIDE / 'verify_receipt.ts').as_uri())};\n"
        'import { readFile } from "node:fs/promises";\n'
        f'const cases = JSON.parse(await readFile({json.dumps(str(cases))}, "utf8"));\n'
        "const taken = [];\n"
        f"for (const [name, each] of Object.entries(cases)) await verify(each, {json.dumps(KEYS)})"
        ".then(() => taken.push(name), () => {});\n"
        "console.log(JSON.stringify(taken));\n"
    )
    answer = subprocess.run([rig.node(), str(script)], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(answer.stdout) == ["good"]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('{"b":1,"a":2}', '{"a":2,"b":1}'),
        ('{"n":1.0}', '{"n":1}'),
        ('{"n":1e2}', '{"n":100}'),
        ('{"n":9007199254740993}', '{"n":9007199254740993}'),
        ('{"n":123456789012345678901234567890}', '{"n":123456789012345678901234567890}'),
        ('{"n":-0.0}', '{"n":0}'),
    ],
)
def test_arguments_are_written_in_one_way_and_big_numbers_stay_as_they_are(text: str, same: str) -> None:
    assert canonical(text) == same


@pytest.mark.parametrize("doubt", [lambda text: text.replace("1", "2"), lambda text: text + " "])
def test_another_text_has_another_digest(doubt: Callable[[str], str]) -> None:
    assert digest(doubt('{"n":1}')) != digest('{"n":1}')
