"""`hai-flow doctor` over a real database: what was found, a remedy for each fault, and an exit code for scripts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app


def test_what_is_bad_is_named_with_its_remedy_and_the_exit_code(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAI_FLOW_DATABASE_URL", database_url)
    told = CliRunner().invoke(app, ["doctor"])
    assert told.exit_code == 1
    assert "database.role: connect as a role without it" in told.output
    checks = {each["name"]: each for each in json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)["checks"]}
    assert checks["schema"]["verdict"] == "good"
    assert checks["database.role"]["verdict"] == "bad"
    assert checks["identity"]["verdict"] == "doubtful"
    assert checks["audit.triggers"]["verdict"] == "good"


def test_a_database_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_FLOW_DATABASE_URL", "postgresql://127.0.0.1:1/nothing")
    told = CliRunner().invoke(app, ["doctor"])
    assert told.exit_code == 1
    assert "does not answer" in told.output
    assert "Traceback" not in told.output
