"""Pictures of the pages, for docs/console.md: written there when TEST_CONSOLE_PICTURES names the folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE
from tests.console.conftest import NewPage, Picture
from tests.console.test_deciding import acting
from tests.console.test_runs import approved, broken, ended

Asked = Callable[..., dict[str, Any]]
WIDE = {"viewport": {"width": 1200, "height": 760}}
READING = "[role=tabpanel] >> text=events read"
TALL = {"viewport": {"width": 1200, "height": 900}}


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
    answer = {"decision": "approve", "reason": "Checked against the invoice."}
    headers = {"HAI-Act-As": "user:bob"}
    http.post(f"/v1/pendings/{found['payout']['id']}/decide", json=answer, headers=headers).raise_for_status()
    return found


def test_pictures_of_deciding(page: NewPage, shelf: dict[str, dict[str, Any]], picture: Picture) -> None:
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
    dark.locator(".field").first().there()
    picture(dark, "chinese")
    phone = page(**PHONE).goto(f"/console/decide/{shelf['refund']['id']}")
    phone.role("button", "Approve").there()
    picture(phone, "phone")
    settings = page(**WIDE).goto("/console/settings")
    settings.role("heading", "Settings").there()
    picture(settings, "settings")


def test_pictures_of_workflows_and_of_what_is_around_them(
    page: NewPage, asked: Asked, http: httpx2.Client, picture: Picture
) -> None:
    wide = page(**WIDE).goto("/console/workflows")
    wide.role("link", name={"/elease/": ""}).first().there()
    picture(wide, "workflows")
    wide.goto("/console/workflows/release?step=canary")
    wide.locator("svg [data-path]").first().there()
    picture(wide, "workflow")
    wide.goto("/console/workflows/frontend/edit")
    wide.words("No errors.").there()
    text = wide.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "  - sya: done\n")
    wide.locator(".findings button").first().there()
    picture(wide, "editor")
    wide.goto("/console/workflows/frontend?pane=chat")
    wide.label("What is painted").fill("fence")
    wide.role("button", "Begin").click()
    wide.words("Frontend tool call: pick").there()
    picture(wide, "chat")
    dark = page(colorScheme="dark", **WIDE).goto("/console/schedules")
    dark.locator("li.card details summary").first().click()
    dark.locator("ol.times li").first().there()
    picture(dark, "schedules")
    pending = asked("refund")
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}).raise_for_status()
    wide.goto("/console/audit")
    wide.locator(".records li").first().there()
    wide.role("button", "Verify the chain").click()
    wide.words("Verified").there()
    picture(wide, "audit")
    thread = http.get(f"/v1/runs/{pending['run_id']}").json()["thread_id"]
    said = [each for each in http.get(f"/v1/threads/{thread}/messages").json()["items"] if each["role"] == "assistant"]
    opinion = {"rating": "down", "comment": "It does not say why.", "labels": ["unclear"]}
    http.put(f"/v1/threads/{thread}/feedback/messages/{said[0]['id']}", json=opinion).raise_for_status()
    wide.goto(f"/console/feedback?thread={thread}")
    wide.words("It does not say why.").there()
    picture(wide, "feedback")
    phone = page(**PHONE).goto("/console/workflows/frontend/edit")
    phone.locator(".tag.good").there()
    phone.locator(".cm-content").there()
    picture(phone, "editor-phone")


def test_pictures_of_runs(
    page: NewPage, asked: Asked, http: httpx2.Client, shelf: dict[str, dict[str, Any]], picture: Picture
) -> None:
    pending = asked("release")
    shown = page(**WIDE).goto("/console/runs")
    shown.words("release").there()
    picture(shown, "runs")
    run = approved(http, pending["run_id"])
    shown.goto(f"/console/runs/{run['id']}?at={run['seq'] // 2}")
    shown.words("You're viewing the past.").there()
    shown.locator(".talk").there()
    shown.locator(READING).gone()
    picture(shown, "moment")
    for tab in ("waterfall", "state", "events"):
        shown.goto(f"/console/runs/{run['id']}?tab={tab}")
        shown.locator("[role=tabpanel] h2, [role=tabpanel] [role=table], .line.event").first().there()
        shown.locator(READING).gone()
        picture(shown, tab)


def test_pictures_of_what_runs_have_done(page: NewPage, http: httpx2.Client, asked: Asked, picture: Picture) -> None:
    run, failed = approved(http, asked("release")["run_id"]), broken(http)
    kinds = ended(http, http.post("/v1/runs", json={"workflow": "kinds"}).raise_for_status().json()["id"])
    shown = page(**TALL)
    shown.goto(f"/console/runs/{run['id']}?tab=graph&step=approvals%2Fsecurity%2Fsecurity&at={run['seq'] // 2}")
    shown.locator(".step .source .meant").first().there()
    picture(shown, "graph")
    shown.goto(f"/console/runs/{kinds['id']}?tab=models")
    shown.role("heading", "Model calls").there()
    shown.locator("[role=tabpanel] td").first().there()
    picture(shown, "models")
    shown.goto("/console/overview")
    shown.until("document.querySelector('.chart path') !== null")  # after the second look the lines begin
    picture(shown, "overview")
    shown.goto(f"/console/runs/{failed['id']}?step=check")
    shown.role("button", "Rerun from here").click()
    dialog = shown.role("dialog")
    dialog.role("button", "Change the input").click()
    dialog.locator("textarea").first().fill('{\n  "amount": 50\n}')
    dialog.role("button", "See what it would do").click()
    dialog.role("heading", "What would happen").there()
    picture(shown, "fork")
    dialog.role("button", "Fork").click()
    shown.words("50 is little enough.").there()
    fork = http.get("/v1/runs", params={"thread_id": failed["thread_id"]}).json()["items"][0]
    shown.goto(f"/console/runs/{failed['id']}/compare?with={fork['id']}")
    shown.locator("ins").first().there()
    picture(shown, "compare")
