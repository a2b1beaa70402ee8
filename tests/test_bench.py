"""The measurements run and report what they promise. What they measure is never judged here: machines differ."""

from __future__ import annotations

import pytest

from bench import fanout, language, memory, resume, throughput
from bench.__main__ import KEYS, reported, table
from tests.support.postgres import Server

TINY = throughput.Size(rounds=1, runs=8, commits=1024, transactions=16, concurrency=4)
TINY_LANGUAGE = language.Size(rounds=1, runs=6, documents=1, few=5, many=20)
TINY_AUDIENCE = fanout.Size(rounds=1, followers=120, events=4, bursts=2, followers_before=10)


@pytest.mark.timeout(120)
async def test_a_report_has_every_key(postgres_server: Server) -> None:
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured = {"throughput": await throughput.measure(engine, reference, TINY)}
    with postgres_server.database() as engine, postgres_server.database() as reference:
        measured["resume"] = await resume.measure(engine, reference, 2)
    with postgres_server.database() as dsn:
        measured["memory"] = await memory.measure(dsn, few=20, many=40, readings=1)
    measured["validation"] = language.validation(TINY_LANGUAGE)
    with postgres_server.database() as dsn:
        measured["language"] = await language.measure(dsn, TINY_LANGUAGE)
    with postgres_server.database() as dsn:
        measured["fanout"] = await fanout.measure(dsn, TINY_AUDIENCE)
    report = reported(measured, quick=True)
    assert all(report[key] > 0 for key in KEYS)
    assert all(key in table(report) for key in KEYS)
    assert measured["throughput"]["log_rows_per_step"] == pytest.approx(1.1)  # ten steps in eleven commits
