"""Watching a run when things are not as they should be: hostile texts, a second tab, a lost connection, a server that
restarts, a session that ends; and in another language, dark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.clients import rig
from tests.console.browser import Page
from tests.console.conftest import PATIENCE, NewPage, pending_of
from tests.console.test_runs import TABS, approve, broken, moment
from tests.console.test_sessions import link, signed_in
from tests.support.identities import KEYS
from tests.support.server import ServerProcess, serving

Asked = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "given",
    [
        {"<img src=x onerror=alert(1)>": "<script>alert(1)</script>", "__proto__": "</svg><style>*{color:red}</style>"},
        "abc\u202egpj.exe",
        "w" * 200_000,
        [{"n": n} for n in range(10_000)],
        [[[[[[[[[["deep"]]]]]]]]]],
    ],
    ids=["markup", "bidi", "one-word", "many", "deep"],
)
def test_hostile_values_of_a_run_are_text_and_bounded_in_every_view(page: NewPage, asked: Asked, given: Any) -> None:
    pending = asked("state", given=given)
    shown = page().goto(f"/console/runs/{pending['run_id']}?step=keep")
    shown.locator(".step h2").there()
    for tab in TABS:
        shown.locator(f"[role=tab]:nth-child({TABS.index(tab) + 1})").click()
        shown.until(f"document.querySelectorAll('[role=tab]')[{TABS.index(tab)}].ariaSelected === 'true'")
        assert shown.evaluate("document.querySelectorAll('#root img, #root script, #root style').length") == 0, tab
        assert shown.evaluate("document.body.innerText.length") < 60_000, tab
        assert shown.evaluate("document.querySelectorAll('*').length") < 6_000, tab
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
    shown.locator(".line.event >> text=state_changed").first().click()
    shown.until("document.querySelector('.split .card h2')?.innerText.includes('state_changed')")
    assert shown.evaluate("document.body.innerText.length") < 80_000
    shown.goto(f"/console/runs/{pending['run_id']}/compare?from=1")
    shown.until("document.querySelector('[data-compared]') !== null")
    assert shown.evaluate("document.body.innerText.length") < 80_000
    assert shown.evaluate("document.querySelectorAll('#root img, #root script, #root style').length") == 0


def test_a_moment_and_a_step_survive_a_reload_and_open_in_a_second_tab(page: NewPage, asked: Asked) -> None:
    pending = asked("release")
    first = page().goto(f"/console/runs/{pending['run_id']}?tab=state&at=5&step=approvals")
    reading = "[role=tabpanel] > p[role=status]"
    moment(first, 5)
    first.locator(reading).gone()
    told = first.locator("[role=tabpanel]").text()
    first.play(["reload"])
    moment(first, 5)
    first.locator(reading).gone()
    assert first.locator("[role=tabpanel]").text() == told
    second = page(beside=first).goto(first.evaluate("location.pathname + location.search"))
    moment(second, 5)
    second.locator(reading).gone()
    assert second.locator("[role=tabpanel]").text() == told
    second.role("complementary", "Step approvals").there()


def test_a_run_page_stays_while_offline_and_goes_on_when_back(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="L-1", amount=73)
    shown = page().goto(f"/console/runs/{pending['run_id']}")
    shown.words("Order L-1: 73 are to be paid back.").there()
    shown.words("Live").there()
    shown.offline(True)
    approve(http, pending)
    shown.words("Order L-1: 73 are to be paid back.").there()
    shown.offline(False)
    shown.words("Paid 73 back").there()
    shown.words("finished").there()


@pytest.mark.timeout(240)  # two servers have to start
def test_a_run_is_watched_through_a_restart_of_the_server(driver: rig.Driver, dsn: str) -> None:
    with serving(dsn) as first:
        port = first.url.rpartition(":")[2]
        with httpx2.Client(base_url=first.url, timeout=PATIENCE) as http:
            run = http.post("/v1/runs", json={"workflow": "refund"}).raise_for_status().json()
            pending = pending_of(http, run["id"])
        shown = Page(driver, first.url, None, {"locale": "en-GB"}).goto(f"/console/runs/{run['id']}")
        shown.words("Live").there()
        first.kill()
        shown.words("Connection lost.").there()
    with serving(dsn, environment={"HAI_FLOW_PORT": port}) as second:
        shown.words("Live").there()
        with httpx2.Client(base_url=second.url, timeout=PATIENCE) as http:
            approve(http, pending)
        shown.words("finished").there()
        assert shown.complaints() == []
        shown.close()


@pytest.mark.timeout(240)
def test_a_reader_who_signs_in_again_is_at_the_same_moment_of_the_run(driver: rig.Driver, dsn: str) -> None:
    with serving(dsn, environment=KEYS) as server:
        shown, run_id = at_a_moment(driver, server, dsn)
        beside = Page(driver, server.url, shown, {}).goto("/console/settings")
        beside.role("button", "Sign out").click()
        beside.role("heading", "Sign in").there()
        shown.play(["bringToFront"])
        shown.role("heading", "Sign in").there()  # by itself: the streams of who has signed out end
        again = Page(driver, server.url, shown, {}).goto(link(dsn))
        again.role("button", "Sign in").click()
        again.role("heading", "Inbox").there()
        shown.play(["bringToFront"])
        shown.role("button", "Continue").click()
        moment(shown, 2)
        assert run_id in shown.evaluate("location.pathname")
        assert shown.complaints() == []
        shown.close()


def at_a_moment(driver: rig.Driver, server: ServerProcess, dsn: str) -> tuple[Page, str]:
    """Somebody who has signed in and looks at an earlier moment of a run."""
    shown = signed_in(driver, server, dsn)
    shown.role("button", "Start the demo").click()
    shown.role("link", name={"/Pay 180 back/": ""}).there()
    row = shown.goto("/console/runs").locator("a.line.run").first()
    run_id = str(row.play("getAttribute", "href")).rpartition("/")[2]
    shown.goto(f"/console/runs/{run_id}?tab=state&at=2")
    moment(shown, 2)
    return shown, run_id


def test_runs_are_shown_in_chinese_and_dark(page: NewPage, http: httpx2.Client, asked: Asked) -> None:
    run, pending = broken(http), asked("release")
    shown = page(locale="zh-CN", colorScheme="dark").goto("/console/runs")
    shown.role("heading", "运行").there()
    shown.locator(f"a[href='/console/runs/{run['id']}']").there()
    assert shown.axe() == []
    for tab in TABS:
        shown.goto(f"/console/runs/{pending['run_id']}?tab={tab}&step=approvals&at=12")
        shown.role("tab", selected=True).there()
        shown.locator(".step h2").there()
        assert shown.axe() == [], tab
    shown.goto(f"/console/runs/{run['id']}?step=check")
    shown.role("button", "从此处重新执行").click()
    shown.role("dialog").role("button", "查看会发生什么").click()
    shown.role("heading", "将会发生").there()
    assert shown.axe() == []
