"""A campaign from beginning to end: a deployment is made, used and broken, comes to rest, and is judged."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from hai_flow.engine import events as e
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.runtime.ops.verify import Plans, VerifiedRuns, Verifying, fold_and_check, verify
from hai_flow.runtime.settings import bounds_of
from hai_flow.settings import Settings
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs import run_bundle
from hai_flow.values import Json, loads
from hai_flow.wire.dialects.log import event_json
from hai_flow.wire.sent_json import dump
from hai_flow_chaos import oracle
from hai_flow_chaos.clients import Clients
from hai_flow_chaos.effects import World
from hai_flow_chaos.faults import Faults
from hai_flow_chaos.history import Broken, History
from hai_flow_chaos.plan import Campaign, Fault, planned
from hai_flow_chaos.stage import Stage, staged
from hai_flow_chaos.tools import PAID

if TYPE_CHECKING:
    from asyncpg import Connection

LOOK_SECONDS: Final = 0.3
VERIFY_SECONDS: Final = 5.0
_AWAY: Final = (*FAILURES, TimeoutError)


@dataclass(slots=True)
class Outcome:
    """The result of a campaign. `quiet_after`: seconds from the last fault until every run had ended and every follower
    had seen it; None: that took longer than the campaign waits. `statuses`: the number of runs by their last status.
    `logs`: the events of the runs for which a promise was broken."""

    campaign: Campaign
    plan: Sequence[Fault]
    history: History
    lacking: Mapping[str, str]
    faults_from: float = 0.0
    faults_until: float = 0.0
    quiet_after: float | None = None
    statuses: dict[str, int] = field(default_factory=dict)
    verified: VerifiedRuns = field(default_factory=VerifiedRuns)
    broken: list[Broken] = field(default_factory=list)
    logs: dict[str, Sequence[e.Event]] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return not self.broken

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "campaign": asdict(self.campaign),
            "repeat": self.campaign.command,
            "holds": self.holds,
            "violations": [each._asdict() for each in self.broken],
            "quiet_after_seconds": None if self.quiet_after is None else round(self.quiet_after, 1),
            "runs": {"statuses": self.statuses, "verified": self.verified.runs, "events": self.verified.events},
            "numbers": self.history.numbers(),
            "left_out": dict(self.lacking),
            "verify_reached": dict(sorted(self.verified.reached.items())),
            "plan": [asdict(fault) for fault in self.plan],
            "timeline": [mark._asdict() for mark in sorted(self.history.marks)],
            "faults_from": round(self.faults_from, 2),
            "faults_until": round(self.faults_until, 2),
        }


async def run(
    campaign: Campaign,
    report: Path,
    *,
    keep: bool = False,
    first: bool = False,
    patient: bool = False,
    extra: Mapping[str, str] | None = None,
    cluster: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run the campaign; the processes' logs go into `report`, which exists. `keep`: leave its database. `first`: end at
    the first violation that is seen while it runs. `patient`: on a machine with too much to do, wait for rest as long
    as anything comes to an end within `settle`. `extra`: variables of the environment for its processes. `cluster`:
    see `staged`. Raises StoreError where the deployment can't be made."""
    history, plan = History(), planned(campaign)
    async with (
        World(history) as world,
        staged(campaign, history, report, extra or {}, keep=keep, cluster=cluster) as stage,
    ):
        outcome = Outcome(campaign, plan, history, stage.lacking)
        for kind, why in stage.lacking.items():
            tell(f"Left out: {kind}, because {why}.")
        clients = Clients(campaign, stage, history, world.url)
        await clients.publish()
        tell(f"{len(stage.seats)} processes are up after {history.now():.0f} s. Using them.")
        working = asyncio.create_task(clients.work())
        looking = asyncio.create_task(_look_meanwhile(stage, history, report)) if first else None
        try:
            await _until_done(clients.calmed.wait(), working, history, first)
            if any(said(report, "lease_lost")):
                tell("A process has lost its lease before anything was broken: this machine is too busy for a calm.")
                history.calm.clear()
            outcome.faults_from = history.now()
            tell(f"{len(history.calm)} runs are over after {outcome.faults_from:.0f} s. Breaking the processes.")
            await _until_done(
                Faults(stage, history, campaign.seed).do(plan, outcome.faults_from), working, history, first
            )
            outcome.faults_until = history.now()
            tell(f"The last fault is over after {outcome.faults_until:.0f} s. Waiting for rest.")
            if not (first and history.broken):
                outcome.quiet_after = await _rest(
                    campaign, stage, clients, history, working, first=first, patient=patient
                )
        finally:
            for task in (working, *([looking] if looking else ())):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await stage.end()
        await _judge(outcome, stage, report)
        if keep:
            tell(f"The database is kept in {stage.directory}.")
    return outcome


async def _look_meanwhile(stage: Stage, history: History, report: Path) -> None:
    """Check all runs every `VERIFY_SECONDS`, and note each broken promise once, as soon as it is found. The checks run
    in a thread: this loop carries the connections of all processes."""
    told: set[tuple[str, str]] = set()
    looked = _Looked()
    while True:
        await asyncio.sleep(VERIFY_SECONDS)
        found, known = [*_faults_said(report)], history.copy()
        with contextlib.suppress(*_AWAY):
            found += await asyncio.to_thread(asyncio.run, _look(stage, looked))
            found += await asyncio.to_thread(list, oracle.judged_meanwhile(known, history.copy(), looked.runs))
        for each in found:
            if (each.rule, each.whom) not in told:
                told.add((each.rule, each.whom))
                history.breaks(each.rule, each.whom, each.message)


@dataclass(slots=True)
class _Looked:
    """The runs as they were last read. `over`: runs that have ended, with a correct log; they are not read again."""

    runs: dict[str, oracle.Run] = field(default_factory=dict)
    over: set[UUID] = field(default_factory=set)


async def _look(stage: Stage, looked: _Looked) -> list[Broken]:
    """Verify every run that is not over yet against its log, and keep it in `looked` for the oracle. All that clients
    and the world had noted before this call is in these logs, or is lost."""
    found, limits = VerifiedRuns(), bounds_of(Settings.from_environment(stage.settings))
    connection = await stage.connect()
    try:
        plans = Plans(connection)
        async for page in run_bundle.run_pages(connection):
            async with run_bundle.snapshot(connection):
                for each in await run_bundle.evidence_of(connection, [id for id in page if id not in looked.over]):
                    check = await fold_and_check(connection, each, plans, limits=limits)
                    violations = check.end()
                    found.add(check, violations)
                    run = await _run(connection, each)
                    looked.runs[run.id] = run
                    if run.status in TERMINAL_STATUSES and not violations:
                        looked.over.add(each.run["id"])
    finally:
        connection.terminate()
    return [*_broken_by(found)]


# Of a database that is away or has no room, and of a transaction that is lost with it.
_OF_THE_DATABASE: Final = frozenset({"store_failed", "cell_away", "database_unavailable"})


def said(report: Path, event: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines in the logs of the processes, with the names of these: of one event, or all errors."""
    for log in sorted(report.glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if not line.startswith("{") or ('"error"' if event is None else event) not in line:
                continue
            with contextlib.suppress(ValueError):
                entry = loads(line)
                if isinstance(entry, dict) and (event or "error") in (entry.get("event"), entry.get("level")):
                    yield log.stem, entry


def _faults_said(report: Path) -> Iterator[Broken]:
    """A process that is killed, cut off or short of everything says so, and has no fault of its own."""
    for name, entry in said(report):
        if entry.get("level") == "error" and entry.get("event") not in _OF_THE_DATABASE:
            yield Broken("no process has a fault of its own", name, str(entry)[:600])


def _broken_by(verified: VerifiedRuns) -> Iterator[Broken]:
    for violation in verified.violations:
        at = "" if violation.seq is None else f"event {violation.seq}: "
        yield Broken(f"verify: {violation.rule}", str(violation.run_id), at + violation.message)


async def _verified(stage: Stage, connection: Connection[Any]) -> VerifiedRuns:
    verified, limits = VerifiedRuns(), bounds_of(Settings.from_environment(stage.settings))
    async for found in verify(connection, Verifying(limits=limits)):
        verified = found
    return verified


async def _until_done(doing: Awaitable[object], working: asyncio.Task[None], history: History, first: bool) -> None:
    """Wait until `doing` is done, or, with `first`, until a promise is broken. Raises the error of `working`."""
    task = asyncio.ensure_future(doing)
    try:
        while not task.done() and not (first and history.broken):
            await asyncio.wait({task, working}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
    finally:
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _rest(
    campaign: Campaign,
    stage: Stage,
    clients: Clients,
    history: History,
    working: asyncio.Task[None],
    *,
    first: bool,
    patient: bool,
) -> float | None:
    """Wait until every run has ended and every follower has got its end. Returns the seconds that took; None: it was
    not within `settle` seconds, which with `patient` begin anew whenever a run or a stream ends."""
    began = since = history.now()
    over = 0
    while history.now() - since < campaign.settle:
        if working.done():
            working.result()
        if first and history.broken:
            return None
        ended, going_on = await _ends(stage)
        followed = sum(stream.ended for stream in history.streams)
        if clients.started.is_set() and followed == len(history.streams) and going_on == 0:
            return history.now() - began
        if patient and ended + followed > over:
            over, since = ended + followed, history.now()
        await asyncio.sleep(LOOK_SECONDS)
    return None


async def _ends(stage: Stage) -> tuple[int, int | None]:
    """How many runs have ended, and how many go on; None: the database is away."""
    try:
        connection = await stage.connect()
        try:
            statuses = await run_bundle.statuses(connection)
        finally:
            await connection.close(timeout=2)
    except _AWAY:
        return 0, None
    ended = sum(count for status, count in statuses.items() if status in TERMINAL_STATUSES)
    return ended, sum(statuses.values()) - ended


async def _judge(outcome: Outcome, stage: Stage, report: Path) -> None:
    """Judge the campaign by the database as it is now, with every rule and with `verify`, and write the result to
    `outcome`."""
    async with asyncio.timeout(300):
        connection = await _connected(stage)
        try:
            outcome.statuses = await run_bundle.statuses(connection)
            outcome.verified = await _verified(stage, connection)
            runs = {each.id: each async for each in _runs(connection)}
            payments = [(row[0], row[1]) for row in await connection.fetch(PAID)]
        finally:
            await connection.close(timeout=2)
    outcome.broken = oracle.judged(oracle.Known(outcome.history, runs, payments))
    outcome.broken += [*_broken_by(outcome.verified), *_faults_said(report)]
    outcome.logs = {id: each.events for id, each in runs.items() if any(id in broken.whom for broken in outcome.broken)}
    if outcome.quiet_after is None and not outcome.broken:
        seconds = outcome.campaign.settle
        outcome.broken.append(Broken("all is quiet in time", "all", f"it was not, {seconds:g} s after the last fault"))


async def _connected(stage: Stage) -> Connection[Any]:
    """A connection, as soon as there is one: if the faults were broken off, the disk may still be full for a moment."""
    while True:
        await stage.until_up()
        try:
            return await stage.connect()
        except _AWAY:
            await asyncio.sleep(LOOK_SECONDS)


async def _runs(connection: Connection[Any]) -> Any:
    async for page in run_bundle.run_pages(connection):
        async with run_bundle.snapshot(connection):
            for each in await run_bundle.evidence_of(connection, page):
                yield await _run(connection, each)


async def _run(connection: Connection[Any], found: run_bundle.Evidence) -> oracle.Run:
    events: list[e.Event] = []
    async for row in run_bundle.log_rows(connection, found.run["id"]):
        events += e.decode_events(row["events"])
    return oracle.Run(str(found.run["id"]), found.run["status"], _output(found.run["result"]), events)


def _output(result: bytes | None) -> Json:
    found: Any = None if result is None else loads(result)
    return found.get("output") if isinstance(found, dict) else None


def written(outcome: Outcome, report: Path) -> None:
    """The report's files."""
    from hai_flow_chaos.report import page

    (report / "chaos.json").write_text(json.dumps(outcome.as_json(), indent=1, default=str) + "\n")
    (report / "chaos.html").write_text(page(outcome))
    for id, events in outcome.logs.items():
        lines = [dump(event_json(seq, event)) + b"\n" for seq, event in enumerate(events, 1)]
        (report / f"run-{id}.jsonl").write_bytes(b"".join(lines))
