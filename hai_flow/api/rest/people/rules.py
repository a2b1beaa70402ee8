"""`/v1/rules`: decisions that people give ahead, as rules that others approve (docs/approvals.md#standing-rules)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID, uuid5

import msgspec
from fastapi import Query
from msgspec.structs import replace
from pydantic import Field

from hai_flow import values
from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, SELECTOR, Instant, Visible, is_run_id
from hai_flow.api.http.bodies import Body, hash_content
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.rest.people.decide_pendings import find_pending
from hai_flow.api.routes import Routes
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.people.rule_conditions import ConditionError, compile_conditions
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import disguise_state, find_disguise
from hai_flow.engine.pendings.eligibility import world_of
from hai_flow.engine.pendings.selectors import expand_selectors, ids_of, is_agent
from hai_flow.engine.pendings.votes import Rules, derive_rules
from hai_flow.engine.standing_rules import ESTABLISH
from hai_flow.engine.state.instigators import list_people_behind
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected, Unreadable
from hai_flow.runtime.catalog import built_in
from hai_flow.runtime.commit.submission import CommitWithRows
from hai_flow.runtime.people.standing_rules import RuleBody, read_row
from hai_flow.store.people import rules as store
from hai_flow.store.people.rules import RuleRow
from hai_flow.store.postgres.connections import Connection

router = Routes(prefix="/v1/rules", tags=["rules"])

USES_SHOWN: Final = 100
_TEXT: Final = Field(max_length=500, pattern=NO_CONTROL_CHARACTERS)
_Instant: TypeAlias = Annotated[Instant, Field(strict=False)]  # JSON has no times, only texts


class ProposalBody(Body):
    """The decision `pending_id`, a gate, as a rule for calls like it. `arguments` gives bounds by name of argument;
    `when` is a condition over `args`, in CEL; both have to hold."""

    pending_id: str = Field(max_length=200)
    kind: Literal["allow", "never"] = "allow"
    every_workflow: bool = Field(default=False, description="also in runs of other workflows that declare this tool")
    when: str | None = Field(default=None, min_length=1, max_length=2000)
    arguments: dict[str, dict[str, Any]] = Field(default={}, max_length=20)
    until: _Instant
    uses: int | None = Field(default=None, ge=1, le=1_000_000, description="how often it may be used")
    every: str | None = Field(default=None, max_length=40, description="`uses` is counted anew after so long: `1d`")
    reason: Annotated[str, Field(min_length=1), _TEXT, Visible]
    from_: list[Annotated[str, Field(pattern=SELECTOR), Visible]] | None = Field(
        default=None, alias="from", min_length=1, max_length=50, description="who approves it; else those of the gate"
    )
    quorum: int | None = Field(default=None, ge=1, le=50, description="how many of them; else as many as at the gate")
    expires_in: str = Field(default="7d", max_length=40, description="how long they have")


class RevocationBody(Body):
    reason: Annotated[str, _TEXT, Visible] = ""


@router.get("", Right.SEE_RUNS, Right.SEE_INBOX)
async def list_rules(
    access: CurrentAccess, over: Annotated[bool, Query(description="also those that hold no more")] = False
) -> schemas.RuleRecords:
    """The standing rules; who sees no runs of others is told of those that they have proposed or approved."""
    seat, *others = [await store.list_rules(cell.reads, access.tenant, over=over) for cell in access.everywhere]
    rows = (_with_uses(row, [each for rows in others for each in rows if each.id == row.id]) for row in seat)
    return {"items": [view_of(row) for row in rows if _is_visible(access, row)]}


@router.get("/{rule_id}", Right.SEE_RUNS, Right.SEE_INBOX, refusals=(404,))
async def get_rule(rule_id: str, access: CurrentAccess) -> schemas.RuleWithUses:
    """A rule, and its last uses."""
    row = await _find(access, rule_id)
    cells = [await store.list_uses(cell.reads, access.tenant, row.id, USES_SHOWN) for cell in access.everywhere]
    last = sorted((use for uses in cells for use in uses), key=lambda use: use.at, reverse=True)[:USES_SHOWN]
    return {**view_of(row), "last_uses": [render(schemas.RuleUsage, each) for each in last]}


@router.post("", Right.DECIDE, status_code=201, refusals=(403, 404, 409))
async def propose_rule(body: ProposalBody, access: CurrentAccess, key: CommandKey) -> schemas.RuleRecord:
    """Propose that calls like this one are always allowed, or never. A run of the workflow `rule_approval` asks
    people; neither you nor the requester of that call is among them. The same Idempotency-Key again is the same
    proposal."""
    who = access.principal.who
    if is_agent(who) or who.issuer is not None or access.principal.is_lent:
        detail = "a person proposes rules, signed in by themselves: with a key, a session or an issuer's token."
        raise Rejected(403, "rule_forbidden", detail)
    decided = await access.find_at_pending(body.pending_id)
    state, pending = await find_pending(decided, body.pending_id)
    _demand_decided_gate(decided, state, pending)
    disguise = find_disguise(state)
    if disguise is not None and pending.status != "open":
        raise Rejected(422, "rule_invalid", "this was a canary: a rule is made of a decision about a real call.")
    sha, state = state.sha256 if disguise is None else disguise.sha256, disguise_state(state)
    plan = await decided.catalog.plan(access.tenant, bytes.fromhex(sha))
    behind = {state.requester, *state.all_instigators}
    if own := behind.intersection(ids_of(who)):
        detail = f"{min(own)} is behind this run, and would profit from the rule; somebody else must propose it."
        raise Rejected(403, "rule_requester", detail)
    digest = await decided.runtime.rules.digest_of_tool(access.tenant, plan, state, pending)
    if digest is None:
        detail = f"this server does not know the description of {pending.opened.tool} that the rule would be bound to."
        raise Rejected(422, "rule_invalid", detail)
    rules = derive_rules(pending)
    voters = body.from_ or list(expand_selectors(rules.from_, world_of(plan, state)))
    if body.from_ is None and not all(each.startswith(("user:", "role:", "group:")) for each in voters):
        raise Rejected(422, "rule_invalid", "from: say who approves the rule: this gate asks its requester, or anyone.")

    access = access.at_seat  # from where the rule is repeated to the other cells
    if await built_in.ensure(access.runtime.catalog, access.tenant, built_in.RULE_APPROVAL):
        await access.repeat()
        access.hint_lists()
    _, asking = await access.catalog.resolve(access.tenant, built_in.RULE_APPROVAL)
    starts = access.runtime.starts
    start_id = starts.new_id() if key is None else starts.id_of("rule", str(access.tenant), who.id, key)
    users = sorted(each for each in behind if each.startswith("user:"))
    others = list_people_behind("", sorted(behind.difference(users)))  # services, which no selector names
    start = c.Start(run_id=start_id, thread_id=str(start_id), requester=who.id, input={}, instigators=others)
    row, document = _read(access, body, state, pending, digest, start_id)
    start = replace(
        start,
        input={
            "rule": document,
            "from": voters,
            "exclude": ["requester", *users],
            "quorum": max(body.quorum or _count(rules), access.settings.rule_approvals),
            "title": f"{'Always allow' if body.kind == 'allow' else 'Never allow'} {row.tool} like this?",
            "message": _describe(document),
            "expires_in": body.expires_in,
        },
    )
    with access.admission.command():
        await access.runtime.starts.start(
            access.tenant,
            asking,
            start,
            command_id=f"rule:{row.id}",
            body_sha=await hash_content(document),
            asked=access.asked,
            carrier=CommitWithRows(access.runtime.database, partial(_create, access, row)),
        )
    access.hint_lists()
    stored = await store.find_rule(access.pool, access.tenant, row.id)
    assert stored is not None, "it was written with its run"
    return view_of(stored)


async def _create(access: Access, row: RuleRow, connection: Connection) -> None:
    """Store the rule in the transaction of the run that asks people about it: there is none about which nobody is
    asked, and of two proposals at once one begins the run."""
    await store.create(connection, row)
    details = {"rule_digest": row.digest, "tool": row.tool, "kind": row.kind, "pending": row.pending_id}
    await access.record(connection, "rule.proposed", subject=f"rule:{row.id}", run_id=None, **details)


@router.post("/{rule_id}/revoke", Right.CONTROL_RUNS, Right.DECIDE, refusals=(403, 404, 409))
async def revoke_rule(rule_id: str, body: RevocationBody, access: CurrentAccess) -> schemas.RuleRecord:
    """End a rule, or a proposal: when this is answered no process lets it vote any more; 503 where a cell of the tenant
    is away, in which that is so as soon as it is back. Operators may, and who has proposed or approved it."""
    row, seat = await _find(access, rule_id), access.at_seat
    own = set(access.ids).intersection(row.people or row.proposer_ids)
    if not own and not access.principal.may(Right.CONTROL_RUNS):
        detail = "who has proposed or approved this rule may revoke it, and operators."
        raise Rejected(403, "rule_forbidden", detail)
    who = access.principal.id
    async with seat.act() as connection:
        done = await store.end(connection, access.tenant, row.id, who, body.reason)
        if done:
            details = {"rule_digest": row.digest, "reason": body.reason or None}
            await seat.record(connection, "rule.revoked", subject=f"rule:{row.id}", **details)
    await access.repeat()
    for cell in access.everywhere:
        await cell.runtime.freezes.obey()
        ended = await store.find_rule(cell.pool, access.tenant, row.id)
        if ended is not None and ended.ended_at is None:
            raise Rejected(503, "cell_away", "one of the tenant's cells did not hear of it: send the request again.")
    access.hint_lists()
    if not done:
        raise Rejected(409, "rule_over", f"the rule {row.id} has ended already.")
    return view_of(await _find(access, rule_id))


async def _find(access: Access, rule_id: str) -> RuleRow:
    if is_run_id(rule_id):
        seat, *others = [await store.find_rule(cell.reads, access.tenant, UUID(rule_id)) for cell in access.everywhere]
        if seat is not None and _is_visible(access, seat):
            return _with_uses(seat, [row for row in others if row is not None])
    raise Rejected(404, "rule_unknown", f"there is no rule {rule_id[:60]!r}.")


def _with_uses(row: RuleRow, others: Sequence[RuleRow]) -> RuleRow:
    """The rule of the tenant's seat, with its uses in the other cells, too."""
    return replace(row, uses=row.uses + sum(each.uses for each in others))


def _is_visible(access: Access, row: RuleRow) -> bool:
    return access.principal.may(Right.SEE_RUNS) or not set(access.ids).isdisjoint(row.people or row.proposer_ids)


def _demand_decided_gate(access: Access, state: RunState, pending: PendingState) -> None:
    opened = pending.opened
    if not access.sees_evidence(state, pending):
        raise Rejected(404, "pending_unknown", f"there is no pending {opened.id[:100]!r}.")
    if opened.kind != "gate" or opened.tool == ESTABLISH or opened.schema is not None:
        detail = "a rule is made of the decision at a gate in front of a call, which asks for no values."
        raise Rejected(422, "rule_invalid", detail)
    if not pending.votes:
        raise Rejected(422, "rule_invalid", "nobody has decided this yet: decide it, then make a rule of that.")


def _count(rules: Rules) -> int:
    """How many people the gate takes; of seats, and of all, as many as are named."""
    match rules.quorum:
        case int(count):
            return count
        case dict(seats):
            return sum(seats.values())
        case _:
            return max(1, len(rules.everyone))


def _read(
    access: Access, body: ProposalBody, state: RunState, pending: PendingState, tool_digest: str, run_id: UUID
) -> tuple[RuleRow, dict[str, Any]]:
    """The rule as it is proposed, and what people approve. Raises Rejected 422."""
    now = access.runtime.committer.now()
    latest = now + timedelta(days=access.settings.rule_days_max)
    if not now < body.until <= latest:
        detail = f"until: expected a time within {access.settings.rule_days_max} days, found {body.until.isoformat()}."
        raise Rejected(422, "rule_invalid", detail)
    if body.kind == "never" and (body.uses is not None or body.every is not None):
        raise Rejected(422, "rule_invalid", "uses: expected none: what is never allowed is not counted out.")
    if body.uses is not None and access.living.is_large:
        detail = "uses: expected none: this tenant lives in several cells, and they do not count together."
        raise Rejected(422, "rule_invalid", detail)
    if body.every is not None and body.uses is None:
        raise Rejected(422, "rule_invalid", "every: expected `uses` beside it.")
    has_arguments = values.loads(pending.opened.args or "{}") != {}
    if body.kind == "allow" and has_arguments and body.when is None and not body.arguments:
        raise Rejected(422, "rule_invalid", "arguments: expected a condition: what is allowed has bounds.")
    try:
        compile_conditions(body.when, body.arguments)
        period = None if body.every is None else timedelta(milliseconds=milliseconds(body.every))
        milliseconds(body.expires_in)
    except (ConditionError, NotADuration, OverflowError) as error:
        raise Rejected(422, "rule_invalid", f"{error}.") from None
    if period is not None and not timedelta(minutes=1) <= period <= timedelta(days=366):
        raise Rejected(422, "rule_invalid", "every: expected a duration from 1m to 366d.")
    assert pending.opened.tool is not None, "a gate names its call"
    who, id = access.principal.who, uuid5(run_id, "rule")
    content = RuleBody(
        id=str(id),
        kind=body.kind,
        tool=pending.opened.tool,
        tool_digest=tool_digest,
        workflow=None if body.every_workflow else state.workflow,
        when=body.when,
        arguments={name: dict(bound) for name, bound in body.arguments.items()},
        until=body.until.isoformat(),
        uses=body.uses,
        every=body.every,
        reason=body.reason,
    )
    try:
        digest = content.digest
    except ValueError as error:
        raise Rejected(422, "rule_invalid", f"arguments: they have no canonical form (RFC 8785): {error}.") from None
    row = RuleRow(
        id, access.tenant, body.kind, content.tool, content.workflow, msgspec.json.encode(content), digest, body.until,
        body.uses, period, 0, who.id, ids_of(who), (state.requester, *state.all_instigators), run_id,
        pending.opened.id, now, None, None, None, None, None, None, False, False,
    )  # fmt: skip
    return row, msgspec.to_builtins(content)


def _describe(document: dict[str, Any]) -> str:
    """The rule for those who approve it, in Markdown. The gate shows it whole, as the arguments of its call."""
    where = f"in runs of `{document['workflow']}`" if document["workflow"] else "in runs of every workflow"
    often = "" if document["uses"] is None else f", at most {document['uses']} times"
    often += f" in {document['every']}" if document["every"] else ""
    verb, how = ("approves", "with your vote") if document["kind"] == "allow" else ("refuses", "in the name of all")
    return (
        f"A rule {verb} calls of `{document['tool']}` {where} that meet its conditions, {how}, without asking, until "
        f"{document['until']}{often}. It may be revoked at any time."
    )


def view_of(row: RuleRow) -> schemas.RuleRecord:
    """A rule as clients read it; of one that a newer release wrote, what its row has."""
    try:
        body, voters = read_row(row)
    except Unreadable:
        reason = "a newer release wrote this rule, which alone can read it and lets it vote"
        body, voters = RuleBody(id=str(row.id), kind=row.kind, tool=row.tool, tool_digest="", reason=reason), ()
    if row.ended_at is not None:
        status = "refused" if row.approved_at is None else "revoked"
    elif row.is_over:
        status = "expired"
    elif row.approved_at is None:
        status = "proposed"
    else:
        status = "used_up" if row.is_used_up else "active"
    return render(
        schemas.RuleRecord,
        row,
        status=status,
        when=body.when,
        arguments=body.arguments,
        every=body.every,
        reason=body.reason,
        approved_by=[voter.on_behalf_of or voter.id for voter in voters],
    )
