"""Decisions do not depend on chance: in another process texts have other hashes, and sets and the state's maps another
order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import MINUTE, Play

BRANCHES = "".join(f"      b{n}: [{{id: e{n}, call: t.f, timeout: 1m}}]\n" for n in range(12))
TIMEOUTS = f"steps:\n  - id: p\n    parallel:\n{BRANCHES}    catch: [{{steps: [{{say: '${{{{ error.path }}}}'}}]}}]\n"
GRACE = f"steps:\n  - id: p\n    parallel:\n{BRANCHES.replace('timeout: 1m', 'finally: [{say: gone}]')}"
ASKED = "".join(f"      b{n}: [{{id: q{n}, ask: {{title: Q, form: {{properties: {{}}}}}}}}]\n" for n in range(12))
STOPPED = f"steps:\n  - id: p\n    parallel:\n{ASKED}"


def story() -> list[str]:
    """What happens when much of a run ends at the same moment."""
    late = Play(TIMEOUTS)
    late.start()
    late.advance(MINUTE)
    cut = Play(GRACE)
    cut.start()
    cut.stop()
    cut.advance(MINUTE)
    left = Play(STOPPED)
    left.start()
    left.stop()
    return [repr(event) for play in (late, cut, left) for event in play.events]


def told(seed: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", "from tests.engine.test_chance import story; print('\\n'.join(story()))"],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.costly
def test_every_process_decides_alike() -> None:
    first, second, third = (told(seed) for seed in (1, 2, 3))
    assert first == second == third
    assert first.count("\n") > 100
