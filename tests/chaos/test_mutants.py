"""The campaign finds bugs: one is tried each night, the others are in the table that `tests.mutants.chaos` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hai_flow_chaos import campaign as campaigns
from hai_flow_chaos.plan import Campaign

from tests.mutants import chaos
from tests.mutants.mutant import ROOT
from tests.mutants.running import LEFT_OUT
from tests.support.examples import NIGHTLY

MUTANTS_MIN = 40
TRIED = "a follower's cursor is one event behind"


def test_every_mutant_of_the_campaign_fits_the_source_as_it_is_today() -> None:
    for mutant in chaos.mutants():
        source = (ROOT / mutant.file).read_text()
        assert mutant.applied(source) != source, mutant.name


def test_the_table_is_of_these_mutants_and_each_survivor_has_its_reason() -> None:
    rows, names = chaos.read_table(), [each.name for each in chaos.mutants()]
    assert len(set(names)) == len(names) >= MUTANTS_MIN
    assert {*rows} <= {*names}
    assert rows[TRIED].found
    assert {name for name, row in rows.items() if not row.found} == set(chaos.SURVIVORS)
    assert all(len(why.split()) >= 4 for why in chaos.SURVIVORS.values())
    assert chaos.TABLE.read_text() == chaos.table(rows)


@pytest.mark.skipif(not NIGHTLY, reason="a campaign of its own takes a minute: tried each night")
@pytest.mark.timeout(900)
async def test_a_campaign_sees_what_a_bug_in_its_processes_breaks(tmp_path: Path) -> None:
    (mutant,) = [each for each in chaos.mutants() if each.name == TRIED]
    for name in ("hai_flow", "migrations"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=LEFT_OUT)
    path = tmp_path / "copy" / mutant.file
    path.write_text(mutant.applied(path.read_text()))
    (tmp_path / "report").mkdir()
    campaign = Campaign(11, minutes=0.2, servers=1, workers=1, runs=30, settle=120)
    extra = {"PYTHONPATH": str(tmp_path / "copy")}
    outcome = await campaigns.run(campaign, tmp_path / "report", first=True, extra=extra)
    assert not outcome.holds
    assert outcome.broken[0].rule == "a follower is shown each event once, in order"
