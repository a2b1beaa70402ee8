"""Bugs of the engine: decisions, people, time, and the arithmetic below them."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room
from tests.mutants.operators import Target

ROOMS: Final[tuple[Room, ...]] = ()

_APPROVALS: Final = ("tests/engine/test_approvals.py", "tests/engine/test_approvals_time.py")

_PEOPLE: Final = (*_APPROVALS, "tests/engine/test_approvals_edit.py", "tests/engine/test_approvals_in_runs.py")

TARGETS: Final = (
    Target("hai_flow/engine/ids.py", ("tests/engine/test_ids.py",)),
    Target("hai_flow/engine/instances.py", ("tests/engine/test_instances.py",)),
    Target("hai_flow/engine/jobs.py", ("tests/engine/test_jobs.py", "tests/engine/test_failing.py")),
    Target("hai_flow/engine/loops.py", ("tests/engine/test_loops.py",)),
    Target("hai_flow/engine/patch.py", ("tests/engine/test_patch.py",)),
    Target("hai_flow/engine/policies.py", _PEOPLE),
    Target("hai_flow/engine/ballot.py", _PEOPLE),
    Target("hai_flow/engine/quorum.py", ("tests/engine/test_quorum.py",)),
    Target("hai_flow/engine/retry.py", ("tests/engine/test_failing.py",)),
    Target("hai_flow/engine/selectors.py", ("tests/engine/test_selectors.py", "tests/engine/test_approvals.py")),
    Target("hai_flow/engine/slots.py", ("tests/engine/test_queueing.py",)),
    Target("hai_flow/engine/starting.py", ("tests/engine/test_queueing.py", "tests/engine/test_values.py")),
    Target("hai_flow/engine/snapshot.py", ("tests/engine/test_approvals.py",)),
)
