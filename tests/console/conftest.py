"""A browser, the built pages, and a server that serves them. Where a machine lacks one, the tests say so and are left
out."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from console import building
from hai_flow.runtime.people.receipts import make_key
from tests.clients import rig
from tests.console.browser import Page
from tests.support.examples import COSTLY
from tests.support.models import Answer, FakeModels, spoken
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

HERE = Path(__file__).resolve().parent
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is there. A page of the headless shell costs a third."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if "driver" in getattr(item, "fixturenames", ()):
        item.add_marker(COSTLY)


NewPage = Callable[..., Page]
Picture = Callable[[Page, str], None]

PATIENCE = 60
"""Seconds until an answer is given up: on a machine that does much else, the server is slow and not broken."""


AT_ONCE = "if (!localStorage.getItem('hai.sending')) localStorage.setItem('hai.sending', 'once')"
"""The reader has set that decisions are sent at once, and not after the five seconds of grace."""


@pytest.fixture(scope="package")
def built() -> Path:
    """The pages, built from the checkout."""
    try:
        return building.build()
    except building.BuildError as error:
        pytest.skip(f"The console can't be built here: {error}")


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Driver]:
    """The process with the browser."""
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip("There is no chromium on PATH; install it to test the console's pages.")
    try:
        packages = rig.npm_packages(HERE)
    except rig.CannotInstall as error:
        pytest.skip(f"What drives the browser can't be had here: {error}")
    project = rig.project_beside(packages, HERE, tmp_path_factory.mktemp("console"))
    with rig.driving([rig.node(), "driver.mjs"], project) as driver:
        driver.ask("start", executable=executable, sandbox=os.getuid() != 0)
        yield driver


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The catalogue of models of these tests: `small` always says the same, `caller` and `mailer` call `mail` once."""
    call = Answer(calls=(("mail", '{"order": "A-1", "amount": 9}'),))
    with (
        running_models(Answer("A grey one.")) as small,
        running_models(call, Answer("Done.")) as caller,
        running_models(call, Answer("It is paid back.")) as mailer,
    ):
        file = tmp_path_factory.mktemp("models") / "models.yaml"
        models = {"small": small, "caller": caller, "mailer": mailer}
        lines = [f"  {name}: {{provider: vllm, base_url: '{url}', model: {name}}}\n" for name, url in models.items()]
        file.write_text("hai: models/v1\nmodels:\n" + "".join(lines))
        yield file


@contextmanager
def running_models(*answers: Answer) -> Iterator[str]:
    """The address of a server of models, which runs in a thread of its own."""
    address: Future[str] = Future()
    loop, done = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with FakeModels(*map(spoken, answers)) as fake:
            address.set_result(fake.url)
            await done.wait()

    thread = Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield address.result(20)
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
        loop.close()


@pytest.fixture
def dsn(postgres_server: Server, built: Path) -> Iterator[str]:
    """A database for a server of the test's own, which has the pages."""
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="package")
def server_dsn(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="package")
def server(server_dsn: str, built: Path, driver: rig.Driver, models: Path) -> Iterator[ServerProcess]:
    """A server with the workflows of these tests."""
    make_key(keys := models.with_name("receipt-keys.json"))
    environment = {"HAI_FLOW_MODELS": str(models), "HAI_FLOW_RECEIPT_KEYS": str(keys)}
    with serving(server_dsn, environment=environment) as process:
        with httpx2.Client(base_url=process.url, timeout=PATIENCE) as http:
            for flow in sorted((HERE / "flows").glob("*.flow.yaml")):
                published = http.post("/v1/workflows", content=flow.read_bytes(), headers=YAML)
                assert published.status_code in (200, 201), published.text
        yield process


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def page(driver: rig.Driver, server: ServerProcess) -> Iterator[NewPage]:
    """New pages. None of them may have complained of anything when the test is done."""
    pages: list[Page] = []

    def new(beside: Page | None = None, *, undo: bool = False, **options: Any) -> Page:
        everywhere: dict[str, Any] = {"locale": "en-GB", "timezoneId": "Europe/Berlin"}
        pages.append(Page(driver, server.url, beside, {**everywhere, **options}))
        if not undo:
            pages[-1].play(["addInitScript", {"content": AT_ONCE}])
        return pages[-1]

    yield new
    complaints = {each.name: found for each in pages if (found := each.complaints())}
    for each in pages:
        each.close()
    assert not complaints


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    """Takes a picture of a page, for docs/console.md: into the folder that TEST_CONSOLE_PICTURES names."""
    folder = Path(os.environ.get("TEST_CONSOLE_PICTURES") or tmp_path).resolve()
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.screenshot(str(folder / f"{name}.png"))
        assert (folder / f"{name}.png").stat().st_size > 5_000

    return take


@pytest.fixture
def asked(http: httpx2.Client) -> Callable[..., dict[str, Any]]:
    """Start a run that asks, and return its open question."""

    def start(workflow: str, who: str | None = None, **given: Any) -> dict[str, Any]:
        headers = {} if who is None else {"HAI-Act-As": who}
        started = http.post("/v1/runs", json={"workflow": workflow, "input": given}, headers=headers)
        return pending_of(http, started.raise_for_status().json()["id"])

    return start


def pending_of(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    """The first question of a run, as soon as it is open."""
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as events:
        for line in events.iter_lines():
            if line == "event: pending_opened":
                break
    snapshot = http.get(f"/v1/runs/{run_id}/snapshot").json()
    return next(each for each in snapshot["pendings"] if each["status"] == "open")
