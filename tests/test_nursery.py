"""`tests.support.forking`: the processes of a run of pytest share a nursery, which ends with the last of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from unittest.mock import Mock
from uuid import uuid4

import pytest

from tests.support import forking
from tests.support.forking import ROOT
from tests.support.waiting import until
from tests.support.workers import alive

# A process of pytest's: for each line, it has a process forked, which tells the number of the nursery and its own.
USER: Final = """
import sys
from tests.support import forking
for line in sys.stdin:
    forking.fork("forked", (), (0, 1, 2), folder=sys.argv[1], preloaded=())
"""
FORKED: Final = "import os, time\nprint(os.getppid(), os.getpid(), flush=True)\ntime.sleep(600)\n"


def begin(run: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTEST_XDIST_TESTRUNUID": run}
    command = [sys.executable, "-c", USER, str(folder)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def fork(user: subprocess.Popen[str]) -> list[int]:
    assert user.stdin is not None
    assert user.stdout is not None
    print("fork", file=user.stdin, flush=True)
    return [int(each) for each in user.stdout.readline().split()]


async def test_a_nursery_outlives_its_first_user_and_ends_with_the_last(tmp_path: Path) -> None:
    (tmp_path / "forked.py").write_text(FORKED)
    run = uuid4().hex
    with begin(run, tmp_path) as first, begin(run, tmp_path) as second, begin(uuid4().hex, tmp_path) as stranger:
        nursery, of_first = fork(first)
        again, of_second = fork(second)
        assert again == nursery != fork(stranger)[0]
        first.kill()
        await until(lambda: not alive(of_first))
        assert alive(of_second)
        assert fork(second)[0] == nursery
        second.kill()
        await until(lambda: not [*Path(tempfile.gettempdir()).glob(f"hai-flow-nursery-{run[:12]}*")])
        await until(lambda: not alive(of_second))
        stranger.kill()


def test_a_nursery_that_could_not_be_started_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_PLACES", str(tmp_path / "nursery"))
    monkeypatch.setattr(forking, "_LISTEN_SECONDS_MAX", 0)
    monkeypatch.setattr(subprocess, "Popen", Mock(side_effect=PermissionError))
    for _ in range(2):
        with pytest.raises(PermissionError):
            forking._Nursery(())
