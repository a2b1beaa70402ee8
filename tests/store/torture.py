"""The store under torture: processes commit, claim and stream while their connections are cut and they are stopped.

    python -m tests.store.torture --seconds 15 --processes 4 --dsn postgresql://...

Each process runs a very small engine (a run is a row of attempts, one open at a time) on
`hai_flow.store.commit.commits` and writes down what it was told: acknowledgements, what it performed, which fences it
saw. Meanwhile backends are terminated in mid-commit, clients hang up before the answer comes, and processes are stopped
for longer than their lease and wake up believing that they still hold their runs. Afterwards the oracle compares the
tables with the histories. `test_torture.py` proves of every check that it rejects a hand-made violation."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import pytest

from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import (
    BatchResult,
    Born,
    CommandRow,
    CommitResult,
    Entry,
    MessageRow,
    OutboxRow,
    PendingRow,
    TurnRow,
    VoteRow,
)
from hai_flow.store.messaging import concurrency_slots as slots
from hai_flow.store.postgres import error_classes as faults
from hai_flow.store.postgres import migrations
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import CommitUnknown, ErrorClass
from hai_flow.store.runs import leases, logs
from hai_flow.store.runs.logs import Loaded
from tests.support import citus, forking
from tests.support.postgres import connecting
from tests.support.waiting import PATIENCE, until

LEASE = timedelta(seconds=1.2)
BEAT_SECONDS = 0.3
STALL_SECONDS = 2.6  # longer than the lease and the second that claims wait beyond it
SKEW_SECONDS = 4.0  # more than a lease and that second
SKEW_EVERY_SECONDS = 0.7
NODE_CUT = 0.3
CUT_ON_NODES = """
SELECT coalesce(sum(result::int), 0) FROM run_command_on_workers($$
  SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND state <> 'idle' AND query LIKE '%runs%' LIMIT 1) x
$$) WHERE success
"""
LEFT_ON_NODES = """
SELECT coalesce(sum(result::int), 0) FROM run_command_on_workers($$
  SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND application_name LIKE 'citus_internal%' AND state <> 'idle'
$$) WHERE success
"""
_OVER = "over"  # the file that ends the processes
RUNS = 40
SLOTS = 6
COMMANDS_A_RUN = 400
ABI = 1
NAMES = UUID(int=0x7041)
TENANTS = (UUID(int=1), UUID(int=2))

# --- the small engine ---------------------------------------------------------------------------------------------


@dataclass
class Mind:
    """What a process knows of a run: the fold of its log, and the row as last seen."""

    run_id: UUID
    seq: int = 0
    version: int = 0
    fence: int = 0
    worker: int | None = None
    attempt: int = 0
    open: bool = False
    chunks: int = 0
    ended: bool = False
    slot: str | None = None
    suspect: bool = False  # taken from a dead worker: its open attempt may have begun there

    def fold(self, event: dict[str, Any]) -> None:
        self.seq += 1
        match event["e"]:
            case "start":
                self.slot = event["slot"]
            case "began":
                self.attempt, self.open, self.chunks = event["a"], True, 0
            case "done" | "lost":
                self.open = False
            case "chunk":
                self.chunks = event["n"] + 1
            case "end":
                self.ended, self.open = True, False
            case "reopened":
                self.ended = False

    def catch_up(self, loaded: Loaded) -> None:
        assert loaded.state is None, "the torture saves no snapshots"
        for row in loaded.rows:
            assert row.first_seq == self.seq + 1, f"a gap in the log: {row.first_seq} after {self.seq}"
            for event in json.loads(row.events):
                self.fold(event)
        assert self.seq == loaded.seq, f"the log ends at {self.seq}, the run says {loaded.seq}"
        self.version, self.fence, self.worker = loaded.version, loaded.fence, loaded.worker


def run_name(number: int) -> UUID:
    return uuid5(NAMES, str(number))


def tenant_of(run_id: UUID) -> UUID:
    return TENANTS[run_id.int % 2]


class Process:
    """One process of the torture: a worker and an API in one."""

    def __init__(self, db: Database, history: Path, seed: int) -> None:
        self.db = db
        self.random = random.Random(seed)
        self.history = history.open("w", buffering=1)
        self.worker = 0
        self.held: dict[UUID, Mind] = {}
        self.begun: set[tuple[UUID, int]] = set()
        self.now = datetime.now(UTC)
        self.generation = 0

    def note(self, **what: Any) -> None:
        self.history.write(json.dumps(what, default=str) + "\n")

    async def run(self, is_over: Callable[[], bool]) -> None:
        await self.register()
        beat = 0.0
        while not is_over():
            try:
                if time.monotonic() > beat:
                    await self.heartbeat()
                    await self.claim()
                    beat = time.monotonic() + BEAT_SECONDS
                await self.round()
            except faults.FAILURES as error:
                # Some outcomes were not learned: forget everything, the heartbeat says what is ours.
                self.held.clear()
                self.fault(error)
        self.history.close()

    def fault(self, error: BaseException) -> None:
        self.note(fault=faults.classify(error).value, state=faults.sqlstate_of(error), text=repr(error)[:300])

    async def register(self) -> None:
        while True:
            try:
                self.worker = await leases.register_worker(self.db.engine, f"torture {os.getpid()}", LEASE)
                return
            except faults.FAILURES as error:
                self.fault(error)

    async def heartbeat(self) -> None:
        beat = await leases.heartbeat(self.db.engine, self.worker, LEASE)
        self.now = beat.db_now
        if not beat.alive:
            self.note(died=self.worker)
            self.held.clear()
            await self.register()
            return
        said = {held.run_id: held for held in beat.held}
        for run_id in self.held.keys() - said.keys():
            del self.held[run_id]
        stale = [r for r, held in said.items() if r not in self.held or self.held[r].version != held.version]
        for run_id, loaded in (await self.load(stale)).items():
            mind = self.held.get(run_id)
            # Not known to be ours: perhaps a claim whose answer was lost, perhaps from a dead worker. Suspect it.
            fresh = mind or Mind(run_id, suspect=True)
            fresh.catch_up(loaded)
            if fresh.worker == self.worker:
                self.held[run_id] = fresh
            else:  # taken from us since the heartbeat: under its new fence it is another's
                self.held.pop(run_id, None)

    async def load(self, run_ids: Sequence[UUID]) -> dict[UUID, Loaded]:
        if not run_ids:
            return {}
        have = [self.held[r].seq if r in self.held else 0 for r in run_ids]
        return await logs.load_runs(self.db.engine, run_ids, have, ABI)

    async def claim(self) -> None:
        async with self.db.lane() as connection:
            claimed = await leases.claim_runs(connection, self.worker, 8, ["default", "other"])
        for each in claimed:
            self.note(saw=each.run_id, version=each.version, fence=each.fence, worker=self.worker)
            self.held.pop(each.run_id, None)
        loaded = await self.load([each.run_id for each in claimed])
        for each in claimed:
            mind = Mind(each.run_id, suspect=each.lost)
            mind.catch_up(loaded[each.run_id])
            if mind.worker == self.worker and mind.fence == each.fence:
                self.held[each.run_id] = mind

    async def round(self) -> None:
        plans = [self.work(mind) for mind in list(self.held.values())[:12]]
        plans += await self.commands(12)
        by_run = {plan.entry.run_id: plan for plan in plans if plan is not None}
        if by_run:
            await self.commit(list(by_run.values()))

    # -- deciding --------------------------------------------------------------------------------------------------

    def work(self, mind: Mind) -> Plan | None:
        """What the holder does next with a run. Nothing here is reloaded first: what it knows may be old."""
        if mind.open and mind.suspect:
            return self.decision(mind, [{"e": "lost", "a": mind.attempt}, *self.begin(mind)], busy=True, cut=True)
        mind.suspect = False
        if not mind.open:
            return self.decision(mind, [{"e": "idle"}], busy=False)
        if (mind.run_id, mind.attempt) not in self.begun:
            self.begun.add((mind.run_id, mind.attempt))
            self.note(perform=mind.run_id, attempt=mind.attempt, fence=mind.fence, worker=self.worker)
        if mind.chunks < 3 or self.random.random() < 0.5:
            events = [{"e": "chunk", "a": mind.attempt, "n": mind.chunks}]
            entry = Entry(
                run_id=mind.run_id, tenant=tenant_of(mind.run_id), n=1, events=dumps(events), fence=mind.fence
            )
            return Plan(entry, mind, events, chunks=True)
        events: list[dict[str, Any]] = [{"e": "done", "a": mind.attempt}]
        if self.random.random() < 0.6:
            return self.decision(mind, [*events, *self.begin(mind)], busy=True)
        return self.decision(mind, events, busy=False, wake=self.random.random() < 0.2)

    def begin(self, mind: Mind) -> list[dict[str, Any]]:
        return [{"e": "began", "a": mind.attempt + 1}]

    def decision(
        self, mind: Mind, events: list[dict[str, Any]], *, busy: bool, cut: bool = False, wake: bool = False
    ) -> Plan:
        entry = Entry(
            run_id=mind.run_id,
            tenant=tenant_of(mind.run_id),
            n=len(events),
            events=dumps(events),
            version=mind.version,
            fence=mind.fence,
            status="running" if busy else "waiting",
            busy=busy,
            wake_at=self.now if wake else None,
            cut=cut,
        )
        return Plan(entry, mind, events)

    async def commands(self, count: int) -> list[Plan | None]:
        """Commands to random runs, some of them repeated, from states that are loaded (and by then old)."""
        numbers = {self.generation * RUNS // 2 + self.random.randrange(RUNS) for _ in range(count)}
        if self.random.random() < 0.02:
            self.generation += 1
        ids = [r for r in map(run_name, numbers) if r not in self.held]
        loaded = await logs.load_runs(self.db.engine, ids, [0] * len(ids), ABI)
        plans = []
        for run_id in ids:
            mind = Mind(run_id)
            if run_id in loaded:
                mind.catch_up(loaded[run_id])
                plans.append(self.command(mind))
            else:
                plans.append(self.start(run_id))
        return plans

    def start(self, run_id: UUID) -> Plan:
        slot = f"thread:{self.random.randrange(SLOTS)}" if self.random.random() < 0.3 else None
        events = [{"e": "start", "slot": slot}, {"e": "cmd", "id": "start"}, {"e": "began", "a": 1}]
        born = Born(
            workflow=b"w" * 32,
            workflow_name="torture",
            workflow_version=1,
            thread_id=slot or str(run_id),
            started_by="user:torture",
            queue=self.random.choice(["default", "other"]),
            slot=slot,
            input=b"{}",
        )
        entry = Entry(
            run_id=run_id,
            tenant=tenant_of(run_id),
            n=3,
            events=dumps(events),
            born=born,
            status="running",
            busy=True,
            commands=[CommandRow("start", b"start", b"{}")],
            turns=[TurnRow(1, first=1, wire_run_id="wire")],
            messages=[MessageRow(0, "m0", "user", b"hello", 2)],
        )
        return Plan(entry, Mind(run_id), events, command="start")

    def command(self, mind: Mind) -> Plan | None:
        # Every process draws ids from one small space, so ids meet; and it never asks first if an id was used.
        command_id = f"c{self.random.randrange(COMMANDS_A_RUN)}"
        row = CommandRow(command_id, hashlib.sha256(command_id.encode()).digest(), b"{}")
        events: list[dict[str, Any]] = [{"e": "cmd", "id": command_id}]
        common: dict[str, Any] = {"run_id": mind.run_id, "tenant": tenant_of(mind.run_id), "commands": [row]}
        dice = self.random.random()
        if mind.ended:
            if dice > 0.1:
                return None
            events += [{"e": "reopened"}, *self.begin(mind)]
            entry = Entry(
                n=len(events), events=dumps(events), version=mind.version, status="running", busy=True,
                take_slot=mind.slot, **common,
            )  # fmt: skip
            return Plan(entry, mind, events, command=command_id)
        if dice < 0.02:
            row = CommandRow("nul\x00", b"", b"")
            entry = Entry(n=1, events=b"[{}]", version=mind.version, **common | {"commands": [row]})
            return Plan(entry, mind, events, poisoned=True)
        if dice < 0.05:
            stranger = TENANTS[1 - mind.run_id.int % 2]
            entry = Entry(n=1, events=dumps(events), version=mind.version, **common | {"tenant": stranger})
            return Plan(entry, mind, events, foreign=True)
        if dice < 0.12:
            events += [{"e": "end"}]
            entry = Entry(
                n=2, events=dumps(events), version=mind.version, status="finished", busy=False, cut=mind.open,
                result=b'{"output":1}', turns=[TurnRow(1, last=2)], **common,
            )  # fmt: skip
            return Plan(entry, mind, events, command=command_id)
        if dice < 0.3 and mind.open:  # a timeout: the holder is not told, and its late chunks must lose
            events += [{"e": "lost", "a": mind.attempt}, *self.begin(mind)]
            entry = Entry(n=3, events=dumps(events), version=mind.version, busy=True, cut=True, **common)
            return Plan(entry, mind, events, command=command_id)
        if dice < 0.5:
            pending = f"p-{command_id}"
            events += [{"e": "asked", "id": pending}]
            entry = Entry(
                n=2, events=dumps(events), version=mind.version, busy=mind.open or None,
                pendings=[PendingRow(pending, "open", "a/b", b"d", None, b"{}")],
                votes=[VoteRow(pending, "user:a", b"{}")], outbox=[OutboxRow("signal", "x", b"{}")], **common,
            )  # fmt: skip
            return Plan(entry, mind, events, command=command_id)
        if not mind.open:
            events += self.begin(mind)
        entry = Entry(n=len(events), events=dumps(events), version=mind.version, status="running", busy=True, **common)
        return Plan(entry, mind, events, command=command_id)

    # -- committing ------------------------------------------------------------------------------------------------

    async def commit(self, plans: list[Plan]) -> None:
        """Commit, halving a batch that was refused for its data, and learn from the outcome."""
        try:
            committed = await self.send([plan.entry for plan in plans])
        except CommitUnknown:
            self.note(unknown=len(plans))
            return await self.after_unknown(plans)
        except faults.FAILURES as error:
            fault = faults.classify(error)
            if fault is ErrorClass.DATA and len(plans) > 1:
                await self.commit(plans[: len(plans) // 2])
                return await self.commit(plans[len(plans) // 2 :])
            if fault is ErrorClass.DATA and plans[0].poisoned:
                return self.note(poisoned=1)
            self.fault(error)
            if fault is ErrorClass.UNKNOWN:
                return await self.after_unknown(plans)
            if fault is ErrorClass.RETRY:
                return await self.commit(plans)
            return None
        self.now = committed.db_now
        for number, plan in enumerate(plans):
            if (won := committed.won.get(number)) is not None:
                await self.after_win(plan, won)
            else:
                await self.after_loss(plan)
        return None

    async def send(self, entries: list[Entry]) -> BatchResult:
        async with self.db.lane() as connection:
            task = asyncio.create_task(commits.commit(connection, entries, self.worker, self.now))
            if self.random.random() < 0.05:  # hang up before the answer comes
                await asyncio.wait([task], timeout=self.random.random() * 0.006)
                connection.terminate()
            return await task

    async def after_win(self, plan: Plan, won: CommitResult) -> None:
        mind = plan.mind
        took = mind.worker is None and won.fence == (0 if plan.entry.born else mind.fence + 1)
        self.note(saw=mind.run_id, version=won.version, fence=won.fence, worker=won.worker)
        assert not plan.poisoned, "what can't be stored won"
        if plan.foreign:
            self.note(foreign=mind.run_id)
        if plan.command:
            self.note(ack=mind.run_id, id=plan.command)
        if won.seq - plan.entry.n != mind.seq:  # others' chunks lie between
            loaded = await logs.load_runs(self.db.engine, [mind.run_id], [mind.seq], ABI)
            mind.catch_up(loaded[mind.run_id])
        else:
            for event in plan.events:
                mind.fold(event)
            mind.version, mind.fence, mind.worker = won.version, won.fence, won.worker
        if mind.worker == self.worker:
            if mind.run_id not in self.held:
                mind.suspect = not took
            self.held[mind.run_id] = mind
        else:
            self.held.pop(mind.run_id, None)

    async def after_loss(self, plan: Plan) -> None:
        run_id = plan.mind.run_id
        if plan.command:
            if await self.has_carried_out(self.db.engine, run_id, plan.command):
                self.note(ack=run_id, id=plan.command)
            elif self.random.random() < 0.1:
                return await self.alone(run_id)
        if run_id in self.held:
            loaded = await self.load([run_id])
            self.held[run_id].catch_up(loaded[run_id])
            if self.held[run_id].worker != self.worker:
                del self.held[run_id]
        return None

    async def has_carried_out(self, connection: Any, run_id: UUID, command: str) -> bool:
        loaded = await logs.load_runs(connection, [run_id], [0], ABI, command_ids=[command])
        return run_id in loaded and command in loaded[run_id].used

    async def alone(self, run_id: UUID) -> None:
        """The fourth try: under the row's lock a decision always wins (or the id was used)."""
        async with self.db.lane() as connection, logs.lock_run(connection, run_id, 0, ABI) as loaded:
            if loaded is None:
                return
            mind = Mind(run_id)
            mind.catch_up(loaded)
            plan = self.command(mind)
            if plan is None or plan.poisoned or plan.foreign or plan.entry.take_slot:
                return
            committed = await commits.commit(connection, [plan.entry], None, self.now)
            known = await self.has_carried_out(connection, run_id, plan.command or "")
            if not committed.won and not known:
                self.note(lost_alone=run_id)
        self.note(ack=run_id, id=plan.command)

    async def after_unknown(self, plans: list[Plan]) -> None:
        """Raise the fences, so that nothing of ours can still land; load and see.

        The fence tells if the claim is the one that this very commit took (or that was held)."""
        # First forget all: a chunk that landed unseen would be sent again under the same fence.
        held = {plan.mind.run_id: self.held.pop(plan.mind.run_id, None) for plan in plans}
        async with self.db.lane() as connection:
            ours = await leases.refence_runs(connection, self.worker, held.keys())
        refenced = {each.run_id: each.fence for each in ours}
        for plan in plans:
            run_id = plan.mind.run_id
            before = held[run_id]
            loaded = (await logs.load_runs(self.db.engine, [run_id], [0], ABI)).get(run_id)
            if loaded is None:
                continue
            mind = Mind(run_id, suspect=before.suspect if before else False)
            mind.catch_up(loaded)
            known = before.fence if before else 0 if plan.entry.born else plan.mind.fence + 1
            if mind.worker == self.worker and mind.fence == refenced.get(run_id) == known + 1:
                self.held[run_id] = mind
            if plan.command and await self.has_carried_out(self.db.engine, run_id, plan.command):
                self.note(ack=run_id, id=plan.command)


@dataclass
class Plan:
    """An entry with what its maker knew and wants to know afterwards."""

    entry: Entry
    mind: Mind
    events: list[dict[str, Any]]
    command: str | None = None
    chunks: bool = False
    poisoned: bool = False
    foreign: bool = False


def dumps(events: object) -> bytes:
    return json.dumps(events).encode()


# --- the oracle ---------------------------------------------------------------------------------------------------


@dataclass
class Evidence:
    """The tables after the torture (each row a dict), and what the processes wrote down."""

    runs: list[dict[str, Any]]
    log: list[dict[str, Any]]
    commands: list[dict[str, Any]]
    slots: list[dict[str, Any]]
    children: dict[str, list[dict[str, Any]]]
    notes: list[dict[str, Any]] = field(default_factory=list)

    def log_of(self) -> dict[UUID, list[dict[str, Any]]]:
        by_run: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
        for row in sorted(self.log, key=lambda row: row["last_seq"]):
            by_run[row["run_id"]].append(row)
        return by_run

    def events_of(self) -> dict[UUID, list[dict[str, Any]]]:
        return {r: [e for row in rows for e in json.loads(row["events"])] for r, rows in self.log_of().items()}


def log_is_gap_free(evidence: Evidence) -> Iterable[str]:
    for run_id, rows in evidence.log_of().items():
        seq = 0
        for row in rows:
            if row["first_seq"] != seq + 1:
                yield f"{run_id}: {row['first_seq']} follows {seq}"
            if len(json.loads(row["events"])) != row["last_seq"] - row["first_seq"] + 1:
                yield f"{run_id}: the row of {row['last_seq']} holds another number of events than it says"
            seq = row["last_seq"]


def runs_agree_with_their_log(evidence: Evidence) -> Iterable[str]:
    logs = evidence.log_of()
    for run in evidence.runs:
        rows = logs.get(run["id"], [])
        head = b""
        for row in rows:
            head = hashlib.sha256(head + row["events"]).digest()
        if not rows or run["seq"] != rows[-1]["last_seq"]:
            yield f"{run['id']}: seq {run['seq']} is not the log's last"
        if run["head"] != head:
            yield f"{run['id']}: the chain is broken"
        if run["log_bytes"] != sum(len(row["events"]) for row in rows):
            yield f"{run['id']}: log_bytes is not the log's size"
    for run_id in logs.keys() - {run["id"] for run in evidence.runs}:
        yield f"{run_id}: a log without a run"


def versions_are_monotone(evidence: Evidence) -> Iterable[str]:
    last = {run["id"]: run["version"] for run in evidence.runs}
    for run_id, rows in evidence.log_of().items():
        version = 0
        for row in rows:
            chunks = all(event["e"] == "chunk" for event in json.loads(row["events"]))
            if row["version"] != version + (not chunks):
                yield f"{run_id}: version {row['version']} after {version}"
            version = row["version"]
        if version != last.get(run_id):
            yield f"{run_id}: the run's version is not that of its last decision"


def acknowledged_commands_happened_once(evidence: Evidence) -> Iterable[str]:
    applied = Counter(
        (str(run_id), event["id"])
        for run_id, events in evidence.events_of().items()
        for event in events
        if event["e"] == "cmd"
    )
    for key, count in applied.items():
        if count > 1:
            yield f"{key} was applied {count} times"
    for note in evidence.notes:
        if "ack" in note and not applied[note["ack"], note["id"]]:
            yield f"{note['ack']}, {note['id']}: acknowledged but missing"
    stored = {(str(row["run_id"]), row["command_id"]) for row in evidence.commands}
    for key in stored ^ set(applied):
        yield f"{key}: stored and applied do not agree"


def attempts_are_performed_by_the_holder_once(evidence: Evidence) -> Iterable[str]:
    holders = {(n["saw"], n["fence"]): n["worker"] for n in evidence.notes if n.get("worker") and "saw" in n}
    performed: dict[tuple[str, int], int] = {}
    for note in evidence.notes:
        if "perform" not in note:
            continue
        key = note["perform"], note["attempt"]
        if key in performed:
            yield f"{key} was performed by {performed[key]} and {note['worker']}"
        performed[key] = note["worker"]
        holder = holders.get((note["perform"], note["fence"]), note["worker"])
        if holder != note["worker"]:
            yield f"{key}: {note['worker']} performed what {holder} held"


def fences_rise(evidence: Evidence) -> Iterable[str]:
    """One holder per fence, and never a smaller fence at a later version."""
    holders: dict[tuple[str, int], int] = {}
    seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for note in evidence.notes:
        if "saw" not in note:
            continue
        seen[note["saw"]].append((note["version"], note["fence"]))
        if note["worker"] and holders.setdefault((note["saw"], note["fence"]), note["worker"]) != note["worker"]:
            yield f"{note['saw']}: two holders under fence {note['fence']}"
    for run in evidence.runs:
        sightings = seen[str(run["id"])]
        if any(fence > run["fence"] for _, fence in sightings):
            yield f"{run['id']}: in the end the fence is {run['fence']}, it was higher"
        sightings.append((run["version"], run["fence"]))
    for run_id, sightings in seen.items():
        highest: dict[int, int] = {}
        lowest: dict[int, int] = {}
        for version, fence in sightings:
            highest[version] = max(fence, highest.get(version, 0))
            lowest[version] = min(fence, lowest.get(version, fence))
        before = 0
        for version in sorted(highest):
            if lowest[version] < before:
                yield f"{run_id}: fence {lowest[version]} at version {version} after {before}"
            before = highest[version]


def attempts_are_well_formed(evidence: Evidence) -> Iterable[str]:
    for run_id, events in evidence.events_of().items():
        attempt, is_open, chunks = 0, False, 0
        for event in events:
            match event["e"]:
                case "began":
                    if is_open or event["a"] != attempt + 1:
                        yield f"{run_id}: attempt {event['a']} began after {attempt} (open: {is_open})"
                    attempt, is_open, chunks = event["a"], True, 0
                case "chunk":
                    if not is_open or event["a"] != attempt or event["n"] != chunks:
                        yield f"{run_id}: chunk {event['n']} of {event['a']} in {attempt}.{chunks} (open: {is_open})"
                    chunks += 1
                case "done" | "lost":
                    if not is_open or event["a"] != attempt:
                        yield f"{run_id}: {event['e']} {event['a']} in {attempt} (open: {is_open})"
                    is_open = False
                case "end":
                    is_open = False


def slots_are_held_by_their_runs(evidence: Evidence) -> Iterable[str]:
    held = {(row["tenant"], row["slot"]): row["run_id"] for row in evidence.slots}
    by_id = {run["id"]: run for run in evidence.runs}
    for place, run_id in held.items():
        run = by_id.get(run_id)
        if run is None or run["status"] in ("finished", "failed", "stopped"):
            yield f"slot {place[1]} is held by {run_id}, which is over"
    for run in evidence.runs:
        if (
            run["status"] in ("running", "waiting")
            and run["slot"]
            and held.get((run["tenant"], run["slot"])) != run["id"]
        ):
            yield f"{run['id']} goes on without its slot {run['slot']}"


def tenants_keep_to_themselves(evidence: Evidence) -> Iterable[str]:
    owner = {run["id"]: run["tenant"] for run in evidence.runs}
    tables = {"log": evidence.log, "commands": evidence.commands, "slots": evidence.slots, **evidence.children}
    for table, rows in tables.items():
        for row in rows:
            if owner.get(row["run_id"]) != row["tenant"]:
                yield f"{table}: a row of {row['run_id']} belongs to {row['tenant']}"
    for note in evidence.notes:
        if "foreign" in note:
            yield f"{note['foreign']}: a stranger's command won"


def children_came_with_their_commit(evidence: Evidence) -> Iterable[str]:
    asked = {(r, e["id"]) for r, events in evidence.events_of().items() for e in events if e["e"] == "asked"}
    for table, column in (("pendings", "id"), ("votes", "pending_id")):
        stored = {(row["run_id"], row[column]) for row in evidence.children[table]}
        for key in stored ^ asked:
            yield f"{table}: {key} and the log do not agree"
    commits = {(row["run_id"], row["last_seq"]) for row in evidence.log}
    for row in evidence.children["outbox"]:
        if (row["run_id"], row["last_seq"]) not in commits:
            yield f"outbox: no commit of {row['run_id']} ends at {row['last_seq']}"
    if len(evidence.children["outbox"]) != len(asked):
        yield "outbox: not one message for each pending"
    started = {run["id"] for run in evidence.runs}
    for row in evidence.children["turns"]:
        started.discard(row["run_id"])
        if row["first_seq"] != 1:
            yield f"turns: {row['run_id']} begins at {row['first_seq']}"
    for run_id in started:
        yield f"turns: {run_id} has none"
    for row in evidence.children["messages"]:
        if row["seq"] != 2:
            yield f"messages: that of {row['run_id']} stands at {row['seq']}"


def nothing_unexpected_was_raised(evidence: Evidence) -> Iterable[str]:
    for note in evidence.notes:
        if note.get("state") == "40P01":
            yield f"a deadlock: {note['text']}"
        elif note.get("fault") in ("other", "data"):
            yield f"{note['state']}: {note['text']}"
        elif "lost_alone" in note:
            yield f"{note['lost_alone']}: a decision under the lock lost"
        elif "crashed" in note:
            yield note["crashed"]


CHECKS: tuple[Callable[[Evidence], Iterable[str]], ...] = (
    log_is_gap_free,
    runs_agree_with_their_log,
    versions_are_monotone,
    acknowledged_commands_happened_once,
    attempts_are_performed_by_the_holder_once,
    fences_rise,
    attempts_are_well_formed,
    slots_are_held_by_their_runs,
    tenants_keep_to_themselves,
    children_came_with_their_commit,
    nothing_unexpected_was_raised,
)


# --- the torturer -------------------------------------------------------------------------------------------------


@dataclass
class Report:
    violations: list[str]
    numbers: dict[str, int]


async def torture(
    dsn: str,
    seconds: float,
    processes: int,
    seed: int,
    skew: Callable[[float], None] | None = None,
    *,
    pieces: bool = False,
    wanted: Collection[str] = (),
) -> Report:
    """Torture a fresh database for so long, and on until each of the `wanted` numbers is more than 0; `dsn` must allow
    pg_terminate_backend. `skew` makes its clock wrong by so many seconds. `pieces`: it is asked as Citus is. Where
    Citus keeps it, its nodes are tortured, too."""
    await migrations.upgrade(dsn)
    with tempfile.TemporaryDirectory() as directory:
        histories = [Path(directory) / f"{n}.jsonl" for n in range(processes)]
        children = [_child(dsn, history, seed + n, pieces) for n, history in enumerate(histories)]
        try:
            noted = [f'"{name}":' for name in wanted]

            def has_all() -> bool:
                text = "".join(history.read_text() for history in histories)
                return all(each in text for each in noted)

            cuts, stalls, skews = await _torment(
                dsn, children, seconds, random.Random(seed), skew, has_all if wanted else None
            )
            (Path(directory) / _OVER).touch()
            notes: list[dict[str, Any]] = []
            for n, child in enumerate(children):
                if await asyncio.to_thread(child.wait, 30):
                    notes.append({"crashed": f"process {n}: {_errors_of(histories[n]).read_text()[-2000:]}"})
        finally:
            for child in children:
                child.kill()
                child.wait(30)
        notes += _read_histories(Path(directory))
    evidence = await gather(dsn, notes)
    counts = Counter(key for note in notes for key in note if key in ("ack", "perform", "unknown", "died", "poisoned"))
    faults = Counter(f"fault {note['fault']} {note['state']}" for note in notes if "fault" in note)
    numbers = {
        "runs": len(evidence.runs),
        "log rows": len(evidence.log),
        "events": sum(run["seq"] for run in evidence.runs),
        "commands": len(evidence.commands),
        "backends terminated": cuts,
        "stalls": stalls,
        "skews": skews,
        **counts,
        **faults,
    }
    return Report([f"{check.__name__}: {v}" for check in CHECKS for v in check(evidence)], numbers)


def _read_histories(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for history in directory.glob("*.jsonl") for line in history.read_text().splitlines()]


def _child(dsn: str, history: Path, seed: int, pieces: bool) -> forking.Process:
    arguments = ["--dsn", dsn, "--history", str(history), "--seed", str(seed)]
    if pieces:
        arguments.append("--pieces")
    with open(os.devnull, "r+b") as nothing, _errors_of(history).open("wb") as errors:
        files = (nothing.fileno(), nothing.fileno(), errors.fileno())
        return forking.fork("tests.store.torture", arguments, files)


def _errors_of(history: Path) -> Path:
    return history.with_suffix(".err")


async def _torment(
    dsn: str,
    children: list[forking.Process],
    seconds: float,
    chance: random.Random,
    skew: Callable[[float], None] | None,
    has_all: Callable[[], bool] | None,
) -> tuple[int, int, int]:
    """Terminate backends in mid-commit, stop processes for longer than their lease, and set the clock by more than a
    lease, until the time is over. With `has_all` also until each was done, and it says that the processes have noted
    enough."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "torturer"})
    cut = """
    SELECT count(pg_terminate_backend(pid)) FROM (
      SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hai-flow'
        AND (state = 'active' AND query LIKE '%WITH entries AS MATERIALIZED%'
          OR state = 'idle in transaction' AND random() < 0.1)) x
    """
    cuts, stalls, skews = 0, 0, 0
    try:
        started = 0
        while started < len(children):
            started = await connection.fetchval("SELECT count(*) FROM workers")
            await asyncio.sleep(0.02)
        until = time.time() + seconds
        patience = until + PATIENCE

        def is_over() -> bool:
            done = has_all is None or (cuts and stalls and (skew is None or skews) and has_all())
            return time.time() > (until if done else patience)

        next_stall = time.time() + 0.5
        next_skew = time.time() + SKEW_EVERY_SECONDS
        while time.time() < until or not is_over():
            await asyncio.sleep(chance.random() * 0.1)
            cuts += await connection.fetchval(cut)
            if citus.CITUS is not None and chance.random() < NODE_CUT:
                cuts += await connection.fetchval(CUT_ON_NODES)
            if time.time() > next_stall and (until - time.time() > STALL_SECONDS or time.time() > until):
                victim = chance.choice(children)
                victim.send_signal(signal.SIGSTOP)
                asyncio.get_running_loop().call_later(STALL_SECONDS, victim.send_signal, signal.SIGCONT)
                next_stall = time.time() + STALL_SECONDS * 0.7
                stalls += 1
            if skew is not None and time.time() > next_skew:
                skew(chance.uniform(-SKEW_SECONDS, SKEW_SECONDS))
                next_skew = time.time() + SKEW_EVERY_SECONDS
                skews += 1
    finally:
        if skew is not None:
            skew(0)
        for child in children:
            child.send_signal(signal.SIGCONT)
        await connection.close()
    return cuts, stalls, skews


async def alone(connection: asyncpg.Connection) -> bool:
    """Whether no other connection of ours to this database is left, and nothing of it goes on at a node."""
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hai-flow'"
    )
    if await connection.fetchval(others):
        return False
    return citus.CITUS is None or await connection.fetchval(LEFT_ON_NODES) == 0


async def gather(dsn: str, notes: list[dict[str, Any]]) -> Evidence:
    """Read all tables as of one moment, after somebody has asked for all slots: that frees those of ended runs.

    A commit whose client hung up goes on in the server, and may outlive the process that sent it: wait for the last."""
    async with connecting(dsn) as connection:
        await until(lambda: alone(connection))
        held = await connection.fetch("SELECT tenant, slot FROM slots")
        await slots.slot_holders(connection, [(row[0], row[1]) for row in held])

        async def rows(table: str) -> list[dict[str, Any]]:
            return [dict(row) for row in await connection.fetch(f"SELECT * FROM {table}")]

        async with connection.transaction(isolation="repeatable_read", readonly=True):
            children = {table: await rows(table) for table in ("pendings", "votes", "outbox", "turns", "messages")}
            return Evidence(
                await rows("runs"), await rows("log"), await rows("commands"), await rows("slots"), children, notes
            )


async def _suffer(dsn: str, history: Path, seed: int, pieces: bool) -> None:
    if pieces:
        citus.pretend(pytest.MonkeyPatch())
    db = await Database.open(dsn, engine_connections=2, api_connections=1)
    try:
        await Process(db, history, seed).run(history.with_name(_OVER).exists)
    finally:
        await db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True, help="an empty database")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--pieces", action="store_true", help="ask it as Citus is asked")
    parser.add_argument("--history", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.history is not None:
        asyncio.run(_suffer(given.dsn, given.history, given.seed, given.pieces))
        return
    print(f"seed {given.seed}")
    report = asyncio.run(torture(given.dsn, given.seconds, given.processes, given.seed, pieces=given.pieces))
    for name, number in sorted(report.numbers.items()):
        print(f"{number:>9,} {name}")
    for violation in report.violations[:50]:
        print("VIOLATION", violation)
    raise SystemExit(bool(report.violations))


if __name__ == "__main__":
    main()
