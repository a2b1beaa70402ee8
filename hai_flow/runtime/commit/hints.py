"""Hints to other processes that runs have something new (docs/design/store.md#hints). The poll is the truth.

`Hints` gathers the news of this process's commits, within bounds, and gives it to a *carrier* as one letter at a time:
NOTIFY (`Notify`), or Redis (`redis_hints`), which also carries the events themselves. No commit and no request waits
for a carrier; news that it does not take in time is dropped and counted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, Protocol
from uuid import UUID

import msgspec
import structlog

from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.store.commit.entries import CommitResult
from hai_flow.store.messaging import hints
from hai_flow.store.messaging.hints import HINT_CHANNEL
from hai_flow.store.postgres.database import EVERYTHING, Database, Listener

log = structlog.get_logger(__name__)

HINT_SECONDS: Final = 0.02  # after a hint has gone out, those of this long go out together
PAUSE_SECONDS_MAX: Final = 2.0  # between two tries of a carrier that takes nothing
NEWS_MAX: Final = 10_000  # commits that wait to be sent; beyond them the others are asked to look at everything
WAITING_BYTES_MAX: Final = 1024 * 1024  # of events that wait; hints of commits beyond them go without their events
LETTER_NEWS_MAX: Final = 1000
LETTER_BYTES_MAX: Final = 32 * 1024  # of events in one letter
EVENTS_BYTES_MAX: Final = 16 * 1024  # of one commit's events; followers read larger ones from the log


class RunNotice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A commit has brought the run the events `first_seq` to `last_seq`. `events`: as the log stores them; empty where
    they are too large, or the carrier takes none."""

    run_id: str
    first_seq: int
    last_seq: int
    events: bytes = b""


class HintLetter(msgspec.Struct, array_like=True, gc=False):
    """One message to the other processes: news of runs, in the order of their commits, and `words`: payloads as NOTIFY
    has them (a run's id, a queue, the tenants of the news, `EVERYTHING`)."""

    news: list[RunNotice]
    words: list[str]


class Carrier(Protocol):
    """A way to the other processes. `carries_events`: whether the hints bring the events themselves. `refused`: how
    many hints were passed over because no process of this deployment seems to have sent them."""

    carries_events: bool
    refused: int

    async def send(self, letter: HintLetter) -> None:
        """Raises whatever keeps the letter from being taken, within seconds."""
        ...

    async def listen(self, hear: Callable[[HintLetter], None]) -> None:
        """Call `hear` with each letter of any process from now on, until `close`. Whenever hints may have been missed,
        it hears EVERYTHING. Returns at once, whether anything can be heard yet or not."""
        ...

    @property
    def fault(self) -> str | None:
        """Why hints do not come or go just now; None: they do."""
        ...

    async def close(self) -> None: ...


class Notify:
    """NOTIFY and LISTEN of the database itself. It hears its own hints, too, but not the runs that they name: what this
    process has committed was told to its followers at once, and would be read once more for nothing."""

    carries_events = False
    refused = 0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listener: Listener | None = None
        self._name = secrets.token_hex(6)

    async def send(self, letter: HintLetter) -> None:
        async with self._database.api.acquire() as connection:
            ids = [news.run_id for news in letter.news]
            await hints.notify(connection, ids, by=self._name, words=letter.words)

    async def listen(self, hear: Callable[[HintLetter], None]) -> None:
        def heard(payload: str) -> None:
            hear(HintLetter([], [hints.OWN if hints.is_by(payload, self._name) else payload]))

        self._listener = await self._database.listen(HINT_CHANNEL, heard)

    @property
    def fault(self) -> str | None:
        if self._listener is None:
            return "nobody listens: a pooler stands before the database, and no direct way is given"
        return None if self._listener.ready.is_set() else "the connection that listens is down"

    async def close(self) -> None:
        """The listener closes with the database."""


class Hints:
    """Collects the hints to other processes, and sends many at once."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self._news: deque[RunNotice] = deque()
        self._bytes = 0
        self._told: set[str] = set()
        self._words: set[str] = set()
        self._tenants: set[UUID] = set()
        self._wanted = asyncio.Event()
        self._failing = False
        self.dropped = 0
        """For how many commits no hint was sent to other processes, since the start."""

    def add(self, entries: Sequence[CommitEntry], won: Mapping[int, CommitResult], *, due: Iterable[str]) -> None:
        """The entries that `won` are committed; `due` are the queues of those that have something to perform, but no
        worker."""
        if self.carrier.carries_events:
            for number, each in won.items():
                self._add(entries[number], each.seq)
        else:  # a run's id is sent once, however many commits it has had
            names = [entries[number].state.run_id for number in won]
            new = names if self._told.isdisjoint(names) else [name for name in names if name not in self._told]
            self._told.update(new)
            self._keep_all(list(map(RunNotice, new, repeat(0), repeat(0))))
        self._tenants.update([entries[number].run.tenant for number in won])
        self._words.update(map(hints.due, due))
        self._wanted.set()

    def add_tenant(self, tenant: UUID) -> None:
        """Something in the lists of the tenant has changed without a commit of a run."""
        self._tenants.add(tenant)
        self._wanted.set()

    async def tell(self, word: str) -> None:
        """Tell others a payload that names no run, now: this process may be about to end."""
        await self._send(HintLetter([], [word]))

    def clear(self) -> None:
        self._news.clear()
        self._told.clear()
        self._words.clear()
        self._tenants.clear()
        self._bytes = 0

    def _add(self, entry: CommitEntry, seq: int) -> None:
        events = b"" if entry.row is None else entry.row.events
        if len(events) > EVENTS_BYTES_MAX or self._bytes + len(events) > WAITING_BYTES_MAX:
            events = b""
        self._keep(RunNotice(entry.state.run_id, seq - len(entry.events) + 1, seq, events))

    def _keep(self, news: RunNotice) -> None:
        if len(self._news) < NEWS_MAX:
            self._bytes += len(news.events)
        self._keep_all([news])

    def _keep_all(self, news: Sequence[RunNotice]) -> None:
        room = NEWS_MAX - len(self._news)
        self._news.extend(news[:room])
        if len(news) > room:
            self.dropped += len(news) - room
            self._words.add(EVERYTHING)

    def _take(self) -> HintLetter:
        """Take as much news as fits into one letter, the oldest first."""
        letter, size = HintLetter([], [*sorted(self._words), *hints.build_tenant_payloads(self._tenants)]), 0
        self._words.clear()
        self._tenants.clear()
        if not self._bytes and len(self._news) <= LETTER_NEWS_MAX:  # runs by their names alone
            letter.news.extend(self._news)
            self._news.clear()
            self._told.clear()
        while self._news and len(letter.news) < LETTER_NEWS_MAX:
            size += len(self._news[0].events)
            if size > LETTER_BYTES_MAX and letter.news:
                break
            letter.news.append(self._news.popleft())
            self._bytes -= len(letter.news[-1].events)
            self._told.discard(letter.news[-1].run_id)
        return letter

    async def run(self) -> None:
        """Send the collected hints, after the commits: inside them NOTIFY would serialise them all."""
        pause = HINT_SECONDS
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            before = len(self._news)
            while self._news or self._words or self._tenants:
                letter = self._take()
                before -= len(letter.news)
                pause = HINT_SECONDS if await self._send(letter) else min(2 * pause, PAUSE_SECONDS_MAX)
                # what came while it was sent waits, or a busy process would send a NOTIFY for each commit
                if self._failing or (before <= 0 and not self.carrier.carries_events):
                    break
            await asyncio.sleep(pause)

    async def _send(self, letter: HintLetter) -> bool:
        try:
            await self.carrier.send(letter)
        except Exception as error:  # a hint may be lost: the poll is the truth
            self.dropped += len(letter.news)
            self._words.add(EVERYTHING)  # open lists are seldom read without a hint
            self._wanted.set()
            if not self._failing:
                self._failing = True
                log.warning("hints_lost", error=str(error) or repr(error), until="hints_go_out_again")
            return False
        if self._failing:
            self._failing = False
            log.info("hints_go_out_again", dropped=self.dropped)
        return True
