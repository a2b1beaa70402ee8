"""What a command loads before it does anything: most of the time that it takes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hai_flow.cli import _Commands
from hai_flow.cli.commands import SENTENCE_CHARS
from hai_flow.cli.sentences import SENTENCES
from hai_flow.store.postgres import database_roles
from tests.support.commands import ROOT, run, started
from tests.support.postgres import connecting

pytestmark = pytest.mark.costly

HEAVY = {
    "alembic", "anyio", "asyncpg", "cel_expr_python", "fastapi", "httpx2", "jsonschema_rs", "pydantic", "rich",
    "sqlalchemy", "starlette", "structlog", "uvicorn", "yaml",
}  # fmt: skip


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH on which every Python tells on standard error what it had loaded when it ended."""
    folder = tmp_path_factory.mktemp("telling")
    (folder / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "names = lambda: {name.partition('.')[0] for name in sys.modules}\n"
        "ours = lambda: [name for name in sys.modules if name.startswith(('hai_flow.', 'pydantic.v1'))]\n"
        "atexit.register(lambda: print('loaded:', *names(), *ours(), file=sys.stderr))\n"
    )
    return f"{folder}{os.pathsep}{ROOT}"


def loaded(*arguments: str, **settings: str) -> set[str]:
    """The packages that the command loads. It must have gone well."""
    done = run(*arguments, **settings)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("loaded: "))
    return set(line.split()[1:])


def test_commands_that_ask_a_server_load_nothing_heavy(database_url: str, telling: str, tmp_path: Path) -> None:
    with started(
        tmp_path / "log", "serve", "--port", "0", HAI_FLOW_DATABASE_URL=database_url, PYTHONPATH=telling
    ) as server:
        url = server.wait_for(r"Serving (http://\S+)")[1]
        for arguments in (["runs"], ["runs", "--json", "--limit", "3"], ["pendings"], ["schedules"]):
            packages = loaded(*arguments, HAI_FLOW_URL=url, PYTHONPATH=telling)
            assert "hai_flow" in packages
            assert not packages & HEAVY, arguments
        server.end(signal.SIGTERM)
    (line,) = (line for line in server.output.splitlines() if line.startswith("loaded: "))
    unused = {"alembic", "sqlalchemy", "rich", "pygments", "jwt", "cryptography", "httpx2", "pydantic.v1"}
    assert not set(line.split()) & unused, "a server changes no schema, draws no boxes, and reads no token here"


def test_the_help_has_the_sentence_of_each_command_without_importing_it(telling: str) -> None:
    sentences = {entry.name: entry.load().get_short_help_str(SENTENCE_CHARS) for entry in _Commands.entries}
    assert sentences == SENTENCES
    done = run("help", "commands", PYTHONPATH=telling)
    shown = "".join(done.stdout.split())  # long ones are wrapped
    assert all("".join(sentence.split()) in shown for sentence in sentences.values())
    commands = {entry.place.partition(":")[0] for entry in _Commands.entries} - {"hai_flow.cli.completion"}
    assert not commands & loaded("help", "commands", PYTHONPATH=telling)


@pytest.mark.parametrize("arguments", [["--help"], ["runs", "--help"], ["run", "--help"], ["version"]])
def test_help_loads_nothing_heavy(telling: str, arguments: list[str]) -> None:
    assert not loaded(*arguments, PYTHONPATH=telling) & HEAVY


def test_migrate_loads_what_changes_a_schema_only_where_one_is_behind(
    database_url: str, empty_database_url: str, telling: str
) -> None:
    assert not loaded("migrate", HAI_FLOW_DATABASE_URL=database_url, PYTHONPATH=telling) & {"alembic", "sqlalchemy"}
    assert "alembic" in loaded("migrate", HAI_FLOW_DATABASE_URL=empty_database_url, PYTHONPATH=telling)


async def test_migrate_gives_the_roles_a_right_that_they_lack(database_url: str) -> None:
    async with connecting(database_url) as connection:
        await connection.execute("REVOKE SELECT ON runs FROM hai_api")
        assert not await database_roles.has_all_roles(database_url)
        assert run("migrate", HAI_FLOW_DATABASE_URL=database_url).returncode == 0
        assert await database_roles.has_all_roles(database_url)
