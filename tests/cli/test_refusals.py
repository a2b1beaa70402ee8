"""What a command says when it is refused, and what its help says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hai_flow.cli import _Commands, app
from hai_flow.cli.client.rest import Server
from hai_flow.cli.errors import Problem, explain
from hai_flow.cli.sentences import MEANT
from hai_flow.cli.terminal import program
from hai_flow.values import Json
from tests.support.commands import run

VOTE = {"by": "user:ann", "on_behalf_of": None, "roles": [], "decision": "reject", "reason": "late", "counts": True}
ENVELOPE: Json = {"decision": "reject", "votes": [VOTE], "expired": False, "values": None, "edits": None}


@pytest.mark.parametrize(
    ("winner", "lines"),
    [
        ({"status": "failed", "seq": 67}, ["    status: failed", "    seq: 67"]),
        (
            {"run_id": "r", "status": "waiting", "by": None},
            ["    run_id: r", "    status: waiting", f"  To look at that run: {program()} show r"],
        ),
        ({"value": ENVELOPE}, ["    value: reject by user:ann: late"]),
        ({"reason": "two\nlines", "nearest": [2, 7]}, ["    reason: two lines", "    nearest: [2, 7]"]),
        ("approve", ["    approve"]),
    ],
)
def test_a_refusal_shows_how_it_is_now_line_by_line(
    winner: Json, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    explain(Problem({"detail": "It is over.", "winner": winner}))
    assert capsys.readouterr().err.splitlines() == ["hai-flow: It is over.", "  As it is now:", *lines]


def test_a_refusal_with_a_single_finding_says_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    finding: Json = {"path": "/query/status/0", "message": "expected 'queued'"}
    explain(Problem({"detail": "/query/status/0: expected 'queued'", "findings": [finding]}))
    assert capsys.readouterr().err.splitlines() == ["hai-flow: /query/status/0: expected 'queued'"]


@pytest.mark.parametrize(
    ("command", "detail", "told"),
    [
        (["runs", "--status", "x"], "/query/status/0: expected 'queued'", "--status: expected 'queued'"),
        (
            ["runs", "migrate", "pay", "--from", "x", "--to", "y"],
            "/from: expected a version; /to: expected a version",
            "--from: expected a version; --to: expected a version",
        ),
        (["fork", "0" * 36, "--at", "99"], "at: the run has 11 events", "--at: the run has 11 events"),
        (["runs", "--limit", "2"], "/query/cursor: unknown", "/query/cursor: unknown"),
    ],
)
def test_a_refused_parameter_is_told_by_the_option_of_the_command(
    command: list[str], detail: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        findings = [dict(zip(("path", "message"), each.split(": "), strict=True)) for each in detail.split("; ")]
        raise Problem({"code": "request.invalid", "detail": detail, "findings": findings})

    for name in ("items", "post", "get"):
        monkeypatch.setattr(Server, name, refuse)
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert refused.output.splitlines() == [f"hai-flow: {told}"]


def test_a_value_of_a_person_is_not_taken_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise Problem({"code": "answer.invalid", "detail": "/reason: expected a number"})

    monkeypatch.setattr(Server, "post", refuse)
    refused = CliRunner().invoke(app, ["decide", "call_a", "approve", "--edits", '{"reason": "x"}'])
    assert refused.output.splitlines() == ["hai-flow: /reason: expected a number"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("logs", "No such command 'logs'. Did you mean 'events'?"),
        ("vaildate", "No such command 'vaildate'. Did you mean 'validate'?"),
        ("bench", "help commands` lists them all."),
        ("wait", "help commands` lists them all."),
        ("help logs", "Did you mean 'events'?"),
        ("runs 01a2268f", "`runs` has migrate. One run: `show RUN`."),
        ("keys rotate", "`keys` has create, list, revoke, rotate-states."),
        ("run refund amount=2", "Got unexpected extra argument(s) (amount=2). Did you mean --input amount=2?"),
        ("dev flows", "Did you mean --workflows flows?"),
        ("new one two", "Got unexpected extra argument(s) (two)."),
        ("worker --queue gpu=x --data-dir nowhere", "--queue: expected the name of a queue"),
        ("graph refund -o x.png", "-o: expected a file that ends with .svg, .mmd"),
        ("forget ann --yes", "expected a person, like user:ann, found 'ann'."),
    ],
)
def test_a_wrong_word_is_refused_with_what_is_there_or_was_meant(
    command: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, command.split())
    assert refused.exit_code == 2
    assert told in " ".join(refused.output.split())
    assert list(tmp_path.iterdir()) == []


def test_every_word_of_other_programs_leads_to_a_command() -> None:
    commands = {each.name for each in _Commands.entries}
    assert not commands & MEANT.keys()
    assert {each.partition(" ")[0] for each in MEANT.values()} <= commands


@pytest.mark.parametrize("command", ["runs", "mcp"])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"HAI_FLOW_KEY": "two words"}, "HAI_FLOW_KEY or HAI_FLOW_KEY_FILE: expected visible ASCII"),
        ({"HAI_FLOW_KEY_FILE": "/dev/null"}, "HAI_FLOW_KEY_FILE: '/dev/null' is empty.\n"),
    ],
)
def test_a_wrong_key_is_refused_by_the_name_it_was_given_under(
    command: str, settings: dict[str, str], sentence: str
) -> None:
    refused = run(command, **settings)
    assert refused.stderr.startswith(f"hai-flow: {sentence}"), refused.stderr


@pytest.mark.parametrize("command", [("new", "--template", "x"), ("completion", "x"), ("graph", "--format", "x", "y")])
def test_a_word_that_is_none_of_some_is_refused_with_these(command: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert re.search(r": expected \w+(, \w+)* or \w+, found 'x'\.\n$", refused.output), refused.output


def test_every_command_has_a_sentence_in_the_help() -> None:
    shown = CliRunner().invoke(app, ["help", "commands"]).output
    commands = re.findall(r"^  ([a-z]+) {2,}(\S.*(?:\n {19}\S.*)*)", shown, re.MULTILINE)
    assert len(commands) > 40
    short = {name: text for name, text in commands if len(text.split()) < 4}
    assert not short


def test_the_help_of_a_group_cuts_no_sentence_off() -> None:
    shown = CliRunner().invoke(app, ["cells", "-h"]).output
    assert "..." not in shown.partition("Commands:")[2]
