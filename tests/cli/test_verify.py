"""`hai-flow verify` names the run, the event and the rule, and its exit code says whether anything is broken."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from hai_flow.cli import app
from tests.cli.conftest import start_run
from tests.support.postgres import execute

pytestmark = pytest.mark.usefixtures("database")

ASKING = b"""
hai: flow/v1
name: asking
version: 1
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


def test_a_database_in_which_everything_holds_is_told_in_one_line(database: str) -> None:
    assert called().output == "0 runs with 0 events: everything holds.\n"
    run_id = asyncio.run(start_run(database, ASKING))
    good = called()
    assert (good.exit_code, good.output.startswith("1 run with "), "everything holds" in good.output) == (0, True, True)
    assert called(str(run_id), "--pace", "1000", "--late", "3600", "--tenant", "default").exit_code == 0


def test_what_is_broken_is_named_with_run_event_and_rule(database: str) -> None:
    run_id, other = (asyncio.run(start_run(database, ASKING)) for _ in range(2))
    asyncio.run(execute(database, "UPDATE runs SET status = 'running' WHERE id = $1", run_id))
    bad = called()
    assert bad.exit_code == 1
    assert f"run {run_id}, event " in bad.output
    assert ": row_is_made: its status is running, and the log says waiting." in bad.output
    assert "1 violation in 1 run." in bad.output
    shown = json.loads(called("--json").output)
    assert (shown["runs"], shown["broken"], shown["reached"]["row_is_made"]) == (2, 1, 2)
    assert [(each["run_id"], each["rule"]) for each in shown["violations"]] == [(str(run_id), "row_is_made")]
    assert called(str(other)).exit_code == 0


def test_a_run_that_waits_too_long_for_a_worker_is_late(database: str) -> None:
    run_id = asyncio.run(start_run(database, ASKING))
    statement = "UPDATE runs SET wake_at = $2 WHERE id = $1"
    asyncio.run(execute(database, statement, run_id, datetime(2020, 1, 1, tzinfo=UTC)))
    assert called().exit_code == 0
    assert "nobody_is_late: it is due since 2020-01-01" in called("--late", "60").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["01"], "expected the whole id of a run"),
        ([str(UUID(int=7))], "there is no run"),
        (["--tenant", "nobody"], "there is no tenant 'nobody'"),
        (["--late", "soon"], "expected a number above 0 for --late"),
        (["--pace", "0"], "expected a number above 0 for --pace"),
    ],
)
def test_what_can_not_be_looked_at_is_a_sentence(arguments: list[str], said: str) -> None:
    refused = called(*arguments)
    assert refused.exit_code == 2
    assert said in refused.output
    assert "Traceback" not in refused.output
