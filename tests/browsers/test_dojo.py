"""A page of AG-UI's dojo with the frontend that the dojo is made with; tests/clients/test_dojo.py has all of them."""

from __future__ import annotations

import pytest

from tests.browsers.conftest import Browser
from tests.browsers.pages import copilotkit
from tests.support.hai_client import unique
from tests.support.server import ServerProcess

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the packages


def test_a_display_tool_is_performed_once_a_call_and_not_on_reopening(browser: Browser, server: ServerProcess) -> None:
    thread = unique("thread")
    page = copilotkit(browser, server, "tool_based_generative_ui", thread, tools="generate_haiku")
    page.shows("0 haikus")
    page.type("about nature")
    page.shows("1 haikus: The old pond.")
    page.type("another one")
    page.shows("2 haikus: The old pond. The old pond.")
    again = copilotkit(browser, server, "tool_based_generative_ui", thread, tools="generate_haiku")
    shown = again.shows("another one")
    assert "0 haikus" in again.shows("Bash\u014d.")
    assert shown.count("about nature") == 1
    page.close()
    again.close()
