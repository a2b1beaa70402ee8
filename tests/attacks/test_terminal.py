"""What workflows, inputs and answers say steers no terminal of who looks at a run: no escape, no turned letters."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import Final

import httpx2
import pytest

from hai_flow.cli.console import clean
from tests.support.hai_client import unique
from tests.support.server import ROOT, YAML, ServerProcess

EVIL: Final = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066 \x08\x7f\u2028\r\nforged  line"
FLOW: Final = """\
hai: flow/v1
name: steers
version: 1
title: steers
input: {type: object, required: [text], properties: {text: {type: string}}}
steps:
  - say: ${{ input.text }}
  - emit: {custom: {name: n, value: "${{ input.text }}"}}
  - id: a
    title: ${{ input.text }}
    approve:
      {title: "${{ input.text }}", message: "${{ input.text }}", from: anyone, evidence: {t: "${{ input.text }}"}}
  - fail: {code: broken, message: "${{ input.text }}"}
"""
COMMANDS: Final = {
    "show": ["show", "{run}"],
    "events": ["events", "{run}"],
    "pendings": ["pendings"],
    "runs": ["runs"],
    "events as JSON": ["events", "{run}", "--json"],
    "pendings as JSON": ["pendings", "--json"],
    "show as JSON": ["show", "{run}", "--json"],
}
OWN_STYLES: Final = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def run(server: ServerProcess) -> str:
    """A run that has said all that it can, and whose answer is a reason that steers, too; another one still asks."""
    assert httpx2.post(f"{server.url}/v1/workflows", content=FLOW, headers=YAML).status_code in (200, 201)
    started = []
    for _ in range(2):
        body = {"workflow": "steers", "input": {"text": EVIL}, "thread_id": unique("steers")}
        started.append(httpx2.post(f"{server.url}/v1/runs", json=body).json()["id"])
    asked = httpx2.get(f"{server.url}/v1/pendings").json()["items"]
    (id,) = [each["id"] for each in asked if each["run_id"] == started[0]]
    decided = httpx2.post(f"{server.url}/v1/pendings/{id}/decide", json={"decision": "approve", "reason": EVIL})
    assert decided.status_code == 200, decided.text
    return started[0]


def on_a_terminal(server: ServerProcess, arguments: list[str]) -> str:
    """All that a command writes to the terminal that it runs at."""
    near, far = pty.openpty()
    command = [sys.executable, "-P", "-m", "hai_flow.cli", *arguments]
    environment = {**os.environ, "HAI_FLOW_URL": server.url, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=far, stdout=far, stderr=far)
    os.close(far)
    shown = b""
    try:
        while piece := os.read(near, 65536):
            shown += piece
    except OSError:  # the far end is closed: it has ended
        pass
    finally:
        process.wait(60)
        os.close(near)
    return shown.decode()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_that_is_shown_of_a_run_steers_the_terminal(
    server: ServerProcess, run: str, command: list[str]
) -> None:
    shown = on_a_terminal(server, [each.format(run=run) for each in command])
    assert "steers" in shown or "evil" in shown, shown
    text = OWN_STYLES.sub("", shown).replace("\r\n", "\n")
    assert clean(text) == text
    forged = [line for line in text.splitlines() if line.startswith("forged  line")]
    assert forged == [], "what somebody wrote is no line of ours"
