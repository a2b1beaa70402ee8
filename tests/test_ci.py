"""`.ci/run`: a test that fails is run once more, alone, and only a pass of all of them lets the run pass. Which rows of
large tables the suite tries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests import conftest
from tests.support import examples

ROOT: Final = Path(__file__).resolve().parents[1]

COMMAND: Final = """\
import pathlib, sys
words = sys.argv[1:]
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(repr(words) + chr(10))
if words[0] == "check":
    sys.exit({check})
if words[1].startswith("--failures="):
    pathlib.Path(words[1].partition("=")[2]).write_text({failures!r})
    sys.exit({first})
sys.exit({second})
"""


def run(directory: Path, *, failures: str = "", check: int = 0, first: int = 0, second: int = 0) -> tuple[int, str]:
    """The exit code of `.ci/run` over a command that ends so, and the calls that it made of it."""
    (directory / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", directory / ".ci" / "run")
    (directory / "cli.py").write_text(COMMAND.format(check=check, failures=failures, first=first, second=second))
    (directory / "python3").symlink_to(sys.executable)
    path = {"PATH": f"{directory}:/usr/bin:/bin"}
    ended = subprocess.run(["bash", ".ci/run"], cwd=directory, capture_output=True, text=True, env=path)
    return ended.returncode, ended.stdout + (directory / "calls").read_text()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ({}, 0),
        ({"check": 1}, 1),
        ({"first": 1, "failures": "a::b[x y]\nc::d\n"}, 0),
        ({"first": 1, "second": 1, "failures": "a::b\n"}, 1),
        ({"first": 1, "failures": "a::b\n", "check": 1}, 1),
        ({"first": 1, "failures": ""}, 1),
        ({"first": 1, "failures": "a::b\n" * 11}, 1),
        ({"first": 2, "failures": "a::b\n"}, 2),
    ],
    ids=["green", "check", "unstable", "twice", "unstable and check", "no names", "too many", "interrupted"],
)
def test_a_run_passes_if_its_failures_pass_alone(tmp_path: Path, outcome: dict[str, object], code: int) -> None:
    assert run(tmp_path, **outcome)[0] == code  # type: ignore[arg-type]


def test_a_failure_is_repeated_by_its_whole_id_and_named_as_unstable(tmp_path: Path) -> None:
    _, output = run(tmp_path, first=1, failures="a::b[x y]\nc::d\n")
    assert "['test', '-n0', '-rA', 'a::b[x y]', 'c::d']" in output
    assert "unstable, if it passes alone: a::b[x y]" in output


def test_the_file_of_failures_is_written_by_the_real_command(tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    failures.touch()  # as `mktemp` leaves it
    command = [sys.executable, "-m", "pytest", f"--failures={failures}", "--collect-only", "-n0", "-k", "no_such_test"]
    ended = subprocess.run([*command, "tests/test_ci.py"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 5, ended.stderr
    line = next(line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "--failures" in line)
    assert '--failures="$failures"' in line


@pytest.mark.parametrize(
    ("least", "share", "sizes"),
    [
        (examples.CASES_MIN, examples.CASES_SHARE, {"small": 2, "large": 4, "huge": 50}),
        (examples.ROWS_MIN, examples.ROWS_SHARE, {"small": 1, "large": 2, "huge": 17}),
        (examples.COSTLY_MIN, examples.COSTLY_SHARE, {"small": 1, "large": 4, "huge": 50}),
    ],
)
def test_a_days_rows_are_some_of_a_large_table_and_all_of_a_small_one(
    monkeypatch: pytest.MonkeyPatch, least: int, share: int, sizes: dict[str, int]
) -> None:
    rows = [(table, n) for table, size in {"small": 2, "large": 30, "huge": 400}.items() for n in range(size)]

    def draw(seed: int) -> list[tuple[str, int]]:
        monkeypatch.setattr(examples, "SEED", seed)
        return examples.draw(rows, lambda row: row[0], least, share)

    monkeypatch.setattr(examples, "NIGHTLY", False)
    monkeypatch.delenv("TEST_ROWS", raising=False)
    assert Counter(table for table, _ in draw(1)) == sizes
    assert draw(1) == draw(1) != draw(2)
    assert {row for day in range(7, 31) for row in draw(day)} == set(rows), "within 24 days each has its turn"
    monkeypatch.setenv("TEST_ROWS", "all")
    assert draw(1) == rows


def test_each_row_of_costly_tables_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a table of many rows stands beside many tables, as the days of both go round."""
    rows = [(f"{folder}/{table}", n) for folder in "ab" for table in range(17) for n in range(1 + 3 * table)]
    monkeypatch.setattr(examples, "NIGHTLY", False)
    monkeypatch.delenv("TEST_ROWS", raising=False)
    days = []
    for seed in range(20_800, 20_800 + 24 * examples.COSTLY_SHARE):
        monkeypatch.setattr(examples, "SEED", seed)
        days.append(examples.draw_costly(rows, lambda row: row[0], lambda table: table[0]))
    assert {row for drawn in days for row in drawn} == set(rows)
    assert max(map(len, days)) <= len(rows) / 20


@pytest.mark.parametrize(
    ("source", "worker", "whole"),
    [("TESTPATHS", {}, True), ("ARGS", {}, False), ("ARGS", {"whole": True}, True), ("ARGS", {"whole": False}, False)],
)
def test_rows_are_drawn_where_nobody_has_named_a_file(source: str, worker: dict[str, Any], whole: bool) -> None:
    """A process of pytest-xdist asks the one that controls it."""
    config: Any = SimpleNamespace(args_source=pytest.Config.ArgsSource[source], workerinput=worker)
    assert conftest._is_whole(config) is whole
