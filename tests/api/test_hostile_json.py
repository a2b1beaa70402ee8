"""Hostile JSON on every route that takes a body: keys, depth, numbers and characters. No answer is a 500, and each
refusal can be read. Without a database, too, so that the quick part of the tests has it (`python3 cli.py quick`)."""

from __future__ import annotations

import itertools
import json
import random
import re
import socket
from collections import Counter
from typing import Any, NoReturn

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from hai_flow.api.app import build_common_routes, create_app
from hai_flow.errors import StoreError
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from tests.support.examples import sample
from tests.support.server import ServerProcess

CONTENT = {"Content-Type": "application/json"}
HOSTILE: dict[str, bytes] = {
    "a key that is half of a character": b'{"\\ud800": null}',
    "a key with NUL": b'{"\\u0000": null}',
    "a text that is half of a character": b'{"message": "\\udfff", "workflow": "\\ud83d"}',
    "a key twice that is half of a character": b'{"\\ud800": 1, "\\ud800": 2}',
    "a deep key": b'{"a": {"b": [{"\\ud800": 1}]}}',
    "19 digits": b'{"id": 1234567890123456789}',
    "5000 digits": b'{"id": ' + b"9" * 5000 + b"}",
    "a float without an end": b'{"limit": 1e400}',
    "no number": b'{"limit": NaN}',
    "minus infinity": b"[-Infinity]",
    "depth": b"[" * 10_000 + b"]" * 10_000,
    "a hundred thousand levels": b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "depth without an end": b'{"a":' * 5_000,
    "depth at the limit": b"[" * 64 + b"]" * 64,
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "no UTF-8": b'{"a": "\xff"}',
    "HTML": b"<html></html>",
    "a list": b"[]",
    "a text": b'"\\ud800"',
    "null": b"null",
    "a number": b"-0",
    "control characters": b'{"a": "\x00\x01"}',
    "a long key": b'{"' + b"k" * 100_000 + b'": 1}',
    "a pointer as a key": b'{"~1/~0//": {"": null}}',
}


def routes() -> list[tuple[str, str]]:
    """All routes that take a body, documented or not, with a name in the place of each parameter."""
    known: set[tuple[str, str]] = set()
    for route in build_common_routes():
        if isinstance(route, APIRoute):
            path = re.sub(r"\{[^{}]*\}", "x1", route.path).replace("/workflows/x1/", "/workflows/greet/")
            known |= {(method, path) for method in {"POST", "PUT", "PATCH"} & (route.methods or set())}
    return sorted(known)


class _Unstarted(Runtime):
    """A runtime without a database: what a request needs of it is away."""

    def __getattr__(self, name: str) -> NoReturn:
        raise StoreError(name)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    settings = Settings(publish=True)
    return create_app(settings, _Unstarted("postgresql://nowhere", settings, performs=False), act_as=True)


@pytest.mark.parametrize("kind", HOSTILE)
async def test_no_route_has_a_fault_of_its_own_reading_hostile_json(app: FastAPI, kind: str) -> None:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False, client=("127.0.0.1", 1))
    answers: Counter[int] = Counter()
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        for method, path in routes():
            answer = await http.request(method, path, content=HOSTILE[kind], headers=CONTENT)
            assert answer.status_code < 500 or answer.status_code == 503, (method, path, answer.text[:300])
            answers[answer.status_code] += 1
    assert answers[503] < answers.total() / 3  # all others have read the body


def test_no_route_answers_hostile_json_by_a_fault_of_its_own(server: ServerProcess) -> None:
    known = routes()
    assert len(known) > 60
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        for (method, path), kind in sample(itertools.product(known, HOSTILE), 100):
            answer = http.request(method, path, content=HOSTILE[kind], headers=CONTENT)
            assert answer.status_code < 500, (method, path, kind, answer.text[:300])
            if answer.headers.get("content-type", "").startswith("application/problem+json"):
                assert all(isinstance(each.get("path", ""), str) for each in answer.json().get("findings", ()))


def test_a_key_with_a_lone_surrogate_is_422_with_a_writable_place(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        answer = http.post("/v1/runs", content=b'{"a": {"\\ud800": null}}', headers=CONTENT)
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["findings"]] == ["/a/\ufffd"]


def mutated(rng: random.Random, depth: int = 0) -> Any:
    odd = ["\x00", "\ud800", "\udfff\ud800", "", "a", "/", "~", "id", "workflow", "input", "messages", "\u202e", "🚀"]
    if depth > 4 or rng.random() < 0.3:
        return rng.choice([None, True, 0, -1, 2**53, 2**64, 1e308, *odd])
    if rng.random() < 0.4:
        return [mutated(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(odd): mutated(rng, depth + 1) for _ in range(rng.randrange(4))}


def test_no_route_answers_json_made_at_random_by_a_fault_of_its_own(server: ServerProcess) -> None:
    rng = random.Random(30)
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        for method, path in routes():
            for _ in range(3):
                body = json.dumps(mutated(rng)).encode()
                answer = http.request(method, path, content=body, headers=CONTENT)
                assert answer.status_code < 500, (method, path, body[:300], answer.text[:300])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/runs", 413),
        ("/v1/events", 413),
        ("/v1/hooks/shop", 404),  # none of this name; of one that is: test_webhooks.py
        ("/callbacks/c_1", 404),
    ],
)
def test_a_413_reaches_a_client_that_writes_its_whole_body_first(server: ServerProcess, path: str, status: int) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    body = b'"' + b"x" * 4_000_000 + b'"'
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(head.encode() + body)  # as urllib, and many others, do
        answer = client.recv(65536)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
