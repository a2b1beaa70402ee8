"""Ctrl-C: it says what is waited for, and a second one ends the process at once."""

from __future__ import annotations

import signal

import pytest

from hai_flow.cli.run_until_signal import handling, tell_stopping


def test_behind_the_word_stopping_a_signal_is_handled_by_nobody_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    with handling(lambda number, frame: None):
        tell_stopping(20.0)
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == [signal.SIG_DFL] * 2
    assert "Running steps have up to 20 s; Ctrl-C again stops at once." in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) != signal.SIG_DFL
