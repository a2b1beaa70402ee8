"""What was started elsewhere is approved in a browser, on pages of frontends that we did not write.

assistant-ui talks AG-UI to a workflow's URL, CopilotKit talks to our server as to its own runtime. Their packages are
as published; the pages (`*.jsx`) use them as their documentation says."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.browsers.conftest import Browser
from tests.browsers.pages import assistant_ui, copilotkit, frontends
from tests.clients.ag_ui import user
from tests.clients.conftest import NewAgent
from tests.clients.runs import decisions, performed, run_of
from tests.support.server import ServerProcess

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the packages, half a gigabyte of them


# By the frontend's own card for approvals, and by the tool for confirmations of one that offers it.
gate_frontends = pytest.mark.parametrize(
    ("frontend", "tools"), [(assistant_ui, ""), (assistant_ui, "confirmAction"), (copilotkit, "")]
)


@gate_frontends
@pytest.mark.parametrize(
    ("button", "said", "attempts"), [("Approve", "Deleted 2 files.", 1), ("Deny", "Nothing was deleted.", 0)]
)
def test_a_gate_that_was_reached_elsewhere_is_decided_on_the_page(
    frontend: Any, tools: str, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent,
    button: str, said: str, attempts: int,
) -> None:  # fmt: skip
    elsewhere = agent("1.0.0", "purge")
    elsewhere.run(user("tidy up"))
    page = frontend(browser, server, "purge", elsewhere.thread_id, tools)
    page.shows("Approve")
    assert performed(http, elsewhere.thread_id, "purge") == 0
    page.click(button)
    page.shows(said)
    assert decisions(http, elsewhere.thread_id) == ["approve" if attempts else "reject"]
    assert performed(http, elsewhere.thread_id, "purge") == attempts
    assert elsewhere.reloaded().run().said[-1] == said
    page.close()


@pytest.mark.parametrize(("button", "said"), [("Approve", "Deleted 2 files."), ("Deny", "Nothing was deleted.")])
@pytest.mark.parametrize("frontend", [assistant_ui, copilotkit])
def test_a_gate_whose_arguments_may_be_edited_is_decided_on_the_page(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent, button: str, said: str
) -> None:
    elsewhere = agent("1.0.0", "purge_some")
    elsewhere.run(user("tidy up"))
    page = frontend(browser, server, "purge_some", elsewhere.thread_id)
    page.shows("Approve")
    page.click(button)
    page.shows(said)
    assert decisions(http, elsewhere.thread_id) == ["approve" if button == "Approve" else "reject"]
    page.close()


def test_a_card_in_a_second_tab_never_says_cancelled_of_what_was_done(
    browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("1.0.0", "sweep")
    elsewhere.run(user("tidy up"))
    one, other = (copilotkit(browser, server, "sweep", elsewhere.thread_id) for _ in range(2))
    other.shows("Approve")
    one.shows("Approve")
    one.click("Approve")
    one.shows("Swept 2 files.")
    other.click("Deny")
    shown = other.shows('"deleted":2', complaining_of="was answered already")
    assert "cancelled" not in shown
    assert decisions(http, elsewhere.thread_id) == ["approve"]
    one.close()
    other.close()


def test_a_gated_calls_card_shows_its_result_and_not_its_approval(
    browser: Browser, server: ServerProcess, agent: NewAgent
) -> None:
    """CopilotKit answers the call itself by a ToolMessage, beside `resume`, and shows the first answer that it has."""
    elsewhere = agent("1.0.0", "sweep")
    elsewhere.run(user("tidy up"))
    page = copilotkit(browser, server, "sweep", elsewhere.thread_id)
    page.shows("Approve")
    page.click("Approve")
    page.shows("Swept 2 files.")
    shown = page.shows("card files.delete_files complete:")
    assert '"deleted":2' in shown
    assert "approved" not in shown
    page.close()


@frontends
def test_a_confirmation_that_was_asked_elsewhere_is_given_on_the_page(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("0.0.48", "cleanup", tools=("confirmAction",))
    call = elsewhere.run(user("删除所有临时文件")).call("confirmAction")
    page = frontend(browser, server, "cleanup", elsewhere.thread_id, tools="confirmAction")
    assert "删除临时文件" in page.shows("Approve")
    page.click("Approve")
    page.shows("已删除 15 个临时文件。")
    assert run_of(http, elsewhere.thread_id)["output"] == {"deleted": 15}
    assert elsewhere.reloaded().run().open_calls == []
    assert any(call["id"] in (post["body"] or "") for post in page.posts)
    page.close()


@frontends
def test_a_decision_without_a_tool_is_taken_on_the_page(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("0.0.59", "publish")
    elsewhere.run(user())
    page = frontend(browser, server, "publish", elsewhere.thread_id)
    page.shows("Publish the article?")
    page.click("Approve")
    page.shows("Published.")
    assert decisions(http, elsewhere.thread_id) == ["approve"]
    page.close()


@frontends
def test_decisions_after_something_was_said_are_taken_one_after_the_other(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("1.0.0", "announce")
    elsewhere.run(user())
    page = frontend(browser, server, "announce", elsewhere.thread_id)
    page.shows("Is the article good?")
    page.click("Approve")
    page.shows("Announce it?")
    again = frontend(browser, server, "announce", elsewhere.thread_id)
    again.shows("Announce it?")
    page.close()
    again.click("Approve")
    said = again.shows("Announced.")
    assert [said.count(text) for text in ("The article has 800 words.", "It was reviewed.", "Announced.")] == [1, 1, 1]
    assert decisions(http, elsewhere.thread_id) == ["approve", "approve"]
    again.close()


@frontends
def test_two_gates_at_once_are_decided_on_the_page(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("1.0.0", "purge_both")
    elsewhere.run(user())
    page = frontend(browser, server, "purge_both", elsewhere.thread_id)
    page.shows("Approve")
    page.click("Approve")
    page.click("Approve")
    page.shows("Both are clean.")
    assert decisions(http, elsewhere.thread_id) == ["approve", "approve"]
    page.close()


def test_a_page_that_is_opened_twice_decides_once(
    browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("1.0.0", "purge")
    elsewhere.run(user())
    pages = [
        assistant_ui(browser, server, "purge", elsewhere.thread_id),
        copilotkit(browser, server, "purge", elsewhere.thread_id),
    ]
    for page in pages:
        page.shows("Approve")
    pages[0].click("Approve")
    pages[0].shows("Deleted 2 files.")
    pages[1].click("Approve")
    pages[1].shows("Deleted 2 files.")
    assert performed(http, elsewhere.thread_id, "purge") == 1
    for page in pages:
        page.close()
