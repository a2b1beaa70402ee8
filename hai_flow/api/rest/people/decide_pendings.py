"""Deciding a pending over REST: single answers, several at once, and those of links are all decided here."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from pydantic import Field

from hai_flow import values
from hai_flow.api.base.id_patterns import PERSON, Visible
from hai_flow.api.http.bodies import Body, hash_content
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.views import render, render_pending
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import find_disguise
from hai_flow.engine.pendings.votes import describe_needs, expire_votes
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected, StoreError
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.store.people.canaries import find_canary
from hai_flow.store.postgres.error_classes import FAILURES

_RECORDED: Final = (
    "your answer is recorded, but what it has led to can't be read now: send the same answer again to see it; it "
    "counts once."
)


class DecideBody(Body):
    """approve, gate: `decision` with `reason`, `values`, `edits`; ask: `values`; a frontend tool: `result` or `error`;
    a call in doubt: `decision`, with its `result` if it happened. With `digest`: only if the pending still has it.
    `on_behalf_of`: the person that has delegated to the caller."""

    decision: str | None = Field(default=None, max_length=100)
    reason: str | None = Field(default=None, max_length=10_000)
    values: Any = None
    edits: Any = None
    digest: str | None = Field(default=None, max_length=64)
    result: Any = None
    error: str | None = Field(default=None, max_length=10_000)
    on_behalf_of: Annotated[str, Field(pattern=PERSON), Visible] | None = None

    def sent(self) -> dict[str, Any]:
        """The members that the client has sent. Their values are JSON, which Pydantic would walk over to copy it."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    def answer(self, pending_id: str) -> c.PendingAnswer:
        """The body as an answer to this pending. A field that the client left out is UNSET: null is a value."""
        fields = self.sent()
        return c.PendingAnswer(
            id=pending_id,
            decision=self.decision,
            reason=self.reason,
            error=self.error,
            digest=self.digest,
            edits=fields.get("edits", msgspec.UNSET),
            values=fields.get("values", msgspec.UNSET),
            result=fields.get("result", msgspec.UNSET),
        )


async def find_pending(access: Access, id: str, outcome: Outcome | None = None) -> tuple[RunState, PendingState]:
    """The pending as an answer finds it now, and its run; `outcome`: that of an answer, which it has to hold. Raises
    Rejected 404."""
    run_id = run_of_pending(id)
    state = None if run_id is None else await access.find_state(run_id, outcome)
    if state is None or id not in (await access.seen(state)).pendings:
        raise Rejected(404, "pending_unknown", f"there is no pending {id[:100]!r}.")
    state = await access.current(state)
    return state, state.pendings[id]


async def render_for(access: Access, run: RunState, pending: PendingState) -> schemas.Pending:
    """The pending with its outcome, and with its evidence where that is for the caller."""
    sees = access.sees_evidence(run, pending)
    mask = access.mask(UUID(run.run_id))

    def show() -> schemas.Pending:
        return render_pending(run, pending if mask is None else mask.question(pending, run), evidence=sees)

    view = await run_if_large(pending, show)
    view["workflow_title"] = await access.catalog.find_title(access.tenant, bytes.fromhex(run.sha256))
    disguise = find_disguise(run)
    if disguise is None:
        return view
    if pending.status == "open":
        return {**view, "workflow": disguise.workflow, "started_by": disguise.requester}
    row = await find_canary(access.reads, access.tenant, UUID(run.run_id))
    return view if row is None else {**view, "canary": {**render(schemas.Canary, row)}}


async def decide(
    access: Access, pending_id: str, body: DecideBody, key: str | None, way: str = "rest"
) -> schemas.DecidedPending:
    """Answer as the caller, or as the delegate of the person that the body names. Returns the pending after it. `way`
    is recorded as the way by which the answer came. Raises Rejected; 503 `answer_recorded` where the answer is
    committed, and the pending can't be read after it."""
    access, via = await _speaking(access, body, way)
    run, _ = await find_pending(access, pending_id)
    outcome = await access.submit(
        UUID(run.run_id),
        c.Answer(answers=(body.answer(pending_id),), by=access.principal.who, via=via),
        command_id=key,
        body_sha=await hash_content([pending_id, body.sent()]),
    )
    try:
        view = await render_for(access, *await find_pending(access, pending_id, outcome))
    except (StoreError, *FAILURES):
        raise Rejected(503, "answer_recorded", _RECORDED) from None
    return {**view, "already": outcome.already}


async def check(access: Access, pending_id: str, body: DecideBody) -> schemas.CheckedAnswer:
    """The effect that the answer would have now. Nothing is stored, nothing begins. Raises Rejected as
    `decide` does."""
    access.require(Right.ANSWER, Right.DECIDE)
    access, via = await _speaking(access, body, "rest")
    with access.admission.command():
        run, before = await find_pending(access, pending_id)
        plan = await access.catalog.plan(access.tenant, bytes.fromhex(run.sha256))
        answer = c.Answer(answers=(body.answer(pending_id),), by=access.principal.who, via=via)
        decision = await access.runtime.committer.rehearse(answer, plan, run)
    after = decision.state.pendings[pending_id]
    approval = after.opened.kind in ("approve", "gate")
    return {
        "id": pending_id,
        "already": decision.already,
        "decides": before.status == "open" and after.status != "open",
        "status": after.status,
        "title": after.opened.heading,
        "args": None if after.opened.args is None else values.loads(after.opened.args),
        "digest": after.opened.digest,
        "lapsing": expire_votes(before, after) if approval else [],
        "needed": describe_needs(after) if approval else None,
    }


async def _speaking(access: Access, body: DecideBody, way: str) -> tuple[Access, str]:
    """The access of the person that the answer counts for, and the way by which it came, for the record. Raises
    Rejected 403 if that person has not delegated to the caller."""
    via = access.principal.via(way)
    if body.on_behalf_of is None:
        return access, via
    who = await access.inbox.representing(access.tenant, access.principal.who, body.on_behalf_of)
    return access.acting(who), f"{via} (for {body.on_behalf_of})"
