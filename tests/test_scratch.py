"""Temporary files lie in memory where that is possible, and where somebody wants them everywhere else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import scratch


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = tempfile.tempdir
    yield
    tempfile.tempdir = before


def test_what_is_written_goes_to_memory_that_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(scratch, "FREE_MIN", 1)
    scratch.use_memory(tmp_path)
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)


def test_it_goes_where_somebody_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.setattr(scratch, "FREE_MIN", 1)
    scratch.use_memory(tmp_path)
    assert os.environ["TMPDIR"] == "/elsewhere"


@pytest.mark.parametrize("lacks", ["a directory", "room"])
def test_memory_without_room_is_left_alone(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(scratch, "FREE_MIN", 1 << 70 if lacks == "room" else 1)
    before = tempfile.gettempdir()
    scratch.use_memory(tmp_path if lacks == "room" else tmp_path / "nothing")
    assert "TMPDIR" not in os.environ
    assert tempfile.gettempdir() == before
