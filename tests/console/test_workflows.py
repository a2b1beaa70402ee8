"""Workflows in the console: read, written with the server's findings, compared, started, and run in a conversation."""

from __future__ import annotations

import httpx2
import pytest

from tests.console.conftest import NewPage
from tests.support.hai_client import unique
from tests.support.server import YAML

TEXT = """hai: flow/v1
name: NAME
version: 1
steps:
  - id: first
    return: one
"""


@pytest.fixture
def published(http: httpx2.Client) -> str:
    """The name of a workflow of its own, in two versions."""
    name = unique("written").replace("-", "_")
    for version, output in ((1, "one"), (2, "two")):
        text = TEXT.replace("NAME", name).replace("version: 1", f"version: {version}").replace("one", output)
        http.post("/v1/workflows", content=text.encode(), headers=YAML).raise_for_status()
    return name


def test_a_workflow_is_found_and_its_picture_tells_of_each_step(page: NewPage) -> None:
    shown = page().goto("/console/workflows?q=release")
    shown.role("link", name={"/elease/": ""}).first().click()
    shown.role("tab", "Picture").there()
    shown.locator("svg [data-path]").first().there()
    assert shown.axe() == []
    shown.locator("svg [data-path]").first().play("press", "Enter")
    shown.locator("aside dl").there()


def test_versions_are_compared_by_what_they_mean_and_a_move_is_rehearsed(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}?pane=versions&from=1&to=2")
    shown.words("changed").there()
    assert "one" in shown.locator("del").first().text()
    assert "two" in shown.locator("ins").first().text()
    shown.role("button", "Rehearse").click()
    shown.words("No run is in flight in that version.").there()
    assert shown.axe() == []


def test_a_start_that_is_refused_keeps_what_was_filled_in_and_says_what_is_missing(page: NewPage) -> None:
    shown = page().goto("/console/workflows/frontend?pane=start")
    shown.role("button", "Start a run").click()
    shown.locator(".error, [role=alert]").first().there()
    shown.label("What is painted").fill("fence")
    shown.role("button", "Start a run").click()
    shown.words("The run is started.").there()


def test_a_text_is_checked_as_one_types_and_its_draft_is_kept(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No mistakes.").there()
    shown.locator("section svg [data-path=first]").there()
    text = shown.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "  - retrun: 1\n")
    shown.words("1 mistake").there()
    assert "retrun" in shown.locator(".findings button").first().text()
    shown.words("The picture is that of the last text without mistakes.").there()
    assert shown.axe() == []
    shown.play(["reload"])
    shown.words("Your draft of this text was kept.").there()
    shown.role("button", "Discard the draft").click()
    shown.words("No mistakes.").there()


def test_keys_of_the_language_are_offered_where_they_may_stand(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No mistakes.").there()
    text = shown.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "  - appr")
    shown.locator(".cm-tooltip-autocomplete li").first().there()
    assert "approve" in shown.locator(".cm-tooltip-autocomplete").text()


def test_a_version_that_is_there_is_not_overwritten_and_the_next_one_is_published(
    page: NewPage, published: str, http: httpx2.Client
) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No mistakes.").there()
    text = shown.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "# more\n")
    shown.words("No mistakes.").there()
    shown.role("button", "Publish").click()
    shown.role("dialog").role("button", "Publish").click()
    shown.words("This version is published and says something else.").there()
    shown.role("button", name={"/Next version number/": ""}).click()
    shown.until("!document.querySelector('dialog .note.bad')")
    shown.until("!document.querySelector('dialog .main[disabled]')")
    shown.role("dialog").role("button", "Publish").click()
    shown.role("tab", "Picture").there()
    assert http.get(f"/v1/workflows/{published}").json()["version"] == 3


def test_a_run_speaks_with_the_page_which_answers_its_tool(page: NewPage) -> None:
    shown = page().goto("/console/workflows/frontend?pane=chat")
    shown.label("What is painted").fill("fence")
    shown.role("button", "Begin").click()
    shown.words("It asks this frontend: pick").there()
    assert shown.axe() == []
    shown.label("colour").play("selectOption", {"label": "blue"})
    shown.role("button", "Answer").click()
    shown.words("The fence becomes blue.").there()
    shown.words("The run has ended.").there()
