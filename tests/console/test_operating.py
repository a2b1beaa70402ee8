"""Schedules, the audit, feedback and settings in the console."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from tests.console.browser import PHONE
from tests.console.conftest import NewPage
from tests.support.hai_client import unique

Asked = Callable[..., dict[str, Any]]


def test_a_schedule_says_when_it_fires_in_both_zones_and_is_paused(page: NewPage, http: httpx2.Client) -> None:
    shown = page().goto("/console/schedules")
    card = shown.locator("li.card:has(a[href$='/workflows/daily'])")
    card.locator("details summary").click()
    card.locator("ol.times li").first().there()
    assert "America/New_York" in card.locator("ol.times").first().text()
    assert shown.axe() == []
    card.role("button", "Pause").click()
    shown.role("dialog").role("button", "Pause").click()
    card.role("button", "Resume").click()
    card.role("button", "Pause").there()
    card.role("button", "Run now").click()
    shown.words("The run has started.").there()


def test_a_schedule_says_when_it_fires_in_chinese(page: NewPage) -> None:
    shown = page(locale="zh-CN").goto("/console/schedules")
    shown.words("周一至周五 09:00（America/New_York）").there()


def test_a_new_schedule_is_written_into_the_text_of_its_workflow(page: NewPage) -> None:
    shown = page().goto("/console/schedules")
    shown.locator("details.card summary").click()
    shown.label("Workflow", exact=True).play("selectOption", "refund")
    shown.role("button", "Add it to the text").click()
    shown.locator(".cm-content").there()
    assert 'cron: "0 9 * * 1-5", timezone: Europe/Berlin' in shown.locator(".cm-content").text()


def test_the_chain_of_the_audit_is_computed_anew_by_the_browser(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("refund")
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}).raise_for_status()
    shown = page().goto("/console/audit")
    shown.locator(".records li").first().there()
    shown.until("document.querySelectorAll('.records li').length > 1")
    assert shown.axe() == []
    shown.role("button", "Verify the chain").click()
    shown.words("Verified").there()


def test_the_audit_is_searched_by_what_the_address_says(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund")
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}).raise_for_status()
    run_id = pending["run_id"]
    act = http.get("/v1/audit", params={"run_id": run_id}).json()["items"][0]["act"]
    shown = page().goto(f"/console/audit?run_id={run_id}&act=nothing.such")
    shown.words("No matching records.").there()
    shown.label("Act").fill(act)
    shown.role("button", "Search").click()
    shown.locator(".records li").first().there()
    assert act in shown.locator(".records li").first().text()


def test_a_refusal_says_which_page_helps_and_names_no_host(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    run = asked("refund", order="S-1", amount=60)["run_id"]
    http.post(f"/v1/runs/{run}/terminate").raise_for_status()
    refused = http.post(f"/v1/runs/{run}/pause").json()
    assert (refused["code"], refused["see"]) == ("run_ended", f"/console/runs/{run}")
    assert "see" not in http.get("/v1/runs", params={"cursor": "none of ours"}).json()
    page().goto(refused["see"]).words("S-1").there()


def test_a_key_is_shown_once_and_revoked(page: NewPage, http: httpx2.Client) -> None:
    name = unique("ci")
    shown = page().goto("/console/settings")
    shown.locator("summary").first().there()
    shown.words("API keys").click()
    shown.label("Owner (user:… or service:…)").fill("service:ci")
    shown.label("Name", exact=True).fill(name)
    shown.role("button", "Create key").click()
    shown.words("Copy the key now").there()
    assert shown.axe() == []
    item = shown.locator(f"li:has-text('{name}')")
    item.role("button", "Revoke").click()
    shown.role("dialog").role("button", "Revoke").click()
    item.locator(".tag.bad").there()
    (key,) = [each for each in http.get("/v1/keys?limit=200").json()["items"] if each["name"] == name]
    assert key["revoked_at"] is not None


def test_somebody_decides_instead_of_who_is_away(page: NewPage, http: httpx2.Client) -> None:
    shown = page().goto("/console/settings")
    shown.words("While you are away").click()
    shown.label("Who (user:…)").fill("user:stand-in")
    shown.label("Until").fill("2090-01-01T00:00")
    shown.role("button", "Delegate").click()
    shown.locator("[role=alert]").there()  # for no longer than a year
    assert shown.label("Who (user:…)").value() == "user:stand-in"


def test_an_admin_ends_what_somebody_has_delegated(page: NewPage, http: httpx2.Client) -> None:
    name = unique("giver")
    body = {"to": "user:taker", "until": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    made = http.post("/v1/inbox/delegations", json=body, headers={"HAI-Act-As": f"user:{name}"})
    assert made.status_code == 201, made.text
    shown = page().goto("/console/settings")
    shown.words("Everyone's delegations").click()
    item = shown.locator(f"li:has-text('{name}')")
    item.role("button", "End").click()
    shown.role("dialog").role("button", "End").click()
    shown.until(f"!document.querySelector('main')?.innerText.includes('{name}')")
    assert shown.axe() == []
    assert made.json()["id"] not in [each["id"] for each in http.get("/v1/delegations?limit=200").json()["items"]]


def test_all_pages_are_free_of_barriers_on_a_phone_in_chinese_and_dark(page: NewPage) -> None:
    shown = page(**PHONE, colorScheme="dark")
    shown.goto("/console/settings")
    shown.label("Language").play("selectOption", "zh")
    width = PHONE["viewport"]["width"]
    for path in (
        "workflows",
        "workflows/release",
        "workflows/release/edit",
        "schedules",
        "audit",
        "feedback",
        "settings",
    ):
        shown.goto(f"/console/{path}")
        shown.locator("main h1").first().there()
        shown.until("!document.querySelector('main')?.innerText.includes('加载中')")
        assert shown.axe() == [], path
        assert shown.evaluate("document.documentElement.scrollWidth") <= width, path
