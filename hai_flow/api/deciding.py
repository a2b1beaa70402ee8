"""Deciding a pending over REST: the one way of it, for single answers, several at once, and those of links."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec
from pydantic import Field

from hai_flow import values
from hai_flow.api.bodies import Body
from hai_flow.api.deps import Access
from hai_flow.api.views import pending_view
from hai_flow.engine import commands as c
from hai_flow.engine.ids import run_of_pending
from hai_flow.engine.state import PendingState, RunState
from hai_flow.errors import Rejected

PERSON: Final = r"^user:\S{1,200}$"


class DecideBody(Body):
    """approve, gate: `decision` with `reason`, `values`, `edits`; ask: `values`; a frontend tool: `result` or `error`;
    a call in doubt: `decision`, with its `result` if it happened. With `digest`: only if the pending still has it.
    `on_behalf_of`: who has delegated to the caller."""

    decision: str | None = Field(default=None, max_length=100)
    reason: str | None = Field(default=None, max_length=10_000)
    values: Any = None
    edits: Any = None
    digest: str | None = Field(default=None, max_length=64)
    result: Any = None
    error: str | None = Field(default=None, max_length=10_000)
    on_behalf_of: str | None = Field(default=None, pattern=PERSON)


async def find_pending(access: Access, id: str) -> tuple[RunState, PendingState]:
    """The pending as an answer finds it now, and its run. Raises Rejected 404."""
    run_id = run_of_pending(id)
    state = None if run_id is None else await access.find_state(run_id)
    if state is None or id not in access.seen(state).pendings:
        raise Rejected(404, "pending_unknown", f"there is no pending {id[:100]!r}.")
    state = await access.current(state)
    return state, state.pendings[id]


def view_for(access: Access, run: RunState, pending: PendingState) -> dict[str, Any]:
    """The pending with its outcome, and with its evidence where that is for the caller."""
    return pending_view(run, pending, evidence=access.sees_evidence(run, pending))


async def decide(
    access: Access, pending_id: str, body: DecideBody, key: str | None, way: str = "rest"
) -> dict[str, Any]:
    """Answer as the caller, or as the delegate that they are; the pending then. `way` is how the answer came, for the
    record. Raises Rejected."""
    given, via = body.model_dump(exclude_unset=True), access.principal.via(way)
    if body.on_behalf_of is not None:
        access = access.acting(
            await access.runtime.inbox.representing(access.tenant, access.principal.who, body.on_behalf_of)
        )
        via = f"{via} (for {body.on_behalf_of})"
    run, _ = await find_pending(access, pending_id)
    answer = c.PendingAnswer(
        id=pending_id,
        decision=body.decision,
        reason=body.reason,
        error=body.error,
        digest=body.digest,
        edits=given.get("edits", msgspec.UNSET),
        values=given.get("values", msgspec.UNSET),
        result=given.get("result", msgspec.UNSET),
    )
    outcome = await access.submit(
        UUID(run.run_id),
        c.Answer(answers=(answer,), by=access.principal.who, via=via),
        command_id=key,
        body_sha=sha256(values.dumps([pending_id, given])).digest(),
    )
    return {**view_for(access, *await find_pending(access, pending_id)), "already": outcome.already}
