"""Some kills between vote, effect and receipt: `python -m tests.chaos.receipts --kills 1000` is the whole of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.receipts import STAGES, Proof, drill, find_faults

KILLS = int(os.environ.get("HAI_FLOW_TEST_RECEIPT_KILLS", "12"))


@pytest.mark.costly
@pytest.mark.timeout(900 + 10 * KILLS)
async def test_after_kills_each_decision_has_one_receipt_true_to_the_log(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    made, faults = await drill(KILLS, seed, tmp_path)
    assert faults == [], seed
    assert made.kills >= KILLS
    assert len(made.proofs) >= 8
    assert made.struck[STAGES[2]] or made.struck[STAGES[1]], made.struck


def test_a_second_receipt_is_a_fault() -> None:
    content = {"votes": [], "executed": [], "decision": {"outcome": "reject"}}
    proof = Proof("r", "p", "reject", {b"1", b"2"}, content)
    from hai_flow.engine import events as e

    opened = e.PendingOpened(at=0, id="p", path="act", kind="gate", digest="")
    assert find_faults(proof, [opened], []) == ["2 receipts were given"]
    done = e.AttemptStarted(at=0, path="act", attempt=1)
    proof.receipts.pop()
    assert len(find_faults(proof, [opened, done], [1])) == 2
