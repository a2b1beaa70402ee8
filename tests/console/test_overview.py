"""What an operator sees first: how the deployment stands, and what a run does now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE
from tests.console.conftest import NewPage

Asked = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("options", "title"),
    [({}, "Overview"), ({**PHONE, "locale": "zh-CN", "colorScheme": "dark"}, "概览")],
    ids=["desktop", "phone, Chinese, dark"],
)
def test_the_overview_shows_the_queue_the_workers_and_the_questions(
    page: NewPage, asked: Asked, options: dict[str, Any], title: str
) -> None:
    asked("refund", order="V-1", amount=88)
    shown = page(**options).goto("/console/overview")
    shown.role("heading", title).there()
    shown.until("document.querySelectorAll('.box').length === 8")
    numbers = shown.evaluate(
        "[...document.querySelectorAll('.box .big')].slice(0, 4).map((e) => parseInt(e.innerText))"
    )
    assert numbers[1] >= 1, "workers alive"
    assert numbers[2] >= 1, "open questions"
    assert numbers[3] >= 1, "active runs"
    assert shown.evaluate("document.querySelectorAll('.chart rect').length") == 48
    setup = shown.role("region", {"/^(Set-up|配置检查)$/": ""})
    assert "hai-flow doctor" in setup.there().text()
    assert setup.locator("li").count() >= 5
    assert ("未启用身份验证。" if title == "概览" else "nobody is asked who they are.") in setup.text()
    assert title != "概览" or "nobody is asked" not in setup.text()
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.axe() == []


def test_a_runs_page_says_first_what_it_waits_for_and_leads_there(page: NewPage, asked: Asked) -> None:
    pending = asked("refund", order="V-2", amount=89)
    shown = page().goto(f"/console/runs/{pending['run_id']}")
    shown.words("What is happening now").there()
    now = shown.locator("section.now")
    now.role("link", "Open the question").there()
    assert "Waiting for people" in now.text()
    assert shown.axe() == []
    now.role("link", "Open the question").click()
    shown.role("heading", "Pay 89 back for order V-2?").there()


def test_a_freeze_is_told_on_every_page_as_a_list(page: NewPage, http: httpx2.Client) -> None:
    freeze = {"mode": "no_agents", "scope": "workflow", "name": "refund", "reason": "a drill"}
    made = http.post("/v1/freezes", json=freeze).raise_for_status().json()
    try:
        shown = page().goto("/console/runs")
        shown.locator(".frozen li").there()
        assert "a drill" in shown.locator(".frozen li").text()
        assert shown.axe() == []
    finally:
        http.post(f"/v1/freezes/{made['id']}/thaw").raise_for_status()
