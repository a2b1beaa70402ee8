"""A short campaign of faults on real processes, after which every promise holds. `make chaos` is the whole of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hai_flow_chaos import campaign as campaigns
from hai_flow_chaos.plan import Campaign
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.support.examples import SEED, by_night
from tests.support.forking import ROOT

SETTLE_SECONDS = 120  # a machine with much to do: what is measured here is whether, not when


@pytest.mark.costly
@pytest.mark.timeout(900)
async def test_a_short_campaign_breaks_no_promise(tmp_path: Path) -> None:
    campaign = Campaign(SEED, minutes=by_night(0.5, 0.35), servers=2, workers=2, runs=60, settle=SETTLE_SECONDS)
    print(f"seed {SEED}: {campaign.command}")
    outcome = await campaigns.run(campaign, tmp_path, patient=True)
    campaigns.written(outcome, tmp_path)
    assert [str(each) for each in outcome.broken[:5]] == [], campaign.command
    numbers = outcome.history.tallies
    reached = (
        "processes_killed",
        "services_killed",
        "postgres_crashed",
        "connections_cut",
        "seconds_without_hints",
        "requests_lost",
    )
    assert all(numbers[name] for name in reached), numbers
    assert len(outcome.history.started) >= campaign.runs
    assert outcome.verified.runs >= campaign.runs
    assert json.loads((tmp_path / "chaos.json").read_text())["repeat"] == campaign.command
    page = (tmp_path / "chaos.html").read_text()
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"<script|<link|<img|\b(?:src|href)=|url\(|@import", page), "it needs nothing else"


def test_an_error_of_a_database_that_is_away_is_no_fault_of_a_process(tmp_path: Path) -> None:
    rows = (ROOT / "docs" / "production.md").read_text().splitlines()
    (row,) = [row for row in rows if "the database does not answer, or refuses" in row]
    source = "".join(path.read_text() for path in (ROOT / "hai_flow").rglob("*.py"))
    away = [event for event in re.findall(r"`(\w+)`", row.split("|")[1]) if f'log.error("{event}"' in source]
    assert {"database_unavailable", "store_failed"} <= set(away)
    log = [json.dumps({"event": event, "level": "error"}) for event in (*away, "task_failed")]
    (tmp_path / "worker-1.log").write_text("\n".join(log))
    (fault,) = campaigns._faults_said(tmp_path)
    assert "task_failed" in fault.message


def test_it_breaks_no_database_that_somebody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_FLOW_DATABASE_URL", "postgresql://somebody@example.com/precious")
    result = CliRunner().invoke(app, ["chaos", "--seed", "1"])
    assert result.exit_code == 2
    assert "HAI_FLOW_DATABASE_URL names one. Unset it." in result.output
    assert "precious" not in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minutes", "0"], "expected a number above 0 for --minutes, found '0'."),
        (["--settle", "soon"], "expected a number above 0 for --settle, found 'soon'."),
        (["--servers", "0"], "expected a whole number from 1 to 100000 for --servers, found 0."),
        (["--report", str(ROOT)], "expected a directory for the report that is empty or not there yet"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(options: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["chaos", *options])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
