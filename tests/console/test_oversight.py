"""How approvals are decided, in the console: the figures, one's own, and a canary that is told when it is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE
from tests.console.conftest import NewPage, Picture, pending_of
from tests.support.hai_client import unique

Asked = Callable[..., dict[str, Any]]


def seed(http: httpx2.Client, asked: Asked) -> tuple[dict[str, Any], str]:
    """The open question of a canary, and why it has to be refused."""
    asked("payout", "user:cat", supplier=unique("supplier"))
    reason = unique("reason")
    body = {"workflow": "payout", "path": "pay", "reason": reason, "title": "Pay it?"}
    seeded = http.post("/v1/canaries", json={**body, "arguments": {"supplier": "A-1", "amount": 9}})
    return pending_of(http, seeded.raise_for_status().json()["run_id"]), reason


def test_a_canary_looks_real_until_it_is_decided_and_then_says_so(
    page: NewPage, asked: Asked, http: httpx2.Client, picture: Picture
) -> None:
    pending, reason = seed(http, asked)
    shown = page().goto(f"/console/decide/{pending['id']}")
    shown.role("heading", "Pay it?").there()
    shown.words("Pay a supplier").there()
    assert not shown.evaluate("document.body.innerText.includes('anary')")
    for who in ("user:ann", "user:bob"):
        path = f"/v1/pendings/{pending['id']}/decide"
        http.post(path, json={"decision": "approve"}, headers={"HAI-Act-As": who}).raise_for_status()
    shown.role("heading", "This was a canary").there()
    shown.words(reason).there()
    assert shown.axe() == []
    shown.goto("/console/oversight")
    shown.locator(f"li:has-text('{reason}')").locator(".tag.bad").there()
    shown.role("heading", "All decisions").there()
    shown.locator("tbody th:has-text('payout')").first().there()
    picture(shown, "oversight")
    assert shown.axe() == []


@pytest.mark.parametrize("by", ["workflow", "tool"])
def test_the_figures_are_free_of_barriers_on_a_phone_in_chinese(
    page: NewPage, asked: Asked, http: httpx2.Client, by: str
) -> None:
    seed(http, asked)
    shown = page(**PHONE, locale="zh-CN", colorScheme="dark").goto(f"/console/oversight?by={by}&since=7d")
    shown.role("heading", "全部决定").there()
    shown.locator("table").first().there()
    shown.until("!document.querySelector('main')?.innerText.includes('加载中')")
    assert shown.axe() == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
