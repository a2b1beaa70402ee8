"""What `run` tells of a run: each thing once, in plain words."""

from __future__ import annotations

import inspect
import io
from typing import Any

from hai_flow.cli.console import TextConsole
from hai_flow.cli.run.transcript import Transcript
from hai_flow.cli.runs.follow import LINES, Narrator
from hai_flow.engine.events import TYPE_NAMES

LATER = "2026-01-01T01:00:00.000Z"
ERROR = {"code": "tool.failed", "message": "ValueError: no seat", "path": "each[1]/book"}
TRACE = 'Traceback (most recent call last):\n  File "shop.py", line 2, in book\nValueError: no seat\n'


def told(*events: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    transcript = Transcript(TextConsole(stream))
    for event in events:
        transcript.show(event)
    return stream.getvalue().splitlines()


def test_a_failure_is_shown_once_at_its_origin_and_at_the_end_by_place() -> None:
    raised = {"type": "warning_raised", "path": "each[1]/book", "code": "tool.trace", "message": TRACE}
    assert told(
        raised,
        {"type": "step_retried", "path": "each[1]/book", "attempt": 1, "error": ERROR, "due": LATER},
        {"type": "attempt_started", "path": "each[1]/book", "attempt": 2},
        raised,
        {"type": "step_failed", "path": "each[1]/book", "error": ERROR},
        {"type": "iteration_ended", "path": "each[1]", "status": "failed", "error": ERROR},
        {"type": "step_failed", "path": "each", "error": ERROR},
        {"type": "step_failed", "path": "", "error": ERROR, "handler": "~undo"},
        {"type": "handler_started", "path": "", "handler": "~finally"},
        {"type": "run_failed", "error": ERROR},
    ) == [
        "↻ each[1]/book: attempt 1 failed (tool.failed: ValueError: no seat); again at 2026-01-01 01:00:00Z",
        "✗ each[1]/book: tool.failed: ValueError: no seat",
        "  Traceback (most recent call last):",
        '    File "shop.py", line 2, in book',
        "↳ the run takes back what it has done",
        "failed at each[1]/book: tool.failed",
    ]


def test_a_failure_that_was_not_told_before_is_told_whole_at_the_end() -> None:
    error = {"code": "limit.duration", "message": "it took longer than 1h"}
    assert told({"type": "run_failed", "error": error}) == ["failed: limit.duration: it took longer than 1h"]


def test_a_failure_that_ends_the_run_is_told_at_the_end_alone() -> None:
    assert told(
        {"type": "warning_raised", "path": "each[1]/book", "code": "tool.trace", "message": TRACE},
        {"type": "step_failed", "path": "each[1]/book", "error": ERROR},
        {"type": "iteration_ended", "path": "each[1]", "status": "failed", "error": ERROR},
        {"type": "step_failed", "path": "each", "error": ERROR},
        {"type": "step_failed", "path": "", "error": ERROR},
        {"type": "turn_ended", "reason": "failed"},
        {"type": "run_failed", "error": ERROR},
    ) == [
        "✗ each[1]/book",
        "  Traceback (most recent call last):",
        '    File "shop.py", line 2, in book',
        "failed: tool.failed: ValueError: no seat (at each[1]/book)",
    ]


def test_a_failure_that_ends_nothing_is_told_as_soon_as_the_run_goes_on() -> None:
    assert told(
        {"type": "step_failed", "path": "both/a/book", "error": {**ERROR, "path": "both/a/book"}},
        {"type": "branch_ended", "path": "both", "branch": "a", "failed": True},
        {"type": "turn_ended", "reason": "waiting"},
    ) == ["✗ both/a/book: tool.failed: ValueError: no seat"]


def test_what_is_for_programs_is_left_out_and_progress_is_told() -> None:
    assert told(
        {"type": "custom_emitted", "path": "note", "name": "booked", "value": {"a": 1}},
        {"type": "custom_emitted", "path": "pay", "name": "hai.progress", "value": {"message": "asking", "done": 3,
                                                                                 "total": 10}},
        {"type": "model_used", "path": "first", "attempt": 1, "use": {"model": "smart"}},
        {"type": "something_new", "seq": 9},
    ) == ["… pay: asking, 3 of 10"]  # fmt: skip


def test_a_model_s_words_are_not_repeated_as_its_step_s_output() -> None:
    assert told(
        {"type": "step_started", "path": "first", "verb": "llm"},
        {"type": "message_chunk", "message_id": "m", "content": "Tea, "},
        {"type": "message_chunk", "message_id": "m", "content": "please."},
        {"type": "message_ended", "message_id": "m"},
        {"type": "step_finished", "path": "first", "output": "Tea, please."},
    ) == ["▸ first: llm", "Tea, please.", "✓ first"]


def test_a_decision_is_shown_once_and_again_only_after_several_votes() -> None:
    asked = {"type": "pending_opened", "id": "call_1", "kind": "approve", "title": "Ship?", "path": "gate"}
    vote = {"type": "vote_cast", "id": "call_1", "by": "user:ann", "decision": "approve", "reason": "tested"}
    decided = {"type": "pending_decided", "id": "call_1", "outcome": "approve", "by": "user:bob"}
    begun = {"type": "step_started", "path": "gate", "verb": "approve"}
    end = {"type": "step_finished", "path": "gate", "output": {"decision": "approve", "votes": [], "expired": False}}
    one = told(begun, asked, vote, decided, end)
    assert one == ["? Ship?", "  approve call_1", "! user:ann votes approve: tested"]
    assert told(begun, asked, vote, {**vote, "by": "user:bob"}, decided, end)[-1] == "! approve by user:bob"


def test_waits_and_queues_say_for_what_and_until_when() -> None:
    waits = (
        {"type": "step_started", "path": "paid", "verb": "wait_for"},
        {"type": "signals_awaited", "path": "paid", "types": ["payment.received", "callback:paid"]},
        {"type": "timer_set", "path": "paid", "kind": "deadline", "due": LATER},
        {"type": "signal_received", "path": "paid", "id": "s", "name": "payment.received", "data": {"sum": 3}},
        {"type": "step_finished", "path": "paid", "output": {"id": "s"}},
    )
    assert told({"type": "run_queued", "slot": "shop:order-A1"}, *waits) == [
        "queued, until a run with the same concurrency key 'order-A1' has ended",
        "⏲ paid: waits for payment.received or a callback",
        "⏲ paid: waits until 2026-01-01 01:00:00Z",
        '✉ paid: payment.received has come {"sum": 3}',
    ]


def test_state_is_told_as_it_is_now() -> None:
    ops = [
        {"op": "replace", "path": "/count", "value": 1},
        {"op": "add", "path": "/list/-", "value": "a"},
        {"op": "remove", "path": "/old"},
        {"op": "move", "path": "/b", "from": "/a"},
    ]
    assert told({"type": "state_changed", "path": "up", "ops": ops}) == [
        "Δ count = 1", 'Δ list gets "a"', "Δ old is removed", "Δ b is what a was",
    ]  # fmt: skip


def test_events_still_name_every_event_of_the_log() -> None:
    stream = io.StringIO()
    Narrator(TextConsole(stream)).show({"type": "handler_started", "path": "a", "handler": "~finally"})
    assert stream.getvalue() == '· handler started {"path": "a", "handler": "~finally"}\n'


def test_methods_that_print_an_event_are_named_after_one() -> None:
    """They are found by their names, as the events of `LINES` are: one that is named otherwise prints nothing."""
    of_events = {
        name.removeprefix("_print_")
        for kind in (Narrator, Transcript)
        for name, method in vars(kind).items()
        if callable(method) and "event" in inspect.signature(method).parameters and name not in ("show", "unnamed")
    }
    assert of_events.isdisjoint(LINES)
    of_events |= set(LINES)
    assert of_events <= TYPE_NAMES
    assert {"steps_held", "pending_escalated", "step_undone", "time_jumped"} <= of_events
