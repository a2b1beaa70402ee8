"""How REST shows a run, a pending and a workflow (docs/client.md). Plain functions from stored rows to JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from functools import cache, partial
from keyword import iskeyword
from types import NoneType
from typing import Any, Final, TypeVar, cast, overload
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.api.http.problems import build_problem
from hai_flow.api.requests import schemas
from hai_flow.api.requests.shape_models import ShapeField, list_fields
from hai_flow.definition.personal.pii_flow import Personal
from hai_flow.definition.personal.pii_marks import MASK
from hai_flow.engine.events import Error, PendingOpened, decode_pending
from hai_flow.engine.pendings.votes import describe_needs
from hai_flow.engine.state.budget import sum_use
from hai_flow.engine.state.patch import difference
from hai_flow.engine.state.state import PendingState, RunState, ToolCallState
from hai_flow.engine.steps.tool_calls import ABORTED
from hai_flow.errors import Finding, Rejected, Unreadable
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.messaging.triggers import Received, Started
from hai_flow.runtime.people.absences import Seat
from hai_flow.runtime.people.inbox import InboxEntry, build_unreadable
from hai_flow.schedule import explain, explain_timing
from hai_flow.store.audit import audit_chain
from hai_flow.store.audit.audit import ListedRecord
from hai_flow.store.audit.audit_chain import ChainLink
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.identity.keys import Key
from hai_flow.store.identity.tenants import Limits, Tenant
from hai_flow.store.messaging.message_queue import QueuedMessage
from hai_flow.store.messaging.triggers import ScheduleRow
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.delegations import Delegation
from hai_flow.store.people.feedback import Feedback
from hai_flow.store.people.inbox import Decided
from hai_flow.store.people.pendings import PendingSummary
from hai_flow.store.runs.run_lists import RunRow
from hai_flow.store.runs.thread_lists import ThreadSummary
from hai_flow.store.runs.threads import Message
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Entry
from hai_flow.wire.reader_redaction import strip_evidence_of
from hai_flow.wire.timeline import is_filler


@overload
def time_of(moment: datetime | int) -> str: ...
@overload
def time_of(moment: datetime | int | None) -> str | None: ...
def time_of(moment: datetime | int | None) -> str | None:
    if moment is None:
        return None
    return instants.rfc3339(moment if isinstance(moment, int) else instants.milliseconds(moment))


T = TypeVar("T")
_PLAIN: Final = frozenset((str, int, bool, float, NoneType))  # of most values, which are JSON already


def render(shape: type[T], record: object, **others: Json) -> T:
    """A record as its shape in JSON: each field that the shape requires is that of `others`, else the attribute of the
    record with its name. Records in it are rendered as the shapes of their fields, times are in RFC 3339, ids are
    texts, digests in hex. What else `others` has comes last."""
    view: Any = {}
    for name, attribute, convert in _list_required_fields(shape):
        if name in others:
            view[name] = others.pop(name)
        else:
            own = getattr(record, attribute)
            view[name] = own if type(own) in _PLAIN and convert is not time_of else convert(own)
    view |= others
    return view


@cache
def _list_required_fields(shape: type) -> tuple[tuple[str, str, Callable[[Any], Json]], ...]:
    """The names of the fields, the attributes that records have for them, and what makes JSON of their values."""
    fields = [each for each in list_fields(shape) if each.required]
    return tuple((each.name, each.name + "_" * iskeyword(each.name), _choose_conversion(each)) for each in fields)


def _choose_conversion(field: ShapeField) -> Callable[[Any], Json]:
    if field.nested is not None:
        return partial(_render_all if field.annotation.startswith("list[") else _render_one, field.nested)
    return time_of if field.annotation in ("Time", "Time | None") else _convert_value


def _render_one(shape: type[T], record: object) -> T | None:
    return None if record is None else render(shape, record)


def _render_all(shape: type[T], records: Iterable[object]) -> list[T]:
    return [render(shape, each) for each in records]


def _convert_value(value: Any) -> Json:
    match value:
        case UUID():
            return str(value)
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case tuple():
            return list(value)
        case Error():
            return render_error(msgspec.to_builtins(value))
    return value


def render_version(version: int, sha256: str, *, dev: bool) -> schemas.Version:
    return {"version": version, "sha256": sha256, "dev": dev}


def run_view(run: RunRow) -> schemas.Run:
    """A run as lists and `GET /v1/runs/{id}` show it."""
    result: dict[str, Json] = {} if run.result is None else values.loads(run.result)
    return render(
        schemas.Run,
        run,
        workflow=run.workflow_name,
        version=render_version(run.workflow_version, run.workflow.hex(), dev=run.dev),
        instigators=list(run.behind),
        input=None if run.input is None else values.loads(run.input),
        output=result.get("output"),
        error=render_error(result.get("error")),
        parent=None if run.parent_id is None else {"run_id": str(run.parent_id), "path": run.parent_path},
        frozen=bool(run.held),
    )


async def build_run_view(run: RunRow) -> schemas.Run:
    """As `run_view`; a large input or output is read beside the loop."""
    return await run_by_size(len(run.input or b"") + len(run.result or b""), run_view, run)


def render_error(error: dict[str, Json] | None) -> dict[str, Json] | None:
    """A failure as REST shows it: times as texts."""
    if error is None:
        return None
    view = {**error, "at": time_of(error.get("at"))}
    if "cause" in error:
        view["cause"] = render_error(error["cause"])
    return view


def render_workflow(workflow: WorkflowSummary) -> schemas.WorkflowSummary:
    return {
        "name": workflow.name,
        **render_version(workflow.version, workflow.sha256.hex(), dev=workflow.dev),
        "title": workflow.title,
        "created_at": time_of(workflow.created_at),
        "retired_at": time_of(workflow.retired_at),
    }


def render_finding(finding: Finding) -> schemas.Finding:
    return cast(schemas.Finding, finding.as_dict())


def schedule_view(schedule: ScheduleRow, version: int) -> schemas.Schedule:
    """A schedule as REST shows it; `version` is its workflow's."""
    return render(
        schemas.Schedule,
        schedule,
        workflow=schedule.workflow_name,
        version=render_version(version, schedule.workflow.hex(), dev=schedule.dev),
        explanation=explain(schedule.timing),
        explained=[{"code": code, "params": list(params)} for code, params in explain_timing(schedule.timing)],
        input=values.loads(schedule.input),
        next=time_of(schedule.next_fire_at),
        last=time_of(schedule.last_fire_at),
    )


def render_event(received: Received) -> schemas.ReceivedEvent:
    runs = [_start_view(each) for each in received.started]
    return render(schemas.ReceivedEvent, received.event, already=received.already, runs=runs)


def _start_view(started: Started) -> schemas.StartedRun:
    refused = started.refused
    status = "refused" if refused is not None else "already" if started.already else "started"
    return render(
        schemas.StartedRun, started, status=status, problem=refused and render(schemas.TriggerProblem, refused)
    )


def render_pending_in_list(pending: PendingSummary, opened: PendingOpened) -> schemas.OpenedPending:
    """An open pending as lists show it. `opened`: the question, as far as the caller sees it."""
    question = _render_question(opened, str(pending.run_id), pending.workflow, pending.started_by)
    return {**question, "workflow_title": pending.workflow_title}


def render_inbox_item(item: InboxEntry, pending: PendingState, *, sees_all: bool) -> schemas.InboxItem:
    """An open pending as it stands in a person's inbox. It has no evidence if they may not decide it and do not see it
    otherwise. `pending` is already without the personal values that are kept from them."""
    row, opened = item.asked, pending.opened
    if not sees_all and not item.shows_evidence:
        opened = strip_evidence_of(opened)
    return {
        **_render_question(opened, str(row.run_id), row.workflow_name, row.started_by),
        "workflow_title": row.workflow_title,
        "may_decide": item.obstacle is None,
        "why_not": _render_one(schemas.WhyNot, item.obstacle),
        "on_behalf_of": list(item.for_others),
        "needed": describe_needs(pending) if opened.kind in ("approve", "gate") else None,
        "claimed_by": row.claimed_by if row.claimed_until is not None else None,
        "claimed_until": time_of(row.claimed_until),
    }


def render_decision(decided: Decided) -> schemas.Decided:
    """A decision of a person; of a newer release's question without its title and kind."""
    answer = msgspec.json.decode(decided.said)
    try:
        opened = decode_pending(decided.opened)
    except Unreadable:
        opened = build_unreadable(decided.pending_id).opened
    return render(
        schemas.Decided,
        decided,
        id=decided.pending_id,
        kind=opened.kind,
        title=opened.heading,
        reason=answer.get("reason"),
        by=decided.principal,
        via=answer.get("via", "rest"),
        rule=(answer.get("rule") or {}).get("id"),
    )


def render_delegation(delegation: Delegation) -> schemas.Delegation:
    """A delegation: the person that lends, the delegate, and the time for which it holds."""
    return render(schemas.Delegation, delegation, **{"from": delegation.from_id}, to=delegation.to_id)


def render_absence(absence: AbsenceRow, seat: Seat | None) -> schemas.Absence:
    """An absence; `seat`: that of its person, None: it does not hold now."""
    holder, why = (None, None) if seat is None else (seat.holder, seat.why or None)
    return render(schemas.Absence, absence, decides_now=holder, why_nobody=why)


def render_pending(run: RunState, pending: PendingState, *, evidence: bool = True) -> schemas.Pending:
    """A pending of `run` with its outcome. `evidence`: whether the caller may see its evidence and digest."""
    opened = pending.opened if evidence else strip_evidence_of(pending.opened)
    return {
        **_render_question(opened, run.run_id, run.workflow, run.requester, pending.status),
        "needed": describe_needs(pending) if pending.opened.kind in ("approve", "gate") else None,
        "edits": pending.edits,
        "decided_by": pending.by,
        "on_behalf_of": pending.on_behalf_of,
        "decided_at": time_of(pending.at),
        "value": pending.value,
        "reason": pending.reason,
    }


def _render_question(
    opened: PendingOpened, run_id: str, workflow: str, started_by: str, status: str = "open"
) -> schemas.OpenedPending:
    return {
        "run_id": run_id,
        "workflow": workflow,
        "started_by": started_by,
        "status": status,
        "opened_at": time_of(opened.at),
        "id": opened.id,
        "path": opened.path,
        "kind": opened.kind,
        "title": opened.heading,
        "message": opened.message,
        "tool": opened.tool,
        "effect": cast(Any, opened.effect),  # any text, for the log
        "args": None if opened.args is None else values.loads(opened.args),
        "evidence": None if opened.evidence is None else values.loads(opened.evidence),
        "schema": opened.schema,
        "options": list(opened.options),
        "policy": opened.policy,
        "deadline": time_of(opened.deadline),
        "digest": opened.digest,
    }


def render_snapshot(state: RunState, sees_evidence: Callable[[PendingState], bool]) -> schemas.Snapshot:
    """`snapshot?at=seq`: the fold of the run's first `seq` events, and nothing else."""
    return render(
        schemas.Snapshot,
        state,
        steps=_render_steps(state),
        pendings=[
            render_pending(state, pending, evidence=sees_evidence(pending))
            for pending in sorted(state.pendings.values(), key=lambda each: (each.opened.at, each.opened.id))
        ],
        messages=_render_all(schemas.Message, sorted(state.messages.values(), key=lambda each: each.n)),
        usage=[render(schemas.ModelUsage, use, model=use.served) for use in sum_use(state)],
    )


def _render_steps(state: RunState) -> dict[str, schemas.StepView]:
    steps: dict[str, schemas.StepView] = {}
    for path, step in sorted(state.steps.items()):
        if not path or is_filler(path, step.output):
            continue
        view: schemas.StepView = {"status": step.status, "attempt": step.attempt}
        if step.status == "finished" or step.approval is not None or step.given:
            view["output"] = step.output
        if step.error is not None:
            view["error"] = _convert_value(step.error)
        steps[path] = view
    return steps


def render_difference(before: RunState, after: RunState) -> schemas.Difference:
    """The differences of `after` from `before`, two moments of a run."""
    was, now = _render_steps(before), _render_steps(after)
    changed = [path for path in sorted({*was, *now}) if was.get(path) != now.get(path)]
    ids = sorted(
        (
            id
            for id in {*before.pendings, *after.pendings}
            if _render_question_then(before, id) != _render_question_then(after, id)
        ),
        key=lambda id: (after.pendings.get(id) or before.pendings[id]).opened.at,
    )
    return {
        "from": render(schemas.AMoment, before),
        "to": render(schemas.AMoment, after),
        "state": list[Json](difference(before.state, after.state)),
        "steps": {path: {"from": was.get(path), "to": now.get(path)} for path in changed},
        "pendings": {
            id: {"from": _render_question_then(before, id), "to": _render_question_then(after, id)} for id in ids
        },
    }


def _render_question_then(state: RunState, id: str) -> schemas.Asked | None:
    """A question as it stood then; None: it was not asked yet."""
    pending = state.pendings.get(id)
    if pending is None:
        return None
    votes, opened = [{"by": vote.by, "decision": vote.decision} for vote in pending.votes], pending.opened
    return render(schemas.Asked, pending, path=opened.path, title=opened.heading, votes=votes)


def render_thread(thread: ThreadSummary) -> schemas.Thread:
    return render(schemas.Thread, thread, workflow=thread.workflow_name)


def render_message_in_queue(queued: QueuedMessage, personal: Personal | None, *, says: bool) -> schemas.QueuedMessage:
    """A message that waits for its turn, or was refused. `says`: whether its words are shown; `personal`: the personal
    values that are kept from the caller."""
    refusal = queued.refusal
    if refusal is not None and personal is not None and personal.anything:  # it may quote the input
        refusal = Rejected(refusal.status, refusal.code, MASK)
    message = values.loads(queued.start)["message"]
    return {
        "run_id": str(queued.run_id),
        "by": queued.principal,
        "message": None if not says else MASK if message and personal is not None and personal.message else message,
        "queued_at": time_of(queued.queued_at),
        "refused": None if refusal is None else build_problem(refusal),
    }


def render_thread_message(message: Message, entry: Entry) -> schemas.ThreadMessage:
    """An entry of a thread's transcript: a message, or a call with its result, as the caller sees it."""
    at = time_of(entry.at)
    if isinstance(entry, ToolCallState):
        call, is_cut = render(schemas.Call, entry, arguments=entry.args), entry.error == ABORTED
        return render(
            schemas.ThreadMessage, message, kind="call", content=entry.result, at=at, call=call, aborted=is_cut
        )
    kind, content, is_cut = entry.kind, entry.content, entry.aborted
    return render(schemas.ThreadMessage, message, kind=kind, content=content, at=at, call=None, aborted=is_cut)


def render_key(key: Key) -> schemas.Key:
    """An API key, without its secret."""
    return render(schemas.Key, key, speaks_for=key.speaks_for or [])


def render_tenant(tenant: Tenant, defaults: Limits, name_of: Callable[[int], str]) -> schemas.Tenant:
    """A tenant with its limits; `defaults` apply where it has none of its own. `name_of` gives the name of a cell."""
    cells = [
        {"name": name_of(cell), "begins": cell in tenant.living.open, "first": cell == tenant.living.seat}
        for cell in tenant.cells
    ]
    return render(schemas.Tenant, tenant, in_force=tenant.limits.over(defaults).as_dict(), cells=cells)


def render_feedback(feedback: Feedback) -> schemas.Feedback:
    """An opinion of a message or a pending."""
    rating = feedback.rating
    stars = int(rating) if rating is not None and rating.isdecimal() else rating
    return render(schemas.Feedback, feedback, by=feedback.principal, rating=stars)


# --- the audit ----------------------------------------------------------------------------------------------------


def _format_micros(at: int) -> str:
    """Microseconds since 1970 as RFC 3339. A time beyond the range of Python's datetime stays a number: it was written
    there by hand."""
    try:
        return (
            (instants.instant(0) + timedelta(microseconds=at)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        )
    except OverflowError:
        return str(at)


def render_audit_record(found: ListedRecord) -> schemas.AuditRecord:
    """A record of the audit. `details` are null where their row is gone."""
    record, details = found.record, found.details
    erased_at = None if details is None else details.erased_at
    return render(
        schemas.AuditRecord,
        record,
        n=found.n,
        at=_format_micros(record.at),
        by=None if details is None else details.principal,
        details=None if details is None else _details_of(details.body),
        erased_at=None if erased_at is None else _format_micros(erased_at),
    )


def _details_of(body: bytes) -> Json:
    try:
        return values.loads(body)
    except values.NotJson:
        return None  # somebody wrote something else there, which `verify` finds


def render_link(tenant: UUID, link: ChainLink) -> schemas.AuditLink:
    """A link of the chain, as `audit_chain.read_line` reads it again."""
    return values.loads(audit_chain.encode_line(tenant, link))
