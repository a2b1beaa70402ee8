"""Ways around a question, the kinds of questions, and the people that try: what becomes of each (docs/passing.md).

`TABLE` says it, a letter for each of `PEOPLE`; `attempt` tries one cell on a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.pendings.bypass import find_approval, find_rejected
from hai_flow.engine.runs.fork import list_undone
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from tests.engine.test_agents import answer as model_answer
from tests.engine.test_agents import call
from tests.support.runs import FORK, HOUR, Play, plan_of

PEOPLE: Final = {
    "the requester": c.Principal("user:req", ("boss", "operator")),
    "an instigator": c.Principal("user:ins", ("boss", "operator")),
    "an operator": c.Principal("user:op", ("operator",)),
    "a decider": c.Principal("user:boss", ("boss", "operator")),
    "the first of two": c.Principal("user:boss", ("boss", "operator")),
    "the last of two": c.Principal("user:boss", ("boss", "operator")),
    "a delegate of a decider": c.Principal("user:dee", ("operator",), (), "user:boss", ("boss",), ()),
    "a delegate of the requester": c.Principal("user:eve", ("boss", "operator"), (), "user:req", ("boss",), ()),
    "who said no": c.Principal("user:no", ("boss", "operator")),
}
NO: Final = "user:no"
YES_BEFORE: Final = "user:yes"

_BOSS: Final = "from: [role:boss], quorum: {quorum}"
_APPROVE: Final = "{{id: {id}, approve: {{title: Pay?, " + _BOSS + "}}}}"
_FORM: Final = "form: {{type: object, properties: {{yes: {{type: boolean}}}}}}"
KINDS: Final = {
    "an `approve`": _APPROVE,
    "a gate on a call": "{{id: {id}, call: t, approval: {{" + _BOSS + "}}}}",
    "an `ask` of a role": "{{id: {id}, ask: {{title: Pay?, " + _FORM + ", from: [role:boss]}}}}",
    "an `ask` of the requester": "{{id: {id}, ask: {{title: Pay?, " + _FORM + "}}}}",
    "a run below that decides": "{{id: {id}, run: below}}",
    "an agent's gated call": (
        "{{id: {id}, agent: {{model: m, prompt: Pay., tools: [t], approvals: {{t: {{" + _BOSS + "}}}}}}}}"
    ),
    "an `approve` in a branch": "{{id: b, parallel: {{x: [" + _APPROVE + "], y: [say: Hello.]}}}}",
    "an `approve` in a loop": "{{id: l, for_each: {{items: [1], as: n, steps: [" + _APPROVE + "]}}}}",
    "a block with an `approve`": "{{id: b, try: [" + _APPROVE + "]}}",
}  # fmt: skip
_WHERE: Final = {"an `approve` in a branch": "b/x/{id}", "an `approve` in a loop": "l[0]/{id}",
                 "a block with an `approve`": "b"}  # fmt: skip

# As PEOPLE: y it is done, n it is refused, = it is done and passes nothing, - it does not come about.
_BY_DECIDERS: Final = "nnnynyynn"
_ANEW: Final = "nnnyyyyny"
_MOVED: Final = "nnyyyyyn-"
_NOBODY: Final = "nnnnnnnnn"
_OTHERS_ALONE: Final = "nnyyyyyn-"
_STAYS: Final = "========-"
_BEHIND: Final = "yyyy--yy-"
_OF_ITSELF: Final = (  # their answer is for themselves alone: nothing behind them is approved by it
    "a gate on a call", "an `ask` of a role", "an `ask` of the requester", "an agent's gated call"
)  # fmt: skip
_SKIPPABLE: Final = ("an `approve`", "an `approve` in a branch", "an `approve` in a loop")
TABLE: Final[dict[str, dict[str, str]]] = {
    "skip": {
        "an `approve`": _BY_DECIDERS,
        "a gate on a call": _BY_DECIDERS,
        "an `ask` of a role": "yyny--yy-",
        "an `ask` of the requester": "yyyy--yy-",
        "a run below that decides": _NOBODY,
        "an agent's gated call": _NOBODY,
        "an `approve` in a branch": _BY_DECIDERS,
        "an `approve` in a loop": _BY_DECIDERS,
        "a block with an `approve`": _NOBODY,
    },
    "skip before it is asked": {
        "an `approve`": "nnnyn-yn-",
        "a gate on a call": "nnnyn-yn-",
        "an `ask` of a role": "yyny--yy-",
        "an `ask` of the requester": "yyyy--yy-",
        "a run below that decides": "nnnnn-nn-",
        "an agent's gated call": "nnnnn-nn-",
        "an `approve` in a branch": "nnnnn-nn-",
        "an `approve` in a loop": "nnnnn-nn-",
        "a block with an `approve`": "nnnnn-nn-",
    },
    "skip with an output": {
        "an `approve`": _NOBODY,
        "a gate on a call": _BY_DECIDERS,
        "an `ask` of a role": "yyny--yy-",
        "an `ask` of the requester": "ynnn--ny-",
        "a run below that decides": _NOBODY,
        "an agent's gated call": _NOBODY,
        "an `approve` in a branch": _NOBODY,
        "an `approve` in a loop": _NOBODY,
        "a block with an `approve`": _NOBODY,
    },
    "skip with an output what decides whether it is asked": {
        kind: _OTHERS_ALONE if kind != "an `ask` of the requester" else "yyyyyyyy-" for kind in KINDS
    },
    "skip what decides whether it is asked": {
        kind: _OTHERS_ALONE if kind != "an `ask` of the requester" else "yyyyyyyy-" for kind in KINDS
    },
    "retry behind a no": {
        kind: "---------" if "`ask`" in kind or "agent" in kind else _ANEW for kind in KINDS
    },
    "fork or rerun in front of the open question": {
        kind: "yyyy--yy-" if "`ask`" in kind else "yyyyyyyy-" for kind in KINDS
    },
    "fork or rerun in front of a no": {kind: "---------" if "`ask`" in kind else _ANEW for kind in KINDS},
    "fork with another input in front of a no": {
        kind: "---------" if "`ask`" in kind else _ANEW for kind in KINDS
    },
    "branch by a message in front of a no": {kind: "---------" if "`ask`" in kind else _ANEW for kind in KINDS},
    "fork or rerun behind the answer": {
        kind: _BEHIND if kind in _OF_ITSELF else "nnnn--nn-" for kind in KINDS
    },
    "fork with another input behind the answer": {
        kind: "yyny--yy-" if kind == "an `ask` of a role" else _BEHIND if kind in _OF_ITSELF else "nnnn--nn-"
        for kind in KINDS
    },
    "fork where it waited behind the answer": dict.fromkeys(KINDS, _BEHIND),
    "fork where it waited behind the answer, when it has paid": {
        kind: _BEHIND if kind in _OF_ITSELF else "nnnn--nn-" for kind in KINDS
    },
    "retry behind the answer, when a fork has paid": {
        kind: _BEHIND if kind in _OF_ITSELF else "nnnn--nn-" for kind in KINDS
    },
    "skip what has failed behind the answer, when a fork has paid": {
        kind: _BEHIND if kind in _OF_ITSELF else "nnnn--nn-" for kind in KINDS
    },
    "fork or rerun behind a skip": {
        kind: "nnnn--nn-" if kind in _SKIPPABLE else "---------" for kind in KINDS
    },
    "migrate to a version without it": {
        kind: "yyyy--yy-" if "of the requester" in kind else "nnyy--yn-" if "`ask`" in kind else _MOVED
        for kind in KINDS
    },
    "fork to a version without it": {
        kind: "yyyy--yy-" if "of the requester" in kind else "nnyy--yn-" if "`ask`" in kind else _MOVED
        for kind in KINDS
    },
    **{
        f"fork with another {value} that decides whether it is asked": {
            kind: _OTHERS_ALONE if kind != "an `ask` of the requester" else "yyyyyyyy-" for kind in KINDS
        }
        for value in ("input", "state")
    },
    "jump by an hour": {kind: "====--==-" if "`ask`" in kind else _STAYS for kind in KINDS},
    "send a signal": {kind: "====--==-" if "`ask`" in kind else _STAYS for kind in KINDS},
}  # fmt: skip


class Case(NamedTuple):
    """A run that waits in front of a payment: what asks stands at `at`."""

    play: Play
    kind: str
    at: str


def _document(
    kind: str, person: str, *, without: bool = False, guarded: str = "", waits: bool = False, fails: bool = False
) -> str:
    quorum = 2 if "of two" in person else 1
    asking = "{id: other, say: Hello.}" if without else KINDS[kind].format(id="ok", quorum=quorum)
    if guarded:
        asking = asking.replace(", ", f', if: "${{{{ {guarded} > 1 }}}}", ', 1)
    more = (
        "{id: more, ask: {title: More?, from: anyone, form: {type: object, properties: {}}}}" if waits else "say: So."
    )
    return f"""
    input: {{type: object, properties: {{n: {{type: integer}}}}}}
    state: {{n: {{type: integer, default: 9}}}}
    tools: {{t: {{python: "acme:pay", effect: write}}, r: {{python: "acme:look", effect: read}}}}
    models: {{m: {{use: smart}}}}
    steps:
      - {{id: place, ask: {{title: Where?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
      - {{id: first, call: r}}
      - {asking}
      - {more}
      - {"{id: late, call: r}" if fails else "say: Late."}
      - {{id: pay, call: t}}
    """


def _play_of(kind: str, person: str, *, guarded: str = "", waits: bool = False, fails: bool = False) -> Play:
    """A run that has just been answered where, and whose first call is under way."""
    play = Play(_document(kind, person, guarded=guarded, waits=waits, fails=fails), start=False)
    pins = {"below": e.Pin(1, "ab" * 32)}
    play.do(
        c.Start(
            run_id=play.run_id, thread_id="t-1", requester="user:req", instigators=("user:ins",), input={}, pins=pins
        )
    )
    play.answer("place", by="user:zoe", values={})
    return play


def open_question(kind: str, person: str, *, waits: bool = False, fails: bool = False) -> Case:
    """The question is open; `waits`: behind it the run will wait once more; `fails`: behind that it may fail."""
    play = _play_of(kind, person, waits=waits, fails=fails)
    play.succeed("first")
    at = _WHERE.get(kind, "{id}").format(id="ok")
    if kind == "an `approve` in a loop":
        (at,) = play.asking
    if kind == "an agent's gated call":
        play.succeed("ok[0]/model", model_answer(call("t")))
        (at,) = play.asking
    elif kind == "a run below that decides":
        _tell(play, person, "open")
    elif kind == "a block with an `approve`":
        at = "b"
    if person == "the last of two":
        _vote(Case(play, kind, at), YES_BEFORE, "approve")
    return Case(play, kind, at)


def before_it_is_asked(kind: str, person: str) -> Case:
    """The run is paused where the question comes next."""
    play = _play_of(kind, person)
    play.pause()
    play.succeed("first")
    return Case(
        play, kind, "b" if kind[:9] == "a block w" else "b" if "branch" in kind else "l" if "loop" in kind else "ok"
    )


def undecided(kind: str, person: str) -> Case:
    """The step has failed whose output says whether the question is asked."""
    play = _play_of(kind, person, guarded="steps.first.output.n")
    while play.status != "failed":
        _ = play.fail("first") if "first" in play.open else play.advance(HOUR)
    return Case(play, kind, "first")


def rejected(kind: str, person: str) -> Case:
    """One of those who may decide it has said no."""
    case = open_question(kind, person)
    _vote(case, NO, "reject")
    if kind == "a run below that decides":
        cause = e.Error("approval.rejected", "No.", "ok")
        case.play.do(c.ChildEnded(path="ok", attempt=1, status="failed", error=cause))
    return case


def answered(kind: str, *, waits: bool = False, fails: bool = False) -> Case:
    """Somebody who may do so has let the run go on, and it is about to pay, or `waits` in front of that."""
    case = open_question(kind, "an operator", waits=waits, fails=fails)
    play = case.play
    if kind == "a run below that decides":
        _tell(play, "", "approve")
        play.do(c.ChildEnded(path="ok", attempt=1, status="finished", output={}))
    elif "`ask`" in kind:
        (path,) = play.asking
        play.answer(path, by=c.Principal("user:req", ("boss",)), values={"yes": True})
    else:
        (path,) = play.asking
        _vote(case, YES_BEFORE, "approve")
        if path in play.open:
            play.succeed(path)
    if "agent" in kind:
        play.succeed("ok[1]/model", model_answer(text="Paid."))
    assert play.asking == {"more"} if waits else "pay" in play.open
    return case


def skipped(kind: str) -> Case:
    """A decider has skipped the question, and the run is about to pay."""
    case, boss = open_question(kind, "a decider"), PEOPLE["a decider"]
    case.play.do(c.Skip(by=boss.id, who=boss, path=case.at))
    return case


def _vote(case: Case, who: str, decision: str) -> None:
    if case.kind == "a run below that decides":
        _tell(case.play, "", "reject" if decision == "reject" else "open")
        return
    (path,) = case.play.asking
    case.play.answer(path, by=c.Principal(who, ("boss",)), decision=decision)


def _tell(play: Play, person: str, status: str) -> None:
    """The run below asks, or was answered with no."""
    policy = {"from": ["role:boss"], "exclude": ["requester"], "quorum": 2 if "of two" in person else 1}
    opened = e.PendingOpened(at=play.now, id="call_below", path="sign", kind="approve", digest="00", policy=policy)
    vote = e.VoteCast(at=play.now, id="call_below", by=NO, decision="reject", matched=("role:boss",), digest="00")
    told = e.ChildAsked(
        at=play.now, path="", run_id=play.state.children["ok"], opened=opened, status=status,
        by=NO if status == "reject" else None, votes=(vote,) if status == "reject" else (),
    )  # fmt: skip
    play.do(c.ChildTold(path="ok", attempt=1, told=(told,), working=False))


# --- the ways around --------------------------------------------------------------------------------------------------


def _skip(case: Case, who: c.Principal, output: Any = None) -> None:
    case.play.do(c.Skip(by=who.id, who=who, path=case.at, output=output))


def _retry(case: Case, who: c.Principal) -> None:
    case.play.do(c.Retry(by=who.id, who=who))
    assert case.play.status == "waiting" or case.play.open, "it asks anew"


def _go_on_when_a_fork_has_paid(kind: str, who: c.Principal, path: str | None = None) -> None:
    case = answered(kind, waits=True, fails=True)
    play, there = case.play, len(case.play.events)
    play.answer("more", by="user:zoe", values={})
    while play.status != "failed":
        _ = play.fail("late") if "late" in play.open else play.advance(HOUR)
    fork = _fork(case, PEOPLE["a decider"], there)
    fork.answer("more", by="user:zoe", values={})
    fork.succeed_all("late", "pay")
    assert fork.status == "finished"
    acted = fork.acted_behind(there) if find_approval(play.state_at(there)) is not None else ()
    if path is None:
        play.do(c.Retry(by=who.id, who=who, acted=acted))
    else:
        play.do(c.Skip(by=who.id, who=who, path=path, acted=acted))
    assert play.status in ("running", "waiting"), "it goes on"


def _fork(
    case: Case,
    who: c.Principal,
    at: int,
    *,
    edits: c.Edits | None = None,
    without: str | None = None,
    answer: tuple[c.PendingAnswer, ...] = (),
) -> Play:
    play, to = case.play, None
    if without is not None:
        to = plan_of(_document(case.kind, without, without=True).replace("Hello.", "Welcome."))
        edits = c.Edits(was=play.plan)
    other = Play(to or play.plan, run_id=FORK, start=False)
    other.now = play.now
    other.do(
        c.Fork(
            run_id=FORK, of=play.run_id, events=tuple(play.events[:at]), answer=c.Answer(answers=answer, by=who),
            undone=list_undone(play.state), following=play.following(at), edits=edits,
            rejected=tuple(find_rejected(play.state)), acted=play.acted_behind(at),
        )
    )  # fmt: skip
    assert other.state.requester == who.id
    assert "user:req" in (*other.state.all_instigators, who.id, who.on_behalf_of)
    return other


def _branch(case: Case, who: c.Principal) -> None:
    at = next(n for n, event in enumerate(case.play.events, 1) if isinstance(event, e.TurnEnded))
    given = c.PendingAnswer(id=next(iter(case.play.state_at(at).open_pendings.values())), values={})
    _fork(case, who, at, answer=(given,))


def _migrate(case: Case, who: c.Principal, person: str) -> None:
    to = plan_of(_document(case.kind, person, without=True).replace("Hello.", "Welcome."))
    decide(case.play.plan, case.play.state, c.Migrate(to=to, by=who.id, who=who), case.play.now)


def _at_the_place(kind: str, person: str, *, guarded: str = "") -> Case:
    """Nothing was answered yet: what asks is still to come."""
    play = Play(_document(kind, person, guarded=guarded), start=False)
    pins = {"below": e.Pin(1, "ab" * 32)}
    play.do(
        c.Start(
            run_id=play.run_id, thread_id="t-1", requester="user:req", instigators=("user:ins",), input={}, pins=pins
        )
    )
    return Case(play, kind, "ok")


def _stays(case: Case, who: c.Principal, command: c.Command) -> None:
    before = _questions(case)
    case.play.do(command)
    assert _questions(case) == before, "nothing was passed"
    assert "pay" not in case.play.open


def _questions(case: Case) -> dict[str, str]:
    found: dict[str, PendingState] = dict(case.play.state.questions)
    return {id: each.status for id, each in found.items()}


WAYS: Final[dict[str, Callable[[str, str, c.Principal], None]]] = {
    "skip": lambda kind, person, who: _skip(_open(kind, person), who),
    "skip before it is asked": lambda kind, person, who: _skip(before_it_is_asked(kind, person), who),
    "skip with an output": lambda kind, person, who: _skip(_open(kind, person), who, {"yes": True}),
    "skip with an output what decides whether it is asked": lambda kind, person, who: _skip(
        undecided(kind, person), who, {"n": 0}
    ),
    "skip what decides whether it is asked": lambda kind, person, who: _skip(undecided(kind, person), who),
    "retry behind a no": lambda kind, person, who: _retry(rejected(kind, person), who),
    "fork or rerun in front of the open question": lambda kind, person, who: _fork_in_front(
        open_question(kind, person), who
    ),
    "fork or rerun in front of a no": lambda kind, person, who: _fork_in_front(rejected(kind, person), who),
    "fork with another input in front of a no": lambda kind, person, who: _fork_in_front(
        rejected(kind, person), who, edits=c.Edits(input={"n": 2})
    ),
    "branch by a message in front of a no": lambda kind, person, who: _branch(rejected(kind, person), who),
    "fork or rerun behind the answer": lambda kind, person, who: _fork_behind(answered(kind), who),
    "fork with another input behind the answer": lambda kind, person, who: _fork_behind(
        answered(kind), who, edits=c.Edits(input={"n": 2})
    ),
    "fork where it waited behind the answer": lambda kind, person, who: _fork_where_it_waited(kind, who, paid=False),
    "fork where it waited behind the answer, when it has paid": lambda kind, person, who: _fork_where_it_waited(
        kind, who, paid=True
    ),
    "retry behind the answer, when a fork has paid": lambda kind, person, who: _go_on_when_a_fork_has_paid(kind, who),
    "skip what has failed behind the answer, when a fork has paid": lambda kind, person, who: (
        _go_on_when_a_fork_has_paid(kind, who, path="late")
    ),
    "fork or rerun behind a skip": lambda kind, person, who: _fork_behind(skipped(kind), who),
    "migrate to a version without it": lambda kind, person, who: _migrate(_at_the_place(kind, person), who, person),
    "fork to a version without it": lambda kind, person, who: _fork_in_front(
        _at_the_place(kind, person), who, without=person
    ),
    "fork with another input that decides whether it is asked": lambda kind, person, who: _fork_in_front(
        _at_the_place(kind, person, guarded="input.n"), who, edits=c.Edits(input={"n": 0})
    ),
    "fork with another state that decides whether it is asked": lambda kind, person, who: _fork_in_front(
        _at_the_place(kind, person, guarded="state.n"), who, edits=c.Edits(state={"n": 0})
    ),
    "jump by an hour": lambda kind, person, who: _stays(_open(kind, person), who, c.Jump(by=who.id, ms=HOUR)),
    "send a signal": lambda kind, person, who: _stays(
        _open(kind, person), who, c.Signal(id="s", name="ok", data={"decision": "approve"}, by=who.id)
    ),
}


def _open(kind: str, person: str) -> Case:
    return open_question(kind, person) if person != "who said no" or "`ask`" in kind else rejected(kind, person)


def _fork_in_front(case: Case, who: c.Principal, **more: Any) -> None:
    at = case.play.before("first") if any(each.type == "step_started" and getattr(each, "path", "") == "first"
                                          for each in case.play.events) else len(case.play.events)  # fmt: skip
    _fork(case, who, at, **more)


def _fork_behind(case: Case, who: c.Principal, **more: Any) -> None:
    _fork(case, who, case.play.before("pay"), **more)


def _fork_where_it_waited(kind: str, who: c.Principal, *, paid: bool) -> None:
    case = answered(kind, waits=True)
    play = case.play
    there = len(play.events)
    if paid:
        play.answer("more", by="user:zoe", values={})
        play.succeed("pay")
        assert play.status == "finished"
    _fork(case, who, there)


def attempt(way: str, kind: str, person: str) -> str:
    """What becomes of it: done (y or =), or refused (n)."""
    try:
        WAYS[way](kind, person, PEOPLE[person])
    except Rejected as rejected:
        return "n" if rejected.status in (403, 409, 422) and rejected.detail.endswith(".") else repr(rejected)
    return "=" if TABLE[way][kind][0] == "=" else "y"
