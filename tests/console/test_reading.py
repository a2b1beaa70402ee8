"""The console's pages as a stranger reads them: nothing is squeezed or cut off, and what is empty says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE, Page
from tests.console.conftest import NewPage
from tests.console.test_deciding import acting
from tests.console.test_runs import approved, broken

Asked = Callable[..., dict[str, Any]]


def narrowest(shown: Page, selector: str) -> float:
    """How wide the narrowest of them is, in pixels."""
    shown.locator(selector).first().there()
    widths = f"[...document.querySelectorAll({selector!r})].map((each) => each.getBoundingClientRect().width)"
    return float(shown.evaluate(f"Math.min(...{widths})"))


def test_on_a_phone_changed_arguments_stand_below_each_other(page: NewPage, asked: Asked) -> None:
    pending = asked("payout", who="user:clerk", supplier="Narrow Ltd")
    shown = acting(page, "user:ann", f"/console/inbox/{pending['id']}", **PHONE)
    shown.role("button", name={"/^Edit/": ""}).click()
    shown.label("amount").fill("900")
    shown.locator("fieldset ins").there()
    assert narrowest(shown, "fieldset > .field, fieldset > dl, fieldset > .note") > 250
    assert shown.axe() == []


def test_on_a_phone_the_slider_of_a_run_can_be_moved_at_every_moment(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    run = approved(http, asked("release")["run_id"])
    shown = page(**PHONE).goto(f"/console/runs/{run['id']}?at={run['seq'] // 2}")
    shown.role("button", "Jump to live").there()
    assert narrowest(shown, "input[type=range]") > 150


@pytest.mark.parametrize(("path", "name"), [("inbox", "Inbox"), ("audit", "Audit"), ("settings", "Settings")])
def test_on_a_phone_one_sees_in_the_links_and_in_the_title_where_one_is(page: NewPage, path: str, name: str) -> None:
    shown = page(**PHONE).goto(f"/console/{path}")
    here = shown.locator("nav a[aria-current=page]").there()
    assert name in here.text()
    place = "document.querySelector('nav a[aria-current=page]').getBoundingClientRect()"
    assert shown.evaluate(f"{place}.left >= 0 && {place}.right <= innerWidth")
    shown.until(f"document.title.includes({name!r})")


def test_on_a_phone_the_audit_is_read_in_whole_words(page: NewPage, asked: Asked) -> None:
    asked("refund")
    shown = page(**PHONE).goto("/console/audit")
    shown.locator(".records li").first().there()
    assert narrowest(shown, "section dd") > 150
    cut = "[...document.querySelectorAll('.facts-line > *')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert shown.evaluate(f"{cut}.length") == 0
    assert shown.axe() == []


def test_a_run_says_what_it_has_none_of(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    run = broken(http)
    shown = page().goto(f"/console/runs/{run['id']}")
    shown.words("No messages.").there()
    shown.goto(f"/console/runs/{asked('visit')['run_id']}?tab=state")
    shown.role("heading", "Shared state").there()
    for heading in ("Shared state", "Input"):
        assert shown.locator(f"section.card:has(> h2:text-is('{heading}'))").text().endswith("none"), heading


def test_an_approval_shows_its_votes_and_none_of_the_machinery(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("refund", order="R-1", amount=62)
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}).raise_for_status()
    shown = page().goto(f"/console/decide/{pending['id']}")
    shown.role("heading", "Approved").there()
    shown.locator(".seats li.for").there()
    assert "escalations" not in shown.locator("article").text()
    form = asked("visit")
    values = {"guests": 3, "day": "Monday"}
    http.post(f"/v1/pendings/{form['id']}/decide", json={"values": values}).raise_for_status()
    shown.goto(f"/console/decide/{form['id']}")
    shown.role("heading", "The answer").there()
    assert "Monday" in shown.locator("article").text()


def test_who_is_excluded_is_named_in_words(page: NewPage, asked: Asked) -> None:
    pending = asked("reserved", who="user:clerk,role:operator")
    shown = page().goto(f"/console/inbox/{pending['id']}")
    shown.words("Who can decide: controller. Excluded: the person who started the run.").there()


def test_escape_leaves_a_field_so_that_the_keys_decide_again(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="E-1", amount=63)
    shown = page().goto(f"/console/inbox/{pending['id']}")
    comment = shown.label("Comment")
    comment.play("pressSequentially", "a word")
    assert shown.role("dialog").count() == 0
    comment.play("press", "Escape")
    assert comment.value() == "a word"
    shown.press("a")
    shown.role("dialog").role("button", "Approve").play("press", "Enter")
    shown.words("Done. Your decision has been recorded.").there()
    assert http.get(f"/v1/pendings/{pending['id']}").json()["reason"] == "a word"


def test_a_question_that_is_not_there_leads_a_phone_to_the_inbox(page: NewPage) -> None:
    shown = page(**PHONE).goto("/console/decide/call_nothing")
    shown.role("heading", "Not found").there()
    shown.role("link", "To the inbox").click()
    shown.role("heading", "Inbox").there()


def test_a_conversation_that_has_not_begun_leads_to_no_run(page: NewPage) -> None:
    shown = page().goto("/console/workflows/frontend?pane=chat")
    shown.role("button", "Begin").there()
    assert shown.role("link", "See the run").count() == 0


def test_the_outputs_of_steps_are_compared_under_the_names_of_the_steps(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    run = approved(http, asked("release")["run_id"])
    shown = page().goto(f"/console/runs/{run['id']}/compare?from=1")
    shown.locator("[data-compared] table").first().there()
    assert "approvals/quality/quality" in shown.locator("[data-compared]").text()
    assert "~1" not in shown.locator("[data-compared]").text()


def focused(shown: Page, name: str) -> None:
    """Wait until this has the focus."""
    shown.until(f"(document.activeElement.ariaLabel ?? document.activeElement.textContent).startsWith({name!r})")


def test_after_each_act_a_keyboard_goes_on_from_where_it_was(page: NewPage, asked: Asked) -> None:
    first, second = asked("note", title="Keyboard 1"), asked("note", title="Keyboard 2")
    shown = page().goto(f"/console/inbox/{first['id']}?q=Keyboard")
    focused(shown, "Keyboard 1")
    shown.role("button", "Approve").play("press", "Enter")
    focused(shown, "Done. Your decision has been recorded.")
    shown.role("button", "Next question").play("press", "Enter")
    focused(shown, "Keyboard 2")
    shown.goto(f"/console/runs/{second['run_id']}?tab=graph")
    shown.role("button", "Pause").play("press", "Enter")
    shown.role("dialog").role("button", "Pause").play("press", "Enter")
    focused(shown, "Resume")
    step = shown.locator("svg [data-path=agree]")
    step.play("press", "Enter")
    shown.locator(".step").role("button", "Close").play("press", "Enter")
    shown.until("document.activeElement.dataset.path === 'agree'")
    shown.goto("/console/workflows/note?pane=start").role("button", "Start a run").play("press", "Enter")
    shown.words("The run has started.").there()
    focused(shown, "Start a run")


SEEN = """(() => {
  const here = document.activeElement;
  const drawn = here.closest("svg") !== null; // its box gets a thicker line
  const seen = drawn || getComputedStyle(here).outlineStyle !== "none";
  const again = (window.passed ??= new Set()).has(here);
  window.passed.add(here);
  return { what: here.outerHTML.slice(0, 120), seen, again, out: here === document.body };
})()"""


@pytest.mark.parametrize("path", ["inbox/{}", "runs", "runs/{}", "workflows/note?pane=start", "schedules", "settings"])
def test_whoever_goes_by_tab_sees_where_they_are_and_gets_through_a_page(
    page: NewPage, asked: Asked, path: str
) -> None:
    pending = asked("note", title="By Tab")
    shown = page().goto("/console/" + path.format(pending["run_id"] if path.startswith("runs") else pending["id"]))
    shown.locator("main button, main summary").first().there()
    shown.evaluate("document.activeElement.blur()")
    for _ in range(200):
        shown.press("Tab")
        stop = shown.evaluate(SEEN)
        if stop["out"]:
            break
        assert stop["seen"], f"nothing shows that this has the focus: {stop['what']}"
        assert not stop["again"], f"it leads back to {stop['what']}"
    else:
        pytest.fail("it does not end")


def test_on_paper_a_question_is_whole_and_legible_without_what_is_pressed(page: NewPage, asked: Asked) -> None:
    message = "\n".join(f"Paragraph {n}." for n in range(300))
    pending = asked("note", title="Print me", evidence=message)
    for path in (f"/console/inbox/{pending['id']}", f"/console/decide/{pending['id']}"):
        shown = page(viewport={"width": 1200, "height": 760}).goto("/console/settings")
        shown.evaluate("localStorage.setItem('hai.theme', 'dark')")
        shown.goto(path).role("heading", "Print me").there()
        shown.until("document.documentElement.dataset.theme === 'dark'")
        shown.play(["emulateMedia", {"media": "print"}])
        assert shown.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--text')") == "#171b24"
        for pressed in (".top", ".actions", ".list"):
            assert shown.locator(f"{pressed} >> visible=true").count() == 0, pressed
        clipped = "each.scrollHeight > each.clientHeight + 2 && each.clientHeight > 0"
        hidden = f"{clipped} && getComputedStyle(each).overflowY !== 'visible'"
        assert shown.evaluate(f"[...document.querySelectorAll('main *')].filter((each) => {hidden}).length") == 0


@pytest.mark.parametrize("days", [2, -2])
def test_on_a_device_whose_clock_is_wrong_a_question_is_due_when_it_is(page: NewPage, asked: Asked, days: int) -> None:
    pending = asked("note", title="When is it due?")
    shown = page(**PHONE)
    shown.play(["addInitScript", {"content": f"const real = Date.now; Date.now = () => real() + {days} * 864e5"}])
    for path in (f"/console/decide/{pending['id']}", f"/console/inbox/{pending['id']}"):
        shown.goto(path).role("heading", "When is it due?").there()
        shown.locator("text=due in 2 days >> visible=true").first().there()
    shown.role("button", "Remind me tomorrow").click()
    until = shown.evaluate("Object.values(JSON.parse(localStorage.getItem('hai.snoozed'))).at(-1)") / 1000
    assert time.time() < until < time.time() + 2 * 86_400


@pytest.mark.parametrize("path", ["inbox", "decide", "runs", "run", "workflows", "overview"])
def test_letters_twice_as_large_fit_the_narrowest_phone(page: NewPage, asked: Asked, path: str) -> None:
    pending = asked("payout", amount=180)
    places = {"decide": f"decide/{pending['id']}", "run": f"runs/{pending['run_id']}"}
    shown = page(viewport={"width": 320, "height": 800})
    shown.protocol("Page.setFontSizes", fontSizes={"standard": 32, "fixed": 26})
    shown.goto(f"/console/{places.get(path, path)}").role("heading").first().there()
    shown.until("getComputedStyle(document.documentElement).fontSize === '32px'")
    shown.until("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_pressed_is_not_printed(page: NewPage, asked: Asked) -> None:
    pending = asked("note")
    shown = page()
    for path, button in ((f"decide/{pending['id']}", "Claim"), (f"runs/{pending['run_id']}", "Pause")):
        shown.goto(f"/console/{path}").role("button", button).there()
        shown.play(["emulateMedia", {"media": "print"}])
        shown.role("button", button).gone()
        shown.play(["emulateMedia", {"media": "screen"}])


def test_the_count_in_the_menu_stays_in_one_line_on_the_narrowest_phone(page: NewPage, asked: Asked) -> None:
    asked("refund", order="count", amount=60)
    shown = page(viewport={"width": 320, "height": 800}).goto("/console/inbox")
    shown.locator(".top nav .tag").there()
    tag = "const tag = document.querySelector('.top nav .tag')"
    height = f"(text) => {{ {tag}; tag.textContent = text; return tag.offsetHeight; }}"
    assert shown.evaluate(f"({height})('8')") == shown.evaluate(f"({height})('128')")
