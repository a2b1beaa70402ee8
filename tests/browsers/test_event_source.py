"""A browser's own EventSource on a thread's events: whatever becomes of its connection, it sees each event once.

The page (`event_source.html`) is plain: `new EventSource(url)` and a listener for each name. It is the browser that
comes back, with Last-Event-ID; between it and the server is a proxy whose connections are cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from tests.browsers.conftest import Browser
from tests.browsers.proxy import Proxy, proxying
from tests.clients.conftest import publish_flows
from tests.support.hai_client import parse, unique
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the packages, half a gigabyte of them

HTML = (Path(__file__).parent / "event_source.html").read_text()
Seen: TypeAlias = list[tuple[str, str, Any]]


class Page:
    """A tab with an EventSource on a thread, behind the proxy."""

    def __init__(self, browser: Browser, proxy: Proxy, thread_id: str) -> None:
        self._driver = browser.driver
        self._name = unique("page")
        self._driver.ask("open", page=self._name, url=f"{proxy.url}/page?thread={thread_id}", html=HTML)
        self.until("opened > 0")

    def until(self, expression: str) -> Any:
        return self._driver.ask("until", page=self._name, expression=expression)["value"]

    def has(self, name: str, number: int = 1) -> Seen:
        """All that it has seen, as soon as `number` events of a name are among it."""
        self.until(f"seen.filter((event) => event.name === '{name}').length >= {number}")
        return self.seen()

    def told(self, answer: str) -> Seen:
        """All that it has seen, as soon as a message says that."""
        self.until(f"seen.some((event) => JSON.parse(event.data).answer === {json.dumps(answer)})")
        return self.seen()

    def seen(self) -> Seen:
        return [(each["id"], each["name"], json.loads(each["data"])) for each in self.until("seen")]

    def close(self) -> None:
        self._driver.ask("close", page=self._name)


class Thread:
    """A thread as REST has it. Its first run is of the workflow `vigil`."""

    def __init__(self, url: str) -> None:
        self.id = unique("thread")
        self.url = url
        self.runs: list[str] = []

    def start(self, workflow: str) -> None:
        body = {"workflow": workflow, "thread_id": self.id}
        started = httpx2.post(f"{self.url}/v1/runs", json=body, timeout=30)
        assert started.status_code < 300, started.text
        self.runs.append(started.json()["id"])

    def answer(self, seen: Seen) -> None:
        """The person says yes to what the page was told last."""
        (pending,) = seen[-1][2]["pendings"]
        url = f"{self.url}/v1/pendings/{pending['id']}/decide"
        decided = httpx2.post(url, json={"decision": "approve"}, timeout=30)
        assert decided.status_code == 200, decided.text

    def rest(self, first: tuple[str, str, Any]) -> Seen:
        """Everything after the first event, told by streams that nobody has cut. All runs are over; those after the
        first are of one turn."""
        told: Seen = []
        for cursor, run_id in zip([{"after": first[0]}, {}], self.runs, strict=True):
            url = f"{self.url}/v1/runs/{run_id}/events"
            whole = httpx2.get(url, params={"dialect": "social", **cursor}, timeout=30).content
            told += [(str(event.id), str(event.name), event.data) for event in parse(whole)]
        return told


def last_event_ids(proxy: Proxy) -> list[str | None]:
    """What the browser said each time that it asked for the events."""
    found = []
    for head in proxy.requests:
        request, *lines = head.decode().split("\r\n")
        assert request.endswith("/events HTTP/1.1")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        found.append(headers.get("last-event-id"))
    return found


def ends_well(page: Page, thread: Thread, proxy: Proxy) -> None:
    """The page saw every event once, in order; it goes on with the thread's next run; and it was the browser that said
    where it was."""
    page.told("That is all.")
    thread.start("weather")
    seen = page.has("RUN_FINISHED", 3)
    listening, begun, *rest = seen
    assert (listening[1], listening[2]["messages"]) == ("MESSAGES_SNAPSHOT", []), "it listened before there was a run"
    assert begun[1] == "RUN_STARTED"
    assert rest == thread.rest(begun)
    ids = [id for id, _, _ in seen]
    assert len(set(ids)) == len(ids)
    first, *others = last_event_ids(proxy)
    assert first is None
    places = [ids.index(str(each)) for each in others]
    assert places
    assert places == sorted(places)
    page.close()


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with proxying(server.url) as proxy:
        yield proxy


def test_events_arrive_once_though_the_connection_is_cut_inside_frames(
    browser: Browser, server: ServerProcess, proxy: Proxy
) -> None:
    proxy.cut_after(800, 1300, 300, 1900)
    thread = Thread(server.url)
    page = Page(browser, proxy, thread.id)
    thread.start("vigil")
    thread.answer(page.has("RUN_FINISHED"))
    ends_well(page, thread, proxy)
    assert len(proxy.requests) == 5


def test_it_misses_nothing_of_an_answer_that_was_given_while_it_was_away(
    browser: Browser, server: ServerProcess, proxy: Proxy
) -> None:
    thread = Thread(server.url)
    page = Page(browser, proxy, thread.id)
    thread.start("vigil")
    seen = page.has("RUN_FINISHED")
    proxy.server = None
    proxy.cut()
    thread.answer(seen)
    assert page.seen() == seen
    proxy.server = server.url
    ends_well(page, thread, proxy)


def over(thread: Thread) -> bool:
    return httpx2.get(f"{thread.url}/v1/runs/{thread.runs[0]}", timeout=30).json()["status"] == "finished"


@pytest.mark.parametrize("stop", [ServerProcess.terminate, ServerProcess.kill])
@pytest.mark.parametrize("waits_for", ["the clock", "a person"])
async def test_it_goes_on_where_it_was_when_the_server_was_restarted(
    browser: Browser, postgres_server: Server, stop: Callable[[ServerProcess], None], waits_for: str
) -> None:
    """In the middle of a turn, or while the run waits for a person, who answers before the page is back."""
    with postgres_server.database() as dsn, proxying() as proxy:
        with serving(dsn) as server:
            publish_flows(server.url)
            proxy.server = server.url
            thread = Thread(server.url)
            page = Page(browser, proxy, thread.id)
            thread.start("vigil")
            seen = page.has("RUN_FINISHED") if waits_for == "a person" else page.told("It is rain, 12°C.")
            stop(server)
            server.ended()
        with serving(dsn) as server:
            thread.url = server.url
            if waits_for == "a person":
                thread.answer(seen)
                await until(lambda: over(thread))
                proxy.server = server.url
            else:
                proxy.server = server.url
                thread.answer(page.has("RUN_FINISHED"))
            ends_well(page, thread, proxy)
