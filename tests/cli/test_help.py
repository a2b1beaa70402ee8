"""What somebody types who doesn't know the commands: `help`, and examples that work."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import hai_flow.cli
from hai_flow.cli import app
from hai_flow.cli.author.sources import list_workflow_files
from hai_flow.cli.client.rest import server_url
from hai_flow.cli.examples import EXAMPLES

ADD_ONS = {"conformance"}  # in a package of its own, which may not be installed


def commands(of: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command with its words, those of groups too."""
    group: Any = of or typer.main.get_command(app)
    with group.make_context("hai-flow", [], resilient_parsing=True) as context:
        for name in group.list_commands(context):
            if name in ADD_ONS:
                continue
            command = group.get_command(context, name)
            yield " ".join((*words, name)), command
            if hasattr(command, "list_commands"):
                yield from commands(command, (*words, name))


COMMANDS = dict(commands())


def test_every_command_has_two_examples_and_nothing_else_has() -> None:
    assert COMMANDS.keys() == EXAMPLES.keys() - ADD_ONS
    assert all(len(set(each)) == 2 for each in EXAMPLES.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_such_as_it_takes(name: str) -> None:
    for example in EXAMPLES[name]:
        words = shlex.split(example)
        command, rest = COMMANDS[name], words[len(name.split()) :]
        assert words[: len(name.split())] == name.split()
        if hasattr(command, "list_commands") and rest and not rest[0].startswith("-"):
            inner = f"{name} {rest[0]}"
            command, rest = COMMANDS[inner], rest[1:]
        command.make_context(name, rest)  # raises for an option or a value that it does not take


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_names_each_argument_once(name: str) -> None:
    with COMMANDS[name].make_context(f"hai-flow {name}", [], resilient_parsing=True) as context:
        usage = COMMANDS[name].get_usage(context)
    assert not re.search(r"\[\[|\.{4}|\.\.\.\]\.", usage), usage


GROUPS = [name for name, command in COMMANDS.items() if hasattr(command, "list_commands")]


@pytest.mark.parametrize("name", GROUPS)
def test_group_without_a_command_lists_things_or_shows_its_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.invoke_without_command or command.no_args_is_help


def test_number_outside_its_bounds_is_refused_in_words() -> None:
    result = CliRunner().invoke(app, ["replay", "01a20326", "--speed", "0"])
    assert (result.exit_code, "expected a number from 0.001 up, found '0'." in result.stderr) == (2, True)


def test_answer_without_a_question_says_that_both_are_expected() -> None:
    result = CliRunner().invoke(app, ["decide", "approve"])
    assert "expected a question and its answer, found 'approve' alone" in result.stderr


def test_commands_to_type_begin_with_the_name_of_the_program() -> None:
    """In a checkout that is `python3 cli.py`: a text of the command line never spells `hai-flow COMMAND` itself."""
    pattern = re.compile(rf"hai-flow ({'|'.join(name for name in COMMANDS if ' ' not in name)})\b")
    spelt = []
    for path in Path(hai_flow.cli.__file__).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
        texts = [each for each in nodes if isinstance(each, ast.Constant) and id(each) not in docstrings]
        spelt += [(path.name, each.value) for each in texts if pattern.search(str(each.value))]
    assert spelt == []


def test_help_shows_what_the_option_shows() -> None:
    runner = CliRunner()
    for words in ([], ["show"], ["keys", "create"]):
        one, other = runner.invoke(app, ["help", *words]), runner.invoke(app, [*words, "--help"])
        assert (one.exit_code, one.output) == (0, other.output)
    assert "keys create user:ann --role owner" in runner.invoke(app, ["help", "keys", "create"]).output
    assert "No such command 'nothing'" in runner.invoke(app, ["help", "nothing"]).output


def test_the_first_list_fits_a_screen_and_names_every_command_in_its_group() -> None:
    lines = CliRunner().invoke(app, ["--help"], terminal_width=80).output.splitlines()
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 80
    groups = "\n".join(lines).partition("All commands:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  ([A-Z]\w+)  ", groups, re.M) == ["Author", "Run", "Decide", "Operate", "Administer"]
    top = {name for name in (*COMMANDS, *ADD_ONS) if " " not in name}
    assert top - set(re.findall(r"[\w-]+", groups)) == {"dev", "run", "validate", "test"}, "which have a line each"


def test_help_commands_says_a_sentence_of_each() -> None:
    text = CliRunner().invoke(app, ["help", "commands"]).output
    listed = re.findall(r"^  ([a-z][\w-]*)  ", text, re.M)
    assert sorted(listed) == sorted({name for name in (*COMMANDS, *ADD_ONS) if " " not in name})
    assert "Bring archived threads back, as they were." in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["migrate", "refund", "--from", "1"], ["runs", "migrate", "refund", "--from", "1"]),
        (["migrate", "--data-dir", "x", "refund", "--to", "2"], ["runs", "migrate", "refund", "--to", "2"]),
        (["migrate", "--from=1"], ["runs", "migrate", "--from=1"]),
        (["restored", "--confirm", "--nothing-lost"], ["recover", "--confirm", "--nothing-lost"]),
    ],
)
def test_old_spelling_of_a_command_does_the_same_and_names_the_new_one(old: list[str], new: list[str]) -> None:
    before, after = CliRunner().invoke(app, old), CliRunner().invoke(app, new)
    notice, *rest = before.stderr.splitlines()
    name = "recover" if new[0] == "recover" else "runs migrate"
    assert notice == f"`{old[0]}` is an old spelling, for this release alone: {name}"
    assert (before.exit_code, rest, before.stdout) == (2, after.stderr.splitlines(), after.stdout)


@pytest.mark.parametrize("arguments", [["--data-dir", "x"], ["--data-dir=x"], ["-h"], []])
def test_migrate_of_the_schema_is_no_old_spelling(arguments: list[str]) -> None:
    assert typer.main.get_command(app).respell(["migrate", *arguments]) is None  # type: ignore[attr-defined]


def test_old_spellings_are_in_no_list_of_commands() -> None:
    assert "restored" not in COMMANDS
    assert "recover" in COMMANDS


def test_a_server_without_a_scheme_is_one_of_http() -> None:
    assert server_url("127.0.0.1:8570") == "http://127.0.0.1:8570"
    assert server_url("https://flow.example.com/") == "https://flow.example.com"


def test_a_folder_is_searched_without_what_others_have_installed(tmp_path: Path) -> None:
    for folder in (".", "flows/deep", ".venv/lib/site-packages/x", "node_modules/y", "venv/z", ".git"):
        os.makedirs(tmp_path / folder, exist_ok=True)
        (tmp_path / folder / "a.flow.yaml").write_text("hai: flow/v1")
    assert list_workflow_files(tmp_path) == sorted([tmp_path / "a.flow.yaml", tmp_path / "flows/deep/a.flow.yaml"])
    assert list_workflow_files(tmp_path / ".venv" / "lib" / "site-packages" / "x"), "a folder that is named is searched"
