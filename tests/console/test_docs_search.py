"""The search of the documentation, in a browser: what people type finds its answer among the first three results."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs import site
from tests.clients import rig
from tests.console.browser import Page

ROOT = Path(__file__).resolve().parents[2]

# What was typed, and the sections that answer it: a page alone stands for any section of it.
SEARCHES = {
    "secrets": ("questions#store-secrets-and-api-keys", "security#secrets"),
    "docker": ("questions#run-it-in-docker", "deploy"),
    "kubernetes": ("questions#run-it-in-kubernetes-helm", "deploy"),
    "backup": ("questions#back-up-and-restore", "backups"),
    "tenants": ("questions#serve-several-tenants", "security#tenants"),
    "undo": ("questions#undo-what-was-done-compensation-saga", "language#retry-catch-undo"),
    "upgrade": ("questions#upgrade-to-a-new-release", "upgrades"),
    "first admin key": ("questions#get-the-first-admin-key", "cli#keys"),
    "prometheus": ("questions#monitor-it-with-prometheus-and-grafana", "operations"),
    "slack": ("questions#send-a-message-to-slack", "notifications"),
    "two approvers": ("questions#require-two-approvers-four-eyes-quorum", "language#approve"),
    "webhook": ("questions#start-a-run-by-a-webhook", "language#triggers", "security#webhooks"),
    "test a deadline": ("questions#test-a-deadline-or-any-workflow", "testing"),
    "publish a workflow": ("questions#publish-a-workflow", "cli#publish-versions-diff-migrate-retire"),
    "send an email": ("questions#send-an-email", "notifications"),
    "single sign-on": (
        "questions#use-single-sign-on-sso-oidc-openid-connect-entra-okta-keycloak",
        "security#tokens-of-an-identity-provider",
    ),
    "why is a run stuck": ("questions#find-out-why-a-run-is-stuck",),
    "loop over a list": ("questions#loop-over-a-list", "language#for_each-and-repeat"),
    "call a REST API": ("questions#call-a-rest-api-http-request", "language#http"),
    "retry a failed run": ("questions#retry-a-failed-run", "cli#looking-and-controlling"),
    "delete old runs": ("questions#delete-old-runs-retention", "retention"),
    "upload a file in a form": ("questions#upload-a-file-in-a-form-photo-scan-attachment",),
    "change arguments before approving": ("questions#change-arguments-before-approving", "language#approval"),
    "sign-in link": ("questions#get-a-sign-in-link-for-the-console", "cli#sign-in"),
    "deadline passes": ("questions#set-what-happens-when-the-deadline-passes", "language#on_deadline"),
    "cron": ("questions#run-on-a-schedule-cron", "language#triggers"),
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test prints what it finds."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, built from the checkout."""
    staged = tmp_path_factory.mktemp("staged")
    try:
        site.stage(staged)
        html = site.build(staged)
    except SystemExit as error:
        pytest.skip(f"The site can't be built here: {error}")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def search(driver: rig.Driver, address: str) -> Iterator[Callable[[str], list[str]]]:
    """The addresses of the results for what is typed, the best first. The page that searches is loaded once: to read
    the index takes a second."""
    page = Page(driver, address, None, {"viewport": {"width": 1280, "height": 900}})
    page.goto("/index.html")
    page.locator(".md-search__button").first().click()
    box = page.locator("dialog input").first()

    def type_in(text: str) -> list[str]:
        box.fill("")
        page.until(f"{RESULTS}.length === 0")
        box.fill(text)
        page.until(f"{RESULTS}.length > 0")
        return list(page.evaluate(RESULTS))

    yield type_in
    page.close()


@pytest.mark.timeout(600)  # the site is built first
def test_the_answer_to_what_people_type_is_among_the_first_three(search: Callable[[str], list[str]]) -> None:
    found = {typed: search(typed) for typed in SEARCHES}
    assert {typed: found[typed][:3] for typed, wanted in SEARCHES.items() if not _is_among(found[typed], wanted)} == {}


@pytest.mark.timeout(600)
def test_each_question_of_the_questions_page_is_found_by_its_own_words(search: Callable[[str], list[str]]) -> None:
    text = (ROOT / "docs" / "questions.md").read_text()
    questions = re.findall(r"^## ([^(\n]+?) *(?:\(.*\))?$", text, re.MULTILINE)
    assert len(questions) >= 40
    found = {typed: search(typed) for typed in questions}
    missing = [typed for typed in questions if not any("/questions.html#" in each for each in found[typed][:3])]
    assert missing == []


def _is_among(found: list[str], wanted: tuple[str, ...]) -> bool:
    places = {place for each in found[:3] for place in _places(each)}
    return not places.isdisjoint(wanted)


def _places(address: str) -> tuple[str, str]:
    page, _, section = address.partition("#")
    return Path(page).stem, f"{Path(page).stem}#{section}"


RESULTS = """[...document.querySelectorAll('*')].filter((each) => each.shadowRoot)
  .flatMap((each) => [...each.shadowRoot.querySelectorAll('a[href]')]).map((each) => each.pathname + each.hash)"""
