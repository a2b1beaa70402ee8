"""`hai-flow freeze`, `thaw` and `freezes`: over the database itself, while no server answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.runtime.conftest import ECHO, Connection, Make, eye, is_now, make, start, state_of
from tests.support.commands import run
from tests.support.waiting import until

__all__ = ["eye", "make"]


def run_command(dsn: str, *words: str, code: int = 0) -> str:
    done = run(*words, HAI_FLOW_DATABASE_URL=dsn)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


async def test_a_freeze_holds_runs_and_is_listed_until_it_is_thawed(
    make: Make, eye: Connection, database_url: str
) -> None:
    runtime = await make(performs=True)
    made: dict[str, Any] = json.loads(
        await asyncio.to_thread(run_command, database_url, "freeze", "--all", "--reason", "a drill", "--json")
    )
    await until(lambda: bool(runtime.freezes.of(LOCAL_TENANT)))
    run_id = (await start(runtime, ECHO, input={"value": "1"})).run_id
    assert (await state_of(runtime, run_id)).held
    assert "a drill" in await asyncio.to_thread(run_command, database_url, "freezes")
    await asyncio.to_thread(run_command, database_url, "thaw", made["id"][:8])
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert "Nothing is frozen" in await asyncio.to_thread(run_command, database_url, "freezes")
    assert [each["act"] for each in await eye.fetch("SELECT act FROM audit ORDER BY at")] == [
        "freeze.created",
        "freeze.thawed",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("freeze", "--reason", "why"), "expected one of --all"),
        (("freeze", "--all", "--tool", "x", "--reason", "why"), "expected one of --all"),
        (("freeze", "--all", "--reason", "  "), "--reason: expected a sentence"),
        (("freeze", "--all", "--read-only", "--no-agents", "--reason", "why"), "--read-only or --no-agents"),
        (("freeze", "--model", "m", "--read-only", "--reason", "why"), "a read-only freeze of a model holds nothing"),
        (("freeze", "--tool", "nobody", "--reason", "why"), "there is no tool 'nobody'"),
        (("freeze", "--tenant", "nobody", "--reason", "why"), "there is no tenant 'nobody'"),
        (("thaw", "7f3c"), "no freeze that is in force has this id"),
    ],
)
def test_what_can_not_be_frozen_or_thawed_is_said(database_url: str, words: tuple[str, ...], message: str) -> None:
    done = run(*words, HAI_FLOW_DATABASE_URL=database_url)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
