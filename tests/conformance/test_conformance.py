"""The kit against our own endpoints: no must fails, and what it tells is what a person can use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hai_flow_conformance import CATALOGUE
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.conformance.faulty import endpoint
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

ROOT = Path(__file__).resolve().parents[2]

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
        assert httpx2.post(f"{process.url}/v1/workflows", content=GATED, headers=YAML).status_code == 201
        yield process


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
    assert results(output, *(id for id in CATALOGUE if id.startswith("accept."))) == {"pass"}
    assert not [each for each in report["checks"] if each["result"] == "skipped"]


def test_interrupts_are_tried_where_a_run_is_interrupted(server: ServerProcess) -> None:
    output = run(f"{server.url}/workflows/gated/ag-ui", "--resume", '{"approved": true}', "--json")
    names = ("waits", "unknown", "resume", "once")
    assert results(output, *(f"interrupt.{name}" for name in names)) == {"pass"}
    assert json.loads(output)["conforms"] is True


def test_nothing_is_approved_without_being_told_to(server: ServerProcess) -> None:
    output = run(f"{server.url}/workflows/gated/ag-ui", "--json")
    assert results(output, "interrupt.waits", "interrupt.unknown") == {"pass"}
    assert verdicts(output)["interrupt.resume"]["result"] == "skipped"
    runs = httpx2.get(f"{server.url}/v1/runs", params={"workflow": "gated", "status": "waiting"}).json()["items"]
    assert runs


def test_the_workflow_may_be_named_in_the_body(server: ServerProcess) -> None:
    output = run(f"{server.url}/awp", "--workflow", "cleanup", "--tool", "confirmAction=true", "--json")
    assert results(output, "tool.called", "answer.continues") == {"pass"}


def test_the_report_is_grouped_and_tells_what_was_left_out(server: ServerProcess) -> None:
    lines = run(f"{server.url}/workflows/cleanup/awp", "--protocol", "hai").splitlines()
    assert lines[0] == f"HAI at {server.url}/workflows/cleanup/awp"
    assert lines.index("chat") < lines.index("stream") < lines.index("malformed")
    skipped = next(line for line in lines if "answer.duplicate" in line)
    assert skipped.startswith("  skip")
    assert "(give --tool confirmAction=JSON, the answer to what it calls)" in skipped
    assert "interrupt" not in lines
    assert "old" not in lines
    assert lines[-1].startswith(f"{len(CATALOGUE)} checks: ")
    assert "(0 must)" in lines[-1]


def test_a_failure_shows_what_was_expected_and_found_and_the_bytes() -> None:
    with endpoint("null") as url:
        lines = run(url, "--tool", "confirmAction=true", code=1).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  FAIL  stream.no-nulls"))
    assert lines[at + 1] == "          level     must, docs/design/protocols.md#absent-never-null"
    assert lines[at + 2] == "          expected  An optional field is absent, never null."
    assert lines[at + 3] == "          found     a new thread: RUN_STARTED: parentRunId is null"
    assert '"parentRunId": null' in lines[at + 4]
    assert any("(1 must)" in line for line in lines[at:])


def test_where_nothing_answers_it_says_so() -> None:
    with endpoint("") as url:
        pass
    assert f"nothing answers at {url}" in run(url, code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tool", "confirmAction"), "--tool: expected NAME=JSON, found 'confirmAction'"),
        (("--tool", "confirmAction=yes"), "--tool: expected JSON, found 'yes'"),
        (("--header", "secret"), "--header: expected NAME:VALUE"),
        (("--resume", "{"), "--resume: expected JSON"),
    ],
)
def test_a_wrong_option_is_explained(arguments: tuple[str, str], said: str) -> None:
    assert said in run("http://127.0.0.1:9/", *arguments, code=2)


def test_every_check_is_in_the_page() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z]+\.[a-z0-9-]+)` \| (.+?) \|", page, re.MULTILINE))
    assert rows == {id: check.expected for id, check in CATALOGUE.items()}
