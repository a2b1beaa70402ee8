"""`hai-flow backtest` counts what would go otherwise, names examples, and its exit code says whether anything would."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from hai_flow.cli import app
from tests.cli.conftest import start_run
from tests.support.postgres import fetch

pytestmark = pytest.mark.usefixtures("database")

ASKING = """\
hai: flow/v1
name: asking
version: 1
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""


@pytest.fixture
def run_id(database: str) -> UUID:
    """A run of ASKING that waits for an answer."""
    return asyncio.run(start_run(database, ASKING.encode()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "asking.flow.yaml"
    path.write_text(ASKING)
    return path


def called(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["backtest", *map(str, arguments)])


def test_an_unchanged_file_exits_with_0(run_id: UUID, file: Path) -> None:
    result = called(file, "--against", "asking", "--since", "1d")
    assert (result.exit_code, result.output) == (
        0,
        "1 run of asking that began within 1d:\n  1 would go the same way.\n1 run waiting: 0 could not migrate.\n",
    )
    shown = json.loads(called(file, "--json").output)
    assert (shown["runs"], shown["verdicts"]["same"], shown["waiting"], shown["stuck"]) == (1, 1, 1, {})


def test_other_deciders_and_stranded_runs_are_named_with_exit_code_1(run_id: UUID, file: Path) -> None:
    file.write_text(ASKING.replace("from: anyone", 'from: ["user:bob"]').replace("Sure?", "Certain?"))
    result = called(file)
    assert result.exit_code == 1
    assert "1 would ask more or fewer people." in result.output
    assert "asked besides: sure from user:bob, 1 time." in result.output
    assert f"run {run_id}: sure: recorded: asks anyone; now: asks user:bob." in result.output
    assert "1 run waiting: 1 could not migrate." in result.output
    assert f"run {run_id}: sure would show people something else than they were shown: title." in result.output
    shown = json.loads(called(file, "--json").output)
    assert shown["more"] == [{"step": "sure", "from": ["user:bob"], "quorum": "1", "runs": 1}]
    assert [(each["run_id"], each["kind"], each["step"]) for each in shown["examples"]] == [
        (str(run_id), "people", "sure")
    ]
    assert shown["stuck"] == {"pending.content": 1}
    assert json.loads(called(file, "--json", "--limit", "0").output)["examples"] == []


def test_counts_are_stored_with_keep_alone_and_for_the_files_workflow(run_id: UUID, file: Path, database: str) -> None:
    async def read() -> list[tuple[object, ...]]:
        query = "SELECT name, age, complete, runs, differences, counts, kept_by FROM rehearsals"
        return [tuple(row) for row in await fetch(database, query)]

    assert (called(file).exit_code, asyncio.run(read())) == (0, [])
    assert called(file, "--keep", "--since", "2d").exit_code == 0
    counts = b'{"unreadable":{},"verdicts":{"same":1}}'
    row = ("asking", timedelta(days=2), True, 1, 0, counts, "service:cli")
    assert asyncio.run(read()) == [row]
    file.write_text(ASKING.replace("name: asking", "name: other"))
    refused = called(file, "--against", "asking", "--keep")
    assert (refused.exit_code, "expected the runs of other in all cells" in refused.output) == (2, True)
    assert asyncio.run(read()) == [row]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["--against", "nobody"], 2, "tenant 'default' has no workflow 'nobody'"),
        (["--tenant", "nobody"], 2, "tenant 'nobody' has no workflow 'asking'"),
        (["--since", "soon"], 2, "--since: expected a duration such as 90s, 1h30m, 7d or PT5M, found 'soon'."),
        (["--cell", "nowhere"], 2, "--cell: expected one of home"),
    ],
)
def test_a_backtest_of_nothing_is_refused_with_a_sentence(
    run_id: UUID, file: Path, arguments: list[str], exit_code: int, sentence: str
) -> None:
    refused = called(file, *arguments)
    assert (refused.exit_code, sentence in refused.output) == (exit_code, True), refused.output
    assert "Traceback" not in refused.output


def test_a_file_with_mistakes_is_refused_with_every_one_of_them(file: Path) -> None:
    file.write_text(ASKING.replace("ask:", "aks:"))
    refused = called(file)
    assert refused.exit_code == 1
    assert "aks" in refused.output
    missing = called(file.with_name("absent.flow.yaml"))
    assert (missing.exit_code, "expected a workflow file" in missing.output) == (2, True)


def test_a_run_that_could_not_migrate_alone_is_a_finding(run_id: UUID, file: Path) -> None:
    """A step may not wait for something else; that it waits for as long as before is no difference."""
    file.write_text(ASKING.replace("{id: sure, ask:", "{id: sure, if: 'true', ask:").replace("Sure?", "${{ 'Sure?' }}"))
    assert called(file).exit_code == 0
    file.write_text(ASKING.replace("{id: sure, ask:", "{id: sure2, ask:"))
    result = called(file)
    assert "1 would go the same way." in result.output
    assert (result.exit_code, "1 could not migrate" in result.output) == (1, True), result.output
