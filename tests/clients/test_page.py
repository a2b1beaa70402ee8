"""Somebody approves on a page in a real browser: the example page of the TypeScript client, on an origin of its own.

It has a token, which its small backend (clients/examples/backend.py) asked for with the key that it holds. These tests
are left out where there is no Chromium.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hai_flow_client import Client

from clients.examples.backend import Backend
from tests.clients import typescript
from tests.clients.typescript import page_address, running
from tests.support.chromium import Chromium
from tests.support.hai_client import HaiClient, user
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages

SPENDING = """
hai: flow/v1
name: spending
version: 1
steps:
  - id: gate
    approve:
      title: Spend it?
      from: [role:boss]
      form: {type: object, required: [cost_center], properties: {cost_center: {type: string}, most: {type: number}}}
output: ${{ steps.gate.output.values }}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typescript.built(tmp_path_factory.mktemp("hai-client"))


class House:
    """A server with identity that lets in the pages of one origin, and a backend that serves them from there."""

    def __init__(self, server: ServerProcess, people: People, backend: Backend) -> None:
        self.server, self.people, self.backend = server, people, backend

    def asks(self) -> tuple[HaiClient, str]:
        """A run of Eve's, and the id of its question."""
        eve = HaiClient(self.server.url, workflow="spending", headers=self.people.person("user:eve"))
        eve.post(user("a chair"))
        boss = self.people.person("user:bo", roles=["decider", "boss"])
        asked = httpx2.get(f"{self.server.url}/v1/inbox", headers=boss).json()["items"]
        (pending,) = [each for each in asked if each["run_id"] == self.run_of(eve)["id"]]
        return eve, pending["id"]

    def run_of(self, client: HaiClient) -> dict[str, Any]:
        viewer = self.people.person("user:vi", roles=["viewer"])
        (run,) = httpx2.get(
            f"{self.server.url}/v1/runs", params={"thread_id": client.thread_id}, headers=viewer
        ).json()["items"]
        return run

    def page(self, client: HaiClient, *, origin: str | None = None) -> str:
        """The address of the page on that thread."""
        return page_address(origin or self.backend.origin, client.url, client.thread_id)


@pytest.fixture(scope="module")
def house(postgres_server: Server, package: Path) -> Iterator[House]:
    backend = Backend(package, "user:ann", roles=["decider", "boss"], seconds=60)
    with running(backend), postgres_server.database() as dsn:
        environment = {**KEYS, "HAI_FLOW_ALLOWED_ORIGINS": backend.origin}
        with serving(dsn, environment=environment) as server:
            people = People(dsn)
            headers = {**YAML, **people.person("user:pat", roles=["publisher"])}
            published = httpx2.post(f"{server.url}/v1/workflows", content=SPENDING, headers=headers)
            assert published.status_code == 201, published.text
            roles = ["issuer", "decider", "boss"]
            key = people.key("service:shop", roles=roles, speaks_for=["user:*"])[1]
            with Client(server.url, key=key) as flow:
                backend.flow = flow
                yield House(server, people, backend)


def test_who_is_asked_approves_on_a_page_with_a_token(house: House, browser: Chromium) -> None:
    eve, _ = house.asks()
    house.backend.threads = [eve.thread_id]
    with browser.tab() as page:
        page.open(house.page(eve))
        page.shows("Spend it?")
        page.evaluate("document.querySelector('[name=cost_center]').value = 'CC-1'")
        page.evaluate("document.querySelector('[name=most]').value = '12.5'")
        page.click("Approve")
        page.shows("Done.")
        assert page.errors == []
    assert house.run_of(eve)["output"] == {"cost_center": "CC-1", "most": 12.5}
    auditor = house.people.person("user:rita", roles=["auditor"])
    listed = httpx2.get(
        f"{house.server.url}/v1/audit", params={"run_id": house.run_of(eve)["id"]}, headers=auditor
    ).json()["items"]
    answered = [each for each in listed if each["act"] == "pending.answered"]
    assert [(each["by"], each["details"]["way"]) for each in answered] == [("user:ann", "token")]


def test_a_page_with_another_threads_token_is_told_so_and_decides_nothing(house: House, browser: Chromium) -> None:
    eve, _ = house.asks()
    house.backend.threads = ["another"]
    with browser.tab() as page:
        page.open(house.page(eve))
        assert "Spend it?" not in page.shows("Done.")  # as if there was no such thread
        page.evaluate("document.getElementById('text').value = 'hello'")
        page.click("Send")
        page.shows("HTTP 404: there is no thread")
    assert house.run_of(eve)["status"] == "waiting"


def test_a_page_of_an_origin_that_is_not_allowed_can_do_nothing(house: House, browser: Chromium, package: Path) -> None:
    """Not even with a token: the browser lets it read no answer, and the server takes no request of it."""
    eve, pending_id = house.asks()
    house.backend.threads = None
    with running(Backend(package, "user:ann", roles=["decider", "boss"])) as elsewhere, browser.tab() as page:
        elsewhere.flow = house.backend.flow
        page.open(house.page(eve, origin=elsewhere.origin))
        assert "Spend it?" not in page.shows("the server could not be reached")
        bearer = json.dumps(
            {"Authorization": f"Bearer {elsewhere.token()['token']}", "Content-Type": "application/json"}
        )
        body = json.dumps(json.dumps({"decision": "approve", "values": {"cost_center": "CC-1"}}))
        for options in (f"{{headers: {bearer}}}", f"{{headers: {bearer}, mode: 'no-cors'}}"):
            url = json.dumps(f"{house.server.url}/v1/pendings/{pending_id}/decide")
            sent = f"fetch({url}, {{method: 'POST', body: {body}, ...{options}}})"
            told = page.evaluate(f"{sent}.then(({{type, status}}) => [type, status], (error) => [error.name, 0])")
            assert told in (["TypeError", 0], ["opaque", 0])
    assert house.run_of(eve)["status"] == "waiting"


def test_no_page_of_elsewhere_may_send_cookies_along(house: House, browser: Chromium) -> None:
    """Not even one of an origin that is allowed: it has its token."""
    with browser.tab() as page:
        page.open(f"{house.backend.origin}/example/index.html")
        page.until("document.readyState === 'complete'")
        url = json.dumps(f"{house.server.url}/healthz")
        asked = "fetch({}, {{credentials: '{}'}}).then(({{status}}) => status, (error) => error.name)"
        assert page.evaluate(asked.format(url, "omit")) == 200
        assert page.evaluate(asked.format(url, "include")) == "TypeError"
