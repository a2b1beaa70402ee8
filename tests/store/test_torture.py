"""The torture in small, and of every check of its oracle the proof that it rejects what it is there to reject."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.store import torture as t
from tests.support import citus
from tests.support.examples import by_night
from tests.support.skewed import SkewedServer

RUN = UUID(int=10)
TENANT = UUID(int=1)
STRANGER = UUID(int=2)


async def test_cut_connections_and_stalled_processes_lose_and_repeat_nothing(database_url: str) -> None:
    seconds = by_night(6, 4) if citus.CITUS is None else 20  # each statement takes longer there
    wanted = {"ack", "perform", "unknown", "poisoned"}
    report = await t.torture(database_url, seconds=seconds, processes=3, seed=7, wanted=wanted)
    assert report.violations == []
    assert {name for name in wanted if report.numbers.get(name)} == wanted, report.numbers
    assert report.numbers["stalls"] > 0
    assert report.numbers["backends terminated"] > 0


async def test_nor_while_the_databases_clock_jumps_by_more_than_a_lease(skewed: SkewedServer) -> None:
    wanted, seconds = ("ack", "perform", "died"), by_night(6, 4)
    report = await t.torture(skewed.dsn, seconds, processes=3, seed=8, skew=skewed.skew, wanted=wanted)
    assert report.violations == []
    assert all(report.numbers.get(name) for name in (*wanted, "skews", "stalls")), report.numbers


def good() -> t.Evidence:
    """One run with three commits: born with attempt 1; a chunk; done, with a pending."""
    commits = [
        (1, [{"e": "start", "slot": "thread:1"}, {"e": "cmd", "id": "start"}, {"e": "began", "a": 1}]),
        (1, [{"e": "chunk", "a": 1, "n": 0}]),
        (2, [{"e": "done", "a": 1}, {"e": "cmd", "id": "c1"}, {"e": "asked", "id": "p-c1"}]),
    ]
    log, seq, head, size = [], 0, b"", 0
    for version, events in commits:
        body = t.dumps(events)
        head, size = hashlib.sha256(head + body).digest(), size + len(body)
        row = {"run_id": RUN, "tenant": TENANT, "first_seq": seq + 1, "version": version, "events": body}
        seq += len(events)
        log.append(row | {"last_seq": seq})
    run = {
        "id": RUN, "tenant": TENANT, "seq": 7, "version": 2, "fence": 1, "head": head, "log_bytes": size,
        "status": "waiting", "slot": "thread:1",
    }  # fmt: skip
    mine = {"run_id": RUN, "tenant": TENANT}
    return t.Evidence(
        runs=[run],
        log=log,
        commands=[mine | {"command_id": "start"}, mine | {"command_id": "c1"}],
        slots=[mine | {"slot": "thread:1"}],
        children={
            "pendings": [mine | {"id": "p-c1"}],
            "votes": [mine | {"pending_id": "p-c1"}],
            "outbox": [mine | {"last_seq": 7, "n": 0}],
            "turns": [mine | {"first_seq": 1}],
            "messages": [mine | {"seq": 2}],
        },
        notes=[
            {"saw": str(RUN), "version": 1, "fence": 0, "worker": 5},
            {"ack": str(RUN), "id": "start"},
            {"perform": str(RUN), "attempt": 1, "fence": 0, "worker": 5},
            {"saw": str(RUN), "version": 2, "fence": 1, "worker": None},
            {"ack": str(RUN), "id": "c1"},
        ],
    )


def rewrite(row: int, *events: dict[str, object]) -> Callable[[t.Evidence], None]:
    def violate(evidence: t.Evidence) -> None:
        evidence.log[row]["events"] = t.dumps(events)

    return violate


def test_the_oracle_accepts_what_is_right() -> None:
    assert [violation for check in t.CHECKS for violation in check(good())] == []


VIOLATORS: list[tuple[Callable[[t.Evidence], object], Callable[[t.Evidence], object]]] = [
    (t.log_is_gap_free, lambda e: e.log.pop(1)),
    (t.log_is_gap_free, lambda e: e.log.append(copy.copy(e.log[2]) | {"last_seq": 9, "first_seq": 7})),
    (t.log_is_gap_free, rewrite(1, {"e": "chunk", "a": 1, "n": 0}, {"e": "chunk", "a": 1, "n": 1})),
    (t.runs_agree_with_their_log, lambda e: e.runs[0].update(seq=8)),
    (t.runs_agree_with_their_log, rewrite(1, {"e": "chunk", "a": 1, "n": 1})),
    (t.runs_agree_with_their_log, lambda e: e.runs[0].update(log_bytes=1)),
    (t.runs_agree_with_their_log, lambda e: e.runs.clear()),
    (t.versions_are_monotone, lambda e: e.log[2].update(version=3)),
    (t.versions_are_monotone, lambda e: e.log[1].update(version=2)),
    (t.versions_are_monotone, lambda e: e.runs[0].update(version=3)),
    (t.acknowledged_commands_happened_once, lambda e: e.notes.append({"ack": str(RUN), "id": "c2"})),
    (t.acknowledged_commands_happened_once, rewrite(2, {"e": "cmd", "id": "c1"}, {"e": "cmd", "id": "c1"})),
    (t.acknowledged_commands_happened_once, lambda e: e.commands.pop()),
    (
        t.attempts_are_performed_by_the_holder_once,
        lambda e: e.notes.append({"perform": str(RUN), "attempt": 1, "fence": 2, "worker": 6}),
    ),
    (t.attempts_are_performed_by_the_holder_once, lambda e: e.notes[2].update(worker=6)),
    (t.fences_rise, lambda e: e.notes.append({"saw": str(RUN), "version": 1, "fence": 0, "worker": 6})),
    (t.fences_rise, lambda e: e.notes.append({"saw": str(RUN), "version": 1, "fence": 3, "worker": 6})),
    (t.fences_rise, lambda e: e.runs[0].update(fence=0)),
    (t.attempts_are_well_formed, rewrite(1, {"e": "chunk", "a": 1, "n": 1})),
    (t.attempts_are_well_formed, rewrite(1, {"e": "chunk", "a": 2, "n": 0})),
    (t.attempts_are_well_formed, rewrite(1, {"e": "began", "a": 2})),
    (t.attempts_are_well_formed, rewrite(2, {"e": "done", "a": 1}, {"e": "done", "a": 1})),
    (t.slots_are_held_by_their_runs, lambda e: e.slots.clear()),
    (t.slots_are_held_by_their_runs, lambda e: e.runs[0].update(status="finished")),
    (t.tenants_keep_to_themselves, lambda e: e.children["votes"][0].update(tenant=STRANGER)),
    (t.tenants_keep_to_themselves, lambda e: e.log[0].update(tenant=STRANGER)),
    (t.tenants_keep_to_themselves, lambda e: e.notes.append({"foreign": str(RUN)})),
    (t.children_came_with_their_commit, lambda e: e.children["pendings"].clear()),
    (t.children_came_with_their_commit, lambda e: e.children["votes"][0].update(pending_id="p-c2")),
    (t.children_came_with_their_commit, lambda e: e.children["outbox"][0].update(last_seq=6)),
    (t.children_came_with_their_commit, lambda e: e.children["turns"].clear()),
    (t.children_came_with_their_commit, lambda e: e.children["messages"][0].update(seq=3)),
    (t.nothing_unexpected_was_raised, lambda e: e.notes.append({"fault": "retry", "state": "40P01", "text": ""})),
    (t.nothing_unexpected_was_raised, lambda e: e.notes.append({"fault": "data", "state": "23505", "text": ""})),
    (t.nothing_unexpected_was_raised, lambda e: e.notes.append({"lost_alone": str(RUN)})),
    (t.nothing_unexpected_was_raised, lambda e: e.notes.append({"crashed": "process 1"})),
]


@pytest.mark.parametrize(("check", "violate"), VIOLATORS)
def test_the_oracle_rejects(check: Callable, violate: Callable) -> None:  # type: ignore[type-arg]
    evidence = good()
    violate(evidence)
    assert list(check(evidence)), json.dumps(evidence.notes, default=str)


def test_every_check_of_the_oracle_has_a_violator() -> None:
    assert {check for check, _ in VIOLATORS} == set(t.CHECKS)
