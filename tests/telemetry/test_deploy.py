"""The dashboard, the alerts and the guide name what a process really shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any, Final

import pytest
import yaml

from hai_flow.runtime.base.trace_parent import TraceParent
from hai_flow.runtime.runtime import Answered
from hai_flow.telemetry.database_gauges import Census
from hai_flow.telemetry.instruments import Family
from hai_flow.telemetry.loop_watch import LoopWatch
from hai_flow.telemetry.metrics import Metrics
from hai_flow.telemetry.otlp_exporter import Exporter
from tests.runtime.conftest import ASKING, ECHO, TOOLS, Make, is_now, start
from tests.support.commands import ROOT
from tests.support.scraping import scraped
from tests.support.waiting import until

DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy/grafana/hai-flow.json").read_text())
RULES: Final = ROOT / "deploy/prometheus/hai-flow.rules.yml"
GUIDE: Final = (ROOT / "docs/operations.md").read_text()
ALERTS: Final[list[dict[str, Any]]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
OF_PROMETHEUS: Final = {"up", "instance", "job"}
EXPRESSIONS: Final = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())),
    *(alert["expr"] for alert in ALERTS),
]
# Series of these families begin with the first thing of their kind.
SELDOM: Final = {
    "commit_failures_total",
    "llm_tokens_total",
    "llm_cost_usd_total",
    "llm_answers_total",
    "queue_workers",
    "cell_up",
}


async def families(make: Make) -> list[Family]:
    """Those of a worker in which runs have ended, failed and waited."""
    metrics = Metrics()
    Exporter("http://127.0.0.1:1", metrics)
    census = Census(metrics)
    runtime = await make(performs=True, observers=[metrics, census, LoopWatch(metrics)])
    failing = TOOLS + "steps:\n  - {id: s, call: fx.cancels_itself, retry: {max: 0}}\n"
    for body, ends in ((ECHO, "finished"), (ASKING, "waiting"), (failing, "failed")):
        run_id = (await start(runtime, body, input={"value": "x"} if body is ECHO else None)).run_id
        await until(lambda run_id=run_id, ends=ends: is_now(runtime, run_id, ends))
    for requested in runtime.requests:
        requested(Answered("GET", "/v1/runs", 200, 0.0, 0.01, TraceParent()))
    async with runtime.database.engine.acquire() as connection:
        await connection.execute("DELETE FROM sweeps WHERE name = 'census'")
    await census.look()
    return list(metrics.collect())


async def test_every_metric_of_dashboard_and_alerts_exists_with_its_labels(make: Make) -> None:
    shown = await families(make)
    read = scraped(shown)
    assert len(EXPRESSIONS) > 50
    declared = {family.name.removeprefix("hai_flow_"): family for family in shown}
    for expression in EXPRESSIONS:
        for name, labels in re.findall(r"\b(hai_flow_\w+)(\{[^}]*\})?", expression):
            known = read.labels_of(name)
            if (family := declared.get(name.removeprefix("hai_flow_"))) is not None and name not in read.names():
                assert name.removeprefix("hai_flow_") in SELDOM, f"no process shows {name}"
                known = set(family.names)
            assert known or name in read.names() or family is not None, f"no process shows {name}"
            assert set(re.findall(r"(\w+)\s*(?:=|!=|=~)\"", labels)) <= known, (name, labels, known)
        grouped = re.findall(r"\b(?:by|ignoring|on)\s*\(([^)]*)\)", expression)
        named = {label.strip() for group in grouped for label in group.split(",")}
        all_labels = {label for family in shown for label in family.names} | {"le"} | OF_PROMETHEUS
        assert named <= all_labels, expression


async def test_the_guide_has_each_metric_with_its_labels_and_no_other(make: Make) -> None:
    table = GUIDE.partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `hai_flow_(\w+)`(?: \(([^)]*)\))? \|", table, re.MULTILINE)
    told = {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert told == {family.name.removeprefix("hai_flow_"): family.names for family in await families(make)}
    assert len(rows) == len(told)


def test_each_alert_says_what_to_do() -> None:
    table = GUIDE.partition("## Alerts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(HaiFlow\w+)` \| ([^|]{20,}) \| ([^|]{20,}) \|$", table, re.MULTILINE)
    assert [name for name, _, _ in rows] == [alert["alert"] for alert in ALERTS]


def test_each_panel_says_what_it_shows() -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"].endswith(".") or panel["description"] for panel in panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_takes_the_rules_and_the_configuration() -> None:
    for arguments in (["check", "rules", str(RULES)], ["check", "config", str(RULES.parent / "prometheus.yml")]):
        checked = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
