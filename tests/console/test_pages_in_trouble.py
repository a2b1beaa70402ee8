"""The pages of workflows, schedules, the audit, feedback and settings, and a run's fork, comparison and command for
many, when things are not as they should be: a lost connection, a session that ends, a refusal, hostile texts, ids of
others; and how they look on a phone, in the dark and in Chinese."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.clients import rig
from tests.console.browser import PHONE, Page
from tests.console.conftest import PATIENCE, NewPage
from tests.console.test_runs import broken
from tests.console.test_sessions import link, signed_in
from tests.support.examples import by_night
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.server import YAML, serving

Asked = Callable[..., dict[str, Any]]

LOST = "Connection lost."
HOSTILE = "<img src=x onerror=alert(1)></pre><script>alert(1)</script> abc\u202egpj.exe "
SECTIONS = "main details.card > summary"


def flow(name: str, version: int = 1, **more: Any) -> bytes:
    """A workflow that asks for an amount, with other keys if they are given."""
    number = {"type": "number", "maximum": 9}
    head = {"hai": "flow/v1", "name": name, "version": version}
    schema = {"type": "object", "properties": {"amount": number}, "required": ["amount"]}
    steps = [{"id": "sure", "approve": {"title": "Sure?", "from": "anyone", "deadline": "2d"}}, {"return": "done"}]
    keys = {**head, "input": schema, **more, "steps": steps}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()).encode()


def publish(http: httpx2.Client, source: bytes) -> None:
    done = http.post("/v1/workflows", content=source, headers=YAML)
    assert done.status_code in (200, 201), done.text


@pytest.fixture
def workflow(http: httpx2.Client) -> str:
    """The name of a workflow of its own that asks for an amount."""
    name = unique("trouble").replace("-", "_")
    publish(http, flow(name))
    return name


def opened(shown: Page) -> Page:
    """The page with all that it keeps folded."""
    shown.locator(SECTIONS).first().there()
    shown.evaluate(f"document.querySelectorAll('{SECTIONS}').forEach((each) => each.click())")
    return shown


def lose(shown: Page) -> None:
    shown.offline(True)
    shown.words(LOST).there()


def find(shown: Page) -> None:
    shown.offline(False)
    shown.words(LOST).gone()


def test_a_text_written_offline_is_kept_and_published_afterwards(
    page: NewPage, workflow: str, http: httpx2.Client
) -> None:
    shown = page().goto(f"/console/workflows/{workflow}/edit")
    shown.words("No errors.").there()
    lose(shown)
    typed(shown, "# From the train\n")
    shown.words("The text can't be checked right now.").there()
    assert shown.axe() == []
    find(shown)
    shown.words("No errors.").there()
    shown.role("button", "Publish").click()
    lose(shown)
    shown.role("dialog").role("button", "Publish").click()
    shown.words("The server isn't responding.").there()
    find(shown)
    shown.role("dialog").role("button", "Publish").click()
    shown.words("This version is already published with different content.").there()
    shown.role("button", name={"/Next version number/": ""}).click()
    shown.until("!document.querySelector('dialog .note.bad')")
    shown.role("dialog").role("button", "Publish").click()
    shown.role("tab", "Picture").there()
    published = http.get(f"/v1/workflows/{workflow}").json()
    assert (published["version"], published["source"].splitlines()[-1]) == (2, "# From the train")


def typed(shown: Page, text: str) -> None:
    """At the end of the editor's text."""
    shown.locator(".cm-content").play("press", "Control+End")
    shown.locator(".cm-content").play("pressSequentially", text)


def test_an_offline_start_fork_or_delegation_stays_and_is_sent_afterwards(
    page: NewPage, workflow: str, http: httpx2.Client
) -> None:
    shown = page().goto(f"/console/workflows/{workflow}?pane=start")
    shown.label("amount").fill("7")
    lose(shown)
    shown.role("button", "Start a run").click()
    shown.words("The server isn't responding.").there()
    assert shown.label("amount").value() == "7"
    find(shown)
    shown.role("button", "Start a run").click()
    shown.words("The run has started.").there()

    run = broken(http)
    shown.goto(f"/console/runs/{run['id']}")
    shown.role("button", "Fork", exact=True).click()
    dialog = shown.role("dialog")
    dialog.role("button", "Change the input").click()
    dialog.locator("textarea").first().fill('{"amount": 3}')
    shown.offline(True)
    dialog.role("button", "See what it would do").click()
    dialog.locator("[role=alert]").there()
    assert shown.axe() == []
    shown.offline(False)
    shown.play(["reload"])
    dialog.there()
    assert dialog.locator("textarea").first().value() == '{"amount": 3}'
    dialog.role("button", "See what it would do").click()
    dialog.role("heading", "What would happen").there()

    opened(shown.goto("/console/settings"))
    shown.label("Who (user:…)").fill("user:stand-in")
    shown.label("Until", exact=True).fill("2090-01-01T00:00")
    lose(shown)
    shown.role("button", "Delegate").click()
    shown.words("The server isn't responding.").there()
    assert shown.label("Who (user:…)").value() == "user:stand-in"
    find(shown)
    opened(shown.goto("/console/settings"))
    assert shown.label("Until", exact=True).value() == "2090-01-01T00:00"
    shown.role("button", "Delegate").click()
    shown.locator("[role=alert]").there()  # refused: for no longer than a year
    assert shown.label("Who (user:…)").value() == "user:stand-in"


def test_a_page_opened_offline_says_so_and_loads_when_back(page: NewPage) -> None:
    for path, heading in (("workflows", "Workflows"), ("audit", "Audit"), ("feedback", "Feedback")):
        shown = page().goto("/console/schedules")
        shown.locator("li.card").first().there()
        shown.goto("/console/" + path)  # so that its script is here
        shown.role("heading", heading, exact=True).there()
        shown.role("link", "Schedules").first().click()
        shown.locator("li.card").first().there()
        lose(shown)
        shown.role("link", heading, exact=True).first().click()
        shown.role("heading", heading, exact=True).there()
        shown.words(LOST).there()
        find(shown)
        shown.until("!document.querySelector('main [role=alert]')")


@pytest.mark.timeout(300)
def test_whose_session_ends_comes_back_to_every_form_as_it_was_left(driver: rig.Driver, dsn: str) -> None:
    with serving(dsn, environment=KEYS) as server:
        editor = People(dsn).person("user:author", roles=["publisher", "operator"])
        with httpx2.Client(base_url=server.url, headers=editor, timeout=PATIENCE) as http:
            publish(http, flow("trouble"))
            run = http.post("/v1/runs", json={"workflow": "trouble", "input": {"amount": 1}}).raise_for_status().json()
        shown = signed_in(driver, server, dsn)
        shown.goto("/console/workflows/trouble/edit").words("No errors.").there()
        typed(shown, "# Half\n")
        shown.goto("/console/workflows/trouble?pane=start").label("amount").fill("6")
        opened(shown.goto("/console/settings")).label("Who (user:…)").fill("user:later")
        opened(shown.goto("/console/schedules"))
        shown.label("Workflow", exact=True).play("selectOption", "trouble")
        shown.label("When (minute hour").fill("5 5 * * *")
        leave_and_sign_in_again(driver, shown, dsn)
        assert shown.evaluate("location.pathname") == "/console/schedules"
        assert shown.label("When (minute hour").value() == "5 5 * * *"
        assert shown.label("Workflow", exact=True).value() == "trouble"
        opened(shown.goto("/console/settings"))
        assert shown.label("Who (user:…)").value() == "user:later"
        shown.goto("/console/workflows/trouble?pane=start")
        assert shown.label("amount").value() == "6"
        shown.goto(f"/console/runs/{run['id']}").role("button", "Fork", exact=True).click()
        dialog = shown.role("dialog")
        dialog.role("button", "Change the input").click()
        dialog.locator("textarea").first().fill('{"amount": ')
        leave_and_sign_in_again(driver, shown, dsn)
        assert dialog.there().locator("textarea").first().value() == '{"amount": '
        dialog.role("button", "Cancel").click()
        shown.goto("/console/workflows/trouble?pane=start")
        shown.role("button", "Start a run").click()
        shown.words("The run has started.").there()
        shown.goto("/console/workflows/trouble/edit").words("Draft restored.").there()
        assert shown.complaints() == []
        shown.close()


def leave_and_sign_in_again(driver: rig.Driver, shown: Page, dsn: str) -> None:
    """The session is ended in another tab, which the page notices by itself; then there is a new one."""
    beside = Page(driver, shown.url, shown, {}).goto("/console/settings")
    beside.role("button", "Sign out").click()
    beside.role("heading", "Sign in").there()
    shown.play(["bringToFront"])
    shown.role("heading", "Sign in").there()
    assert shown.axe() == []
    again = Page(driver, shown.url, shown, {}).goto(link(dsn))
    again.role("button", "Sign in").click()
    again.role("heading", "Inbox").there()
    shown.play(["bringToFront"])
    shown.role("button", "Continue").click()
    shown.locator("main h1").first().there()


@pytest.mark.timeout(300)
def test_what_is_not_there_and_what_is_another_tenants_look_the_same(driver: rig.Driver, dsn: str) -> None:
    with serving(dsn, environment=KEYS) as server:
        other = People(dsn).person("user:other", roles=["publisher", "operator"], tenant="acme")
        with httpx2.Client(base_url=server.url, headers=other, timeout=PATIENCE) as http:
            publish(http, flow("theirs"))
            run = http.post("/v1/runs", json={"workflow": "theirs", "input": {"amount": 1}}).raise_for_status().json()
        unknown = "00000000-0000-7000-8000-000000000000"
        shown = signed_in(driver, server, dsn)

        def said(path: str) -> str:
            shown.goto("/console/" + path)
            shown.until("document.querySelector('main')?.innerText.includes('have access to it')")
            assert shown.axe() == [], path
            return shown.locator("main").text()

        pages = [
            ("runs/{}", unknown, run["id"]),
            ("runs/{}/compare", unknown, run["id"]),
            ("workflows/{}", "nobodys", "theirs"),
            ("workflows/{}?version=7", "nobodys", "theirs"),
            ("workflows/{}/edit", "nobodys", "theirs"),
            ("feedback?thread={}", unknown, run["thread_id"]),
        ]
        found = {said(path.format(id)) for path, *ids in pages for id in ids}
        assert found == {"Not found\n\nNot found, or you don't have access to it."}
        assert said("runs/no-id") in found
        assert said("runs/no-id/compare") in found
        assert shown.complaints() == []
        shown.close()


def bounded(shown: Page, where: str) -> None:
    """No text became markup, and however much there is, the page stays one that can be read and scrolled."""
    assert shown.evaluate("document.querySelectorAll('#root img, #root script, #root style').length") == 0, where
    assert shown.evaluate("document.querySelectorAll('*').length") < 6_000, where
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), where


def test_hostile_texts_of_workflows_schedules_and_keys_are_bounded_text(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    name = unique("hostile").replace("-", "_")
    word = "w" * 100_000
    schedule = {"cron": "0 9 * * *", "timezone": "UTC", "input": {"note": HOSTILE + "w" * 1000}}
    for version in (1, 2):
        asks = {"type": "object", "properties": {"note": {"type": "string", "description": HOSTILE}}}
        more = {"title": (HOSTILE * 2)[:200], "description": f"{HOSTILE}{version}{word}", "input": asks}
        publish(http, flow(name, version, **more, triggers=[{"schedule": schedule}]))
    key = {"principal": "service:x", "name": (HOSTILE * 3)[:100], "roles": ["operator"]}
    http.post("/v1/keys", json=key).raise_for_status()
    pending = asked("note", title=HOSTILE)
    decided = {"decision": "approve", "reason": (HOSTILE + "w" * 2000)[:2000]}
    http.post(f"/v1/pendings/{pending['id']}/decide", json=decided).raise_for_status()
    thread = http.get(f"/v1/runs/{pending['run_id']}").json()["thread_id"]
    opinion = {"comment": HOSTILE + "w" * 9_000, "labels": [(HOSTILE + "w" * 100)[:100]], "rating": "down"}
    opinion_path = f"/v1/threads/{thread}/feedback/pendings/{pending['id']}"
    http.put(opinion_path, json=opinion).raise_for_status()

    shown = page()
    for path, fact in (
        ("workflows?q=hostile", "main li.card"),
        (f"workflows/{name}", "svg [data-path]"),
        (f"workflows/{name}?pane=source", ".source-text"),
        (f"workflows/{name}?pane=versions&from=1&to=2", "ins"),
        (f"workflows/{name}/edit", ".cm-content"),
        ("schedules", f"a[href$='/workflows/{name}']"),
        (f"audit?run_id={pending['run_id']}", ".records li"),
        (f"feedback?thread={thread}", "main li.card"),
        ("settings", SECTIONS),
    ):
        shown.goto("/console/" + path).locator(fact).first().there()
        if path == "settings":
            opened(shown).locator("li:has-text('service:x')").first().there()
        if path.startswith("audit"):
            shown.evaluate("document.querySelectorAll('.records details').forEach((each) => { each.open = true; })")
        bounded(shown, path)
        assert shown.axe() == [], path
    shown.goto(f"/console/feedback?thread={thread}").words("alert(1)").there()


@pytest.mark.parametrize("given", ["w" * 1_000_000, [{"n": n} for n in range(10_000)]], ids=["one-word", "many"])
def test_a_huge_input_is_forked_and_compared_in_a_page_that_answers(page: NewPage, asked: Asked, given: Any) -> None:
    pending = asked("state", given=given)
    shown = page().goto(f"/console/runs/{pending['run_id']}/compare?from=1")
    shown.until("document.querySelector('[data-compared]') !== null")
    bounded(shown, "compare")
    assert shown.evaluate("document.body.innerText.length") < 80_000
    shown.goto(f"/console/runs/{pending['run_id']}").role("button", "Fork", exact=True).click()
    dialog = shown.role("dialog")
    dialog.role("button", "Change the input").click()
    area = dialog.locator("textarea").first().there()
    bounded(shown, "fork")
    area.fill('{"given": 1}')
    dialog.role("button", "See what it would do").click()
    dialog.role("heading", "What would happen").there()


LOOKS = [
    {"locale": "en-GB", "colorScheme": "light", **PHONE},
    {"locale": "zh-CN", "colorScheme": "dark", **PHONE},
    {"locale": "zh-CN", "colorScheme": "light"},
    {"locale": "en-GB", "colorScheme": "dark"},
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "look", by_night(LOOKS, [LOOKS[0], LOOKS[3]]), ids=lambda look: f"{look['locale']}-{look['colorScheme']}"
)
def test_these_pages_are_accessible_and_fit_the_screen_in_every_look(
    page: NewPage, workflow: str, http: httpx2.Client, look: dict[str, Any]
) -> None:
    publish(
        http,
        flow(
            workflow,
            2,
            title="Two",
            triggers=[{"schedule": {"cron": "0 9 * * *", "timezone": "UTC", "input": {"amount": 1}}}],
        ),
    )
    run = broken(http)
    shown = page(**look)
    for path, fact, click in (
        (f"workflows/{workflow}?pane=source", ".source-text", ""),
        (f"workflows/{workflow}?pane=versions&from=1&to=2", "ins", ""),
        (f"workflows/{workflow}?pane=start", "main form input", ""),
        (f"workflows/{workflow}?pane=chat", "main form input", ""),
        (f"workflows/{workflow}/edit", "svg [data-path]", ""),
        ("workflows/new", "svg [data-path]", ""),
        ("schedules", f"a[href$='/workflows/{workflow}']", ""),
        ("audit", ".records li", ""),
        (f"feedback?thread={run['thread_id']}", "main h1", ""),
        ("settings", SECTIONS, ""),
        (f"runs/{run['id']}/compare?from=1", "[data-compared]", ""),
        (f"runs/{run['id']}", "dialog select", "/^(Fork|分叉)$/"),
        ("runs?workflow=breaks", "dialog select", "/^(Bulk actions|批量操作)/"),
        ("workflows/nobodys", "main h1", ""),
    ):
        shown.goto("/console/" + path)
        if click:
            shown.role("button", name={click: ""}).first().click()
        shown.locator(fact).first().there()
        if path in ("settings", "schedules"):
            opened(shown)
        shown.until("!/加载中|Loading/.test(document.querySelector('main')?.innerText)")
        assert shown.axe() == [], path
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
