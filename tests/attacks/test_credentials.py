"""Forged, doubled, smuggled and oversized credentials: each is refused with the right status, and nothing is stored.

Forged tokens of issuers are in tests/api/test_tokens_of_issuers.py, tokens and tickets of ours in
tests/api/test_frontend_tokens.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.identities import KEYS, People, carried
from tests.support.server import ServerProcess, serving

FORGERS = {"HAI_FLOW_REFUSALS_PEER_MAX": "10000"}  # all of them have one address


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={**KEYS, **FORGERS}) as process:
        yield process


@pytest.fixture(scope="module")
def key(dsn: str, strict: ServerProcess) -> str:
    return People(dsn).key("user:ann", roles=["operator"])[1]


def raw(
    server: ServerProcess, *lines: bytes, body: bytes = b"", path: bytes = b"/v1/runs", method: bytes = b"POST"
) -> int:
    """The status that a request gets whose head has these lines, to the byte; 0: the connection was just closed."""
    place = urlsplit(server.url)
    sent = body or b'{"workflow": "chat"}'
    head = [b"POST " + path + b" HTTP/1.1", b"Host: localhost", b"Content-Type: application/json"]
    head += [b"Content-Length: %d" % len(sent), b"Connection: close", *lines]
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        try:
            connection.sendall(b"\r\n".join(head) + b"\r\n\r\n" + sent)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        except (BrokenPipeError, ConnectionResetError):
            return 0
    return int(answer.split(b" ", 2)[1]) if answer else 0


def runs_of(strict: ServerProcess, dsn: str) -> int:
    return People(dsn).do(lambda connection: connection.fetchval("SELECT count(*) FROM runs"))


def lines(key: str) -> dict[str, tuple[int, list[bytes]]]:
    """What is tried: the status that it has to get, and the lines of the head."""
    good, other = b"Authorization: Bearer " + key.encode(), b"Authorization: Bearer hai_000000000000_" + b"A" * 43
    secret = key.encode()
    return {
        "none": (401, []),
        "empty": (401, [b"Authorization:"]),
        "only the scheme": (401, [b"Authorization: Bearer"]),
        "only the scheme, and a space": (401, [b"Authorization: Bearer "]),
        "without the scheme": (401, [b"Authorization: " + secret]),
        "another scheme": (401, [b"Authorization: Basic " + secret]),
        "a scheme like ours": (401, [b"Authorization: Bearerer " + secret]),
        "two spaces": (401, [b"Authorization: Bearer  " + secret]),
        "something behind": (401, [good + b" x"]),
        "a comma behind": (401, [good + b","]),
        "two in one line": (401, [good + b", Bearer " + secret]),
        "quoted": (401, [b'Authorization: Bearer "' + secret + b'"']),
        "a tab inside": (401, [good.replace(b"hai_", b"hai_\t")]),
        "bytes that are no ASCII": (401, [good + "\u00e9".encode()]),
        "bytes that are no UTF-8": (401, [good + b"\xff\xfe"]),
        "capitals": (401, [b"Authorization: Bearer " + secret.upper()]),
        "without its id": (401, [b"Authorization: Bearer hai__" + secret[17:]]),
        "without its secret": (401, [b"Authorization: Bearer " + secret[:17]]),
        "half of its secret": (401, [b"Authorization: Bearer " + secret[:-20]]),
        "more than its secret": (401, [good + b"A"]),
        "another's id": (401, [b"Authorization: Bearer hai_000000000000" + secret[16:]]),
        "an id with a wildcard": (401, [b"Authorization: Bearer hai_%%%%%%%%%%%%" + secret[16:]]),
        "an id that is SQL": (401, [b"Authorization: Bearer hai_' OR '1'='1" + secret[16:]]),
        "long": (401, [b"Authorization: Bearer " + b"A" * 20_000]),
        "twice the same": (400, [good, good]),
        "twice, the first good": (400, [good, other]),
        "twice, the second good": (400, [other, good]),
        "twice, in other letters": (400, [good, b"AUTHORIZATION: Bearer x"]),
        "in a header like ours": (401, [b"X-Authorization: Bearer " + secret]),
        "for a proxy": (401, [b"Proxy-Authorization: Bearer " + secret]),
        "forwarded": (401, [b"X-Forwarded-Authorization: Bearer " + secret, b"X-Forwarded-User: ann"]),
        "a name with an underscore": (401, [b"X_Authorization: Bearer " + secret]),
        "in a cookie": (401, [b"Cookie: Authorization=Bearer " + secret + b"; key=" + secret]),
        "acting as": (403, [good, b"HAI-Act-As: user:root,role:admin"]),
        "acting as, without one": (403, [b"HAI-Act-As: user:local"]),
        "acting as, twice": (400, [good, b"HAI-Act-As: user:a", b"HAI-Act-As: user:b"]),
    }


def test_no_credential_of_another_form_starts_a_run(strict: ServerProcess, dsn: str, key: str) -> None:
    before = runs_of(strict, dsn)
    for kind, (status, head) in lines(key).items():
        assert raw(strict, *head) == status, kind
    assert runs_of(strict, dsn) == before
    assert raw(strict, b"Authorization: bearer " + key.encode()) == 201  # the scheme's letters do not matter
    assert runs_of(strict, dsn) == before + 1


MALFORMED = {
    "NUL in the value": b"Authorization: Bearer hai_\x00",
    "a bare line feed in the value": b"Authorization: Bearer x\nX: y",
    "a bare return in the value": b"Authorization: Bearer x\rX: y",
    "a folded line": b"Authorization: Bearer\r\n x",
    "a space before the colon": b"Authorization : Bearer x",
    "no colon": b"Authorization Bearer x",
    "a name with NUL": b"Author\x00ization: Bearer x",
    "two lengths": b"Content-Length: 5",
    "a length and chunks": b"Transfer-Encoding: chunked",
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_head_that_two_readers_could_read_differently_starts_no_run(
    strict: ServerProcess, dsn: str, key: str, kind: str
) -> None:
    before = runs_of(strict, dsn)
    good = b"Authorization: Bearer " + key.encode()
    assert raw(strict, MALFORMED[kind], good) in (0, 400, 401)
    assert raw(strict, good, MALFORMED[kind]) in (0, 400, 401)
    assert runs_of(strict, dsn) == before


def test_a_head_of_ten_megabytes_is_cut(strict: ServerProcess, key: str) -> None:
    assert raw(strict, b"Authorization: Bearer " + b"A" * 10_000_000) in (0, 401, 431)
    many = [b"Authorization-%d: Bearer %b" % (number, b"A" * 1000) for number in range(10_000)]
    assert raw(strict, *many) in (0, 401, 431)
    assert httpx2.get(f"{strict.url}/v1/runs", headers=carried(key)).status_code == 200


def test_a_credential_in_the_address_or_the_body_is_none(strict: ServerProcess, key: str) -> None:
    for name in ("access_token", "key", "token", "api_key", "Authorization"):
        assert raw(strict, path=f"/awp?{name}={key}".encode()) == 401
    assert raw(strict, body=b'{"workflow": "chat", "key": "%b"}' % key.encode()) == 401


def test_refusals_do_not_tell_a_known_key_from_one_that_never_was(strict: ServerProcess, dsn: str, key: str) -> None:
    revoked, text = People(dsn).key("user:gone", roles=["operator"])
    People(dsn).revoke(revoked)
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    never = f"hai_{'0' * 12}_{'A' * 43}"
    answers = [httpx2.get(f"{strict.url}/v1/runs", headers=carried(each)) for each in (wrong, never, text, "x.y.z")]
    told = [{name: value for name, value in answer.headers.items() if name != "date"} for answer in answers]
    assert len({answer.content for answer in answers}) == 1
    assert all(each == told[0] for each in told)


def test_no_refusal_and_no_log_repeats_a_credential(strict: ServerProcess, key: str) -> None:
    wrong = key[:-6] + "SECRET"
    for path in ("/v1/runs", "/awp", "/v1/keys"):
        answer = httpx2.get(strict.url + path, headers=carried(wrong))
        assert "SECRET" not in answer.text + str(answer.headers)
    assert key[20:] not in strict.log
    assert "SECRET" not in strict.log


def test_a_socket_takes_no_credential_of_another_form(strict: ServerProcess, key: str) -> None:
    upgrade = [b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    good = b"Authorization: Bearer " + key.encode()
    for status, more in ((401, []), (401, [b"Sec-WebSocket-Protocol: bearer, " + key.encode()]), (400, [good, good])):
        place = urlsplit(strict.url)
        request = [b"GET /api/aui/ws/interactive HTTP/1.1", b"Host: localhost", b"Connection: Upgrade", *upgrade, *more]
        with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
            connection.sendall(b"\r\n".join(request) + b"\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 %d" % status), more
