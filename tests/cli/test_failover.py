"""A standby is promoted while processes work: real processes, over a URL that names both servers."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hai_flow_chaos.keeper import crash
from hai_flow_client import Client
from hai_flow_client.errors import Unavailable

from tests.support.commands import run, started
from tests.support.postgres import fetch_value, run_apart
from tests.support.replica import Pair
from tests.support.values import require

pytestmark = [pytest.mark.costly, pytest.mark.timeout(300)]

Answer = TypeVar("Answer")
SECONDS_MAX: Final = 120.0
FLOW: Final = """
hai: flow/v1
name: asked
version: 1
tools:
  pay: {python: failover_tools, effect: write}
steps:
  - id: sure
    ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}
  - {id: pay, call: pay.pay}
"""
TOOLS: Final = """
import asyncio
from hai_flow.steps.tools import Context, tool

@tool
async def pay(context: Context) -> None:
    async with context.transaction() as connection:
        await connection.execute("INSERT INTO public.paid VALUES ($1)", context.run_id)
    await asyncio.sleep(2)
"""
TABLE: Final = "CREATE TABLE paid (run_id text); GRANT ALL ON paid TO PUBLIC"


def ask_again(ask: Callable[[], Answer]) -> Answer:
    """The answer, as soon as the database is there for it."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return ask()
        except Unavailable:
            assert time.monotonic() < end
            time.sleep(0.2)


def do(dsn: str, *statements: str) -> None:
    for statement in statements:
        run_apart(fetch_value(dsn, statement))


def test_work_goes_on_over_the_standby_also_of_a_worker_begun_again(tmp_path: Path) -> None:
    (tmp_path / "failover_tools.py").write_text(TOOLS)
    with Pair() as pair, contextlib.ExitStack() as stack:
        do(pair.primary, *TABLE.split("; "), "ALTER SYSTEM SET synchronous_standby_names = '*'")
        do(pair.primary, "SELECT pg_reload_conf()")
        hosts = [dsn.partition("host=")[2].partition("&")[0] for dsn in (pair.primary, pair.replica)]
        settings = {
            "HAI_FLOW_DATABASE_URL": f"postgresql://postgres@/hai_flow?host={','.join(hosts)}&port=5432"
            "&target_session_attrs=read-write",
            "HAI_FLOW_PUBLISH": "1",
            "HAI_FLOW_TOOLS": "failover_tools",
            "HAI_FLOW_LEASE_SECONDS": "6",
            "HAI_FLOW_HEARTBEAT_SECONDS": "1",
        }
        server = stack.enter_context(started(tmp_path / "serve", "serve", "--port", "0", folder=tmp_path, **settings))
        client = stack.enter_context(Client(server.wait_for(r"Serving (http://\S+) ")[1]))
        worker = stack.enter_context(started(tmp_path / "worker", "worker", folder=tmp_path, **settings))
        worker.wait_for(r"Worker \d+ performs")
        client.workflows.publish(FLOW)
        runs = [client.runs.start("asked").id for _ in range(4)]
        for run_id in runs:
            client.runs.wait(run_id, timeout=SECONDS_MAX)
        first, second, *others = client.pendings.list()
        for pending in (first, second):
            client.pendings.answer(pending, {"ok": True})
        crash(require(pair.primary_pid))
        worker.end(signal.SIGKILL)
        do(pair.replica, "SELECT pg_promote()", "ALTER SYSTEM RESET synchronous_standby_names")
        do(pair.replica, "SELECT pg_reload_conf()")
        again = stack.enter_context(started(tmp_path / "again", "worker", folder=tmp_path, **settings))
        again.wait_for(r"Worker \d+ performs")
        for pending in others:
            ask_again(lambda pending=pending: client.pendings.answer(pending, {"ok": True}))
        for run_id in runs:
            ask_again(lambda run_id=run_id: client.runs.result(run_id, timeout=SECONDS_MAX))
        assert "database_went_back" not in server.output + again.output
        assert run_apart(fetch_value(pair.replica, "SELECT count(*) = 4 AND count(DISTINCT run_id) = 4 FROM paid"))
        verified = run("verify", "--json", **settings)
        assert verified.returncode == 0, verified.stdout
