"""The kit against our own endpoints: no must fails, and what it tells is what a person can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

GATED = """
hai: flow/v1
name: gated
version: 1
tools:
  files: {python: hai_flow.examples, effect: write}
steps:
  - id: delete
    call: files.delete_files
    with: {folder: tmp, count: 3}
    expose: true
    approval: {from: anyone, edit: [count]}
  - say: "Deleted ${{ steps.delete.output.deleted }}."
"""


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn) as process:
        assert httpx2.post(f"{process.url}/v1/workflows", content=GATED).status_code == 201
        yield process
        assert "Traceback" not in process.log, process.log


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["conformance", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def verdicts(output: str) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in json.loads(output)["checks"]}


def results(output: str, *ids: str) -> set[str]:
    told = verdicts(output)
    return {told[id]["result"] for id in ids}


@pytest.mark.parametrize(("path", "protocol"), [("awp", "hai"), ("ag-ui", "agui")])
def test_our_own_endpoints_conform(server: ServerProcess, path: str, protocol: str) -> None:
    output = run(f"{server.url}/workflows/cleanup/{path}", "--tool", "confirmAction=true", "--json")
    report = json.loads(output)
    failed = [each for each in report["checks"] if each["result"] == "fail" and each["level"] != "info"]
    assert failed == []
    assert (report["protocol"], report["conforms"]) == (protocol, True)
    conversation = ("tool.called", "answer.continues", "answer.duplicate", "answer.different", "forged.answer")
    assert results(output, *conversation, "forged.open-call", "disconnect.goes-on", "repeat.same") == {"pass"}
    assert not [each for each in report["checks"] if each["result"] == "skipped"]
