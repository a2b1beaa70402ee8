"""The pages of frontends that we did not write, each in a tab of its own."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.browsers.conftest import Browser
from tests.support.hai_client import unique
from tests.support.server import ServerProcess


class Page:
    """One tab, on one thread."""

    def __init__(self, browser: Browser, frontend: str, **query: str) -> None:
        self._driver = browser.driver
        self._name = unique("page")
        self.posts: list[dict[str, Any]] = []
        self._driver.ask("open", page=self._name, url=f"{browser.origin}/{frontend}?{urlencode(query)}")

    def shows(self, text: str, *, complaining_of: str | None = None) -> str:
        """Wait until `text` is there, and give all that the page says. It must have had nothing to complain of, else
        of nothing but that."""
        reply = self._driver.ask("shows", page=self._name, text=text)
        self.posts = reply["posts"]
        complaints = reply["complaints"]
        assert reply["found"], f"expected {text!r}, found {reply['text']!r}; {complaints}; {self.posts}"
        assert [each for each in complaints if complaining_of is None or complaining_of not in each] == []
        return reply["text"]

    def refusal(self) -> tuple[int, dict[str, Any]]:
        """The status and the problem of the first POST that the server refused, as soon as it did."""
        refused = self._driver.ask("refusal", page=self._name)
        return refused["status"], json.loads(refused["problem"])

    @property
    def refused(self) -> int:
        """How many POSTs had been refused when the page was last looked at."""
        return sum("problem" in post for post in self.posts)

    def type(self, text: str) -> None:
        """Send a message."""
        self._driver.ask("type", page=self._name, text=text)

    def click(self, button: str) -> None:
        self._driver.ask("click", page=self._name, button=button)

    def close(self) -> None:
        self._driver.ask("close", page=self._name)


def assistant_ui(
    browser: Browser, server: ServerProcess, workflow: str, thread: str, tools: str = "", typing: str = ""
) -> Page:
    url = f"{server.url}/workflows/{workflow}/ag-ui"
    return Page(browser, "assistant_ui", url=url, thread=thread, tools=tools, typing=typing)


def copilotkit(browser: Browser, server: ServerProcess, workflow: str, thread: str, tools: str = "") -> Page:
    return Page(browser, "copilotkit", url=f"{server.url}/cpk", agent=workflow, thread=thread, tools=tools)


frontends = pytest.mark.parametrize("frontend", [assistant_ui, copilotkit])
