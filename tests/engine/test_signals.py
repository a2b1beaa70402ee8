"""A `wait_for` takes what fits, once, in time; and the engine tells whom to look for."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.snapshot import encode_state
from hai_flow.engine.steps import wait_for_event
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from tests.support.runs import DAY, HOUR, NOON, Play

ONE = """
    steps:
      - id: paid
        wait_for: {event: payment, match: 'event.data.order == "A1"', deadline: 2d}
    output: ${{ steps.paid.output }}
"""
ALL = """
    steps:
      - id: both
        wait_for: {all: [{event: signed}, {event: paid}, {event: signed}], deadline: 2d}
    output: ${{ steps.both.output }}
"""


def send(play: Play, id: str, type: str = "payment", data: Any = None, sent_at: int | None = None) -> Any:
    """Offer a signal; what the run said to it."""
    at = play.now if sent_at is None else sent_at
    return play.do(c.Signal(id=id, name=type, data=data, sent_at=at)).outcome


def shown(id: str, type: str, data: Any = None, at: int = NOON) -> dict[str, Any]:
    return {"id": id, "type": type, "data": data, "at": instants.rfc3339(at)}


def test_a_step_that_waits_says_so_and_the_turn_ends() -> None:
    play = Play(ONE, start=False)
    decision = play.start()
    assert play.types() == ["run_started", "turn_started", "step_started", "signals_awaited", "timer_set", "turn_ended"]
    (message,) = decision.outbox
    assert (message.kind, message.target) == ("subscribe", str(play.run_id))
    assert message.body == {"path": "paid", "types": ["payment"], "since": NOON}
    assert (play.status, play.step("paid"), play.timers) == ("waiting", "waiting", [("paid", "deadline", 2 * DAY)])


def test_the_signal_that_fits_finishes_the_step_with_the_event() -> None:
    play = Play(ONE)
    play.now += HOUR
    assert send(play, "s1", data={"order": "A1", "sum": 5}) == {"id": "s1", "taken": True, "awaits": []}
    assert play.types() == ["turn_started", "signal_received", "step_finished", "turn_ended", "run_finished"]
    assert play.output == shown("s1", "payment", {"order": "A1", "sum": 5}, NOON + HOUR)


@pytest.mark.parametrize(
    ("type", "data", "sent_at"),
    [
        ("refund", {"order": "A1"}, NOON),  # another type
        ("payment", {"order": "B2"}, NOON),  # match is false
        ("payment", {"order": "A1"}, NOON - 1),  # from before the run's start
    ],
)
def test_a_signal_that_does_not_fit_changes_nothing(type: str, data: Any, sent_at: int) -> None:
    play = Play(ONE)
    assert send(play, "s1", type, data, sent_at) == {"id": "s1", "taken": False, "awaits": ["payment"]}
    assert (play.types(), play.status) == ([], "waiting")
    assert send(play, "s2", data={"order": "A1"})["taken"]


def test_a_match_that_errors_is_no_match_and_a_warning() -> None:
    play = Play(ONE)
    assert not send(play, "s1", data={"sum": 5})["taken"]
    (warning,) = play.of(e.WarningRaised)
    assert (warning.code, warning.path) == ("match_failed", "paid")
    assert "s1" in warning.message
    assert (play.types(), play.status) == (["warning_raised"], "waiting")


def test_a_run_takes_a_signal_once() -> None:
    play = Play("""
        steps:
          - repeat:
              max: 2
              steps:
                - {id: paid, wait_for: {event: payment, deadline: 2d}}
    """)
    assert send(play, "s1")["taken"]
    assert send(play, "s1") == {"id": "s1", "taken": True, "awaits": ["payment"]}  # delivered twice
    assert (play.types(), play.status) == ([], "waiting")
    assert send(play, "s2")["awaits"] == []
    assert play.status == "finished"
    assert [event.path for event in play.of(e.SignalReceived)] == ["repeat#1[0]/paid", "repeat#1[1]/paid"]


def test_of_two_steps_waiting_for_a_type_the_older_takes_the_signal() -> None:
    play = Play("""
        steps:
          - parallel:
              late:
                - {id: pause, wait: {for: 1h}}
                - {id: second, wait_for: {event: ping, deadline: 2d}}
              soon:
                - {id: first, wait_for: {event: ping, deadline: 2d}}
    """)
    play.advance(HOUR)
    assert send(play, "s1", "ping") == {"id": "s1", "taken": True, "awaits": ["ping"]}
    assert (play.step("parallel#1/soon/first"), play.step("parallel#1/late/second")) == ("finished", "waiting")
    send(play, "s2", "ping")
    assert play.status == "finished"


def test_any_is_met_by_the_first_that_comes() -> None:
    play = Play("""
        steps:
          - id: some
            wait_for: {any: [{event: signed}, {event: paid, match: event.data == "all"}], deadline: 2d}
        output: ${{ steps.some.output.type }}
    """)
    assert not send(play, "s1", "paid", "half")["taken"]
    send(play, "s2", "paid", "all")
    assert play.output == "paid"


def test_all_takes_one_signal_for_each_entry_in_the_order_written() -> None:
    play = Play(ALL)
    assert send(play, "s1", "signed", 1) == {"id": "s1", "taken": True, "awaits": ["paid", "signed"]}
    assert send(play, "s2", "paid", 2) == {"id": "s2", "taken": True, "awaits": ["signed"]}
    assert not send(play, "s3", "paid", 3)["taken"]
    assert (play.status, play.step("both")) == ("waiting", "waiting")
    send(play, "s4", "signed", 4)
    assert play.output == [shown("s1", "signed", 1), shown("s2", "paid", 2), shown("s4", "signed", 4)]


def test_the_deadline_fails_the_step() -> None:
    play = Play(ALL)
    send(play, "s1", "paid")
    play.advance(2 * DAY)
    assert (play.status, play.error.code, play.error.path) == ("failed", "wait_for.expired", "both")
    assert "signed" in play.error.message
    with pytest.raises(Rejected, match="failed"):
        send(play, "s2", "signed")


def test_the_deadline_gives_the_default() -> None:
    play = Play("""
        steps:
          - {id: paid, wait_for: {event: payment, deadline: 2d, on_deadline: {default: {paid: "${{ run.id != '' }}"}}}}
        output: ${{ steps.paid.output }}
    """)
    play.advance(2 * DAY)
    assert (play.status, play.output) == ("finished", {"paid": True})


def test_a_signal_is_taken_in_a_pause_and_its_effects_wait() -> None:
    play = Play("""
        steps:
          - {id: paid, wait_for: {event: payment, deadline: 2d}}
          - {say: Thank you.}
    """)
    play.pause()
    assert send(play, "s1")["taken"]
    assert (play.status, play.step("paid"), play.said) == ("paused", "finished", [])
    play.advance(3 * DAY)  # it was in time
    play.resume()
    assert (play.status, play.said) == ("finished", ["Thank you."])


@pytest.mark.parametrize("clock", ["run", "stop"])
def test_the_deadline_goes_on_during_a_pause_unless_its_clock_is_to_stop(clock: str) -> None:
    play = Play(f"""
        steps:
          - id: paid
            wait_for: {{event: payment, deadline: 2d, pause_clock: {clock}}}
            catch: [{{errors: [wait_for.expired], steps: [{{say: Too late.}}]}}]
    """)
    play.advance(DAY)
    play.pause()
    play.advance(5 * DAY)
    expired = clock == "run"
    assert (play.status, play.step("paid")) == ("paused", "failed" if expired else "waiting")
    play.resume()
    assert play.status == ("finished" if expired else "waiting")
    if not expired:
        play.advance(DAY - 1)
        assert play.status == "waiting"
        play.advance(1)
    assert (play.status, play.said) == ("finished", ["Too late."])


def test_a_stop_voids_the_wait() -> None:
    play = Play(ONE)
    play.stop()
    assert (play.status, play.step("paid")) == ("stopped", "stopped")
    assert not play.state.subscriptions
    with pytest.raises(Rejected, match="stopped"):
        send(play, "s1", data={"order": "A1"})


def test_a_branch_that_loses_the_race_waits_no_more() -> None:
    play = Play("""
        steps:
          - parallel:
              quick: [{id: soon, wait: {for: 1h}}]
              slow: [{id: paid, wait_for: {event: payment, deadline: 2d}}]
            join: any
          - {id: later, wait_for: {event: other, deadline: 2d}}
    """)
    play.advance(HOUR)
    assert play.step("parallel#1/slow/paid") == "stopped"
    assert send(play, "s1") == {"id": "s1", "taken": False, "awaits": ["other"]}


def test_a_retried_run_waits_anew_and_takes_no_signal_twice() -> None:
    play = Play(ALL)
    send(play, "s1", "signed")
    play.advance(2 * DAY)
    assert play.status == "failed"
    decision = play.retry()
    assert [message.kind for message in decision.outbox] == ["subscribe"]
    assert send(play, "s1", "signed") == {"id": "s1", "taken": True, "awaits": ["paid", "signed"]}
    for id, type in (("s2", "signed"), ("s3", "paid"), ("s4", "signed")):
        send(play, id, type)
    assert [event["id"] for event in play.output] == ["s2", "s3", "s4"]


LISTENING = """
    state: {n: {type: integer, default: 0}}
    steps:
      - repeat:
          max: 10000
          steps:
            - {id: heard, wait_for: {event: ping, match: event.data == state.n % 3, deadline: 2d}}
            - set: {n: "${{ state.n + 1 }}"}
"""


class Store:
    """Stored signals, and whoever offers them to a run: in the order of their places, from where it has heard all."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.stored: list[c.Signal] = []
        self.taken: list[str] = []

    def keep(self, data: Any = None, *, own: bool = False) -> c.Signal:
        place = len(self.stored) + 1
        signal = c.Signal(id=f"s{place}", name="ping", data=data, sent_at=self.play.now, place=place, own=own)
        self.stored.append(signal)
        return signal

    def offer(self, signal: c.Signal, offered: c.Offered | None = None) -> bool:
        """Whether the run has it now."""
        decision = self.play.do(msgspec.structs.replace(signal, offered=offered))
        self.taken += [event.id for event in decision.events if isinstance(event, e.SignalReceived)]
        return decision.outcome["taken"]

    def offer_stored(self) -> c.Offered:
        """As if the run began to wait: what is left, and all that it has not heard. Returns what it was offered."""
        heard = self.play.state.heard.get("ping", e.Heard())
        for signal in self.stored:
            if signal.id in heard.left:
                self.offer(signal)
        offered, passed = c.Offered(heard.to_all, heard.own), []
        for signal in self.stored:
            if signal.place <= (heard.own if signal.own else heard.to_all):
                continue
            if not self.offer(signal, offered):
                passed.append(c.Passed(signal.id, signal.place, signal.own))
            reach = {"own" if signal.own else "to_all": signal.place}
            offered = msgspec.structs.replace(offered, **reach, passed=tuple(passed))
        return offered

    def forgets_and_repeats_nothing(self) -> None:
        assert len(set(self.taken)) == len(self.taken)
        left = self.play.state.heard.get("ping", e.Heard()).left
        heard = {signal.id for signal in self.stored if wait_for_event.is_taken(self.play.state, signal)}
        assert heard == set(self.taken)
        assert not set(left) & set(self.taken)


@pytest.mark.slow
def test_a_run_that_takes_many_signals_remembers_only_a_few() -> None:
    play = Play(LISTENING)
    store = Store(play)
    sizes = []
    for number in range(300):
        offered = store.offer_stored()  # the step has begun to wait, and nothing is there
        assert store.offer(store.keep(number % 3), offered)
        sizes.append(len(encode_state(play.state)))
    store.forgets_and_repeats_nothing()
    assert len(store.taken) == 300
    assert len(play.state.signals) <= 2
    assert sizes[-1] - sizes[20] < 64  # some numbers have more digits


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3)), max_size=40), st.randoms())
@pytest.mark.slow
def test_signals_in_any_order_are_taken_once_and_leftovers_when_they_fit(
    sent: list[tuple[int, bool, int]], chance: Random
) -> None:
    """Some come when the run has begun to wait, some in between; some again, and by one who read long ago."""
    play = Play(LISTENING)
    store = Store(play)
    read: list[Any] = [None]
    for data, own, what in sent:
        signal = store.keep(data, own=own)
        if what != 0:
            store.offer(signal, chance.choice(read) if what == 1 else None)
        if what == 2:
            store.offer(chance.choice(store.stored), chance.choice(read))
        if what == 3:
            read.append(store.offer_stored())
        store.forgets_and_repeats_nothing()
    while True:  # as often as it begins to wait, it finds what it can take
        count = len(store.taken)
        store.offer_stored()
        if len(store.taken) == count:
            break
    store.forgets_and_repeats_nothing()
    rest = [signal.data for signal in store.stored if signal.id not in store.taken]
    assert play.state.state["n"] % 3 not in rest


@pytest.mark.slow
def test_no_signal_is_lost_where_more_are_left_than_a_run_remembers() -> None:
    play = Play(LISTENING)
    store = Store(play)
    for _ in range(wait_for_event.LEFT_MAX + 5):
        store.keep(1)
    for number in range(4):
        store.keep(0 if number == 0 else 2)
    for _ in range(4):
        store.offer_stored()
    assert [store.stored[int(id[1:]) - 1].data for id in store.taken] == [0, 1, 2]
    assert len(play.state.heard.get("ping", e.Heard()).left) <= wait_for_event.LEFT_MAX
    store.forgets_and_repeats_nothing()


def test_a_log_without_places_of_signals_folds_and_takes_none_again() -> None:
    play = Play(LISTENING)
    old = [c.Signal(id=f"s{n}", name="ping", data=n % 3, sent_at=play.now) for n in range(3)]
    for signal in old:
        assert play.do(signal).outcome["taken"]
    store = Store(play)
    store.stored = [msgspec.structs.replace(signal, place=n) for n, signal in enumerate(old, 1)]
    store.keep(0)
    store.offer_stored()
    assert store.taken == ["s4"]
    assert play.do(old[0]).already


def test_a_fork_takes_itself_what_the_other_run_took_behind_the_turn() -> None:
    asking = LISTENING.replace(
        "- repeat",
        "- {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}\n      - repeat",
    )
    play = Play(asking, start=False)
    play.start()
    at = play.state.seq
    play.answer("sure", values={"ok": True})
    store = Store(play)
    for data in (2, 0, 1):
        store.keep(data)
    store.offer_stored()
    fork = play.fork(at, {"sure": {"values": {"ok": True}}})
    there = Store(fork)
    there.stored = store.stored
    there.offer_stored()
    assert fork.state.heard.get("ping") == e.Heard(to_all=2, left=("s1",))
    assert there.taken[0] == "s2"
