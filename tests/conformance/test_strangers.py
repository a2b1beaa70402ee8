"""Addresses where nobody speaks the protocols, or nobody at all: the report says what is there, and does not take long.

Most people meet the kit with a wrong address first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hai_flow_conformance import Plan, Result, Unreachable, conform
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.conformance.faulty import endpoint
from tests.conformance.violators import BEGUN, ERROR, sse

PAGE = b"<!doctype html><title>Hello</title>"
STREAM = "text/event-stream"


class Strangers(ThreadingHTTPServer):
    daemon_threads = True
    posts = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.over = threading.Event()


class Stranger(BaseHTTPRequestHandler):
    """Answers by its path."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait for the reader to acknowledge the head

    @property
    def strangers(self) -> Strangers:
        assert isinstance(self.server, Strangers)
        return self.server

    def do_POST(self) -> None:
        self.strangers.posts += 1
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        match self.path.strip("/").partition("/"):
            case "status", _, status:
                self._send(int(status), "text/plain", b"no")
            case "page", _, _:
                self._send(200, "text/html; charset=utf-8", PAGE)
            case "json", _, _:
                self._send(200, "application/json", b'{"events":[]}')
            case "login", _, _:
                self._send(302, "text/plain", b"", location="/page")
            case "loop", _, _:
                self._send(302, "text/plain", b"", location="/loop")
            case "nothing", _, _:
                self._send(200, STREAM, b"")
            case "noise", _, _:
                self._send(200, STREAM, b"hello\n\ndata: \xff\n\ndata: {}\n\n")
            case "error", _, _:
                self._send(200, STREAM, sse(BEGUN, ERROR | {"message": "no key"}))
            case "silence" | "close" as what, _, _:
                self.strangers.over.wait(20 if what == "silence" else 0)
                self.close_connection = True
            case "half", _, _:
                self._send(200, STREAM, b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n', length=999)
                self.strangers.over.wait(20)
                self.close_connection = True

    def _send(self, status: int, kind: str, body: bytes, *, location: str = "", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def _strangers() -> Iterator[Strangers]:
    server = Strangers(("127.0.0.1", 0), Stranger)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture
def strangers() -> Iterator[Strangers]:
    with _strangers() as server:
        yield server


def address(server: Strangers, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


@pytest.mark.parametrize(
    ("path", "stopped", "failed"),
    [
        ("status/404", "no stream but 404 text/plain. Is it what clients post to", {"chat.status"}),
        ("status/405", "no stream but 405 text/plain. Is it what clients post to", {"chat.status"}),
        ("status/401", "Give what it asks for, as --header", {"chat.status"}),
        ("status/422", "It may lack something: --workflow", {"chat.status"}),
        ("status/500", "Its log should say why", {"chat.status", "status.no-5xx"}),
        ("status/204", "no stream but 204", {"chat.status"}),
        ("page", "no stream but 200 text/html; charset=utf-8", {"chat.content-type", "stream.content-type"}),
        ("json", "no stream but 200 application/json", {"chat.content-type", "stream.content-type"}),
        ("login", "no stream but 200 text/html", {"chat.content-type", "stream.content-type"}),
        ("loop", "Exceeded maximum allowed redirects. Its log should say why", {"chat.status"}),
        ("nothing", "Its stream held no event", {"chat.answers", "stream.terminal"}),
        ("noise", "Its stream held no event", {"chat.answers", "stream.terminal", "stream.one-object"}),
        ("error", "Its turn failed: no key. Its log should say why", {"chat.ids"}),
        ("silence", "nothing came for 0.5 s. If it only needs longer, give --timeout", {"chat.status"}),
        ("close", "Server disconnected without sending a response", {"chat.status"}),
        (
            "half",
            "nothing came for 0.5 s. If it only needs longer",
            {"chat.answers", "chat.ids", "chat.version", "stream.terminal"},
        ),
    ],
)
def test_a_stranger_is_asked_once_and_told_apart(
    strangers: Strangers, path: str, stopped: str, failed: set[str]
) -> None:
    report = conform(Plan(address(strangers, path), timeout=0.5))
    assert stopped in report.stopped
    assert {each.check.id for each in report.verdicts if each.result is Result.FAIL} == failed
    assert not report.conforms
    assert strangers.posts <= 1
    assert report.to_json()["stopped"] == report.stopped


def test_it_is_said_where_a_redirection_led(strangers: Strangers) -> None:
    told = {each.check.id: each for each in conform(Plan(address(strangers, "login"))).verdicts}
    assert told["chat.content-type"].found.endswith(f"(from {address(strangers, 'page')})")


def test_what_is_printed_of_a_stranger_is_short(strangers: Strangers) -> None:
    url = address(strangers, "status/404")
    result = CliRunner().invoke(app, ["conformance", url])
    lines = result.output.splitlines()
    assert (result.exit_code, lines[0], len(lines) < 15) == (1, url, True)
    assert lines[-3] == (
        "It answered no stream but 404 text/plain. Is it what clients post to, such as .../awp or .../ag-ui? "
        "Nothing else was tried."
    )
    assert "skip" not in "".join(lines[:-1])


def test_an_endpoint_that_dies_on_the_way_is_reported_all_the_same() -> None:
    with endpoint("what is malformed kills it") as url:
        report = conform(Plan(url, tools={"confirmAction": True}, timeout=10))
    told = {each.check.id: each for each in report.verdicts}
    assert told["answer.continues"].result is Result.PASS
    assert told["malformed.list"].result is Result.FAIL
    assert "it is not there any more" in told["malformed.message"].found


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9/x", "nothing answers at http://127.0.0.1:9/x"),
        ("http://nowhere.invalid/", "nothing answers at http://nowhere.invalid/"),
        ("ftp://127.0.0.1/", "ftp://127.0.0.1/ is no http:// or https:// address"),
        ("here", "here is no http:// or https:// address"),
        ("", " is no http:// or https:// address"),
    ],
)
def test_an_address_where_nobody_is_is_told(url: str, said: str) -> None:
    with pytest.raises(Unreachable) as told:
        conform(Plan(url, timeout=5))
    assert str(told.value).startswith(said)


@pytest.mark.parametrize("header", ["X: é", "X y: e", "X: a\nb"])
def test_a_header_that_cannot_be_sent_is_refused(header: str) -> None:
    result = CliRunner().invoke(app, ["conformance", "http://127.0.0.1:9/", "--header", header])
    assert result.exit_code == 2
    assert "--header: expected a name and a value of plain ASCII" in " ".join(result.output.split())
