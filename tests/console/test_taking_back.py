"""A decision is sent after five seconds, in which it is taken back; what is put off; what I have decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from tests.console.browser import PHONE, Page
from tests.console.conftest import NewPage, pending_of
from tests.support.server import YAML

Asked = Callable[..., dict[str, Any]]


def status(http: httpx2.Client, pending: dict[str, Any]) -> str:
    return str(http.get(f"/v1/pendings/{pending['id']}").json()["status"])


def test_a_decision_is_taken_back_before_it_is_sent_with_its_comment(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("refund", order="U-1", amount=61)
    for options in ({}, PHONE):
        shown = page(undo=True, **options).goto(f"/console/decide/{pending['id']}")
        shown.label("Comment").fill("It was late")
        shown.role("button", "Approve").click()
        shown.role("button", name={"/Undo/": ""}).there()
        assert shown.axe() == []
        assert status(http, pending) == "open", "it is sent in some seconds"
        shown.role("button", name={"/Undo/": ""}).click()
        shown.role("button", "Approve").there()
        assert shown.label("Comment").value() == "It was late"
        assert status(http, pending) == "open"


def test_what_nobody_takes_back_is_sent_and_told_also_from_another_page(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("refund", order="U-2", amount=62)
    shown = page(undo=True).goto(f"/console/inbox/{pending['id']}")
    shown.role("button", "Approve").click()
    shown.role("button", name={"/Undo/": ""}).there()
    shown.role("link", "Runs").click()
    shown.locator(".toast").there()
    assert "Pay 62 back for order U-2" in shown.locator(".toast").text()
    shown.locator(".toast").gone()  # it was sent
    assert status(http, pending) == "approve"


def test_a_decision_without_a_connection_is_kept_and_sent_when_it_is_back(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    for n, early in enumerate((True, False)):
        pending = asked("refund", order=f"U-off-{n}", amount=65 + n)
        shown = page(undo=True, **PHONE).goto(f"/console/decide/{pending['id']}")
        shown.role("button", "Approve").there()
        if early:
            shown.offline(True)
        shown.role("button", "Approve").click()
        shown.role("button", name={"/Undo/": ""}).there()
        shown.offline(True)
        shown.words("Will be sent when the connection is back.").there()
        assert shown.axe() == []
        assert (shown.locator(".error, .note.bad").count(), status(http, pending)) == (0, "open")
        shown.offline(False)
        shown.words("Done. Your decision has been recorded.").there()
        assert status(http, pending) == "approve"


def test_a_decision_is_sent_where_only_the_network_of_the_machine_is_away(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    """A laptop without any network is offline to its browser, and reaches the server on itself."""
    pending = asked("refund", order="U-lo", amount=67)
    shown = page(undo=True)
    offline = "Object.defineProperty(Navigator.prototype, 'onLine', {get: () => false})"
    shown.play(["addInitScript", {"content": offline}])
    shown.goto(f"/console/decide/{pending['id']}").role("button", "Approve").click()
    shown.words("Done. Your decision has been recorded.").there()
    assert status(http, pending) == "approve"


def test_of_two_tabs_that_decide_at_once_the_later_says_what_became_of_it(page: NewPage, asked: Asked) -> None:
    pending = asked("refund", order="U-8", amount=68)
    first = page(undo=True).goto(f"/console/decide/{pending['id']}")
    second = page(first, undo=True).goto(f"/console/decide/{pending['id']}")
    for shown, option in ((first, "Approve"), (second, "Reject")):
        shown.role("button", option).click()
        shown.role("button", name={"/Undo/": ""}).there()
    first.words("Done. Your decision has been recorded.").there()
    second.words("Your answer “Reject” came too late and doesn't count.").there()
    assert second.axe() == []


def test_who_leaves_the_page_has_decided(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="U-3", amount=63)
    shown = page(undo=True).goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Reject").click()
    shown.role("button", name={"/Undo/": ""}).there()
    shown.goto("/console/decide/elsewhere")
    shown.words("or you don't have access to it").there()
    with httpx2.Client(base_url=str(http.base_url), timeout=60) as other:
        while status(other, pending) == "open":
            shown.until("true")
    assert status(http, pending) == "reject"


CONFIRMED = """\
hai: flow/v1
name: confirmed
version: 1
steps:
  - approve: {from: anyone, title: "Delete them all?", confirm: true}
"""


def test_where_the_author_wants_it_the_reader_is_asked_once_more_instead(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    http.post("/v1/workflows", content=CONFIRMED, headers=YAML).raise_for_status()
    pending = asked("confirmed")
    for undo in (True, False):
        shown = page(undo=undo).goto(f"/console/decide/{pending['id']}")
        shown.role("button", "Approve").click()
        shown.role("dialog").there()
        assert "Delete them all?" in shown.role("dialog").text()
    assert status(http, pending) == "open"
    shown.role("dialog").role("button", "Approve").click()
    shown.words("Done. Your decision has been recorded.").there()
    assert status(http, pending) == "approve"


def test_what_is_wrong_is_said_at_once_and_nothing_waits(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("visit")
    shown = page(undo=True).goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Send").click()
    shown.until("document.querySelector('[aria-invalid=true]') !== null")
    assert shown.role("button", name={"/Undo/": ""}).count() == 0
    assert status(http, pending) == "open"


HUNDREDS = """\
hai: flow/v1
name: hundreds
version: 1
input: {type: object, properties: {items: {type: array, items: {type: integer}}}}
steps:
  - id: each
    for_each:
      items: "${{ input.items }}"
      max_parallel: 100
      steps:
        - approve: {title: "Number ${{ item }}?", from: anyone, deadline: 1d}
"""


def test_a_question_is_put_off_until_tomorrow_and_brought_back(page: NewPage, asked: Asked) -> None:
    pending = asked("refund", order="U-4", amount=64)
    put_off_and_bring_back(page(), pending)


def test_a_question_behind_the_first_200_is_put_off_and_found(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    http.post("/v1/workflows", content=HUNDREDS, headers=YAML).raise_for_status()
    runs = [asked("hundreds", items=list(range(n, n + 67)))["run_id"] for n in (0, 100, 200)]
    while len(http.get("/v1/inbox?limit=200&text=number").json()["items"]) < 200:
        pass
    pending = asked("refund", order="L-200", amount=64)
    shown = page()
    put_off_and_bring_back(shown, pending, listed=False)
    shown.words("200+ questions are waiting for you").there()
    shown.role("link", "Inbox 200+").there()
    shown.words("Only the 200 with the nearest deadlines are listed.").there()
    shown.label("Search titles").fill("L-200")
    shown.locator(f".items a[href*='{pending['id']}']").there()
    assert shown.axe() == []
    for run in runs:
        http.post(f"/v1/runs/{run}/terminate").raise_for_status()


def put_off_and_bring_back(shown: Page, pending: dict[str, Any], *, listed: bool = True) -> None:
    link = shown.goto(f"/console/inbox/{pending['id']}").locator(f".items a[href*='{pending['id']}']")
    shown.role("button", "Remind me tomorrow").click()
    link.gone()
    shown.label("Which questions").play("selectOption", "snoozed")
    link.click()
    shown.role("button", "Back to my inbox").click()
    link.gone()
    shown.label("Which questions").play("selectOption", "mine")
    if listed:
        link.there()


def test_what_i_decided_is_listed_and_told_in_the_past_tense(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="U-5", amount=65)
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "reject", "reason": "no"}).raise_for_status()
    shown = page().goto("/console/inbox?view=decided")
    shown.locator(".items").role("link", name={"/order U-5/": ""}).click()
    shown.words("You decided this.").there()
    text = shown.locator(".decision").text()
    assert "decided" in text
    assert "due" not in text
    assert "Requested action" not in text, "it is not asked for any more"
    assert shown.locator(".seats li.open").count() == 0
    assert shown.axe() == []


def test_the_first_question_is_open_on_a_desktop_and_j_works_everywhere(page: NewPage, asked: Asked) -> None:
    for number in range(3):
        asked("refund", order=f"U-6{number}", amount=66)
    shown = page(viewport={"width": 1280, "height": 800}).goto("/console/inbox")
    shown.locator(".decision h1").there()
    shown.until("location.pathname.startsWith('/console/inbox/')")
    heights = shown.evaluate("[...document.querySelectorAll('.items > li')].map((each) => each.offsetHeight)")
    assert set(heights) == {64}
    before = shown.evaluate("location.pathname")
    shown.locator(".items input").first().play("focus")
    shown.locator(".items input").first().play("press", "j")
    shown.until(f"location.pathname !== {before!r}")
    phone = page(**PHONE).goto("/console/inbox")
    phone.locator(".items li").first().there()
    assert phone.evaluate("location.pathname") == "/console/inbox"


def test_j_goes_through_the_rows_of_the_runs_too(page: NewPage, asked: Asked) -> None:
    asked("refund", order="U-7", amount=67)
    shown = page().goto("/console/runs")
    shown.locator("a.line").first().there()
    shown.press("j")
    assert shown.evaluate("document.activeElement?.classList.contains('line')")


def test_an_agent_is_answered_in_words(page: NewPage, http: httpx2.Client, asked: Asked) -> None:
    started = http.post("/v1/runs", json={"workflow": "agent_mails", "input": {}}).raise_for_status().json()
    pending = pending_of(http, started["id"])
    shown = page().goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Respond").click()
    shown.words("Enter your response to the agent.").there()
    shown.label("Comment").fill("Write to bob instead.")
    shown.role("button", "Respond").click()
    shown.role("heading", "Answered in words").there()
    assert status(http, pending) == "respond"
