"""`hai-flow prune`, `archive` and `restore`: what they say, and that a dry run does nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.conftest import start_run
from tests.cli.test_several_cells import called
from tests.support.postgres import execute

pytestmark = pytest.mark.usefixtures("database")

HELLO = b"hai: flow/v1\nname: hello\nversion: 1\nsteps:\n  - say: Hello\n"


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "retention.yaml"
    file.write_text(f"hai: retention/v1\narchive: {tmp_path / 'archive'}\nremove: 30d\n")
    monkeypatch.setenv("HAI_FLOW_RETENTION", str(file))
    return file


def ended(dsn: str, days: int = 100) -> UUID:
    """A run that ended so many days ago."""

    async def work() -> UUID:
        run_id = await start_run(dsn, HELLO)
        query = "UPDATE runs SET ended_at = now() - $2 * interval '1 day' WHERE id = $1 AND status = 'finished'"
        assert await execute(dsn, query, run_id, days) == "UPDATE 1"
        return run_id

    return asyncio.run(work())


def test_a_thread_goes_into_the_archive_out_of_the_database_and_comes_back(database: str, policy: Path) -> None:
    old, young = ended(database), ended(database, 1)
    dry = called("prune", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "1 would be archived, 1 with 1 run would be removed" in dry.output
    assert "There is no archive." in called("restore").output
    assert "1 archived, 0 with 0 runs removed." in called("archive").output
    done = json.loads(called("prune", "--json", "--rest", "0").output)
    assert (done["archived"], done["removed"], done["runs"], done["dry_run"]) == (0, 1, 1, False)
    assert done["rows"] > 0
    (place,) = json.loads(called("restore", "--json").output)["archives"]
    assert str(old) in place
    assert called("verify", str(old)).exit_code == 2
    assert "could be restored" in called("restore", place, "--dry-run").output
    assert called("verify", str(old)).exit_code == 2
    assert f"{place}: 1 run with " in called("restore", place).output
    again = called("restore", place)
    assert (again.exit_code, f"the run {old} is there already" in again.output) == (1, True)
    for run_id in (old, young):
        assert called("verify", str(run_id)).exit_code == 0
    assert called("audit", "verify", "--logs").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prune", "--tenant", "nobody"], "there is no tenant 'nobody'"),
        (["prune", "--rest", "long"], "expected a number from 0 to 1000 for --rest"),
        (["prune", "--retention", "absent.yaml"], "absent.yaml can't be read"),
        (["prune", "--archive", "nowhere://x"], "archive nowhere://x: it can't be used"),
        (["restore", "absent.jsonl.gz"], "absent.jsonl.gz: there is no such archive"),
    ],
)
def test_what_can_not_be_done_is_a_sentence(policy: Path, arguments: list[str], said: str) -> None:
    refused = called(*arguments)
    assert refused.exit_code != 0
    assert said in " ".join(refused.output.split())
    assert "Traceback" not in refused.output


def test_nothing_is_removed_without_a_file_that_says_so(database: str) -> None:
    ended(database)
    for command in ("prune", "archive", "restore"):
        refused = called(command)
        assert (refused.exit_code, "HAI_FLOW_RETENTION" in refused.output) == (2, True)
