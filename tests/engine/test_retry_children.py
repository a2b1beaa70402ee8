"""A Retry goes down to the child runs that failed, or were cut off, and goes on there: no effect is done twice."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decision import Decision, Message
from hai_flow.engine.handlers.control import FINISHED
from hai_flow.engine.runs import children
from hai_flow.engine.state.ids import derive_child_run_id
from hai_flow.errors import Rejected
from tests.engine.test_agents import TOOLS, answer, call
from tests.support.runs import RUN, Play, plan_of
from tests.support.values import require

UPPER = (
    'steps: [{id: before, call: t.f}, {id: sub, run: lower}, {id: after, call: t.f}]\noutput: "${{ steps.sub.output }}"'
)
LOWER = "steps: [{id: charge, call: t.f}, {id: book, call: t.f}]\noutput: ${{ steps.book.output }}"


class Tree:
    """A run and all runs below it, with what they want of each other, delivered as `runtime.delivery` does.

    `done` counts the recorded successes of each effect, by its place below the outermost run; `keys` are the
    idempotency keys under which it was performed."""

    def __init__(self, **workflows: str) -> None:
        self.plans = {name: plan_of(body) for name, body in workflows.items()}
        self.plays: dict[str, Play] = {}
        self.places: dict[str, str] = {}
        self.mail: deque[tuple[str, Message]] = deque()  # with their senders
        self.done: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}
        self.kinds: list[str] = []
        self.root = self._new("root", str(RUN), "")
        self.send(self.root, self.root.start({}))
        self.deliver()

    def _new(self, workflow: str, run_id: str, place: str) -> Play:
        self.places[run_id] = place
        play = self.plays[run_id] = Play(self.plans[workflow], run_id=UUID(run_id), start=False)
        return play

    def send(self, play: Play, decision: Decision) -> None:
        self.mail.extend((str(play.run_id), message) for message in decision.outbox)

    def do(self, play: Play, command: c.Command) -> None:
        self.send(play, play.do(command))

    def deliver(self) -> list[str]:
        """Deliver all that can be; the kinds, in order, with the status of what was refused."""
        kinds: list[str] = []
        waiting: deque[tuple[str, Message]] = deque()
        while self.mail:
            sender, message = self.mail.popleft()
            behind = any((who, each.target) == (sender, message.target) for who, each in waiting)
            kind = f"{message.kind}!503" if behind else self.deliver_one(message)
            if kind.endswith("!503"):
                waiting.append((sender, message))
            kinds.append(kind)
        self.mail = waiting
        return kinds

    def deliver_one(self, message: Message) -> str:
        body: Any = message.body
        kind = message.kind
        if kind == children.START or (kind == children.RETRY and message.target not in self.plays):
            kind = children.START
            if message.target not in self.plays:
                parent = body["parent"]
                self._new(body["workflow"], message.target, f"{self.places[parent['run_id']]}/{parent['path']}")
        command = require(children.build_command(kind, message.target, body))
        try:
            self.do(self.plays[message.target], command)
        except Rejected as rejected:
            if message.kind == children.RETRY and rejected.status != 503:
                self._tell_end(message, rejected)
            return f"{message.kind}!{rejected.status}"
        return message.kind

    def _tell_end(self, message: Message, rejected: Rejected) -> None:
        with suppress(Rejected):  # nobody waits for it any more
            self._tell(message, rejected)

    def _tell(self, message: Message, rejected: Rejected) -> None:
        body: Any = message.body
        parent = body["parent"]
        ended = {"status": "failed", "error": {"code": rejected.code, "message": rejected.detail, "at": 0}}
        if rejected.code == FINISHED:
            ended = children.outcome_of(self.plays[message.target].state)
        place = {"path": parent["path"], "attempt": parent["attempt"]}
        self.do(self.plays[parent["run_id"]], msgspec.convert({**ended, **place}, c.ChildEnded))

    def open(self) -> list[tuple[Play, str]]:
        """The effects that are being performed, everywhere."""
        found = []
        for play in self.plays.values():
            found += [(play, path) for path in sorted(play.open) if path not in play.state.children]
        return found

    def place(self, play: Play, path: str) -> str:
        return f"{self.places[str(play.run_id)]}/{path}"

    def succeed(self, play: Play, path: str) -> None:
        place = self.place(play, path)
        self.done[place] += 1
        self.keys.setdefault(place, set()).add(play.state.steps[path].key or f"{play.run_id}/{path}")
        self.send(play, play.succeed(path, place))
        self.deliver()

    def fail(self, play: Play, path: str, code: str = "tool.failed") -> None:
        self.keys.setdefault(self.place(play, path), set()).add(play.state.steps[path].key or f"{play.run_id}/{path}")
        self.send(play, play.fail(path, code, retriable=False))
        self.deliver()

    def at(self, place: str) -> tuple[Play, str]:
        """The open effect at this place below the outermost run."""
        return next(each for each in self.open() if self.place(*each) == place)

    def retry(self, by: str = "user:op") -> None:
        self.do(self.root, c.Retry(by=by))
        self.deliver()

    def settle(self) -> None:
        """Let all effects succeed, and deliver again what was put off, until nothing moves."""
        while self.mail or self.open():
            for play, path in self.open()[:1]:
                self.succeed(play, path)
            kinds = self.deliver()
            assert self.open() or not self.mail or not all(kind.endswith("!503") for kind in kinds), kinds


def failed_below() -> Tree:
    """The root's child has charged a card, and failed then."""
    tree = Tree(root=UPPER, lower=LOWER)
    tree.succeed(*tree.at("/before"))
    tree.succeed(*tree.at("/sub/charge"))
    tree.fail(*tree.at("/sub/book"))
    assert tree.root.error.code == "run.failed"
    return tree


def test_a_retry_goes_on_in_the_child_that_failed() -> None:
    tree = failed_below()
    tree.retry()
    (child,) = (play for play in tree.plays.values() if play is not tree.root)
    assert child.status == "running"
    retried = [event for event in child.events if isinstance(event, e.RunRetried)]
    assert [(each.by, each.awaited) for each in retried] == [("user:op", e.Awaited(2))]
    tree.settle()
    assert (tree.root.status, tree.root.output) == ("finished", "/sub/book")
    assert tree.done == Counter(["/before", "/sub/charge", "/sub/book", "/after"])
    assert all(len(keys) == 1 for keys in tree.keys.values())


def test_what_a_child_has_said_to_the_attempt_before_is_refused_as_late() -> None:
    tree = Tree(root=UPPER, lower=LOWER)
    tree.succeed(*tree.at("/before"))
    tree.succeed(*tree.at("/sub/charge"))
    child, path = tree.at("/sub/book")
    late = child.fail(path, retriable=False)
    tree.send(child, late)
    tree.deliver()
    tree.retry()
    tree.send(child, late)
    assert set(tree.deliver()) == {"child_ended!409"}
    assert tree.root.status == "running"


def test_two_retries_at_once_are_one() -> None:
    tree = failed_below()
    tree.do(tree.root, c.Retry(by="user:one"))
    tree.do(tree.root, c.Retry(by="user:two"))
    again = list(tree.mail)
    tree.deliver()
    tree.mail.extend(again)  # delivered twice, too
    tree.deliver()
    tree.settle()
    assert max(tree.done.values()) == 1
    assert tree.root.status == "finished"


@pytest.mark.parametrize("command", [c.Stop(by="user:op"), c.Terminate(by="user:op"), c.Pause(by="user:op")])
def test_a_message_to_a_parent_after_a_retry_reaches_the_child_after_it(command: c.Command) -> None:
    tree = failed_below()
    tree.do(tree.root, c.Retry(by="user:op"))
    tree.do(tree.root, command)
    tree.deliver()
    for play, path in tree.open():
        tree.fail(play, path, "step.cancelled")
    (child,) = (play for play in tree.plays.values() if play is not tree.root)
    wanted = "paused" if isinstance(command, c.Pause) else "stopped"
    assert (tree.root.status, child.status) == (wanted, wanted)


@pytest.mark.parametrize("command", [c.Retry(by="user:op"), c.Skip(by="user:op", path="book")])
def test_a_child_that_nobody_waits_for_names_the_run_to_retry(command: c.Command) -> None:
    middle = "steps: [{id: sub, run: lower}]"
    tree = Tree(root="steps: [{id: mid, run: middle}]", middle=middle, lower=LOWER)
    tree.succeed(*tree.at("/mid/sub/charge"))
    tree.fail(*tree.at("/mid/sub/book"))
    below = [play for play in tree.plays.values() if play is not tree.root]
    assert [play.status for play in below] == ["failed", "failed"]
    for play in below:
        with pytest.raises(Rejected, match=f"Retry {RUN}") as refused:
            play.do(command)
        assert (refused.value.status, refused.value.code) == (409, "run_not_awaited")


def test_a_child_that_needs_attention_is_retried_itself() -> None:
    tree = Tree(root=UPPER, lower=LOWER)
    tree.succeed(*tree.at("/before"))
    child, _ = tree.at("/sub/charge")
    tree.do(child, c.NeedAttention(reason="refused"))
    tree.deliver()
    tree.do(child, c.Retry(by="user:op"))
    tree.deliver()
    tree.settle()
    assert tree.root.status == "finished"


def test_a_child_that_was_cut_off_goes_on_too_also_while_it_still_stops() -> None:
    both = "steps: [{id: p, parallel: {one: [{id: sub, run: lower}], two: [{id: other, call: t.f}]}}]"
    tree = Tree(root=both, lower=LOWER)
    tree.succeed(*tree.at("/p/one/sub/charge"))
    tree.fail(*tree.at("/p/two/other"))
    child, path = tree.at("/p/one/sub/book")
    assert (tree.root.status, child.status) == ("failed", "stopping")
    tree.do(tree.root, c.Retry(by="user:op"))
    assert "retry_child!503" in tree.deliver(), "it is asked again when it has ended"
    tree.fail(child, path, "step.cancelled")
    tree.deliver()
    assert child.status == "running"
    tree.settle()
    assert (tree.root.status, set(tree.done.values())) == ("finished", {1})


def test_a_child_that_finished_unawaited_is_not_begun_again() -> None:
    both = (
        "steps: [{id: p, parallel: {one: [{id: sub, run: lower}], two: [{id: other, call: t.f}]}}]\n"
        "output: ${{ steps.sub.output }}"
    )
    tree = Tree(root=both, lower=LOWER)
    tree.succeed(*tree.at("/p/one/sub/charge"))
    tree.send(tree.root, tree.root.fail("p/two/other", retriable=False))
    child, path = tree.at("/p/one/sub/book")
    stop, tree.mail = tree.mail, deque()
    tree.succeed(child, path)  # it comes before the stop
    tree.mail.extend(stop)
    tree.deliver()
    assert (tree.root.status, child.status) == ("failed", "finished")
    tree.retry()
    tree.settle()
    assert (tree.root.status, tree.root.output) == ("finished", "/p/one/sub/book")
    assert set(tree.done.values()) == {1}


def test_a_child_that_was_never_born_is_started() -> None:
    tree = Tree(root=UPPER, lower=LOWER)
    tree.succeed(*tree.at("/before"))
    tree = Tree(root=UPPER, lower=LOWER)
    tree.send(tree.root, tree.root.succeed("before"))
    tree.mail.clear()  # its start is refused
    error = e.Error("workflow_unknown", "there is no workflow lower.", at=0)
    tree.do(tree.root, c.ChildEnded(path="sub", attempt=1, status="failed", error=error))
    tree.retry()
    assert str(tree.at("/sub/charge")[0].run_id) == derive_child_run_id(str(RUN), "sub", 1)
    tree.settle()
    assert tree.root.status == "finished"


def test_a_child_that_fails_again_at_once_is_heard_of() -> None:
    tree = Tree(root=UPPER, lower="steps: [{id: no, fail: {code: my.no, message: No.}}]")
    tree.succeed(*tree.at("/before"))
    for _ in range(3):
        cause = tree.root.error.cause
        assert (tree.root.status, cause and cause.code) == ("failed", "my.no")
        tree.retry()
    assert len(tree.plays) == 2


def test_a_retry_by_the_steps_own_policy_begins_anew() -> None:
    upper = UPPER.replace("run: lower", "run: lower, retry: {max: 1, errors: [run.failed], jitter: false}")
    tree = Tree(root=upper, lower=LOWER)
    tree.succeed(*tree.at("/before"))
    tree.succeed(*tree.at("/sub/charge"))
    tree.fail(*tree.at("/sub/book"))
    for play in tree.plays.values():
        play.now += 1000
    tree.do(tree.root, c.TimerFired())
    tree.deliver()
    assert tree.at("/sub/charge")
    tree.settle()
    assert tree.done["/sub/charge"] == 2


def test_a_child_of_a_step_that_has_other_arguments_now_begins_anew() -> None:
    run = "{id: sub, run: lower, with: {n: '${{ steps.pick.output }}'}}"
    upper = f"steps: [{{id: pick, call: t.f, undo: {{call: t.f}}}}, {run}]"
    tree = Tree(root=upper, lower=f"input: {{type: object, properties: {{n: {{}}}}}}\n{LOWER}")
    tree.send(tree.root, tree.root.succeed("pick", 1))
    tree.deliver()
    first, path = tree.at("/sub/charge")
    tree.succeed(first, path)
    tree.fail(*tree.at("/sub/book"))
    tree.send(tree.root, tree.root.succeed("pick/~undo"))
    tree.retry()
    tree.send(tree.root, tree.root.succeed("pick", 2))
    tree.deliver()
    assert tree.at("/sub/charge")[0] is not first


def test_tokens_and_calls_of_a_child_that_goes_on_count_once() -> None:
    models = "limits: {tokens: 1000, tool_calls: 9}\n"
    tree = Tree(root=f"{models}{UPPER}", lower=LOWER)
    tree.succeed(*tree.at("/before"))
    tree.succeed(*tree.at("/sub/charge"))
    tree.fail(*tree.at("/sub/book"))
    before = tree.root.state.begun_calls
    tree.retry()
    (child,) = (play for play in tree.plays.values() if play is not tree.root)
    share = next(iter(tree.root.state.granted.values()))
    allowance = require(child.state.allowance)
    assert share.tool_calls is not None
    assert (before, allowance.tool_calls) == (3, share.tool_calls + 2)
    tree.settle()
    assert tree.root.status == "finished"
    assert tree.root.state.begun_calls == 5, "before, charge, book twice, after"


# --- any tree ---------------------------------------------------------------------------------------------------------


BLOCKS = {
    "plain": "{0}",
    "parallel": "{{id: {1}, parallel: {{x: [{0}], y: [{{id: beside, call: t.f}}]}}}}",
    "for_each": "{{id: {1}, for_each: {{items: [1, 2], max_parallel: 2, steps: [{0}]}}}}",
    "repeat": "{{id: {1}, repeat: {{max: 2, steps: [{0}]}}}}",
    "try": "{{id: {1}, try: [{0}]}}",
    "race": "{{id: {1}, join: any, parallel: {{x: [{0}], y: [{{id: beside, call: t.f}}]}}}}",
    "switch": "{{id: {1}, switch: [{{default: true, steps: [{0}]}}]}}",
}


AGENT = "agent: {{model: smart, prompt: Do it., tools: [mail.send], approvals: {{mail.*: none}}, {0}}}"
NO_END = ("max_turns: 2", "agent.max_turns")
NO_OBJECT = (
    "max_turns: 1, stop_when: answer.number == 1, "
    "output: {type: object, required: [n], properties: {n: {type: integer}}}",
    "llm.invalid_output",
)
AROUND = {
    **{name: block for name, block in BLOCKS.items() if name != "race"},  # the branch beside wins it
    "catch": "{{id: {1}, try: [{{id: bad, fail: {{message: no}}}}], catch: [{{steps: [{0}]}}]}}",
    "finally": "{{id: {1}, try: [{{id: quick, call: t.f}}], finally: [{0}]}}",
}


@pytest.mark.parametrize("fault", [NO_END, NO_OBJECT], ids=["no end", "no object"])
@pytest.mark.parametrize(("outer", "inner"), [*zip(AROUND, reversed(AROUND), strict=True), ("for_each", "for_each")])
def test_an_agent_nested_in_blocks_and_children_mails_once_over_retries(
    outer: str, inner: str, fault: tuple[str, str]
) -> None:
    tools = TOOLS.replace("tools:\n", "tools:\n  t: {python: registered}\n")
    agent = AGENT.format(fault[0])
    tree = Tree(
        root=f"steps: [{AROUND[outer].format('{id: down, run: sub}', 'outer')}]",
        sub=f"{tools}steps: [{AROUND[inner].format(f'{{id: chat, {agent}}}', 'inner')}]",
    )
    failures: set[str] = set()

    def answers(number: int, *, ends: bool) -> Any:
        if ends:
            return answer(text='{"n": 1}', output={"n": 1})
        return answer(text="no object") if number and fault is NO_OBJECT else answer(call("mail.send", {"to": "x"}))

    def go_on(*, ends: bool) -> None:
        while tree.open() and tree.root.status not in ("failed", "finished"):
            play, path = tree.open()[0]
            if not path.endswith("/model"):
                tree.succeed(play, path)
                continue
            number = int(path.removesuffix("]/model").rpartition("[")[2])
            tree.send(play, play.succeed(path, answers(number, ends=ends)))
            tree.deliver()
        failures.update(each.state.error.code for each in tree.plays.values() if each.state.error is not None)

    go_on(ends=False)
    for times in range(8):
        if tree.root.status == "failed":
            tree.retry()
            go_on(ends=times > 2)
    assert tree.root.status == "finished"
    assert fault[1] in failures
    assert set(tree.done.values()) == {1}, tree.done
    assert all(len(keys) == 1 for keys in tree.keys.values()), tree.keys


@st.composite
def trees(draw: st.DrawFn) -> dict[str, str]:
    """Workflows that run each other, down to five levels, in and out of blocks."""
    deepest, loops = draw(st.integers(1, 4)), 0
    workflows = {}
    for level in range(deepest + 1):
        last = level == deepest
        steps = ["{id: a, call: t.f}", "{id: b, call: t.f}" if last else f"{{id: down, run: w{level + 1}}}"]
        if draw(st.booleans()):
            steps.append("{id: c, call: t.f}")
        block = draw(st.sampled_from([*BLOCKS] if loops < 2 else ["plain", "parallel", "try", "race", "switch"]))
        loops += block in ("for_each", "repeat")
        steps[1] = BLOCKS[block].format(steps[1], "block")
        workflows[f"w{level}" if level else "root"] = f"steps: [{', '.join(steps)}]"
    return workflows


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(trees(), st.data())
@pytest.mark.slow
def test_each_effect_of_any_tree_happens_once_after_five_retries(
    workflows: dict[str, str], data: st.DataObject
) -> None:
    tree = Tree(**workflows)
    for _ in range(5):
        for _ in range(data.draw(st.integers(0, 12))):
            if effects := tree.open():
                tree.succeed(*data.draw(st.sampled_from(effects)))
        effects = tree.open()
        if tree.root.status == "finished" or not effects:
            break
        tree.fail(*data.draw(st.sampled_from(effects)))
        while tree.root.status not in ("failed", "finished"):  # others may be about to end, or win
            tree.succeed(*data.draw(st.sampled_from(tree.open())))
        if tree.root.status == "finished":
            break
        # what was cut off ends by itself, before the Retry or behind it
        for play, path in tree.open():
            match data.draw(st.sampled_from(["done", "cancelled", "later"])):
                case "done":
                    tree.succeed(play, path)
                case "cancelled":
                    tree.fail(play, path, "step.cancelled")
        tree.retry()
        for play, path in tree.open():
            if play.status == "stopping" and path in play.open:
                tree.fail(play, path, "step.cancelled")
    tree.settle()
    assert tree.root.status == "finished", tree.root.state.error
    assert set(tree.done.values()) == {1}, tree.done
    assert all(len(keys) == 1 for keys in tree.keys.values()), tree.keys
