"""The pages of clients/examples that are made with frontends of others, with tokens that end while they follow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from hai_flow_client import Client

from clients.examples import backend as example
from clients.examples.backend import Backend
from console import building
from tests.browsers.conftest import Browser
from tests.clients.conftest import HERE
from tests.clients.typescript import running
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the packages

EXAMPLES = Path(example.__file__).parent
HTML = '<!doctype html><html lang="en"><meta charset="utf-8"><title>{0}</title><link rel="icon" href="data:,">'
HTML += '<div id="root"></div><script type="module" src="./{0}.js"></script></html>'
PAGES = ("copilotkit", "assistant_ui")


@pytest.fixture(scope="module")
def backend(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """The pages, bundled, and their backend."""
    folder = tmp_path_factory.mktemp("pages")
    entries = [str(EXAMPLES / f"{name}.jsx") for name in PAGES]
    browser.driver.ask("bundle", entries=entries, folder=str(folder))
    for name in PAGES:
        (folder / f"{name}.html").write_text(HTML.format(name))
    with running(Backend(folder, "user:ann", seconds=3)) as backend:
        yield backend


@pytest.fixture(scope="module")
def strict(postgres_server: Server, backend: Backend) -> Iterator[tuple[ServerProcess, People]]:
    """A server with a run that pauses for longer than a page loads and its token is good."""
    environment = {**KEYS, "HAI_FLOW_ALLOWED_ORIGINS": backend.origin}
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as server:
        people = People(dsn)
        headers = {**YAML, **people.person("user:pat", roles=["publisher"])}
        source = (HERE / "flows" / "two_words.flow.yaml").read_text().replace("for: 7s", "for: 15s")
        assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=headers).status_code == 201
        with Client(server.url, key=people.key("service:shop", roles=["issuer"])[1]) as flow:
            backend.flow = flow
            yield server, people


@pytest.mark.parametrize("name", PAGES)
def test_a_page_goes_on_with_the_next_token_and_nothing_is_lost_or_doubled(
    browser: Browser, backend: Backend, strict: tuple[ServerProcess, People], name: str
) -> None:
    server, people = strict
    backend.given = 0
    thread = unique("thread")
    begun = {"workflow": "two_words", "thread_id": thread}
    assert httpx2.post(f"{server.url}/v1/runs", json=begun, headers=people.person("user:ann")).status_code == 201
    path = "cpk" if name == "copilotkit" else "workflows/two_words/ag-ui"
    query = {"url": f"{server.url}/{path}", "agent": "two_words", "thread": thread}
    page = unique("page")
    browser.driver.ask("open", page=page, url=f"{backend.origin}/{name}.html?{urlencode(query)}")
    browser.driver.ask("until", page=page, expression="document.body.innerText.includes('After.')")
    told = browser.driver.ask("shows", page=page, text="After.")
    assert [told["text"].count(text) for text in ("Before.", "After.")] == [1, 1]
    assert backend.given > 1
    browser.driver.ask("close", page=page)


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """The pages with elements, plain and in React, and their backend."""
    folder = tmp_path_factory.mktemp("elements")
    for name in ("elements.html", "elements.js", "tokens.js"):
        shutil.copy(EXAMPLES / name, folder)
    browser.driver.ask("bundle", entries=[str(EXAMPLES / "elements.jsx")], folder=str(folder / "react"))
    (folder / "react" / "elements.html").write_text(HTML.format("elements"))
    with running(Backend(folder, "user:ann", roles=["decider"])) as backend:
        yield backend


@pytest.fixture(scope="module")
def shop(postgres_server: Server, site: Backend) -> Iterator[tuple[Client, str]]:
    """A client of a server that lets the pages in, and its address."""
    try:
        building.build()
    except building.BuildError as error:
        pytest.skip(f"The console can't be built here: {error}")
    environment = {**KEYS, "HAI_FLOW_ALLOWED_ORIGINS": site.origin}
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as server:
        _, key = People(dsn).key("service:shop", roles=["issuer", "decider", "operator"], speaks_for=["user:ann"])
        with Client(server.url, key=key) as flow:
            site.flow = flow
            yield flow, server.url


@pytest.mark.parametrize("path", ["elements.html", "react/elements.html"])
def test_a_page_with_an_element_decides_with_a_token_of_its_backend(
    browser: Browser, site: Backend, shop: tuple[Client, str], path: str
) -> None:
    flow, url = shop
    run = flow.runs.wait(flow.runs.start("refund", {"order": unique("order"), "amount": 180}))
    (pending,) = (each for each in flow.pendings.list() if each.run_id == run.id)
    page = unique("page")
    query = urlencode({"url": url, "pending": pending.id})
    browser.driver.ask("open", page=page, url=f"{site.origin}/{path}?{query}")
    element = "document.querySelector('hai-approval')"
    browser.driver.ask("until", page=page, expression=f"{element}?.shadowRoot && ({element}.sending = 'once')")
    browser.driver.ask("click", page=page, button="Approve")
    shown = browser.driver.ask("shows", page=page, text="Outcome: approve")
    assert shown["found"], shown["text"]
    refusals = [each for each in shown["complaints"] if each.startswith("Failed to load resource")]
    assert shown["complaints"] == refusals, "that the question has left the inbox is no complaint"
    assert flow.pendings.get(pending).decided_by == "user:ann"
    browser.driver.ask("close", page=page)
