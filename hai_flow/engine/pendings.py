"""Asking people and taking their answers: open a pending, read and decide it, remind, escalate, let it expire.

How the content of an answer is understood is in `answers`, how votes add up in `votes`. The asker comes authenticated,
with the roles and groups that they have at that moment.

Times: deadlines and reminders are those of a stage. Each opening of the clock (the first, and every escalation) sets
one timer for its deadline and one for the next reminder.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from hai_flow import values
from hai_flow.definition.paths import REJECT, option
from hai_flow.definition.plan import (
    Approval,
    Approve,
    Ask,
    Call,
    Expiry,
    FrontendTool,
    Http,
    Plan,
    Policy,
    Run,
    Step,
    Template,
)
from hai_flow.definition.schemas import compile_schema
from hai_flow.engine import commands as c
from hai_flow.engine import endings, votes
from hai_flow.engine import events as e
from hai_flow.engine.answers import (
    AGAIN,
    DOUBT_OPTIONS,
    HAPPENED,
    INQUIRY_OPTIONS,
    Reading,
    digest,
    edits_by_name,
    read_answer,
    refused,
)
from hai_flow.engine.bounds import demand_wait
from hai_flow.engine.calls import SHOWN, foretell, resolve_call, show_call, written
from hai_flow.engine.consequences import Consequence, Finish
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.ids import pending_id, pending_of, shown_call_id
from hai_flow.engine.policies import milliseconds, rules_for
from hai_flow.engine.selectors import (
    REQUESTER,
    World,
    barred,
    matched,
    person_of,
)
from hai_flow.engine.state import PendingState, RunState, ToolCallState
from hai_flow.engine.votes import Rules, rules_of
from hai_flow.errors import Rejected
from hai_flow.values import Json

OPERATORS: Final = ("role:operator", "user:local")  # who settle a lost outcome

INQUIRY_MS: Final = 7 * 24 * 3_600_000  # how long a question of a tool stays open
INQUIRY_ENDS: Final = ("answered", *INQUIRY_OPTIONS)

NOT_ASKED: Final = "not_asked"  # why somebody may not decide: they are not among those who are asked

_EXPIRED: Final = "Nobody decided before the deadline."
_EXPIRED_CODES: Final = {"tool": "tool.expired", "ask": "ask.expired"}


# --- beginning --------------------------------------------------------------------------------------------------------


def begin_ask(draft: Draft, step: Step, verb: Ask) -> None:
    """The step begins by asking. Raises `Raised`: it fails instead."""
    demand_wait(draft, step)
    rules = rules_for(draft, step, verb.policy, {}, may_exclude=False)
    shown = _question(draft, step, verb.title, verb.message)
    shown["schema"] = _form(draft, step, verb.policy.form, {})
    draft.started(step)
    _open(draft, step, "ask", rules, **shown)


def begin_approve(draft: Draft, step: Step, verb: Approve) -> None:
    """The step begins by asking for approval. Raises `Raised`: it fails instead."""
    demand_wait(draft, step)
    rules = rules_for(draft, step, verb.policy, {})
    shown = _question(draft, step, verb.title, verb.message)
    if verb.evidence is not None:
        shown["evidence"] = draft.json_text(draft.render(verb.evidence, step))
    shown["schema"] = _form(draft, step, verb.policy.form, {})
    draft.started(step)
    _open(draft, step, "approve", rules, options=verb.policy.options, **shown)


def begin_frontend_call(draft: Draft, step: Step, tool: FrontendTool, args: str) -> Consequence | None:
    """The step begins by handing a call to the client. Raises `Raised`: it fails instead."""
    if tool.answered:
        demand_wait(draft, step)
    findings = tool.parameters.findings(values.loads(args)) if tool.parameters is not None else []
    if findings:
        faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
        raise Raised("tool.invalid_arguments", f"{tool.name} was called with wrong arguments: {faults}.")
    if not tool.answered:
        return _only_show(draft, step, tool, args)
    rules = Rules(from_=(REQUESTER,), deadline=milliseconds(draft, step, tool.deadline, {}))
    if not is_approved(draft.state, step, args):  # behind a gate it has begun already
        draft.started(step, args=args)
    if _shown_before(draft, step) is None:
        foretell(draft, step, tool)
        show_call(draft, step, new_pending_id(draft, step), tool.name, args, "frontend")
    schema = tool.result.raw if tool.result is not None else None
    _open(draft, step, "tool", rules, tool=tool.name, args=args, schema=schema)
    return None


def _only_show(draft: Draft, step: Step, tool: FrontendTool, args: str) -> Consequence:
    """A call that the client shows, or performs, as it likes: the run goes on behind it."""
    draft.pure_steps += 1
    draft.started(step, args=args)
    if (call := written(draft.state, step.path)) is not None:
        draft.emit(e.ToolCallResolved, tool_call_id=call.id, content=SHOWN)
        return Finish(step)
    id = shown_call_id(draft.state.run_id, step.path, draft.state.entries)
    foretell(draft, step, tool)
    show_call(draft, step, id, tool.name, args, "frontend")
    draft.emit(e.ToolCallResolved, tool_call_id=id, content=SHOWN)
    return Finish(step)


def needs_gate(draft: Draft, step: Step, gate: Approval, args: str) -> bool:
    """Whether people must approve a call with these arguments. Raises `Raised`: an error in `when` never skips it."""
    return gate.when is None or draft.truth(gate.when, step, args=values.loads(args))


def open_gate(draft: Draft, step: Step, gate: Approval, args: str) -> None:
    """Ask for approval of these very arguments. The step has begun (attempt 0). Raises `Raised`: it fails instead."""
    demand_wait(draft, step)
    roots = {"args": values.loads(args)}
    rules = rules_for(draft, step, gate.policy, roots)
    name = _effect_name(step, roots["args"])
    known = draft.state.steps[step.path]
    title = f"{name}?" if gate.title is None else draft.text(gate.title, step, **roots)
    _open(
        draft,
        step,
        "gate",
        rules,
        title=title,
        message=None if gate.message is None else draft.text(gate.message, step, **roots),
        tool=name,
        args=known.args,
        schema=_form(draft, step, gate.policy.form, roots),
        options=gate.policy.options,
    )


def _effect_name(step: Step, args: Json) -> str:
    """The effect of the step, in the words of the document."""
    match step.verb:
        case Call(tool, function):
            return f"{tool.name}.{function}" if function else tool.name
        case Http():
            return f"{str(args.get('method', '')).upper()} {args.get('url', '')}".strip() or "http"
        case Run(workflow):
            return f"run {workflow}"
        case _:
            return step.verb_name


def check_gate(draft: Draft, step: Step) -> str:
    """The text of the arguments that were approved, which the effect must start with. Raises `Raised`
    (approval.digest) if the call about to begin is not the approved one."""
    state = draft.state
    approved, args = approved_gate(state, step), state.steps[step.path].args
    fault = None
    if approved is None:
        fault = "nobody approved this call"
    elif _digest_with(draft, approved.opened, args) != approved.opened.digest:
        fault = "its arguments, or the workflow, are not those that were shown"
    elif approved.status == votes.APPROVE and not votes.approvals(rules_of(approved), approved):
        fault = "no approval of these arguments is on record"
    if fault is not None or args is None:
        raise Raised("approval.digest", f"{step.path} was not performed: {fault}. Start the run again.")
    return args


def _digest_with(draft: Draft, opened: e.PendingOpened, args: str | None) -> str:
    return digest(draft.state.sha256, draft.state.run_id, msgspec.structs.replace(opened, args=args))


def is_approved(state: RunState, step: Step, args: str) -> bool:
    """Whether the step's gate was passed with these very arguments. (That the step has an envelope does not say so:
    a rejection leaves one too.)"""
    passed = approved_gate(state, step)
    return passed is not None and passed.opened.args == args


def approved_gate(state: RunState, step: Step) -> PendingState | None:
    """The gate of the step that was passed last."""
    known = state.steps.get(step.path)
    for n in range(known.asked if known else 0, 0, -1):
        found = pending_of(state, step.path, n - 1)
        if found is not None and found.opened.kind == "gate":
            passed = found.status in (votes.APPROVE, "expired") and isinstance(found.value, dict)
            return found if passed and found.value["decision"] == votes.APPROVE else None
    return None


# --- doubt ------------------------------------------------------------------------------------------------------------


def open_doubt(draft: Draft, step: Step, reason: str | None = None) -> None:
    """The outcome of an effect was lost that must not simply be performed again: only a person can find it out. (Not
    while the run is being stopped: a stop always ends.)"""
    if draft.state.status == "stopping":
        message = reason or "The process that performed the step is gone, and its outcome with it."
        endings.fail(draft, step, draft.error("step.in_doubt", message, step.path))
        return
    known = draft.state.steps[step.path]
    args = values.loads(known.args or "{}")
    name = _effect_name(step, args)
    what = reason or "The process that performed it is gone, and its outcome with it."
    once = step.delivery == "at_most_once"
    why = "It is performed at most once" if once else "It may have happened, so it is not simply done again"
    _open(
        draft,
        step,
        "doubt",
        Rules(from_=OPERATORS, asks_requester=False),
        title=f"Did {name} happen?",
        message=f"{what} {why}: look there, then say that it happened (with its result), that it is to be done again, "
        "or that the step fails.",
        tool=name,
        args=known.args,
        options=DOUBT_OPTIONS,
    )


def doubt_of(state: RunState, path: str, attempt: int) -> PendingState | None:
    """The open doubt about this very attempt, whose late result may settle it before a person does
    (docs/design/store.md#lost-attempts)."""
    id = state.open_pendings.get(path)
    found = None if id is None else state.pendings[id]
    if found is None or found.opened.kind != "doubt" or state.steps[path].attempt != attempt:
        return None
    return found


def settle_doubt(draft: Draft, pending: PendingState) -> None:
    """The outcome came after all; its consequences for the step are up to the caller."""
    draft.emit(e.PendingVoided, id=pending.opened.id, reason="the outcome of the call arrived")


def _settle_by_person(draft: Draft, step: Step, reading: Reading, by: str) -> None:
    known = draft.state.steps[step.path]
    if reading.outcome == HAPPENED:
        resolve_call(draft, step, reading.value, None)
        endings.finish(draft, step, reading.value)
        return
    said = f" {reading.reason}" if reading.reason else ""
    message = f"The outcome of attempt {known.attempt} was lost; {by} decided: {reading.outcome}.{said}"
    error = draft.error("step.in_doubt", message, step.path)
    if reading.outcome == AGAIN:
        draft.emit(e.StepRetried, path=step.path, attempt=known.attempt, error=error, lost=True)
    else:
        resolve_call(draft, step, None, error)
        endings.fail(draft, step, error)


# --- inquiries --------------------------------------------------------------------------------------------------------


def open_inquiry(draft: Draft, step: Step, asks: c.StepAsks) -> None:
    """A tool asks a person in the middle of its call. The attempt is over; its words are shown as those of the tool."""
    known = draft.state.steps[step.path]
    name = _effect_name(step, values.loads(known.args or "{}"))
    rules = Rules(from_=(REQUESTER, *OPERATORS), deadline=INQUIRY_MS)
    _open(
        draft,
        step,
        "ask",
        rules,
        title=f"{name} asks",
        message=f"These are words of the tool {name}, not of this workflow:\n\n{asks.message}",
        tool=name,
        schema=asks.form,
        options=INQUIRY_OPTIONS,
        inquiry=e.Inquiry(known.attempt, asks.state, asks.keys),
    )


def answered_inquiry(state: RunState, step: Step, attempt: int) -> PendingState | None:
    """The question of the step's tool whose answer the attempt has to bring: that of the attempt before it.

    A later attempt of what may change something asks anew: the tool may have used the answer already.
    """
    known = state.steps[step.path]
    found = pending_of(state, step.path, known.asked - 1) if known.asked else None
    if found is None or found.opened.inquiry is None or found.status not in INQUIRY_ENDS:
        return None
    if found.opened.inquiry.attempt != attempt - 1 and step.delivery != "at_least_once":
        return None
    return found


# --- opening ----------------------------------------------------------------------------------------------------------


def new_pending_id(draft: Draft, step: Step) -> str:
    """The id of the pending that the step opens next."""
    asked = draft.state.steps[step.path].asked if step.path in draft.state.steps else 0
    shown = _shown_before(draft, step)
    return pending_id(draft.state.run_id, step.path, asked) if shown is None else shown.id


def _shown_before(draft: Draft, step: Step) -> ToolCallState | None:
    """The call that the step hands to a client, where that has seen it while a model wrote it and was not asked yet."""
    if not isinstance(step.verb, Call) or not isinstance(step.verb.tool, FrontendTool):
        return None
    call = written(draft.state, step.path)
    return None if call is None or call.result is not None or call.id in draft.state.pendings else call


def _question(draft: Draft, step: Step, title: Template, message: Template | None) -> dict[str, Any]:
    return {
        "title": draft.text(title, step),
        "message": None if message is None else draft.text(message, step),
    }


def _form(draft: Draft, step: Step, form: Template | None, roots: dict[str, Json]) -> Json:
    """The form with its holes filled. Raises `Raised` if that gives no schema."""
    if form is None:
        return None
    raw = draft.render(form, step, **roots)
    faults: list[str] = []
    compile_schema(raw, lambda path, code, message: faults.append(f"{'/'.join(map(str, path))}: {message}"))
    if faults:
        raise Raised("expression.error", f"{step.path}: its form, with the holes filled, is wrong: {faults[0]}.")
    draft.take(len(values.dumps(raw)))
    return raw


def _open(draft: Draft, step: Step, kind: str, rules: Rules, /, **shown: Any) -> None:
    """Open the pending and start its clock; or escalate at once, where its first stage can't be decided."""
    stages = (rules, *rules.escalations)
    blank = PendingState(e.PendingOpened(at=draft.now, id="", path=step.path, kind="ask", digest=""))
    faults = [votes.impossible(stage, blank) for stage in stages]
    if all(faults):
        raise Raised("approval.impossible", f"{step.path}: nobody can decide: {faults[0]}.")
    due = None if rules.deadline is None else draft.now + rules.deadline
    id = new_pending_id(draft, step)
    fields: dict[str, Any] = {
        "id": id,
        "path": step.path,
        "kind": kind,
        "deadline": due,
        "policy": votes.written(rules),
        **shown,
    }
    opened = e.PendingOpened(at=draft.now, digest="", **fields)
    draft.pure_steps += 1
    draft.emit(e.PendingOpened, **{**fields, "digest": digest(draft.state.sha256, draft.state.run_id, opened)})
    if faults[0] is None:
        _set_clock(draft, step)
    else:
        _escalate(draft, step, faults[0])


def _set_clock(draft: Draft, step: Step) -> None:
    """The timers of the stage that begins now."""
    pending = draft.state.pendings[draft.state.open_pendings[step.path]]
    due = pending.opened.deadline
    if due is not None:
        halts = rules_of(pending).pause_clock == "stop"
        draft.emit(e.TimerSet, path=step.path, kind="halting_deadline" if halts else "deadline", due=due)
    _set_reminder(draft, step)


def _set_reminder(draft: Draft, step: Step) -> None:
    pending = draft.state.pendings[draft.state.open_pendings[step.path]]
    delays = rules_of(pending).remind
    if pending.reminded < len(delays):
        due = max(draft.now, pending.since + delays[pending.reminded])
        draft.emit(e.TimerSet, path=step.path, kind="remind", due=due)


def _world(plan: Plan, state: RunState) -> World:
    return World(state.requester, plan.roles)


def restamp(draft: Draft, pending: PendingState) -> None:
    """The pending's content is the same; its workflow's version, or the run, is another one now."""
    bound = digest(draft.state.sha256, draft.state.run_id, pending.opened)
    draft.emit(e.PendingRestamped, id=pending.opened.id, digest=bound)


# --- answers ----------------------------------------------------------------------------------------------------------


def may_decide(plan: Plan, state: RunState, pending: PendingState, principal: c.Principal) -> bool:
    """Whether the principal may answer the pending now: it is open, and they are eligible and have not voted."""
    return pending.status == "open" and obstacle(pending, principal, _world(plan, state)) is None


class Obstacle(NamedTuple):
    """Why a principal may not answer an open pending: a code, and a clause for people."""

    code: str
    reason: str


def obstacle(pending: PendingState, principal: c.Principal, world: World) -> Obstacle | None:
    """What keeps the principal from answering the open pending, or None."""
    found = _ineligible(pending, principal, world)
    if found is not None:
        return found
    mine = [vote for vote in pending.votes if _ids(principal) & {vote.by, votes.voter(vote)}]
    if not mine:
        return None
    spent = ", ".join(sorted(_ids(principal) & votes.who_voted(mine)))
    return Obstacle("voted", f"{spent} has voted on it; a vote stands")


def needed(pending: PendingState) -> dict[str, Json]:
    """The deciders of the pending now, their votes so far, and the votes missing to an approval. Plain JSON."""
    return votes.needed(pending)


def lapsed(before: PendingState, after: PendingState) -> list[Json]:
    """The votes on `before` that counted there, and count no more in `after`, as `needed` shows votes."""
    return votes.lapsed(before, after)


def _ids(principal: c.Principal) -> set[str]:
    return {principal.id, person_of(principal)}


def _ineligible(pending: PendingState, principal: c.Principal, world: World) -> Obstacle | None:
    """Why the principal is not among the deciders, or None."""
    rules = rules_of(pending)
    kept_out = barred(rules.exclude, principal, world)
    if REQUESTER in kept_out:
        return Obstacle("excluded.requester", f"{world.requester} started this run; somebody else must decide")
    if kept_out:
        return Obstacle("excluded", f"{principal.id} is excluded from it ({', '.join(kept_out)})")
    if not matched(rules.from_, principal, world):
        return Obstacle(NOT_ASKED, f"it asks {', '.join(rules.from_)}")
    return None


def readings(draft: Draft, command: c.Answer) -> list[tuple[PendingState, Reading, bool]]:
    """Every answer read against its pending, or one refusal that lists the obstacles to each. True: nothing new."""
    read: dict[str, tuple[PendingState, Reading, bool]] = {}
    refusals: list[Rejected] = []
    for answer in command.answers:
        try:
            entry = _reading(draft, answer, command.by)
            same = read.setdefault(answer.id, entry)
            if same[1].sha != entry[1].sha:
                raise Rejected(422, "answer.invalid", f"{answer.id}: answered twice, and differently, in one request.")
        except Rejected as rejected:
            refusals.append(rejected)
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        first = refusals[0]
        raise Rejected(
            first.status,
            first.code,
            " ".join(rejected.detail for rejected in refusals),
            winner=first.winner,
            findings=[finding for rejected in refusals for finding in rejected.findings],
        )
    return list(read.values())


def _reading(draft: Draft, answer: c.PendingAnswer, by: c.Principal) -> tuple[PendingState, Reading, bool]:
    """One answer, refused in this order: unknown 404, decided 409, expired 410, not eligible 403, unfit 422."""
    pending = draft.state.pendings.get(answer.id)
    if pending is None:
        raise Rejected(404, "pending_unknown", f"there is no pending {answer.id}.")
    given = _understood(draft, pending, answer)
    if isinstance(given, Reading) and _is_known(pending, given, by):
        return pending, given, True
    _demand_open(draft, pending)
    _demand_eligible(draft, pending, by)
    if isinstance(given, Rejected):
        raise given
    if given.outcome == votes.APPROVE and given.value is not None:
        _combined_with(pending, given)
    return pending, given, False


def _understood(draft: Draft, pending: PendingState, answer: c.PendingAnswer) -> Reading | Rejected:
    """The answer, or why it can't be read: that comes last, after every other obstacle to it."""
    verb = draft.step(pending.opened.path).verb
    tool = verb.tool if isinstance(verb, Call) and isinstance(verb.tool, FrontendTool) else None
    try:
        return read_answer(pending, tool, answer)
    except Rejected as rejected:
        return rejected


def _is_known(pending: PendingState, reading: Reading, by: c.Principal) -> bool:
    """Whether the answer is the one that decided, or the vote that this person has cast already."""
    if pending.status not in ("open", "expired", "voided") and reading.sha == pending.answer_sha:
        return True
    mine = (by.id, by.on_behalf_of, reading.sha)
    return any((vote.by, vote.on_behalf_of, vote.answer_sha) == mine for vote in pending.votes)


def _demand_open(draft: Draft, pending: PendingState) -> None:
    id = pending.opened.id
    if pending.status == "expired" or _is_overdue(draft, pending):
        raise Rejected(410, "pending_expired", f"{id} expired; its deadline has passed.", winner=_winner(pending))
    if pending.status == "voided":
        detail = f"{id} needs no answer any more: {pending.reason}."
        raise Rejected(409, "pending_voided", detail, winner=_winner(pending))
    if pending.status != "open":
        detail = f"{id} was answered already, and differently; the first answer stands."
        raise Rejected(409, "pending_decided", detail, winner=_winner(pending))


def _is_overdue(draft: Draft, pending: PendingState) -> bool:
    """Whether the deadline of its stage has passed, though its consequences are not drawn yet. (Time passes before
    any command; but of a fork, it may have passed in the run that it was forked from.)"""
    if pending.status != "open":
        return False
    halted = draft.state.status in ("paused", "needs_attention")
    clocks = ("deadline",) if halted else ("deadline", "halting_deadline")
    path = pending.opened.path
    return any(t.path == path and t.kind in clocks and t.due <= draft.now for t in draft.state.timers)


def _demand_eligible(draft: Draft, pending: PendingState, by: c.Principal) -> None:
    fault = _ineligible(pending, by, _world(draft.plan, draft.state))
    if fault is not None:
        raise Rejected(403, "pending_forbidden", f"{pending.opened.id} is not {by.id}'s to answer: {fault.reason}.")
    spent = _ids(by) & votes.who_voted(pending.votes)
    if spent:
        raise Rejected(
            403, "vote_final", f"{', '.join(sorted(spent))} has voted on {pending.opened.id}; a vote stands."
        )


def _combined_with(pending: PendingState, reading: Reading) -> Json:
    """The values of the approvals that count, with those of one more. Raises Rejected(422)."""
    rules = rules_of(pending)
    before = [] if reading.args is not None else votes.values_given(pending)  # an edit begins anew
    try:
        return votes.combined(rules, pending.opened.schema, [*before, reading.value])
    except votes.Differs as differs:
        raise refused(pending.opened, f"{differs}.") from None


def decide_pending(draft: Draft, pending: PendingState, reading: Reading, by: c.Principal, via: str) -> None:
    """Record the answer, and draw its consequences."""
    opened = pending.opened
    step = draft.step(opened.path)
    if opened.kind in ("approve", "gate"):
        _vote(draft, step, opened.id, reading, by, via)
        return
    if opened.kind == "tool":
        content = reading.reason if reading.outcome == "declined" else _content(reading.value)
        declined = "tool.declined" if reading.outcome == "declined" else None
        draft.emit(e.ToolCallResolved, tool_call_id=opened.id, content=content, error=declined)
    again = opened.inquiry is not None
    draft.emit(
        e.PendingDecided,
        id=opened.id,
        outcome=reading.outcome,
        by=by.id,
        on_behalf_of=by.on_behalf_of,
        value=reading.value,
        reason=reading.reason,
        answer_sha=reading.sha,
        via=via,
        ready=(opened.path,) if again else (),
    )
    if again:
        return  # the next attempt brings the answer to the tool
    if opened.kind == "doubt":
        _settle_by_person(draft, step, reading, by.id)
    elif reading.outcome == "declined":
        message = f"The frontend reported an error: {reading.reason}"
        endings.fail(draft, step, draft.error("tool.declined", message, step.path))
    else:
        endings.finish(draft, step, reading.value)


def _content(value: Json) -> str:
    return value if isinstance(value, str) else values.dumps(value).decode()


def answered(pending: PendingState, reading: Reading, status: str, by: c.Principal | str | None) -> dict[str, Json]:
    """The outcome of one answer, in that of the command."""
    who = by.id if isinstance(by, c.Principal) else by
    return {"id": pending.opened.id, "outcome": reading.outcome, "status": status, "by": who}


def _winner(pending: PendingState) -> dict[str, Json]:
    """The answer that stands instead of a late or different one."""
    return {
        "id": pending.opened.id,
        "outcome": pending.status,
        "by": pending.by,
        "at": None if pending.at is None else values.rfc3339(pending.at),
        "value": pending.value,
        "reason": pending.reason,
    }


# --- votes ------------------------------------------------------------------------------------------------------------


def _vote(draft: Draft, step: Step, id: str, reading: Reading, by: c.Principal, via: str) -> None:
    world = _world(draft.plan, draft.state)
    opened = draft.state.pendings[id].opened
    if reading.args is not None:
        bound = _digest_with(draft, opened, reading.args)
        edits = {**(draft.state.pendings[id].edits or {}), **edits_by_name(reading.edits or {})}
        draft.emit(e.PendingEdited, id=id, by=by.id, edits=edits, args=reading.args, digest=bound)
    pending = draft.state.pendings[id]
    rules = rules_of(pending)
    draft.emit(
        e.VoteCast,
        id=id,
        by=by.id,
        on_behalf_of=by.on_behalf_of,
        decision=reading.outcome,
        reason=reading.reason,
        values=reading.value,
        via=via,
        digest=pending.opened.digest,
        matched=matched(rules.selectors(), by, world),
        barred=barred(rules.exclusions(), by, world),
        edited=reading.args is not None,
        answer_sha=reading.sha,
    )
    pending = draft.state.pendings[id]
    if reading.outcome not in (votes.APPROVE, votes.REJECT):
        _decided(draft, step, pending, reading.outcome, pending.votes[-1])
        return
    decision = votes.verdict(rules, pending)
    if decision is not None:
        _decided(draft, step, pending, decision, pending.votes[-1])


def _decided(draft: Draft, step: Step, pending: PendingState, decision: str, vote: e.VoteCast) -> None:
    """`vote` has decided."""
    rules = rules_of(pending)
    turned = decision == votes.REJECT and vote.decision != votes.REJECT
    given = _values(rules, pending) if decision == votes.APPROVE else None if turned else vote.values
    result = votes.envelope(pending, decision, vote.reason, given)
    message = "The quorum can't be reached any more." if turned else vote.reason or f"Rejected by {vote.by}."
    _close(
        draft,
        pending,
        decision,
        result,
        by=vote.by,
        on_behalf_of=vote.on_behalf_of,
        reason=vote.reason,
        answer_sha=vote.answer_sha if decision == vote.decision else None,
        via=vote.via,
    )
    _go_on(draft, step, pending, result, message)


def _values(rules: Rules, pending: PendingState) -> Json:
    given = [vote.values or {} for vote in votes.approvals(rules, pending)]
    return votes.combined(rules, pending.opened.schema, given)


def _close(draft: Draft, pending: PendingState, outcome: str, result: dict[str, Json], /, **fields: Any) -> None:
    passed = pending.opened.kind == "gate" and result["decision"] == votes.APPROVE
    ready = (pending.opened.path,) if passed else ()
    draft.emit(e.PendingDecided, id=pending.opened.id, outcome=outcome, value=result, ready=ready, **fields)


def _go_on(draft: Draft, step: Step, pending: PendingState, result: dict[str, Json], message: str) -> None:
    """Draw the consequences of the envelope `result`. Nothing but an approval ever falls through to the next step."""
    decision = result["decision"]
    if decision == votes.APPROVE:
        if pending.opened.kind == "approve":
            endings.finish(draft, step, result, approval=result)
    elif decision == votes.REJECT:
        _reject(draft, step, result, message)
    else:
        first = step.handlers[decision]
        draft.emit(e.StepSkipped, path=step.path, approval=result, handler=option(decision), ready=(first,))


def _reject(draft: Draft, step: Step, result: dict[str, Json], message: str) -> None:
    """A rejection: the step's reject list runs first, then `approval.rejected` is raised, whatever it did."""
    error = draft.error("approval.rejected", message, step.path)
    first = step.handlers.get(votes.REJECT)
    if first is None:
        endings.fail(draft, step, error, result)
    else:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=result, handler=REJECT, ready=(first,))


# --- time -------------------------------------------------------------------------------------------------------------


def remind(draft: Draft, step: Step) -> None:
    """It is time to remind the deciders of the step's pending."""
    id = draft.state.open_pendings[step.path]
    pending = draft.state.pendings[id]
    notify = rules_of(pending).notify
    draft.emit(e.PendingReminded, id=id, path=step.path, n=pending.reminded + 1, notify=notify)
    _set_reminder(draft, step)


def deadline_passed(draft: Draft, step: Step) -> None:
    """The deadline of the step's pending has passed: the next stage, or the last outcome of `on_deadline`."""
    pending = draft.state.pendings[draft.state.open_pendings[step.path]]
    if rules_of(pending).escalations:
        _escalate(draft, step, "the deadline has passed")
    else:
        _expire(draft, step, pending)


def _escalate(draft: Draft, step: Step, reason: str) -> None:
    """The next stage that can be decided begins; earlier votes of its deciders count at once."""
    id = draft.state.open_pendings[step.path]
    while True:
        pending = draft.state.pendings[id]
        stages = rules_of(pending).escalations
        if not stages:
            _fail_impossible(draft, step, pending, reason)
            return
        rules = msgspec.structs.replace(stages[0], escalations=stages[1:])
        assert rules.deadline is not None, "a stage has a deadline"
        due = draft.now + rules.deadline
        since = None if draft.now == draft.clock else draft.now
        policy = votes.written(rules)
        draft.rendered_bytes += len(values.dumps(policy))
        draft.emit(e.PendingEscalated, id=id, path=step.path, policy=policy, deadline=due, reason=reason, since=since)
        pending = draft.state.pendings[id]
        fault = votes.impossible(rules, pending)
        decision = None if rules.fault else votes.verdict(rules, pending)
        if decision == votes.APPROVE or (decision == votes.REJECT and fault is None):
            _decided(draft, step, pending, decision, _deciding(rules, pending, decision))
            return
        if fault is None:
            _set_clock(draft, step)
            return
        reason = fault


def _deciding(rules: Rules, pending: PendingState, decision: str) -> e.VoteCast:
    """The newest of the votes that decided."""
    return [
        vote for vote in pending.votes if vote.decision == decision and votes.counts(rules, vote, pending.opened.digest)
    ][-1]


def _fail_impossible(draft: Draft, step: Step, pending: PendingState, reason: str) -> None:
    result = votes.envelope(pending, "expired", None, expired=True)
    approval = None if pending.opened.kind == "ask" else result
    draft.emit(e.PendingDecided, id=pending.opened.id, outcome="expired", value=approval, reason=reason, via="deadline")
    message = f"{step.path}: nobody can decide: {reason}."
    endings.fail(draft, step, draft.error("approval.impossible", message, step.path), approval)


def _expire(draft: Draft, step: Step, pending: PendingState) -> None:
    kind, id = pending.opened.kind, pending.opened.id
    policy = None if kind == "tool" or pending.opened.inquiry is not None else _policy(step)
    expiry = Expiry("fail") if policy is None else policy.expiry
    roots = {"args": values.loads(pending.opened.args)} if pending.opened.args is not None else {}
    try:
        reason = _EXPIRED if expiry.reason is None else draft.text(expiry.reason, step, **roots)
        value = None if expiry.value is None else draft.render(expiry.value, step, **roots)
        given = _values(rules_of(pending), pending) if expiry.outcome == "approve" else None
    except Raised as raised:
        draft.emit(e.PendingDecided, id=id, outcome="expired", reason=raised.message, via="deadline")
        endings.fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))
        return
    if expiry.outcome in (votes.APPROVE, votes.REJECT):
        result = votes.envelope(pending, expiry.outcome, reason, given, expired=True)
        _close(draft, pending, "expired", result, reason=reason, via="deadline")
        _go_on(draft, step, pending, result, reason)
    elif expiry.outcome == "default":
        draft.emit(e.PendingDecided, id=id, outcome="expired", value=value, reason=reason, via="deadline")
        endings.finish(draft, step, value)
    else:
        asked = kind in ("approve", "gate")
        result = votes.envelope(pending, "expired", None, expired=True) if asked else None
        draft.emit(e.PendingDecided, id=id, outcome="expired", value=result, reason="deadline", via="deadline")
        code = _EXPIRED_CODES.get(kind, "approval.expired")
        endings.fail(draft, step, draft.error(code, "Nobody answered before the deadline.", step.path), result)


def _policy(step: Step) -> Policy:
    if isinstance(step.verb, Ask | Approve):
        return step.verb.policy
    assert step.approval is not None, "only asks, approvals and gates have a policy"
    return step.approval.policy
