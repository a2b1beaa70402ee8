"""People decide in the console: in a list, on a phone, two of them at once, and with a connection that breaks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE
from tests.console.conftest import HERE, NewPage, pending_of
from tests.support.examples import by_night
from tests.support.server import YAML

Asked = Callable[..., dict[str, Any]]


def acting(page: NewPage, who: str, path: str, **options: Any) -> Any:
    """A page of somebody: of the server's development mode, in which one says who one is."""
    shown = page(**options).goto("/console/settings")
    shown.label("Act as (development only)").fill(who)
    shown.role("button", "Apply").click()
    shown.until(f"document.querySelector('.top')?.innerText.includes('{who.partition(',')[0]}')")
    return shown.goto(path)


def decided(http: httpx2.Client, pending: dict[str, Any]) -> dict[str, Any]:
    return http.get(f"/v1/pendings/{pending['id']}").json()


def test_what_a_client_started_is_approved_in_the_browser(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    shown = page().goto("/console/")
    shown.words("Live").there()
    pending = asked("refund", order="A-77", amount=75)
    shown.role("link", name={"/Pay 75 back for order A-77/": ""}).click()
    shown.role("heading", "Pay 75 back for order A-77?").there()
    assert shown.axe() == []
    shown.role("button", "Approve").click()
    shown.words("Done. Your decision has been recorded.").there()
    assert decided(http, pending)["status"] == "approve"
    shown.role("link", name={"/Pay 75 back for order A-77/": ""}).gone()


def test_the_demo_is_started_and_decided_from_an_empty_inbox(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    asked("payout", who="user:clerk", supplier="Not the demo")  # the first day, with its tour, is over
    open_now = http.get("/v1/inbox?limit=200").json()["items"]
    for each in open_now:
        http.post(f"/v1/runs/{each['run_id']}/terminate")
    shown = page().goto("/console/")
    shown.role("button", "Start the demo").click()
    shown.role("link", name={"/Pay 180 back for order A-1042/": ""}).click()
    shown.role("button", "Approve").click()
    shown.words("Done. Your decision has been recorded.").there()


def test_arguments_are_changed_and_the_votes_that_lapse_are_told_before(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("payout", who="user:clerk", supplier="Lapse Ltd")
    approve = {"decision": "approve", "digest": pending["digest"]}
    http.post(f"/v1/pendings/{pending['id']}/decide", json=approve, headers={"HAI-Act-As": "user:bob"})
    ann = acting(page, "user:ann", f"/console/inbox/{pending['id']}")
    ann.locator(".seats li.for").there()
    assert "bob" in ann.locator(".seats li.for").text()
    assert ann.locator(".seats li.open").count() == 1
    ann.press("e")
    ann.label("amount").fill("900")
    ann.words("Your edit discards 1 earlier vote").there()
    ann.role("button", "Approve").click()
    question = ann.role("dialog")
    assert "1200" in question.text()
    assert "900" in question.text()
    assert "Your edit discards the votes of bob" in question.text()
    assert ann.axe() == []
    question.role("button", "Approve").click()
    ann.words("Your vote has been recorded. Waiting for other voters.").there()
    seen = decided(http, pending)
    assert (seen["status"], seen["args"]["amount"]) == ("open", 900)
    assert [(vote["by"], vote["counts"]) for vote in seen["needed"]["votes"]] == [
        ("user:bob", False),
        ("user:ann", True),
    ]


def test_two_people_complete_a_quorum_in_two_browsers(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("payout", who="user:clerk", supplier="Quorum Ltd")
    ann = acting(page, "user:ann", f"/console/inbox/{pending['id']}")
    bob = acting(page, "user:bob", f"/console/inbox/{pending['id']}")
    bob.role("button", "Approve").there()
    ann.role("button", "Approve").click()
    ann.words("Your vote has been recorded. Waiting for other voters.").there()
    ann.words("You have already voted, and votes can't be changed.").there()
    bob.locator(".seats li.for").there()  # by itself
    bob.role("button", "Approve").click()
    bob.words("Done. Your decision has been recorded.").there()
    ann.role("heading", "Approved").there()
    assert decided(http, pending)["status"] == "approve"


def test_a_form_keeps_its_input_and_shows_findings_at_their_fields(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("visit")
    shown = page().goto(f"/console/inbox/{pending['id']}")
    shown.label("Guests").fill("40")
    shown.label("Meal").play("selectOption", "vegetarian")
    shown.role("button", "Send").click()
    shown.locator("[role=alert]").there()
    shown.until("document.querySelector('[aria-invalid=true]') !== null")
    assert shown.label("Guests").value() == "40"
    assert shown.axe() == []
    shown.play(["reload"])
    shown.words("Draft restored.").there()
    assert shown.label("Guests").value() == "40"
    shown.label("Guests").fill("4")
    shown.role("textbox", "Day (required)").fill("Monday")
    shown.role("button", "Send").click()
    shown.words("Done. Your decision has been recorded.").there()
    assert decided(http, pending)["value"] == {"guests": 4, "day": "Monday", "meal": "vegetarian"}


def test_a_decision_on_a_phone_is_a_page_of_its_own(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="P-1", amount=99)
    phone = page(**PHONE).goto(f"/console/decide/{pending['id']}")
    phone.role("heading", "Pay 99 back for order P-1?").there()
    assert phone.axe() == []
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not phone.evaluate("performance.getEntriesByType('resource').some((each) => each.name.includes('/index-'))")
    phone.label("Comment").fill("Too late")
    phone.role("button", "Reject").click()
    phone.words("Done. Your decision has been recorded.").there()
    assert (decided(http, pending)["status"], decided(http, pending)["reason"]) == ("reject", "Too late")


SHOWN = """
new MutationObserver((_, observer) => {
  if (document.querySelector(".decision .actions button") === null) return;
  observer.disconnect();
  const painted = () => (document.documentElement.dataset.shown = String(Math.round(performance.now())));
  requestAnimationFrame(() => setTimeout(painted));
}).observe(document, { childList: true, subtree: true })
"""

SLOW = {"latency": 150, "downloadThroughput": 1_600_000 / 8, "uploadThroughput": 750_000 / 8}
"""A phone far from its mast: milliseconds there and back, and bytes a second."""

LOADED = """performance.getEntries().filter((each) => each.transferSize > 0)
  .filter((each) => each.responseEnd > 0 && each.responseEnd <= Number(document.documentElement.dataset.shown))
  .map((each) => [new URL(each.name).pathname, each.transferSize])"""


def test_a_link_in_a_mail_leads_a_phone_to_its_decision_with_few_requests(
    page: NewPage, asked: Asked, record_property: Callable[[str, object], None]
) -> None:
    took = []
    for turn in range(by_night(5, 1)):
        pending = asked("refund", order=f"M-{turn}", amount=80 + turn)
        shown = page(**PHONE)  # a context of its own: nothing is kept
        shown.play(["addInitScript", {"content": SHOWN}])
        shown.protocol("Network.enable")
        shown.protocol("Network.emulateNetworkConditions", offline=False, **SLOW)
        shown.protocol("Emulation.setCPUThrottlingRate", rate=4)
        shown.goto(f"/console/decide/{pending['id']}")
        shown.until("document.documentElement.dataset.shown !== undefined")
        took.append(int(shown.evaluate("document.documentElement.dataset.shown")))
        loaded = shown.evaluate(LOADED)
        assert sum(size for _, size in loaded) < 60_000, loaded
        files = [name for name, _ in loaded if name.startswith("/console/")]
        assert len(files) <= 4, files  # the page, its script, its look, its icon
    found = {"from the link to the decision, ms": sorted(took)}
    record_property("measured", found)
    print(json.dumps(found))


def test_a_deadline_from_a_clock_is_shown_in_that_clocks_zone_too(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    source = (HERE / "flows" / "reserved.flow.yaml").read_text().replace("name: reserved", "name: clocked")
    clock = 'triggers: [{api: {}}, {schedule: {cron: "0 9 * * 1", timezone: Asia/Tokyo}}]\n\nsteps:'
    http.post("/v1/workflows", content=source.replace("steps:", clock), headers=YAML).raise_for_status()
    (schedule,) = [each for each in http.get("/v1/schedules").json()["items"] if each["workflow"] == "clocked"]
    run = http.post(f"/v1/schedules/{schedule['id']}/run").raise_for_status().json()
    shown = page().goto(f"/console/decide/{pending_of(http, run['id'])['id']}")
    shown.words("in Asia/Tokyo").there()
    due = shown.locator(".decision header time").text()
    here, there = (int(hour) for hour in re.findall(r" (\d\d):\d\d", due))
    assert (there - here) % 24 in (7, 8), due  # Berlin's summer and winter
    shown.goto(f"/console/runs/{run['id']}?step=sign").words("in Asia/Tokyo").there()
    shown.goto(f"/console/decide/{asked('clocked')['id']}").locator(".decision header time").there()
    assert "Tokyo" not in shown.locator("header").text()


def test_what_is_decided_meanwhile_says_so_with_the_winner(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="M-1", amount=60)
    shown = page().goto(f"/console/inbox/{pending['id']}")
    second = page(beside=shown).goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Approve").there()
    second.role("button", "Approve").there()
    answer = {"decision": "reject", "reason": "No."}
    http.post(
        f"/v1/pendings/{pending['id']}/decide", json=answer, headers={"HAI-Act-As": "user:zoe"}
    ).raise_for_status()
    for each in (shown, second):
        each.play(["bringToFront"])
        each.role("heading", "Rejected").there()
        each.words("Someone else has already decided this.").there()
        each.words("zoe").there()


def test_who_may_not_decide_is_told_why_and_who_may(page: NewPage, asked: Asked) -> None:
    pending = asked("reserved", who="user:clerk,role:operator")
    shown = acting(page, "user:eve,role:viewer,role:decider", f"/console/inbox/{pending['id']}")
    shown.words("This question isn't addressed to you.").there()
    shown.words("Who can decide: controller.").there()
    assert shown.role("button", "Approve").count() == 0
    assert shown.axe() == []


@pytest.mark.parametrize("path", ["/console/inbox/call_nothing", "/console/decide/call_nothing"])
def test_a_question_that_is_not_there_is_said_to_be_so(page: NewPage, path: str) -> None:
    shown = page().goto(path)
    shown.role("heading", "Not found").there()
    assert shown.axe() == []


def test_input_survives_a_lost_connection_and_is_sent_afterwards(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("refund", order="O-1", amount=61)
    shown = page().goto(f"/console/inbox/{pending['id']}")
    shown.label("Comment").fill("From the train")
    shown.offline(True)
    shown.role("button", "Approve").click()
    shown.words("The server isn't responding.").there()
    assert shown.label("Comment").value() == "From the train"
    shown.offline(False)
    shown.role("button", "Approve").click()
    shown.words("Done. Your decision has been recorded.").there()
    assert decided(http, pending)["reason"] == "From the train"


def test_a_failure_comes_into_view_above_the_buttons_of_a_long_question(page: NewPage, asked: Asked) -> None:
    pending = asked("note", title="A long one", evidence="A paragraph.\n\n" * 200)
    shown = page(**PHONE).goto(f"/console/inbox/{pending['id']}")
    shown.role("button", "Approve").there()
    shown.offline(True)
    shown.role("button", "Approve").click()
    shown.words("The server isn't responding.").there()
    bottom = "Math.round(document.querySelector('.card [role=alert]').getBoundingClientRect().bottom)"
    top = "Math.round(document.querySelector('.actions.sticky').getBoundingClientRect().top)"
    shown.until(f"{bottom} <= {top} && {bottom} > 0")


def test_lines_of_a_program_have_letters_of_one_width(page: NewPage, asked: Asked) -> None:
    pending = asked("refund", order="if paid:\n    x = 1", amount=77)
    shown = page().goto(f"/console/inbox/{pending['id']}")
    shown.locator("dd .text.code").first().there()
    assert "mono" in shown.evaluate("getComputedStyle(document.querySelector('dd .text.code')).fontFamily")


def test_keys_lead_through_the_inbox_and_ask_before_they_decide(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    for title in ("Key one", "Key two"):
        asked("note", title=title)
    shown = page().goto("/console/inbox?q=Key")
    shown.until("document.querySelectorAll('.items > li').length === 2")
    shown.role("heading", "Key one").there()  # the first is open
    shown.press("j")
    shown.role("heading", "Key two").there()
    shown.press("k")
    shown.role("heading", "Key one").there()
    shown.press("a")
    shown.role("dialog").there()
    shown.press("Escape")
    shown.role("dialog").gone()
    shown.press("r")
    shown.role("dialog").role("button", "Reject").there()
    shown.role("dialog").role("button", "Reject").play("press", "Enter")
    shown.words("Done. Your decision has been recorded.").there()
    shown.role("button", "Next question").click()
    shown.role("heading", "Key two").there()


def test_several_are_decided_at_once_with_an_outcome_for_each(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pendings = [asked("note", title=f"Bulk {n}") for n in range(5)]
    shown = page().goto("/console/inbox?q=Bulk")
    shown.until("document.querySelectorAll('.items > li').length === 5")
    for n in range(5):
        shown.label(f"Select: Bulk {n}").click()
    shown.role("button", "Approve 5").click()
    shown.role("dialog").there()
    # Somebody else is quicker with one of them, so that the page does not know it yet.
    answer = {"decision": "reject"}
    http.post(f"/v1/pendings/{pendings[0]['id']}/decide", json=answer, headers={"HAI-Act-As": "user:zoe"})
    shown.role("dialog").role("button", "Approve").click()
    shown.until("/4 decided, [01] failed/.test(document.querySelector('.bar')?.innerText)")
    assert [decided(http, each)["status"] for each in pendings] == ["reject", *["approve"] * 4]


def test_a_selection_survives_a_lost_connection_and_is_decided_afterwards(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pendings = [asked("note", title=f"Away {n}") for n in range(2)]
    shown = page().goto("/console/inbox?q=Away")
    for n in range(2):
        shown.label(f"Select: Away {n}").click()
    shown.offline(True)
    shown.words("Connection lost.").there()
    shown.role("button", "Approve 2").click()
    shown.role("dialog").role("button", "Approve").click()
    shown.words("The server isn't responding. Your input is safe. Try again.").there()
    assert shown.axe() == []
    assert [decided(http, each)["status"] for each in pendings] == ["open", "open"]
    shown.offline(False)
    shown.words("Connection lost.").gone()
    shown.play(["reload"])
    shown.role("button", "Approve 2").click()
    shown.role("dialog").role("button", "Approve").click()
    shown.until("document.querySelector('.bar')?.innerText.includes('2 decided')")
    assert [decided(http, each)["status"] for each in pendings] == ["approve", "approve"]


def test_the_search_keeps_focus_when_the_first_question_opens(page: NewPage, asked: Asked) -> None:
    asked("note", title="Kept in focus")
    shown = page(viewport={"width": 1200, "height": 760}).goto("/console/inbox?q=nothing+is+called+so")
    shown.words("No matches.").there()
    search = shown.locator("input[type=search]")
    search.play("focus")
    search.fill("Kept in focus")
    shown.role("heading", "Kept in focus").there()
    assert shown.evaluate("document.activeElement.type") == "search"
    search.fill("Kept in focu")
    shown.press("Escape")  # leaves the field
    shown.press("Escape")  # closes the question, which stays closed
    shown.words("Select a question to review it.").there()
    assert shown.evaluate("location.pathname") == "/console/inbox"


def test_a_fresh_decision_is_not_in_the_future_of_a_slow_page_clock(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    pending = asked("note", title="Late clock")
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}).raise_for_status()
    shown = page()
    behind = "const now = Date.now.bind(Date); Date.now = () => now() - 55_000"  # a minute is mended
    shown.play(["addInitScript", {"content": behind}])
    shown.goto(f"/console/decide/{pending['id']}")
    shown.words("decided now").there()
    shown.goto("/console/inbox?view=decided")
    shown.locator(".items li").first().there()
    assert re.search(r"in \d+ (second|minute)", shown.locator("main").text()) is None


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)><script>alert(1)</script>", "abc\u202egpj.exe", "w" * 200_000]
)
def test_hostile_text_is_shown_as_text_and_bounded(page: NewPage, asked: Asked, text: str) -> None:
    pending = asked("note", title="Hostile", evidence=text)
    shown = page().goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Approve").there()
    assert shown.evaluate("document.querySelectorAll('img, #root script').length") == 0
    assert shown.evaluate("document.body.innerText.length") < 20_000
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_pages_are_chinese_and_dark_where_one_wants_it(page: NewPage, asked: Asked) -> None:
    pending = asked("refund", order="Z-1", amount=88)
    shown = page(locale="zh-CN", colorScheme="dark").goto(f"/console/inbox/{pending['id']}")
    shown.role("button", "批准").there()
    assert shown.evaluate("document.documentElement.lang") == "zh-CN"
    assert shown.axe() == []
    shown.goto("/console/settings")
    shown.label("语言").play("selectOption", "en")
    shown.role("heading", "Settings").there()
    assert shown.axe() == []


def test_what_the_server_finds_in_a_form_is_said_in_chinese(page: NewPage, asked: Asked) -> None:
    pending = asked("visit")
    shown = page(locale="zh-CN").goto(f"/console/inbox/{pending['id']}")
    shown.label("Guests").fill("40")
    shown.role("button", "提交").click()
    shown.words("请输入不大于 12 的数。").there()
    shown.locator(".field:has-text('Day') .error").there()
    assert shown.locator(".field:has-text('Day') .error").text() == "此项为必填。"


def test_the_pages_are_small(built: Any) -> None:
    def packed(page: str) -> int:
        html = (built / page).read_text()
        return sum(each.stat().st_size for each in (built / "assets").glob("*.gz") if each.name[:-3] in html)

    assert 0 < packed("decide.html") <= 60_000
    assert 0 < packed("index.html") <= 200_000


def test_signs_that_nobody_sees_are_shown_as_codes_with_a_warning(page: NewPage, http: httpx2.Client) -> None:
    flow = """
hai: flow/v1
name: hidden_signs
version: 1
input: {type: object, properties: {to: {type: string}}}
steps:
  - approve: {from: requester, title: "Send to ${{ input.to }}", message: "For p\u0430ypal", evidence: "${{ input }}"}
"""
    assert http.post("/v1/workflows", content=flow.encode(), headers=YAML).status_code in (200, 201)
    wrote = "\u202egpj.exe\u2066 \u200bnow"
    started = http.post("/v1/runs", json={"workflow": "hidden_signs", "input": {"to": wrote}}).raise_for_status()
    pending = pending_of(http, started.json()["id"])
    for path in (f"/console/decide/{pending['id']}", "/console/", f"/console/runs/{started.json()['id']}"):
        shown = page().goto(path)
        shown.words("[U+202E]gpj.exe[U+2066] [U+200B]now").first().there()
        assert shown.evaluate("/[\\u202e\\u2066\\u200b]/.test(document.body.innerText)") is False
    shown = page().goto(f"/console/decide/{pending['id']}")
    shown.words("Invisible and look-alike").there()
    shown.words("For p[U+0430]ypal").there()
    assert shown.axe() == []


def test_joined_emoji_and_scripts_are_shown_as_written_without_a_warning(page: NewPage, http: httpx2.Client) -> None:
    flow = """
hai: flow/v1
name: joined_signs
version: 1
input: {type: object, properties: {to: {type: string}}}
steps:
  - approve: {from: requester, title: "Send to ${{ input.to }}"}
"""
    assert http.post("/v1/workflows", content=flow.encode(), headers=YAML).status_code in (200, 201)
    family, flag = "\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308"
    to = f"{family} {flag} 1\ufe0f\u20e3 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    started = http.post("/v1/runs", json={"workflow": "joined_signs", "input": {"to": to}}).raise_for_status()
    for path in ("/console/inbox/", "/console/decide/"):
        shown = page().goto(f"{path}{pending_of(http, started.json()['id'])['id']}")
        shown.words(f"Send to {to}").there()
        assert shown.locator("text=Invisible and look-alike").count() == 0
