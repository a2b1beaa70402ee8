"""What a feed accepts, whom its rings tell, and how it comes by what it missed: each rule alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.streams import fanout
from hai_flow.runtime.streams.fanout import FanoutConfig, Following, RingSubscription
from hai_flow.store.postgres.database import EVERYTHING
from hai_flow.store.runs import logs
from hai_flow.store.runs.logs import LogRow
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG
from tests.runtime.conftest import ASKING, Connection, Make, start, state_of
from tests.support.ledger import log_of
from tests.support.values import require
from tests.support.waiting import until

NEVER = 60.0  # longer than any test waits
PROFILE = Profile(dialect="log")
OTHER = Profile(dialect="log", client_tools=frozenset({"x"}))


async def pause(runtime: Runtime, run_id: UUID, number: int = 0) -> None:
    """Make the run's log longer: pause it (an even number), or resume it."""
    command = c.Resume(by="user:local") if number % 2 else c.Pause(by="user:local")
    await runtime.committer.submit(run_id, LOCAL_TENANT, command)


async def following(runtime: Runtime, run_id: UUID, profile: Profile = PROFILE) -> Following:
    """A follower that has read all there is."""
    found = runtime.fanout.follow(run_id, LOG, profile, await state_of(runtime, run_id))
    assert await found.catch_up() is None
    return found


async def place(runtime: Runtime, run_id: UUID, profile: Profile = PROFILE) -> RingSubscription:
    return (await following(runtime, run_id, profile)).hand_over()


def seqs(of: RingSubscription) -> list[int]:
    return [piece.seq for piece in of.take().pieces]


def deaf(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process hears no hints."""
    monkeypatch.setattr(runtime.fanout, "hint", lambda payload: None)


@pytest.fixture
def unpolled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found by looking at what is followed every now and then."""
    monkeypatch.setattr("hai_flow.runtime.runtime.FanoutConfig", lambda: FanoutConfig(poll_seconds=NEVER))


async def test_a_feed_takes_only_what_begins_right_behind_its_head(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    mine = await place(runtime, run_id)
    feed, hot, head = runtime.fanout._feeds[run_id], runtime.committer.peek(run_id), mine.seq
    assert hot is not None
    events = await log_of(eye, run_id)
    runtime.fanout.publish_commit(hot, head + 2, events[-1:])  # what is between was committed by somebody else
    assert (feed.head, seqs(mine)) == (head, [])
    runtime.fanout.publish_commit(hot, 1, events)  # all of it again, as a load finds it
    assert (feed.head, seqs(mine)) == (head, [])
    runtime.fanout.publish_commit(hot, head, [events[-1], events[-1]])  # one of them is known
    assert (feed.head, seqs(mine)) == (head + 1, [head + 1])


async def test_events_committed_during_the_first_followers_read_come_after_it(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    hot, events = runtime.committer.peek(run_id), await log_of(eye, run_id)
    assert hot is not None
    with runtime.fanout._attach(run_id) as feed:
        runtime.fanout.publish_commit(hot, 3, events[2:4])
        runtime.fanout.publish_commit(hot, 5, events[4:])
        assert feed.head is None
        runtime.fanout._join(feed, 3)
        assert feed.head == len(events)


async def test_each_place_takes_all_that_is_new_to_it_and_nothing_else(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    quick, slow = await place(runtime, run_id), await place(runtime, run_id)
    head = quick.seq
    await pause(runtime, run_id, 0)
    first = seqs(quick)
    await pause(runtime, run_id, 1)
    second = seqs(quick)
    assert first + second == seqs(slow) == list(range(head + 1, head + 1 + len(first) + len(second)))
    assert first
    assert second
    assert seqs(quick) == seqs(slow) == []


async def test_a_ring_keeps_at_least_what_it_took_in_last(make: Make) -> None:
    runtime = await make()
    runtime.fanout.config = FanoutConfig(ring_bytes_max=1)
    run_id = (await start(runtime, ASKING)).run_id
    mine = await place(runtime, run_id)
    hot = require(runtime.committer.peek(run_id))
    runtime.fanout.publish_commit(hot, mine.seq + 1, [e.RunPaused(at=hot.state.at, turn=1, by="user:local")])
    assert seqs(mine) == [hot.state.seq + 1]


@pytest.mark.parametrize("others", [0, fanout.NOTIFIED_IN_COMMIT], ids=["at once", "in a turn of their own"])
async def test_news_that_come_while_places_are_told_are_told_of_as_well(make: Make, others: int) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    mine = await place(runtime, run_id)
    beside = [await place(runtime, run_id) for _ in range(others)]
    hot, told = runtime.committer.peek(run_id), 0
    assert hot is not None

    def tell() -> None:
        nonlocal told
        told += 1
        if told < 3:
            news = [e.RunPaused(at=hot.state.at, turn=1, by="user:local")]
            runtime.fanout.publish_commit(hot, hot.state.seq + 1 + told, news)

    mine.notify = tell
    runtime.fanout.publish_commit(hot, hot.state.seq + 1, [e.RunPaused(at=hot.state.at, turn=1, by="user:local")])
    await until(lambda: told == 3, every=0)
    assert [len(seqs(each)) for each in (mine, *beside)] == [3] * (1 + others)


async def test_a_feed_and_a_ring_stay_until_their_last_follower_has_gone(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    first, second, third = [await place(runtime, run_id, profile) for profile in (PROFILE, PROFILE, OTHER)]
    feed = runtime.fanout._feeds[run_id]
    first.leave()
    assert len(feed.rings) == 2
    await pause(runtime, run_id)
    assert seqs(second) == seqs(third) != []
    second.leave()
    assert list(feed.rings) == [(LOG.encoding, OTHER)]
    assert runtime.fanout._feeds == {run_id: feed}
    third.leave()
    assert (feed.rings, runtime.fanout._feeds) == ({}, {})


@pytest.mark.usefixtures("unpolled")
async def test_a_feed_reads_all_that_others_have_committed_page_by_page(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    deaf(b, monkeypatch)
    monkeypatch.setattr(fanout, "READ_ROWS", 1)
    run_id = (await start(a, ASKING)).run_id
    mine = await place(b, run_id)
    for number in range(5):
        await pause(a, run_id, number)
    last = (await state_of(a, run_id)).seq
    b.fanout._read_later(b.fanout._feeds[run_id])
    await until(lambda: b.fanout._feeds[run_id].head == last)
    assert seqs(mine)[-1] == last


@pytest.mark.usefixtures("unpolled")
async def test_what_is_asked_for_while_a_feed_reads_is_read_as_well(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    deaf(b, monkeypatch)
    run_id = (await start(a, ASKING)).run_id
    await place(b, run_id)
    feed, real, reads = b.fanout._feeds[run_id], logs.read_log, 0

    async def meanwhile(*given: Any) -> Sequence[LogRow]:
        """Right behind the first read, there is more, and somebody says so."""
        nonlocal reads
        rows, reads = await real(*given), reads + 1
        if reads == 1:
            await pause(a, run_id, 1)
            b.fanout._read_later(feed)
        return rows

    await pause(a, run_id, 0)
    monkeypatch.setattr(logs, "read_log", meanwhile)
    b.fanout._read_later(feed)
    await until(lambda: not feed.reading)
    assert feed.head == (await state_of(a, run_id)).seq


async def test_a_read_or_a_poll_that_fails_is_followed_by_another(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = await make(), await make()
    monkeypatch.setattr(b.fanout, "hint", lambda payload: None)
    run_id = (await start(a, ASKING)).run_id
    mine = await place(b, run_id)
    failed = {"read_log": False, "poll_versions": False}

    def once(name: str) -> None:
        real = getattr(logs, name)

        async def failing(*given: Any) -> Any:
            if not failed[name]:
                failed[name] = True
                raise ConnectionError("the database is away")
            return await real(*given)

        monkeypatch.setattr(logs, name, failing)

    once("read_log")
    once("poll_versions")
    b.fanout.config = FanoutConfig(poll_seconds=0.05)
    b.fanout._wake.set()  # the poll's pause of before is over
    await pause(a, run_id)
    last = (await state_of(a, run_id)).seq
    await until(lambda: b.fanout._feeds[run_id].head == last)
    assert (failed, seqs(mine)[-1]) == ({"read_log": True, "poll_versions": True}, last)


@pytest.mark.usefixtures("unpolled")
async def test_a_hint_makes_a_feed_read_and_after_a_lost_connection_all_of_them(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    hint = b.fanout.hint
    run_id = (await start(a, ASKING)).run_id
    await place(b, run_id)
    deaf(b, monkeypatch)
    for number, payload in enumerate((f"nonsense,{run_id}", EVERYTHING)):
        await pause(a, run_id, number)
        last = (await state_of(a, run_id)).seq
        hint(payload)
        await until(lambda last=last: b.fanout._feeds[run_id].head == last)


async def test_however_many_hints_come_for_other_runs_the_poll_comes_too(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    hint = b.fanout.hint
    monkeypatch.setattr(b.fanout, "hint", lambda payload: None)
    quiet, loud = [(await start(a, ASKING)).run_id for _ in range(2)]
    await place(b, quiet)
    await place(b, loud)
    b.fanout.config = FanoutConfig(poll_seconds=0.5)
    b.fanout._wake.set()
    await pause(a, quiet)
    last = (await state_of(a, quiet)).seq

    def seen() -> bool:
        hint(str(loud))
        return b.fanout._feeds[quiet].head == last

    await until(seen)


async def test_who_follows_a_run_that_had_ended_sees_what_a_retry_brought(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, "steps:\n  - fail: no\n")).run_id
    ended = await state_of(runtime, run_id)
    assert ended.ended
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Retry(by="user:local"))
    found = runtime.fanout.follow(run_id, LOG, PROFILE, ended)
    seen = [piece.seq async for pieces in found for piece in pieces]
    assert seen == list(range(ended.seq + 1, (await state_of(runtime, run_id)).seq + 1))


@pytest.mark.usefixtures("unpolled")
async def test_a_follower_that_has_seen_more_than_its_feed_makes_it_read(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    deaf(b, monkeypatch)
    run_id = (await start(a, ASKING)).run_id
    before = await state_of(b, run_id)
    mine = await place(b, run_id)
    await pause(a, run_id)
    late = b.fanout.follow(run_id, LOG, OTHER, before)  # the first of its profile: it reads the log
    shown = require(await late.catch_up())
    async with asyncio.timeout(20):
        assert await late.catch_up() is None
    assert [piece.seq for piece in shown] == seqs(mine) == list(range(before.seq + 1, mine.seq + 1))


async def test_few_followers_of_a_turns_first_run_are_served_before_the_others(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_ids = [(await start(runtime, ASKING)).run_id for _ in range(2)]
    told: list[UUID] = []
    for run_id in run_ids:
        mine = await place(runtime, run_id)
        mine.notify = lambda run_id=run_id: told.append(run_id)
    turn = [(runtime.committer.peek(run_id), await log_of(eye, run_id)) for run_id in run_ids]
    for hot, events in turn:
        assert hot is not None
        runtime.fanout.publish_commit(hot, len(events) + 1, events[-1:])
    assert told == run_ids[:1]
    await until(lambda: told == run_ids)


async def test_a_run_with_many_followers_keeps_nobody_waiting(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    places = [await place(runtime, run_id) for _ in range(fanout.NOTIFIED_IN_COMMIT + 1)]
    told: list[int] = []
    for number, each in enumerate(places):
        each.notify = lambda number=number: told.append(number)
    hot, events = runtime.committer.peek(run_id), await log_of(eye, run_id)
    assert hot is not None
    runtime.fanout.publish_commit(hot, len(events) + 1, events[-1:])
    assert told == []
    await until(lambda: told == list(range(len(places))))
