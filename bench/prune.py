"""The effect on runs of removing old ones at the same time: the latency of whole runs, with and without, in turns.

    python -m bench.prune [--rows N]

There are finished runs with so many rows of the log, in the order in which they came about. Rounds of quick runs are
started one by one; in every second round another process prunes meanwhile. The ratio is that of the medians of all
runs; that of the slowest tenth stands beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import asyncpg
import structlog

from bench.engine import Engine, running
from bench.server import durable_server
from hai_flow.runtime.retention.policy import Retention
from hai_flow.runtime.retention.prune import Pruning
from hai_flow.runtime.runtime import LOCAL_TENANT

LATEST: Final = Path(__file__).parent / "latest-prune.json"
ROWS: Final = 500_000
ROWS_EACH: Final = 1_000  # of the log, for each of the old runs
TOGETHER: Final = 256  # runs that went on at the same time: their rows stand mixed, as they were committed
ROUND_SECONDS: Final = 4.0
PRUNING: Final = 3  # so many times as long are the rounds that prune
KEYS: Final = {
    "prune_latency_ratio": "a run while others are removed, to one while nothing is (medians of the same rounds)",
    "prune_slowest_tenth_ratio": "the same of the ninth decile",
    "pruned_rows_per_second": "rows that are removed in a second of the rounds that prune",
}
SOURCE: Final = b"hai: flow/v1\nname: quick\nversion: 1\nsteps:\n  - {id: a, say: Hello}\n  - {id: b, say: World}\n"
_ROOT: Final = Path(__file__).resolve().parents[1]
POLICY: Final = Retention(hai="retention/v1", remove="30d", pack="never")

_RUNS: Final = """
INSERT INTO runs SELECT (made.run).* FROM (
  SELECT jsonb_populate_record(r, jsonb_build_object('id', fresh.id, 'thread_id', fresh.id,
    'ended_at', now() - interval '100 days')) AS run
  FROM runs r, (SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid AS id
    FROM generate_series(1, $2::int) n OFFSET 0) fresh
  WHERE r.id = $1 OFFSET 0) made
"""
_LOG: Final = """
INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
SELECT r.id, n, n, r.tenant, 1, r.ended_at, convert_to('[{"type":"message_chunk","at":1772452800000,"turn":1,'
  || '"message_id":"msg_' || md5(r.id::text) || '","n":' || n || ',"content":"a few words "}]', 'UTF8')
FROM (SELECT * FROM runs WHERE ended_at < now() - interval '30 days' ORDER BY id OFFSET $2 LIMIT $3) r,
  generate_series(1, $1::int) n ORDER BY n, r.id
"""


async def measure(dsn: str, *, rows: int = ROWS, seconds: float = ROUND_SECONDS) -> dict[str, Any]:
    """Prune all of it in turns with nothing; the keys, and how much there was."""
    async with running(dsn, SOURCE) as engine:
        connection = await asyncpg.connect(dsn)
        try:
            found: dict[bool, list[float]] = {False: [], True: []}
            pruning_seconds = 0.0
            await engine.finish_runs(1)
            await _build(connection, await connection.fetchval("SELECT id FROM runs"), rows)
            child = _pruner(dsn)
            try:
                while child.poll() is None:
                    for pruning in (False, True):
                        child.send_signal(signal.SIGCONT if pruning else signal.SIGSTOP)
                        began, most = time.perf_counter(), seconds * (PRUNING if pruning else 1)
                        found[pruning] += [await _timed(engine), await _timed(engine)]
                        while time.perf_counter() - began < most and (not pruning or child.poll() is None):
                            found[pruning].append(await _timed(engine))
                        pruning_seconds += (time.perf_counter() - began) if pruning else 0.0
            finally:
                child.kill()
                child.communicate()
            if child.returncode:
                raise RuntimeError(f"the pruning process ended with {child.returncode}")
            removed = await connection.fetchval("SELECT count(*) FROM retired_runs WHERE cleared_at IS NOT NULL")
        finally:
            await connection.close()
    slow = {each: statistics.quantiles(times, n=10)[-1] for each, times in found.items()}
    return {
        "prune_latency_ratio": statistics.median(found[True]) / statistics.median(found[False]),
        "prune_slowest_tenth_ratio": slow[True] / slow[False],
        "pruned_rows_per_second": removed * ROWS_EACH / pruning_seconds,
        "rows": removed * ROWS_EACH,
        "runs": {"beside": len(found[True]), "alone": len(found[False])},
    }


async def _build(connection: Any, template: Any, rows: int) -> None:
    await connection.execute("SET synchronous_commit = off")
    runs = max(1, rows // ROWS_EACH)
    await connection.execute(_RUNS, template, runs)
    for first in range(0, runs, TOGETHER):
        await connection.execute(_LOG, ROWS_EACH, first, TOGETHER)
    await connection.execute("SET synchronous_commit = on")
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")


async def _timed(engine: Engine) -> float:
    began = time.perf_counter()
    await engine.finish_runs(1)
    return time.perf_counter() - began


def _pruner(dsn: str) -> subprocess.Popen[bytes]:
    """A process that is about to prune, and does nothing else."""
    child = subprocess.Popen([sys.executable, "-m", "bench.prune", "--prune", dsn], cwd=_ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n", "the pruning process did not start"
    return child


async def prune(dsn: str) -> None:
    """Print "ready", then remove all old runs."""
    connection = await asyncpg.connect(dsn)
    print("ready", flush=True)
    pruning = Pruning(POLICY, {LOCAL_TENANT: "default"}, None, "bench")
    done = [each async for each in pruning.run(connection)][-1]
    assert not done.kept, done
    await connection.close()


def table(report: dict[str, Any]) -> str:
    """The report as people read it."""
    lines = [f"{key:<28}{report[key]:>10.3f}   {meaning}" for key, meaning in KEYS.items()]
    return "\n".join([*lines, f"{report['rows']:,} rows of the log were removed."])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.prune", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="of the log; 10000000 takes half an hour")
    parser.add_argument("--prune", metavar="DSN", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if arguments.prune:
        asyncio.run(prune(arguments.prune))
        return
    with durable_server() as database:
        report = asyncio.run(measure(database("prune"), rows=arguments.rows))
    LATEST.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
