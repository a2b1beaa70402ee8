"""Pages for people, visited with a real browser, which itself decides what it sends with a form.

These tests are left out where there is no Chromium; `make test-browsers` installs one.
"""

from __future__ import annotations

from hai_flow.api.auth.sessions import sign_link_token
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.api.test_links import Mailed, mailed
from tests.support.chromium import Chromium
from tests.support.identities import People
from tests.support.server import ServerProcess

__all__ = ["mailed"]


def test_the_link_that_dev_prints_signs_a_browser_in_once(browser: Chromium, strict: ServerProcess, dsn: str) -> None:
    token = People(dsn).do(lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:local"))  # type: ignore[arg-type]
    with browser.tab() as page:
        page.open(f"{strict.url}/sign-in/link/{token}")
        page.shows("This link signs this browser in")
        page.click("Sign in")
        page.until("location.pathname.startsWith('/console/') && document.readyState === 'complete'")
        page.open(f"{strict.url}/v1/session")
        assert '"principal":"user:local"' in page.shows('"way":"session"')
        page.open(f"{strict.url}/sign-in/link/{token}")
        page.shows("This link signs this browser in")
        page.click("Sign in")
        said = page.shows("Not signed in")
        assert "This link was used, or its time is over" in said
        assert "hai-flow sign-in WHO prints a link" in said
        assert page.evaluate("document.querySelector('h1').innerText") == "Not signed in"
        page.until("document.querySelector('a[href=\"/\"]').click() ?? true")
        page.shows("Workflows that wait for people.")


def test_who_can_t_sign_in_here_is_told_what_to_do_instead(browser: Chromium, strict: ServerProcess) -> None:
    with browser.tab() as page:
        page.open(f"{strict.url}/sign-in")
        said = page.shows("Not signed in")
        assert "Browsers can't sign in here" in said
        assert "hai-flow keys create" in said


def test_a_question_is_decided_on_the_page_that_a_mail_leads_to(browser: Chromium, mailed: Mailed) -> None:
    _, link = mailed.ask()
    with browser.tab() as page:
        page.open(f"{str(mailed.http.base_url).rstrip('/')}{link}")
        page.click("Approve")
        page.shows("Done. Your decision has been recorded.")
