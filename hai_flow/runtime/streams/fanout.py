"""Follow a run after a seq: committed events, encoded once for all followers of one profile
(docs/design/store.md#fan-out). A followed run has one *feed*, fed by this process's commits and by the log when a hint
or the poll says so; a feed has one *ring* for each profile, and a follower is a *place* in a ring, which the ring
calls. A feed accepts only what begins right after its head; anything else makes it read, once for all. An encoder is a
function of (state, event), so its bytes are shared. A ring forgets its oldest pieces; a slower follower is closed and
comes back with its cursor."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
import structlog

from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Unreadable
from hai_flow.primitives.beside_loop import WORK_FOR, run_beside_loop, run_by_size
from hai_flow.runtime.base.service import Service, wait_at_most
from hai_flow.runtime.base.single_flight import Together
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.hints import RunNotice
from hai_flow.runtime.commit.states import state_at
from hai_flow.runtime.streams.stream_items import StreamItem, is_slow_to_encode, item_of_event, item_without_number
from hai_flow.store.ops.replicas import History
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import EVERYTHING, Database
from hai_flow.store.runs import logs
from hai_flow.wire.dialects.dialect import Dialect, Encoder, Profile

log = structlog.get_logger(__name__)

READ_ROWS: Final = 200
DECODED_FOR_ALL_BYTES: Final = 256 * 1024  # of a page of the log: its events take some times as much
LEAVES_WITHIN_SECONDS: Final = 1.0  # a follower that leaves waits so long for the answer that it has asked for
NOTIFIED_IN_COMMIT: Final = 4  # followers that are notified before anything else happens, where that is all to notify
NOTIFIED_AT_ONCE: Final = 200  # followers in one turn of the loop: some milliseconds, in which nothing else happens

_LogPage: TypeAlias = list[tuple[logs.LogRow, Sequence[e.Event] | None]]


class FanoutConfig(msgspec.Struct, frozen=True):
    """`poll_seconds`: how often followed runs are looked at in case hints were lost. `ring_bytes_max`: how much a ring
    keeps for followers that are behind."""

    poll_seconds: float = 2.0
    ring_bytes_max: int = 1024 * 1024


class Lagging(Exception):
    """The follower is so far behind that the ring has forgotten its place: it must come back with its cursor."""


class FollowerBatch(NamedTuple):
    """Everything new for the followers after the event `after`, made once for all of them. `last`: the stream ends with
    it."""

    pieces: Sequence[StreamItem]
    data: bytes
    last: bool
    after: int


@dataclass(slots=True, eq=False)
class _Ring:
    """The pieces of one profile from `first_seq` on, for as long as somebody follows them."""

    feed: _Feed
    dialect: Dialect
    profile: Profile
    encoder: Encoder
    first_seq: int
    pieces: deque[StreamItem] = field(default_factory=deque)
    bytes: int = 0
    places: dict[RingSubscription, None] = field(default_factory=dict)
    broken: bool = False  # its encoder failed, or the log can't be read on: its followers must come back
    _notifying: Iterator[RingSubscription] | None = None
    _again: bool = False
    newest: FollowerBatch | None = None  # what was taken last, as long as nothing has come since

    def append(self, piece: StreamItem, bytes_max: int) -> None:
        self.newest = None
        self.pieces.append(piece)
        self.bytes += len(piece.data)
        while self.bytes > bytes_max and len(self.pieces) > 1:
            self.bytes -= len(self.pieces.popleft().data)
            self.first_seq += 1

    def after(self, seq: int) -> FollowerBatch:
        """The pieces after `seq`. Raises `Lagging` if some of them are forgotten."""
        skip = seq + 1 - self.first_seq
        if skip < 0 or self.broken:
            raise Lagging
        pieces = list(islice(self.pieces, skip, None))
        last = next((n for n, piece in enumerate(pieces, 1) if piece.terminal), None)
        self.newest = _news(pieces[:last], last=last is not None, after=seq)
        return self.newest

    def break_off(self) -> None:
        """Its followers must come back."""
        self.broken, self.newest = True, None

    def wake(self) -> None:
        """Call all places soon: there is something new."""
        if self._notifying is None:
            self._notifying = iter(tuple(self.places))
            asyncio.get_running_loop().call_soon(self._notify)
        else:
            self._again = True

    def wake_now(self) -> bool:
        """Call all places at once, if they are few and no call is planned. Returns whether it did."""
        if self._notifying is not None or len(self.places) > NOTIFIED_IN_COMMIT:
            return False
        self._notify_all(tuple(self.places))
        return True

    def _notify_all(self, places: Sequence[RingSubscription]) -> None:
        for place in places:
            try:
                place.notify()
            except Exception as error:  # a follower's fault harms no other
                log.error("follower_failed", run_id=str(self.feed.run_id), exc_info=error)

    def _notify(self) -> None:
        assert self._notifying is not None
        places = list(islice(self._notifying, NOTIFIED_AT_ONCE))
        self._notify_all(places)
        if len(places) == NOTIFIED_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._notify)
            return
        self._notifying = None
        if self._again:
            self._again = False
            self.wake()


def _ignore_news() -> None:
    """A place's callback while its follower waits for nothing."""


class RingSubscription:
    """Where a follower stands in a ring. `notify` is called whenever there may be something to take."""

    __slots__ = ("_fanout", "_last", "_ring", "notify", "seq")

    def __init__(self, fanout: Fanout, ring: _Ring, seq: int, last: Callable[[StreamItem], StreamItem] | None) -> None:
        self._fanout = fanout
        self._ring: _Ring | None = ring
        self._last = last
        self.seq = seq
        self.notify: Callable[[], None] = _ignore_news
        ring.places[self] = None
        ring.feed.followers += 1

    def take(self) -> FollowerBatch:
        """Everything after the place, which moves behind it, and the encoder's farewell when the server closes: nobody
        calls a follower that has taken news again. Nothing from a place that was left. Raises `Lagging`."""
        ring = self._ring
        if ring is None:
            return _NO_NEWS
        news = ring.newest
        if news is None or news.after != self.seq:
            try:
                news = ring.after(self.seq)
            except Lagging:
                self.drop()
                raise
        self.seq += len(news.pieces)
        if news.last:
            if self._last is not None:
                return _news([*news.pieces[:-1], self._last(news.pieces[-1])], last=True)
        elif self._fanout.closing.is_set() and not ring.feed.encoding:  # else its encoder is ahead of its pieces
            return _news([*news.pieces, _farewell(ring.encoder, ring.dialect)], last=True)
        return news

    def drop(self) -> None:
        """Count the follower as one that was too slow."""
        self._fanout.dropped += 1

    async def change(self) -> None:
        """Wait until there may be something to take."""
        changed = asyncio.get_running_loop().create_future()
        self.notify = lambda: None if changed.done() else changed.set_result(None)
        await changed

    def leave(self) -> None:
        """The follower goes. May be called again."""
        ring, self._ring = self._ring, None
        if ring is not None:
            self.notify = _ignore_news
            del ring.places[self]
            self._fanout._drop_follower(ring)


@dataclass(slots=True, eq=False)
class _Feed:
    """A followed run. `head` None: no follower has read the log up to its end yet; `early` waits for that."""

    run_id: UUID
    tenant: Hashable  # whose turns it takes beside the loop
    followers: int = 0
    head: int | None = None
    early: list[tuple[int, Sequence[e.Event]]] = field(default_factory=list)
    rings: dict[tuple[str, Profile], _Ring] = field(default_factory=dict)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    reading: bool = False
    read_again: bool = False
    encoding: bool = False  # large events, beside the loop

    def select_news(self, first_seq: int, events: Sequence[e.Event]) -> Sequence[e.Event]:
        """Those of the events, of which the first has this seq, that come behind the head."""
        assert self.head is not None
        return events[max(0, self.head + 1 - first_seq) :]

    def is_slow_to_encode(self, news: Sequence[e.Event]) -> bool:
        """Whether the events are encoded beside the loop for those who follow."""
        return bool(self.rings) and is_slow_to_encode(news, (ring.profile for ring in self.rings.values()))


class Following:
    """A follower's pieces: an iterator of everything new at once, first out of the log, then from its place in a ring.

    A follower without a task reads the log with `catch_up` and goes on from the `place` by itself. It is left behind
    when the pieces end, when an error does, and by `aclose`."""

    __slots__ = ("__weakref__", "_before", "_reading", "place")

    def __init__(self, reading: Callable[[Following], AsyncGenerator[Sequence[StreamItem]]]) -> None:
        self.place: RingSubscription | None = None
        self._before: list[StreamItem] = []
        self._reading: AsyncGenerator[Sequence[StreamItem]] | None = reading(self)

    def put_first(self, piece: StreamItem) -> Following:
        self._before.insert(0, piece)
        return self

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> Sequence[StreamItem]:
        pieces = await self.catch_up()
        if pieces is not None:
            return pieces
        place = self.place
        if place is None:
            raise StopAsyncIteration
        try:
            while not (news := place.take()).pieces:
                await place.change()
        except BaseException:
            self._leave()
            raise
        if news.last:
            self._leave()
        return news.pieces

    async def catch_up(self) -> Sequence[StreamItem] | None:
        """The next pieces that the log has already. None: that was all of it. Later ones come at the `place`; without
        one, nothing comes."""
        if self._before:
            before, self._before = self._before, []
            return before
        if self._reading is not None:
            try:
                return await anext(self._reading)
            except StopAsyncIteration:
                self._reading = None
        return None

    def hand_over(self) -> RingSubscription:
        """The place, which is the caller's from now on: the caller leaves it."""
        place, self.place = self.place, None
        assert place is not None, "hand_over comes after catch_up, while there is a place"
        return place

    async def aclose(self) -> None:
        self._before = []
        self._leave()
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.aclose()

    def _leave(self) -> None:
        if self.place is not None:
            self.place.leave()
            self.place = None

    def __del__(self) -> None:  # dropped in the middle: as a generator does, it closes itself
        self._leave()


class Fanout(Service):
    """Feeds and rings of this process."""

    def __init__(self, database: Database, committer: Committer, config: FanoutConfig | None = None) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.config = config or FanoutConfig()
        self._feeds: dict[UUID, _Feed] = {}
        # Many come back at once where a server has restarted: for each of them, the state and the log are the same.
        self._states: Together[tuple[Pool, UUID, UUID, int], RunState | None] = Together(
            lambda key: state_at(
                database, key[1], key[2], key[3], key[0], known=committer.peek(key[2]), note=committer.note_read
            )
        )
        self._pages: Together[tuple[UUID, int], _LogPage] = Together(lambda key: self._read_page(*key))
        self._hinted: set[UUID] = set()
        self._wake = asyncio.Event()
        self._woke = False  # a ring has been woken in this turn of the loop, before its end
        self.closing = asyncio.Event()
        self.dropped = 0
        """How many followers were left behind by the ring, or took nothing for too long, since the start."""
        self.heard = 0
        """How many events came with hints, and were not read, since the start."""
        self.looks = 0
        """How many statements have looked for commits, since the start."""

    @property
    def followers(self) -> int:
        """How many streams follow a run here."""
        return sum(feed.followers for feed in self._feeds.values())

    async def _start(self) -> None:
        self.closing.clear()
        self.committer.listeners.committed.append(self.publish_commit)
        self._keep(self._run_polls, "followed runs")

    async def _stop(self) -> None:
        self.close_streams()
        self.committer.listeners.committed.remove(self.publish_commit)

    def close_streams(self) -> None:
        """Every open stream says its farewell and ends: the server is about to close."""
        self.closing.set()
        for feed in list(self._feeds.values()):
            feed.moved.set()
            for ring in list(feed.rings.values()):
                ring.wake()

    # --- in: commits and hints ------------------------------------------------------------------------------------

    def publish_commit(self, run: CachedRun, first_seq: int, events: Sequence[e.Event]) -> None:
        """A piece of a log that is committed: by this process, or found by one of its loads."""
        feed = self._feeds.get(run.id) if self._feeds else None
        if feed is not None:
            self._accept(feed, first_seq, events)

    def hint(self, payload: str) -> None:
        """Other processes (or this one) committed something for these runs."""
        if not self._feeds:
            return
        if payload == EVERYTHING:
            self._hinted.update(self._feeds)
        else:
            for text in payload.split(","):
                with contextlib.suppress(ValueError):
                    self._hinted.add(UUID(text))
        self._hinted &= self._feeds.keys()
        if self._hinted:
            self._wake.set()

    def hear(self, news: RunNotice) -> None:
        """A process has committed these events of a run. They are shown where they follow at once; else the log is
        read."""
        feed = self._feeds.get(UUID(news.run_id)) if self._feeds else None
        if feed is None or (feed.head is not None and news.last_seq <= feed.head):
            return
        if not news.events or (feed.head is not None and news.first_seq > feed.head + 1):
            if feed.head is not None:
                self._read_later(feed)
            return
        try:
            events = e.decode_events(news.events)
        except Unreadable:  # from a newer release: the log has the same events, or more
            if feed.head is not None:
                self._read_later(feed)
            return
        if feed.head is not None:  # else a follower is reading the log just now, and finds them there
            self.heard += news.last_seq - feed.head
        self._accept(feed, news.first_seq, events)

    def _accept(self, feed: _Feed, first_seq: int, events: Sequence[e.Event]) -> None:
        if feed.head is None:
            feed.early.append((first_seq, events))
            return
        if first_seq > feed.head + 1 or feed.encoding:
            self._read_later(feed)
            return
        news = feed.select_news(first_seq, events)
        if feed.is_slow_to_encode(news):
            self._read_later(feed)  # which encodes them beside the loop
        elif news:
            self._append(feed, len(news), {ring: _encode(ring, feed.head + 1, news) for ring in feed.rings.values()})

    async def _accept_by_size(self, feed: _Feed, first_seq: int, events: Sequence[e.Event]) -> None:
        """Accept events of the log. Large ones are encoded beside the loop, and meanwhile no others are accepted."""
        assert feed.head is not None
        news = feed.select_news(first_seq, events)
        if first_seq > feed.head + 1 or not feed.is_slow_to_encode(news):
            self._accept(feed, first_seq, events)
            return
        pieces: dict[_Ring, list[StreamItem] | Exception] = {}
        feed.encoding = True
        try:
            while fresh := [ring for ring in feed.rings.values() if ring not in pieces]:  # others may come meanwhile
                for ring in fresh:
                    pieces[ring] = await run_beside_loop(_encode, ring, feed.head + 1, news)
        except asyncio.CancelledError:
            self._break_off(feed)  # its encoders are ahead of its pieces
            raise
        finally:
            feed.encoding = False
        self._append(feed, len(news), pieces)

    def _append(self, feed: _Feed, count: int, pieces: Mapping[_Ring, list[StreamItem] | Exception]) -> None:
        """Move the head of a feed on by `count` events. `pieces`: each ring's own, or why it can't go on."""
        assert feed.head is not None
        feed.head += count
        for key, ring in list(feed.rings.items()):
            encoded = pieces[ring]
            if isinstance(encoded, Exception):  # a dialect's fault ends its own streams, and nothing else
                log.error("encoding_failed", run_id=str(feed.run_id), encoding=ring.dialect.encoding, exc_info=encoded)
                del feed.rings[key]
                ring.break_off()
            else:
                for piece in encoded:
                    ring.append(piece, self.config.ring_bytes_max)
            self._wake_ring(ring)
        feed.moved.set()
        feed.moved = asyncio.Event()

    def _wake_ring(self, ring: _Ring) -> None:
        """The followers of the first run that is committed in a turn of the loop hear of it before its next step
        begins. Those of others come after the lane's next commit is sent."""
        if self._woke or not ring.wake_now():
            ring.wake()
        else:
            self._woke = True
            asyncio.get_running_loop().call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._woke = False

    def _read_later(self, feed: _Feed) -> None:
        if feed.reading:
            feed.read_again = True
        else:
            feed.reading = True
            self._spawn(self._read(feed), "read the log")

    async def _read(self, feed: _Feed) -> None:
        """Bring a feed up to the log: another process wrote to it, or something that is slow to encode is in it."""
        WORK_FOR.set(feed.tenant)
        try:
            while feed.head is not None:
                feed.read_again = False
                self.looks += 1
                rows = await self._log_behind(feed.run_id, feed.head)
                for row in rows:
                    events = await run_by_size(len(row.events), e.decode_events, row.events)
                    await self._accept_by_size(feed, row.first_seq, events)
                if len(rows) < READ_ROWS and not feed.read_again:
                    return
        except (
            Unreadable
        ) as error:  # the same each time; a follower that comes back gets the same error, or finds a release that can
            log.warning("streams_unreadable", run_id=str(feed.run_id), error=str(error))
            self._break_off(feed)
        except Exception as error:  # the poll tries again
            log.warning("read_failed", run_id=str(feed.run_id), error=str(error))
        finally:
            feed.reading = False

    def _break_off(self, feed: _Feed) -> None:
        """Nothing more can be shown of this run here: its streams say their farewell, each with its cursor."""
        rings, feed.rings = list(feed.rings.values()), {}
        for ring in rings:
            ring.break_off()
            ring.wake()
        feed.moved.set()  # followers that still read the log find out alone
        feed.moved = asyncio.Event()

    async def _run_polls(self) -> None:
        """The poll is the truth, hints make it quick: read whatever is ahead of its feed."""
        due = time.monotonic() + self.config.poll_seconds
        while True:
            await wait_at_most(self._wake, max(0.0, due - time.monotonic()))
            everything = time.monotonic() >= due  # however many hints come for other runs meanwhile
            if everything:
                due = time.monotonic() + self.config.poll_seconds
            self._wake.clear()
            ids = list(self._feeds) if everything else [run_id for run_id in self._hinted if run_id in self._feeds]
            self._hinted.clear()
            if not ids:
                continue
            try:
                async with self.database.api.acquire() as connection:
                    self.looks += 1
                    runs = await logs.poll_versions(connection, ids)
            except Exception as error:
                log.warning("poll_failed", error=str(error))
                await asyncio.sleep(0.1)
                continue
            for run in runs:
                feed = self._feeds.get(run.run_id)
                if feed is not None and feed.head is not None and feed.head < run.seq:
                    self._read_later(feed)

    # --- out: followers -------------------------------------------------------------------------------------------

    async def state_at(
        self, tenant: UUID, run_id: UUID, seq: int, reads: Pool | None = None, history: History | None = None
    ) -> RunState | None:
        """See the function `state_at`. Those who ask at once share the state; the caller decides how much of it each
        may see."""
        if history is not None:
            return await state_at(self.database, tenant, run_id, seq, reads, history)
        return await self._states.get((reads or self.database.api, tenant, run_id, seq))

    def follow(
        self,
        run_id: UUID,
        dialect: Dialect,
        profile: Profile,
        start: RunState,
        *,
        last: Callable[[StreamItem], StreamItem] | None = None,
    ) -> Following:
        """The pieces of the events after `start`, as they are committed, everything new at once, until a terminal one.

        `last` makes the piece that this follower gets of that one. When the server closes, the encoder's farewell is
        the last piece. Raises `Lagging`."""
        return Following(lambda following: self._catch_up(following, run_id, dialect, profile, start, last))

    async def _catch_up(
        self,
        following: Following,
        run_id: UUID,
        dialect: Dialect,
        profile: Profile,
        start: RunState,
        last: Callable[[StreamItem], StreamItem] | None,
    ) -> AsyncGenerator[Sequence[StreamItem]]:
        """The pieces of the log after `start`. At its end, unless that is the stream's, the follower gets a place."""
        encoder = dialect.encoder(profile, start)
        with self._attach(run_id) as feed:
            seq = start.seq
            unsure = start.ended  # whether anything follows an end, only the log can say
            while unsure or feed.head is None or seq < feed.head or (dialect.encoding, profile) not in feed.rings:
                unsure = False
                moved, head = feed.moved, feed.head or 0
                rows = await self._pages.get((run_id, seq))
                read: list[StreamItem] = []
                for row, events in rows:
                    read += await run_by_size(len(row.events), _read_row, encoder, row, events, seq, run_id, dialect)
                    seq = read[-1].seq if read else seq
                    if read and read[-1].terminal:
                        yield read if last is None else [*read[:-1], last(read[-1])]
                        return
                if read:
                    yield read
                if len(rows) < READ_ROWS:
                    if seq < head:  # another run has the id by now, or the database has lost the events
                        self._break_off(feed)
                        raise Lagging
                    if start.ended and seq == start.seq:
                        return  # an ended run says no more, and this follower has seen it end
                    self._join(feed, seq)
                    if seq == feed.head:
                        break
                    if feed.head is not None and seq > feed.head:  # we saw events that the feed has not heard of yet
                        if self.closing.is_set():
                            yield [_farewell(encoder, dialect)]
                            return
                        self._read_later(feed)
                        await moved.wait()
            following.place = RingSubscription(self, self._ring(feed, dialect, profile, encoder, seq), seq, last)

    async def _read_page(self, run_id: UUID, seq: int) -> _LogPage:
        """Rows of the log after `seq`, with their events where these are few enough for all who asked at once."""
        rows = await self._log_behind(run_id, seq)
        if sum(len(row.events) for row in rows) > DECODED_FOR_ALL_BYTES:
            return [(row, None) for row in rows]
        return [(row, await run_by_size(len(row.events), e.decode_events, row.events)) for row in rows]

    async def _log_behind(self, run_id: UUID, seq: int) -> list[logs.LogRow]:
        async with self.database.api.acquire() as connection:
            reading = asyncio.ensure_future(logs.read_log(connection, run_id, seq, READ_ROWS))
            try:
                return await asyncio.shield(reading)
            except asyncio.CancelledError:
                reading.add_done_callback(_retrieve)
                try:
                    # A connection whose statement is cancelled is cut, and a new one costs more than the answer.
                    await asyncio.wait([reading], timeout=LEAVES_WITHIN_SECONDS)
                finally:
                    if not reading.done():
                        connection.terminate()
                raise

    @contextlib.contextmanager
    def _attach(self, run_id: UUID) -> Iterator[_Feed]:
        feed = self._feeds.setdefault(run_id, _Feed(run_id, WORK_FOR.get()))
        feed.followers += 1
        try:
            yield feed
        finally:
            self._detach(feed)

    def _detach(self, feed: _Feed) -> None:
        feed.followers -= 1
        if not feed.followers:
            self._feeds.pop(feed.run_id, None)

    def _join(self, feed: _Feed, seq: int) -> None:
        """The first follower that has read the log to its end gives the feed its head."""
        if feed.head is None:
            feed.head = seq
            early, feed.early = feed.early, []
            for first_seq, events in early:
                self._accept(feed, first_seq, events)

    def _ring(self, feed: _Feed, dialect: Dialect, profile: Profile, encoder: Encoder, seq: int) -> _Ring:
        """The ring of the profile; made of the follower's own encoder, which stands at the head, if there is none."""
        key = (dialect.encoding, profile)
        ring = feed.rings.get(key)
        if ring is None:
            assert seq == feed.head
            ring = feed.rings[key] = _Ring(feed, dialect, profile, encoder, seq + 1)
        return ring

    def _drop_follower(self, ring: _Ring) -> None:
        """A follower has left its place in the ring; the last one takes the ring along."""
        key = (ring.dialect.encoding, ring.profile)
        if not ring.places and ring.feed.rings.get(key) is ring:
            del ring.feed.rings[key]
        self._detach(ring.feed)


def _farewell(encoder: Encoder, dialect: Dialect) -> StreamItem:
    return item_without_number(dialect, encoder.farewell("The server is closing; reconnect to go on."))


def _news(pieces: Sequence[StreamItem], *, last: bool = False, after: int = 0) -> FollowerBatch:
    return FollowerBatch(pieces, b"".join([piece.data for piece in pieces]), last, after)


_NO_NEWS: Final = _news(())


def _piece(encoder: Encoder, seq: int, event: e.Event, run_id: UUID, dialect: Dialect) -> StreamItem:
    return item_of_event(dialect, encoder.encode(event), seq, run_id)


def _read_row(
    encoder: Encoder, row: logs.LogRow, events: Sequence[e.Event] | None, seq: int, run_id: UUID, dialect: Dialect
) -> list[StreamItem]:
    """The pieces of a row's `events` (None: to be decoded) behind `seq`, up to a terminal one."""
    pieces: list[StreamItem] = []
    for each in (e.decode_events(row.events) if events is None else events)[seq + 1 - row.first_seq :]:
        pieces.append(_piece(encoder, seq + len(pieces) + 1, each, run_id, dialect))
        if pieces[-1].terminal:
            break
    return pieces


def _encode(ring: _Ring, first: int, news: Sequence[e.Event]) -> list[StreamItem] | Exception:
    try:
        return [_piece(ring.encoder, seq, each, ring.feed.run_id, ring.dialect) for seq, each in enumerate(news, first)]
    except Exception as error:
        return error


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Look at the task's exception, which is of no interest, so that asyncio does not warn of it."""
    if not task.cancelled():
        task.exception()
