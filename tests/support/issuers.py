"""Issuers of tokens: keys, tokens signed with them, an identity file, and a server of their keys that may hang."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "hai-flow"


class Issuer:
    """An issuer with one signing key for each algorithm. `url` is the `iss` of its tokens."""

    def __init__(self, url: str = "https://login.example.com") -> None:
        self.url = url

    @cached_property
    def keys(self) -> dict[str, tuple[str, Any]]:
        """By a key's name: the algorithm, and the private key. Made when the first is wanted, in half a second."""
        return {
            "rsa": ("RS256", rsa.generate_private_key(65537, 2048)),
            "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
            "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
        }

    def add(self, kid: str, algorithm: str, key: Any) -> None:
        self.keys[kid] = algorithm, key

    @property
    def jwks(self) -> dict[str, Any]:
        """Its public keys."""
        return {"keys": [public(kid, algorithm, key) for kid, (algorithm, key) in self.keys.items()]}

    def claims(self, **claims: Any) -> dict[str, Any]:
        """The claims of a sound token of Ann's, with others in their place; None leaves one out."""
        now = int(time.time())
        whole = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 3600, **claims}
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, kid: str = "rsa", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token signed with the key `kid`."""
        algorithm, key = self.keys[kid]
        return jwt.encode(self.claims(**claims), key, algorithm, {"kid": kid, **(headers or {})})


def public(kid: str, algorithm: str, key: Any) -> dict[str, Any]:
    """The JWK of a private key's public half."""
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "alg": algorithm, "use": "sig"}


def identity_file(folder: Path, issuers: dict[str, dict[str, Any]], people: dict[str, Any] | None = None) -> Path:
    path = folder / "identity.yaml"
    document = {"hai": "identity/v1", "issuers": issuers, **({"people": people} if people else {})}
    path.write_text(yaml.safe_dump(document))
    return path


class KeyServer:
    """A server of an issuer's keys. `asked` counts requests; while `hangs` is set none is answered; `broken` is sent in
    place of the keys."""

    def __init__(self, issuer: Issuer, url: str) -> None:
        self.issuer = issuer
        self.url = url
        self.asked = 0
        self.hangs = False
        self.broken: bytes | None = None
        self.released = threading.Event()
        self.exchange: Callable[[dict[str, str]], tuple[int, dict[str, Any]]] | None = None  # a code for a token

    def answer(self) -> bytes:
        self.asked += 1
        if self.hangs:
            self.released.wait(60)
        return json.dumps(self.issuer.jwks).encode() if self.broken is None else self.broken


@contextmanager
def serving_keys(issuer: Issuer) -> Iterator[KeyServer]:
    """The issuer's keys, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = keys.answer()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            assert keys.exchange is not None
            status, told = keys.exchange(form)
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    keys = KeyServer(issuer, f"http://127.0.0.1:{server.server_address[1]}/keys")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield keys
    finally:
        keys.released.set()
        server.shutdown()
        server.server_close()
