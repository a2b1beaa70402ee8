"""Of every rule of the oracle the proof that it rejects what it is there to reject, and accepts what is right."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator

import pytest
from hai_flow_chaos import oracle
from hai_flow_chaos.history import Answered, Broken, Controlled, Effect, FreezeDrill, History, Started, Stream
from hai_flow_chaos.oracle import Known, Run

from hai_flow.engine import events as e
from hai_flow.values import Json
from hai_flow.wire.dialects.log import event_json
from hai_flow.wire.sent_json import dump

IDS = {
    name: f"00000000-0000-8000-8000-{number:012d}"
    for number, name in enumerate(
        ("mixed", "approval", "form", "once", "queue", "queued", "signal", "stopped", "stream", "parent"), 1
    )
}


def started(name: str, number: int) -> e.RunStarted:
    flow = {"queued": "queue", "stopped": "timers"}.get(name, name)
    return e.RunStarted(
        at=1, workflow=f"chaos_{flow}", version=1, sha256="00", thread_id=IDS[name], requester="service:operator",
        input={"n": number}, state={},
    )  # fmt: skip


def step(path: str, attempts: int = 1) -> list[e.Event]:
    again = [e.AttemptStarted(at=1, path=path, attempt=number) for number in range(2, attempts + 1)]
    end = e.StepFinished(at=1, path=path, output={"key": path, "attempt": attempts})
    return [e.StepStarted(at=1, path=path, verb="call", args="{}", attempt=1), *again, end]


def run(name: str, output: Json, *events: e.Event) -> Run:
    end: e.Event = e.RunStopped(at=2, by="x") if name == "stopped" else e.RunFinished(at=2, output=output)
    number = list(IDS).index(name)
    status = "stopped" if name == "stopped" else "finished"
    return Run(IDS[name], status, output, [started(name, number), *events, end])


def message(id: str, *pieces: str, aborted: bool = False) -> list[e.Event]:
    said = [e.MessageChunk(at=1, message_id=id, n=n, content=piece) for n, piece in enumerate(pieces)]
    return [
        e.MessageStarted(at=1, message_id=id, path="text"),
        *said,
        e.MessageEnded(at=1, message_id=id, aborted=aborted),
    ]


def asked(status: str) -> e.ChildAsked:
    return e.ChildAsked(at=1, path="both/left", run_id="below", opened=opened("p9", "ask"), status=status)


def opened(id: str, kind: str) -> e.PendingOpened:
    return e.PendingOpened(at=1, id=id, path="gated", kind=kind, digest="d")  # type: ignore[arg-type]


def good() -> Known:
    """One run of several kinds each, with all that was told of it and seen."""
    both = (step("enter"), step("leave"))
    runs = [
        run("mixed", {"n": 0, "done": [1, 3, 2]}, *step("one", 2), *step("both/left/paid")),
        run(
            "approval", {"n": 1, "approved": True}, opened("p1", "gate"),
            e.VoteCast(at=1, id="p1", by="user:ann", decision="approve"),
            e.VoteCast(at=1, id="p1", by="user:bob", decision="approve"),
            e.PendingDecided(at=1, id="p1", outcome="approve"), *step("gated"),
        ),
        run(
            "form", {"n": 2, "picks": ["ann"], "then": "late"}, opened("p2", "ask"),
            e.PendingDecided(at=1, id="p2", outcome="answered", value={"pick": "ann"}), *step("act"),
        ),
        run("once", {"n": 3, "once": True}, *step("once")),
        run("queue", {"n": 4}, *both[0], *both[1]),
        run("queued", {"n": 5}, *both[0], *both[1]),
        run(
            "signal", {"n": 6, "heard": 6, "again": 6, "ticks": [2, 1, 3]},
            e.SignalReceived(at=1, id="go-6", name="chaos.go"), *step("act"),
        ),
        run("stopped", None, e.RunPaused(at=1, by="x"), e.RunStopping(at=1, by="x")),
        run(
            "stream", {"n": 8, "text": "word 0 " * 60, "more": "word 0 " * 30},
            e.StepStarted(at=1, path="text", verb="call", args="{}", attempt=1), *message("m1", "word", aborted=True),
            e.AttemptStarted(at=1, path="text", attempt=2), *message("m2", *["word 0 "] * 60),
            e.StepFinished(at=1, path="text", output="word 0 " * 60),
        ),
        run("parent", {"n": 9, "left": 1, "right": 2, "apart": IDS["mixed"]}, asked("open"), asked("decided")),
    ]  # fmt: skip
    by_name = dict(zip(IDS, runs, strict=True))
    history = History()
    for number, (name, each) in enumerate(by_name.items()):
        flow = {"queued": "queue", "stopped": "timers"}.get(name, name)
        history.started.append(Started(1.0, number, flow, each.id, {"n": number}))

    def seen(name: str, path: str, what: str, detail: str = "", attempt: int = 1) -> None:
        history.effects.append(Effect(2.0, f"{IDS[name]}/{path}", what, attempt, False, detail))

    seen("mixed", "one", "act")
    seen("mixed", "one", "act", attempt=2)
    for name, path in (("approval", "gated"), ("form", "act"), ("once", "once"), ("signal", "act")):
        seen(name, path, "act")
    for name in ("queue", "queued"):
        seen(name, "enter", "enter", "lane 0")
        seen(name, "leave", "leave", "lane 0")
    history.answered += [
        Answered(1.5, "p1", "ann", {"decision": "approve"}, 200, False, ""),
        Answered(1.5, "p1", "bob", {"decision": "approve"}, 200, False, ""),
        Answered(1.5, "p1", "cid", {"decision": "approve"}, 200, True, ""),
        Answered(1.5, "p2", "ann", {"values": {"pick": "ann"}}, 200, False, ""),
        Answered(1.5, "p2", "bob", {"values": {"pick": "bob"}}, 409, False, "pending_decided"),
    ]
    history.stopping.add(IDS["stopped"])
    for what in ("pause", "stop"):
        history.controlled.append(Controlled(1.5, IDS["stopped"], what))
    shown = {str(seq): dump(event_json(seq, event)) for seq, event in enumerate(by_name["mixed"].events, 1)}
    history.streams.append(Stream(IDS["mixed"], "", shown, 2, 1, ended=True))
    history.drills.append(FreezeDrill(1.9, 2.1, {each.id: len(each.events) for each in runs}))
    history.calm.add(IDS["once"])
    return Known(history, {each.id: each for each in runs}, [(IDS["mixed"], "both/left/paid")])


def changed(known: Known) -> Known:
    """It anew, after somebody has changed what it was made of."""
    return Known(known.history, known.runs, known.payments)


def test_the_oracle_accepts_what_is_right() -> None:
    assert oracle.judged(good()) == []


def events_of(known: Known, name: str) -> list[e.Event]:
    found = known.runs[IDS[name]].events
    assert isinstance(found, list)
    return found


def drop(name: str, kind: type[e.Event]) -> Callable[[Known], None]:
    def change(known: Known) -> None:
        known.runs[IDS[name]].events = [each for each in events_of(known, name) if not isinstance(each, kind)]

    return change


def again(name: str, what: str, attempt: int) -> Callable[[Known], None]:
    def change(known: Known) -> None:
        (first, *_) = [each for each in known.history.effects if each.key == f"{IDS[name]}/{what}"]
        known.history.effects.append(first._replace(attempt=attempt))

    return change


def add(name: str, *events: e.Event) -> Callable[[Known], None]:
    def change(known: Known) -> None:
        events_of(known, name)[2:2] = events

    return change


def told(status: int, code: str) -> Callable[[Known], None]:
    """Bob is told something else of his answer, which came too late."""

    def change(known: Known) -> None:
        known.history.answered[-1] = known.history.answered[-1]._replace(status=status, code=code)

    return change


def of_an_attempt_before(known: Known) -> None:
    events = events_of(known, "mixed")
    at = next(number for number, event in enumerate(events) if isinstance(event, e.StepFinished))
    events[at] = e.StepFinished(at=1, path="one", output={"attempt": 1})


def a_piece_is_missing(known: Known) -> None:
    events = events_of(known, "stream")
    del events[next(n for n, event in enumerate(events) if isinstance(event, e.MessageChunk) and event.n == 7)]


LOST = e.StepRetried(at=1, path="once", attempt=1, error=e.Error(code="step.lost", message="gone"), lost=True)


def lost(known: Known) -> None:
    del known.runs[IDS["form"]]  # type: ignore[attr-defined]


def swallowed(known: Known) -> None:
    known.history.effects = [each for each in known.history.effects if not each.key.endswith("/gated")]


def two_winners(known: Known) -> None:
    known.history.answered[-1] = known.history.answered[-1]._replace(status=200)


def another_winner(known: Known) -> None:
    known.history.answered[-1] = known.history.answered[-1]._replace(status=200)
    del known.history.answered[-2]


def rejected(known: Known) -> None:
    events = events_of(known, "approval")
    at = next(number for number, event in enumerate(events) if isinstance(event, e.PendingDecided))
    events[at] = e.PendingDecided(at=1, id="p1", outcome="reject")


def both_inside(known: Known) -> None:
    effects = known.history.effects
    effects[-2], effects[-3] = effects[-3], effects[-2]


def not_shown(known: Known) -> None:
    known.history.streams[0].frames.popitem()


def a_gap(known: Known) -> None:
    del known.history.streams[0].frames["3"]


def other_bytes(known: Known) -> None:
    known.history.streams[0].frames["2"] = b"{}"


def more_than_is_there(known: Known) -> None:
    known.history.streams[0].frames["99"] = b"{}"


VIOLATORS: list[tuple[Callable[[Known], Iterator[Broken]], Callable[[Known], object]]] = [
    (oracle.started_runs_are_there, lost),
    (oracle.started_runs_are_there, lambda known: known.history.started.append(Started(1.0, 9, "form", "gone", {}))),
    (oracle.controls_are_in_the_log, drop("stopped", e.RunPaused)),
    (oracle.signals_are_heard_once, lambda known: events_of(known, "signal").insert(2, events_of(known, "signal")[1])),
    (oracle.questions_have_one_winner, two_winners),
    (oracle.questions_have_one_winner, another_winner),
    (oracle.questions_have_one_winner, drop("form", e.PendingDecided)),
    (oracle.votes_are_in_the_log, drop("approval", e.VoteCast)),
    (
        oracle.votes_are_in_the_log,
        lambda known: events_of(known, "approval").insert(3, events_of(known, "approval")[2]),
    ),
    (oracle.refusals_are_true, told(404, "pending_unknown")),
    (oracle.refusals_are_true, told(409, "pending_voided")),
    (oracle.refusals_are_true, told(403, "vote_final")),
    (oracle.refusals_are_true, drop("form", e.PendingDecided)),
    (oracle.results_are_of_open_attempts, of_an_attempt_before),
    (oracle.texts_are_whole, a_piece_is_missing),
    (oracle.runs_below_are_heard_once, add("parent", asked("open"))),
    (oracle.nothing_is_wrong_with_a_run, add("form", e.RunNeedsAttention(at=1, path="", reason="no"))),
    (oracle.a_calm_is_calm, add("once", LOST)),
    (oracle.a_calm_is_calm, add("once", opened("p7", "doubt"))),
    (oracle.effects_have_attempts, again("mixed", "one", 2)),
    (oracle.effects_have_attempts, again("mixed", "one", 3)),
    (oracle.effects_have_attempts, again("mixed", "one", 0)),
    (oracle.nothing_begins_under_a_freeze, lambda known: known.history.drills[0].places.clear()),  # type: ignore[attr-defined]
    (oracle.finished_steps_had_their_effect, swallowed),
    (oracle.effects_of_one_chance_happen_once, again("once", "once", 2)),
    (oracle.payments_are_exact, lambda known: known.payments.append((IDS["mixed"], "both/left/paid"))),  # type: ignore[attr-defined]
    (oracle.payments_are_exact, lambda known: known.payments.clear()),  # type: ignore[attr-defined]
    (oracle.payments_are_exact, lambda known: known.payments.append((IDS["form"], "paid"))),  # type: ignore[attr-defined]
    (oracle.rejected_gates_let_nothing_through, rejected),
    (oracle.lanes_are_one_at_a_time, both_inside),
    (
        oracle.outcomes_are_as_written,
        lambda known: setattr(known.runs[IDS["mixed"]], "output", {"n": 0, "done": [1, 2]}),
    ),
    (oracle.outcomes_are_as_written, lambda known: setattr(known.runs[IDS["once"]], "status", "failed")),
    (oracle.outcomes_are_as_written, lambda known: known.history.stopping.clear()),
    (oracle.streams_are_the_log, other_bytes),
    (oracle.streams_are_the_log, more_than_is_there),
    (oracle.streams_are_the_log, a_gap),
    (oracle.streams_are_the_log, not_shown),
    (oracle.everything_has_ended, lambda known: setattr(known.runs[IDS["once"]], "status", "running")),
    (oracle.followers_saw_the_end, lambda known: setattr(known.history.streams[0], "ended", False)),
]


@pytest.mark.parametrize(("rule", "violate"), VIOLATORS)
def test_the_oracle_rejects(rule: Callable[[Known], Iterator[Broken]], violate: Callable[[Known], object]) -> None:
    known = copy.deepcopy(good())
    violate(known)
    assert list(rule(changed(known)))


def test_every_rule_of_the_oracle_has_a_violator() -> None:
    assert {rule for rule, _ in VIOLATORS} == set(oracle.RULES)


def test_what_is_right_in_the_end_was_right_in_the_middle() -> None:
    known = good()
    assert list(oracle.judged_meanwhile(known.history.copy(), known.history, known.runs)) == []


@pytest.mark.parametrize(
    ("rule", "violate"), [each for each in VIOLATORS if each[0] in (*oracle.TOLD, *oracle.HAPPENED)]
)
def test_what_is_broken_is_seen_in_the_middle(
    rule: Callable[[Known], Iterator[Broken]], violate: Callable[[Known], object]
) -> None:
    known = copy.deepcopy(good())
    violate(known)
    assert list(oracle.judged_meanwhile(known.history.copy(), known.history, known.runs))


def test_an_effect_after_the_reading_of_the_runs_breaks_no_invariant() -> None:
    known = good()
    before = known.history.copy()
    known.history.acted(Effect(3.0, f"{IDS['mixed']}/one", "act", 3, False))
    assert list(oracle.judged_meanwhile(before, known.history, known.runs)) == []
    assert oracle.judged(changed(known))


async def test_who_waits_for_an_effect_hears_of_it_however_early_it_comes() -> None:
    history = History()
    waiting = asyncio.create_task(history.seen("run-1"))
    await asyncio.sleep(0)
    history.acted(Effect(1.0, "run-1/act", "act", 1, False))
    await waiting
    await history.seen("run-1")
