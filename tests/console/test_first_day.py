"""Who has never seen the console is led to a first decision, on a server that has run nothing yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients import rig
from tests.console.browser import PHONE, Page
from tests.console.conftest import PATIENCE
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

NewPage = Callable[..., Page]


@pytest.fixture
def fresh(postgres_server: Server, built: Path) -> Iterator[ServerProcess]:
    """A server that nobody has used."""
    with postgres_server.database() as dsn, serving(dsn) as process:
        yield process


@pytest.fixture
def newcomer(driver: rig.Driver, fresh: ServerProcess) -> Iterator[NewPage]:
    pages: list[Page] = []

    def new(beside: Page | None = None, **options: Any) -> Page:
        pages.append(Page(driver, fresh.url, beside, {"locale": "en-GB", **options}))
        return pages[-1]

    yield new
    complaints = {each.name: found for each in pages if (found := each.complaints())}
    for each in pages:
        each.close()
    assert not complaints


def test_a_newcomer_is_led_from_nothing_to_a_decision_and_to_what_it_did(
    newcomer: NewPage, fresh: ServerProcess, picture: Callable[[Page, str], None]
) -> None:
    shown = newcomer(viewport={"width": 1200, "height": 760}).goto("/console/")
    shown.role("heading", "Your first decision").there()
    assert step_of(shown) == "Start the demo"
    assert shown.axe() == []
    shown.role("button", "Start the demo").click()
    shown.role("link", "Open the question").click()
    shown.words("Choose Approve or Reject").there()
    assert step_of(shown) == "Decide"
    shown.role("button", "Approve").there()
    picture(shown, "first-day")
    assert shown.evaluate("document.querySelector('.actions .main').getBoundingClientRect().bottom <= innerHeight")
    shown.play(["reload"])  # it knows how far one is
    shown.words("Choose Approve or Reject").there()
    shown.role("button", "Approve").click()
    shown.role("link", "Look at the run").there()
    assert shown.axe() == []
    shown.role("link", "Look at the run").click()
    shown.words("Paid 180").there()
    (run,) = httpx2.get(f"{fresh.url}/v1/runs", timeout=PATIENCE).json()["items"]
    assert (run["workflow"], run["status"]) == ("refund", "finished")
    shown.goto("/console/inbox")
    shown.words("Nothing is waiting for you.").there()
    assert shown.role("heading", "Your first decision").count() == 0


def test_a_visitor_of_the_waiting_demo_begins_at_its_question(
    newcomer: NewPage, fresh: ServerProcess, picture: Callable[[Page, str], None]
) -> None:
    httpx2.post(f"{fresh.url}/v1/runs", json={"workflow": "refund"}, timeout=PATIENCE).raise_for_status()
    shown = newcomer(locale="zh-CN", **PHONE).goto("/console/inbox")
    shown.role("link", "打开问题").there()
    picture(shown, "first-day-phone")
    assert step_of(shown) == "打开问题"
    assert shown.axe() == []
    shown.role("link", "打开问题").click()
    shown.words("请选择“批准”或“拒绝”").there()
    shown.role("button", "批准").click()
    shown.role("link", "查看运行过程").there()


def test_the_tour_is_dismissed_once_and_for_all(newcomer: NewPage, fresh: ServerProcess) -> None:
    shown = newcomer().goto("/console/inbox")
    shown.role("button", "Don't show this").click()
    shown.role("heading", "Your first decision").gone()
    shown.play(["reload"])
    shown.words("Nothing is waiting for you.").there()
    assert shown.role("heading", "Your first decision").count() == 0
    shown.role("button", "Start the demo").there()


def test_where_people_work_already_nobody_is_led(newcomer: NewPage, fresh: ServerProcess) -> None:
    httpx2.post(f"{fresh.url}/v1/runs", json={"workflow": "cleanup"}, timeout=PATIENCE).raise_for_status()
    shown = newcomer().goto("/console/inbox")
    shown.locator(".items li").first().there()
    assert shown.role("heading", "Your first decision").count() == 0
    asked = shown.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert [each for each in asked if "/v1/workflows" in each] == [], "the demo may not be there: a 404 on every page"


def step_of(shown: Page) -> str:
    shown.locator(".tour [aria-current=step] b").there()
    return shown.locator(".tour [aria-current=step] b").text()
