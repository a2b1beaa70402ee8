"""Following over real sockets that break: no event is lost, none comes twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hai_flow_client import AsyncClient, Client, Patience, Unavailable

from tests.client.conftest import EAGER, Opened
from tests.client.proxy import UNCUT, cutting
from tests.support import waiting
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving


@pytest.fixture(scope="module")
def finished(server: ServerProcess) -> tuple[str, list[Any]]:
    """A run that has ended, and its events as pages show them."""
    with Client(server.url) as flow:
        run = flow.runs.start("cleanup", {"count": 3})
        flow.runs.wait(run)
        (pending,) = [each for each in flow.pendings.list() if each.run_id == run.id]
        flow.pendings.give_result(pending, True)
        assert flow.runs.result(run) == {"deleted": 3}
        return run.id, list(flow.runs.events(run.id))


def test_a_log_that_is_followed_is_the_log_of_the_pages(flow: Client, finished: tuple[str, list[Any]]) -> None:
    run_id, events = finished
    assert list(flow.runs.follow(run_id)) == events
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert list(flow.runs.follow(run_id, after=5)) == events[5:]
    assert list(flow.runs.follow(run_id, after=len(events))) == []


@pytest.mark.costly
def test_a_stream_that_is_cut_after_any_number_of_bytes_is_taken_up_again(
    opened: Opened, server: ServerProcess, finished: tuple[str, list[Any]]
) -> None:
    run_id, events = finished
    alone = {"Connection": "close"}  # each request on a connection of its own, so that each can be cut
    with cutting(server.url) as proxy, opened(proxy.url, patience=EAGER, headers=alone) as flow:
        for cut in range(0, 9000, 181):
            start = proxy.connections
            # The first is cut early, the second twice as late, the third is whole.
            proxy.allowance = lambda number, start=start, cut=cut: [cut, 2 * cut, UNCUT][min(number - start, 2)]
            assert list(flow.runs.follow(run_id)) == events, cut
            # Each cut costs a connection, one is for the rest, and one for the look whether that was all.
            cuts = sum(at < length_of(events) for at in (cut, 2 * cut))
            assert proxy.connections - start >= cuts + 2
    assert 2000 < length_of(events) < 9000


def length_of(events: list[Any]) -> int:
    """No more than the bytes that their stream has."""
    return sum(len(msgspec.json.encode(event)) for event in events) // 2


def test_a_live_run_is_followed_over_cuts_until_its_end(opened: Opened, server: ServerProcess) -> None:
    """Every connection carries a little more than its headers, so it takes many of them."""
    with (
        cutting(server.url, lambda number: 1500) as proxy,
        opened(proxy.url, patience=EAGER) as flow,
        Client(server.url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        run = other.runs.start("cleanup")
        answered = pool.submit(answer_when_asked, other, run.id)
        events = list(flow.runs.follow(run.id))
        answered.result()
        assert events == list(other.runs.events(run.id))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-1].type == "run_finished"
        assert proxy.connections > 5


def answer_when_asked(flow: Client, run_id: str) -> None:
    flow.runs.wait(run_id)
    (pending,) = [each for each in flow.pendings.list() if each.run_id == run_id]
    flow.pendings.give_result(pending, True)


def test_a_run_is_followed_over_a_restart_of_the_server(opened: Opened, postgres_server: Server) -> None:
    with contextlib.ExitStack() as stack:
        dsn = stack.enter_context(postgres_server.database())
        first = stack.enter_context(serving(dsn))
        proxy = stack.enter_context(cutting(first.url))
        patience = Patience(pause_first=0.05, pause_max=0.2, reconnects=200)
        flow = stack.enter_context(opened(proxy.url, patience=patience))
        run = flow.runs.start("cleanup", {"count": 2})
        events = iter(flow.runs.follow(run))
        before = until(events, "turn_ended")
        if opened is Client:
            first.kill()
        else:  # it says farewell
            first.terminate()
            first.ended()
        second = stack.enter_context(serving(dsn))
        other = stack.enter_context(Client(second.url))
        proxy.target = second.url
        answer_when_asked(other, run.id)
        after = list(events)
        assert before + after == list(other.runs.events(run.id))
        assert after[-1].type == "run_finished"


def until(events: Iterator[Any], type: str) -> list[Any]:
    found = []
    for event in events:
        found.append(event)
        if event.type == type:
            break
    return found


def test_a_follower_gives_up_where_nobody_answers_any_more(opened: Opened, postgres_server: Server) -> None:
    patience = Patience(reconnects=3, pause_first=0.01, jitter=lambda: 0.0)
    with postgres_server.database() as dsn, serving(dsn) as process, opened(process.url, patience=patience) as flow:
        run = flow.runs.start("cleanup")
        events = iter(flow.runs.follow(run))
        until(events, "turn_ended")
        process.kill()
        with pytest.raises(Unavailable, match="no server answers at"):
            list(events)
        assert list(events) == []


def test_an_iterator_that_is_left_closes_its_connection(flow: Client, server: ServerProcess) -> None:
    run = flow.runs.start("cleanup")
    with flow.runs.follow(run) as events:
        until(iter(events), "turn_ended")
        assert flow.request("GET", "/healthz").body.count(b'"streams":0') == 0
    assert list(events) == []
    for _ in range(1000):
        if b'"streams":0' in flow.request("GET", "/healthz").body:
            return
    raise AssertionError("the stream is still open")


def test_a_start_whose_answer_is_lost_is_one_start(opened: Opened, server: ServerProcess) -> None:
    for cut in (0, 1, 200):
        thread_id = f"lost-{opened.__name__}-{cut}"
        proxied = cutting(server.url, lambda number, cut=cut: cut if number < 2 else UNCUT)
        with proxied as proxy, opened(proxy.url, patience=EAGER) as flow:
            run = flow.runs.start("cleanup", thread_id=thread_id)
            assert proxy.connections == 3
            assert [each.id for each in flow.runs.list(thread_id=thread_id)] == [run.id]


async def test_a_task_that_is_cancelled_closes_its_stream(server: ServerProcess) -> None:
    async with AsyncClient(server.url) as flow:
        run = await flow.runs.start("cleanup")
        seen = asyncio.Event()

        async def follow() -> None:
            async for event in flow.runs.follow(run):
                if event.type == "turn_ended":
                    seen.set()

        following = asyncio.create_task(follow())
        await seen.wait()
        following.cancel()
        await asyncio.wait({following})
        assert following.cancelled()

        async def no_stream() -> bool:
            return b'"streams":0' in (await flow.request("GET", "/healthz")).body

        await waiting.until(no_stream)
