"""Costs that could grow: beside a million waiting runs, with 100,000 timers, with workers, with a run's length.

    python -m bench.scale [--runs N] [--seconds N]        make bench-scale

Really started runs are copied until there are so many, with the other rows of a database of that scale: subscriptions,
signals, queues for concurrency keys, firings. A worker idles beside them in a process of its own; the processor time is
that of the process and of its PostgreSQL backends. Every statement that it sent, and every one that is sent now and
then, is explained there. The bench fails where one reads a big table through, or more of its rows than a page has. The
other measurements have modules of their own: `beside`, `timers`, `workers`, `length`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import structlog

from bench import beside, length, timers, workers
from bench.beside import ASKED
from bench.engine import running
from bench.memory import STARTED, copy_runs
from bench.server import durable_server
from bench.workflows import QUESTION
from hai_flow.engine.pendings.selectors import principal_selectors
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.messaging import concurrency_slots, signals
from hai_flow.store.people import inbox, pendings
from hai_flow.store.people.inbox import Filters
from hai_flow.store.runs import leases, logs, run_lists, thread_lists, threads

LATEST: Final = Path(__file__).parent / "latest-scale.json"
RUNS: Final = 1_000_000
FEW: Final = 1_000
SECONDS: Final = 65.0  # longer than the longest pause of a sweep but one
SETTLE_SECONDS: Final = 5.0
SAMPLES: Final = 100
FOLLOWED: Final = 200
BIG_TABLE_ROWS: Final = 10_000
ROWS_READ_MAX: Final = 5_000
KEYS: Final = {
    "idle_core_share_1m": "share of a core that one idle worker and its PostgreSQL backends use",
    "slowest_recurring_ms": "the slowest of the statements that are sent again and again",
    "slowest_list_ms": "the slowest page of a list that a request reads",
    "claim_1m_vs_1k": "a claim of fifty runs, to the same beside a thousand runs",
    "resume_1m_vs_1k": "from an answer to the next step's event, of a run not seen before, to that beside a thousand",
    "inbox_1m_vs_1k": "a page of the inbox of who is asked by all of them, to the same beside a thousand",
    "timers_100k_drain_steps_ratio": "steps/s of new runs while 100,000 timers go off at once, to those before",
    "two_workers_vs_one": "steps/s of two workers of one database, to those of one",
    "two_writers_vs_one": "the same of two that only write: what this machine allows",
    "step_cost_run_10000_vs_10": "a step of a run of 10,000, to a step of a run of ten",
}
_CLOCK_TICK: Final = os.sysconf("SC_CLK_TCK")
_ROOT: Final = Path(__file__).resolve().parents[1]

# The other rows of a database with a million runs. Every status is there: the seldom ones are of the oldest runs, where
# a list that begins with the newest finds them last.
_BESIDES: Final = """
UPDATE pendings p SET deadline = date_trunc('milliseconds', now()) + s.n * interval '1 second'
  FROM (SELECT run_id, id, row_number() OVER () AS n FROM pendings) s WHERE s.run_id = p.run_id AND s.id = p.id;
INSERT INTO inbox (run_id, pending_id, selector, tenant, due)
  SELECT p.run_id, p.id, r.started_by, p.tenant, p.deadline FROM pendings p JOIN runs r ON r.id = p.run_id
  WHERE p.status = 'open' ON CONFLICT (run_id, pending_id, selector) DO UPDATE SET due = excluded.due;
UPDATE runs SET status = 'queued', wake_at = NULL WHERE id IN (SELECT id FROM runs ORDER BY id LIMIT {tenth});
INSERT INTO slot_waiters (tenant, key, run_id, seats)
  SELECT tenant, 'bench:' || row_number() OVER () % 1000, id, 1 FROM runs WHERE status = 'queued';
INSERT INTO slots (tenant, slot, run_id, promised_until)
  SELECT DISTINCT ON (tenant, key) tenant, key || '#1', run_id, NULL::timestamptz FROM slot_waiters;
UPDATE runs r SET status = s.status, ended_at = CASE WHEN s.status IN ('failed', 'stopped') THEN now() END,
    created_at = created_at - interval '1 day'
  FROM (SELECT id, (ARRAY['running', 'paused', 'stopping', 'failed', 'stopped', 'needs_attention'])[
    1 + row_number() OVER () % 6] AS status FROM runs WHERE status = 'waiting' LIMIT 60) s WHERE s.id = r.id;
INSERT INTO subscriptions (run_id, path, type, tenant, opened_seq)
  SELECT id, 'hear', 'note', tenant, seq FROM runs WHERE status = 'waiting';
INSERT INTO signals (tenant, id, type, data, due_at, sent_at)
  SELECT '{tenant}', n::text, 'note', 'null', NULL, now() - interval '2 days' FROM generate_series(1, {tenth}) n;
INSERT INTO fires (schedule_id, fire_at, tenant, outcome)
  SELECT ('00000000-0000-0000-0000-' || lpad((n % 1000)::text, 12, '0'))::uuid, now() - n * interval '1 minute',
    '{tenant}', 'started' FROM generate_series(1, {tenth}) n
"""


@dataclass(slots=True)
class Seen:
    """A statement that was sent: `engine` says through which pool, `arguments` are those of the slowest time."""

    engine: bool
    arguments: tuple[Any, ...]
    seconds: float
    times: int = 1


@dataclass(slots=True)
class Recorder:
    """Every statement of a process, by its text."""

    seen: dict[str, Seen] = field(default_factory=dict)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Connections that are made inside tell of their statements."""
        connect = asyncpg.connect

        async def watched(*arguments: Any, **options: Any) -> Any:
            connection = await connect(*arguments, **options)
            engine = "enable_seqscan" in (options.get("server_settings") or {})
            connection.add_query_logger(functools.partial(self._sent, engine))
            return connection

        asyncpg.connect = watched
        try:
            yield
        finally:
            asyncpg.connect = connect

    def _sent(self, engine: bool, query: Any) -> None:
        known = self.seen.get(query.query)
        if known is None:
            self.seen[query.query] = Seen(engine, query.args, query.elapsed)
            return
        known.times += 1
        if query.elapsed > known.seconds:
            known.arguments, known.seconds = query.args, query.elapsed


# --- the database -----------------------------------------------------------------------------------------------------


async def build(dsn: str, count: int) -> None:
    """Let there be `count` waiting runs in the migrated database, and the other rows of a database of that size."""
    async with running(dsn, QUESTION) as engine:
        for _ in range(STARTED):
            await engine.start_run()
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET synchronous_commit = off; SET maintenance_work_mem = '256MB'")
        async with _without_indexes(connection):
            await copy_runs(dsn, count)
            for statement in _BESIDES.format(tenth=count // 10, tenant=LOCAL_TENANT).split(";\n"):
                await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _without_indexes(connection: asyncpg.Connection[Any]) -> AsyncIterator[None]:
    """Indexes that no constraint needs are built at the end: that takes a third of the time."""
    found = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes i WHERE schemaname = 'public' "
        "AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname)"
    )
    for name, _ in found:
        await connection.execute(f"DROP INDEX {name}")
    yield
    for _, definition in found:
        await connection.execute(definition)


# --- in the worker's process ------------------------------------------------------------------------------------------


async def idle(dsn: str, seconds: float) -> dict[str, Any]:
    """Be a worker without work for `seconds`. Returns its processor time as a share of that, and the plans of its
    statements."""
    recorder = Recorder()
    with recorder.watching():
        runtime = Runtime(dsn, Settings(), performs=True)
        async with runtime.lifespan():
            await asyncio.sleep(min(SETTLE_SECONDS, seconds))
            before, began = await _processor_seconds(dsn), time.monotonic()
            await asyncio.sleep(seconds)
            after, took = await _processor_seconds(dsn), time.monotonic() - began
            # The time of a backend that has ended since is gone: a difference of two sums would shrink by it.
            share = sum(max(0.0, used - before.get(pid, 0.0)) for pid, used in after.items()) / took
            recurring = await _explained(runtime, recorder, [_now_and_then])
            lists = await _explained(runtime, recorder, [_lists])
    return {"share": share, "recurring": recurring, "lists": lists}


async def _processor_seconds(dsn: str) -> dict[int, float]:
    """The processor seconds of this process and of the backends of its connections so far, by pid."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hai-flow%'")
    finally:
        await connection.close()
    return {os.getpid(): time.process_time(), **{row[0]: _backend_seconds(row[0]) for row in rows}}


def _backend_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICK


async def _now_and_then(runtime: Runtime) -> None:
    """Send the statements that are sent too seldom to be recorded, or only while there are followers."""
    pool, engine = runtime.database.api, runtime.database.engine
    await pool.execute("UPDATE sweeps SET due_at = now()")
    await runtime._sweeper.tidy()
    await runtime.triggers._tidy()
    await runtime.slots.sweep()
    ids = [row[0] for row in await pool.fetch("SELECT id FROM runs ORDER BY id LIMIT $1", FOLLOWED)]
    await logs.poll_versions(pool, ids)
    await threads.newest_positions(pool, [(LOCAL_TENANT, str(id)) for id in ids])
    assert runtime.worker is not None, "the runtime performs"
    assert runtime.worker.id is not None, "it has just idled"
    await leases.heartbeat(engine, runtime.worker.id, timedelta(seconds=30))
    key = await pool.fetchrow("SELECT tenant, key FROM slot_waiters ORDER BY tenant, key LIMIT 1")
    if key is not None:
        await concurrency_slots.seat_waiters(pool, key[0], key[1])


async def _lists(runtime: Runtime) -> None:
    """First pages, and the one behind the newest run."""
    pool = runtime.database.api
    statuses = [*signals.LIVING, "finished", "failed", "stopped"]
    for wanted in (*([status] for status in statuses), ["failed", "stopped"], ["running", "waiting"], statuses):
        newest = await run_lists.list_runs(pool, LOCAL_TENANT, limit=100, statuses=wanted)
        if newest:
            before = (newest[-1].created_at, newest[-1].id)
            await run_lists.list_runs(pool, LOCAL_TENANT, limit=100, statuses=wanted, before=before)
    await run_lists.list_runs(pool, LOCAL_TENANT, limit=100)
    await pendings.open_pendings(pool, LOCAL_TENANT, limit=100)
    await thread_lists.list_threads(pool, LOCAL_TENANT, limit=100)
    await inbox.page_of_inbox(pool, LOCAL_TENANT, principal_selectors(ASKED), Filters(), limit=100)


async def _explained(
    runtime: Runtime, recorder: Recorder, work: list[Callable[[Runtime], Awaitable[None]]]
) -> list[dict[str, Any]]:
    """The plans of the recorded statements, and of those that `work` sends, slowest first. The recorder is emptied."""
    for each in work:
        await each(runtime)
    seen, recorder.seen = recorder.seen, {}
    found: list[dict[str, Any]] = []
    async with runtime.database.api.acquire() as connection:
        query = "SELECT relname, reltuples FROM pg_class WHERE relkind = 'r' AND reltuples > $1"
        big = {row[0] for row in await connection.fetch(query, BIG_TABLE_ROWS)}
    for text, each in seen.items():
        if text.split(maxsplit=1)[0] in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE"):
            pool = runtime.database.engine if each.engine else runtime.database.api
            plan = await _plan(pool, text, each.arguments)
            found.append(
                {
                    "statement": " ".join(text.split()),
                    "times": each.times,
                    "ms": plan["Execution Time"],
                    "faults": faults(plan["Plan"], big),
                }
            )
    recorder.seen = {}
    return sorted(found, key=lambda each: -each["ms"])


async def _plan(pool: Any, text: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The plan of a statement, with its times: the quickest of three executions, each rolled back."""
    plans: list[dict[str, Any]] = []
    for _ in range(3):
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                answer = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *arguments)
            finally:
                await transaction.rollback()
        plans.append(json.loads(answer)[0])
    return min(plans, key=lambda plan: plan["Execution Time"])


def faults(plan: dict[str, Any], big: set[str]) -> list[str]:
    """The nodes of a plan whose time grows with the number of rows of the `big` tables, a sentence each."""
    found = [fault for below in plan.get("Plans", ()) for fault in faults(below, big)]
    table = plan.get("Relation Name")
    if table not in big or plan["Node Type"] == "ModifyTable":
        return found
    if plan["Node Type"] == "Seq Scan" and plan["Actual Loops"]:
        found.append(f"reads all of {table}")
        return found
    read = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    if read > ROWS_READ_MAX:
        found.append(f"reads {read:,.0f} rows of {table}")
    return found


# --- the report -------------------------------------------------------------------------------------------------------


async def measure(
    dsn: str, few_dsn: str, *, count: int = RUNS, few: int = FEW, seconds: float = SECONDS, samples: int = SAMPLES
) -> dict[str, Any]:
    """Build both migrated databases, idle beside many, work beside both. Returns the keys, and the numbers that they
    are computed from."""
    await build(few_dsn, few)
    began = time.perf_counter()
    await build(dsn, count)
    built = time.perf_counter() - began
    idled = _in_process(dsn, seconds)
    found = [*idled["recurring"], *idled["lists"]]
    return {
        "idle_core_share_1m": idled["share"],
        "slowest_recurring_ms": max(each["ms"] for each in idled["recurring"]),
        "slowest_list_ms": max(each["ms"] for each in idled["lists"]),
        **await beside.measure(dsn, few_dsn, samples),
        "runs": count,
        "built_in_seconds": built,
        "faults": [f"{fault}: {each['statement']}" for each in found for fault in each["faults"]],
        "recurring": idled["recurring"],
        "lists": idled["lists"],
    }


def _in_process(dsn: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.scale", "--idle", dsn, "--seconds", str(seconds)]
    child = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=seconds + 300)
    if child.returncode:
        raise RuntimeError(f"the worker ended with {child.returncode}:\n{child.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return answer


def table(report: dict[str, Any]) -> str:
    """The report as people read it."""
    lines = [f"{key:<32}{report[key]:>10.4f}   {meaning}" for key, meaning in KEYS.items()]
    for each in (*report["recurring"][:8], *report["lists"][:4]):
        lines.append(f"  {each['ms']:8.2f} ms  {each['times']:>5} times  {each['statement'][:90]}")
    lines += [f"FAULT {fault[:200]}" for fault in report["faults"]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the worker idles")
    parser.add_argument("--idle", metavar="DSN", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if arguments.idle:
        print(json.dumps(asyncio.run(idle(arguments.idle, arguments.seconds)), default=str))
        return
    with durable_server() as database:
        dsn, few_dsn = database("scale"), database("few")
        report = {
            **asyncio.run(measure(dsn, few_dsn, count=arguments.runs, seconds=arguments.seconds)),
            **asyncio.run(timers.measure(database("timers"), arguments.runs // 10)),
            **asyncio.run(workers.measure(database("workers"), database("writers"), rounds=5)),
            **asyncio.run(length.measure(database("length"), rounds=5)),
        }
    LATEST.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))
    sys.exit(1 if report["faults"] else 0)


if __name__ == "__main__":
    main()
