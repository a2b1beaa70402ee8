"""Why a run does not go on, as `show` says it: its slot, its pause, its stop, the end of its wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.cli.runs.history import build_lines
from hai_flow.cli.runs.show import next_commands
from hai_flow.cli.runs.why_waiting import (
    describe_stop,
    describe_worker,
    find_key_awaited,
    holding,
    limit_of,
    map_ends_of_waits,
)
from hai_flow.cli.terminal import moment, program
from hai_flow.values import Json
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

FLOW = """\
hai: flow/v1
name: seated
version: 1
concurrency: {key: desk}
steps:
  - id: paid
    wait_for: {event: payment.received, deadline: 3d}
"""
AT, LATER = "2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z"


def typed(url: str, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--server", url])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn) as process:
        assert httpx2.post(f"{process.url}/v1/workflows", content=FLOW, headers=YAML).status_code == 201
        yield process


@pytest.fixture
def run(server: ServerProcess) -> Iterator[str]:
    """A run that waits for a payment."""
    id = json.loads(typed(server.url, "run", "seated", "--detach", "--json"))["run_id"]
    with httpx2.stream("GET", f"{server.url}/v1/runs/{id}/events", headers={"accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            if line == "event: timer_set":
                break
    yield id
    typed(server.url, "terminate", id)


def fact(shown: str, name: str) -> str:
    return next(line.partition("\t")[2] for line in shown.splitlines() if line.startswith(f"{name}\t"))


def test_a_queued_run_names_its_key_and_its_holder_with_a_command(server: ServerProcess, run: str) -> None:
    queued = json.loads(typed(server.url, "run", "seated", "--detach", "--json"))["run_id"]
    shown = typed(server.url, "show", queued)
    assert fact(shown, "waits for") == "the concurrency key 'desk', of which 1 run may be active at once"
    assert fact(shown, "held by") == f"{run} (waiting)"
    assert f"The run before it: {program()} show {run}\n" in shown
    typed(server.url, "terminate", queued)


def test_a_wait_for_says_until_when_it_waits(server: ServerProcess, run: str) -> None:
    (timer,) = json.loads(typed(server.url, "show", run, "--json"))["snapshot"]["timers"]
    assert f"for a signal payment.received, until {moment(timer['due'])}" in typed(server.url, "show", run)


def test_a_paused_run_says_who_paused_it_when_and_why(server: ServerProcess, run: str) -> None:
    assert f"Next: {program()} resume {run}" in typed(server.url, "pause", run, "--reason", "the bank is closed")
    assert fact(typed(server.url, "show", run), "paused").endswith("Z by user:local: the bank is closed")


def test_a_stopped_run_says_who_stopped_it_when_and_why() -> None:
    events: list[dict[str, Any]] = [
        {"type": "run_stopping", "at": AT, "by": "user:ann", "reason": "too late"},
        {"type": "step_stopped", "at": AT, "path": "a"},
        {"type": "run_stopped", "at": LATER, "by": "user:bob", "terminated": True},
    ]
    assert describe_stop({"status": "stopping"}, events[:2]) == "2026-01-01 00:00:00Z by user:ann: too late"
    assert describe_stop({"status": "stopped"}, events) == "terminated 2026-01-01 01:00:00Z by user:bob"
    assert describe_stop({"status": "running"}, events) == ""


@pytest.mark.parametrize(
    ("holder", "told"),
    [
        (None, ""),
        ({"name": "vm:7", "alive": True}, "vm:7"),
        ({"name": "vm:7", "alive": False}, "vm:7, which gives no sign of life: another worker takes the run over"),
    ],
)
def test_a_run_that_is_performed_names_its_worker(holder: Json, told: str) -> None:
    assert describe_worker({"held_by": holder}) == told
    assert describe_worker({}) == ""


def test_many_holders_are_counted_and_none_means_that_it_is_about_to_begin() -> None:
    holders = [{"run_id": str(n), "status": "waiting" if n else None} for n in range(5)]
    run = {"id": "q", "status": "queued", "unreadable": None}
    queued = {**run, "queued_for": {"key": "k", "limit": 5, "holders": holders}}
    assert holding(queued) == "0 (starting), 1 (waiting), 2 (waiting) and 2 more"
    assert len(list(next_commands(queued, [], []))) == 4
    assert holding({**run, "queued_for": {"key": "k", "limit": 1, "holders": []}}).startswith("nobody now")
    assert find_key_awaited(run) == holding(run) == ""


def test_a_wait_ends_by_its_timer_and_not_while_a_pause_halts_it() -> None:
    events = [
        {"type": "step_started", "path": "a", "verb": "wait_for", "at": AT},
        {"type": "signals_awaited", "path": "a", "types": ["paid"], "at": AT},
        {"type": "timer_set", "path": "a", "kind": "halting_deadline", "due": LATER, "at": AT},
    ]
    assert [line.note for line in build_lines(events, {})] == ["for a signal paid, until 2026-01-01 01:00:00Z"]
    timer = {"path": "a", "kind": "halting_deadline", "due": "2026-01-01T00:30:00.000Z"}
    now = map_ends_of_waits({"status": "waiting", "timers": [timer]})
    assert [line.note for line in build_lines(events, {}, ends=now)] == [
        "for a signal paid, until 2026-01-01 00:30:00Z"
    ]
    paused = map_ends_of_waits({"status": "paused", "timers": [timer, {"path": "a", "kind": "remind", "due": AT}]})
    (line,) = build_lines(events, {}, ends=paused)
    assert line.note == "for a signal paid, its deadline stands still meanwhile"


def test_the_limit_of_the_whole_run_is_told() -> None:
    limit = {"path": "", "kind": "limit", "due": LATER}
    assert limit_of({"timers": [limit]}) == "2026-01-01 01:00:00Z"
    assert limit_of({"timers": []}) == ""


def test_a_step_that_a_person_had_skipped_says_who_and_why() -> None:
    events = [{"type": "step_skipped", "path": "a", "at": AT, "by": "user:ann", "reason": "nobody is there"}]
    assert [line.note for line in build_lines(events, {})] == ["by user:ann: nobody is there"]
