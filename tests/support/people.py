"""One step that asks people, without the rest of a run: plans made by hand, and votes on them.

`Asked` begins the step and sends it answers, deadlines and reminders, as the commands of a run would. The state of the
step is also folded from its log, so that a fact that is in no event is noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from hai_flow import values
from hai_flow.definition.plan import (
    Approval,
    Approve,
    Ask,
    Call,
    Escalate,
    Expiry,
    FrontendTool,
    Iteration,
    Plan,
    Policy,
    PythonTool,
    Repeat,
    Say,
    Step,
    Template,
    Verb,
)
from hai_flow.definition.plan import Hole as Read
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings import deadlines, decide, eligibility, frontend_calls, gates, validate_answers, votes
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.snapshot import decode_state, encode_state
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.verbs import people
from hai_flow.errors import Rejected
from tests.support.values import require

NOON = 1_772_452_800_000  # 2026-03-02T12:00:00Z
HOUR, DAY = 3_600_000, 86_400_000
RUN = UUID("01900000-0000-7000-8000-000000000001")
REQUESTER = "user:req"
OBJECT = JsonSchema({"type": "object"})


class Lit:
    """A template (or a condition) without holes."""

    roots: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()
    holes: tuple[Read, ...] = ()
    paths: tuple[tuple[str | int, ...], ...] = ()
    source = "a literal"

    def __init__(self, value: Any) -> None:
        self.value = self.written = value

    def render(self, scope: Mapping[str, Any]) -> Any:
        return self.value

    evaluate = render


class Hole(Lit):
    """A template (or a condition) that is one function of one root, like `args`."""

    def __init__(self, root: str, function: Callable[[Any], Any]) -> None:
        self.roots = frozenset({root})
        self.written = f"${{{{ {root} }}}}"
        self.root = root
        self.function = function

    def render(self, scope: Mapping[str, Any]) -> Any:
        return self.function(scope[self.root])

    evaluate = render


def lit(value: Any) -> Template:
    return value if isinstance(value, Lit) else Lit(value)


def policy(from_: Any = ("role:boss",), *, exclude: Any = None, form: Any = None, **fields: Any) -> Policy:
    """A policy whose deadline is an hour and then rejects, unless `fields` say otherwise."""
    literal = from_ if isinstance(from_, tuple | list) else [from_]
    names = any(each in ("requester", "anyone") for each in literal if isinstance(each, str))
    defaults: dict[str, Any] = {"deadline": HOUR, "expiry": Expiry("reject"), "names_requester": names}
    all_fields: dict[str, Any] = {**defaults, **fields}
    return Policy(
        from_=lit(list(from_) if isinstance(from_, tuple) else from_),
        exclude=None if exclude is None else lit(exclude),
        form=None if form is None else lit(form),
        **all_fields,
    )


def escalate(deadline: int = HOUR, *, from_: Any = None, exclude: Any = None, **fields: Any) -> Escalate:
    return Escalate(
        deadline,
        from_=None if from_ is None else lit(from_),
        exclude=None if exclude is None else lit(exclude),
        **fields,
    )


def plan_with(
    verb: Verb,
    *,
    approval: Approval | None = None,
    handlers: tuple[str, ...] = (),
    roles: Mapping[str, tuple[str, ...]] | None = None,
    sha: bytes = b"\x01" * 32,
    expose: bool = False,
) -> Plan:
    """One step, `gate`, in a repeat of one iteration; each of its handlers says its own name."""
    firsts = {option: f"loop[]/gate/~{option}/tell" for option in handlers}
    gate = Step(
        path="loop[]/gate", id="gate", verb=verb, parent="loop[]", approval=approval, handlers=firsts, expose=expose
    )
    steps = [
        Step(path="loop", id="loop", verb=Repeat(1, "loop[]")),
        Step(path="loop[]", id="", verb=Iteration("loop[]/gate"), parent="loop", body="[]"),
        gate,
    ]
    for option, first in firsts.items():
        steps.append(Step(path=first, id="", verb=Say("text", Lit(option)), parent="loop[]/gate", body=f"~{option}"))
    return Plan(
        name="asking",
        version=1,
        sha256=sha,
        source=b"",
        title="",
        description="",
        input=OBJECT,
        state={},
        state_schema=OBJECT,
        tools={},
        steps={step.path: step for step in steps},
        ids={"gate": "loop[]/gate", "loop": "loop"},
        first="loop",
        output=None,
        roles=roles or {},
    )


def approving(rules: Policy, **fields: Any) -> Plan:
    evidence = fields.pop("evidence", None)
    return plan_with(Approve(Lit("Go?"), None, None if evidence is None else lit(evidence), rules), **fields)


def asking(rules: Policy, **fields: Any) -> Plan:
    return plan_with(Ask(Lit("What?"), None, rules), **fields)


def gated(rules: Policy, *, when: Any = None, title: Any = None, message: Any = None, **fields: Any) -> Plan:
    call = Call(PythonTool("shop", "acme.shop"), "refund", Lit({}))
    return plan_with(call, approval=Approval(rules, when=when, title=title, message=message), **fields)


def picking(**fields: Any) -> Plan:
    tool = FrontendTool("pick", "Pick one.", None, fields.pop("result", None), fields.pop("deadline", HOUR))
    return plan_with(Call(tool, "", Lit({})), **fields)


def who(id: str, *roles: str, groups: tuple[str, ...] = (), for_: str | None = None) -> c.Principal:
    """user:ID with these roles. `for_` names the one whose vote it casts."""
    return c.Principal(f"user:{id}", roles, groups, None if for_ is None else f"user:{for_}")


class Asked:
    """The step `loop[0]/gate` of a plan, which has begun and asks."""

    path = "loop[0]/gate"

    def __init__(self, plan: Plan, *, args: Any = None, requester: str = REQUESTER) -> None:
        self.plan = plan
        self.now = NOON
        self.state = RunState(str(RUN))
        self.log: list[e.Event] = []
        self.ready: tuple[str, ...] = ()
        self._play(lambda draft: self._begin(draft, requester, args))

    def _begin(self, draft: Draft, requester: str, args: Any) -> None:
        draft.emit(
            e.RunStarted,
            workflow="asking",
            version=1,
            sha256=self.plan.sha256.hex(),
            thread_id="t",
            requester=requester,
            input={},
            state={},
            ready=("loop",),
        )
        draft.open_turn(c.Turn())
        draft.emit(e.StepStarted, path="loop", verb="repeat", ready=("loop[0]",))
        draft.emit(e.IterationStarted, path="loop[0]", index=0, ready=(self.path,))
        step = draft.step(self.path)
        text = values.dumps(args if args is not None else {}).decode()
        match step.verb:
            case Ask():
                people.begin_ask(draft, step)
            case Approve():
                people.begin_approve(draft, step)
            case Call(tool=FrontendTool()):
                frontend_calls.begin_frontend_call(draft, step, step.verb.tool, text)
            case _ if step.approval is not None:
                draft.record_start(step, args=text)
                gates.open_gate(draft, step, step.approval, text)
            case _:
                draft.record_start(step, args=text, attempt=1)

    def _play(self, what: Callable[[Draft], Any]) -> Any:
        draft = Draft(self.plan, self.state, self.now, DEFAULT_BOUNDS)
        result = what(draft)
        stored = e.decode_events(e.encode_events(draft.events))
        assert fold(self.state, stored) == draft.state, "the log does not say all of it"
        assert decode_state(encode_state(draft.state)) == draft.state, "a snapshot reads back differently"
        self.state = draft.state
        self.log.extend(draft.events)
        return result

    # --- commands

    def answer(self, by: c.Principal, **fields: Any) -> list[str]:
        """Send an answer. Returns `["accepted"]` or `["already"]`. Raises Rejected."""
        answer = c.PendingAnswer(id=self.id, **fields)
        command = c.Answer(answers=(answer,), by=by)

        def take(draft: Draft) -> list[str]:
            told = []
            for pending, reading, known in validate_answers.readings(draft, command):
                if not known:
                    decide.decide_pending(draft, pending, reading, by, "rest")
                told.append("already" if known else "accepted")
            return told

        return self._play(take)

    def vote(self, by: c.Principal, decision: str = "approve", **fields: Any) -> list[str]:
        return self.answer(by, decision=decision, **fields)

    def refusal(self, by: c.Principal, decision: str | None = "approve", **fields: Any) -> Rejected:
        """Send an answer that is refused, which changes nothing."""
        before = self.state
        try:
            self.answer(by, decision=decision, **fields)
        except Rejected as rejected:
            assert self.state is before
            return rejected
        raise AssertionError(f"{by.id} was not refused")

    def advance(self, ms: int) -> list[str]:
        """Let time pass and fire the timers that are due, one after the other. Returns the kinds that fired."""
        self.now += ms
        fired: list[str] = []
        while (due := next((t for t in self.state.timers if t.due <= self.now), None)) is not None:
            fired.append(due.kind)
            self._play(lambda draft, due=due: self._fire(draft, due.kind))
        return fired

    def _fire(self, draft: Draft, kind: str) -> None:
        draft.emit(e.TimerFired, path=self.path, kind=kind)
        step = draft.step(self.path)
        if kind == "remind":
            deadlines.remind(draft, step)
        else:
            deadlines.deadline_passed(draft, step)

    def do(self, what: Callable[[Draft, Step], Any]) -> Any:
        return self._play(lambda draft: what(draft, draft.step(self.path)))

    # --- the state

    @property
    def pendings(self) -> list[PendingState]:
        return sorted(self.state.pendings.values(), key=lambda each: each.opened.at)

    @property
    def pending(self) -> PendingState:
        return self.pendings[-1]

    @property
    def id(self) -> str:
        return self.pending.opened.id

    @property
    def args(self) -> str:
        """The arguments of the call that is asked about."""
        return require(self.pending.opened.args)

    @property
    def is_open(self) -> bool:
        return self.pending.status == "open"

    @property
    def envelope(self) -> dict[str, Any]:
        return self.state.steps[self.path].approval

    @property
    def status(self) -> str:
        return self.state.steps[self.path].status

    @property
    def error(self) -> str:
        return require(self.state.steps[self.path].error).code

    @property
    def handler(self) -> str | None:
        return self.state.steps[self.path].handler

    def of(self, kind: type[e.Event]) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]

    def can(self, by: c.Principal) -> bool:
        return eligibility.may_decide(self.plan, self.state, self.pending, by)

    @property
    def needs(self) -> Any:
        return votes.describe_needs(self.pending)


def failure(plan: Plan, **fields: Any) -> Raised:
    """Why the step can't even ask."""
    try:
        Asked(plan, **fields)
    except Raised as raised:
        return raised
    raise AssertionError("it asks")
