"""The person types a message instead of answering the card.

What is asked stays open, whatever the frontend makes of it: the rule is 409 `thread_waiting` with what is open
(docs/design/protocols.md#one-active-run). Only a frontend's own tool is declined by assistant-ui, which reports it as
an error."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx2
import pytest

from tests.browsers.conftest import Browser
from tests.browsers.pages import Page, assistant_ui, copilotkit, frontends
from tests.clients.ag_ui import user
from tests.clients.conftest import NewAgent
from tests.clients.runs import decisions, run_of
from tests.support.server import ServerProcess

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the packages, half a gigabyte of them

TYPED = "hurry up, please"
UNADDRESSED = "not addressed by resume"

workflows = pytest.mark.parametrize(
    ("workflow", "said"), [("purge", "Deleted 2 files."), ("cleanup", "已删除 15 个临时文件。")]
)


def posted(page: Page) -> list[str]:
    """The POSTs that had the message, as their bodies."""
    return [post["body"] for post in page.posts if TYPED in (post["body"] or "")]


@frontends
def test_while_an_interrupt_is_open_neither_frontend_sends_the_message(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    """Both refuse it by themselves. CopilotKit keeps the message, and sends it with the answer."""
    elsewhere = agent("1.0.0", "purge")
    elsewhere.run(user("tidy up"))
    page = frontend(browser, server, "purge", elsewhere.thread_id)
    page.shows("Approve")
    page.type(TYPED)
    page.shows("Approve", complaining_of=UNADDRESSED)
    assert (posted(page), decisions(http, elsewhere.thread_id)) == ([], ["open"])
    page.click("Approve")
    page.shows("Deleted 2 files.", complaining_of=UNADDRESSED)
    assert decisions(http, elsewhere.thread_id) == ["approve"]
    assert len(posted(page)) == (1 if frontend is copilotkit else 0)
    assert page.refused == 0
    page.close()


@pytest.mark.parametrize(
    "frontend", [copilotkit, partial(assistant_ui, typing="keeps")], ids=["copilotkit", "assistant_ui"]
)
@workflows
def test_while_a_call_is_open_the_message_is_refused_and_the_card_stays(
    frontend: Any, browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent,
    workflow: str, said: str,
) -> None:  # fmt: skip
    """In assistant-ui with `autoCancelPendingToolCalls: false`."""
    elsewhere = agent("1.0.0", workflow, tools=("confirmAction",))
    elsewhere.run(user("tidy up"))
    page = frontend(browser, server, workflow, elsewhere.thread_id, "confirmAction")
    page.shows("Approve")
    page.type(TYPED)
    status, problem = page.refusal()
    assert (status, problem["code"]) == (409, "thread_waiting")
    page.shows(TYPED, complaining_of="409")
    page.shows("Approve", complaining_of="409")
    assert [each["id"] for each in problem["winner"]["pendings"]] == [
        call["id"] for call in elsewhere.reloaded().run().open_calls
    ]
    assert decisions(http, elsewhere.thread_id) == ["open"]
    page.click("Approve")
    page.shows(said, complaining_of="409")
    assert decisions(http, elsewhere.thread_id) == ["approve" if workflow == "purge" else "answered"]
    assert page.refused == 1
    page.close()


def test_assistant_ui_declines_a_frontends_tool_by_a_message(
    browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    elsewhere = agent("1.0.0", "cleanup", tools=("confirmAction",))
    elsewhere.run(user("tidy up"))
    page = assistant_ui(browser, server, "cleanup", elsewhere.thread_id, "confirmAction")
    page.shows("Approve")
    page.type(TYPED)
    page.shows("没有得到确认,什么都没有删除。")
    (body,) = posted(page)
    assert "Tool call cancelled by user" in body
    assert decisions(http, elsewhere.thread_id) == ["declined"]
    assert run_of(http, elsewhere.thread_id)["output"] == {"deleted": 0}
    assert TYPED in str(elsewhere.reloaded().run().messages)
    page.close()


def test_assistant_ui_decides_no_approval_by_a_message(
    browser: Browser, server: ServerProcess, http: httpx2.Client, agent: NewAgent
) -> None:
    """It reports an error of the tool for confirmations, and its card is gone. An error is no decision: it is refused,
    and whoever opens the page again is asked again."""
    elsewhere = agent("1.0.0", "purge")
    elsewhere.run(user("tidy up"))
    page = assistant_ui(browser, server, "purge", elsewhere.thread_id, "confirmAction")
    page.shows("Approve")
    page.type(TYPED)
    page.shows("The question is still open.", complaining_of="422")
    status, problem = page.refusal()
    assert (status, problem["code"]) == (422, "answer.invalid")
    assert decisions(http, elsewhere.thread_id) == ["open"]
    page.close()
    again = assistant_ui(browser, server, "purge", elsewhere.thread_id, "confirmAction")
    again.shows("Approve")
    again.click("Approve")
    again.shows("Deleted 2 files.")
    assert decisions(http, elsewhere.thread_id) == ["approve"]
    again.close()
