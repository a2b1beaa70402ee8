"""What all fake platforms have in common: a server, its faults, the cards that it shows, and calls to our server."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2

SECONDS_MAX = 3.0  # in which platforms want an answer


class Call(NamedTuple):
    """A request that the platform makes of us."""

    method: str
    headers: Mapping[str, str]
    content: bytes
    params: Mapping[str, str] = {}


@dataclass
class Shown:
    """A card as the platform shows it. `text` is all that can be read; `buttons`: the ids, by label; `raw`: as it was
    sent. `versions`: how often it was sent or changed."""

    id: str
    place: str
    text: str
    buttons: dict[str, str]
    raw: Any
    versions: int = 1


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str] = {}


@dataclass
class Wrong:
    """How a call of the platform differs from a good one."""

    sign: bool = True  # with the right secret
    skew: float = 0.0  # seconds by which its time is wrong
    tenant: str | None = None
    user_team: str | None = None  # of Slack: the workspace that the person is of
    app: str | None = None
    message: str | None = None
    tamper: bool = False  # the body is changed behind the signature
    unsigned: bool = False


class Platform(ABC):
    """A platform with one app, in one tenant."""

    kind: ClassVar[str]
    ann: ClassVar[str] = "U0ANN"
    bob: ClassVar[str] = "U0BOB"
    eve: ClassVar[str] = "U0EVE"
    req: ClassVar[str] = "U0REQ"
    room: ClassVar[str] = "C0ROOM"
    takes_rooms: ClassVar[bool] = True
    takes_dialogs: ClassVar[bool] = False
    fields_max: ClassVar[int] = 100  # of a dialog
    secrets: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self.url = ""
        self.cards: dict[str, Shown] = {}
        self.whispers: list[tuple[str, str]] = []  # what the app told one account alone, beside the answers
        self.faults: list[Any] = []  # to the next requests: a status, `lost` (done, no answer), or a number of seconds
        self.refused: list[str] = []  # what the platform would have refused
        self.requests: list[str] = []
        self.lock = threading.Lock()
        self.is_down = False
        self.took: list[float] = []  # how long our answers to its calls took

    # --- its API

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Those of a channel of this app."""

    @abstractmethod
    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """What its API says."""

    # --- its calls

    @abstractmethod
    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        """Somebody presses a button."""

    @abstractmethod
    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        """Somebody writes to the app."""

    @abstractmethod
    def read_answer(self, response: httpx2.Response) -> str:
        """What the person who pressed is told by the answer."""

    def add_field(self, account: str, name: str, label: str) -> None:
        """The dialog that is open gets a field that it was not sent with."""
        raise NotImplementedError

    def submit(self, account: str, values: Mapping[str, Any]) -> Call:
        """Somebody sends the dialog that is open."""
        raise NotImplementedError

    # --- for tests

    def show(self, shown: Shown) -> None:
        with self.lock:
            earlier = self.cards.get(shown.id)
            shown.versions = 1 if earlier is None else earlier.versions + 1
            self.cards[shown.id] = shown

    def of(self, text: str) -> list[Shown]:
        """The cards in which the text can be read."""
        with self.lock:
            return [each for each in self.cards.values() if text in each.text]

    def post(self, http: httpx2.Client, call: Call, channel: str = "chat") -> httpx2.Response:
        """Make the call of our server, and demand an answer in time."""
        began = time.monotonic()
        with self.lock:
            self.whispers.clear()
        response = http.request(
            call.method, f"/chat/{channel}", content=call.content, headers=dict(call.headers), params=dict(call.params)
        )
        self.took.append(time.monotonic() - began)
        return response

    def last_told(self, response: httpx2.Response, account: str) -> str:
        """What the person is told: by the answer, or by a message to them alone."""
        if text := self.read_answer(response):
            return text
        with self.lock:
            return next((text for who, text in reversed(self.whispers) if who == account), "")

    @contextmanager
    def serving(self) -> Iterator[Platform]:
        """The platform on a port of its own."""
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _do(self) -> None:
                parts = urlsplit(self.path)
                query = {name: texts[0] for name, texts in parse_qs(parts.query).items()}
                headers = {name.lower(): text for name, text in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                with platform.lock:
                    platform.requests.append(f"{self.command} {parts.path}")
                    fault = 503 if platform.is_down else platform.faults.pop(0) if platform.faults else None
                if isinstance(fault, float):
                    time.sleep(fault)
                if isinstance(fault, int):
                    self._send(Answer(fault, {"fault": fault}, {"retry-after": "1"} if fault == 429 else {}))
                    return
                answer = platform.answer(self.command, parts.path, query, headers, body)
                if fault == "lost":
                    self.close_connection = True
                    self.connection.close()
                    return
                self._send(answer)

            def _send(self, answer: Answer) -> None:
                content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, text in {"content-type": "application/json", **answer.headers}.items():
                    self.send_header(name, text)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a connection that a fault has cut

        server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
