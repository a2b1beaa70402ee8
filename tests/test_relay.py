"""`tests.support.relay`: a program that a nursery forks behaves as one that has started by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.forking import nurse_relayed, relayed


@pytest.fixture(scope="module", autouse=True)
def nursery() -> None:
    nurse_relayed()


def test_a_relayed_program_has_its_callers_files_folder_and_environment(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text("import os\nprint(input(), os.environ['SHOWN'], os.getcwd(), flush=True)\n")
    ended = subprocess.run(
        relayed("shown"), input=b"hello\n", capture_output=True, cwd=tmp_path, env={"SHOWN": "yes"}, check=True
    )
    assert ended.stdout.decode().split() == ["hello", "yes", str(tmp_path)]


def test_a_relayed_program_dies_with_its_relay() -> None:
    with subprocess.Popen(
        relayed("tests.support.mcp_server"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        program.kill()
        assert program.stdout is not None
        assert program.stdout.read() == b""
