"""Completion: what a shell is offered while somebody types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import httpx2
import pytest
from typer.testing import CliRunner

from hai_flow.api.requests.schemas import RunStatus
from hai_flow.cli import app, completion
from tests.support.commands import ROOT, SECONDS_MAX, environment
from tests.support.server import serving

BIN = Path(sys.executable).parent

# What bash does when somebody presses Tab behind the words that it is given.
PRESS = """\
eval "$(hai-flow completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_hai_flow_completion hai-flow
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(*words: str, url: str = "http://127.0.0.1:9") -> list[str]:
    """What bash offers for the last word; the command is before them."""
    assert (BIN / "hai-flow").exists(), "the environment has the command that is completed"
    settings = environment(HAI_FLOW_URL=url, PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    pressed = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", PRESS, "bash", "hai-flow", *words],
        cwd=ROOT, env=settings, capture_output=True, text=True, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert pressed.returncode == 0, pressed.stderr
    assert pressed.stderr == ""
    return pressed.stdout.split()


def test_bash_is_offered_commands_options_and_what_the_server_has(database_url: str) -> None:
    with serving(database_url) as server, httpx2.Client(base_url=server.url) as http:
        run = http.post("/v1/runs", json={"workflow": "release", "input": {"release": "v1"}}).json()["id"]
        pending = http.get("/v1/pendings").json()["items"][0]["id"]
        assert offered("sho") == ["show"]
        assert offered("runs", "--wo") == ["--workflow"]
        assert offered("runs", "--status", "f") == ["finished", "failed"]
        assert offered("show", "", url=server.url) == [run]
        assert offered("show", "--server", server.url, run[:8]) == [run]
        assert pending in offered("decide", "call", url=server.url)
        assert "release" in offered("runs", "--workflow", "re", url=server.url)
        assert "release" in offered("versions", "", url=server.url)


def test_where_no_server_answers_nothing_is_offered_and_nothing_said() -> None:
    assert offered("show", "") == []


def test_every_status_is_offered() -> None:
    assert set(completion.statuses("")) == set(get_args(RunStatus))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_of_the_installed_command(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "program", lambda: "hai-flow")
    shown = CliRunner().invoke(app, ["completion", shell])
    assert shown.exit_code == 0
    assert f"{completion.VARIABLE}=complete_{shell}" in shown.output
    monkeypatch.setattr(completion, "program", lambda: "python3 cli.py")
    refused = CliRunner().invoke(app, ["completion", shell])
    assert refused.exit_code == 2
