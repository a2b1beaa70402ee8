"""Followers see what is committed, all of it, once, in order, wherever they follow and whenever they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import pytest

from hai_flow.definition.personal.pii_flow import WHOLE
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.snapshot import encode_state
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected, Unreadable
from hai_flow.runtime.commit import loader
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.streams import fanout
from hai_flow.runtime.streams.fanout import FanoutConfig, FollowerBatch, Following, Lagging, RingSubscription
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import Entry
from hai_flow.store.messaging.hints import OWN
from hai_flow.store.runs import logs
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialects.dialect import Dialect, Profile
from hai_flow.wire.dialects.log import LOG, LogEncoder
from tests.runtime.conftest import ASKING, GATED, LISTENING, TEXT, Connection, Make, is_now, note, start, state_of
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.values import require
from tests.support.waiting import until

PROFILE = Profile(dialect="log")


def follow(runtime: Runtime, start_state: RunState) -> Following:
    return runtime.fanout.follow(UUID(start_state.run_id), LOG, PROFILE, start_state)


async def seqs_from(runtime: Runtime, run_id: UUID, seq: int = 0) -> list[int]:
    """The seqs that a follower after `seq` sees until the run ends."""
    state = await state_of(runtime, run_id, seq)
    return [piece.seq async for pieces in follow(runtime, state) for piece in pieces]


async def nudge(runtime: Runtime, run_id: UUID, number: int) -> None:
    """Make the run's log longer: pause it (an even number), or resume it."""
    command = c.Resume(by="user:local") if number % 2 else c.Pause(by="user:local", reason="x" * 200)
    await runtime.committer.submit(run_id, LOCAL_TENANT, command)


async def terminate(runtime: Runtime, run_id: UUID) -> None:
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Terminate(by="user:local"))


async def test_followers_in_two_processes_see_each_event_once_in_order(make: Make, eye: Connection) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, GATED)).run_id
    followers = [asyncio.create_task(seqs_from(each, run_id)) for each in (a, b, a, b)]
    for number in range(20):
        await nudge((a, b)[number % 2], run_id, number)
    effects.gate.set()
    seen = await asyncio.wait_for(asyncio.gather(*followers), 20)
    events = await log_of(eye, run_id)
    assert seen == [list(range(1, len(events) + 1))] * 4


async def test_streams_of_a_run_continued_by_a_newer_release_end_resumably(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = await make(), await make()
    run_id = (await start(new, GATED)).run_id
    follower = follow(old, await state_of(old, run_id))
    while await follower.catch_up() is not None:
        pass
    waiting = asyncio.ensure_future(anext(follower))
    encode = e.encode_events
    monkeypatch.setattr(e, "encode_events", lambda events: encode(events).replace(b'"type"', b'"novelty":1,"type"', 1))
    await nudge(new, run_id, 0)
    with pytest.raises(Lagging):
        await asyncio.wait_for(waiting, 20)
    assert run_id not in old.fanout._feeds, "nobody asks for it at each poll"
    with pytest.raises(Unreadable, match="novelty"):
        await state_of(old, run_id)
    await eye.execute(
        "UPDATE log SET events = convert_to(replace(convert_from(events, 'UTF8'), '\"novelty\":1,', ''), 'UTF8')"
    )
    seen = [piece.seq for piece in await anext(follow(old, await state_of(old, run_id, 1)))]
    assert seen == list(range(2, (await state_of(old, run_id)).seq + 1))


async def test_a_follower_resumes_after_every_seq_without_gap_or_repetition(make: Make) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, TEXT)).run_id
    whole = await asyncio.wait_for(seqs_from(a, run_id), 20)
    last = whole[-1]
    for process in (a, b):
        for seq in range(last + 1):
            assert await asyncio.wait_for(seqs_from(process, run_id, seq), 20) == whole[seq:], f"after {seq}"


async def test_one_that_comes_in_the_middle_of_a_stream_misses_nothing(make: Make, eye: Connection) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, TEXT)).run_id
    late = []
    for seq in range(0, 12, 2):
        await until(lambda seq=seq: has_seq(eye, run_id, seq), every=0.001)
        late += [asyncio.create_task(seqs_from(each, run_id, seq)) for each in (a, b)]
    seen = await asyncio.wait_for(asyncio.gather(*late), 20)
    last = len(await log_of(eye, run_id))
    for number, seqs in enumerate(seen):
        assert seqs == list(range(number // 2 * 2 + 1, last + 1))


async def has_seq(eye: Connection, run_id: UUID, seq: int) -> bool:
    return await eye.fetchval("SELECT seq FROM runs WHERE id = $1", run_id) >= seq


async def test_the_bytes_of_a_follower_do_not_depend_on_where_it_came_in(make: Make) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, TEXT)).run_id
    dialect, profile = DIALECTS["hai"], Profile(dialect="hai")

    async def data(runtime: Runtime) -> bytes:
        found = [
            p.data async for ps in runtime.fanout.follow(run_id, dialect, profile, RunState(str(run_id))) for p in ps
        ]
        return b"".join(found)

    live = await asyncio.wait_for(asyncio.gather(data(a), data(b), data(a)), 20)
    afterwards = await data(b)
    assert {*live} == {afterwards}


async def test_who_is_slower_than_the_ring_is_told_to_come_back(make: Make) -> None:
    runtime = await make()
    runtime.fanout.config = FanoutConfig(ring_bytes_max=1024)
    run_id = (await start(runtime, ASKING)).run_id
    slow = follow(runtime, await state_of(runtime, run_id))
    first = asyncio.create_task(anext(slow))
    await until(lambda: rings(runtime, run_id))
    await nudge(runtime, run_id, 0)
    seen = (await asyncio.wait_for(first, 20))[-1].seq
    for number in range(1, 30):
        await nudge(runtime, run_id, number)
    with pytest.raises(Lagging):
        await anext(slow)
    again = asyncio.create_task(seqs_from(runtime, run_id, seen))
    await terminate(runtime, run_id)
    seqs = await asyncio.wait_for(again, 20)
    assert seqs == list(range(seen + 1, seqs[-1] + 1))


def rings(runtime: Runtime, run_id: UUID) -> int:
    feed = runtime.fanout._feeds.get(run_id)
    return 0 if feed is None else len(feed.rings)


def on_rings(runtime: Runtime, run_id: UUID) -> int:
    """How many followers have read what was there, and wait for more."""
    return sum(len(ring.places) for ring in runtime.fanout._feeds[run_id].rings.values())


async def test_without_hints_the_poll_shows_what_another_process_commits(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    b.fanout.config = FanoutConfig(poll_seconds=0.2)
    monkeypatch.setattr(b.fanout, "hint", lambda payload: None)
    run_id = (await start(a, ASKING)).run_id
    follower = asyncio.create_task(seqs_from(b, run_id))
    await until(lambda: rings(b, run_id))
    await terminate(a, run_id)
    seqs = await asyncio.wait_for(follower, 20)
    assert seqs == list(range(1, len(seqs) + 1))


async def test_followers_of_one_profile_share_what_was_encoded_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    state = await state_of(runtime, run_id)

    async def pieces() -> list[StreamItem]:
        return [piece async for some in follow(runtime, state) for piece in some]

    followers = [asyncio.create_task(pieces()) for _ in range(50)]
    await until(lambda: rings(runtime, run_id) and on_rings(runtime, run_id) == 50)
    encoded, real = [], LogEncoder.encode
    monkeypatch.setattr(LogEncoder, "encode", lambda self, event: encoded.append(event) or real(self, event))
    await nudge(runtime, run_id, 0)
    await terminate(runtime, run_id)
    seen = await asyncio.wait_for(asyncio.gather(*followers), 20)
    assert len({id(piece.data) for some in seen for piece in some}) == len(seen[0]) == len(encoded)


async def test_at_a_close_every_stream_says_farewell_and_ends(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    state = await state_of(runtime, run_id)
    dialect = DIALECTS["hai"]

    async def last() -> StreamItem:
        found = [p async for ps in runtime.fanout.follow(run_id, dialect, Profile(dialect="hai"), state) for p in ps]
        return found[-1]

    following = [asyncio.create_task(last()) for _ in range(3)]
    await until(lambda: rings(runtime, run_id))
    await runtime.fanout.stop()
    for piece in await asyncio.wait_for(asyncio.gather(*following), 20):
        assert piece.seq == 0
    assert not runtime.fanout._feeds


async def test_at_a_close_a_stream_without_a_farewell_ends_too(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    following = asyncio.create_task(seqs_from(runtime, run_id))
    await until(lambda: rings(runtime, run_id))
    await runtime.fanout.stop()
    *seqs, farewell = await asyncio.wait_for(following, 20)
    assert (seqs, farewell) == (list(range(1, len(seqs) + 1)), 0)


async def test_a_follower_that_is_dropped_leaves_its_place(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    following = follow(runtime, await state_of(runtime, run_id))
    assert await following.catch_up() is None
    assert on_rings(runtime, run_id) == 1
    del following
    assert not runtime.fanout._feeds


async def test_followers_that_leave_while_they_read_cost_no_connection(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    state = await state_of(runtime, run_id, 0)
    reading = "SELECT pid FROM pg_locks WHERE relation = 'log'::regclass AND NOT granted"
    async with eye.transaction():
        await eye.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")
        leaving = asyncio.create_task(anext(follow(runtime, state)))
        await until(lambda: eye.fetchval(reading))
        pid = await eye.fetchval(reading)
        leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await until(lambda: eye.fetchval(f"SELECT NOT EXISTS ({reading})"))
    assert await eye.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 1


async def test_a_leaving_follower_does_not_wait_for_a_silent_database(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "LEAVES_WITHIN_SECONDS", 0.01)
    runtime = await make()
    state = await state_of(runtime, (await start(runtime, ASKING)).run_id, 0)
    reading = "SELECT count(*) FROM pg_locks WHERE relation = 'log'::regclass AND NOT granted"
    async with eye.transaction():
        await eye.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")
        leaving = asyncio.create_task(anext(follow(runtime, state)))
        await until(lambda: eye.fetchval(reading))
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(leaving, 30)
    async with runtime.database.api.acquire() as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    state = await state_of(runtime, run_id)
    places = []
    for _ in range(2 * fanout.NOTIFIED_AT_ONCE + 1):
        following = follow(runtime, state)
        assert await following.catch_up() is None
        places.append(following.hand_over())
    told: list[int] = []

    def fail() -> None:
        raise RuntimeError("a follower's fault")

    places[0].notify = fail
    for number, place in enumerate(places[1:], 1):
        place.notify = lambda number=number: told.append(number)  # type: ignore[misc]
    await nudge(runtime, run_id, 0)
    await until(lambda: len(told) >= len(places) - 1, every=0)
    assert told == list(range(1, len(places)))
    taken = [place.take() for place in places]
    assert {id(news) for news in taken} == {id(taken[0])}
    assert taken[0].data == b"".join(piece.data for piece in taken[0].pieces) != b""
    for place in places:
        place.leave()
        place.leave()
    assert not runtime.fanout._feeds
    assert not places[0].take().pieces


async def test_an_encoder_that_fails_ends_its_own_streams_and_no_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    follower = asyncio.create_task(seqs_from(runtime, run_id, 2**53))
    await until(lambda: rings(runtime, run_id))
    monkeypatch.setattr(LogEncoder, "encode", lambda self, event: 1 / 0)
    await nudge(runtime, run_id, 0)
    with pytest.raises(Lagging):
        await asyncio.wait_for(follower, 20)


@pytest.mark.parametrize("every_commit", [False, True])
async def test_the_snapshot_at_k_is_the_fold_of_k_events_for_every_k(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, every_commit: bool
) -> None:
    if every_commit:
        monkeypatch.setattr(loader, "SNAPSHOT_BYTES_MIN", 0)
        real = loader.Snapshots.save_if_due

        def always(self: loader.Snapshots, run: CachedRun) -> None:
            run._snapshot_bytes = 0
            real(self, run)

        monkeypatch.setattr(loader.Snapshots, "save_if_due", always)
    a, b = await make(performs=True), await make()
    run_ids = [(await start(a, body)).run_id for body in (TEXT, ASKING, effects.FLOW.decode().split("version: 1\n")[1])]
    await nudge(b, run_ids[1], 0)
    await terminate(b, run_ids[1])
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(a, run_id, "finished", "stopped"))
        events = await log_of(eye, run_id)
        if every_commit:
            await until(lambda run_id=run_id: has_snapshots(eye, run_id))
        state = RunState(str(run_id))
        assert await state_of(b, run_id, 0) == state
        for k, event in enumerate(events, 1):
            state = evolve(state, event)
            assert await state_of(b, run_id, k) == state, f"snapshot at {k}"


async def has_snapshots(eye: Connection, run_id: UUID) -> bool:
    return await eye.fetchval("SELECT count(*) FROM snapshots WHERE run_id = $1", run_id) >= 2


async def test_only_committed_events_are_published(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    published: list[tuple[int, list[e.Event]]] = []

    def record(run: CachedRun, first: int, events: Sequence[e.Event]) -> None:
        published.append((first, list(events)))

    runtime.committer.listeners.committed.append(record)
    run_id = (await start(runtime, TEXT)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    events = await log_of(eye, run_id)
    for first, some in published:
        assert events[first - 1 : first - 1 + len(some)] == some


async def test_nobody_sees_a_commit_that_is_held_back_and_then_refused(make: Make, eye: Connection) -> None:
    """Somebody else has the run's row, and ends the run: the pause that was decided meanwhile never happened."""
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    hot = require(runtime.committer.peek(run_id))
    assert hot.plan is not None
    seen: list[StreamItem] = []
    here = hot.state
    follower = asyncio.create_task(collect(follow(runtime, here), seen))
    await until(lambda: following(runtime, run_id))
    ended = decide(hot.plan, here, c.Terminate(by="user:local"), runtime.committer.now_ms())
    events = e.encode_events(ended.events)
    entry = Entry(
        run_id=run_id, tenant=LOCAL_TENANT, n=len(ended.events), events=events, version=hot.version,
        status=ended.state.status, busy=False,
    )  # fmt: skip
    async with runtime.database.engine.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM runs WHERE id = $1 FOR NO KEY UPDATE", run_id)
        pausing = asyncio.create_task(nudge(runtime, run_id, 0))
        await until(lambda: somebody_waits(eye))
        for _ in range(100):  # whatever was published would have got there
            await asyncio.sleep(0)
        assert (seen, pausing.done()) == ([], False)
        done = await commits.commit(holder, [entry], None, runtime.committer.now())
        assert done.won
    with pytest.raises(Rejected):
        await pausing
    await asyncio.wait_for(follower, 20)
    assert await log_of(eye, run_id) == [*(await log_of(eye, run_id))[: here.seq], *ended.events]
    assert [piece.seq for piece in seen] == list(range(here.seq + 1, ended.state.seq + 1))
    assert not any(b"run_paused" in piece.data for piece in seen)


async def collect(found: Following, seen: list[StreamItem]) -> None:
    async for pieces in found:
        seen.extend(pieces)


async def following(runtime: Runtime, run_id: UUID) -> bool:
    feed = runtime.fanout._feeds.get(run_id)
    return feed is not None and feed.head is not None and bool(feed.rings)


async def somebody_waits(eye: Connection) -> bool:
    return bool(await eye.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_a_feed_told_of_a_gap_behind_its_head_reads_it(make: Make, eye: Connection) -> None:
    a, b = await make(), await make(poll_seconds=60.0)
    run_id = (await start(a, ASKING)).run_id
    here = await state_of(a, run_id)
    seen: list[StreamItem] = []
    follower = asyncio.create_task(collect(follow(b, here), seen))
    await until(lambda: following(b, run_id))
    b.fanout.hint = lambda payload: None  # type: ignore[method-assign]
    for number in range(3):
        await nudge(a, run_id, number)
    await terminate(a, run_id)
    rows = await eye.fetch("SELECT first_seq, events FROM log WHERE run_id = $1 ORDER BY last_seq", run_id)
    assert not seen
    b.fanout.publish_commit(SimpleNamespace(id=run_id), rows[-1][0], e.decode_events(rows[-1][1]))  # type: ignore[arg-type]
    await asyncio.wait_for(follower, 20)
    whole: list[StreamItem] = []
    await collect(follow(a, here), whole)
    assert [(piece.seq, piece.data) for piece in seen] == [(piece.seq, piece.data) for piece in whole]
    assert [piece.seq for piece in seen] == list(range(here.seq + 1, len(await log_of(eye, run_id)) + 1))


async def test_a_process_reads_nothing_for_its_own_hint_but_others_do(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.runtime.FanoutConfig", lambda: FanoutConfig(poll_seconds=3600.0))
    writer, other = await make(), await make()
    heard: list[str] = []
    hint = writer.fanout.hint
    monkeypatch.setattr(writer.fanout, "hint", lambda payload: (heard.append(payload), hint(payload)))
    started = await start(writer, GATED)
    run_id = started.run_id
    here, there = [follow(runtime, await state_of(runtime, run_id, started.seq)) for runtime in (writer, other)]
    for following in (here, there):
        assert not await following.catch_up()
    looks = writer.fanout.looks
    for number in range(5):
        heard.clear()
        await nudge(writer, run_id, number)
        assert await anext(here)
        assert await anext(there)
        await until(lambda: OWN in heard)
    assert not any(str(run_id) in payload for payload in heard)
    assert writer.fanout.looks == looks < other.fanout.looks
    await here.aclose()
    await there.aclose()


@pytest.fixture
def encoder_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Encoding beside the loop: `entered` is set when it begins, and it ends with `release`."""
    held = SimpleNamespace(entered=threading.Event(), release=threading.Event())
    encode = fanout._encode

    def hold(*args: Any) -> Any:
        encoded = encode(*args)
        if threading.current_thread() is not threading.main_thread():
            held.entered.set()
            held.release.wait(20)
        return encoded

    monkeypatch.setattr(fanout, "_encode", hold)
    yield held
    held.release.set()


async def follow_to_place(
    runtime: Runtime, run_id: UUID, dialect: Dialect, profile: Profile, seq: int = 2**53
) -> RingSubscription:
    """The place of a follower who has seen all that was committed, beginning behind `seq`."""
    following = runtime.fanout.follow(run_id, dialect, profile, await state_of(runtime, run_id, seq))
    while await following.catch_up() is not None:
        pass
    return following.hand_over()


async def take_until(place: RingSubscription, seq: int) -> list[int]:
    """The seqs that come at a place, up to this one."""
    seqs: list[int] = []
    while not seqs or seqs[-1] < seq:
        seqs += [piece.seq for piece in place.take().pieces]
        await asyncio.sleep(0)
    return seqs


async def hold_large_commit(runtime: Runtime, run_id: UUID, held: SimpleNamespace) -> None:
    await runtime.committer.submit(run_id, LOCAL_TENANT, note("large", "x" * 100_000))
    await until(held.entered.is_set)


async def test_all_see_all_in_order_while_large_events_are_encoded(
    make: Make, encoder_held: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, LISTENING)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    begun = (await state_of(runtime, run_id)).seq
    first = await follow_to_place(runtime, run_id, LOG, PROFILE)
    leaving = await follow_to_place(runtime, run_id, DIALECTS["hai"], Profile(dialect="hai"))
    await hold_large_commit(runtime, run_id, encoder_held)
    with monkeypatch.context() as patch:  # who read the log before the commit
        patch.setattr(runtime.fanout, "_log_behind", AsyncMock(return_value=[]))
        joining = await follow_to_place(runtime, run_id, DIALECTS["aui"], Profile(dialect="aui"), begun)
    leaving.leave()
    await runtime.committer.submit(run_id, LOCAL_TENANT, note("small"))
    last = (await state_of(runtime, run_id)).seq
    assert not first.take().pieces
    encoder_held.release.set()
    for place in (first, joining):
        assert await asyncio.wait_for(take_until(place, last), 20) == list(range(begun + 1, last + 1))


async def test_a_farewell_comes_behind_the_events_that_are_being_encoded(
    make: Make, encoder_held: SimpleNamespace
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, LISTENING)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    place = await follow_to_place(runtime, run_id, LOG, PROFILE)
    await hold_large_commit(runtime, run_id, encoder_held)
    last = (await state_of(runtime, run_id)).seq
    runtime.fanout.close_streams()
    assert not place.take().pieces
    taken: list[FollowerBatch] = []
    place.notify = lambda: taken.append(place.take())  # once for each call, as an outlet does
    encoder_held.release.set()
    await until(lambda: taken and taken[-1].last)
    assert [piece.seq for batch in taken for piece in batch.pieces][-2:] == [last, 0]


async def test_a_place_gets_its_farewell_with_the_news_that_it_had_not_taken(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    place = await follow_to_place(runtime, run_id, LOG, PROFILE)
    seq = place.seq
    await nudge(runtime, run_id, 0)
    runtime.fanout.close_streams()
    news = place.take()
    assert news.last
    assert [piece.seq for piece in news.pieces] == [*range(seq + 1, place.seq + 1), 0]
    assert place.seq > seq


async def test_streams_end_where_their_encoding_is_cut_off(make: Make, encoder_held: SimpleNamespace) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, LISTENING)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    place = await follow_to_place(runtime, run_id, LOG, PROFILE)
    await hold_large_commit(runtime, run_id, encoder_held)
    reading = next(task for task in asyncio.all_tasks() if "_read" in repr(task.get_coro()) and task.cancel())
    await asyncio.wait([reading])
    with pytest.raises(Lagging):
        place.take()


async def test_events_that_come_again_while_nobody_follows_are_counted_once(
    make: Make, encoder_held: SimpleNamespace
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, LISTENING)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    begun = (await state_of(runtime, run_id)).seq
    place = await follow_to_place(runtime, run_id, LOG, PROFILE)
    await hold_large_commit(runtime, run_id, encoder_held)
    last = (await state_of(runtime, run_id)).seq
    (row,) = await runtime.fanout._log_behind(run_id, begun)
    with runtime.fanout._attach(run_id) as feed:
        place.leave()
        runtime.fanout.publish_commit(
            cast(CachedRun, SimpleNamespace(id=run_id)), begun + 1, e.decode_events(row.events)
        )
        encoder_held.release.set()
        await until(lambda: not feed.reading)
        assert feed.head == last


def test_changes_of_the_state_are_encoded_beside_the_loop_for_masks() -> None:
    changed = (e.StateChanged(at=1, path="set", ops=()),)
    whole, masked = fanout._Feed(uuid4(), None), fanout._Feed(uuid4(), None)
    for feed, profile in ((whole, PROFILE), (masked, Profile(dialect="log", personal=WHOLE))):
        feed.rings["log", profile] = fanout._Ring(feed, LOG, profile, LogEncoder(profile, RunState("r")), 1)
    assert masked.is_slow_to_encode(changed)
    assert not whole.is_slow_to_encode(changed)
    assert not masked.is_slow_to_encode((e.TimerFired(at=1, path="pause", kind="wait"),))


async def test_a_load_in_flight_is_nobody_s_who_asks_behind_a_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    real, loads, go_on = logs.load_run_at, 0, asyncio.Event()

    async def counted(*given: Any) -> Any:
        nonlocal loads
        loads += 1
        loaded = await real(*given)
        await go_on.wait()
        return loaded

    monkeypatch.setattr(logs, "load_run_at", counted)
    first = asyncio.create_task(state_of(runtime, run_id))
    await until(lambda: loads)
    await nudge(runtime, run_id, 0)
    later = [asyncio.create_task(state_of(runtime, run_id)) for _ in range(100)]
    await until(lambda: runtime.fanout._states._next)
    go_on.set()
    before, behind = await first, await asyncio.gather(*later)
    assert {each.status for each in behind} == {"paused"}
    assert (loads, before.seq + 1) == (2, behind[0].seq)
    following = [asyncio.create_task(anext(follow(runtime, state))) for state in (before, behind[0])]
    assert [piece.seq for piece in await following[0]] == [behind[0].seq]
    await terminate(runtime, run_id)
    assert (await following[1])[0].seq == behind[0].seq + 1


async def test_a_feed_ahead_of_the_log_sends_its_followers_back(make: Make, eye: Connection) -> None:
    """Another run has the id by now, or a standby that took over lacks the last commits."""
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    before = await state_of(runtime, run_id)
    await nudge(runtime, run_id, 0)
    following = follow(runtime, before)
    await anext(following)
    waiting = asyncio.create_task(anext(following))
    await until(lambda: following.place is not None)
    await eye.execute("DELETE FROM log WHERE run_id = $1 AND last_seq > $2", run_id, before.seq)
    for each in (asyncio.ensure_future(anext(follow(runtime, before))), waiting):
        with pytest.raises(Lagging):
            await each


async def test_state_read_behind_a_known_one_is_that_of_the_whole_log(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    await nudge(runtime, run_id, 0)
    end = (await state_of(runtime, run_id)).seq

    async def read(seq: int, state: RunState | None = None) -> RunState:
        known = None if state is None else CachedRun(run_id, LOCAL_TENANT, state)
        return require(await state_at(runtime.database, LOCAL_TENANT, run_id, seq, known=known))

    whole = [await read(seq) for seq in range(1, end + 1)]
    for seq in (*range(1, end + 1), HEAD):
        for known in whole:  # also one that is behind `seq`
            assert encode_state(await read(seq, known)) == encode_state(whole[min(seq, end) - 1])
    assert await state_at(runtime.database, uuid4(), run_id, HEAD) is None
    await eye.execute("DELETE FROM log WHERE run_id = $1 AND last_seq = $2", run_id, end)
    await eye.execute("UPDATE runs SET seq = $2 WHERE id = $1", run_id, end - 1)
    assert (await read(HEAD, whole[-1])).seq == end - 1
