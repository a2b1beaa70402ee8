"""A run explains itself: what was said, how long it took, and how it stood at every moment of its log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2

from tests.console.browser import PHONE, Page
from tests.console.conftest import NewPage

Asked = Callable[..., dict[str, Any]]


def ended(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    """The run, when it has ended."""
    with http.stream(
        "GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, timeout=100
    ) as events:
        for _ in events.iter_lines():
            pass
    return http.get(f"/v1/runs/{run_id}").json()


def approved(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    """The run, when it has ended: whatever it asks is approved."""
    wanted = {"Accept": "text/event-stream"}
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers=wanted, timeout=100) as events:
        for line in events.iter_lines():
            event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
            if event.get("type") == "pending_opened":
                approve(http, event)
    return http.get(f"/v1/runs/{run_id}").json()


def approve(http: httpx2.Client, pending: dict[str, Any]) -> None:
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}).raise_for_status()


def moment(shown: Page, seq: int) -> None:
    """Wait until the page shows the snapshot of this moment."""
    shown.until(f"document.querySelector('[role=tabpanel]')?.dataset.seq === '{seq}'")
    shown.until("document.querySelector('[role=tabpanel]').getAttribute('aria-busy') === 'false'")


def test_runs_are_found_by_what_the_address_says(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    waiting, done = asked("refund", order="R-1", amount=70), asked("note", title="Found")
    approve(http, done)
    ended(http, done["run_id"])
    shown = page().goto("/console/runs?preset=waiting&workflow=refund")
    shown.locator(f"a[href='/console/runs/{waiting['run_id']}']").there()
    assert shown.locator(f"a[href='/console/runs/{done['run_id']}']").count() == 0
    assert shown.axe() == []
    shown.label("Which runs").play("selectOption", "all")
    shown.label("Workflow").fill("note")
    shown.locator(f"a[href='/console/runs/{done['run_id']}']").there()
    assert "workflow=note" in shown.evaluate("location.search")
    shown.locator(f"a[href='/console/runs/{done['run_id']}']").click()
    shown.role("heading", "Run of note").there()


def test_a_run_is_followed_as_it_goes_on(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="F-1", amount=77)
    shown = page().goto(f"/console/runs/{pending['run_id']}")
    shown.words("Order F-1: 77 are to be paid back.").there()
    shown.role("link", "Decide").there()
    assert shown.axe() == []
    approve(http, pending)
    shown.words("Paid 77 back").there()
    shown.words("finished").there()


def test_the_slider_shows_at_every_seq_what_the_snapshot_says(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("release")
    run = approved(http, pending["run_id"])
    assert run["seq"] > 20
    shown = page().goto(f"/console/runs/{run['id']}?tab=state")
    moment(shown, run["seq"])
    slider = shown.role("slider")
    for seq in range(run["seq"] + 1):
        slider.play("fill", str(seq))
        moment(shown, seq)
        snapshot = http.get(f"/v1/runs/{run['id']}/snapshot", params={"at": seq}).json()
        steps = shown.evaluate(
            "[...document.querySelectorAll('.items > li')].map((each) =>"
            " [each.querySelector('b').innerText, each.querySelector('.tag').innerText])"
        )
        assert steps == [[path, step["status"]] for path, step in snapshot["steps"].items()], seq
        state = shown.locator("[role=tabpanel] .card").first().text()
        for item in (snapshot["state"] or {}).get("workflowItems", []):
            assert item["status"] in state, seq
    for seq in (0, run["seq"] // 2, run["seq"]):
        shown.goto(f"/console/runs/{run['id']}?at={seq}")
        moment(shown, seq)
        texts = shown.evaluate(
            "[...document.querySelectorAll('.talk > li:not(.question) .text')].map((each) => each.innerText)"
        )
        snapshot = http.get(f"/v1/runs/{run['id']}/snapshot", params={"at": seq}).json()
        assert texts == [each["content"] for each in snapshot["messages"] if each["content"]]


def test_a_waterfall_says_who_was_waited_for_and_how_long(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="W-1", amount=90)
    approve(http, pending)
    ended(http, pending["run_id"])
    shown = page().goto(f"/console/runs/{pending['run_id']}?tab=waterfall")
    row = shown.role("row", name={"/^pay/": ""})
    row.there()
    assert "waited" in row.text()
    assert "NaN" not in row.text()
    assert shown.axe() == []


def test_a_run_is_paused_and_goes_on_after_one_was_told_what_that_does(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("refund", order="C-1", amount=91)
    shown = page().goto(f"/console/runs/{pending['run_id']}")
    shown.role("button", "Pause").click()
    shown.words("No new step starts.").there()
    assert shown.axe() == []
    shown.role("dialog").role("button", "Pause").click()
    shown.role("button", "Resume").click()
    shown.role("dialog").role("button", "Resume").click()
    shown.role("button", "Pause").there()
    shown.role("button", "Terminate").click()
    shown.role("dialog").role("button", "Terminate").click()
    shown.words("stopped").there()
    assert http.get(f"/v1/runs/{pending['run_id']}").json()["status"] == "stopped"


def test_a_run_that_is_not_there_is_said_to_be_so(page: NewPage) -> None:
    shown = page().goto("/console/runs/01a20561-e97f-79c2-8a90-000000000000")
    shown.role("heading", "Not here").there()


def test_thousands_of_events_stay_fluid_and_few_of_them_are_in_the_document(page: NewPage, http: httpx2.Client) -> None:
    body = {"workflow": "many", "input": {"items": list(range(900))}}
    run = ended(http, http.post("/v1/runs", json=body).raise_for_status().json()["id"])
    assert (run["status"], run["error"]) == ("finished", None), json.dumps(run)[:2000]
    assert run["seq"] > 3000
    shown = page().goto(f"/console/runs/{run['id']}?tab=events")
    shown.until(f"document.body.innerText.includes('{run['seq']:,} of')")
    shown.words("run_finished").there()
    assert shown.evaluate("document.querySelectorAll('.line.event').length") < 100
    shown.label("Find in type, path and content").fill("Line 451")
    shown.until("document.querySelectorAll('.line.event').length < 5")
    shown.locator(".line.event").first().click()
    shown.role("heading", name={"/message_chunk|message/": ""}).there()
    assert shown.axe() == []


def test_a_run_fits_a_phone(page: NewPage, asked: Asked) -> None:
    pending = asked("refund", order="PH-1", amount=71)
    shown = page(**PHONE)
    for tab in ("conversation", "waterfall", "state", "events"):
        shown.goto(f"/console/runs/{pending['run_id']}?tab={tab}")
        shown.role("tab", selected=True).there()
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        assert shown.axe() == [], tab
