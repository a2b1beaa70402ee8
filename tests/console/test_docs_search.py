"""The search of the documentation, in a browser: what people type finds its answer among the first three results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs import site
from tests.clients import rig
from tests.console.browser import Page

# What was typed, and the pages of which one answers it.
SEARCHES = {
    "secrets": ("questions", "security"),
    "docker": ("questions", "deploy"),
    "kubernetes": ("questions", "deploy"),
    "backup": ("questions", "backups"),
    "tenants": ("questions", "security"),
    "undo": ("questions", "language"),
    "upgrade": ("questions", "upgrades"),
    "first admin key": ("questions", "cli"),
    "prometheus": ("questions", "operations"),
    "slack": ("questions", "notifications"),
    "two approvers": ("questions", "language"),
    "webhook": ("questions", "language", "security"),
    "test a deadline": ("questions", "testing"),
    "publish a workflow": ("questions", "cli"),
    "send an email": ("questions", "notifications"),
    "single sign-on": ("questions", "security"),
    "why is a run stuck": ("questions", "operations"),
    "loop over a list": ("questions", "language"),
    "call a REST API": ("questions", "language"),
    "retry a failed run": ("questions", "cli"),
    "delete old runs": ("questions", "retention"),
    "upload a file in a form": ("questions", "language"),
    "change arguments before approving": ("questions", "language"),
    "sign-in link": ("questions", "cli"),
    "deadline passes": ("questions", "language"),
    "cron": ("questions", "language"),
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test prints what it finds."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, built from the checkout."""
    staged = tmp_path_factory.mktemp("staged")
    try:
        site.stage(staged)
        html = site.build(staged)
    except SystemExit as error:
        pytest.skip(f"The site can't be built here: {error}")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_answer_to_what_people_type_is_among_the_first_three(driver: rig.Driver, address: str) -> None:
    page = Page(driver, address, None, {"viewport": {"width": 1280, "height": 900}})
    try:
        found = {typed: _search(page, typed) for typed in SEARCHES}
    finally:
        page.close()
    assert {typed: found[typed][:3] for typed, wanted in SEARCHES.items() if not _is_among(found[typed], wanted)} == {}


def _is_among(found: list[str], wanted: tuple[str, ...]) -> bool:
    return any(Path(each.partition("#")[0]).stem in wanted for each in found[:3])


RESULTS = """[...document.querySelectorAll('*')].filter((each) => each.shadowRoot)
  .flatMap((each) => [...each.shadowRoot.querySelectorAll('a[href]')]).map((each) => each.pathname + each.hash)"""


def _search(page: Page, typed: str) -> list[str]:
    """The addresses of the results, the best first."""
    page.goto("/index.html")
    page.locator(".md-search__button").first().click()
    page.locator("dialog input").first().fill(typed)
    page.until(f"{RESULTS}.length > 0")
    return list(page.evaluate(RESULTS))
