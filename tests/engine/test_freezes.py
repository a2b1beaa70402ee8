"""A freeze lets nothing begin: what is ready stays ready, what has begun is finished, and a thaw goes on from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Decision
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.state.jobs import is_busy, lacks_time
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.held_steps import MODES, Freeze, Mode, Scope, find_freeze_of_stop, holds_nothing
from tests.engine.test_agents import TOOLS, answer, call, flow
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
        return decide(*args, context=DecisionContext(self.freezes))

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


def test_an_attempt_that_waited_begins_again_with_its_whole_time() -> None:
    it = Frozen("steps: [{id: a, call: t.f, timeout: 1m, retry: {max: 0}}]")
    begun = it.play.state.timeouts["a"]
    it.play.now += 2 * MINUTE
    assert lacks_time(it.play.state, "a", it.play.now)
    it.play.do(c.StepLost(path="a", attempt=1, held=True, reason="It waited."))
    assert it.play.types() == ["step_retried", "attempt_started"]
    assert (it.play.open, it.play.state.timeouts["a"]) == ({"a": 2}, begun + 2 * MINUTE)
    assert (it.play.state.steps["a"].lost, it.play.state.steps["a"].failures) == (0, 0)
    it.play.succeed("a")
    assert it.play.status == "finished"
    it.check_again()


@pytest.mark.parametrize(
    ("passed", "waited", "lacks"),
    [(0, 0, False), (6_000, 6_000, False), (6_001, 6_001, True), (30_000, 0, False), (60_000, 0, True)],
)
def test_an_attempt_lacks_time_after_a_tenth_of_it_in_the_queue(passed: int, waited: int, lacks: bool) -> None:
    it = Frozen("steps: [{id: a, call: t.f, timeout: 1m}]")
    assert lacks_time(it.play.state, "a", it.play.now + passed, waited) is lacks
    assert not lacks_time(it.play.state, "b", it.play.now + passed, waited), "what has no timeout has time"


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
    it.freeze("principal", "user:zo\u00e9")
    it.play.start(instigators=("user:zoe\u0301",))
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


@pytest.mark.parametrize(("name", "held"), [("smart", True), ("clever", True), ("small", True), ("vllm", False)])
def test_a_freeze_of_a_model_takes_each_of_the_names_that_it_has(name: str, held: bool) -> None:
    used = "{use: clever}" if name == "clever" else "{provider: vllm, base_url: 'https://example.com', model: small}"
    it = Frozen(f"models: {{smart: {used}}}\nsteps: [{{id: a, llm: {{model: smart, prompt: Hi.}}}}]", start=False)
    it.freeze("model", name)
    it.play.start()
    assert (list(it.play.open), dict(it.play.state.held)) == (([], {"a": "f1"}) if held else (["a"], {}))


OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations.md"
KINDS: Final = "state: {n: {type: integer, default: 1}}\n" + TOOLS.replace(
    "  pick: {",
    """\
  t: {python: acme.t, effect: external}
  m: {mcp: 'https://m.test/mcp'}
  far: {a2a: 'https://a.test/agent'}
  sends: {effect: reversible, frontend: {description: Send., parameters: {type: object}}}
  grows: {frontend: {description: G., answer: none, parameters: {type: object, properties: {text: {type: string}}}}}
  clerk: {agent: {description: Write., model: smart, tools: [web.search]}}
  pick: {""",
)
STILL: Final = "approval: {from: anyone, still: {call: web.look, expect: response == 1}}"
AGENT: Final = (
    "agent: {model: smart, prompt: Do it., tools: [web.search, mail.send, pick, clerk], approvals: {mail.send: none}}"
)
STEPS: Final[dict[str, dict[str, str]]] = {  # kind of step: such steps, each with the tool or the model that it names
    "`call` of a tool that reads": {"call: web.search": "web"},
    "`call` of another tool, of an external agent, or of an MCP server that does not say its `effect`": {
        "call: t.f": "t",
        "call: m.f": "m.f",
        "call: far, with: {text: x}": "far",
        "call: t.g, stream: {to: grows, argument: text}": "t.g",
    },
    "`call` before which people approve": {"call: t.f, approval: {from: anyone}": "t", f"call: t.f, {STILL}": "t.f"},
    "`call` of a frontend tool without an `effect`": {"call: pick, with: {of: 1}": "pick"},
    "`call` of a frontend tool with another `effect` than `read`": {"call: sends": "sends"},
    "`http` with GET or HEAD": {"http: {get: 'https://a.test'}": "http", "http: {head: 'https://a.test'}": "http"},
    "`http` with another method": {"http: {post: 'https://a.test'}": "http",
                                   "http: {delete: 'https://a.test'}": "http"},
    "`llm`": {"llm: {model: smart, prompt: Hi.}": "smart"},
    "answer of an agent's model": {AGENT: "smart"},
    "agent's call of a tool that reads": {"web.search": "web"},
    "agent's call of another tool": {"mail.send": "mail.send"},
    "agent's call of a frontend tool": {"pick": "pick"},
    "agent's call of an agent": {"clerk": "clerk"},
    "`run`": {"run: other": ""},
    "`undo` of a call": {"call: t.g, undo: {call: t.f}": "t.f"},
    "attempt after a failure": {"call: t.f, retry: {max: 2, every: 10s, jitter: false}": "t"},
    "`approve`, `ask`": {
        "approve: {title: Go?, from: anyone}": "",
        "ask: {title: Go?, from: anyone, form: {properties: {n: {type: integer}}}}": ""},
    "`wait`, `wait_for`": {"wait: {for: 1h}": "", "wait_for: {event: x, deadline: 1h}": ""},
    "`say`, `emit`, `set`, `let`, blocks, ends": {
        "say: Hi.": "", "emit: {custom: {name: x}}": "", "set: {n: 2}": "", "let: {n: 2}": "",
        "try: [{say: Hi.}]": "", "return: 1": "",
    },
}  # fmt: skip


def rows() -> Iterator[list[str]]:
    """The table of what each freeze holds, as operators read it."""
    text = OPERATIONS.read_text().partition("<!-- freezes -->\n")[2].partition("<!-- end -->")[0]
    for line in text.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_table_of_freezes_has_every_kind_of_step_once() -> None:
    assert [row[0] for row in rows()] == list(STEPS)


@pytest.mark.costly
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[0])
def test_a_freeze_holds_what_its_table_says_and_a_thaw_goes_on_there(row: list[str], mode: Mode) -> None:
    kind, of_tool, of_model, read_only, no_agents = row
    for step, name in STEPS[kind].items():
        named = "http" if of_tool == "`http`" else name
        of_scope: dict[tuple[Scope, str], bool] = {
            ("all", ""): True, ("tenant", ""): True, ("workflow", "sample"): True, ("principal", "user:ann"): True,
            ("tool", named): bool(of_tool), ("model", name): bool(of_model),
            ("workflow", "another"): False, ("principal", "user:zed"): False, ("tool", "no"): False,
            ("model", "no"): False,
        }  # fmt: skip
        of_mode = {"frozen": "held", "read_only": read_only, "no_agents": no_agents}[mode]
        for (scope, subject), of in of_scope.items():
            held = of and (of_mode == "held" or of_mode == f"with `--{scope}`") and not holds_nothing(mode, scope)
            assert _is_held(kind, step, scope, subject, mode) is held, (step, scope, subject)


@pytest.mark.parametrize(
    ("step", "tool", "mode", "held"),
    [
        (f"call: t.f, {STILL}", "web", "frozen", True),
        (f"call: t.f, {STILL}", "web.look", "read_only", False),
        ("call: t.g, stream: {to: grows, argument: text}", "grows", "frozen", True),
    ],
)
def test_a_freeze_of_a_tool_holds_the_calls_that_need_it(step: str, tool: str, mode: Mode, held: bool) -> None:
    assert _is_held("`call`", step, "tool", tool, mode) is held


def _is_held(kind: str, step: str, scope: Scope, name: str, mode: Mode) -> bool:
    """Whether the freeze, which comes just before the step would begin, holds it. Thawed, it begins."""
    of_agent = kind.startswith("agent's")
    fields = AGENT if of_agent else step
    it = Frozen(
        f"{KINDS}steps:\n  - {{id: first, call: web.look}}\n  - {{id: it, {fields}}}\n  - {{id: end, call: web.x}}\n"
    )
    play = it.play
    if kind == "answer of an agent's model":
        it.freeze(scope, name, mode)
        play.succeed("first")
    elif of_agent:
        play.succeed("first")
        it.freeze(scope, name, mode)
        args = {"task": "x"} if step == "clerk" else {"of": 1}
        play.succeed("it[0]/model", answer(call(step, args, effect="write" if step == "mail.send" else "read")))
    elif kind.startswith("`undo`"):
        play.succeed_all("first", "it")
        it.freeze(scope, name, mode)
        play.stop()
        play.fail("end", code="step.cancelled", retriable=False)
    elif kind.startswith("attempt"):
        play.succeed("first")
        it.freeze(scope, name, mode)
        play.fail("it")
        play.advance(10 * SECOND)
    else:
        it.freeze(scope, name, mode)
        play.succeed("first")
    held = set(play.state.held)
    it.thaw()
    assert not play.state.held
    begun = [event for event in play.last if isinstance(event, e.StepStarted | e.AttemptStarted)]
    assert bool(begun) is bool(held), (step, scope, name)
    assert held <= {event.path for event in begun}
    it.check_again()
    return bool(held)


ENDS: Final = {
    "undo": "steps: [{id: a, call: t.f, undo: {call: t.g}}, {id: b, call: t.f}]",
    "finally": "steps: [{id: a, call: t.f}, {id: b, call: t.f}]\nfinally: [{call: t.g}]",
    "not begun": "steps: [{id: a, call: t.f}, {id: b, call: t.f}, {try: [{call: t.f}], finally: [{call: t.g}]}]",
    "begun": "steps: [{id: a, call: t.f}, {try: [{id: b, call: t.f}], finally: [{call: t.g}]}]",
    "child": "steps: [{id: a, call: t.f}, {id: b, run: other}]",
}


@pytest.mark.parametrize(
    ("end", "scope", "name", "mode", "held"),
    [
        ("undo", "tool", "t.g", "frozen", True),
        ("undo", "tool", "t.f", "frozen", False),
        ("finally", "tool", "t.g", "frozen", True),
        ("finally", "tool", "t.f", "frozen", False),
        ("finally", "workflow", "other", "frozen", False),
        ("not begun", "tool", "t.g", "frozen", False),
        ("begun", "tool", "t.g", "frozen", True),
        ("begun", "tool", "t.g", "read_only", True),
        ("begun", "tool", "t.g", "no_agents", False),
        ("child", "workflow", "other", "frozen", True),
        ("child", "workflow", "third", "frozen", False),
        ("child", "workflow", "other", "no_agents", False),
        ("child", "tenant", "", "read_only", True),
        ("child", "principal", "user:nobody", "frozen", False),
        ("child", "tool", "t.f", "frozen", False),
    ],
)
def test_a_freeze_holds_a_stop_by_what_the_end_of_the_run_would_begin(
    end: str, scope: Scope, name: str, mode: Mode, held: bool
) -> None:
    play = Play("tools: {t: {python: registered}}\n" + ENDS[end]).succeed_all("a")
    freeze = Freeze("f1", mode, scope, name, "a drill")
    assert find_freeze_of_stop(play.plan, play.state, [freeze], ()) == (freeze if held else None)
