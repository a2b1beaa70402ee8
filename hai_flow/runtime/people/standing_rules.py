"""Standing rules at work: one comes into force when the gate of its run is approved, and votes on gates for its tool.

A run that opens a gate for a tool with rules says so by a message of that very commit, so a process that dies in
between loses nothing. The vote and the count of its use are one transaction, in which the rules are read again: a rule
that was revoked, is over or used up since does not vote, and people are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec
import rfc8785
import structlog

from hai_flow import values
from hai_flow.definition.diff import to_plain
from hai_flow.definition.plan import Call, Http, HttpTool, McpTool, Plan, PythonTool, Run
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.selectors import ids_of, is_agent
from hai_flow.engine.standing_rules import CONSULT, ESTABLISH, RULE_DECIDED, StandingRule, choose
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected, StepError, Unreadable
from hai_flow.primitives.beside_loop import WORK_FOR, is_large, run_beside_loop, run_by_work
from hai_flow.primitives.invisible_characters import compose
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.catalog.pins import PinBook
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.states import state_at
from hai_flow.runtime.commit.submission import CommitWithRows
from hai_flow.runtime.people.delegates import cap_voters
from hai_flow.runtime.people.roster import Rosters
from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import new_row
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.people import rules as store
from hai_flow.store.people.rules import RuleRow
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import passing
from hai_flow.values import Json

log = structlog.get_logger(__name__)

_ACTOR: Final = AuditActor(who=c.Principal("service:hai-flow"), way="rule")
AGAIN_SECONDS: Final = 1.0  # behind which the database is asked again
_TRIES_MAX: Final = 20
_ALL_OF_IT: Final = 2**31 - 1
_encoder: Final = msgspec.json.Encoder(order="deterministic", enc_hook=str)


class RuleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule says, as people approve it. `until` is RFC 3339, `every` a duration: `uses` are counted anew then."""

    id: str
    kind: str
    tool: str
    tool_digest: str
    workflow: str | None = None
    when: str | None = None
    arguments: dict[str, dict[str, Json]] = {}
    until: str = ""
    uses: int | None = None
    every: str | None = None
    reason: str = ""

    @property
    def digest(self) -> str:
        """The version of the rule: the SHA-256, in hexadecimal, of its RFC 8785 form. Raises ValueError for a number
        that has none."""
        return digest_of_rule(msgspec.to_builtins(self))


def digest_of_rule(document: Json) -> str:
    """As `RuleBody.digest`, of the JSON."""
    try:
        return sha256(rfc8785.dumps(document)).hexdigest()
    except rfc8785.CanonicalizationError as error:
        raise ValueError(str(error)) from None


class _RuleLost(Exception):
    """The rules are others than those that were held against the question."""


async def count_use(
    connection: Connection, tenant: UUID, tool: str, read: frozenset[UUID], rule: UUID, run_id: UUID, pending_id: str
) -> None:
    """Count a use of the rule in the transaction of its vote. Raises _RuleLost where the rules are not those any more
    that were `read`, or this one was used as often as it may be."""
    if await store.lock_in_force(connection, tenant, tool) != read:
        raise _RuleLost
    if not await store.count_use(connection, tenant, rule, run_id, pending_id):
        raise _RuleLost


class StandingRules(Service):
    """Puts rules in force, and lets them vote. `handlers` are for the outbox."""

    def __init__(
        self, database: Database, committer: Committer, catalog: Catalog, pins: PinBook, rosters: Rosters, quorum: int
    ) -> None:
        super().__init__()
        self._database = database
        self._rosters = rosters
        self._committer = committer
        self._catalog = catalog
        self._pins = pins
        self._quorum = quorum

    @property
    def handlers(self) -> dict[str, Callable[[OutboxMessage], Awaitable[None]]]:
        return {CONSULT: self._consult, RULE_DECIDED: self._establish}

    async def _start(self) -> None:
        self._committer.listeners.written.append(self._find_unannounced)

    async def _stop(self) -> None:
        self._committer.listeners.written.remove(self._find_unannounced)

    # --- votes ------------------------------------------------------------------------------------------------------

    def _find_unannounced(self, entries: Sequence[CommitEntry]) -> None:
        """Gates that this process has decided to open before it knew of a rule for their tool: a commit tells whether
        the process knows the newest."""
        freezes = self._committer.freezes
        if not freezes.is_stale and not freezes.any_ruled:
            return
        for entry in entries:
            if any(row.kind == CONSULT for row in entry.outbox):
                continue
            for event in entry.events:
                if isinstance(event, e.PendingOpened) and event.kind == "gate":
                    work = self._consult_late(entry.run.tenant, entry.run.id, event)
                    self._spawn(work, "rules that were new")

    async def _consult_late(self, tenant: UUID, run_id: UUID, opened: e.PendingOpened) -> None:
        """Let a rule vote that came while the gate was opened. No message of the outbox stands for it, so it is tried
        until the database answers."""
        freezes = self._committer.freezes
        while True:
            try:
                if freezes.is_stale:
                    await freezes.read()
                if opened.tool in freezes.ruled(tenant):
                    await self.consult(tenant, run_id, opened.id)
                return
            except Exception as error:
                if not passing(error):
                    raise
                log.warning("rules_not_consulted_yet", run_id=str(run_id), pending=opened.id, error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    async def _consult(self, message: OutboxMessage) -> None:
        await self.consult(message.tenant, message.run_id, msgspec.json.decode(message.body)["id"])

    async def consult(self, tenant: UUID, run_id: UUID, pending_id: str) -> None:
        """Let the rule that applies vote on the gate, if one does."""
        for _ in range(_TRIES_MAX):
            state = await state_at(self._database, tenant, run_id, _ALL_OF_IT)
            pending = None if state is None else state.pendings.get(pending_id)
            if state is None or pending is None or pending.status != "open" or pending.opened.tool is None:
                return
            rows = await store.list_in_force(self._database.api, tenant, pending.opened.tool)
            if not rows:
                return
            plan = await self._catalog.plan(tenant, bytes.fromhex(state.sha256))
            digest = await self.digest_of_tool(tenant, plan, state, pending)
            freezes = self._committer.freezes.of(tenant)
            WORK_FOR.set(tenant)
            run = run_beside_loop if is_large(pending.opened.args) else run_by_work
            rules = [await self._cap(tenant, rule) for rule in read_rules(rows)]
            chosen = await run(choose, plan, state, pending, digest, rules, freezes)
            if chosen.rule is None:
                log.info("no_rule_applies", run_id=str(run_id), pending=pending_id, why=chosen.obstacle)
                return
            read, id = frozenset(row.id for row in rows), UUID(chosen.rule.id)
            use = pending.opened.tool, read, id, run_id, pending_id
            counting = CommitWithRows(self._database, lambda connection, use=use: count_use(connection, tenant, *use))
            try:
                command = chosen.rule.make_command(pending)
                await self._committer.submit(run_id, tenant, command, asked=_ACTOR, carrier=counting)
            except _RuleLost:
                continue
            except Rejected as rejected:
                if rejected.status == 409 and rejected.code != "rule_idle":
                    continue
                log.info("no_rule_applies", run_id=str(run_id), pending=pending_id, why=rejected.detail)
            return

    async def _cap(self, tenant: UUID, rule: StandingRule) -> StandingRule:
        """The rule with the voters that may decide now, within their present roles and groups."""
        if not rule.voters:
            return rule
        credentials, all_ids = await self._rosters.find_credentials(self._database.api, tenant)
        voters = await cap_voters(credentials, tenant, rule.voters, all_ids)
        return msgspec.structs.replace(rule, voters=voters)

    async def digest_of_tool(self, tenant: UUID, plan: Plan, state: RunState, pending: PendingState) -> str | None:
        """The digest of the description of the tool behind a gate: its declaration, and what its function says of
        itself. None: this process does not know it."""
        verb = resolve_step(plan, pending.opened.path).verb
        parts: list[Any] = [pending.opened.tool]
        if isinstance(verb, Run):
            pin = state.pins.get(verb.workflow)
            return None if pin is None else sha256(_encoder.encode([*parts, pin])).hexdigest()
        if isinstance(verb, Http):
            return sha256(_encoder.encode([*parts, to_plain(verb.arguments)])).hexdigest()
        if not isinstance(verb, Call):
            return None
        tool, name = verb.tool, f"{verb.tool.name}.{verb.function}" if verb.function else verb.tool.name
        if isinstance(tool, McpTool):
            pins = await self._pins.known(tenant, bytes.fromhex(state.sha256))
            if name not in pins:
                return None
            parts.append(pins[name])
        elif isinstance(tool, PythonTool | HttpTool):
            try:
                offered = await self._catalog.registry.offered(tool.name, tool, from_disk=plan.from_disk)
            except StepError:
                return None
            function = next((each for each in offered if each.name == name), None)
            if function is None:
                return None
            parts += [function.description, function.parameters, function.result, function.effect]
        plain = to_plain(tool)
        parts.append(
            {key: part for key, part in plain.items() if key != "service"} if isinstance(plain, dict) else plain
        )
        return sha256(_encoder.encode(parts)).hexdigest()

    # --- rules ------------------------------------------------------------------------------------------------------

    async def _establish(self, message: OutboxMessage) -> None:
        """The gate in front of `ESTABLISH` was decided: put the rule that it is about in force, or end it."""
        tenant, pending_id = message.tenant, msgspec.json.decode(message.body)["id"]
        row = await store.find_rule_of_run(self._database.api, tenant, message.run_id)
        if row is None or row.approved_at is not None or row.ended_at is not None:
            return
        state = await state_at(self._database, tenant, message.run_id, _ALL_OF_IT)
        pending = None if state is None else state.pendings.get(pending_id)
        if state is None or pending is None:
            return
        try:
            plan = await self._catalog.plan(tenant, bytes.fromhex(state.sha256))
        except Unreadable:
            return
        voters, refusal = judge_approval(row, plan, state, pending, self._quorum)
        people = tuple(
            dict.fromkeys((*row.proposer_ids, *(id for voter in voters for id in (*ids_of(voter), *voter.through))))
        )
        async with self._database.api.acquire() as connection, connection.transaction():
            by = pending.by or _ACTOR.who.id
            if refusal is None:
                if not await store.approve(connection, tenant, row.id, msgspec.json.encode(voters), people):
                    return
            elif not await store.end(connection, tenant, row.id, by, refusal):
                return
            act = "rule.approved" if refusal is None else "rule.refused"
            details = {"voters": [voter.id for voter in voters], "digest": row.digest, "why": refusal}
            record = new_row(act, by, details, subject=f"rule:{row.id}")
            await audit.write(connection, tenant, [record], run_id=message.run_id)
        await self._committer.freezes.obey()
        self._committer.hints.add_tenant(tenant)


def read_row(row: RuleRow) -> tuple[RuleBody, tuple[c.Principal, ...]]:
    """The content of a rule, and those who have approved it. Raises Unreadable where this release does not know a kind
    or a condition of it: without that it would be another rule than people have approved."""
    try:
        if row.kind not in ("allow", "never"):
            raise Unreadable(f"rule {row.id} is of the kind {row.kind!r}, which this release does not know")
        body = msgspec.json.decode(row.body, type=RuleBody)
        return body, () if row.voters is None else msgspec.json.decode(row.voters, type=tuple[c.Principal, ...])
    except msgspec.DecodeError as error:
        raise Unreadable(f"rule {row.id} has what this release does not know: {error}") from error


def read_rules(rows: Sequence[RuleRow]) -> list[StandingRule]:
    """The rules of rows, for the engine, but those that a newer release wrote. Where one of these may forbid, none
    allows."""
    rules, may_forbid = [], False
    for row in rows:
        try:
            rules.append(to_rule(row))
        except Unreadable as unreadable:
            log.warning("rule_unreadable", rule=str(row.id), error=str(unreadable))
            may_forbid = may_forbid or row.kind != "allow"
    return [each for each in rules if each.kind == "never"] if may_forbid else rules


def to_rule(row: RuleRow) -> StandingRule:
    """The rule of a row, for the engine. Raises Unreadable."""
    body, voters = read_row(row)
    return StandingRule(
        id=str(row.id),
        digest=row.digest,
        kind="never" if row.kind == "never" else "allow",
        tool=row.tool,
        tool_digest=body.tool_digest,
        workflow=row.workflow,
        when=body.when,
        bounds=body.arguments,
        reason=body.reason,
        voters=voters,
        people=tuple(row.people or ()),
        used_up=row.is_used_up,
    )


def judge_approval(
    row: RuleRow, plan: Plan, state: RunState, pending: PendingState, quorum: int
) -> tuple[tuple[c.Principal, ...], str | None]:
    """Those who have approved the rule, as its votes know them; and why it does not come into force, or None. Whatever
    the workflow asks for: the very rule, people, `quorum` of them, and none who has proposed it or profits from it."""
    opened = pending.opened
    if opened.kind != "gate" or opened.tool != ESTABLISH or state.requester not in row.proposer_ids or state.forked:
        return (), "its run is not the one that was started for it"
    if pending.status != votes.APPROVE:
        return (), f"it was not approved: {pending.reason or pending.status}"
    args = values.loads(opened.args or "null")
    document = args.get("rule") if isinstance(args, dict) else None
    try:
        same = digest_of_rule(document) == row.digest
    except ValueError:
        same = False
    if not same:
        return (), "what was approved is not the rule that was proposed"
    rules, kept_out = votes.derive_rules(pending), set(map(compose, (*row.proposer_ids, *row.excluded_ids)))
    voters = tuple(
        _build_voter(vote, plan)
        for vote in pending.votes
        if vote.decision == votes.APPROVE
        and vote.rule is None
        and vote.issuer is None
        and votes.counts(rules, vote, opened.digest)
        and kept_out.isdisjoint({*votes.voters([vote]), *map(compose, vote.through)})
        and not is_agent(c.Principal(vote.by))
    )
    if len(voters) < quorum:
        return (
            voters,
            f"it takes {quorum} who neither propose it nor profit from it, and {len(voters)} have approved it",
        )
    return voters, None


def _build_voter(vote: e.VoteCast, plan: Plan) -> c.Principal:
    """The person with the roles and groups by which the vote counted: not those that the workflow itself declares."""
    roles = (each.removeprefix("role:") for each in vote.matched if each.startswith("role:"))
    groups = tuple(each.removeprefix("group:") for each in vote.matched if each.startswith("group:"))
    names = tuple(each for each in roles if each not in plan.roles)
    lent = {"aliases": vote.aliases, "lent_aliases": vote.lent_aliases, "through": vote.through}
    return c.Principal(vote.by, names, groups, vote.on_behalf_of, **lent)
