"""A run as this process knows it: what it knows, how old that is, and what waits to be done.

Three state machines run side by side in one `CachedRun`, and nothing else keeps any of their states. Only the methods
of this class change it; a transition from a state that does not have it raises `IllegalTransition`.

**1. Where the run's turn is** (`position`). A run is in one queue, or being dealt with, at most once.

                 enqueue               take                detach
        idle ─────────────► queued ─────────────► taken ─────────────► detached
         ▲                    ▲                   │   │                │   │
         │                    └──────enqueue──────┼───┴────enqueue─────┘   │
         └────────────────────────leave───────────┴─────────leave──────────┘

    idle      nothing waits for the run, and the cache may drop it
    queued    it is in the queue of its lane, or of the loader
    taken     the lane, or the loader, has it in hand: if that breaks off, the run is queued again (`drop_hand`)
    detached  a task of its own deals with it: a tool's transaction, the row's lock, a load that takes long

**2. How old the state is** (`must_load`, `exists`). The state comes from a load or a win that began at `loaded_at`; it
was last heard to be old at `outdated_at`. Only what was loaded, or won, since then counts.

        stale ──load, miss, win + advance (begun since `outdate`)──► loaded ──outdate──► stale
        exists ──miss──► no row ──begin_birth──► to be born ──win, load──► exists

    `doubt` is `outdate` after a commit of unknown outcome: it may still land. `must_fence`, until `note_fenced`.

**3. Whether this process holds the run** (`owned`; docs/design/store.md#claims).

        not owned ──load, win: free before, and one fence later──► owned
        not owned ──load, win: any other──► owned, `claim_unproven` ──prove_claim──► owned
        owned ──load, win, miss: somebody else's or nobody's; disown, release──► not owned

    A claim is unproven where a dead worker may have begun the open attempts: its answer was lost, and so was its proof.
    `owned` is not `worker == me`: what this process gave up stays in its name until the database has heard of it.

The rest follows the work itself: the submissions and chunks that wait, how many decisions in a row lost (`must_lock`
after three: the row is locked for the next), how many submissions are decided one an entry because one of them spoilt
an entry of several (`singly`), and the bytes of the log, of its snapshot and of both in the cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import UUID

from hai_flow.definition.paths import list_of, loop_of
from hai_flow.definition.plan import Plan
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.agents import Talk, talk
from hai_flow.runtime.commit.submission import Streamed, Submission
from hai_flow.store.commit.entries import CommandRow, CommitResult
from hai_flow.store.postgres.driver_uuids import to_driver_uuid
from hai_flow.store.runs.logs import Loaded

TurnPosition: TypeAlias = Literal["idle", "queued", "taken", "detached"]
"""Where the turn of a run is: see above."""

STATE_OVERHEAD_BYTES: Final = 4096
LOSSES_BEFORE_LOCK: Final = 3
_read_size: Final = attrgetter("size")
TALKS_MAX: Final = 8  # conversations of its agents that a run keeps
NEVER_HEARD: Final = -2  # a fence that no claim of ours can follow: a dead worker may have begun the open attempts
BEFORE_BIRTH: Final = -1  # the fence before that of a run that is born


class IllegalTransition(AssertionError):
    """A run was to go from a state to one that does not follow it: a fault of this program."""


class CachedRun:
    """See the head of this module. `state` is the fold of the log as far as this process knows it."""

    __slots__ = (
        "_bytes",
        "_chunks",
        "_claim_unproven",
        "_created_at",
        "_exists",
        "_fence",
        "_loaded_at",
        "_log_bytes",
        "_losses",
        "_must_fence",
        "_must_load",
        "_must_lock",
        "_outdated_at",
        "_owned",
        "_plan",
        "_position",
        "_run_bytes",
        "_singly",
        "_snapshot_bytes",
        "_state",
        "_submissions",
        "_talks",
        "_tenant",
        "_version",
        "_worker",
        "id",
        "number",
    )

    def __init__(
        self,
        id: UUID,
        tenant: UUID,
        state: RunState | None = None,
        plan: Plan | None = None,
        *,
        version: int = 0,
        exists: bool = True,
    ) -> None:
        self.id: Final = to_driver_uuid(id)
        self.number: Final = id.int
        self._tenant = to_driver_uuid(tenant)
        self._submissions: deque[Submission] = deque()
        self._chunks: deque[Streamed] = deque()
        self._position: TurnPosition = "idle"
        self._losses = self._singly = self._bytes = 0
        self._claim_unproven = self._must_fence = self._must_lock = False
        self._loaded_at, self._outdated_at = -1.0, 0.0
        self._must_load = True
        self._plan = plan
        self._exists = exists
        self._talks: dict[str, Talk] = {}
        self._know_nothing(state or RunState(str(id)), version)

    def _know_nothing(self, state: RunState, version: int) -> None:
        self._state = state
        self._version = version
        self._talks.clear()
        self._fence = NEVER_HEARD
        self._worker: int | None = None
        self._owned = False
        self._created_at: datetime | None = None
        self._log_bytes = self._run_bytes = self._snapshot_bytes = 0

    # --- what is known ----------------------------------------------------------------------------------------------

    @property
    def tenant(self) -> UUID:
        return self._tenant

    @property
    def state(self) -> RunState:
        return self._state

    @property
    def plan(self) -> Plan | None:
        """The plan that the run is pinned to, None before its first load."""
        return self._plan

    @property
    def created_at(self) -> datetime | None:
        """When the run began; None before its first load, or win."""
        return self._created_at

    @property
    def version(self) -> int:
        """How many decisions the run has had, which its next one compares."""
        return self._version

    @property
    def fence(self) -> int:
        """What the chunks of its holder compare."""
        return self._fence

    @property
    def worker(self) -> int | None:
        """The holder, as of the last statement about it."""
        return self._worker

    @property
    def exists(self) -> bool:
        """Whether the run has a row, as far as is known. One that was never looked for is taken to have one."""
        return self._exists

    @property
    def loaded_at(self) -> float:
        """When the load, or the win, that the state comes from began (monotonic); -1: there was none."""
        return self._loaded_at

    @property
    def run_bytes(self) -> int:
        """Of the whole log."""
        return self._run_bytes

    @property
    def log_bytes(self) -> int:
        """Of the log since the last snapshot."""
        return self._log_bytes

    @property
    def snapshot_bytes(self) -> int:
        return self._snapshot_bytes

    # --- 1. where the run's turn is -----------------------------------------------------------------------------------

    @property
    def position(self) -> TurnPosition:
        return self._position

    @property
    def queued(self) -> bool:
        """Whether the run has something to do that is not done yet."""
        return self._position != "idle"

    def enqueue(self) -> None:
        """The run waits for its lane, or for the loader."""
        if self._position == "queued":
            raise self._illegal("enqueue")
        self._position = "queued"

    def take(self) -> None:
        """Its lane, or the loader, deals with it now."""
        if self._position != "queued":
            raise self._illegal("take")
        self._position = "taken"

    def detach(self) -> None:
        """A task of its own deals with it from here on."""
        if self._position != "taken":
            raise self._illegal("detach")
        self._position = "detached"

    def leave(self) -> None:
        """Its turn is over."""
        if self._position == "queued" or self._position == "idle":
            raise self._illegal("leave")
        self._position = "idle"

    def _demand_turn(self, transition: str) -> None:
        if self._position == "queued" or self._position == "idle":
            raise self._illegal(transition)

    # --- 2. how old the state is --------------------------------------------------------------------------------------

    @property
    def must_load(self) -> bool:
        """Whether the state is too old to decide on."""
        return self._must_load

    def _date(self, began: float) -> None:
        """The state is as of a load, or of a win, that began then."""
        self._loaded_at = began
        self._must_load = began <= self._outdated_at

    @property
    def must_fence(self) -> bool:
        """Whether the fence has to be raised before a load: else a commit of unknown outcome might land behind it."""
        return self._must_fence

    @property
    def must_lock(self) -> bool:
        """Whether the next decision locks the row: it has lost too often without."""
        return self._must_lock

    def outdate(self, now: float) -> None:
        """The state is old as of `now` (monotonic): another process has moved the run, or may have."""
        self._outdated_at = max(now, self._loaded_at)
        self._must_load = True

    def doubt(self, now: float) -> None:
        """A commit of this process has an unknown outcome, and may still land."""
        self._must_fence = self._owned
        self.outdate(now)

    def note_fenced(self) -> None:
        """Nothing that was sent before can land any more."""
        self._must_fence = False

    def begin_birth(self, plan: Plan, tenant: UUID) -> None:
        """Its first command is decided on: it is to be born with `plan`, as the tenant's."""
        if self._exists:
            raise self._illegal("begin_birth")
        self._plan, self._tenant, self._fence = plan, to_driver_uuid(tenant), BEFORE_BIRTH

    def expect_birth(self, plan: Plan, now: float) -> None:
        """A new id comes with its first command: there is no row yet, and nothing to load."""
        if self._loaded_at >= 0:
            raise self._illegal("expect_birth")
        self._plan, self._exists, self._outdated_at = plan, False, -1.0
        self._date(now)

    def load(
        self,
        row: Loaded,
        plan: Plan,
        state: RunState,
        began: float,
        *,
        owned: bool,
        log_bytes: int,
        snapshot_bytes: int,
    ) -> None:
        """Take over the row and the fold of its log, as of a load that began then."""
        self._demand_turn("load")
        self._hear_holder(row.worker, row.fence, owned=owned)
        self._tenant, self._plan, self._state, self._version, self._exists = row.tenant, plan, state, row.version, True
        self._created_at = row.created_at
        self._run_bytes, self._log_bytes, self._snapshot_bytes = row.log_bytes, log_bytes, snapshot_bytes
        self._talks.clear()
        self._date(began)

    def miss(self, began: float) -> None:
        """A load that began then has found no row of the run."""
        self._demand_turn("miss")
        if self._exists:
            self._exists = False
            self.forget()
        self._date(began)

    def forget(self) -> None:
        """What is known is of another run, which had the id before, or of events that the database has lost."""
        self._demand_turn("forget")
        self._know_nothing(RunState(str(self.id)), 0)

    def win(self, won: CommitResult, size: int, *, owned: bool, created_at: datetime | None = None) -> None:
        """A commit of `size` bytes of events has moved the run's row, or begun it then."""
        if self._position == "queued" or self._position == "idle":
            raise self._illegal("win")
        self._hear_holder(won.worker, won.fence, owned=owned)
        if not self._exists:
            self._created_at = created_at
        self._version, self._exists, self._losses, self._must_lock = won.version, True, 0, False
        self._log_bytes += size
        self._run_bytes += size

    def advance(self, state: RunState, plan: Plan | None, began: float) -> None:
        """That commit, which began then, has led straight from the known state to this one, and to `plan`, if any."""
        self._state = state
        self._date(began)
        if plan is not None:
            self._plan = plan
            self._talks.clear()

    def talk(self, plan: Plan, state: RunState, answer: str) -> Talk:
        """The conversation of an agent up to the answer at this path, in a state of the run under the plan. What it
        shares with the one before is taken over from there: both are derived from the state."""
        if plan is not self._plan:
            return talk(plan, state, answer)
        agent = loop_of(list_of(answer))
        conversation = talk(plan, state, answer, self._talks.pop(agent, None))
        if len(self._talks) >= TALKS_MAX:
            del self._talks[next(iter(self._talks))]
        self._talks[agent] = conversation
        return conversation

    def lose(self) -> None:
        """A decision has lost: somebody else has moved the run first."""
        self._losses += 1
        self._must_lock = self._losses >= LOSSES_BEFORE_LOCK

    def demand_lock(self) -> None:
        """Somebody holds the row: the next decision waits for it."""
        self._must_lock = True

    def note_locked(self) -> None:
        """The row is locked for this decision; the next one tries without again."""
        self._losses, self._must_lock = 0, False

    # --- 3. whether this process holds the run ------------------------------------------------------------------------

    @property
    def owned(self) -> bool:
        """A statement of this process returned that it holds the run."""
        return self._owned

    @property
    def held_elsewhere(self) -> bool:
        """Whether another process holds the run, as far as this one knows."""
        return self._worker is not None and not self._owned

    @property
    def claim_unproven(self) -> bool:
        """It became ours in a way that does not prove that its open attempts were never begun."""
        return self._claim_unproven

    def prove_claim(self) -> None:
        """What a dead worker may have begun is known now."""
        self._claim_unproven = False

    def disown(self) -> None:
        """This process does not hold the run any more, or does not go on with it."""
        self._owned = False

    def release(self) -> None:
        """This process has handed the run on, as it is: its row is free, under the next fence. Where it has heard
        meanwhile that it holds the run no more, that counts."""
        if self._owned:
            self._owned, self._worker, self._fence = False, None, self._fence + 1

    def _hear_holder(self, worker: int | None, fence: int, *, owned: bool) -> None:
        """Only a claim that was free before, and raised the fence by one, is surely fresh."""
        if owned and not self._owned:
            self._claim_unproven = self._worker is not None or fence != self._fence + 1
        self._owned, self._worker, self._fence = owned, worker, fence

    # --- the work that waits ------------------------------------------------------------------------------------------

    @property
    def submissions(self) -> Sequence[Submission]:
        """The commands that wait, the next one first."""
        return self._submissions

    @property
    def chunks(self) -> Sequence[Streamed]:
        """What its attempts have streamed, and is not committed yet."""
        return self._chunks

    @property
    def has_work(self) -> bool:
        return bool(self._submissions or self._chunks)

    @property
    def singly(self) -> int:
        """How many of the next submissions make an entry of their own, as one of them has spoilt one of several."""
        return self._singly

    def submit(self, submission: Submission) -> None:
        """Add a command behind the others."""
        self._submissions.append(submission)

    def submit_next(self, submission: Submission) -> None:
        """Add a command before the others."""
        self._submissions.appendleft(submission)

    def pop_submission(self) -> Submission:
        return self._submissions.popleft()

    def withdraw(self, submission: Submission) -> None:
        """The command waits no longer, if it still did."""
        if submission in self._submissions:
            self._submissions.remove(submission)

    def stream(self, chunks: Iterable[Streamed]) -> None:
        """Add chunks behind the others."""
        self._chunks.extend(chunks)

    def pop_chunk(self) -> Streamed:
        return self._chunks.popleft()

    def take_back(self, submissions: Sequence[Submission], chunks: Sequence[Streamed]) -> None:
        """Nothing came of these: they wait again, before all others. A command whose caller was told meanwhile to send
        it again does not."""
        self._submissions.extendleft(each for each in reversed(submissions) if not each.failed)
        self._chunks.extendleft(reversed(chunks))

    def drop_work(self) -> list[Submission]:
        """Nothing waits any more. Return the commands that did."""
        dropped = list(self._submissions)
        self._submissions.clear()
        self._chunks.clear()
        return dropped

    def note_commands(self, commands: Mapping[str, CommandRow]) -> None:
        """A commit has stored these ids: whoever waits with one of them repeats it."""
        for submission in self._submissions:
            if submission.command_id is not None and (row := commands.get(submission.command_id)) is not None:
                submission.first_use = row

    def separate(self, count: int) -> None:
        """The next `count` submissions are decided one an entry."""
        self._singly = count

    def note_answered(self, count: int) -> None:
        """So many submissions are decided and dealt with."""
        self._singly = max(0, self._singly - count)

    # --- the cache ----------------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """What the run counts in the cache; 0: it is not in there."""
        return self._bytes

    def weigh(self) -> int:
        """Count the run by the size of its state, nearly: its last snapshot and the log since. To measure it would cost
        as much as a snapshot; those come often enough that this is at most about twice as much. The conversations of
        its agents count too; that of an agent whose step is over is dropped. Return the growth."""
        size = STATE_OVERHEAD_BYTES + self._snapshot_bytes + self._log_bytes
        for agent, conversation in tuple(self._talks.items()) if self._talks else ():
            step_state = self._state.steps.get(agent)
            if step_state is None or step_state.outcome is not None:
                del self._talks[agent]
            else:
                size += sum(map(_read_size, conversation.exchanges))
        growth = size - self._bytes
        self._bytes = size
        return growth

    def uncache(self) -> int:
        """The cache has dropped the run. Return what it counted there."""
        size, self._bytes = self._bytes, 0
        return size

    def note_snapshot(self, size: int) -> None:
        """The state was saved, as so many bytes."""
        self._log_bytes, self._snapshot_bytes = 0, size

    def _illegal(self, transition: str) -> IllegalTransition:
        return IllegalTransition(f"run {self.id}: no `{transition}` while {self._position}, exists={self._exists}")


if not TYPE_CHECKING:
    # What a property only hands out is read from its slot directly. A step reads these fifty times, and each call of a
    # property would cost as much as three reads. That nobody else writes them is for the type checker to see.
    for _slot in CachedRun.__slots__:
        if _slot.removeprefix("_") in vars(CachedRun):
            setattr(CachedRun, _slot.removeprefix("_"), vars(CachedRun)[_slot])
