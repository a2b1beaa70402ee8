"""The rig itself: what is installed once, and what is said where it can't be; and that the linter finds faults."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import cli
from tests.clients import rig
from tests.support import agui_lint


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_directory_is_made_once_for_what_it_depends_on() -> None:
    made: list[Path] = []
    first = rig.made_once("it", [b"a", b"b"], made.append)
    assert rig.made_once("it", [b"a", b"b"], made.append) == first
    other = rig.made_once("it", [b"ab", b""], made.append)
    assert made == [first, other]


def test_half_a_directory_is_made_anew() -> None:
    def half(directory: Path) -> None:
        (directory / "half").touch()
        raise rig.CannotInstall("the network broke")

    with pytest.raises(rig.CannotInstall):
        rig.made_once("it", [b""], half)
    whole = rig.made_once("it", [b""], lambda directory: (directory / "whole").touch())
    assert not (whole / "half").exists()
    assert (whole / "whole").exists()


def test_packages_that_no_registry_gives_fail_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    shutil.copytree(rig.HERE / "node", project)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_fetch_retry_mintimeout", "1")
    monkeypatch.setattr(cli, "build_environment", cli.build_environment.__wrapped__)  # another test may have asked it
    with pytest.raises(rig.CannotInstall, match="could not be installed from npm"):
        rig.npm_packages(project)


def test_a_driver_that_dies_fails_who_waits_for_it() -> None:
    with (
        rig.driving([sys.executable, "-c", "input(); raise SystemExit('no more')"], rig.HERE) as driver,
        pytest.raises(AssertionError, match="no more"),
    ):
        driver.ask("anything")


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
TEXT = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}


def test_a_stream_without_faults_has_none() -> None:
    assert agui_lint.lint(stream(STARTED, TEXT, FINISHED), "1.0") == []


@pytest.mark.parametrize(
    ("version", "event", "fault"),
    [
        ("1.0", {**TEXT, "delta": None}, "valid string"),
        ("1.0", {**TEXT, "delta": ""}, "empty"),
        ("1.0", {**TEXT, "name": None}, "no property"),
        ("1.0", {**STARTED, "parentRunId": None}, "the model writes"),
        ("1.0", {**TEXT, "hai": 1}, "no property"),
        ("1.0", {**TEXT, "timestamp": 1.5}, "integer"),
        ("1.0", {"type": "BUSINESS_DATA_START", "messageId": "m"}, "does not match any"),
        ("1.0", {**FINISHED, "runId": "other"}, "had begun"),
        ("1.0", {**FINISHED, "outcome": {"type": "success"}}, "explicit success"),
        (None, {**FINISHED, "outcome": {"type": "cancelled"}}, "0.x"),
        (None, {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"}, "0.x"),
        ("1.0", {"type": "REASONING_END", "messageId": "m"}, "was not started"),
    ],
)
def test_each_fault_is_found(version: str | None, event: dict[str, Any], fault: str) -> None:
    faults = agui_lint.lint(stream(STARTED, event, FINISHED), version)
    assert any(fault in each for each in faults), faults
