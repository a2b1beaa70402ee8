"""docs/production.md: what it names exists, its SQL and its commands are done over a real PostgreSQL."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import click
import httpx2
import pytest
import typer

from hai_flow.cli import app
from hai_flow.embedded import find_binaries
from hai_flow.settings import SECRET, describe, variables_of_files
from tests.support.commands import ROOT, SECONDS_MAX, environment, run, started
from tests.support.installations import Installation, execute, installed
from tests.support.pages import blocks
from tests.support.postgres import Server, run_apart
from tests.support.waiting import until

GUIDE = (ROOT / "docs" / "production.md").read_text()
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
OF_TESTS = {
    "HAI_FLOW_TEST_CITUS",
    "HAI_FLOW_TEST_CITUS_NODE",
    "HAI_FLOW_TEST_DATABASE_URL",
    "HAI_FLOW_TEST_RECEIPT_KILLS",
    "HAI_FLOW_TEST_SESSION",
}
SETTINGS = {name for name, _, _ in describe()} | set(variables_of_files())


def source() -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / "hai_flow").rglob("*.py")))


def table_behind(words: str) -> list[str]:
    """The rows of the first table behind `words`."""
    lines = GUIDE.partition(words)[2].splitlines()
    rows = [n for n, line in enumerate(lines) if line.startswith("|")]
    table = [lines[n] for n in rows if n - rows[0] == rows.index(n)]
    return table[2:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"\bHAI_FLOW_[A-Z_]*[A-Z]\b", page.read_text()))
    secrets = {name for name in named if name.startswith(SECRET)}  # an operator gives them their names
    assert named - SETTINGS - secrets - OF_TESTS == set()


def test_every_event_that_wants_a_person_is_one_of_the_log() -> None:
    named = [name for row in table_behind("need a person") for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    logged = set(re.findall(r'\blog\.\w+\(\s*"(\w+)"', source()))
    assert len(named) > 10
    assert [name for name in named if name not in logged] == []


def test_what_readyz_says_is_what_it_can_say() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text()
    sentence = guide.partition("503 with a `code`:")[2].partition(" with the cause")[0]
    named = set(re.findall(r"`(\w+)`", sentence))
    function = (ROOT / "hai_flow/runtime/ops/readiness.py").read_text()
    assert named == set(re.findall(r'Rejected\(\s*503, "(\w+)"', function))


def _walk(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Each command by its words, with the options that it and the commands above it have."""
    yield words, {name for option in command.params for name in option.opts} | {"--help"}
    if hasattr(command, "list_commands"):  # a group, of the click that typer brings along or of another
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _walk(command.get_command(context, name), *words, name)


def test_every_command_and_option_that_a_page_names_exists() -> None:
    options = {("help",): set()} | dict(_walk(typer.main.get_command(app)))
    absent: list[str] = []
    for page in PAGES:
        lines = re.findall(r"(?:^[ $]*|`)hai-flow ([a-z][^\n`#]*)", page.read_text(), re.MULTILINE)
        for line in lines if page.parent.name != "decisions" else ():  # they tell of the time when they were made
            line = line.partition(" | ")[0]
            named = tuple(word.partition("|")[0] for word in line.split()[:2])
            words = next((each for each in (named, named[:1]) if each in options), ())
            present = options[words] | options[words[:1]] if words else set()
            absent += (
                [f"{page.name}: {line}"] if not words or set(re.findall(r"(?<![\w-])--[a-z-]+", line)) - present else []
            )
    assert absent == []


@pytest.fixture
def house(postgres_server: Server) -> Iterator[Installation]:
    """A database made as the guide says."""
    roles, create, _ = (block.text for block in blocks(GUIDE) if block.language == "sql")
    with installed(postgres_server, roles, create) as there:
        assert run("migrate", HAI_FLOW_DATABASE_URL=there.owner).returncode == 0
        yield there


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_the_guides_roles_do_their_work_and_a_backup_restores_it(
    house: Installation, postgres_server: Server, tmp_path: Path
) -> None:
    settings = {"HAI_FLOW_DATABASE_URL": house.role, "HAI_FLOW_PUBLISH": "1"}
    with (
        started(tmp_path / "serve", "serve", "--port", "0", **settings) as serve,
        started(tmp_path / "worker", "worker", **settings),
    ):
        url = serve.wait_for(r"Serving (http://\S+)")[1]
        published = run("publish", "workflows/weather.flow.yaml", "workflows/cleanup.flow.yaml", "--server", url)
        assert published.returncode == 0, published.stderr
        weather = httpx2.post(f"{url}/v1/runs", json={"workflow": "weather"}).json()["id"]
        cleanup = httpx2.post(f"{url}/v1/runs", json={"workflow": "cleanup"}).json()["id"]
        run_apart(until(lambda: httpx2.get(f"{url}/v1/runs/{weather}").json()["status"] == "finished", SECONDS_MAX))
        assert httpx2.get(f"{url}/readyz").status_code == 200
        execute(house.role, blocks_of_sql()[2])
        for statement in ("DROP TABLE runs", "DELETE FROM audit"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                execute(house.role, statement)
        checks = {each["name"]: each for each in json.loads(run("doctor", "--json", **settings).stdout)["checks"]}
        volatile = {"database.fsync", "database.synchronous_commit", "database.full_page_writes"}  # as in all tests
        assert {name for name, each in checks.items() if each["verdict"] == "bad"} <= volatile
        assert checks["database.works_as"]["found"] == "processes work as hai_engine, which owns no table"
        assert checks["database.row_security"]["verdict"] == checks["audit.grants"]["verdict"] == "good"
    with postgres_server.database(migrated=False) as restored:
        backup(house.owner, restored, tmp_path)
        there = {"HAI_FLOW_DATABASE_URL": restored}
        assert "may have gone back in time" in run("serve", **there).stderr
        paused = json.loads(run("recover", "--confirm", "--json", **there).stdout)["paused"]
        assert [each["id"] for each in paused] == [cleanup]
        with started(tmp_path / "again", "serve", "--port", "0", HAI_FLOW_DATABASE_URL=restored) as serve:
            url = serve.wait_for(r"Serving (http://\S+)")[1]
            assert httpx2.get(f"{url}/v1/runs/{weather}").json()["status"] == "finished"
            assert [each["run_id"] for each in httpx2.get(f"{url}/v1/pendings").json()["items"]] == [cleanup]
        execute(restored, f"DROP OWNED BY {house.name}; DROP OWNED BY {house.name}_owner")


def blocks_of_sql() -> list[str]:
    return [block.text for block in blocks(GUIDE) if block.language == "sql"]


def backup(from_dsn: str, to_dsn: str, folder: Path) -> None:
    """Do what the guide says about backups, with PostgreSQL's own programs."""
    guide = (ROOT / "docs" / "backups.md").read_text()
    commands = "".join(re.findall(r"^ *(pg_(?:dump|restore) .*\n)", guide, re.MULTILINE))
    assert len(commands.splitlines()) == 2
    programs = find_binaries().directory
    if not (programs / "pg_dump").exists():
        pytest.skip("this PostgreSQL comes without pg_dump")
    for line in commands.splitlines():
        line = line.replace('"$HAI_FLOW_DATABASE_URL"', shlex.quote(from_dsn))
        line = line.replace('"$RESTORED_URL"', shlex.quote(to_dsn))
        done = subprocess.run(
            [str(programs / shlex.split(line)[0]), *shlex.split(line)[1:]],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
