"""The expense of tests/clients/test_expense.py, whose second person decides on a page in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hai_flow_client import Client

from clients.examples.backend import Backend
from tests.browsers.conftest import Browser
from tests.clients import typescript
from tests.clients.test_expense import BACKEND, VALUES, Provider, decided_by_three, house, provider
from tests.support.hai_client import unique
from tests.support.identities import People
from tests.support.server import ServerProcess

__all__ = ["house", "provider"]

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the browser's packages


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    package = typescript.built(tmp_path_factory.mktemp("hai-client"))
    with typescript.running(Backend(package, "user:ann", roles=["decider"], seconds=60)) as backend:
        yield backend


@pytest.fixture(scope="module")
def pages(backend: Backend) -> dict[str, str]:
    """The server lets in the page's origin."""
    return {"HAI_FLOW_ALLOWED_ORIGINS": backend.origin}


def test_three_people_decide_an_expense_one_with_a_frontend_token(
    browser: Browser, backend: Backend, provider: Provider, house: tuple[ServerProcess, People, str]
) -> None:
    server, people, _ = house
    key = people.key("service:backend", roles=BACKEND)[1]

    def vote(thread_id: str, pending_id: str) -> None:
        backend.threads = [thread_id]
        page = unique("page")
        url = typescript.page_address(backend.origin, f"{server.url}/awp", thread_id)
        browser.driver.ask("open", page=page, url=url)
        field = "document.querySelector('[name=cost_center]')"
        browser.driver.ask("until", page=page, expression=f"{field} !== null")
        browser.driver.ask("until", page=page, expression=f"{field}.value = {json.dumps(VALUES['cost_center'])}")
        browser.driver.ask("click", page=page, button="Approve")
        told = browser.driver.ask("shows", page=page, text="Waiting for you.")
        assert told["complaints"] == []
        browser.driver.ask("close", page=page)

    with Client(server.url, key=key) as flow:
        backend.flow = flow
        decided_by_three(provider, house, vote, seconds=12)
