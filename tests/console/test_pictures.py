"""Pictures of the pages, for docs/console.md: written there when TEST_CONSOLE_PICTURES names the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE, Page
from tests.console.conftest import NewPage
from tests.console.test_deciding import acting
from tests.console.test_runs import approved

Asked = Callable[..., dict[str, Any]]
WIDE = {"viewport": {"width": 1200, "height": 760}}


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[Page, str], None]:
    folder = Path(os.environ.get("TEST_CONSOLE_PICTURES") or tmp_path).resolve()
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.screenshot(str(folder / f"{name}.png"))
        assert (folder / f"{name}.png").stat().st_size > 5_000

    return take


@pytest.fixture
def shelf(asked: Asked, http: httpx2.Client) -> dict[str, dict[str, Any]]:
    """A few questions, and nothing else that is open."""
    for each in http.get("/v1/inbox?limit=200").json()["items"]:
        http.post(f"/v1/runs/{each['run_id']}/terminate")
    found = {
        "payout": asked("payout", who="user:clerk", supplier="Müller GmbH", amount=1200),
        "refund": asked("refund", who="user:clara", order="A-1042", amount=180),
        "visit": asked("visit", who="user:frank"),
        "note": asked("note", title="Publish the minutes of Monday?"),
    }
    answer = {"decision": "approve", "reason": "Checked against the order."}
    headers = {"HAI-Act-As": "user:bob"}
    http.post(f"/v1/pendings/{found['payout']['id']}/decide", json=answer, headers=headers).raise_for_status()
    return found


def test_pictures_of_deciding(
    page: NewPage, shelf: dict[str, dict[str, Any]], picture: Callable[[Page, str], None]
) -> None:
    ann = acting(page, "user:ann", f"/console/inbox/{shelf['payout']['id']}", **WIDE)
    ann.locator(".seats li.for").there()
    picture(ann, "inbox")
    ann.press("e")
    ann.label("amount").fill("900")
    ann.role("button", "Approve").click()
    ann.role("dialog").there()
    picture(ann, "edit")
    dark = page(locale="zh-CN", colorScheme="dark", **WIDE).goto(f"/console/inbox/{shelf['visit']['id']}")
    dark.role("button", "提交").there()
    picture(dark, "chinese")
    phone = page(**PHONE).goto(f"/console/decide/{shelf['refund']['id']}")
    phone.role("button", "Approve").there()
    picture(phone, "phone")
    settings = page(**WIDE).goto("/console/settings")
    settings.role("heading", "Settings").there()
    picture(settings, "settings")


def test_pictures_of_runs(
    page: NewPage,
    asked: Asked,
    http: httpx2.Client,
    shelf: dict[str, dict[str, Any]],
    picture: Callable[[Page, str], None],
) -> None:
    pending = asked("release")
    shown = page(**WIDE).goto("/console/runs")
    shown.words("release").there()
    picture(shown, "runs")
    run = approved(http, pending["run_id"])
    shown.goto(f"/console/runs/{run['id']}?at={run['seq'] // 2}")
    shown.words("You look at an earlier moment.").there()
    shown.locator(".talk").there()
    picture(shown, "moment")
    for tab in ("waterfall", "state", "events"):
        shown.goto(f"/console/runs/{run['id']}?tab={tab}")
        shown.locator("[role=tabpanel] h2, [role=tabpanel] table, .line.event").first().there()
        picture(shown, tab)
