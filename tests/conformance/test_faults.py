"""Each fault of an endpoint is told by its check, and by no other."""

from __future__ import annotations

import json

import pytest
from hai_flow_conformance import Plan, Report, Result, Unreachable, conform

from tests.conformance.faulty import endpoint

BODIES = ("not-json", "empty", "list", "no-thread", "no-run", "thread-type", "messages-type", "message")
MALFORMED = {f"malformed.{name}" for name in BODIES}
FAULTS = {
    "CRLF": {"stream.line-feeds"},
    "no space": {"stream.data-space"},
    "[DONE]": {"stream.one-object"},
    "null": {"stream.no-nulls"},
    "a fraction of a millisecond": {"stream.timestamps"},
    "something before the start": {"stream.first"},
    "something after the end": {"stream.nothing-after"},
    "a message left open": {"stream.brackets"},
    "a step of one name twice": {"stream.steps"},
    "arguments twice": {"stream.arguments"},
    "an empty delta": {"old.deltas"},
    "an event of its own": {"old.types"},
    "a word as outcome": {"stream.outcome"},
    "pendingToolCallIds": {"old.outcome"},
    "a step without a name": {"stream.fields"},
    "an object as delta": {"stream.deltas"},
    "another runId": {"chat.ids", "answer.continues"},
    "no end": {"stream.terminal", "tool.ends", "disconnect.goes-on"},
    "500 for what is malformed": {"status.no-5xx", *MALFORMED},
    "malformed is taken for empty": {"stream.content-type", *MALFORMED},
    "the answered call again": {"answer.calls-once"},
    "a result of the client's tool": {"answer.no-result"},
    "the old message again": {"answer.new-ids"},
    "a duplicate answer counts": {"answer.duplicate"},
    "another answer counts": {"answer.different"},
    "made-up calls are believed": {"forged.answer"},
    "made-up history is kept": {"forged.history"},
    "changed arguments are kept": {"forged.arguments"},
    "a made-up call closes the real one": {"forged.open-call"},
    "half a character": {"stream.no-nulls"},
    "a disconnect forgets": {"disconnect.goes-on"},
    "a charset on binary": {"accept.binary-type"},
    "a cut binary frame": {"accept.binary-frames", "accept.binary-same"},
    "a frame of another type in binary": {"accept.binary-frames", "accept.binary-same"},
    "a message left open in binary": {"accept.binary-frames", "accept.binary-same"},
    "binary says something else": {"accept.binary-same"},
    "binary for old peers": {"old.no-protobuf"},
}


def report_on(fault: str) -> Report:
    with endpoint(fault) as url:
        return conform(Plan(url, tools={"confirmAction": True}, timeout=10))


def failed(report: Report, level: str) -> set[str]:
    return {each.check.id for each in report.verdicts if each.result is Result.FAIL and each.check.level == level}


def test_an_endpoint_without_a_fault_conforms() -> None:
    report = report_on("")
    assert (failed(report, "must"), failed(report, "should")) == (set(), set())
    assert report.conforms


def test_an_endpoint_that_offers_a_binary_form_has_it_read() -> None:
    report = report_on("binary as well")
    told = {each.check.id: each.result for each in report.verdicts}
    assert {told[id] for id in told if id.startswith("accept.binary")} == {Result.PASS}
    assert report.conforms


def test_an_endpoint_without_a_binary_form_is_not_judged_by_it() -> None:
    told = {each.check.id: each for each in report_on("").verdicts if each.check.id.startswith("accept.binary")}
    assert len(told) == 4
    assert {each.result for each in told.values()} == {Result.NOT_APPLICABLE}
    assert {each.found for each in told.values()} == {"answered text/event-stream"}


def test_an_endpoint_that_says_nothing_twice_has_nothing_to_compare() -> None:
    told = {each.check.id: each for each in report_on("nothing twice in binary").verdicts}
    same = told["accept.binary-same"]
    assert (same.result, same.found) == (
        Result.SKIPPED, "the endpoint says nothing twice, so there is nothing to compare",
    )  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_its_check(fault: str) -> None:
    report = report_on(fault)
    assert failed(report, "must") == FAULTS[fault]
    assert not report.conforms
    for verdict in report.verdicts:
        if verdict.breaks:
            assert verdict.found
            assert json.dumps(verdict.to_json())


def test_a_lapse_that_no_client_dies_of_is_told_and_conforms() -> None:
    report = report_on("no blank line")
    assert failed(report, "should") == {"stream.last-blank"}
    assert report.conforms


def test_the_bytes_that_show_a_fault_are_shown() -> None:
    told = {each["id"]: each for each in report_on("null").to_json()["checks"]}
    assert '"parentRunId": null' in told["stream.no-nulls"]["shown"]
    assert told["stream.no-nulls"]["found"] == "a new thread: RUN_STARTED: parentRunId is null"


def test_where_nothing_answers_nothing_is_reported() -> None:
    with endpoint("") as url:
        pass
    with pytest.raises(Unreachable, match=url):
        conform(Plan(url, timeout=5))
