"""What a run did, as lines: in the order of execution, in the author's words, with times and reasons."""

from __future__ import annotations

from typing import Any

from hai_flow.cli.runs.history import HistoryLine, build_lines, duration, list_questions_below, words_of
from hai_flow.cli.runs.show import next_commands

SOURCE = """\
hai: flow/v1
name: tour
version: 1
tools: {files: {python: hai_flow.examples, effect: write}}
steps:
  - switch:
      - {when: input.amount > 100, steps: [{say: much}]}
      - {when: input.amount > 1, steps: [{say: some}]}
  - {id: never, if: input.amount > 1000, say: never}
  - id: rollout
    for_each:
      items: ${{ input.regions }}
      as: region
      steps: [{id: clean, call: files.delete_files, with: {folder: "${{ region }}"}}]
  - id: ok
    approve: {title: "Ship?", from: [role:qa]}
    on_reject: [{say: no}]
"""


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z"


def happened(*events: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Events of (second, type, path, fields)."""
    return [
        {"seq": seq, "at": at(second), "type": kind, "path": path, **(rest[0] if rest else {})}
        for seq, (second, kind, path, *rest) in enumerate(events, 1)
    ]


def list_rows(lines: list[HistoryLine]) -> list[tuple[str, ...]]:
    return [("  " * each.depth + each.words, each.status, each.took, each.note) for each in lines]


ERROR = {"code": "tool.failed", "message": "no such folder"}
VOTE = {"by": "user:ann", "on_behalf_of": None, "roles": ["qa"], "decision": "reject", "reason": "late", "counts": True}
EVENTS = happened(
    (0, "step_started", "switch#1", {"verb": "switch", "case": 1}),
    (0, "step_started", "switch#1/1/say#1", {"verb": "say"}),
    (0, "step_finished", "switch#1/1/say#1"),
    (0, "step_finished", "switch#1", {"output": {"case": 1}}),
    (1, "step_skipped", "never"),
    (2, "step_started", "rollout", {"verb": "for_each"}),
    (2, "iteration_started", "rollout[us]", {"index": 0}),
    (2, "iteration_started", "rollout[eu]", {"index": 1}),
    (2, "step_started", "rollout[us]/clean", {"verb": "call", "attempt": 1}),
    (2, "step_started", "rollout[eu]/clean", {"verb": "call", "attempt": 1}),
    (3, "step_retried", "rollout[us]/clean", {"attempt": 1, "error": ERROR, "due": at(4)}),
    (4, "attempt_started", "rollout[us]/clean", {"attempt": 2}),
    (5, "step_finished", "rollout[us]/clean", {"output": {"deleted": 3}}),
    (5, "iteration_ended", "rollout[us]", {"status": "finished"}),
    (6, "step_failed", "rollout[eu]/clean", {"error": ERROR}),
    (6, "iteration_ended", "rollout[eu]", {"status": "failed", "error": ERROR}),
    (67, "step_finished", "rollout"),
    (70, "step_started", "ok", {"verb": "approve"}),
    (70, "pending_opened", "ok", {"deadline": at(3599)}),
    (80, "step_failed", "ok", {
        "error": {"code": "approval.rejected", "message": "late"}, "handler": "~reject",
    }),
    (80, "step_started", "ok/~reject/say#1", {"verb": "say"}),
)  # fmt: skip


def test_steps_stand_in_the_order_of_execution_in_the_authors_words() -> None:
    assert list_rows(build_lines(EVENTS, {}, words_of(SOURCE))) == [
        ("switch when input.amount > 1", "finished", "0 ms", ""),
        ("  say some", "finished", "0 ms", ""),
        ("say never", "skipped", "", "if input.amount > 1000: false"),
        ("for_each rollout region in input.regions", "finished", "1 m 5 s", "1 finished, 1 failed"),
        ("  [us]", "finished", "3.0 s", ""),
        ("    call clean files.delete_files", "finished", "2.0 s", 'attempt 2; {"deleted": 3}'),
        ("  [eu]", "failed", "4.0 s", "tool.failed: no such folder"),
        ("    call clean files.delete_files", "failed", "4.0 s", "tool.failed: no such folder"),
        ("approve ok Ship?", "failed", "10.0 s", "approval.rejected: late; the workflow handles it"),
        ("  on reject: say no", "running", "", ""),
    ]


def test_a_step_took_its_attempts_time_and_a_running_one_says_so_far() -> None:
    events = happened(
        (0, "step_started", "pay", {"verb": "call", "attempt": 0}),
        (0, "pending_opened", "pay", {"deadline": at(3599)}),
        (600, "attempt_started", "pay", {"attempt": 1}),
        (602, "step_retried", "pay", {"attempt": 1, "error": ERROR, "due": at(1200)}),
        (1200, "attempt_started", "pay", {"attempt": 2}),
    )
    assert [each.took for each in build_lines(events, {}, now=at(1263))] == ["1 m 5 s so far"]
    assert [each.took for each in build_lines(events, {})] == [""]
    ended = events + happened((1201, "step_finished", "pay"))
    assert [each.took for each in build_lines(ended, {})] == ["3.0 s"]


def test_without_the_source_a_step_is_called_by_its_verb_and_id() -> None:
    assert words_of("hai: flow/v9\nsteps: 7") == {}
    words = [line.words for line in build_lines(EVENTS, {})]
    assert words[:4] == ["switch", "1: say", "never", "for_each rollout"]


def test_where_a_step_stands_now_beats_what_its_events_say() -> None:
    (line,) = build_lines(happened((0, "step_started", "nap", {"verb": "wait"})), {"nap": "waiting"})
    assert (line.words, line.status) == ("wait nap", "waiting")


def test_what_a_step_waits_for_and_what_was_decided_is_its_note() -> None:
    envelope = {"decision": "ship", "votes": [VOTE], "expired": False, "values": None, "edits": None}
    events = happened(
        (0, "step_started", "a", {"verb": "wait"}),
        (0, "timer_set", "a", {"kind": "wait", "due": at(60)}),
        (0, "step_started", "b", {"verb": "wait_for"}),
        (0, "signals_awaited", "b", {"types": ["paid", "lost"]}),
        (0, "step_started", "c", {"verb": "approve"}),
        (0, "pending_opened", "c", {"deadline": at(60)}),
        (0, "step_started", "d", {"verb": "approve"}),
        (9, "step_finished", "d", {"output": envelope}),
        (0, "step_started", "e", {"verb": "call"}),
        (9, "step_stopped", "e", {"reason": "another branch won"}),
    )
    assert [line.note for line in build_lines(events, {})] == [
        "until 2026-01-01 00:01:00Z",
        "for a signal paid or lost",
        "for an answer, until 2026-01-01 00:01:00Z",
        "ship by user:ann (qa): late",
        "another branch won",
    ]


def test_a_run_that_was_retried_and_moved_goes_on_under_its_new_names() -> None:
    events = happened(
        (0, "step_started", "old", {"verb": "try"}),
        (0, "step_started", "old/call#1", {"verb": "call"}),
        (1, "step_failed", "old/call#1", {"error": ERROR}),
        (1, "step_failed", "old", {"error": ERROR}),
        (2, "migrated", "", {"paths": {"old": "new"}}),
        (3, "run_retried", "", {"reopened": ["new"]}),
        (3, "step_started", "new/call#1", {"verb": "call"}),
        (4, "step_finished", "new/call#1"),
    )
    lines = build_lines(events, {})
    assert [(line.words, line.status) for line in lines] == [("try new", "running"), ("call", "finished")]


def test_a_retried_child_is_named_where_it_went_on_also_when_it_has_ended() -> None:
    events = happened(
        (0, "step_started", "a", {"verb": "run", "attempt": 1}),
        (0, "collaboration_started", "a", {"run_id": "CHILD"}),
        (1, "step_failed", "a", {"error": ERROR}),
        (2, "step_started", "a", {"verb": "run", "attempt": 2}),
        (2, "collaboration_started", "a", {"run_id": "CHILD"}),
        (3, "step_finished", "a", {"output": 7}),
    )
    assert build_lines(events, {})[0].note == "attempt 2; went on in run CHILD; 7"


def test_what_runs_below_ask_is_among_the_questions_until_it_is_answered() -> None:
    first, second = {"id": "call_a", "kind": "ask"}, {"id": "call_b", "kind": "approve"}
    events = happened(
        (0, "child_asked", "sub", {"opened": first}),
        (0, "child_asked", "sub", {"opened": second}),
        (1, "child_asked", "sub", {"opened": second, "votes": [{"by": "user:ann"}], "known": True}),
        (2, "child_asked", "sub", {"opened": first, "status": "answered", "known": True}),
    )
    assert list_questions_below(events) == [{**second, "needed": {"votes": [{"by": "user:ann"}]}}]


def test_durations_have_two_units_at_most() -> None:
    seconds = {
        0.25: "250 ms",
        3.21: "3.2 s",
        60: "1 m",
        185: "3 m 5 s",
        7200: "2 h",
        7860: "2 h 11 m",
        273600: "3 d 4 h",
    }
    for number, text in {**seconds, 273600: "3 d 4 h"}.items():
        days, rest = divmod(number, 86400)
        hours, rest = divmod(rest, 3600)
        minutes, rest = divmod(rest, 60)
        later = f"2026-01-{1 + int(days):02}T{int(hours):02}:{int(minutes):02}:{rest:06.3f}Z"
        assert duration("2026-01-01T00:00:00.000Z", later) == text


def test_the_next_command_is_told() -> None:
    def told(status: str, waiting: int = 0, awaited: tuple[str, ...] = (), unreadable: str | None = None) -> str:
        run = {"id": "R", "status": status, "unreadable": unreadable}
        return "\n".join(next_commands(run, [{}] * waiting, list(awaited)))

    assert told("paused").endswith(" resume R")
    assert told("failed").endswith(" retry R")
    assert told("needs_attention").endswith(" retry R")
    assert told("running").endswith(" events R --follow")
    assert told("waiting", awaited=("order paid",)).endswith(" signal R 'order paid'")
    assert told("waiting").endswith(" events R --follow")
    assert told("waiting", waiting=1) == told("finished") == told("failed", unreadable="newer") == ""
