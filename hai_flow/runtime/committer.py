"""Commands in, commits out: the one door through which anything happens to a run.

A *lane* takes up to 256 runs that have something to say, decides their commands one on top of the other, and commits
all of it in one statement. The next batch starts when that statement returns, so back-pressure needs no timer. The
rules (docs/design/store.md has each with its reason):

* a batch holds at most one entry per run, and a run is in at most one batch in flight;
* whoever wins learns from the statement itself whether it holds the run;
* only a win proves that a state was fresh: a refusal from a cached state is answered after loading the tail;
* a batch refused for its data is halved until the culprit is alone; the others commit;
* a decision compares `version`, streamed chunks compare `fence`; after three losses a run is taken alone;
* a repeated command id gets the first outcome, with another body 409;
* an unknown outcome publishes nothing: the run is loaded and whoever asked is answered from there.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.plan import Plan
from hai_flow.engine import bounds, chains, children
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import DEFAULT_LIMITS, Decision, Limits, decide
from hai_flow.engine.draft import Message
from hai_flow.engine.jobs import is_busy, wake_at
from hai_flow.engine.snapshot import ABI, decode_state, encode_state
from hai_flow.engine.state import TERMINAL_STATUSES, RunState, evolve, fold
from hai_flow.errors import DefinitionError, Rejected, StoreError, Unreadable
from hai_flow.runtime.service import Clock, Service
from hai_flow.store import runs
from hai_flow.store.database import FAILURES, Database, Fault, classify, sqlstate_of
from hai_flow.store.projection import rows_of
from hai_flow.store.slots import thread_slot

if TYPE_CHECKING:
    from hai_flow.store.database import Connection

Json: TypeAlias = Any
Begin: TypeAlias = c.Start | c.Fork
"""The commands with which a run is born."""

log = structlog.get_logger(__name__)

LOSSES_BEFORE_ALONE: Final = 3
LOCKED: Final = "55P03"  # what a statement is refused with that has waited too long for a row
RETRIES_MAX: Final = 3  # of one batch, before it is halved: one locked row must not stop the others for ever
APART_SECONDS_MIN: Final = 0.1  # before a run is loaded apart from the others; doubled at each failure
APART_SECONDS_MAX: Final = 5.0
LOAD_ROWS_MAX: Final = 256  # commits of one run that are in memory at once while it is loaded
FOLDED_AT_ONCE: Final = 2000  # events; then the loop has a turn for others
STOP_SECONDS: Final = 20.0
CLOCK_SECONDS: Final = 5.0  # the database's clock is read at least so often
ANSWER_SECONDS: Final = 30.0  # who asks a database that is away is told so after this, at the next failure
HINT_SECONDS: Final = 0.02  # after a hint has gone out, those of this long go out together
SNAPSHOT_BYTES_MIN: Final = 64 * 1024
STATE_OVERHEAD_BYTES: Final = 4096
EVICTION_TRIES: Final = 8  # runs in use that one growth of the cache passes over


class Outcome(msgspec.Struct, frozen=True):
    """What became of a command: its answer, and the run's `seq` and status after the commit that holds it."""

    value: Json
    run_id: UUID
    seq: int
    status: str
    already: bool = False


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a streamed message: the n-th (from 0) of `message_id`, by an attempt that the process performs. The
    message before it of the same attempt is over then.

    `is_call`: a piece of the arguments of the call `message_id`, behind their first `n` characters.
    """

    message_id: str
    path: str
    attempt: int
    n: int
    text: str
    is_call: bool = False
    kind: Literal["text", "thinking"] = "text"


SEAT_LOST: Final = "seat_lost"  # a refusal that no client sees: it is decided again
NEVER_HEARD: Final = -2  # a fence that no claim of ours can follow: what is held may have been begun by the dead


@dataclass(slots=True)
class Birth:
    """What a Start or a Fork needs beside the command: a run is born with it."""

    plan: Plan
    queue: str = "default"
    slot: str | None = None
    branch: runs.Branch | None = None


@dataclass(slots=True, eq=False)
class Ask:
    """One command on its way. `arrived` is monotonic: a state loaded before it proves nothing to it
    (docs/design/store.md#freshness)."""

    command: c.Command
    arrived: float
    command_id: str | None = None
    body_sha: bytes = b""
    answer: asyncio.Future[Outcome] | None = None
    birth: Birth | None = None
    seat: str | None = None  # the slot of its concurrency key that the run was promised and begins with
    seat_lost: bool = False
    tenant: UUID | None = None  # None: asked by this process itself
    looked_up: bool = False  # a load has looked its id up: where `Hot.known` has none, nobody has used it


@dataclass(slots=True, eq=False)
class Hot:
    """A run as this process knows it. `mine`: a statement of our own said that we hold it
    (docs/design/store.md#claims)."""

    id: UUID
    tenant: UUID
    state: RunState
    plan: Plan | None = None
    version: int = 0
    fence: int = NEVER_HEARD
    worker: int | None = None  # who held it when we last heard
    mine: bool = False
    suspect: bool = False  # it became ours in a way that does not prove that nobody began its open attempts
    refence: bool = False  # a commit of unknown outcome may still land: raise the fence before loading
    loaded_at: float = -1.0  # monotonic: when the load (or the win) that the state comes from began
    exists: bool = True
    asks: deque[Ask] = field(default_factory=deque)
    chunks: deque[Chunk] = field(default_factory=deque)
    known: dict[str, runs.CommandRow] = field(default_factory=dict)  # ids of waiting asks that were used before
    losses: int = 0
    singly: int = 0  # so many of the asks are decided one an entry: one of them spoilt an entry of several
    queued: bool = False  # in its lane's queue, in the loader's, or in a batch in flight
    taken: bool = False  # of these: taken out of a queue, and not dealt with yet
    log_bytes: int = 0  # since the last snapshot
    run_bytes: int = 0  # of the whole log
    snapshot_bytes: int = 0
    bytes: int = 0
    slot_taken: bool = False
    missing: bool = False
    stale: bool = False  # somebody told us to load while a batch was in flight
    kept: bool = False  # it is in the committer's cache
    held: bool = False  # it is among the worker's
    tasks: dict[str, Any] = field(default_factory=dict)  # the worker's: path -> attempt being performed

    @property
    def wants(self) -> bool:
        return bool(self.asks or self.chunks)


@dataclass(slots=True)
class _Draft:
    """One entry in the making: what is decided for a run on top of its state, and whom to answer how."""

    hot: Hot
    state: RunState
    events: list[e.Event] = field(default_factory=list)
    cut: bool = False
    outbox: list[runs.OutboxRow] = field(default_factory=list)
    decides: bool = False
    answers: list[tuple[Ask, Outcome | Rejected]] = field(default_factory=list)
    commands: dict[str, runs.CommandRow] = field(default_factory=dict)  # by their ids
    asks: list[Ask] = field(default_factory=list)
    undecided: Ask | None = None  # the last of them, before which so much is due that this is committed first
    chunks: list[Chunk] = field(default_factory=list)
    birth: Birth | None = None
    seat: str | None = None
    plan: Plan | None = None  # the one that the run moves to
    entry: runs.Entry | None = None

    @property
    def bytes(self) -> int:
        return 0 if self.entry is None else len(self.entry.events)


class Committer(Service):
    """The lanes, the loader, and the cache of hot states.

    `worker_id` is this process's in the workers table, None while it performs nothing. `on_commit` is called with every
    committed piece of a log in order of seq; `on_state` after a win or a load, when jobs may have changed; `on_outbox`
    after a win that wants something of another run, `on_unusable` when this process can't go on with a run that it may
    hold (under this fence; None: under whichever). `wants_ends` tells whether somebody wants to hear of the ends of a
    workflow's runs.
    """

    def __init__(
        self,
        database: Database,
        *,
        lanes: int = 1,
        entries_max: int = 256,
        bytes_max: int = 1024 * 1024,
        cache_bytes_max: int = 64 * 1024 * 1024,
        limits: Limits = DEFAULT_LIMITS,
        find_plan: Callable[[UUID, bytes], Awaitable[Plan]],
    ) -> None:
        super().__init__()
        self.database = database
        self.clock = Clock()
        self.worker_id: int | None = None
        self.on_commit: Callable[[Hot, int, Sequence[e.Event]], None] = lambda hot, first, events: None
        self.on_state: Callable[[Hot], None] = lambda hot: None
        self.on_outbox: Callable[[], object] = lambda: None
        self.on_unusable: Callable[[Hot, int | None, Exception], None] = lambda hot, fence, error: None
        self.wants_ends: Callable[[UUID, str], bool] = lambda tenant, workflow: False
        self._limits = limits
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._cache_bytes_max = cache_bytes_max
        self._find_plan = find_plan
        self._hot: OrderedDict[UUID, Hot] = OrderedDict()
        self._cache_bytes = 0
        self._lanes = [_Lane() for _ in range(lanes)]
        self._loads = _Lane()
        self._apart = asyncio.Semaphore(1)  # of the runs that are loaded apart from the others, one at once
        self._alone = asyncio.Semaphore(1)  # of those that wait for the lock of their row
        self._hints: set[str] = set()
        self._unclaimed = False
        self._hint = asyncio.Event()
        self._closing = False
        self._queued = 0
        self._released = asyncio.Event()
        self._answers: set[asyncio.Future[Outcome]] = set()

    # --- the door -------------------------------------------------------------------------------------------------

    async def submit(
        self,
        run_id: UUID,
        tenant: UUID,
        command: c.Command,
        *,
        command_id: str | None = None,
        body_sha: bytes = b"",
        birth: Birth | None = None,
        seat: str | None = None,
    ) -> Outcome:
        """Decide and commit `command`; return after the commit. Raises `Rejected` if it was refused.

        `command_id` makes a repetition safe: the first outcome again, or 409 if `body_sha` differs. `birth` comes with
        a run's first command, which `starts` completes. `seat` is the slot with which the run begins: `SEAT_LOST` if it
        is not the run's any more.
        """
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        ask = Ask(command, time.monotonic(), command_id, body_sha, answer, birth, seat, tenant=tenant)
        self._ask(run_id, tenant, ask)
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        return await answer

    def tell(self, hot: Hot, command: c.Command) -> None:
        """The same door for those who need no answer: results, timers. A refusal is logged and dropped."""
        if not self.running:
            return
        if not hot.kept:
            hot = self._hot.get(hot.id) or self._remember(hot)
        hot.asks.append(Ask(command, time.monotonic()))
        self._queue(hot)

    def stream(self, hot: Hot, chunks: Iterable[Chunk]) -> None:
        """Append pieces of streamed messages to the log of a run that this process holds
        (docs/design/store.md#decisions-and-chunks)."""
        known = self._hot.get(hot.id)
        if known is None or not known.mine or not self.running:
            return  # somebody else holds the run: they would lose by their fence
        known.chunks.extend(chunks)
        self._queue(known)

    async def settled(self, hots: Iterable[Hot]) -> None:
        """Return when everything that was asked of these runs is decided and committed."""
        waiting = list(hots)
        while any(hot.queued for hot in waiting):
            self._released.clear()
            await self._released.wait()

    def rehearse(self, command: Begin, plan: Plan) -> None:
        """Raise what a run's first command would be refused with by itself, before anything is done for it."""
        decide(plan, RunState(str(command.run_id)), command, self.now_ms(), self._limits)

    def now_ms(self) -> int:
        """The database's clock as known here, in milliseconds since 1970: a lower bound."""
        return self.clock.at(time.monotonic())

    def now(self) -> datetime:
        """The same as an instant."""
        return values.instant(self.now_ms())

    def peek(self, run_id: UUID) -> Hot | None:
        """What this process knows of the run, however old."""
        return self._hot.get(run_id)

    def refresh(self, run_id: UUID, tenant: UUID | None = None) -> None:
        """Load the run's tail: somebody else has moved it, or we hold it and do not know it yet."""
        if not self.running:
            return
        hot = self._hot.get(run_id)
        if hot is None:
            hot = self._remember(Hot(run_id, tenant or UUID(int=0), RunState(str(run_id))))
        if hot.queued:
            hot.stale = True
        else:
            hot.loaded_at = -1.0
            self._queue(hot)

    def disown(self, hot: Hot) -> None:
        """The database says that this process holds the run no more."""
        hot.mine = False
        self._tell_state(hot)

    def forget_claims(self) -> None:
        """This process could not renew its lease: it holds nothing any more."""
        for hot in list(self._hot.values()):
            if hot.mine:
                self.disown(hot)

    def _ask(self, run_id: UUID, tenant: UUID, ask: Ask) -> None:
        if self._closing or not self.running:
            raise Rejected(503, "closing", "the server is shutting down; send the request again.")
        hot = self._hot.get(run_id)
        if hot is None:
            hot = self._remember(Hot(run_id, tenant, RunState(str(run_id))))
            if ask.birth is not None:
                hot.plan, hot.exists, hot.loaded_at = ask.birth.plan, False, time.monotonic()
        hot.asks.append(ask)
        self._queue(hot)

    def _queue(self, hot: Hot) -> None:
        if hot.queued:
            return
        hot.queued = True
        self._queued += 1
        if not hot.mine:  # what we hold is not evicted, whatever its place
            self._hot.move_to_end(hot.id)
        if hot.loaded_at < 0:
            self._loads.add(hot)
        else:
            self._lane(hot).add(hot)

    def _lane(self, hot: Hot) -> _Lane:
        return self._lanes[hot.id.int % len(self._lanes)]

    # --- life -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._closing = False
        await self._read_clock()
        for number, lane in enumerate(self._lanes):
            self._keep(functools.partial(self._run_lane, lane), f"lane {number}")
        self._keep(self._run_loads, "loads")
        self._keep(self._run_hints, "hints")
        self._keep(self._run_clock, "clock")

    async def _stop(self) -> None:
        """Commit what was asked before the stop; refuse what comes after, and what could not be committed in time."""
        self._closing = True
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while self._queued:
                    self._released.clear()
                    await self._released.wait()
        except TimeoutError:
            log.error("stopped_unfinished", runs=self._queued)
        finally:
            await self._end_tasks()
            self._forget_everything()

    def _forget_everything(self) -> None:
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(StoreError("the server stopped before the outcome was known; send it again."))
        for hot in self._hot.values():
            hot.kept = False
        self._hot.clear()
        self._lanes = [_Lane() for _ in self._lanes]
        self._loads = _Lane()
        self._hints.clear()
        self._cache_bytes = self._queued = 0

    async def _run_clock(self) -> None:
        """Read the database's clock if no commit has for a while: it may have been set to another time."""
        while True:
            await asyncio.sleep(self.clock.heard_at + CLOCK_SECONDS - time.monotonic())
            try:
                if time.monotonic() >= self.clock.heard_at + CLOCK_SECONDS:
                    await self._read_clock()
            except Exception as error:  # the database is away: the next commit reads its clock
                log.debug("clock_not_read", error=str(error) or repr(error))
                await asyncio.sleep(CLOCK_SECONDS)

    async def _read_clock(self) -> None:
        async with self.database.api.acquire() as connection:
            sent = time.monotonic()
            self.clock.read(values.milliseconds(await runs.read_clock(connection)), sent, time.monotonic())

    # --- lanes ----------------------------------------------------------------------------------------------------

    async def _run_lane(self, lane: _Lane) -> None:
        """A lane keeps its connection until that breaks: to fetch one from the pool costs each commit a tenth of it."""
        while True:
            self._drop_hand(lane)
            await lane.ready.wait()
            try:
                async with self.database.lane() as connection:
                    while not connection.is_closed():
                        await lane.ready.wait()
                        await self._run_batch(lane, connection)
            except FAILURES as error:
                log.warning("lane_without_connection", error=str(error) or repr(error))
                self._tell_who_waits_too_long(lane.waiting)
                await asyncio.sleep(0.1)  # the database is away: everyone waits for it, nobody spins

    def _drop_hand(self, lane: _Lane) -> None:
        """What the lane was dealing with when an error stopped it: as after a commit of unknown outcome."""
        for draft in lane.drafts:
            if draft.hot.taken:
                self._give_back(draft)
        for hot in lane.hand:
            if hot.taken:
                hot.refence = hot.mine
                self._load_again(hot)
        lane.hand, lane.drafts = [], []

    def _tell_who_waits_too_long(self, hots: Iterable[Hot]) -> None:
        """The database is away. Who asked may ask again; what the process tells itself waits for the database."""
        now = time.monotonic()
        failure = StoreError("the database has not answered for a while; the outcome is unknown: send it again.")
        for hot in hots:
            late = [ask for ask in hot.asks if ask.answer is not None and now - ask.arrived > ANSWER_SECONDS]
            for ask in late:
                hot.asks.remove(ask)
                _fail(ask, failure)

    def worked_at(self) -> float:
        """Since when (monotonic) something has been waiting without any lane, or the loader, getting on; now, if
        nothing has. What could not be committed waits in its lane, also while it is loaded again."""
        return min((lane.since for lane in (*self._lanes, self._loads) if lane.busy), default=time.monotonic())

    async def _run_batch(self, lane: _Lane, connection: Connection) -> None:
        lane.hand = lane.take(self._entries_max)
        lane.drafts = batch = [draft for hot in lane.hand if (draft := self._drafted(hot)) is not None]
        while batch:
            size, count = 0, 0
            while count < len(batch) and (not count or size + batch[count].bytes <= self._bytes_max):
                size += batch[count].bytes
                count += 1
            await self._commit(lane, connection, batch[:count])
            batch = batch[count:]
        lane.hand, lane.drafts = [], []

    def _drafted(self, hot: Hot) -> _Draft | None:
        """The run's draft, ready to be sent. A fault in one run's decision must not stop the lane for all others."""
        draft: _Draft | None = None
        try:
            draft = self._draft(hot)
            if draft is not None:
                draft.entry = self._entry(draft)
        except Exception as error:
            if draft is None:
                self._give_up(hot, error)
            else:
                self._condemn(draft, error)
            return None
        return draft

    def _draft(self, hot: Hot) -> _Draft | None:
        """Decide what the run was asked. None if there is nothing to commit (everyone is answered, or it must load)."""
        if hot.losses >= LOSSES_BEFORE_ALONE:
            hot.taken = False
            self._spawn(self._take_alone(hot), "take a run alone")
            return None
        draft = _Draft(hot, hot.state)
        self._append_chunks(draft)
        while hot.asks and len(draft.events) < self._limits.events and not (hot.singly and draft.asks):
            ask = hot.asks[0]
            try:
                answer = self._answer(draft, ask)
            except Exception as error:
                hot.asks.popleft()
                self._undecidable(hot, ask, error)
                continue
            if answer is None:
                if draft.undecided is not None:
                    draft.asks.append(hot.asks.popleft())
                    break
                if draft.events:
                    break  # what stands before it commits first; it comes back with a fresher state
                return self._load_first(draft)
            hot.asks.popleft()
            draft.asks.append(ask)
            draft.answers.append((ask, answer))
        if not draft.events:
            self._settle(draft)
            self._release(hot)
            return None
        return draft

    def _answer(self, draft: _Draft, ask: Ask) -> Outcome | Rejected | None:
        """The command's outcome on top of the draft, or None: a refusal that what is known can't justify
        (docs/design/store.md#freshness). A state that may be stale can't, nor can an id that was not looked up; a win
        proves both by itself. None, too, of a command before which so much is due that this has to be committed
        first."""
        hot = draft.hot
        unborn = (hot.missing or not hot.exists) and not draft.decides
        if unborn and ask.birth is not None:
            assert ask.tenant is not None, "a Start names its tenant"
            hot.plan, hot.tenant, hot.exists, hot.missing = ask.birth.plan, ask.tenant, False, False
        elif ask.tenant not in (None, hot.tenant):
            return _unknown_run(hot)  # another tenant's: as if it were not there
        elif unborn:
            return _unknown_run(hot) if hot.loaded_at >= ask.arrived else None
        known = _first_use(draft, ask)
        if known is not None:
            return self._repeated(ask, known)
        if hot.slot_taken and not draft.decides and _wants_slot(hot, ask):
            return _slot_taken(ask, hot)
        if ask.seat_lost and (unborn or draft.state.status == "queued"):
            return Rejected(409, SEAT_LOST, f"slot {ask.seat} is not promised to run {hot.id} any more.")
        # Chunks prove nothing here: they compare the fence, not the version. Nor does a fresh state say anything of a
        # command's id: it may have been used before, and then the first outcome is the answer, whatever the state says.
        fresh = draft.decides or hot.loaded_at >= ask.arrived or not hot.exists
        fresh = fresh and (ask.command_id is None or ask.looked_up)
        try:
            plan = draft.plan or hot.plan
            assert plan is not None
            decision = decide(plan, draft.state, ask.command, self.now_ms(), self._limits, hot.run_bytes)
        except Rejected as rejected:
            return rejected if fresh else None
        if decision.already:
            return self._outcome(hot, decision, draft.state, True) if fresh else None
        if decision.undecided:
            self._take(draft, decision)
            draft.undecided = ask
            return None
        outcome = self._outcome(hot, decision, decision.state, False)
        if ask.command_id is not None:
            row = runs.CommandRow(ask.command_id, ask.body_sha, msgspec.json.encode(outcome))
            draft.commands[ask.command_id] = row
        self._take(draft, decision)
        draft.birth = draft.birth or ask.birth
        draft.seat = draft.seat or ask.seat
        if isinstance(ask.command, c.Migrate):  # whatever comes after it in this entry is decided with the new plan
            draft.plan = ask.command.to
        return outcome

    def _outcome(self, hot: Hot, decision: Decision, state: RunState, already: bool) -> Outcome:
        return Outcome(decision.outcome, hot.id, state.seq, state.status, already)

    def _repeated(self, ask: Ask, known: runs.CommandRow) -> Outcome | Rejected:
        first = msgspec.json.decode(known.outcome, type=Outcome)
        if known.body_sha != ask.body_sha:
            detail = f"the command id {ask.command_id} was used before with another body."
            return Rejected(409, "command_id_reused", detail, winner=first.value)
        return msgspec.structs.replace(first, already=True)

    def _take(self, draft: _Draft, decision: Decision) -> None:
        messages = decision.outbox
        if chains.has_ended(decision) and self.wants_ends(draft.hot.tenant, decision.state.workflow):
            messages = (*messages, chains.told(decision.state))
        draft.state = decision.state
        draft.events.extend(decision.events)
        draft.outbox.extend(map(_outbox_row, messages))
        draft.cut = draft.cut or decision.cut
        draft.decides = True

    def _append_chunks(self, draft: _Draft) -> None:
        """Turn what the holder streamed into events, as far as its attempt is still open and still its own."""
        hot = draft.hot
        while hot.chunks:
            chunk = hot.chunks.popleft()
            if not hot.mine or draft.state.attempts.get(chunk.path) != chunk.attempt:
                continue
            events = _events_of(chunk, draft.state, max(self.now_ms(), draft.state.at))
            if not events:
                continue
            draft.chunks.append(chunk)
            for event in events:
                draft.state = evolve(draft.state, event)
                draft.events.append(event)

    def _load_first(self, draft: _Draft) -> None:
        hot = draft.hot
        for ask in reversed(draft.asks):
            hot.asks.appendleft(ask)
        hot.loaded_at = -1.0
        self._loads.add(hot)

    def _entry(self, draft: _Draft) -> runs.Entry:
        hot, state = draft.hot, draft.state
        fields: dict[str, Any] = {
            "run_id": hot.id,
            "tenant": hot.tenant,
            "n": len(draft.events),
            "events": e.encode_events(draft.events),
            **rows_of(draft.events, state),
        }
        if draft.chunks and (told := children.grown(state, draft.events)) is not None:
            draft.outbox.append(_outbox_row(told))
        if not draft.decides:
            return runs.Entry(fence=hot.fence, outbox=draft.outbox, **fields)
        ended = state.status in TERMINAL_STATUSES
        busy = is_busy(state)
        due = None if busy or ended else wake_at(state)
        if not hot.exists:
            fields["born"] = _born(draft)
        else:
            fields["version"] = hot.version
            if hot.state.ended and not ended:
                fields["take_slot"] = _slot_of(hot)
            if draft.plan is not None:
                fields["moved"] = runs.Moved(draft.plan.sha256, draft.plan.version, state.dev)
        return runs.Entry(
            status=state.status,
            busy=busy,
            wake_at=None if due is None else values.instant(due),
            cut=draft.cut,
            seat=draft.seat,
            result=_result(state) if ended else None,
            commands=tuple(draft.commands.values()),
            outbox=draft.outbox,
            **fields,
        )

    # --- committing -----------------------------------------------------------------------------------------------

    async def _commit(self, lane: _Lane, connection: Connection, drafts: list[_Draft]) -> None:
        """Send a batch, and what is left of it after a failure, until every draft has won, lost or been condemned."""
        batches = deque([_Batch(drafts)])
        while batches:
            batch = batches.popleft()
            began = time.monotonic()
            try:
                done = await runs.commit(connection, batch.entries, self.worker_id, self.now())
            except Exception as error:
                fault = classify(error)
                if fault is Fault.UNKNOWN:
                    lane.failed.update(draft.hot for draft in batch.drafts)
                elif fault is not Fault.INSTALLATION:
                    lane.got_on()
                batches.extendleft(reversed(await self._failed(batch, error)))
                continue
            lane.got_on()
            now = time.monotonic()
            self.clock.read(values.milliseconds(done.db_now), began, now)
            for number, draft in enumerate(batch.drafts):
                self._conclude(draft, done.won.get(number), began)

    def _conclude(self, draft: _Draft, won: runs.Won | None, began: float) -> None:
        if won is None:
            self._lost(draft)
            return
        try:
            self._won(draft, won, began)
        except Exception as error:
            self._give_up(draft.hot, error, draft.asks)

    def _won(self, draft: _Draft, won: runs.Won, began: float) -> None:
        hot = draft.hot
        first_seq = won.seq - len(draft.events) + 1
        self._hold(hot, won.worker, won.fence)
        hot.version, hot.exists, hot.losses = won.version, True, 0
        if hot.asks:  # an id that was looked up before this commit was free then
            hot.known.update(draft.commands)
        hot.log_bytes += draft.bytes
        hot.run_bytes += draft.bytes
        self._weigh(hot)
        if draft.undecided is not None:
            hot.asks.appendleft(draft.undecided)
        if first_seq == hot.state.seq + 1:
            hot.state, hot.loaded_at = draft.state, began
            hot.plan = draft.plan or hot.plan
            self._tell_commit(hot, first_seq, draft.events)
            self._snapshot_if_due(hot)
            self._settle(draft)
            self._tell_state(hot)
            if not draft.decides and not hot.asks and bounds.is_due(hot.state, hot.run_bytes, self._limits):
                hot.asks.append(Ask(c.Continue(), time.monotonic()))  # what streams decides nothing by itself
        else:  # somebody's chunks lie between: fold them in their place first
            hot.loaded_at = -1.0
            self._settle(draft)
        self._hint_at(hot, unclaimed=won.worker is None and is_busy(draft.state))
        if draft.outbox:
            self.on_outbox()
        self._release(hot)

    def _tell_commit(self, hot: Hot, first_seq: int, events: Sequence[e.Event]) -> None:
        """Those who look on must not be able to stop those who write."""
        try:
            self.on_commit(hot, first_seq, events)
        except Exception as error:
            log.error("publishing_failed", run_id=str(hot.id), exc_info=error)

    def _tell_state(self, hot: Hot) -> None:
        try:
            self.on_state(hot)
        except Exception as error:
            log.error("performing_failed", run_id=str(hot.id), exc_info=error)

    def _hold(self, hot: Hot, worker: int | None, fence: int) -> None:
        """Take in who holds the run. Only a claim that was free before, and rose the fence by one, is surely fresh: any
        other may be a claim of a dead worker's run whose answer was lost, so what is open may have been begun."""
        mine = worker is not None and worker == self.worker_id
        if mine and not hot.mine and hot.exists:
            hot.suspect = hot.worker is not None or fence != hot.fence + 1
        hot.mine, hot.worker, hot.fence = mine, worker, fence

    def _lost(self, draft: _Draft) -> None:
        """Somebody else moved the run first (or took its slot): load what they did, and decide again."""
        hot = draft.hot
        hot.losses += 1
        self._give_back(draft)
        self._load_again(hot)

    def _give_back(self, draft: _Draft) -> None:
        hot = draft.hot
        hot.asks.extendleft(reversed(draft.asks))
        hot.chunks.extendleft(reversed(draft.chunks))

    async def _failed(self, batch: _Batch, error: Exception) -> list[_Batch]:
        """What is to be sent again of a batch that failed. Its runs that are not in it are dealt with."""
        fault, drafts = classify(error), batch.drafts
        if sqlstate_of(error) == LOCKED and (free := await self._unlocked(drafts)) is not None:
            return free
        if fault is Fault.RETRY and (batch.tries < RETRIES_MAX):
            await asyncio.sleep(0.01)
            return [_Batch(drafts, batch.tries + 1)]
        if _away(error) or (fault is Fault.RETRY and len(drafts) == 1):
            log.warning("commit_outcome_unknown", runs=len(drafts), error=str(error))
            # The server may be restarting, or wait for somebody to mend it: do not spin on it.
            await asyncio.sleep(0.05 if fault is not Fault.INSTALLATION else 0.5)
            for draft in drafts:
                self._give_back(draft)
                draft.hot.refence = draft.hot.mine
                self._load_again(draft.hot)
            self._tell_who_waits_too_long(draft.hot for draft in drafts)
            return []
        if len(drafts) > 1:
            middle = len(drafts) // 2
            return [_Batch(drafts[:middle]), _Batch(drafts[middle:])]
        self._condemn(drafts[0], error)
        return []

    async def _unlocked(self, drafts: list[_Draft]) -> list[_Batch] | None:
        """What is to be sent again of a batch that has waited for a row which somebody holds. Those whose rows are held
        are taken alone, each with a connection of its own: to wait for them again would make all others wait as long.
        None: none of them is held now."""
        try:
            async with self.database.engine.acquire() as connection:
                held = await runs.locked_runs(connection, [draft.hot.id for draft in drafts if draft.hot.exists])
        except FAILURES as error:
            log.warning("locks_unknown", error=str(error) or repr(error))
            return None
        if not held:
            return None
        free = [draft for draft in drafts if draft.hot.id not in held]
        for draft in drafts:
            if draft.hot.id in held:
                self._give_back(draft)
                draft.hot.losses = LOSSES_BEFORE_ALONE
                self._load_again(draft.hot)
        return [_Batch(free)] if free else []

    def _load_again(self, hot: Hot) -> None:
        hot.loaded_at = -1.0
        self._loads.add(hot)

    def _condemn(self, draft: _Draft, error: Exception) -> None:
        """One entry that can't be stored for what is in it (docs/design/store.md#refused-batches): without its chunks,
        then command by command, until the culprit is alone."""
        hot = draft.hot
        if draft.chunks and draft.asks:
            draft.chunks.clear()
            self._give_back(draft)
        elif len(draft.asks) > 1:
            hot.singly = len(draft.asks)
            self._give_back(draft)
        else:
            for ask in draft.asks:
                self._undecidable(hot, ask, error)
        self._load_again(hot)

    def _undecidable(self, hot: Hot, ask: Ask, error: Exception) -> None:
        """A command that can't be carried out, for a fault of ours or of its data: who asked is told.

        If nobody did, the run needs attention, else the same would be tried for ever; and its attempt counts as lost,
        so that a person's Retry performs it again.
        """
        log.error("command_failed", run_id=str(hot.id), command=type(ask.command).__name__, exc_info=error)
        if ask.answer is not None:
            _fail(ask, StoreError(f"the command of run {hot.id} could not be carried out: {error}"))
            return
        if not hot.exists:
            return
        known = isinstance(ask.command, c.TimerFired) and hot.state.status == "needs_attention"  # asked each second
        if known or isinstance(ask.command, c.NeedAttention | c.StepLost):
            if hot.mine:  # nobody would ask for it again
                self._let_go(hot, hot.fence, error)
            return
        now = time.monotonic()
        if isinstance(ask.command, c.StepSucceeded | c.StepFailed):
            hot.asks.appendleft(Ask(c.StepLost(path=ask.command.path, attempt=ask.command.attempt), now))
        hot.asks.appendleft(Ask(c.NeedAttention(reason="what the run would store can't be stored"), now))

    def _give_up(self, hot: Hot, error: Exception, asks: Iterable[Ask] = (), loaded: runs.Loaded | None = None) -> None:
        """Nothing can be decided for this run (its log or its workflow can't be read): nobody waits for it in vain, and
        if it is ours, somebody else gets it, with the results and timers that are dropped here."""
        if isinstance(error, Unreadable):  # another release's: the same each time that somebody tries
            log.error("run_unreadable", run_id=str(hot.id), reason=str(error))
        else:
            log.error("run_unusable", run_id=str(hot.id), exc_info=error)
        failure = error if isinstance(error, Unreadable) else StoreError(f"run {hot.id} can't be decided: {error}")
        for ask in (*asks, *hot.asks):
            _fail(ask, failure)
        hot.asks.clear()
        hot.chunks.clear()
        if loaded is not None and loaded.worker == self.worker_id:
            self._let_go(hot, loaded.fence, error)
        elif loaded is None:
            self._let_go(hot, hot.fence if hot.mine else None, error)
        hot.loaded_at, hot.stale = -1.0, False
        self._leave(hot)
        self._forget(hot)

    def _let_go(self, hot: Hot, fence: int | None, error: Exception) -> None:
        hot.mine = False
        if self.worker_id is None:
            return
        try:
            self.on_unusable(hot, fence, error)
        except Exception as fault:
            log.error("giving_back_failed", run_id=str(hot.id), exc_info=fault)

    def _settle(self, draft: _Draft) -> None:
        draft.hot.singly = max(0, draft.hot.singly - len(draft.answers))
        for ask, answer in draft.answers:
            if ask.answer is None:
                if isinstance(answer, Rejected) and answer.code not in _EXPECTED:
                    log.info("refused", run_id=str(draft.hot.id), code=answer.code, detail=answer.detail)
            elif ask.answer.done():
                continue
            elif isinstance(answer, Rejected):
                ask.answer.set_exception(answer)
            else:
                ask.answer.set_result(answer)

    def _release(self, hot: Hot) -> None:
        """The run's turn in its lane is over: once more if it has more to say, else it may be forgotten."""
        self._leave(hot)
        if hot.known:
            waiting = {ask.command_id for ask in hot.asks}
            hot.known = {id: known for id, known in hot.known.items() if id in waiting}
        hot.slot_taken = False
        if hot.stale:
            hot.stale, hot.loaded_at = False, -1.0
        if hot.wants:
            self._queue(hot)
        elif hot.loaded_at < 0:
            self.refresh(hot.id)
        elif hot.missing or not hot.exists or hot.state.ended:
            self._forget(hot)

    def _leave(self, hot: Hot) -> None:
        hot.queued = hot.taken = False
        self._lane(hot).failed.discard(hot)
        self._queued -= 1
        self._released.set()

    # --- loading --------------------------------------------------------------------------------------------------

    async def _run_loads(self) -> None:
        while True:
            self._drop_hand(self._loads)
            await self._loads.ready.wait()
            self._loads.hand = self._loads.take(self._entries_max)
            batches = deque([self._loads.hand])
            while batches:
                batch = batches.popleft()
                try:
                    await self._load(batch)
                    self._loads.since = time.monotonic()
                except Exception as error:
                    batches.extendleft(reversed(await self._not_loaded(batch, error)))
            self._loads.hand = []

    async def _not_loaded(self, batch: list[Hot], error: Exception) -> list[list[Hot]]:
        """What is to be loaded again, and in what batches, of one whose load failed: halved until the culprit is alone.

        A run that waited for a lock or took too long makes all others of its batch wait as long: each is tried alone.
        """
        fault = classify(error)
        batch = [hot for hot in batch if hot.taken]  # the others are dealt with
        if fault is Fault.UNKNOWN:
            await asyncio.sleep(0.1)  # the database is away: everyone waits for it, nobody spins
            for hot in batch:
                self._loads.add(hot)
            self._tell_who_waits_too_long(self._loads.waiting)
            return []
        self._loads.since = time.monotonic()
        if len(batch) > 1:
            step = 1 if fault is Fault.RETRY else (len(batch) + 1) // 2
            return [batch[start : start + step] for start in range(0, len(batch), step)]
        for hot in batch:
            if _passing(error):
                hot.taken = False
                self._spawn(self._load_apart(hot), "load a run apart")
            else:
                self._give_up(hot, error)
        return []

    def _without_long(self, batch: list[Hot], found: Mapping[UUID, runs.Loaded]) -> list[Hot]:
        """Those of a batch that can be taken in at once. Who has a long log to fold is loaded apart."""
        left = []
        for hot in batch:
            loaded = found.get(hot.id)
            if loaded is not None and loaded.rows and loaded.rows[-1].last_seq < loaded.seq:
                hot.taken = False
                self._spawn(self._load_apart(hot, 0.0), "load a run apart")
            else:
                left.append(hot)
        return left

    async def _load_apart(self, hot: Hot, pause: float = APART_SECONDS_MIN) -> None:
        """Load a run that takes long, or whose load failed alone for a reason that may pass, until it has passed:
        meanwhile the loader serves the others."""
        while True:
            await asyncio.sleep(pause)
            try:
                async with self._apart:
                    await self._load([hot])
                return
            except Exception as error:
                if not _passing(error):
                    self._give_up(hot, error)
                    return
                log.warning("load_failed", run_id=str(hot.id), error=str(error) or repr(error))
                self._tell_who_waits_too_long([hot])
            pause = min(max(2 * pause, APART_SECONDS_MIN), APART_SECONDS_MAX)

    async def _load(self, batch: list[Hot]) -> None:
        began = time.monotonic()
        refence = [hot.id for hot in batch if hot.refence]
        async with self.database.engine.acquire() as connection:
            if refence and self.worker_id is not None:
                await runs.refence_runs(connection, self.worker_id, refence)
            for hot in batch:
                hot.refence = False
            ids, seqs = [hot.id for hot in batch], [hot.state.seq for hot in batch]
            found = await runs.load_runs(connection, ids, seqs, ABI, LOAD_ROWS_MAX)
            if len(batch) > 1:
                batch = self._without_long(batch, found)
            await self._look_up(connection, batch, found)
        faults: dict[UUID, Exception] = {}
        for hot in batch:
            try:
                await self._take_in(hot, found.get(hot.id))
                hot.loaded_at = began
            except Exception as error:
                if _passing(error):
                    raise
                faults[hot.id] = error
        for hot in batch:
            fault = faults.get(hot.id)
            if fault is None:
                self._loaded(hot)
            else:
                self._give_up(hot, fault, loaded=found.get(hot.id))

    async def _look_up(self, connection: Connection, batch: list[Hot], found: Mapping[UUID, runs.Loaded]) -> None:
        """What else the waiting commands need to know: ids that were used before, and slots that somebody has."""
        named = [(hot, ask) for hot in batch for ask in hot.asks if ask.command_id is not None]
        ids = [(hot.id, ask.command_id or "") for hot, ask in named if hot.id in found]
        used = await runs.commands_of(connection, ids) if ids else {}
        for hot, ask in named:
            ask.looked_up = True
            if known := used.get((hot.id, ask.command_id or "")):
                hot.known[known.command_id] = known
        wanted = {hot.id: (hot.tenant, slot) for hot in batch if (slot := _wanted_slot(hot, found.get(hot.id)))}
        promised = [(hot, ask, (hot.tenant, ask.seat)) for hot in batch for ask in hot.asks if ask.seat is not None]
        asked = {*wanted.values(), *(slot for _, _, slot in promised)}
        holders = await runs.slot_holders(connection, asked) if asked else {}
        for hot in batch:
            hot.slot_taken = hot.id in wanted and holders.get(wanted[hot.id]) not in (None, hot.id)
        for hot, ask, slot in promised:
            ask.seat_lost = holders.get(slot) != hot.id

    def _loaded(self, hot: Hot) -> None:
        self._tell_state(hot)
        if hot.wants:
            self._lane(hot).add(hot)
        else:
            self._release(hot)

    async def _take_in(self, hot: Hot, loaded: runs.Loaded | None) -> None:
        """Bring a hot run up to what the database says of it."""
        if loaded is None:
            hot.missing = hot.exists
            return
        e.check_readable(loaded.abi)
        plan = hot.plan
        if plan is None or plan.sha256 != loaded.workflow:
            try:
                plan = await self._find_plan(loaded.tenant, loaded.workflow)
            except DefinitionError as error:
                raise Unreadable(f"its workflow is nothing that this release can perform: {error}") from error
        state, snapshot_bytes, log_bytes = hot.state, hot.snapshot_bytes, hot.log_bytes
        if loaded.state is not None:
            state, snapshot_bytes, log_bytes = decode_state(loaded.state), len(loaded.state), 0
        rows = loaded.rows
        while rows:
            for row in rows:
                if state.seq // FOLDED_AT_ONCE < row.last_seq // FOLDED_AT_ONCE:
                    await asyncio.sleep(0)  # a long log must not keep the loop from everything else
                found = f"run {hot.id}: the log jumps from {state.seq} to {row.first_seq}"
                assert row.first_seq == state.seq + 1, found
                events = e.decode_events(row.events)
                state = fold(state, events)
                log_bytes += len(row.events)
                self._tell_commit(hot, row.first_seq, events)
            rows = await self._read_on(hot.id, state.seq, loaded.seq)
        assert state.seq == loaded.seq, f"run {hot.id}: the log ends at {state.seq}, the run says {loaded.seq}"
        assert state.sha256 == loaded.workflow.hex(), f"run {hot.id}: the log and the run name different workflows"
        self._hold(hot, loaded.worker, loaded.fence)
        hot.state, hot.exists, hot.missing = state, True, False
        hot.run_bytes = loaded.log_bytes
        hot.tenant, hot.version, hot.plan = loaded.tenant, loaded.version, plan
        hot.snapshot_bytes, hot.log_bytes = snapshot_bytes, log_bytes
        self._weigh(hot)
        self._snapshot_if_due(hot)  # whoever loads it next need not fold all this again

    async def _read_on(self, run_id: UUID, seq: int, end: int) -> list[runs.LogRow]:
        """What a load left of a long log, up to the seq that the run had then."""
        if seq >= end:
            return []
        async with self.database.engine.acquire() as connection:
            rows = await runs.read_log(connection, run_id, seq, LOAD_ROWS_MAX)
        return [row for row in rows if row.last_seq <= end]

    async def _take_alone(self, hot: Hot) -> None:
        """The fourth try of a run that lost three times, or whose row is locked: one such run at once, else those that
        wait for locks would take all connections."""
        async with self._alone:
            await self._commit_alone(hot)

    async def _commit_alone(self, hot: Hot) -> None:
        """Lock the row, load, decide, the same commit (docs/design/store.md#decisions-and-chunks)."""
        draft: _Draft | None = None
        released = False
        began = time.monotonic()
        try:
            async with (
                self.database.engine.acquire() as connection,
                runs.lock_run(connection, hot.id, hot.state.seq, ABI) as loaded,
            ):
                await self._take_in(hot, loaded)
                await self._look_up(connection, [hot], {} if loaded is None else {hot.id: loaded})
                hot.loaded_at, hot.losses = math.inf, 0  # nobody can move it: whatever is decided now is fresh
                draft = self._drafted(hot)
                released = draft is None
                hot.loaded_at = min(hot.loaded_at, began)
                if draft is None:
                    return
                batch = _Batch([draft])
                done = await runs.commit(connection, batch.entries, self.worker_id, self.now())
        except Exception as error:
            if released:
                return  # everyone is answered; only the end of the transaction failed
            if draft is not None:
                if await self._failed(_Batch([draft]), error):  # nothing happened: the same again, from the beginning
                    self._give_back(draft)
                    self._tell_who_waits_too_long([hot])
                    self._load_again(hot)
            elif _passing(error):
                log.warning("take_alone_failed", run_id=str(hot.id), error=str(error))
                self._tell_who_waits_too_long([hot])
                self._load_again(hot)
            else:
                self._give_up(hot, error)
            return
        self._conclude(draft, done.won.get(0), began)

    # --- hints, snapshots, the cache ------------------------------------------------------------------------------

    async def _run_hints(self) -> None:
        """Tell other processes, after the commit and many at once (inside it NOTIFY would serialise all commits)."""
        while True:
            await self._hint.wait()
            self._hint.clear()
            ids, self._hints = self._hints, set()
            unclaimed, self._unclaimed = self._unclaimed, False
            try:
                async with self.database.api.acquire() as connection:
                    await runs.notify(connection, ids)
                    if unclaimed:
                        await runs.notify_due(connection)
            except Exception as error:  # a hint may be lost: the poll is the truth
                log.debug("hint_lost", error=str(error))
            await asyncio.sleep(HINT_SECONDS)

    def _hint_at(self, hot: Hot, *, unclaimed: bool) -> None:
        self._hints.add(hot.state.run_id)
        self._unclaimed = self._unclaimed or unclaimed
        self._hint.set()

    def _snapshot_if_due(self, hot: Hot) -> None:
        """When the log since the last snapshot exceeds its size: so the cost per event stays the same
        (docs/design/store.md#snapshots)."""
        if hot.log_bytes > max(SNAPSHOT_BYTES_MIN, hot.snapshot_bytes):
            stored = encode_state(hot.state)
            hot.log_bytes, hot.snapshot_bytes = 0, len(stored)
            self._weigh(hot)
            self._spawn(self._save_snapshot(hot.id, hot.state.seq, stored), "snapshot")

    async def _save_snapshot(self, run_id: UUID, seq: int, stored: bytes) -> None:
        try:
            async with self.database.api.acquire() as connection:
                await runs.save_snapshot(connection, run_id, seq, ABI, stored)
        except Exception as error:  # a snapshot may be lost: the log is the truth
            log.warning("snapshot_lost", run_id=str(run_id), error=str(error))

    def _remember(self, hot: Hot) -> Hot:
        self._hot[hot.id] = hot
        hot.kept = True
        self._weigh(hot)
        return hot

    def _weigh(self, hot: Hot) -> None:
        """Count the run in the cache as what its state takes, nearly: its last snapshot and the log since. To measure
        it would cost as much as a snapshot; those come often enough that this is at most about twice as much."""
        self._grow(hot, STATE_OVERHEAD_BYTES + hot.snapshot_bytes + hot.log_bytes - hot.bytes)

    def _grow(self, hot: Hot, size: int) -> None:
        if not hot.kept:
            return
        hot.bytes += size
        self._cache_bytes += size
        for _ in range(EVICTION_TRIES):
            if self._cache_bytes <= self._cache_bytes_max:
                return
            oldest = next(iter(self._hot.values()))
            if oldest is hot or oldest.queued or oldest.wants or oldest.mine:
                self._hot.move_to_end(oldest.id)  # in use; the next growth looks further
            else:
                self._forget(oldest)

    def _forget(self, hot: Hot) -> None:
        if not hot.mine and hot.kept:
            hot.kept = False
            del self._hot[hot.id]
            self._cache_bytes -= hot.bytes
            hot.bytes = 0


@dataclass(slots=True)
class _Batch:
    """Drafts that are sent together, and how often they were."""

    drafts: list[_Draft]
    tries: int = 0

    @property
    def entries(self) -> list[runs.Entry]:
        return [draft.entry for draft in self.drafts if draft.entry is not None]


class _Lane:
    """Runs in the order in which they first had something to say.

    `hand` is what was taken and is not dealt with yet, `drafts` what was made of it. `since`: when the lane last got on
    with its work, or got some (monotonic). `failed` are those whose commits got no answer since: they are loaded again,
    and that they come back from there is no new work.
    """

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.waiting: deque[Hot] = deque()
        self.hand: list[Hot] = []
        self.drafts: list[_Draft] = []
        self.since = 0.0
        self.failed: set[Hot] = set()

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.hand or self.failed)

    def got_on(self) -> None:
        """The database has answered, if only with a refusal."""
        self.since = time.monotonic()
        self.failed.clear()

    def add(self, hot: Hot) -> None:
        if not self.busy:
            self.since = time.monotonic()
        hot.taken = False
        self.waiting.append(hot)
        self.ready.set()

    def take(self, most: int) -> list[Hot]:
        taken = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        for hot in taken:
            hot.taken = True
        if not self.waiting:
            self.ready.clear()
        return taken


_EXPECTED: Final = frozenset({"timer_early"})


def _passing(error: Exception) -> bool:
    """Whether it is the database that is away or overburdened, and not this run that is at fault."""
    return _away(error) or classify(error) is Fault.RETRY


def _away(error: Exception) -> bool:
    """Whether the database did not answer, or can answer nobody as it is."""
    return classify(error) in (Fault.UNKNOWN, Fault.INSTALLATION)


def _events_of(chunk: Chunk, state: RunState, at: int) -> list[e.Event]:
    """What a piece adds to the log; nothing if it is there already, or what it belongs to is closed."""
    turn = state.turn.n if state.turn else 0
    if chunk.is_call:
        call = state.tool_calls.get(chunk.message_id)
        if call is None or not call.open or len(call.args) > chunk.n:
            return []
        return [e.ToolCallArgsChunk(at=at, turn=turn, tool_call_id=call.id, content=chunk.text)]
    id, message = chunk.message_id, state.messages.get(chunk.message_id)
    piece = e.MessageChunk(at=at, turn=turn, message_id=id, n=chunk.n, content=chunk.text)
    if message is None:
        over = [open for open, path in state.open_messages.items() if path == chunk.path]
        return [
            *(e.MessageEnded(at=at, turn=turn, message_id=each) for each in over),
            e.MessageStarted(at=at, turn=turn, message_id=id, path=chunk.path, kind=chunk.kind),
            piece,
        ]
    return [] if not message.open or message.chunks > chunk.n else [piece]


def _outbox_row(message: Message) -> runs.OutboxRow:
    return runs.OutboxRow(message.kind, message.target, values.dumps(message.body))


def _fail(ask: Ask, failure: Exception) -> None:
    if ask.answer is not None and not ask.answer.done():
        ask.answer.set_exception(failure)


def _unknown_run(hot: Hot) -> Rejected:
    return Rejected(404, "run_unknown", f"there is no run {hot.id}.")


def _first_use(draft: _Draft, ask: Ask) -> runs.CommandRow | None:
    """The command that had the ask's id first, as far as it is known: in this entry, or before it."""
    if ask.command_id is None:
        return None
    return draft.commands.get(ask.command_id) or draft.hot.known.get(ask.command_id)


def _slot_of(hot: Hot) -> str:
    return thread_slot(hot.state.thread_id)


def _wants_slot(hot: Hot, ask: Ask) -> bool:
    return isinstance(ask.command, c.Retry) and hot.state.ended if hot.exists else isinstance(ask.command, Begin)


def _wanted_slot(hot: Hot, loaded: runs.Loaded | None) -> str | None:
    """The slot that a waiting command needs: a Start's, or that of an ended run that is to go on."""
    if loaded is None:
        return next((ask.birth.slot for ask in hot.asks if ask.birth is not None), None)
    if loaded.status in TERMINAL_STATUSES and any(isinstance(ask.command, c.Retry) for ask in hot.asks):
        return thread_slot(loaded.thread_id)
    return None


def _slot_taken(ask: Ask, hot: Hot) -> Rejected:
    slot = _slot_of(hot) if ask.birth is None else ask.birth.slot or ""
    return Rejected(409, "thread_busy", f"another run is active in {slot.replace(':', ' ', 1)}.")


def _result(state: RunState) -> bytes:
    if state.error is not None:
        return msgspec.json.encode({"error": state.error})
    return msgspec.json.encode({"output": state.output})


def _born(draft: _Draft) -> runs.Born:
    hot, state, birth = draft.hot, draft.state, draft.birth
    assert hot.plan is not None
    assert birth is not None, "a run is born by a Start or a Fork"
    return runs.Born(
        workflow=hot.plan.sha256,
        workflow_name=hot.plan.name,
        workflow_version=hot.plan.version,
        dev=state.dev,
        parent_id=None if state.parent is None else UUID(state.parent.run_id),
        parent_path=None if state.parent is None else state.parent.path,
        thread_id=state.thread_id,
        queue=birth.queue,
        slot=birth.slot,
        started_by=state.requester,
        input=values.dumps(state.input),
        branch=birth.branch,
    )
