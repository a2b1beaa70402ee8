"""A real browser, driven without anything that has to be installed for it: over Chromium's own protocol.

For short tests of the normal suite, which are left out where there is no Chromium. Frontends that others wrote are in
tests/browsers, with Playwright."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from websockets.sync.client import ClientConnection, connect

SECONDS = 60.0  # for a machine that is busy with other tests


def found() -> str | None:
    """The program, if this machine has it."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Tab:
    """One page. `errors` are the errors in its console."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Load the address. Expressions that a test awaits afterwards must not be true of the page before."""
        answer = self._ask("Page.navigate", url=url)
        assert not answer.get("errorText"), answer

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; where that is a promise, the value that it resolves to."""
        answer = self._ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of an expression as soon as it counts as true. Fails with the text of the page."""
        end = time.monotonic() + SECONDS
        while not (
            value := self._ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")
        ):
            assert time.monotonic() < end, f"{expression} is not so: {self.text()}; {self.errors}"
            time.sleep(0.05)
        return value

    def text(self) -> str:
        return self.evaluate("document.body?.innerText ?? ''")

    def shows(self, text: str) -> str:
        """Wait until the page has this text. Returns all of its text."""
        return self.until(f"document.body?.innerText.includes({json.dumps(text)}) && document.body.innerText")

    def click(self, button: str) -> None:
        """Press the first button of this name that can be pressed."""
        name = json.dumps(button)
        pressed = (
            f"[...document.querySelectorAll('button')].find((it) => !it.disabled && it.innerText.trim() === {name})"
        )
        self.until(f"(() => {{ const it = {pressed}; it?.click(); return it !== undefined; }})()")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(self._socket.recv(timeout=SECONDS))
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]
            self._hear(told)

    def _hear(self, told: dict[str, Any]) -> None:
        match told.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(told["params"]["exceptionDetails"]["text"])
            case "Log.entryAdded" if told["params"]["entry"]["level"] == "error":
                self.errors.append(told["params"]["entry"]["text"])


class Chromium:
    """A browser with a profile of its own, of which nothing is left."""

    def __init__(self, address: str) -> None:
        self._address = address

    @contextlib.contextmanager
    def tab(self) -> Iterator[Tab]:
        made = httpx2.put(f"http://{self._address}/json/new?about:blank", timeout=SECONDS).json()
        with connect(made["webSocketDebuggerUrl"], max_size=None, open_timeout=SECONDS) as socket:
            yield Tab(socket)
            httpx2.get(f"http://{self._address}/json/close/{made['id']}", timeout=SECONDS)


@contextlib.contextmanager
def browsing(program: str) -> Iterator[Chromium]:
    """A browser that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="hai-flow-chromium-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]
        if os.getuid() == 0:
            options.append("--no-sandbox")
        process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = _port(process, Path(profile) / "DevToolsActivePort")
            yield Chromium(f"127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(30)


def _port(process: subprocess.Popen[bytes], file: Path) -> int:
    """Which port it has taken; it writes that down when it is ready."""
    end = time.monotonic() + SECONDS
    while not (file.exists() and "\n" in file.read_text()):
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < end, "the browser does not get ready"
        time.sleep(0.05)
    return int(file.read_text().split("\n")[0])
