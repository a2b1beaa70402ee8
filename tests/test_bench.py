"""The measurements run and report what they promise. What they measure is never judged here: machines differ."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from bench import (
    agents,
    auditing,
    dev_start,
    fanout,
    feeds,
    floor,
    freezes,
    hints,
    idle,
    language,
    length,
    memory,
    neighbours,
    prune,
    receipts,
    resume,
    scale,
    stalls,
    starts,
    streams,
    telemetry,
    throughput,
    timers,
    walls,
    workers,
    world,
)
from bench.__main__ import KEYS, reported, table
from bench.against import ROOT, checked_out, comparison, numbers
from bench.server import durable_server
from tests.support.postgres import Server, connecting
from tests.support.redis_server import RedisServer, needs_redis

TINY = throughput.Size(rounds=1, runs=8, commits=1024, transactions=16, concurrency=4)
TINY_LANGUAGE = language.Size(rounds=1, runs=6, documents=1, few=5, many=20)
TINY_AUDIENCE = fanout.Size(rounds=1, followers=120, events=4, bursts=2, followers_before=10)


@pytest.mark.costly
@needs_redis
async def test_servers_ask_less_of_the_database_where_hints_bring_events(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, RedisServer() as redis:
        measured = await hints.measure(dsn, redis.url, servers=2, notes=3)
    statements = measured["statements_per_server_and_commit"]
    assert set(statements) == {"notify", "redis"}
    assert measured["fanout_reads_redis_vs_notify"] == statements["redis"] / statements["notify"]


@pytest.mark.costly
@pytest.mark.timeout(300)  # all of the bench, and a busy machine
async def test_a_report_has_every_key(postgres_server: Server) -> None:
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured = {"throughput": await throughput.measure(engine, reference, TINY)}
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured["resume"] = await resume.measure(engine, reference, 2)
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured["starts"] = await starts.measure(engine, reference, 2)
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured["floor"] = await floor.measure(engine, reference, 2)
    with postgres_server.database() as dsn:
        measured["agents"] = await agents.measure(dsn, 1)
    measured["dev_start"] = await dev_start.measure(1, before="HEAD")
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured["streams"] = await streams.measure(engine, reference, 0.1)
    with postgres_server.database() as dsn:
        measured["stalls"] = await stalls.measure(dsn, 1)
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured["world"] = await world.measure(engine, reference, 1)
    with postgres_server.database() as dsn:
        measured["walls"] = await walls.measure(dsn, 2)
    with postgres_server.database() as dsn:
        measured["auditing"] = await auditing.measure(dsn, 2)
    with postgres_server.database() as dsn:
        measured["neighbours"] = await neighbours.measure(dsn, 1)
    with postgres_server.database() as dsn:
        measured["feeds"] = await feeds.measure(dsn, 0.5, 0.1)
    with postgres_server.database() as dsn:
        measured["idle"] = await idle.measure(dsn, 0.5)
    with postgres_server.database() as dsn:
        measured["freezes"] = await freezes.measure(dsn, 1, 4, concurrency=2)
    with postgres_server.database() as dsn:
        measured["receipts"] = await receipts.measure(dsn, 3)
    with postgres_server.database() as dsn:
        measured["telemetry"] = await telemetry.measure(dsn, 1, 4, concurrency=2)
    with postgres_server.database() as dsn:
        measured["memory"] = await memory.measure(dsn, few=20, many=40, readings=1)
    measured["validation"] = language.validation(TINY_LANGUAGE)
    with postgres_server.database() as dsn:
        measured["language"] = await language.measure(dsn, TINY_LANGUAGE)
    with postgres_server.database() as dsn:
        measured["fanout"] = await fanout.measure(dsn, TINY_AUDIENCE)
    report = reported(measured, quick=True)
    may_be_zero = {"feed_cost_idle", "idle_statements_per_second"}  # in so short a time
    assert {key: report[key] for key in KEYS if key not in may_be_zero and report[key] <= 0} == {}
    assert report["feed_cost_idle"] >= 0
    assert measured["feeds"]["feed_events_of_consoles"] >= 4 * feeds.CONSOLES
    assert all(key in table(report) for key in KEYS)
    assert re.match(r"[\d,]+ durable steps a second on \d+ cores", table(report)), "ratios alone tell strangers nothing"
    assert measured["throughput"]["log_rows_per_step"] == pytest.approx(1.1)  # ten steps in eleven commits


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_the_bench_at_scale_explains_what_an_idle_worker_sends(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, postgres_server.database() as few:
        report = await scale.measure(dsn, few, count=400, few=150, seconds=0.5, samples=2)
    with postgres_server.database() as dsn:
        report |= await timers.measure(dsn, 40, runs=4)
    with postgres_server.database() as dsn, postgres_server.database() as reference:
        report |= await workers.measure(dsn, reference, rounds=1, runs=20)
    with postgres_server.database() as dsn:
        report |= await length.measure(dsn, 1, long=40)
    assert all(report[key] >= 0 for key in scale.KEYS), "a worker may have used no tick of the clock in so short a time"
    assert all(key in scale.table(report) for key in scale.KEYS)
    assert report["faults"] == [], "no table is big"
    sent = " ".join(each["statement"] for each in report["recurring"])
    for part in (
        "UPDATE runs r SET worker",
        "FROM outbox",
        "FROM signals",
        "schedules",
        "sweeps",
        "slot_waiters",
        "fires",
    ):
        assert part in sent, part


@pytest.mark.costly
async def test_a_plan_that_reads_a_big_table_through_is_a_fault(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)

    async def faults(query: str) -> list[str]:
        answer = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
        return scale.faults(json.loads(answer)[0]["Plan"], {"signals"})

    await connection.execute(
        "INSERT INTO signals (tenant, id, type, data) "
        "SELECT '00000000-0000-0000-0000-000000000001', n::text, 't', '1' FROM generate_series(1, 6000) n"
    )
    assert await faults("SELECT count(*) FROM signals") == ["reads all of signals"]
    await connection.execute("SET enable_seqscan = off")
    (walk,) = await faults("SELECT data FROM signals ORDER BY tenant, id")
    assert walk == "reads 6,000 rows of signals"
    assert await faults("SELECT data FROM signals ORDER BY tenant, id LIMIT 10") == []
    assert await faults("SELECT count(*) FROM runs") == []
    await connection.close()


def test_another_commit_is_measured_in_a_tree_of_its_own_that_goes_away(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for text in ("old", "new"):
        (tmp_path / "file").write_text(text)
        git("add", ".")
        git("commit", "-m", text)
    with checked_out(tmp_path, "HEAD~1") as tree:
        assert (tree / "file").read_text() == "old"
    assert not tree.exists()
    assert (tmp_path / "file").read_text() == "new"
    with pytest.raises(subprocess.CalledProcessError), checked_out(tmp_path, "nothing"):
        pass
    program = (
        "import signal, sys; from pathlib import Path; from bench.against import checked_out, exit_on_sigterm\n"
        "exit_on_sigterm()\n"
        "with checked_out(Path(sys.argv[1]), 'HEAD') as tree:\n"
        "    print(tree, flush=True); signal.pause()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        tree = Path(process.stdout.readline().strip())
        assert (tree / "file").is_file()
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not tree.exists()
    assert [*(tmp_path / ".git" / "worktrees").glob("*")] == []


def test_a_comparison_names_medians_and_ratio_of_common_measures() -> None:
    here = [{"a": each, "quick": True, "details": {"b": {"c": 2 * each}, "new": 1}} for each in (1.0, 30.0, 2.0)]
    there = [{"a": 4.0, "details": {"b": {"c": 4}, "old": 1}}]
    assert numbers(here[0]) == {"a": 1.0, "b.c": 2.0, "new": 1.0}
    _, first, second = comparison([*map(numbers, here)], [*map(numbers, there)], "f" * 40).splitlines()
    assert first.split() == ["a", "2.000", "4.000", "0.500"]
    assert second.split() == ["b.c", "4.000", "4.000", "1.000"]


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_the_bench_of_pruning_removes_what_is_old_while_runs_go_on(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        report = await prune.measure(dsn, rows=2 * prune.ROWS_EACH, seconds=0.2)
    assert report["rows"] == 2 * prune.ROWS_EACH
    assert all(report[key] > 0 for key in prune.KEYS)
    assert all(key in prune.table(report) for key in prune.KEYS)


def test_commits_of_a_slower_disk_take_longer() -> None:
    async def seconds(dsn: str) -> float:
        async with connecting(dsn) as connection:
            began = time.perf_counter()
            await connection.execute("CREATE TABLE written (n int)")
            return time.perf_counter() - began

    with durable_server(commit_delay_ms=30) as database:
        assert asyncio.run(seconds(database("slow"))) >= 0.03
