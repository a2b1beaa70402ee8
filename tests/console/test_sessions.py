"""Who reads the console: signed in by a link, signed out in the middle, and there again after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from hai_flow.api.auth.sessions import sign_link_token
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.clients import rig
from tests.console.browser import Page
from tests.console.conftest import PATIENCE, pending_of
from tests.console.test_forms import ask_with_form
from tests.support.identities import KEYS, People
from tests.support.server import ServerProcess, serving


def link(dsn: str) -> str:
    return "/sign-in/link/" + People(dsn).do(lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:local"))  # type: ignore[arg-type]


def signed_in(driver: rig.Driver, server: ServerProcess, dsn: str) -> Page:
    """A page whose reader has used a sign-in link."""
    shown = Page(driver, server.url, None, {"locale": "en-GB"}).goto(link(dsn))
    shown.role("button", "Sign in").click()
    shown.role("heading", "Inbox").there()
    return shown


@pytest.mark.timeout(240)  # two servers have to start
def test_a_link_session_that_ended_signs_in_again_and_keeps_the_draft(
    driver: rig.Driver, dsn: str, picture: Callable[[Page, str], None]
) -> None:
    with serving(dsn, environment=KEYS) as server:
        assert httpx2.get(f"{server.url}/v1/session", timeout=PATIENCE).status_code == 401
        stranger = Page(driver, server.url, None, {"locale": "en-GB"}).goto("/console/inbox")
        stranger.role("heading", "Sign in").there()
        assert stranger.axe() == []
        picture(stranger, "sign-in")
        shown = signed_in(driver, server, dsn)
        shown.role("button", "Start the demo").click()
        shown.role("link", name={"/Pay 180 back/": ""}).click()
        shown.label("Comment").fill("Half of it")
        shown.goto("/console/settings")
        shown.role("button", "Sign out").click()
        shown.role("heading", "Sign in").there()
        again = Page(driver, server.url, shown, {}).goto(link(dsn))
        again.role("button", "Sign in").click()
        again.role("heading", "Inbox").there()
        shown.play(["bringToFront"])
        shown.role("button", "Continue").click()
        shown.role("link", "Inbox").first().click()
        shown.role("link", name={"/Pay 180 back/": ""}).click()
        shown.words("Draft restored.").there()
        assert shown.label("Comment").value() == "Half of it"
        shown.role("button", "Approve").click()
        shown.words("Done. Your decision has been recorded.").there()
        for each in (shown, stranger):
            assert each.complaints() == []
            each.close()


FORM = {
    "type": "object",
    "required": ["scan"],
    "properties": {"scan": {"type": "string", "format": "file"}, "note": {"type": "string"}},
}

REFUSED = """
globalThis.uploads = 0;
const before = fetch;
globalThis.fetch = (path, options) =>
  !String(path).startsWith("/v1/files") || ++uploads > 1
    ? before(path, options)
    : Promise.resolve(new Response('{"status": 401, "code": "auth.missing"}', { status: 401 }));
"""
"""The first upload finds no session any more."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("sends", ["decision", "file", "nothing of another"])
def test_what_the_end_of_a_session_cuts_off_is_sent_after_signing_in(
    driver: rig.Driver, dsn: str, tmp_path: Path, sends: str
) -> None:
    with serving(dsn, environment=KEYS) as server:
        shown = signed_in(driver, server, dsn)
        people = People(dsn)
        with httpx2.Client(
            base_url=server.url, headers=people.person("user:pat", roles=["operator", "publisher", "decider"])
        ) as http:
            pending = ask_with_form(http, FORM)
        if sends == "decision":
            shown.role("button", "Start the demo").click()
            shown.role("link", name={"/Pay 180 back/": ""}).click()
            shown.label("Comment").fill("Half of it")
            shown.role("button", "Approve").click()
            shown.role("button", {"/^Undo/": ""}).there()
        else:
            shown.play(["addInitScript", {"content": REFUSED}])
            shown.goto(f"/console/inbox/{pending['id']}").label("Note").fill("Mine")
            (tmp_path / "scan.txt").write_text("scanned")
            shown.locator("input[type=file]").play("setInputFiles", str(tmp_path / "scan.txt"))
        people.do(lambda connection: connection.execute("DELETE FROM sessions"))
        shown.role("heading", "Sign in").there()
        if sends == "nothing of another":
            shown.label("API key").fill(people.key("user:eve", roles=["decider"])[1])
            shown.role("button", "Sign in").click()
            shown.role("button", "Send").there()
            assert shown.label("Note").value() == ""
            assert shown.evaluate("uploads") == 1
            shown.close()
            return
        again = Page(driver, server.url, shown, {}).goto(link(dsn))
        again.role("button", "Sign in").click()
        again.role("heading", "Inbox").there()
        shown.play(["bringToFront"])
        shown.role("button", "Continue").click()
        if sends == "decision":
            shown.until(
                "fetch('/v1/inbox/decided').then((each) => each.json()).then(({items}) =>"
                " items.some((each) => each.decision === 'approve' && each.reason === 'Half of it'))"
            )
        else:
            shown.role("link", "scan.txt").there()
            assert shown.evaluate("uploads") == 2
            assert shown.label("Note").value() == "Mine"
            shown.role("button", "Send").click()
            shown.words("Done. Your decision has been recorded.").there()
        assert shown.complaints() == []
        shown.close()


@pytest.mark.timeout(240)
def test_a_restart_of_the_server_is_said_and_the_page_goes_on_by_itself(driver: rig.Driver, dsn: str) -> None:
    with serving(dsn) as first:
        port = first.url.rpartition(":")[2]
        shown = Page(driver, first.url, None, {"locale": "en-GB"}).goto("/console/inbox")
        shown.words("Live").there()
        first.kill()
        shown.words("Connection lost.").there()
    with serving(dsn, environment={"HAI_FLOW_PORT": port}) as second:
        shown.words("Live").there()
        with httpx2.Client(base_url=second.url, timeout=PATIENCE) as http:
            run = http.post("/v1/runs", json={"workflow": "refund"}).raise_for_status().json()
            pending_of(http, run["id"])
        shown.role("link", name={"/Pay 180 back/": ""}).click()
        shown.role("button", "Approve").click()
        shown.words("Done. Your decision has been recorded.").there()
        assert shown.complaints() == []
        shown.close()
