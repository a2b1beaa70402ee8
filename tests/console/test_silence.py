"""What the console's pages say while a server says nothing, or has no database: never that something was done."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.clients import rig
from tests.console.browser import PHONE, Page
from tests.console.conftest import AT_ONCE, PATIENCE, pending_of
from tests.console.test_pages_in_trouble import LOST, flow, opened, publish, typed
from tests.console.test_sessions import signed_in
from tests.support.identities import KEYS
from tests.support.postgres import Server, connecting, run_apart
from tests.support.server import ServerProcess, serving

SILENT = "The server hasn't answered yet"
THANKS = "Done. Your decision has been recorded."

Opened = Callable[..., Page]


@pytest.fixture
def alone(dsn: str) -> Iterator[ServerProcess]:
    """A server of its own, which nobody else is waiting for."""
    with serving(dsn, may_fail=True) as process:  # what it does when it goes on is not of these tests
        yield process
        process.process.send_signal(signal.SIGCONT)


@pytest.fixture
def at(driver: rig.Driver, alone: ServerProcess) -> Iterator[Opened]:
    """New pages of that server."""
    pages: list[Page] = []

    def new(path: str, **options: Any) -> Page:
        pages.append(Page(driver, alone.url, None, {"locale": "en-GB", **options}))
        pages[-1].play(["addInitScript", {"content": AT_ONCE}])
        return pages[-1].goto(path)

    yield new
    complaints = [each.complaints() for each in pages]
    for each in pages:
        each.close()
    assert not any(complaints)


@contextmanager
def silent(process: ServerProcess) -> Iterator[None]:
    """Meanwhile the server takes connections and requests, and says nothing."""
    process.process.send_signal(signal.SIGSTOP)
    yield
    process.process.send_signal(signal.SIGCONT)


def asked(server: ServerProcess, workflow: str = "refund") -> dict[str, Any]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        run = http.post("/v1/runs", json={"workflow": workflow}).raise_for_status().json()
        return pending_of(http, run["id"])


def now(server: ServerProcess, path: str) -> Any:
    return httpx2.get(server.url + path, timeout=PATIENCE).raise_for_status().json()


def sent(shown: Page, path: str) -> int:
    """How many requests to it have been answered."""
    return int(
        shown.evaluate(f"performance.getEntriesByType('resource').filter((e) => e.name.endsWith('{path}')).length")
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", ["/console/inbox/{}", "/console/decide/{}"])
def test_a_decision_at_a_silent_server_is_shown_as_open_and_the_page_waits(
    at: Opened, alone: ServerProcess, path: str
) -> None:
    pending = asked(alone)
    shown = at(path.format(pending["id"]), **PHONE)
    shown.role("button", "Approve").there()
    with silent(alone):
        shown.role("button", "Approve").click()
        shown.words(SILENT).there()
        assert shown.axe() == []
        shown.words(LOST).there()
        assert THANKS not in shown.locator("body").text()
        assert shown.evaluate("[...document.querySelectorAll('.actions button')].every((each) => each.disabled)")
    shown.words(THANKS).there()
    shown.words(SILENT).gone()
    shown.words(LOST).gone()
    assert now(alone, f"/v1/pendings/{pending['id']}")["status"] == "approve"


@pytest.mark.timeout(240)
def test_a_question_of_the_page_holds_nobody_for_whom_no_answer_comes(at: Opened, alone: ServerProcess) -> None:
    run = asked(alone)["run_id"]
    shown = at(f"/console/runs/{run}")
    shown.role("button", "Pause").click()
    dialog = shown.role("dialog")
    with silent(alone):
        dialog.role("button", "Pause").click()
        for _ in range(2):
            shown.press("Escape")  # what was sent is not called back by that
        assert dialog.role("button", "Cancel").play("isDisabled")
        dialog.locator("[role=alert]").there()
        assert SILENT in dialog.text()
        assert shown.axe() == []
        shown.press("Escape")
        dialog.gone()
        shown.words(SILENT).there()
    shown.role("button", "Resume").there()
    shown.words(SILENT).gone()


@pytest.mark.timeout(240)
def test_what_is_sent_twice_while_nothing_answers_happens_once(at: Opened, alone: ServerProcess) -> None:
    pending = asked(alone)
    shown = at(f"/console/inbox/{pending['id']}")
    shown.role("button", "Approve").there()
    with silent(alone):
        shown.press("a")
        shown.press("a")
    shown.role("dialog").role("button", "Approve").there()
    assert sent(shown, "/check") == 1
    opened(shown.goto("/console/settings"))
    shown.label("Owner (user:… or service:…)").fill("service:twice")
    with silent(alone):
        for _ in range(2):
            shown.label("Owner (user:… or service:…)").play("press", "Enter")
    shown.words("Copy the key now").there()
    keys = now(alone, "/v1/keys?limit=200")["items"]
    assert [each["principal"] for each in keys] == ["service:twice"]


@pytest.mark.timeout(240)
def test_a_proof_that_one_does_not_wait_for_proves_nothing(at: Opened, alone: ServerProcess) -> None:
    shown = at("/console/audit")
    shown.locator(".records li").first().there()
    with silent(alone):
        shown.role("button", "Verify the chain").click()
        shown.role("button", "Stop").click()
        shown.role("button", "Stop").gone()
    shown.role("button", "Verify the chain").click()
    shown.words("Verified").there()
    assert shown.locator(".note.bad").count() == 0


@pytest.mark.timeout(240)
def test_what_is_typed_while_a_text_is_tidied_up_is_not_lost(at: Opened, alone: ServerProcess) -> None:
    with httpx2.Client(base_url=alone.url, timeout=PATIENCE) as http:
        publish(http, flow("untidy"))
    shown = at("/console/workflows/untidy/edit")
    shown.words("No errors.").there()
    shown.locator(".cm-content").there()
    with silent(alone):
        shown.role("button", "Format").click()
        typed(shown, "# While it was away\n")
    shown.until("!document.querySelector('main button[disabled]')")
    assert "# While it was away" in shown.locator(".cm-content").text()


@pytest.mark.timeout(240)
def test_who_can_not_be_signed_out_is_told_so(driver: rig.Driver, dsn: str) -> None:
    with serving(dsn, environment=KEYS) as server:
        shown = signed_in(driver, server, dsn).goto("/console/settings")
        shown.role("button", "Sign out").there()
        shown.offline(True)
        shown.role("button", "Sign out").click()
        shown.words("The server isn't responding.").there()
        shown.offline(False)
        shown.role("button", "Sign out").click()
        shown.role("heading", "Sign in").there()
        assert shown.complaints() == []
        shown.close()


async def administer(admin_dsn: str, *statements: str) -> None:
    async with connecting(admin_dsn) as connection:
        for each in statements:
            await connection.execute(each)


@contextmanager
def no_database(server: Server, dsn: str) -> Iterator[None]:
    """Meanwhile nobody gets a connection with the database, and those that were are cut."""
    admin, name = server.dsn("postgres"), urlsplit(dsn).path.removeprefix("/")
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    run_apart(administer(admin, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false', end))
    try:
        yield
    finally:
        run_apart(administer(admin, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'))


@pytest.mark.timeout(240)
def test_a_decision_without_database_is_refused_and_taken_when_it_is_back(
    at: Opened, alone: ServerProcess, dsn: str, postgres_server: Server
) -> None:
    pending = asked(alone)
    shown = at(f"/console/decide/{pending['id']}")
    shown.label("Comment").fill("Checked")
    with no_database(postgres_server, dsn):
        shown.role("button", "Approve").click()
        shown.locator(".card [role=alert]").there()
        assert THANKS not in shown.locator("body").text()
        assert shown.label("Comment").value() == "Checked"
    shown.until("fetch('/readyz').then((each) => each.ok)")
    shown.role("button", "Approve").click()
    shown.words(THANKS).there()
    assert now(alone, f"/v1/pendings/{pending['id']}")["reason"] == "Checked"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "empty"), [("Runs", "0 runs"), ("Workflows", "0 workflows"), ("Schedules", "0 sche")])
def test_a_list_that_could_not_be_read_is_not_said_to_be_empty(
    at: Opened, dsn: str, postgres_server: Server, name: str, empty: str
) -> None:
    shown = at(f"/console/{name.lower()}")  # so that its script is here
    shown.role("heading", name, exact=True).there()
    shown.goto("/console/settings").role("heading", "Settings").there()
    with no_database(postgres_server, dsn):
        shown.role("link", name).first().click()
        shown.locator("main [role=alert]").there()
        assert empty not in shown.locator("main").text()
    shown.role("button", "Try again").click()
    shown.until("!document.querySelector('main [role=alert]')")
