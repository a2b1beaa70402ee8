"""A run explains itself: what was said, how long it took, and how it stood at every moment of its log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE, Page
from tests.console.conftest import HERE, NewPage, pending_of
from tests.support.server import YAML

Asked = Callable[..., dict[str, Any]]
TABS = ("conversation", "graph", "waterfall", "state", "models", "events")
NOTE = HERE / "flows" / "note.flow.yaml"
ONE_AT_A_TIME = """
hai: flow/v1
name: one_at_a_time
version: 1
concurrency: {key: ann, limit: 1, on_conflict: queue}
steps:
  - wait_for: {event: go, deadline: 1d}
"""


def ended(http: httpx2.Client, run_id: str, seconds: float = 100) -> dict[str, Any]:
    """The run, when it has ended."""
    with http.stream(
        "GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, timeout=seconds
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
    shown.role("button", {"/^All/": ""}).click()
    shown.label("Workflow").fill("note")
    shown.locator(f"a[href='/console/runs/{done['run_id']}']").there()
    assert "name=note" in shown.evaluate("location.search")
    shown.role("button", "More filters").click()
    shown.label("Started by", exact=True).fill("user:nobody")
    shown.words("No matching runs.").there()
    assert shown.axe() == []
    shown.play(["reload"])
    assert shown.label("Started by", exact=True).value() == "user:nobody"
    shown.role("button", "Reset filters").click()
    shown.locator(f"a[href='/console/runs/{done['run_id']}']").click()
    shown.role("heading", "Run of note").there()


def test_filters_come_back_when_one_returns_to_a_list(page: NewPage, asked: Asked) -> None:
    asked("refund", order="R-2", amount=70)
    shown = page().goto("/console/runs?preset=waiting&workflow=refund")
    shown.role("button", {"/^Waiting/": ""}, pressed=True).there()
    shown.role("link", {"/^Inbox/": ""}).click()
    shown.label("Search titles, messages and arguments").fill("no such thing")
    shown.until("new URLSearchParams(location.search).get('q') === 'no such thing'")
    shown.role("link", "Runs", exact=True).click()
    shown.role("button", {"/^Waiting/": ""}, pressed=True).there()
    assert shown.label("Workflow", exact=True).value() == "refund"
    shown.play(["reload"])
    shown.role("link", {"/^Inbox/": ""}).click()
    shown.until("new URLSearchParams(location.search).get('q') === 'no such thing'")
    assert shown.label("Search titles, messages and arguments").value() == "no such thing"
    shown.role("link", "Runs", exact=True).click()
    shown.role("button", "Reset filters").click()
    shown.role("button", {"/^All/": ""}).click()
    shown.role("link", {"/^Inbox/": ""}).click()
    shown.role("link", "Runs", exact=True).click()
    shown.role("button", {"/^All/": ""}, pressed=True).there()
    assert shown.evaluate("location.search") == ""


def test_a_list_counts_and_changes_by_itself(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    shown = page().goto("/console/runs?workflow=reserved")
    shown.words("Live").there()
    before = http.get("/v1/runs/counts", params={"workflow": "reserved"}).json()["counts"]["waiting"]
    pending = asked("reserved")
    row = shown.locator(f"a[href='/console/runs/{pending['run_id']}']")
    row.there()
    shown.role("button", {f"/^Waiting {before + 1}$/": ""}).there()
    http.post(f"/v1/runs/{pending['run_id']}/terminate").raise_for_status()
    shown.until(f"document.querySelector(`a[href='/console/runs/{pending['run_id']}']`)?.innerText.includes('stopped')")
    shown.role("button", {f"/^Waiting {before}$/": ""}).there()


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
            " [each.querySelector('b').innerText, each.querySelector('[data-status]').dataset.status])"
        )
        assert steps == [[path, step["status"]] for path, step in snapshot["steps"].items()], seq
        state = shown.locator("[role=tabpanel] .card").first().text()
        for item in (snapshot["state"] or {}).get("workflowItems", []):
            assert item["status"] in state, seq
    for seq in (0, run["seq"] // 2, run["seq"]):
        shown.goto(f"/console/runs/{run['id']}?at={seq}")
        moment(shown, seq)
        texts = shown.evaluate(
            "[...document.querySelectorAll('.talk > li:not(.question) :is(.text, .markdown)')]"
            ".map((each) => each.innerText.replaceAll(' (example.com)', ''))"  # a link also says its host
        )
        snapshot = http.get(f"/v1/runs/{run['id']}/snapshot", params={"at": seq}).json()
        assert texts == [each["content"] for each in snapshot["messages"] if each["content"]]


def tone_of(steps: list[dict[str, Any]]) -> str:
    """What the newest passage through a step has come to; one that goes on counts before those that have ended."""
    found = ""
    for step in steps:
        waits = step["status"] == "running" and any(wait["until"] is None for wait in step["waits"])
        tone = "waiting" if waits else step["status"]
        if found not in ("running", "waiting") or tone in ("running", "waiting"):
            found = tone
    return found


def test_the_graph_and_the_timeline_follow_the_slider(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    run = approved(http, asked("release")["run_id"])
    shown = page().goto(f"/console/runs/{run['id']}?tab=graph")
    drawn = http.get("/v1/workflows/release/graph", params={"format": "json"}).json()
    slider = shown.role("slider")
    colours = "[...document.querySelectorAll('[data-tone]')].map((e) => `${e.dataset.path} ${e.dataset.tone}`).sort()"
    for seq in range(run["seq"] + 1):
        slider.play("fill", str(seq))
        shown.until(f"document.querySelector('[role=tabpanel]')?.dataset.steps === '{seq}'")
        steps = http.get(f"/v1/runs/{run['id']}/steps", params={"at": seq}).json()["items"]
        wanted = {step["path"]: "ahead" for step in drawn["steps"]}
        for path in {step["plan_path"] for step in steps}:
            wanted[path] = tone_of([each for each in steps if each["plan_path"] == path])
        expected = json.dumps(sorted(f"{path} {tone}" for path, tone in wanted.items()), separators=(",", ":"))
        shown.until(f"JSON.stringify({colours}) === {json.dumps(expected)}")  # the picture comes by itself
    for seq in (0, run["seq"] // 3, run["seq"]):
        shown.goto(f"/console/runs/{run['id']}?tab=waterfall&at={seq}")
        shown.until(f"document.querySelector('[role=tabpanel]')?.dataset.steps === '{seq}'")
        steps = http.get(f"/v1/runs/{run['id']}/steps", params={"at": seq}).json()["items"]
        rows = shown.evaluate("document.querySelector('[role=table]')?.getAttribute('aria-rowcount') ?? '1'")
        assert int(rows) == len(steps) + 1
        shown.role("tab", "Events").click()
        shown.words(f"{seq:,} of {run['seq']:,} events").there()
    shown.role("tab", "Timeline").click()
    shown.until(f"document.querySelector('[role=tabpanel]')?.dataset.steps === '{run['seq']}'")
    shown.role("tab", "State").click()
    slider.play("fill", "2")  # a moment whose steps nobody asks for
    moment(shown, 2)


def test_a_step_chosen_in_the_graph_is_selected_everywhere(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="G-1", amount=78)
    shown = page().goto(f"/console/runs/{pending['run_id']}?tab=graph")
    shown.locator("g[data-path='pay'][data-tone='waiting']").click()
    card = shown.role("complementary", "Step pay")
    card.there()
    shown.until("document.querySelector('.source .meant') !== null")
    assert "call: shop.refund" in shown.locator(".source").text() or "refund" in shown.locator(".source").text()
    assert "Waits for people" in card.text()
    assert shown.axe() == []
    shown.locator("g[data-path='pay']").play("press", "ArrowDown")
    shown.locator("g[data-path]:focus").play("press", "Enter")
    shown.until("new URLSearchParams(location.search).get('step') !== 'pay'")
    shown.goto(f"/console/runs/{pending['run_id']}?tab=waterfall&step=pay")
    shown.locator(".line.fall.current[data-path='pay']").there()
    card.role("button", "Its events").click()
    shown.until(
        "document.querySelectorAll('.line.event').length > 0 && [...document.querySelectorAll('.line.event')]"
        ".every((each) => each.innerText.includes('pay'))"
    )
    shown.label("Type of event").play("selectOption", "pending_opened")
    shown.until("document.querySelectorAll('.line.event').length === 1")


def test_outputs_are_drawn_by_kind_and_child_runs_link_both_ways(page: NewPage, http: httpx2.Client) -> None:
    started = http.post("/v1/runs", json={"workflow": "kinds"}).raise_for_status().json()
    run = ended(http, started["id"])
    assert run["status"] == "finished", run["error"]
    shown = page().goto(f"/console/runs/{run['id']}")
    shown.words("That is all.").there()
    talk = shown.locator(".talk").first()
    shown.locator(".folded summary").first().click()
    for words in ("Plain words.", "Thinking", "The details", "report", "42", "A cat", "at pictures.example"):
        assert words in talk.text(), words
    assert "research" in talk.text()
    assert shown.axe() == []
    shown.role("tab", "Models and tools").click()
    shown.role("heading", "Model calls").there()
    shown.until(
        "[...document.querySelectorAll('td.number')].some((each) => Number(each.innerText.replace(/\\D/g, '')) > 0)"
    )
    assert shown.axe() == []
    shown.goto(f"/console/runs/{run['id']}?tab=graph&step=below")
    shown.role("heading", "Runs it started").there()
    shown.locator(".step a[href*='/console/runs/']").first().click()
    shown.role("heading", "Run of many").there()
    shown.locator("a[href*='step=below']").click()
    shown.role("heading", "Run of Every kind of output").there()
    assert "step=below" in shown.evaluate("location.search")


def broken(http: httpx2.Client) -> dict[str, Any]:
    run = ended(http, http.post("/v1/runs", json={"workflow": "breaks"}).raise_for_status().json()["id"])
    assert run["status"] == "failed"
    return run


def test_a_failure_shows_its_place_and_its_step_is_redone_with_new_input(page: NewPage, http: httpx2.Client) -> None:
    run = broken(http)
    shown = page().goto(f"/console/runs/{run['id']}")
    shown.words("500 is more than 100.").there()
    shown.role("button", 'at step "check"').click()
    card = shown.role("complementary", "Step check")
    shown.until("document.querySelector('.source .meant') !== null")
    assert "too.much" in shown.locator(".source .meant").first().text() + shown.locator(".source").text()
    assert shown.axe() == []
    card.role("button", "Rerun from here").click()
    dialog = shown.role("dialog")
    dialog.role("button", "Change the input").click()
    area = dialog.locator("textarea").first()
    area.fill("{")
    dialog.locator("[aria-invalid=true]").there()
    area.fill('{"amount": "much"}')
    dialog.role("button", "See what it would do").click()
    shown.until("document.querySelector('dialog .error')?.innerText.length > 5")  # the server's finding, at the field
    assert area.value() == '{"amount": "much"}'
    area.fill('{"amount": 50}')
    dialog.role("button", "See what it would do").click()
    dialog.role("heading", "What would happen").there()
    assert "check" in dialog.locator(".note").first().text()
    assert shown.axe() == []
    assert (
        len(http.get("/v1/runs", params={"thread_id": run["thread_id"]}).json()["items"]) == 1
    )  # nothing has happened
    dialog.role("button", "Fork").click()
    shown.words("50 is little enough.").there()
    fork = http.get("/v1/runs", params={"thread_id": run["thread_id"]}).json()["items"][0]
    assert (fork["status"], fork["branch_of"], fork["input"]) == ("finished", run["id"], {"amount": 50})
    shown.locator("dl.inline a[href$='/runs/" + run["id"] + "']").click()  # and back to the one that it was forked from
    shown.words("500 is more than 100.").there()
    shown.goto(f"/console/runs/{run['id']}/compare?with={fork['id']}")
    shown.role("heading", "Compare two runs").there()
    shown.until(f"document.querySelector('[data-compared]')?.dataset.compared === '{run['seq']} {fork['seq']}'")
    assert {"500", "50"} <= set(shown.evaluate("[...document.querySelectorAll('del, ins')].map((e) => e.innerText)"))
    assert shown.axe() == []


def test_two_moments_are_compared(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    run = approved(http, asked("release")["run_id"])
    shown = page().goto(f"/console/runs/{run['id']}?at=10")
    shown.role("button", "Compare").click()
    shown.role("heading", "Compare two moments of a run").there()
    shown.until(f"document.querySelector('[data-compared]')?.dataset.compared === '10 {run['seq']}'")
    told = http.get(f"/v1/runs/{run['id']}/diff", params={"from": 10}).json()
    steps = shown.role("region", "Steps", exact=True).text()
    for path, change in told["steps"].items():
        before, after = ((change[side] or {}).get("status") for side in ("from", "to"))
        assert (path in steps) == (before != after), path
    assert shown.axe() == []


def test_a_step_is_skipped_and_a_run_migrated_after_a_preview(page: NewPage, http: httpx2.Client, asked: Asked) -> None:
    run_id = ""
    for version in (1, 2):
        say = "Said by the second." if version == 2 else "Said by the first."
        source = f"""
hai: flow/v1
name: moved
version: {version}
steps:
  - id: agree
    ask: {{title: Go on?, form: {{type: object, properties: {{word: {{type: string}}}}}}, from: anyone, deadline: 1d}}
  - say: {say}
{"  - say: And once more." if version == 2 else ""}
"""
        published = http.post("/v1/workflows", content=source, headers=YAML)
        assert published.status_code in (200, 201), published.text
        if version == 1:
            run_id = asked("moved")["run_id"]
    shown = page().goto(f"/console/runs/{run_id}")
    shown.role("button", "Migrate").click()
    dialog = shown.role("dialog")
    dialog.role("button", "See what it would do").click()
    shown.words("It can move. Nothing has happened yet.").there()
    assert http.get(f"/v1/runs/{run_id}").json()["version"]["version"] == 1
    assert shown.axe() == []
    dialog.role("button", "Migrate").click()
    dialog.gone()
    assert http.get(f"/v1/runs/{run_id}").json()["version"]["version"] == 2
    migrated = http.get(f"/v1/runs/{run_id}/events", params={"type": "migrated"}).json()["items"][0]["seq"]
    steps = "document.querySelectorAll('g[data-path]').length"
    shown.goto(f"/console/runs/{run_id}?tab=graph")
    shown.until(f"{steps} === 3")
    shown.role("slider").play("fill", str(migrated - 1))  # before it moved, the run stood under the first version
    shown.until(f"{steps} === 2")
    shown.role("slider").play("fill", str(migrated))
    shown.until(f"{steps} === 3")
    shown.goto(f"/console/runs/{run_id}?step=agree")
    shown.role("button", "Skip").click()
    shown.words("The step does nothing more.").there()
    shown.label("Output in its place (JSON)").fill('{"word": "skipped"}')
    assert shown.axe() == []
    dialog.role("button", "Skip").click()
    shown.words("Said by the second.").there()
    run = ended(http, run_id)
    assert run["status"] == "finished"


@pytest.mark.timeout(300)  # two hundred runs
def test_acts_on_two_hundred_runs_are_counted_first_and_reported_each(page: NewPage, http: httpx2.Client) -> None:
    source = NOTE.read_text().replace("name: note", "name: crowd")
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code in (200, 201)
    ids = [http.post("/v1/runs", json={"workflow": "crowd"}).raise_for_status().json()["id"] for _ in range(200)]
    for id in ids:
        pending_of(http, id)
    for id in ids[:3]:
        http.post(f"/v1/runs/{id}/terminate").raise_for_status()
    shown = page().goto("/console/runs?workflow=crowd")
    shown.role("button", "Bulk actions…").click()
    dialog = shown.role("dialog")
    dialog.role("button", "Count").click()
    shown.role("heading", "Pause 200 runs?").there()
    assert "stopped: 3" in dialog.text()
    assert shown.axe() == []
    one_more = http.post("/v1/runs", json={"workflow": "crowd"}).raise_for_status().json()["id"]
    dialog.role("button", "Pause 200 runs").click()
    shown.words("The number of matching runs is now 201. Nothing was done.").there()
    assert http.get("/v1/runs/counts", params={"workflow": "crowd"}).json()["counts"]["paused"] == 0
    dialog.role("button", "Cancel").click()
    http.post(f"/v1/runs/{one_more}/terminate").raise_for_status()
    shown.goto("/console/runs?workflow=crowd&version=1")
    hold = {"status": "stopped", "workflow": "crowd"}
    assert len(http.get("/v1/runs", params=hold).json()["items"]) == 4
    shown.role("button", "Bulk actions…").click()
    dialog.role("button", "Count").click()
    dialog.role("button", "Pause 201 runs").click()
    shown.words("197 runs changed, 0 unchanged, 4 failed.").there()
    assert http.get("/v1/runs/counts", params={"workflow": "crowd"}).json()["counts"]["paused"] == 197
    rows = shown.locator(".line.result")
    assert rows.first().text().startswith("refused")
    assert rows.count() < 60
    assert shown.axe() == []


def test_a_waterfall_says_who_was_waited_for_and_how_long(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    pending = asked("refund", order="W-1", amount=90)
    approve(http, pending)
    ended(http, pending["run_id"])
    shown = page().goto(f"/console/runs/{pending['run_id']}?tab=waterfall")
    row = shown.locator("[role=row][data-path=pay]")
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
    shown.words("No new steps start.").there()
    assert shown.axe() == []
    shown.label("Comment").fill("until Ann is back")
    shown.role("dialog").role("button", "Pause").click()
    shown.words(": until Ann is back").there()
    shown.role("button", "Resume").click()
    shown.role("dialog").role("button", "Resume").click()
    shown.role("button", "Pause").there()
    shown.role("button", "Terminate").click()
    shown.role("dialog").role("button", "Terminate").click()
    shown.words("stopped").there()
    assert http.get(f"/v1/runs/{pending['run_id']}").json()["status"] == "stopped"


def test_a_run_that_waits_for_its_turn_leads_to_the_one_before_it(page: NewPage, http: httpx2.Client) -> None:
    http.post("/v1/workflows", content=ONE_AT_A_TIME, headers=YAML).raise_for_status()
    first, second = (http.post("/v1/runs", json={"workflow": "one_at_a_time"}).json()["id"] for _ in range(2))
    shown = page().goto(f"/console/runs/{second}")
    shown.words("for the key ann").there()
    shown.role("link", f"{first[:8]}…").click()
    shown.until(f"location.pathname === '/console/runs/{first}'")


def test_a_run_that_is_not_there_is_said_to_be_so(page: NewPage) -> None:
    shown = page().goto("/console/runs/01a20561-e97f-79c2-8a90-000000000000")
    shown.role("heading", "Not found").there()


WITHOUT_EVENTS = """
const { fetch } = window;
window.asked = [];
window.fetch = (path, options) => {
  asked.push(path);
  return /[/]runs[/].*[/]events/.test(path) ? new Promise(() => {}) : fetch(path, options);
};
"""


def test_a_run_is_shown_by_its_snapshot_and_steps_before_an_event_is_read(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    run = approved(http, asked("release")["run_id"])
    steps = http.get(f"/v1/runs/{run['id']}/steps").json()["items"]
    shown = page()
    shown.play(["addInitScript", {"content": WITHOUT_EVENTS}])
    for tab, drawn in {
        "conversation": ".talk > li",
        "graph": "svg [data-tone=finished]",
        "waterfall": f".line.fall[data-path='{steps[-1]['path']}']",
        "state": ".items > li [data-status=finished]",
    }.items():
        shown.goto(f"/console/runs/{run['id']}?tab={tab}")
        shown.locator(drawn).first().there()
        moment(shown, run["seq"])
        shown.words(f"0 of {run['seq']} events read").there()
        of_run = "asked.map((path) => /[/]runs[/].*[/]([a-z]+)/.exec(path)?.[1])"
        shown.until(f"{of_run}.includes('events')")
        requests = shown.evaluate(of_run)
        parts = {"snapshot", "steps"} if tab in ("graph", "waterfall") else {"snapshot"}
        assert parts <= set(requests[: requests.index("events")]), tab
        assert requests.count("snapshot") == 1, tab
        first = shown.evaluate("asked.slice(0, asked.findIndex((path) => path.includes('/snapshot')))")
        assert first.count(f"/v1/runs/{run['id']}") == 1, tab
    busy = http.post("/v1/runs", json={"workflow": "busy", "input": {"items": [1, 2]}}).raise_for_status().json()
    ended(http, busy["id"])
    usage = http.get(f"/v1/runs/{busy['id']}/snapshot").json()["usage"]
    assert [(each["calls"], each["input"] + each["output"] > 0) for each in usage] == [(2, True)]
    shown.goto(f"/console/runs/{busy['id']}?tab=models")
    shown.locator("[role=tabpanel] >> text=2 model calls").there()


EVENTS = int(os.environ.get("TEST_CONSOLE_EVENTS", "20000"))
"""How many events the long run has, at least: fewer than the newest 50,000, which docs/console.md says are kept."""
EVENTS_OF_AN_ITEM = 28
PIECE = 500
"""How many events or steps the page asks for at a time, at most: docs/console.md promises slices."""
HEAP_MB_MAX = 250
NODES_MAX = 3_000

WATCH = """
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) {
    window.longest = Math.max(window.longest ?? 0, Math.round(each.duration)); // the document may have no element yet
  }
}).observe({ type: "longtask", buffered: true })
"""

ASKED_FOR = """performance.getEntriesByType("resource").map((each) => new URL(each.name))
  .filter(({ pathname, search }) => /[/](events|steps)$/.test(pathname) && !search.includes("type="))
  .map(({ searchParams }) => Number(searchParams.get("limit") ?? 0))"""


def slid(page: Page, seq: int) -> None:
    """Move the slider without looking for it by its role: that would be work of the page's main thread."""
    page.locator("input[type=range]").play("fill", str(seq))


def measured(page: Page, work: Callable[[], None]) -> dict[str, int]:
    """How many milliseconds the page was busy at a time, at most: by the clock (0: less than 50), and of its own."""
    page.evaluate("delete window.longest")
    page.traced()
    work()
    page.play(["waitForTimeout", 100])  # what has ended is told a little later
    own = page.longest()
    return {"clock": int(page.evaluate("window.longest ?? 0")), "own": own}


@pytest.mark.timeout(600)
def test_twenty_thousand_events_stay_fluid_with_few_in_the_document(
    page: NewPage, http: httpx2.Client, record_property: Callable[[str, object], None]
) -> None:
    body = {"workflow": "busy", "input": {"items": list(range(EVENTS // EVENTS_OF_AN_ITEM + 1))}}
    run = ended(http, http.post("/v1/runs", json=body).raise_for_status().json()["id"], 550)
    assert (run["status"], run["error"]) == ("finished", None), json.dumps(run)[:2000]
    last = run["seq"]
    assert last >= EVENTS
    shown = page()
    shown.play(["addInitScript", {"content": WATCH}])
    shown.goto("/console/settings")
    longest: dict[str, dict[str, int]] = {}

    def read() -> None:
        shown.goto(f"/console/runs/{run['id']}?tab=events")
        said = "document.querySelector('[role=tabpanel] p[role=status]')?.textContent"
        shown.until(f"{said}?.startsWith('{last:,} of ')")
        shown.locator(".line.event >> text=run_finished").there()

    longest["reading"] = measured(shown, read)
    assert shown.evaluate("document.querySelectorAll('.line.event').length") < 100
    for tab in TABS:

        def look(tab: str = tab) -> None:
            shown.locator(f"[role=tab]:nth-child({TABS.index(tab) + 1})").click()
            moment(shown, last)
            for seq in range(last // 8, last, last // 8):
                slid(shown, seq)
            moment(shown, seq)
            slid(shown, last)
            moment(shown, last)

        longest[tab] = measured(shown, look)
        assert shown.evaluate("document.querySelectorAll('*').length") < NODES_MAX, tab
    assert max(shown.evaluate(ASKED_FOR)) <= PIECE
    heap = shown.evaluate("Math.round(performance.memory.usedJSHeapSize / 1e6)")
    assert heap < HEAP_MB_MAX
    shown.label("Find in type, path and content").fill("Line 399 ")
    shown.until("document.querySelectorAll('.line.event').length < 5")
    shown.locator(".line.event").first().click()
    shown.role("heading", {"/message_chunk|message/": ""}).there()
    assert shown.axe() == []
    shown = page().goto(f"/console/runs/{run['id']}?tab=graph")
    shown.locator("svg [data-tone=finished]").first().there()
    asked = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/steps?')).length"
    assert shown.evaluate(asked) == 1, "the graph of a long run needs one answer"
    assert shown.words("6 of 6 steps reached").count() == 1
    found = {"events": last, "longest task, ms": longest, "heap, MB": heap}
    record_property("measured", found)
    print(json.dumps(found))


@pytest.mark.timeout(300)
def test_events_before_those_in_memory_are_read_on_demand(page: NewPage, http: httpx2.Client) -> None:
    body = {"workflow": "many", "input": {"items": list(range(450))}}
    kept, stretch = 1000, 2000
    shown = page().goto("/console/settings")
    shown.evaluate(f"localStorage.setItem('hai.events-kept', '{kept}')")
    started = http.post("/v1/runs", json=body).raise_for_status().json()
    shown.goto(f"/console/runs/{started['id']}?tab=events")  # no more are kept of what comes while one looks on, either
    run = ended(http, started["id"], 250)
    last = run["seq"]
    assert stretch < last - kept < 2 * stretch

    def holds(count: int, newest: int) -> None:
        """Wait until the page has so many events and shows the last of them."""
        shown.until(f"document.body.innerText.includes('{count:,} of {last:,} events')")
        shown.until(f"[...document.querySelectorAll('.line.event')].some((e) => e.innerText.startsWith('{newest}\\n'))")
        assert shown.evaluate("document.querySelectorAll('.line.event').length") < 100

    back = shown.role("button", "Events before these")
    holds(kept, last)
    back.click()
    holds(stretch, last - kept)  # in the place of the newest: no more are held than before
    back.click()
    holds(last - kept - stretch, last - kept - stretch)
    assert back.play("isDisabled")  # the first event is there
    shown.role("button", "The newest events").click()
    holds(kept, last)
    slider = shown.role("slider")
    slider.play("fill", "700")
    holds(700, 700)  # a moment before those that are kept: they are read by themselves
    assert back.play("isDisabled")
    slider.play("fill", str(last - kept))
    holds(stretch, last - kept)
    shown.evaluate("document.querySelector('.table .scroll').scrollTo(0, 0)")
    slider.play("fill", str(last - kept - 20))
    holds(stretch, last - kept - 20)  # as many as before, and one reads on at their end
    shown.role("button", "Jump to live").click()
    back.click()
    holds(stretch, last - kept)
    slider.play("fill", str(last - 500))
    holds(kept - 500, last - 500)  # another moment ends what was read for the one before
    shown.role("button", "Jump to live").click()
    holds(kept, last)


DEEP = f"""
hai: flow/v1
name: deep_paths
version: 1
steps: [{{id: {"outer_" * 9}a, parallel: {{{"branch_" * 8}b: [{{id: {"inner_" * 9}c, say: x}}], b: [{{say: y}}]}}}}]
"""
ROWS_ARE_WHOLE = """(() => {
  const rows = [...document.querySelectorAll('.line.fall[data-path]')];
  const boxes = rows.map((row) => row.getBoundingClientRect()).sort((a, b) => a.top - b.top);
  return boxes.every((box, i) => i === 0 || box.top >= boxes[i - 1].bottom - 1)
    && rows.every((row) => row.innerText.replaceAll('\\n', '').includes(row.dataset.path))
    && rows.every((row) => [...row.querySelectorAll('*')].every((each) => each.scrollWidth <= each.clientWidth + 1
      || getComputedStyle(each).display === 'inline'));
})()"""


def test_a_run_fits_a_phone(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    http.post("/v1/workflows", content=DEEP.encode(), headers=YAML).raise_for_status()
    pending = asked("refund", order="PH-1", amount=71)
    shown = page(**PHONE)
    for tab in TABS:
        shown.goto(f"/console/runs/{pending['run_id']}?tab={tab}")
        shown.role("tab", selected=True).there()
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        assert shown.axe() == [], tab
    deep = http.post("/v1/runs", json={"workflow": "deep_paths", "input": {}}).raise_for_status().json()
    ended(http, deep["id"])
    steps = http.get(f"/v1/runs/{deep['id']}/steps").json()["items"]
    shown.goto(f"/console/runs/{deep['id']}?tab=waterfall").locator(f"[data-path='{steps[-1]['path']}']").there()
    shown.until(ROWS_ARE_WHOLE)
