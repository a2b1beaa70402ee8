"""A real browser for tests of the console: Playwright's own words, sent to a Node process that has it."""

from __future__ import annotations

import itertools
from typing import Any, Final

from tests.clients import rig

_NAMES = itertools.count(1)

PHONE: Final = {"viewport": {"width": 390, "height": 844}, "isMobile": True, "hasTouch": True}


class Locator:
    """Something on a page, found anew by each call: it waits for what is not there yet."""

    def __init__(self, page: Page, chain: list[list[Any]]) -> None:
        self._page, self._chain = page, chain

    def play(self, method: str, *args: Any) -> Any:
        """Call one of Playwright's methods."""
        return self._page.play(*self._chain, [method, *args])

    def locator(self, selector: str) -> Locator:
        return Locator(self._page, [*self._chain, ["locator", selector]])

    def role(self, role: str, name: str | dict[str, str] | None = None, **more: Any) -> Locator:
        return Locator(self._page, [*self._chain, _role(role, name, more)])

    def label(self, text: str) -> Locator:
        return Locator(self._page, [*self._chain, ["getByLabel", text]])

    def words(self, text: str) -> Locator:
        return Locator(self._page, [*self._chain, ["getByText", text], ["nth", 0]])

    def first(self) -> Locator:
        return Locator(self._page, [*self._chain, ["nth", 0]])

    def click(self) -> None:
        self.play("click")

    def fill(self, text: str) -> None:
        self.play("fill", text)

    def text(self) -> str:
        return str(self.play("innerText"))

    def value(self) -> str:
        return str(self.play("inputValue"))

    def count(self) -> int:
        return int(self.play("count"))

    def there(self) -> Locator:
        """Wait until it is visible."""
        self.play("waitFor", {"state": "visible"})
        return self

    def gone(self) -> None:
        """Wait until it is not visible."""
        self.play("waitFor", {"state": "hidden"})


def _role(role: str, name: str | dict[str, str] | None, more: dict[str, Any]) -> list[Any]:
    return ["getByRole", role, {**({} if name is None else {"name": name}), **more}]


class Page:
    """A page, in a browser context of its own."""

    def __init__(self, driver: rig.Driver, url: str, beside: Page | None, options: dict[str, Any]) -> None:
        self._driver, self.url = driver, url
        self.name = f"page-{next(_NAMES)}"
        driver.ask("open", page=self.name, beside=None if beside is None else beside.name, options=options)

    def play(self, *chain: list[Any]) -> Any:
        """The value of a chain of Playwright's calls."""
        return self._driver.ask("play", page=self.name, chain=list(chain))["value"]

    def goto(self, path: str) -> Page:
        self.play(["goto", self.url + path])
        return self

    def role(self, role: str, name: str | dict[str, str] | None = None, **more: Any) -> Locator:
        return Locator(self, [_role(role, name, more)])

    def label(self, text: str, **more: Any) -> Locator:
        return Locator(self, [["getByLabel", text, more]])

    def words(self, text: str) -> Locator:
        return Locator(self, [["getByText", text], ["nth", 0]])

    def locator(self, selector: str) -> Locator:
        return Locator(self, [["locator", selector]])

    def press(self, key: str) -> None:
        self.play(["locator", "body"], ["press", key])

    def evaluate(self, script: str) -> Any:
        return self.play(["evaluate", script])

    def until(self, script: str) -> None:
        """Wait until the script's value is true."""
        self._driver.ask("until", page=self.name, script=script)

    def screenshot(self, path: str) -> None:
        self.play(["screenshot", {"path": path, "animations": "disabled"}])

    def offline(self, offline: bool) -> None:
        self._driver.ask("offline", page=self.name, offline=offline)

    def protocol(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a method of the browser's own protocol, for what Playwright has no words for."""
        return dict(self._driver.ask("protocol", page=self.name, method=method, params=params)["value"])

    def traced(self) -> None:
        """Begin to watch how long its main thread works at a time."""
        self._driver.ask("traced", page=self.name)

    def longest(self) -> int:
        """How many milliseconds its main thread has worked at one task at most, without those in which it waited for
        other processes; what `traced` began ends."""
        return int(self._driver.ask("longest")["value"])

    def complaints(self) -> list[str]:
        """What the browser has complained of: errors of scripts, and violations of the policy."""
        return list(self._driver.ask("complaints", page=self.name)["value"])

    def axe(self) -> list[dict[str, Any]]:
        """What axe finds to be in the way of people who can't see, or use a mouse."""
        return list(self._driver.ask("axe", page=self.name)["value"])

    def close(self) -> None:
        self._driver.ask("close", page=self.name)
