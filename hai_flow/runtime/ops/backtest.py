"""Decides the recorded runs of a workflow again under another text, and counts what would have become of them.

Nothing is performed and no row is written: runs are read in pages, each in a read-only snapshot (as `verify` does). A
run whose plan or whose log can't be read whole is counted by the reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import events as e
from hai_flow.engine.runs.backtest import KINDS, Verdict, is_faithful, list_obstacles, pair_plans, rehearse
from hai_flow.engine.runs.migrate import Obstacle
from hai_flow.engine.runs.rehearsal import Asking, Pairing, Recording, has_departure, move_origin
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.errors import Rejected, Unreadable
from hai_flow.primitives import instants
from hai_flow.runtime.ops.verify import Plans
from hai_flow.store.catalog.rehearsals import KeptRehearsal
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import read_clock
from hai_flow.store.runs import run_bundle
from hai_flow.store.runs.run_bundle import Row

Reason: TypeAlias = Literal["release", "plan", "forked", "migrated", "log", "inputs", "engine", "personal"]
REASONS: Final[dict[Reason, str]] = {
    "release": "a newer release wrote it, and this one can't read it",
    "plan": "the version of the workflow that it has can't be read",
    "forked": "it began as a fork of another run, in a state that it could not have under this text",
    "migrated": "it was moved to another version on its way, in a state that it could not have under this text",
    "log": "its log can't be read",
    "inputs": "its log does not hold all that was asked of it",
    "engine": "this release can't decide it again",
    "personal": "it has personal values that are kept from you, and a text could be written to show them",
}
"""Why a run can't be decided again."""


class Backtesting(msgspec.Struct, frozen=True):
    """What to decide again: the tenant's runs of the workflow `name` that began within `age`, under `plan`. `limits`:
    those of the deployment's engine. `examples`: how many runs are kept with their first difference, of each kind, and
    of those that could not migrate."""

    tenant: UUID
    name: str
    plan: Plan
    age: timedelta
    limits: Bounds = DEFAULT_BOUNDS
    examples: int = 20


class Example(NamedTuple):
    """A run that would have gone otherwise."""

    run_id: UUID
    verdict: Verdict


class Stuck(NamedTuple):
    """A waiting run that could not migrate to the new text."""

    run_id: UUID
    obstacles: tuple[Obstacle, ...]


class Unread(NamedTuple):
    """A run that could not be decided again, and why."""

    run_id: UUID
    reason: Reason
    detail: str


@dataclass(slots=True)
class Backtest:
    """The result. `verdicts` counts the runs by what would have become of them, `unreadable` those that could not be
    decided again, by reason. `more` and `fewer` count the questions that would be asked besides, or no more. `waiting`
    runs could migrate, but for those that `stuck` counts by the first obstacle's code."""

    runs: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[Reason] = field(default_factory=Counter)
    more: Counter[Asking] = field(default_factory=Counter)
    fewer: Counter[Asking] = field(default_factory=Counter)
    waiting: int = 0
    stuck: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)
    stuck_examples: list[Stuck] = field(default_factory=list)
    unread_examples: list[Unread] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether any run would have gone otherwise, or could not migrate."""
        return bool(self.stuck) or any(count for kind, count in self.verdicts.items() if kind != "same")

    @property
    def differences(self) -> int:
        """How many runs would have gone otherwise, or could not be decided again."""
        return sum(self.verdicts.values()) - self.verdicts["same"] + sum(self.unreadable.values())

    def join(self, other: Backtest) -> None:
        """Add the result of another database."""
        self.runs += other.runs
        self.verdicts += other.verdicts
        self.unreadable += other.unreadable
        self.more += other.more
        self.fewer += other.fewer
        self.waiting += other.waiting
        self.stuck += other.stuck
        self.examples += other.examples
        self.stuck_examples += other.stuck_examples
        self.unread_examples += other.unread_examples


async def backtest(connection: Connection, request: Backtesting) -> AsyncIterator[Backtest]:
    """Yields the result so far, after each page of runs. The connection must not be used for anything else
    meanwhile."""
    plans, pairings, result = Plans(connection), dict[bytes, Pairing](), Backtest()
    async for page in run_bundle.workflow_run_pages(connection, request.tenant, request.name, request.age):
        async with run_bundle.snapshot(connection):
            now = instants.milliseconds(await read_clock(connection))
            for row in page:
                recording = await _read_run(connection, request, row, plans, pairings)
                _judge(result, request, row["id"], recording, pairings.get(row["workflow"]), now)
        yield result


Beside: TypeAlias = Callable[..., Awaitable[Any]]
"""Calls a function with its arguments beside the event loop."""


async def backtest_some(
    reads: Pool,
    request: Backtesting,
    beside: Beside,
    is_personal: Callable[[UUID], Awaitable[bool]],
    *,
    runs_max: int,
    seconds_max: float,
) -> tuple[Backtest, bool]:
    """The result for the first runs, as many as may be, and whether these were all. Each run is read as it is at that
    moment, and decided beside the loop, so that others are served meanwhile. `is_personal`: whether the run has values
    that are kept from the reader, who has written the text and would read them off its way."""
    plans, pairings, result = Plans(reads, beside), dict[bytes, Pairing](), Backtest()
    until = time.monotonic() + seconds_max
    async for page in run_bundle.workflow_run_pages(reads, request.tenant, request.name, request.age):
        now = instants.milliseconds(await read_clock(reads))
        for row in page:
            if result.runs >= runs_max or time.monotonic() > until:
                return result, False
            recording: Recording | Unread | None
            if await is_personal(row["id"]):
                recording = Unread(row["id"], "personal", REASONS["personal"])
            else:
                recording = await _read_run(reads, request, row, plans, pairings, beside)
            await beside(_judge, result, request, row["id"], recording, pairings.get(row["workflow"]), now)
    return result, True


def build_kept_rehearsal(
    result: Backtest, plan: Plan, base: bytes, age: timedelta, by: str, *, complete: bool
) -> KeptRehearsal:
    """The result as it is kept for the publication of the plan's text. Arguments as in `KeptRehearsal`."""
    counts = {"verdicts": dict(result.verdicts), "unreadable": dict(result.unreadable)}
    return KeptRehearsal(
        name=plan.name,
        sha256=plan.sha256,
        base=base,
        age=age,
        complete=complete,
        runs=result.runs,
        differences=result.differences,
        counts=msgspec.json.encode(counts, order="sorted"),
        by=by,
    )


async def call_here(function: Callable[..., Any], *args: Any) -> Any:
    """Calls the function on the event loop."""
    return function(*args)


def render_backtest(result: Backtest) -> dict[str, Any]:
    return {
        "runs": result.runs,
        "verdicts": {kind: result.verdicts[kind] for kind in KINDS},
        "unreadable": dict(sorted(result.unreadable.items())),
        "more": [_render_question(each, count) for each, count in sorted(result.more.items())],
        "fewer": [_render_question(each, count) for each, count in sorted(result.fewer.items())],
        "waiting": result.waiting,
        "stuck": dict(sorted(result.stuck.items())),
        "examples": [
            {"run_id": str(run_id), **msgspec.structs.asdict(verdict)}
            | {side: [_render_question(each) for each in getattr(verdict, side)] for side in ("more", "fewer")}
            for run_id, verdict in result.examples
        ],
        "stuck_examples": [
            {"run_id": str(run_id), "obstacles": [each.as_dict() for each in obstacles]}
            for run_id, obstacles in result.stuck_examples
        ],
        "unreadable_examples": [{**each._asdict(), "run_id": str(each.run_id)} for each in result.unread_examples],
    }


def _render_question(question: Asking, count: int | None = None) -> dict[str, Any]:
    rendered: dict[str, Any] = {"step": question.path, "from": list(question.from_), "quorum": question.quorum}
    return rendered if count is None else {**rendered, "runs": count}


def _judge(
    result: Backtest,
    request: Backtesting,
    run_id: UUID,
    recording: Recording | Unread | None,
    pairing: Pairing | None,
    now: int,
) -> None:
    """Decide the run again, and add what becomes of it."""
    if recording is None:
        return
    result.runs += 1
    if isinstance(recording, Unread) or pairing is None:
        if isinstance(recording, Unread):
            _add_unread(result, request, recording)
        return
    obstacles = list_obstacles(recording, pairing, now)
    if obstacles is not None:
        result.waiting += 1
        if obstacles:
            result.stuck[obstacles[0].code] += 1
            if sum(result.stuck.values()) <= request.examples:
                result.stuck_examples.append(Stuck(run_id, obstacles))
    try:
        if not is_faithful(recording, pairing.old, request.limits):
            _add_unread(result, request, Unread(run_id, "inputs", REASONS["inputs"]))
            return
        origin = recording.origin
        if origin is not None and (obstacle := move_origin(origin, pairing)[1]):
            _add_unread(result, request, Unread(run_id, recording.departure, obstacle))
            return
        verdict = rehearse(recording, pairing, request.limits)
    except (
        AssertionError,
        AttributeError,
        KeyError,
        Rejected,
        ValueError,
    ) as error:  # one run must not end the look at all
        _add_unread(result, request, Unread(run_id, "engine", f"{type(error).__name__}: {error}"))
        return
    result.verdicts[verdict.kind] += 1
    result.more.update(verdict.more)
    result.fewer.update(verdict.fewer)
    if verdict.kind != "same" and result.verdicts[verdict.kind] <= request.examples:
        result.examples.append(Example(run_id, verdict))


def _add_unread(result: Backtest, request: Backtesting, unread: Unread) -> None:
    result.unreadable[unread.reason] += 1
    if result.unreadable[unread.reason] <= request.examples:
        result.unread_examples.append(unread)


async def _read_run(
    connection: Connection | Pool,
    request: Backtesting,
    row: Row,
    plans: Plans,
    pairings: dict[bytes, Pairing],
    beside: Beside = call_here,
) -> Recording | Unread | None:
    """The run's inputs, or why they can't be read; None: it is not there any more."""
    run_id, digest = row["id"], row["workflow"]
    if row["abi"] > e.ABI:
        return Unread(run_id, "release", f"its events have ABI {row['abi']}, this release reads up to {e.ABI}")
    if digest not in pairings:
        plan = await plans.find(request.tenant, digest)
        if isinstance(plan, str):
            return Unread(run_id, "plan", f"the workflow {digest.hex()[:16]}: {plan}")
        pairings[digest] = await beside(pair_plans, plan, request.plan)
    recording, version = Recording(str(run_id), pairings[digest].old, request.limits), 0
    try:
        commits = [
            (e.decode_events(commit["events"]), commit) async for commit in run_bundle.log_rows(connection, run_id)
        ]
        first = 1 + max((n for n, (events, _) in enumerate(commits) if has_departure(events)), default=-1)
        if first:
            before = [(events, len(commit["events"])) for events, commit in commits[:first]]
            version = commits[first - 1][1]["version"]
            fault = await beside(_begin, recording, before)
            if fault is not None:
                reason: Reason = "log" if fault else recording.departure
                return Unread(run_id, reason, fault or REASONS[reason])
        for events, commit in commits[first:]:
            fault = await beside(_add, recording, events, commit, version)
            if fault:
                return Unread(run_id, "log", f"behind event {recording.state.seq}: {fault}")
            version = commit["version"]
    except Unreadable as error:
        return Unread(run_id, "release", str(error))
    except ValueError as error:  # a row that can't be taken apart into commits
        return Unread(run_id, "log", f"behind event {recording.state.seq}: {error}")
    return recording if recording.state.seq else None


def _begin(recording: Recording, commits: Sequence[tuple[Sequence[e.Event], int]]) -> str | None:
    """Begin behind the last fork or migration. None: that is done; else why the commits do not fold, "" where they
    do."""
    try:
        return None if recording.begin(commits) else ""
    except Exception as error:
        return str(error) or type(error).__name__


def _add(recording: Recording, events: Sequence[e.Event], commit: Row, version: int) -> str:
    """Add the commit; why it does not fold, or nothing."""
    try:
        recording.add(events, len(commit["events"]), decides=commit["version"] != version)
    except Exception as error:  # a transition that no table has, a record that is not there
        return str(error) or type(error).__name__
    return ""
