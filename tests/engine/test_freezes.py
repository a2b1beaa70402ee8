"""A freeze lets nothing begin: what is ready stays ready, what has begun is finished, and a thaw goes on from there."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Decision
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.state.jobs import is_busy
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.freezes import MODES, Freeze, Mode, Scope
from tests.engine.test_agents import answer, call, flow
from tests.support.runs import MINUTE, SECOND, Play

TWO_CALLS = "steps: [{id: a, call: t.f}, {id: b, call: t.f}]"
BESIDE = """
tools: {t: {python: registered}, r: {python: registered, effect: read}}
steps:
  - id: both
    parallel:
      left: [{id: l, call: t.f}, {id: l2, call: t.f}]
      right: [{id: r1, call: r.f}, {id: r2, call: r.f}]
"""
GATE = "steps: [{id: gate, approve: {title: Go?, from: anyone, deadline: 1h}}, {id: after, call: t.f}]"
UNDO = """
steps:
  - {id: a, call: t.f, undo: {call: t.f}}
  - {id: b, call: t.f}
"""


class Frozen:
    """A run under freezes that come and go."""

    def __init__(self, text: str, *, start: bool = True) -> None:
        self.freezes: list[Freeze] = []
        self.play = Play(text, decide=self._decide, start=start)

    def _decide(self, *args: Any) -> Decision:
        return decide(*args, freezes=self.freezes)

    def freeze(self, scope: Scope = "all", name: str = "", mode: Mode = "frozen") -> None:
        self.freezes.append(Freeze(f"f{len(self.freezes) + 1}", mode, scope, name, "a drill"))

    def thaw(self) -> None:
        self.freezes.clear()
        self.play.go_on()

    def check_again(self) -> None:
        """Each commit of the log can be decided again, by who knows nothing of the freezes but the log."""
        state = RunState(str(self.play.run_id))
        for batch in self.play.log:
            again = decide_again(self.play.plan, state, batch)
            assert again.left is None, again
            state = fold(state, batch)


def test_what_has_begun_is_finished_and_nothing_follows_until_the_thaw() -> None:
    it = Frozen(TWO_CALLS)
    it.freeze()
    it.play.succeed("a")
    assert it.play.types() == ["step_finished", "steps_held", "turn_ended"]
    assert (it.play.status, it.play.open, dict(it.play.state.held)) == ("waiting", {}, {"b": "f1"})
    assert not is_busy(it.play.state)
    it.play.advance(MINUTE)
    it.play.go_on()
    assert not it.play.last
    it.thaw()
    assert (it.play.status, it.play.open, dict(it.play.state.held)) == ("running", {"b": 1}, {})
    it.play.succeed("b")
    assert it.play.status == "finished"
    it.check_again()


def test_an_attempt_not_begun_is_given_back_neither_lost_nor_failed() -> None:
    it = Frozen(TWO_CALLS)
    it.freeze()
    it.play.do(c.StepLost(path="a", attempt=1, held=True))
    step = it.play.state.steps["a"]
    assert (it.play.open, dict(it.play.state.held), step.lost, step.failures) == ({}, {"a": "f1"}, 0, 0)
    assert (it.play.status, dict(it.play.state.timeouts)) == ("waiting", {})
    it.play.advance(60 * MINUTE)
    it.thaw()
    assert it.play.open == {"a": 2}
    it.play.succeed("a")
    it.check_again()


def test_a_call_that_may_happen_once_is_not_in_doubt_when_it_had_not_begun() -> None:
    it = Frozen(TWO_CALLS.replace("{id: a,", "{id: a, delivery: at_most_once,"))
    it.freeze()
    it.play.do(c.StepLost(path="a", attempt=1, held=True))
    assert not it.play.state.open_pendings
    it.thaw()
    assert it.play.open == {"a": 2}
    it.check_again()


def test_a_run_that_starts_under_a_freeze_begins_no_step() -> None:
    it = Frozen(TWO_CALLS, start=False)
    it.freeze()
    it.play.start()
    assert it.play.open == {}
    assert it.play.of(e.StepsHeld)[-1].reason == "a drill"
    it.thaw()
    assert it.play.open == {"a": 1}


def test_a_question_is_answered_under_a_freeze_and_what_follows_waits() -> None:
    it = Frozen(GATE)
    it.freeze()
    it.play.answer("gate", decision="approve")
    assert (it.play.step("gate"), it.play.open) == ("finished", {})
    it.thaw()
    assert it.play.open == {"after": 1}


def test_a_branch_that_is_not_held_goes_on_beside_one_that_is() -> None:
    it = Frozen(BESIDE)
    it.freeze("tool", "t")
    it.play.succeed("both/left/l")
    assert it.play.open == {"both/right/r1": 1}
    it.play.succeed("both/right/r1")
    assert it.play.open == {"both/right/r2": 1}
    assert dict(it.play.state.held) == {"both/left/l2": "f1"}
    it.play.succeed("both/right/r2")
    assert it.play.status == "waiting"
    it.thaw()
    assert it.play.open == {"both/left/l2": 1}
    it.check_again()


@pytest.mark.parametrize(
    ("scope", "name", "mode", "begins"),
    [
        ("all", "", "read_only", {"both/right/r2"}),
        ("tool", "t", "frozen", {"both/right/r2"}),
        ("tool", "t.f", "frozen", {"both/right/r2"}),
        ("tool", "r.other", "frozen", {"both/left/l2", "both/right/r2"}),
        ("tool", "t.f", "no_agents", {"both/left/l2", "both/right/r2"}),
        ("workflow", "sample", "frozen", set()),
        ("workflow", "another", "frozen", {"both/left/l2", "both/right/r2"}),
        ("principal", "user:ann", "frozen", set()),
        ("principal", "user:bob", "frozen", {"both/left/l2", "both/right/r2"}),
        ("model", "gpt", "frozen", {"both/left/l2", "both/right/r2"}),
        ("all", "", "no_agents", {"both/left/l2", "both/right/r2"}),
    ],
)
def test_a_freeze_holds_the_steps_of_its_scope_and_mode_alone(
    scope: Scope, name: str, mode: Mode, begins: set[str]
) -> None:
    it = Frozen(BESIDE)
    it.freeze(scope, name, mode)
    it.play.succeed("both/left/l")
    it.play.succeed("both/right/r1")
    assert set(it.play.open) == begins


@pytest.mark.parametrize(("method", "begins"), [("get", True), ("post", False), ("delete", False)])
def test_read_only_holds_a_request_by_its_method(method: str, begins: bool) -> None:
    it = Frozen(f"steps: [{{id: a, call: t.f}}, {{id: b, http: {{{method}: https://example.org}}}}]")
    it.freeze(mode="read_only")
    it.play.succeed("a")
    assert bool(it.play.open) is begins


@pytest.mark.parametrize(("scope", "begins"), [("workflow", False), ("all", True), ("tenant", True)])
def test_read_only_holds_children_whose_writes_the_freeze_does_not_reach(scope: Scope, begins: bool) -> None:
    it = Frozen("steps: [{id: a, call: t.f}, {id: child, run: other}]")
    it.freeze(scope, "sample" if scope == "workflow" else "", "read_only")
    it.play.succeed("a")
    assert bool(it.play.state.held) is not begins
    it.thaw()
    assert it.play.state.children
    it.check_again()


def test_a_stop_waits_for_the_thaw_before_it_undoes_anything() -> None:
    it = Frozen(UNDO)
    it.play.succeed("a")
    it.freeze()
    it.play.stop()
    it.play.fail("b", code="step.cancelled", retriable=False)
    assert (it.play.status, it.play.open) == ("stopping", {})
    assert not is_busy(it.play.state)
    it.thaw()
    assert set(it.play.open) == {"a/~undo"}


def test_a_retry_that_is_due_waits_for_the_thaw() -> None:
    it = Frozen("steps: [{id: a, call: t.f, retry: {max: 2, every: 10s, jitter: false}}]")
    it.freeze()
    it.play.fail("a")
    it.play.advance(10 * SECOND)
    assert it.play.open == {}
    it.thaw()
    assert it.play.open == {"a": 2}


def test_a_run_under_two_freezes_goes_on_when_the_last_of_them_ends() -> None:
    it = Frozen(TWO_CALLS)
    it.freeze()
    it.freeze("workflow", "sample")
    it.play.succeed("a")
    del it.freezes[0]
    it.play.go_on()
    assert dict(it.play.state.held) == {"b": "f2"}
    it.thaw()
    assert it.play.open == {"b": 1}
    it.check_again()


@pytest.mark.parametrize("mode", MODES)
def test_a_run_ends_under_any_freeze_where_nothing_is_left_to_begin(mode: Mode) -> None:
    it = Frozen("steps: [{id: a, call: t.f}]")
    it.freeze(mode=mode)
    it.play.succeed("a")
    assert it.play.status == "finished"


def test_a_freeze_of_a_person_holds_the_runs_that_they_are_behind() -> None:
    it = Frozen(TWO_CALLS, start=False)
    it.freeze("principal", "user:zed")
    it.play.start(instigators=("user:zed",))
    assert it.play.open == {}


def test_read_only_holds_a_call_of_whose_effect_nothing_is_known() -> None:
    it = Frozen("tools: {m: {mcp: 'https://m.test/mcp'}}\nsteps: [{id: a, call: m.f}, {id: b, call: m.g}]")
    it.freeze(mode="read_only")
    it.play.succeed("a")
    assert it.play.open == {}


def test_without_agents_neither_an_answer_nor_a_models_call_begins() -> None:
    it = Frozen(flow(tools="[web.search]"))
    it.freeze(mode="no_agents")
    it.play.succeed("chat[0]/model", answer(call("web.search", effect="read")))
    assert it.play.open == {}
    it.thaw()
    (path,) = it.play.open
    assert path.startswith("chat[0]/call[")
    it.freeze("model", "smart")
    it.play.succeed(path, "found")
    assert it.play.open == {}
    it.thaw()
    assert set(it.play.open) == {"chat[1]/model"}
