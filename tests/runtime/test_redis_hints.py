"""Hints and events by Redis: quick while it is well, slower and never wrong while it is not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hai_flow.engine.state.state import RunState
from hai_flow.runtime.commit import hints as commit_hints
from hai_flow.runtime.commit.hints import (
    EVENTS_BYTES_MAX,
    LETTER_BYTES_MAX,
    LETTER_NEWS_MAX,
    NEWS_MAX,
    HintLetter,
    Hints,
    RunNotice,
)
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.streams import redis_hints
from hai_flow.runtime.streams.fanout import FanoutConfig, Following
from hai_flow.runtime.streams.redis_hints import SENDERS_MAX, LetterSealer, RedisAddress, RedisHints
from hai_flow.settings import SettingsError
from hai_flow.store.messaging.hints import HintSecret, seal_of
from hai_flow.store.postgres.database import EVERYTHING
from hai_flow.telemetry.instruments import Sum
from hai_flow.telemetry.metrics import Metrics
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG
from tests.runtime.conftest import ASKING, ECHO, LISTENING, Connection, Make, is_now, note, start, state_of
from tests.support.ledger import log_of
from tests.support.postgres import Server, connecting
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.waiting import until

PROFILE: Final = Profile(dialect="log")
KEY: Final = b"k" * 32


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Watcher:
    """Follows a run in one process, and keeps the seqs that it is shown."""

    def __init__(self, runtime: Runtime, following: Following) -> None:
        self.runtime = runtime
        self.seen: list[int] = []
        self._task = asyncio.create_task(self._watch(following))

    async def _watch(self, following: Following) -> None:
        async for pieces in following:
            self.seen += [piece.seq for piece in pieces]

    async def has(self, seq: int) -> None:
        """Until it was shown everything up to `seq`, once and in order."""
        await until(lambda: len(self.seen) >= seq)
        assert self.seen == list(range(1, len(self.seen) + 1))

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def watch(runtime: Runtime, run_id: UUID, seq: int) -> Watcher:
    """A watcher that has seen the log up to `seq`, and waits for more."""
    watcher = Watcher(runtime, runtime.fanout.follow(run_id, LOG, PROFILE, RunState(str(run_id))))
    await watcher.has(seq)
    await until(lambda: any(feed.rings for feed in runtime.fanout._feeds.values()))
    return watcher


async def lengthen(runtime: Runtime, run_id: UUID, data: Any = None) -> int:
    """Commit something for a run that listens. Returns its new seq."""
    return (await runtime.committer.submit(run_id, LOCAL_TENANT, note(str(uuid4()), data))).seq


@pytest.fixture
async def watchers() -> AsyncIterator[list[Watcher]]:
    made: list[Watcher] = []
    yield made
    for watcher in made:
        await watcher.leave()


async def carriers_are_up(*runtimes: Runtime) -> None:
    for runtime in runtimes:
        carrier = runtime.carrier
        assert isinstance(carrier, RedisHints)
        await until(lambda carrier=carrier: carrier.listens)


# --- while Redis is well --------------------------------------------------------------------------------------------


@needs_redis
async def test_followers_elsewhere_read_events_from_hints_and_query_nothing(
    make: Make, eye: Connection, redis: RedisServer, watchers: list[Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.runtime.FanoutConfig", lambda: FanoutConfig(poll_seconds=3600.0))
    writer, *servers = [await make(hints=redis.url) for _ in range(4)]
    await carriers_are_up(writer, *servers)
    started = await start(writer, LISTENING)
    watchers += [await watch(server, started.run_id, started.seq) for server in servers]
    read = [server.fanout.looks for server in servers]
    seq = started.seq
    for _ in range(20):
        seq = await lengthen(writer, started.run_id)
    for watcher in watchers:
        await watcher.has(seq)
    assert len(await log_of(eye, started.run_id)) == seq
    for server, before in zip(servers, read, strict=True):
        assert server.fanout.heard == seq - started.seq
        assert server.fanout.looks == before


@needs_redis
async def test_what_is_too_large_for_a_hint_is_read(make: Make, redis: RedisServer, watchers: list[Watcher]) -> None:
    writer, server = await make(hints=redis.url), await make(hints=redis.url)
    await carriers_are_up(writer, server)
    started = await start(writer, LISTENING)
    watchers.append(await watch(server, started.run_id, started.seq))
    seq = await lengthen(writer, started.run_id, "x" * EVENTS_BYTES_MAX)
    await watchers[0].has(seq)
    small = await lengthen(writer, started.run_id)
    await watchers[0].has(small)
    assert server.fanout.heard <= small - seq


@needs_redis
async def test_a_worker_hears_that_there_is_something_to_perform(make: Make, redis: RedisServer) -> None:
    server, worker = await make(hints=redis.url), await make(hints=redis.url, performs=True, poll_seconds=60.0)
    await carriers_are_up(server, worker)
    run_id = (await start(server, ECHO, input={"value": "v"})).run_id
    await until(lambda: is_now(server, run_id, "finished"))


@needs_redis
async def test_the_stream_is_short_and_goes_away(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_hints, "ENTRIES_MAX", 5)
    carrier = RedisHints(redis.url, HintSecret("place", KEY))
    for _ in range(20):
        await carrier.send(HintLetter([], ["word"]))
    client = redis_hints.connect(redis.url)
    assert await client.xlen(carrier.stream) == 5
    lasts: Any = client.ttl(carrier.stream)
    assert 0 < await lasts <= redis_hints.KEPT_SECONDS
    await client.aclose()
    await carrier.close()


@needs_redis
async def test_nothing_of_a_run_can_be_read_in_redis(make: Make, redis: RedisServer, watchers: list[Watcher]) -> None:
    writer = await make(hints=redis.url)
    started = await start(writer, LISTENING)
    await lengthen(writer, started.run_id, "a secret of somebody's")
    assert isinstance(writer.carrier, RedisHints)
    client = redis_hints.connect(redis.url)
    stream = writer.carrier.stream
    entries: Any = await until(lambda: client.xrange(stream))
    await until(lambda: client.xlen(stream))
    kept = b"".join(value for _, fields in entries for value in fields.values())
    assert b"secret" not in kept
    assert str(started.run_id).encode() not in kept
    assert started.run_id.bytes not in kept
    await client.aclose()


# --- while it is not ------------------------------------------------------------------------------------------------


@needs_redis
@pytest.mark.parametrize("trouble", ["killed", "frozen", "emptied", "silent", "slow"])
async def test_followers_miss_nothing_whatever_becomes_of_redis(
    make: Make, eye: Connection, redis: RedisServer, watchers: list[Watcher], trouble: str
) -> None:
    async with Proxy(redis.url) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        writer, server = await make(hints=url), await make(hints=url)
        await carriers_are_up(writer, server)
        started = await start(writer, LISTENING)
        watchers.append(await watch(server, started.run_id, started.seq))
        client = redis_hints.connect(redis.url)
        if trouble == "killed":
            redis.kill()
        elif trouble == "frozen":
            redis.freeze()
        elif trouble == "emptied":
            await client.flushall()
        elif trouble == "silent":
            proxy.swallow()
        else:
            for line in proxy.lines():
                line.delay_seconds = 0.3
        for _ in range(3):
            async with asyncio.timeout(20):  # no commit waits for Redis: with 35 s of a statement it would
                seq = await lengthen(writer, started.run_id)
            await watchers[0].has(seq)
        if trouble == "killed":
            redis.start()
        elif trouble == "frozen":
            redis.thaw()
        elif trouble == "silent":
            proxy.silent = False
            for line in proxy.lines():
                line.cut()
        await carriers_are_up(writer, server)
        before = server.fanout.heard

        async def hears_again() -> bool:
            await watchers[0].has(await lengthen(writer, started.run_id))
            return server.fanout.heard > before

        await until(hears_again, 40.0)
        await client.aclose()
    assert watchers[0].seen == list(range(1, len(watchers[0].seen) + 1))
    assert len(await log_of(eye, started.run_id)) >= len(watchers[0].seen)


@needs_redis
async def test_that_redis_is_away_is_said_once_shown_and_taken_back(make: Make, redis: RedisServer) -> None:
    metrics = Metrics()
    with capture_logs() as logs:
        runtime = await make(hints=redis.url, observers=[metrics])
        await carriers_are_up(runtime)
        assert shown(metrics, "hai_flow_hints_up") == 1
        redis.kill()
        await until(lambda: runtime.carrier.fault)
        run_id = (await start(runtime, ASKING)).run_id
        await until(lambda: runtime.committer.hints.dropped)
        assert shown(metrics, "hai_flow_hints_up") == 0
        assert shown(metrics, "hai_flow_hints_dropped_total") >= 1
        assert await is_now(runtime, run_id, "waiting")
        assert runtime.faults() == [], "a process without hints is slower, and ready"
        redis.start()
        await carriers_are_up(runtime)
        await start(runtime, ASKING)
        await until(lambda: runtime.carrier.fault is None)
    said = [line["event"] for line in logs]
    assert said.count("hints_away") == 1
    assert said.count("hints_back") == 1


@needs_redis
async def test_a_process_starts_without_redis_and_finds_it_later(make: Make, redis: RedisServer) -> None:
    redis.kill()
    runtime = await make(hints=redis.url)
    await until(lambda: runtime.carrier.fault)
    redis.start()
    await carriers_are_up(runtime)
    await until(lambda: runtime.carrier.fault is None)


@needs_redis
async def test_no_password_is_logged(make: Make) -> None:
    with RedisServer(password="the-right-one") as redis, capture_logs() as logs:
        runtime = await make(hints=redis.url.replace("the-right-one", "a-wrong-one"))
        fault = await until(lambda: runtime.carrier.fault)
        await runtime.stop()
    assert "wrong-one" not in str(logs)
    assert "wrong-one" not in str(fault)


@needs_redis
async def test_a_stream_whose_numbers_go_back_is_heard_all_the_same(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a server whose clock was ahead, or that was replaced by one whose clock is behind."""
    monkeypatch.setattr(redis_hints, "WAIT_SECONDS", 0.2)
    heard: list[HintLetter] = []
    client = redis_hints.connect(redis.url)
    speaker, hearer = RedisHints(redis.url, HintSecret("place", KEY)), RedisHints(redis.url, HintSecret("place", KEY))
    await client.xadd(speaker.stream, {"s": b"x", "n": 1, "d": b""}, id="99999999999999-0")
    await hearer.listen(heard.append)
    await until(lambda: heard)
    await client.delete(speaker.stream)
    await until(lambda: len(heard) > 1)  # it has noticed
    await speaker.send(HintLetter([], ["word"]))
    await until(lambda: "word" in heard[-1].words)
    for each in (speaker, hearer):
        await each.close()
    await client.aclose()


# --- who else writes there ------------------------------------------------------------------------------------------


@needs_redis
async def test_what_others_write_into_the_stream_is_shown_to_nobody(
    make: Make, eye: Connection, redis: RedisServer, watchers: list[Watcher]
) -> None:
    writer, server = await make(hints=redis.url), await make(hints=redis.url)
    await carriers_are_up(writer, server)
    assert isinstance(server.carrier, RedisHints)
    started = await start(writer, LISTENING)
    watchers.append(await watch(server, started.run_id, started.seq))
    next_seq = started.seq + 1
    forged = RunNotice(str(started.run_id), next_seq, next_seq, b'[{"type":"run_finished","at":1,"output":"forged"}]')
    client, stream = redis_hints.connect(redis.url), server.carrier.stream
    stranger = LetterSealer(b"z" * 32)
    for each in (
        {"d": b"nothing else"},
        {"s": b"s", "n": b"-1", "d": b"d"},
        {"s": b"s", "n": b"9" * 40, "d": b"d"},
        {"s": b"", "n": b"x", "d": b""},
        stranger.seal(HintLetter([forged], []))._asdict(),
    ):
        fields: dict[Any, Any] = {{"sender": "s", "number": "n", "data": "d"}.get(k, k): v for k, v in each.items()}
        await client.xadd(stream, fields)
    await until(lambda: server.carrier.refused == 5)
    first = await lengthen(writer, started.run_id)
    await watchers[0].has(first)
    entries: Any = await client.xrange(stream)
    for _, fields in entries:  # all that there is once more: what was heard is heard once
        await client.xadd(stream, fields)
    await until(lambda: server.carrier.refused == 5 + len(entries))
    last = await lengthen(writer, started.run_id)
    await watchers[0].has(last)
    state = await state_of(server, started.run_id)
    assert not state.ended
    assert state.seq == last == len(await log_of(eye, started.run_id))
    assert watchers[0].seen == list(range(1, last + 1))
    await client.aclose()


async def test_each_database_has_a_place_and_a_key_of_its_own(eye: Connection, postgres_server: Server) -> None:
    here = await seal_of(eye)
    assert here == await seal_of(eye)
    with postgres_server.database() as other:
        async with connecting(other) as there:
            await there.execute("TRUNCATE hint_keys")
            key = await eye.fetchval("SELECT key FROM hint_keys")
            await there.execute("INSERT INTO hint_keys (key) VALUES ($1)", key)  # as in a copy
            copied = await seal_of(there)
    assert copied.place != here.place
    assert copied.key != here.key


@given(
    st.binary(max_size=40), st.integers(-5, 2**100), st.integers(0, 2), st.integers(0, 10_000), st.binary(min_size=1)
)
def test_a_letter_opens_as_it_was_sealed_and_in_no_other_way(
    junk: bytes, number: int, which: int, place: int, change: bytes
) -> None:
    sealer, letter = LetterSealer(KEY), HintLetter([RunNotice("r", 1, 2, b"[]")], ["due"])
    sealed = sealer.seal(letter)
    opener = LetterSealer(KEY)
    assert opener.open(sealed) == letter
    at = place % len(sealed.data)
    data = sealed.data[:at] + change + sealed.data[at + len(change) :]
    changed = [sealed._replace(sender=junk), sealed._replace(number=number), sealed._replace(data=data)][which]
    if changed != sealed:
        assert opener.open(changed) is None
    assert LetterSealer(b"other" * 6).open(sealed) is None


# --- what waits is bounded ------------------------------------------------------------------------------------------


class Closed:
    """A carrier that takes nothing."""

    carries_events = True
    refused = 0
    fault = "closed"

    async def send(self, letter: HintLetter) -> None:
        raise ConnectionError("closed")

    async def listen(self, hear: Any) -> None: ...

    async def close(self) -> None: ...


def test_what_waits_to_be_told_is_bounded_and_goes_out_in_order() -> None:
    hints = Hints(Closed())
    for number in range(NEWS_MAX + 10):
        hints._keep(RunNotice(str(number), 1, 1, b"x" * 100))
    assert hints.dropped == 10
    first = hints._take()
    assert EVERYTHING in first.words, "who hears it looks at everything"
    told = [news.run_id for news in first.news]
    while letter := hints._take().news:
        assert sum(len(news.events) for news in letter) <= LETTER_BYTES_MAX
        told += [news.run_id for news in letter]
    assert told == [str(number) for number in range(NEWS_MAX)]


class _Busy(Closed):
    """While it sends, something else is committed."""

    carries_events = False

    def __init__(self) -> None:
        self.letters: list[HintLetter] = []

    async def send(self, letter: HintLetter) -> None:
        self.letters.append(letter)
        await asyncio.sleep(0)
        self.hints.add_tenant(uuid4())

    hints: Hints


def test_runs_that_are_told_by_name_go_out_in_order_in_bounded_letters() -> None:
    hints, told = Hints(_Busy()), list[str]()
    for number in range(2 * LETTER_NEWS_MAX + 10):
        hints._keep(RunNotice(str(number), 0, 0))
    while letter := hints._take().news:
        assert len(letter) <= LETTER_NEWS_MAX
        told += [news.run_id for news in letter]
    assert told == [str(number) for number in range(2 * LETTER_NEWS_MAX + 10)]


async def test_commits_that_come_while_a_hint_is_sent_share_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_hints, "HINT_SECONDS", 3600.0)
    carrier = _Busy()
    carrier.hints = Hints(carrier)
    carrier.hints.add_tenant(uuid4())
    sending = asyncio.create_task(carrier.hints.run())
    for _ in range(100):
        await asyncio.sleep(0)
    sending.cancel()
    assert len(carrier.letters) == 1


# --- how it is said ---------------------------------------------------------------------------------------------------


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(SettingsError, match=r"HAI_FLOW_HINTS: install its package: pip install hai-flow\[redis\]"):
        redis_hints.connect("redis://127.0.0.1:1/0")


def test_the_prefix_is_ours_and_the_rest_of_the_address_is_not() -> None:
    assert RedisAddress.parse("redis://h:1/0?prefix=a&db=2") == RedisAddress("redis://h:1/0?db=2", "a")
    assert RedisAddress.parse("rediss://u:p@h:1/0") == RedisAddress("rediss://u:p@h:1/0", "hai-flow")
    with pytest.raises(SettingsError, match="can't read the address") as refused:
        redis_hints.connect("redis://:secret@h:1/0?socket_timeout=many")
    assert "secret" not in str(refused.value)


def shown(metrics: Metrics, name: str) -> float:
    (family,) = [family for family in metrics.collect() if family.name == name]
    assert isinstance(family, Sum)
    (value,) = family.series.values()
    return value


def _heard_of(numbers: list[int]) -> list[list[str]]:
    """What a listener is told of letters with these numbers of one sender: the payloads of each."""
    hints, sender, told = (
        RedisHints("redis://127.0.0.1:1", HintSecret("place", KEY)),
        LetterSealer(KEY),
        list[list[str]](),
    )
    hints._hear = lambda letter: told.append(list(letter.words))
    hints._heard.update((str(n).encode(), 1) for n in range(SENDERS_MAX))  # of processes that have gone
    letters = {number: sender.seal(HintLetter([], [f"letter {number}"])) for number in range(1, max(numbers) + 1)}
    for number in numbers:
        sealed = letters[number]
        hints._take({b"s": sealed.sender, b"n": str(sealed.number).encode(), b"d": sealed.data})
    return told


@pytest.mark.parametrize(
    ("numbers", "missed"),
    [([1, 2, 3], []), ([1, 2, 4, 5], [4]), ([3, 4], [3]), ([1, 3, 5], [3, 5])],
    ids=["none", "one", "the first ones of a new process", "two"],
)
def test_a_listener_that_misses_a_message_reads_all_before_the_next(numbers: list[int], missed: list[int]) -> None:
    wanted = list[list[str]]()
    for number in numbers:
        wanted += [[EVERYTHING]] if number in missed else []
        wanted.append([f"letter {number}"])
    assert _heard_of(numbers) == wanted
