"""Ctrl-C: it says what is waited for, and a second one ends the process at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from hai_flow.cli.run_until_signal import WORKS_SHOWN, handling, tell_stopping
from tests.support.commands import started


def test_behind_the_word_stopping_a_signal_is_handled_by_nobody_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    with handling(lambda number, frame: None):
        tell_stopping(20.0, [f"step {n}" for n in range(WORKS_SHOWN + 2)])
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == [signal.SIG_DFL] * 2
    says = capsys.readouterr().out
    assert "Waiting up to 20 s for:\n  step 0\n" in says
    assert says.endswith("\n  2 more\nCtrl-C again stops at once.\n")
    assert signal.getsignal(signal.SIGINT) != signal.SIG_DFL


SLOW = """
import asyncio
async def call():
    print("It has begun", flush=True)
    await asyncio.Event().wait()
"""
FLOW = "hai: flow/v1\nname: slow\nversion: 1\ntools: {slow: {python: slow}}\nsteps: [{id: take, call: slow.call}]\n"


def test_a_stop_goes_on_where_nobody_reads_its_words_any_more():
    code = "from hai_flow.cli.run_until_signal import tell_stopping; tell_stopping(20.0, ['step']); raise SystemExit(7)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.close()  # type: ignore[union-attr]
    assert process.wait(60) == 7


def test_a_stop_names_the_step_it_waits_for_and_a_second_signal_ends_it(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "slow.flow.yaml").write_text(FLOW)
    arguments = ("dev", "--port", "0", "--no-open", "--workflows", ".")
    with started(tmp_path / "log", *arguments, folder=tmp_path, HAI_FLOW_DATABASE_URL=database_url) as dev:
        url = dev.wait_for(r"Serving (http://\S+)")[1]
        dev.wait_for("Decide and watch")
        started_run = httpx2.post(f"{url}/v1/runs", json={"workflow": "slow"}).raise_for_status().json()["id"]
        dev.wait_for("It has begun")
        dev.send(signal.SIGINT)
        dev.wait_for(rf"Waiting up to \d+ s for:\n  slow: take \(run {started_run}\)\nCtrl-C again stops at once\.\n")
        assert dev.end(signal.SIGINT) == -signal.SIGINT
        assert "Traceback" not in dev.output
