"""Whatever is sent: never a 500, never a worker that hangs, and nothing is stored that was refused."""

from __future__ import annotations

import base64
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai_flow.api.http.problems import collect_codes_of_faults
from tests.support.examples import examples, sample
from tests.support.hai_client import unique, user
from tests.support.server import YAML, ServerProcess, expect, serving

JSON = {"content-type": "application/json"}
BOUNDED = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MIB = 1 << 20


@pytest.fixture(scope="module")
def run_id(server: ServerProcess) -> str:
    return httpx2.post(f"{server.url}/v1/runs", json={"workflow": "cleanup"}).json()["id"]


@pytest.fixture(scope="module")
def pending_id(server: ServerProcess, run_id: str) -> str:
    with httpx2.stream(
        "GET", f"{server.url}/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"}
    ) as response:
        data = b""
        pieces = response.iter_bytes()
        while b"event: pending_opened" not in data:
            data += next(pieces)
    return httpx2.get(f"{server.url}/v1/pendings").json()["items"][0]["id"]


@pytest.fixture(autouse=True)
def nothing_changes(http: httpx2.Client, run_id: str, pending_id: str) -> Iterator[None]:
    """The run that everything is thrown at stays as it is, and the server goes on answering."""
    before = http.get(f"/v1/runs/{run_id}/snapshot").json()
    yield
    assert http.get(f"/v1/runs/{run_id}/snapshot").json() == before


BODIES = {
    "not JSON": b"{",
    "nothing but space": b"  ",
    "not UTF-8": b'"\xff"',
    "a key twice": b'{"threadId":"a","runId":"b","threadId":"c","workflow":"chat","workflow":"chat"}',
    "a key twice, deep inside": b'{"threadId":"a","runId":"b","workflow":"chat","input":{"a":[{"b":1,"b":2}]}}',
    "deep nesting": b"[" * 100_000 + b"]" * 100_000,
    "deep nesting inside": b'{"workflow":"chat","input":{"a":' + b"[" * 80 + b"]" * 80 + b"}}",
    "NaN": b'{"threadId":"a","runId":"b","workflow":"chat","input":{"a":NaN}}',
    "infinity": b'{"threadId":"a","runId":"b","workflow":"chat","input":{"a":-Infinity}}',
    "a float beyond all": b'{"threadId":"a","runId":"b","workflow":"chat","input":{"a":1e999}}',
    "a huge integer": b'{"threadId":"a","runId":"b","workflow":"chat","input":{"a":' + b"9" * 5000 + b"}}",
    "an integer that loses digits": b'{"threadId":"a","runId":"b","workflow":"chat","input":{"a":9007199254740993}}',
    "a lone surrogate": b'{"threadId":"a\\ud800","runId":"b","workflow":"chat","input":{"a":"\\udfff"}}',
    "a NUL": b'{"threadId":"a\\u0000","runId":"b","workflow":"chat","input":{"a":"\\u0000"},"reason":"\\u0000"}',
    "a NUL in a key": b'{"threadId":"a","runId":"b\\u0000","workflow":"chat","input":{"\\u0000":1}}',
    "a list": b"[]",
    "text": b'"x"',
    "null": b"null",
    "two documents": b"{}{}",
    "unknown fields": b'{"workflow":"chat","extra":1,"reason":"a","values":{}}',
    "wrong types": b'{"threadId":1,"runId":[],"workflow":{},"input":"x","reason":1,"decision":[],"error":{}}',
}


def posts(run_id: str, pending_id: str) -> list[str]:
    return [
        "/awp",
        "/workflows/chat/awp",
        "/process",
        "/workflows/chat/process",
        "/api/aui/input",
        "/v1/runs",
        *(f"/v1/runs/{run_id}/{verb}" for verb in ("pause", "stop", "terminate")),
        *(f"/v1/pendings/{pending_id}/{verb}" for verb in ("decide", "check")),
    ]


def test_a_bad_body_is_refused_on_every_route(http: httpx2.Client, run_id: str, pending_id: str) -> None:
    for path, (name, body) in sample(itertools.product(posts(run_id, pending_id), BODIES.items()), 80):
        if body == b"null" and path.startswith(f"/v1/runs/{run_id}"):
            continue  # no reason is a reason
        response = http.post(path, content=body, headers=JSON)
        assert response.status_code in (400, 413, 422), (path, name, response.text)
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["code"]
    for name, body in BODIES.items():
        assert http.post("/v1/workflows", content=body, headers=YAML).status_code == 422, name


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "x"]
)
def test_rest_takes_nothing_but_json(http: httpx2.Client, run_id: str, media_type: str) -> None:
    for path in ("/v1/runs", f"/v1/runs/{run_id}/stop"):
        response = http.post(path, content=b'{"reason":"x"}', headers={"content-type": media_type})
        assert (response.status_code, response.json()["code"]) == (415, "body.not_json")


TEXTS = [
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "\n",
    "\x1b[2J",
    "\u202e",
    "'; DROP TABLE runs; --",
    "%00",
    "x" * 5000,
    "é",
    "\U0001f600",
]


@pytest.mark.parametrize("text", sample(TEXTS, 4))
def test_strange_texts_are_taken_as_text_or_refused_everywhere(http: httpx2.Client, run_id: str, text: str) -> None:
    quoted = quote(text, errors="surrogatepass", safe="")
    for name in ("status", "workflow", "thread_id", "cursor", "limit"):
        assert http.get(f"/v1/runs?{name}={quoted}").status_code in (200, 400, 422), name
    for path in (
        f"/v1/pendings?cursor={quoted}",
        f"/v1/runs/{run_id}/events?after={quoted}",
        f"/v1/runs/{run_id}/events?dialect=hai&after={quoted}x",
        f"/v1/runs/{run_id}/events?dialect={quoted}",
        f"/v1/runs/{run_id}/events?limit={quoted}",
        f"/v1/runs/{run_id}/snapshot?at={quoted}",
    ):
        assert http.get(path).status_code in (200, 400, 422), path
    for path in (f"/v1/runs/x{quoted}", f"/v1/pendings/x{quoted}", f"/v1/workflows/x{quoted}", f"/x{quoted}"):
        assert http.get(path).status_code == 404, path
    inputs = {"workflow": "chat", "input": {"a": text, text: 1}}
    for body in ({"workflow": text}, {"workflow": "chat", "thread_id": text}, inputs):
        status = http.post("/v1/runs", content=json.dumps(body), headers=JSON).status_code
        assert status in (201, 404, 409, 413, 422), body
    for field in ("threadId", "runId"):
        posted = {"threadId": unique("t"), "runId": unique("r"), "messages": [], field: text}
        assert http.post("/awp", content=json.dumps(posted), headers=JSON).status_code in (200, 422)
    message = {**user(text), "name": text, "extra": {text: text}}
    posted = {"threadId": unique("t"), "runId": unique("r"), "messages": [message]}
    assert http.post("/workflows/weather/awp", content=json.dumps(posted), headers=JSON).status_code in (200, 422)


def test_page_cursors_that_no_page_returned_are_refused(http: httpx2.Client, run_id: str, pending_id: str) -> None:
    made_up = [
        "", "x", "é", "====", "\x00", "MA", "a" * 10_000,
        *(base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") for text in (
            "1", "1\n", f"1\n{pending_id}x\x00", f"-1\n{run_id}", f"{10**17}\n{run_id}", "1\nx", "1\n" + "0" * 36,
            f"0001-01-01T00:00:00+14:00\n{run_id}", f"1\n{run_id}\n", "1\ncall_a_b",
        )),
    ]  # fmt: skip
    for cursor in made_up:
        for path in ("/v1/runs", "/v1/pendings"):
            response = http.get(path, params={"cursor": cursor})
            assert (response.status_code, response.json()["code"]) == (400, "cursor.invalid"), (path, cursor)


def test_a_place_in_schedules_that_no_schedule_can_have_is_refused(http: httpx2.Client) -> None:
    for number, status in ((2**31 - 1, 200), (2**31, 400), (10**16 - 1, 400)):
        cursor = base64.urlsafe_b64encode(f"{number}\nweather".encode()).decode().rstrip("=")
        assert http.get("/v1/schedules", params={"cursor": cursor}).status_code == status, number


def test_a_body_that_is_too_large_is_refused_before_anything_is_stored(
    http: httpx2.Client, run_id: str, pending_id: str
) -> None:
    thread = unique("thread")
    posted = {"threadId": thread, "runId": "r", "messages": [user("x" * MIB)]}
    started = {"workflow": "chat", "thread_id": thread, "input": {"a": "x" * MIB}}

    def in_chunks(data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), 65536):
            yield data[at : at + 65536]

    for path in ("/v1/workflows", *posts(run_id, pending_id)):
        data = json.dumps(posted if path.endswith("awp") else started).encode()
        for content in (data, in_chunks(data)):
            response = http.post(path, content=content, headers=JSON)
            assert (response.status_code, response.json()["code"]) == (413, "body.too_large"), path
    assert http.get("/v1/runs", params={"thread_id": thread}).json()["items"] == []


def test_more_messages_or_tools_than_may_be_are_refused(http: httpx2.Client) -> None:
    for name, items in (("messages", [user("x", f"m{n}") for n in range(501)]), ("tools", [{"name": "x"}] * 201)):
        response = http.post("/awp", json={"threadId": unique("t"), "runId": "r", name: items})
        assert (response.status_code, response.json()["code"]) == (413, "body.too_large")


@pytest.mark.parametrize(
    ("path", "body", "finding"),
    [
        ("/v1/runs", {"workflow": "chat", "input": [1]}, {"path": "/input", "message": "expected an object"}),
        ("/v1/runs", {}, {"path": "/workflow", "message": "expected it, found none"}),
        ("/v1/runs", {"workflow": 5}, {"path": "/workflow", "message": "expected text"}),
        ("/v1/runs", [], {"path": "", "message": "expected an object"}),
        (
            "/api/aui/input",
            {"session_id": "a\nb"},
            {"path": "/session_id", "message": "expected no control characters"},
        ),
        ("/api/aui/input", {"session_id": ""}, {"path": "/session_id", "message": "expected text, found none"}),
        (
            "/api/aui/input",
            {"session_id": "s", "interrupt_id": "x" * 201},
            {"path": "/interrupt_id", "message": "expected at most 200 characters"},
        ),
        (
            "/api/aui/input",
            {"session_id": "s", "more": 1},
            {"path": "/more", "message": "unknown; no such field or parameter is expected here"},
        ),
    ],
)
def test_a_finding_says_in_the_words_of_json_what_was_expected(
    http: httpx2.Client, path: str, body: Any, finding: dict[str, str]
) -> None:
    (found,) = expect(http.post(path, json=body), 422).json()["findings"]
    assert {**found, **finding} == found
    assert found["code"] in collect_codes_of_faults()


def test_other_methods_and_paths_are_refused_as_problems(http: httpx2.Client, run_id: str, pending_id: str) -> None:
    gets = ["/v1/runs", f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events", f"/v1/pendings/{pending_id}", "/healthz"]
    for path in (*gets, *posts(run_id, pending_id)):
        for method in ("PUT", "PATCH", "DELETE", "HEAD", "TRACE", "OPTIONS", "PROPFIND"):
            response = http.request(method, path)
            assert response.status_code == 405, (method, path)
            assert response.headers["allow"]
            assert response.headers["x-content-type-options"] == "nosniff"
    for path in (
        *(f"/v1/pendings/{pending_id}/{verb}" for verb in ("decide", "check")),
        f"/v1/runs/{run_id}/stop",
        "/awp",
    ):
        assert http.get(path).status_code == 405, "a GET decides nothing"
    for path in ("/v1/runs/", "/v1//runs", "/%2e%2e/etc/passwd", "/v1/%2e%2e/healthz", "/..%2f", "/v1/runs/%2e%2e"):
        response = http.get(path)
        assert response.status_code == 404, path
        assert response.headers["content-type"] == "application/problem+json"


RAW = [
    b"GET /v1/runs HTTP/1.1\r\n\r\n",
    b"GET /v1/runs HTTP/1.0\r\n\r\n",
    b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%ff%fe%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/v1/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 18 + b"\r\n\r\n",
    b"\x16\x03\x01\x00\x00",
    b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: \xff\r\nAccept: \xff\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", RAW)
def test_bytes_that_are_hardly_http_get_a_refusal(server: ServerProcess, request_bytes: bytes) -> None:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), 10) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 500 " not in answer[:20]


def test_a_client_that_goes_away_inside_its_body_is_no_fault(server: ServerProcess, http: httpx2.Client) -> None:
    parts = urlsplit(server.url)
    for path in ("/v1/runs", "/awp", "/v1/workflows"):
        with socket.create_connection((parts.hostname or "", parts.port or 0), 10) as connection:
            headers = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 99"
            connection.sendall(f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n{{".encode())
    assert http.get("/healthz").status_code == 200


# --- chance -------------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20) | st.sampled_from(["chat", "cleanup", "approve", "true", "tool", "user"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def some(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING))


MESSAGE = some("id", "role", "content", "toolCallId", "error", "name", "timestamp", "extra", "toolCalls")
POSTED = st.builds(
    lambda known, more: {**known, **more},
    st.fixed_dictionaries({"threadId": TEXT, "runId": TEXT, "messages": st.lists(MESSAGE, max_size=4)}),
    some("tools", "context", "state", "forwardedProps", "messages", "resume"),
)
KNOWN_MESSAGE = st.builds(
    lambda id, role, content: {"id": id, "role": role, "content": content, "toolCallId": id}, TEXT, TEXT, TEXT
)
PLAUSIBLE = st.fixed_dictionaries({"threadId": TEXT, "runId": TEXT, "messages": st.lists(KNOWN_MESSAGE, max_size=3)})


def sent(http: httpx2.Client, path: str, body: Any) -> None:
    response = http.post(path, content=json.dumps(body).encode(), headers=JSON)
    assert response.status_code < 500, (path, body, response.text)


@BOUNDED
@given(POSTED | PLAUSIBLE | ANYTHING)
def test_no_posted_conversation_is_a_fault(http: httpx2.Client, body: Any) -> None:
    sent(http, "/workflows/weather/awp", body)


@BOUNDED
@given(some("workflow", "input", "thread_id") | st.builds(lambda x: {"workflow": "weather", "input": x}, ANYTHING))
def test_no_start_is_a_fault(http: httpx2.Client, body: Any) -> None:
    sent(http, "/v1/runs", body)


@BOUNDED
@given(some("decision", "reason", "values", "result", "error"))
def test_no_decision_is_a_fault(http: httpx2.Client, body: Any) -> None:
    run_id = http.post("/v1/runs", json={"workflow": "search_files"}).json()["id"]
    for pending in http.get(f"/v1/runs/{run_id}/snapshot").json()["pendings"]:
        sent(http, f"/v1/pendings/{pending['id']}/decide", body)
    sent(http, f"/v1/runs/{run_id}/stop", body)


QUERY_NAMES = ["limit", "cursor", "status", "workflow", "thread_id", "after", "at", "dialect"]
QUERY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.integers().map(str)


@BOUNDED
@given(st.dictionaries(st.sampled_from(QUERY_NAMES), QUERY_TEXT, max_size=4), st.binary(max_size=30))
def test_no_query_is_a_fault(http: httpx2.Client, run_id: str, query: dict[str, str], junk: bytes) -> None:
    header = bytes(byte for byte in junk if byte > 32 and byte != 127)
    for path in (
        "/v1/runs",
        "/v1/pendings",
        "/v1/threads",
        "/v1/workflows",
        f"/v1/runs/{run_id}/snapshot",
        f"/v1/runs/{run_id}/events",
    ):
        params = {name: value for name, value in query.items() if name != "dialect" or value != "hai"}
        response = http.get(path, params=params, headers={b"Last-Event-ID": header, b"Idempotency-Key": header})
        assert response.status_code < 500, (path, query, response.text)


# --- who may call -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(postgres_server: Any) -> Iterator[ServerProcess]:
    environment = {"HAI_FLOW_ALLOWED_ORIGINS": "https://app.example.com", "HAI_FLOW_ALLOWED_HOSTS": "flow.example.com"}
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as process:
        yield process


def ask(process: ServerProcess, method: str = "POST", path: str = "/awp", **headers: str) -> httpx2.Response:
    named = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return httpx2.request(method, process.url + path, content=b"{}" if method == "POST" else None, headers=named)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "evil@localhost", "[::1", "0.0.0.0"],
)
def test_a_host_that_is_not_ours_is_misdirected(guarded: ServerProcess, host: str) -> None:
    for path in ("/awp", "/v1/runs", "/healthz", "/nowhere"):
        response = ask(guarded, "GET", path, Host=host)
        assert (response.status_code, response.json()["code"]) == (421, "host_unknown")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "flow.example.com", "Flow.Example.com:443"]
)
def test_a_host_of_ours_is_answered(guarded: ServerProcess, host: str) -> None:
    assert ask(guarded, "GET", "/healthz", Host=host).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["null", "https://evil.example", "http://app.example.com", "https://app.example.com.evil.example", "http://[",
     "https://app.example.com/", "*", "file://", "http://localhost:1"],
)  # fmt: skip
def test_a_page_of_another_origin_may_call_nothing(guarded: ServerProcess, origin: str) -> None:
    for method, path in (
        ("POST", "/awp"),
        ("POST", "/v1/runs"),
        ("PUT", "/x"),
        ("DELETE", "/x"),
        ("GET", "/v1/runs"),
        ("OPTIONS", "/x"),
    ):
        response = ask(guarded, method, path, Origin=origin, Access_Control_Request_Method="POST")
        assert (response.status_code, response.json()["code"]) == (403, "origin_refused")
        assert "access-control-allow-origin" not in response.headers


def test_an_allowed_origin_and_our_own_are_answered_with_cors(guarded: ServerProcess) -> None:
    own = guarded.url
    for origin in ("https://app.example.com", own):
        preflight = ask(guarded, "OPTIONS", Origin=origin, Access_Control_Request_Method="POST",
                        Access_Control_Request_Headers="content-type")  # fmt: skip
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-headers"] == "content-type"
        assert {"PUT", "DELETE"} <= set(preflight.headers["access-control-allow-methods"].split(", "))
        response = expect(ask(guarded, Origin=origin), 422)
        assert response.headers["access-control-allow-origin"] == origin
        assert response.headers["vary"] == "Origin"
        shown = response.headers["access-control-expose-headers"].split(", ")
        assert "Date" in shown, "a question in somebody else's page is due by the server's clock, too"
    assert "access-control-allow-origin" not in ask(guarded).headers


def test_a_cross_site_request_is_refused_but_a_link_is_followed(guarded: ServerProcess) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(guarded, Sec_Fetch_Site=site).status_code == 403
        assert ask(guarded, "GET", "/v1/runs", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors").status_code == 403
        assert ask(guarded, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate").status_code == 403
        assert ask(guarded, "GET", "/healthz", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate").status_code == 200
    for site in ("same-origin", "none"):
        assert ask(guarded, "GET", "/healthz", Sec_Fetch_Site=site).status_code == 200


def test_refusals_of_values_are_sentences_of_ours(server: ServerProcess) -> None:
    """Not those of the library that reads them: `Value error, ...`, `String should match pattern ...`."""
    with httpx2.Client(base_url=server.url) as http:
        turned = http.post("/v1/files", params={"name": "\u202egpj.exe"}, content=b"x").json()
        person = http.post("/v1/inbox/delegations", json={"to": "bob", "until": "2099-01-01T00:00:00Z"}).json()
    assert turned["findings"][0]["message"] == "expected no characters that turn a text around, found U+202E"
    assert person["detail"] == "/to: expected user: and a name without spaces, such as user:ann"
