"""`/v1/approvals`: an agent that lives elsewhere asks people before it acts, and consumes their yes once.

An approval is a run of a workflow, the built-in `agent_approval` unless the request names another one, and its id is
the run's. The workflow asks people, then calls its frontend tool `consume` with the action and the arguments as they
were approved; to consume the approval is to answer that call. So the engine decides who wins and what is too late."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final
from uuid import UUID, uuid4

from fastapi import Query, Response
from pydantic import Field

from hai_flow import addresses
from hai_flow.api.base.id_patterns import DIGEST, PRINTABLE_ASCII
from hai_flow.api.http.bodies import Body, hash_content, read_duration
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.push_addresses import find_obstacle, store_push
from hai_flow.api.requests.views import time_of
from hai_flow.api.rest.runs.runs import StartBody, begin_run
from hai_flow.api.routes import Routes, answers_of
from hai_flow.definition.people.calendars import count_working_days
from hai_flow.definition.plan import FrontendTool, Plan
from hai_flow.engine import commands as c
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.held_steps import freeze_of
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import run_unless_short
from hai_flow.runtime.catalog import built_in
from hai_flow.store.messaging.pushes import PUSHES_MAX
from hai_flow.values import Json
from hai_flow.wire.a2a.pushes import TOKEN_CHARS_MAX, URL_CHARS_MAX, PushConfig, is_address
from hai_flow.wire.approvals import CONSUME, approved_call, call_of, digest_of, find_gate, status_of

router = Routes(prefix="/v1/approvals", tags=["approvals"])

WAIT_SECONDS_MAX: Final = 60
_WEBHOOK_ID: Final = "approvals/webhook"  # no client of A2A can give one a slash


class OutcomeWebhook(Body):
    """Where the outcome is told. `secret` signs the call (Standard Webhooks)."""

    url: str = Field(max_length=URL_CHARS_MAX, description="an address that this server reaches: https://...")
    secret: str = Field(min_length=16, max_length=TOKEN_CHARS_MAX, pattern=PRINTABLE_ASCII)


class ApprovalBody(Body):
    action: str = Field(min_length=1, max_length=200, description="the name of the action that the agent wants to take")
    arguments: dict[str, Any] = Field(description="its exact arguments")
    policy: dict[str, Any] | None = Field(
        default=None, description="who decides: `from`, `exclude`, `quorum`, `edit`, `escalate`, `notify`"
    )
    workflow: str = Field(
        default=built_in.AGENT_APPROVAL, min_length=1, max_length=200, description="another workflow that asks"
    )
    expires_in: str | None = Field(
        default=None, max_length=40, description="how long people have, and then the agent: `30m`, `1d`"
    )
    title: str | None = Field(default=None, max_length=300, description="the question in one line")
    message: str | None = Field(default=None, max_length=10_000, description="Markdown below the title")
    webhook: OutcomeWebhook | None = Field(default=None, description="an address of yours that is told the outcome")

    def input(self) -> dict[str, Any]:
        """The input of the workflow: what the body has of it."""
        return {name: part for name, part in self if name not in ("workflow", "webhook") and part is not None}


class ConsumeBody(Body):
    """The action that is about to be taken: its `digest`, or its `arguments`, of which the server makes the digest."""

    digest: str | None = Field(default=None, pattern=DIGEST)
    action: str | None = Field(default=None, min_length=1, max_length=200)
    arguments: dict[str, Any] | None = None


@router.post(
    "", Right.START_RUNS, Right.SPEAK, status_code=201, refusals=(404, 409),
    responses=answers_of("this key has asked for it before", "people are asked"),
)  # fmt: skip
async def request_approval(
    body: ApprovalBody, access: CurrentAccess, key: CommandKey, response: Response
) -> schemas.Approval:
    """Ask people for a yes to one action with exactly these arguments. The same Idempotency-Key again gives the same
    approval; with another body it is 409."""
    if body.workflow == built_in.AGENT_APPROVAL and await built_in.ensure(
        access.runtime.catalog, access.tenant, body.workflow
    ):
        await access.repeat()
        access.hint_lists()
    _, plan = await access.catalog.resolve(access.tenant, body.workflow)
    if not _is_for_approvals(plan):
        message = f"{plan.name} has no frontend tool `{CONSUME}`, which a workflow of approvals calls behind its gate."
        raise Rejected(422, "approval_workflow", message)
    # a number that RFC 8785 can't write is refused before people are asked
    await run_unless_short(body.arguments, digest_of, body.action, body.arguments)
    _demand_duration(body.expires_in)
    if body.webhook is not None:
        await _demand_reachable(access, body.webhook.url)
    run = await begin_run(StartBody(workflow=body.workflow, input=body.input()), access, key, response)
    response.headers["Location"] = f"/v1/approvals/{run['id']}"
    access = await access.find_at_run(run["id"])
    if body.webhook is not None:
        config = PushConfig(_WEBHOOK_ID, body.webhook.url, body.webhook.secret, approval=True)
        if not await store_push(access, UUID(run["id"]), config):
            message = f"you have {PUSHES_MAX} addresses for this run already, which is the most."
            raise Rejected(409, "approval_webhook", message)
    return await show(access, await find(access, run["id"]))


@router.get("/{run_id}", Right.SEE_OWN, refusals=(404,))
async def get_approval(
    run_id: str,
    access: CurrentAccess,
    wait: Annotated[
        int, Query(ge=0, le=WAIT_SECONDS_MAX, description="answer when it is decided, at most so many seconds later")
    ] = 0,
) -> schemas.Approval:
    """An approval: what is asked, what became of it, the arguments as they were approved, and their digest. Its events
    stream from `/v1/runs/{run_id}/events`."""
    state = await settle(access, run_id, wait)
    return await show(access, state)


@router.post("/{run_id}/consume", Right.ANSWER, refusals=(403, 404, 409))
async def consume_approval(
    run_id: str, body: ConsumeBody, access: CurrentAccess, key: CommandKey
) -> schemas.ConsumedApproval:
    """Say that the approved action is about to be taken. The answer is yes once, for exactly the arguments that were
    approved, as edited; 409 ever after, and before. Repeated under the same Idempotency-Key, it is the first answer
    again. Only the one that asked may consume."""
    state = await find(access, run_id)
    if state.requester not in access.ids:
        message = f"only {state.requester} may consume this approval: it is the one that asked for it."
        raise Rejected(403, "approval_foreign", message)
    token = uuid4().hex if key is None else sha256(f"{access.principal.id}\0{key}".encode()).hexdigest()
    for _ in range(2):
        call = call_of(state)
        if status_of(state) != "approved" or call is None:
            return await _consumed_before(access, state, body, token)
        await run_unless_short((state.input, body.arguments), _demand_digest, state, body)
        await _demand_not_held(access, state, call)
        answer = c.PendingAnswer(id=call.opened.id, result={"consumption": token})
        command = c.Answer(answers=(answer,), by=access.principal.who, via=access.principal.via("approvals"))
        command_id = None if key is None else f"consume:{key}"  # the key may be that of the start, too
        body_sha = await hash_content([state.run_id, answer.result])
        try:
            outcome = await access.submit(UUID(state.run_id), command, command_id=command_id, body_sha=body_sha)
        except Rejected as rejected:
            if rejected.status not in (409, 410):
                raise
            state = await find(access, run_id)  # another one consumed it meanwhile, or it expired
            continue
        return {**await show(access, await find(access, run_id)), "already": outcome.already}
    raise Rejected(409, "approval_over", "the approval was consumed meanwhile.")


def _demand_duration(expires_in: str | None) -> None:
    """Refuse a wait that no deadline can have before people are asked. Raises Rejected 422."""
    if expires_in is None or count_working_days(expires_in):
        return
    read_duration("expires_in", expires_in)


async def _demand_reachable(access: Access, url: str) -> None:
    """Raises Rejected 422 for what is no address, or one that this server does not connect to."""
    if not is_address(url):
        obstacle: str | None = "expected an address, https://..., without a name and password in it."
    else:
        obstacle = await find_obstacle(access.settings, url)
    if obstacle is not None:
        raise Rejected(422, "approval_webhook", f"`webhook.url`: {obstacle}")


async def _demand_not_held(access: Access, state: RunState, call: PendingState) -> None:
    """Raises Rejected 409 where an operator holds the action: the run is paused, or a freeze holds the call."""
    if state.status == "paused":
        message = f"the run of this approval is paused; consume it when an operator has resumed run {state.run_id}."
        raise Rejected(409, "approval_held", message, winner={"status": "approved", "run_id": state.run_id})
    freezes = access.runtime.freezes
    if freezes.is_stale:
        await freezes.read()
    plan = await access.catalog.plan(access.tenant, bytes.fromhex(state.sha256))
    freeze = freeze_of(plan, state, call.opened.path, freezes.of(access.tenant))
    if freeze is not None:
        message = f"the freeze {freeze.id} holds it ({freeze.reason}); an operator can thaw it."
        raise Rejected(409, "approval_held", message, winner={"status": "approved", "freeze": freeze.id})


async def _consumed_before(access: Access, state: RunState, body: ConsumeBody, token: str) -> schemas.ConsumedApproval:
    """The answer to one that comes again under its key. Raises Rejected 409 for every other one."""
    status, call = status_of(state), call_of(state)
    if status == "consumed" and call is not None and _consumption(call) == token:
        await run_unless_short((state.input, body.arguments), _demand_digest, state, body)
        return {**await show(access, state), "already": True}
    winner: dict[str, Json] = {"status": status}
    if status == "pending":
        message = "this can't be consumed yet: wait for `approved` (GET with `wait`), then consume it."
        raise Rejected(409, "approval_open", message, winner=winner)
    if call is not None and call.at is not None:
        winner["at"] = instants.rfc3339(call.at)
    raise Rejected(409, "approval_over", f"this approval is {status}, and is good for nothing more.", winner=winner)


def _demand_digest(state: RunState, body: ConsumeBody) -> None:
    """Raises Rejected 422 unless the body is about the action and the arguments that were approved."""
    action, arguments = approved_call(state)
    right = digest_of(action, arguments)
    if body.arguments is None and body.digest is None:
        raise Rejected(422, "approval_digest", "expected `digest`, or the `arguments` that it is made of.")
    digest = digest_of(
        action if body.action is None else body.action, arguments if body.arguments is None else body.arguments
    )
    if body.arguments is None and body.action in (None, action):
        digest = body.digest
    elif body.digest not in (None, digest):
        message = f"`digest` is {body.digest}, and the call beside it has {digest}: send one of them."
        raise Rejected(422, "approval_digest", message)
    if digest == right:
        return
    winner: dict[str, Json] = {"digest": right, "action": action, "arguments": arguments, "found": digest}
    message = (
        f"what was approved has the digest {right}, and this has {digest}: another action, or other arguments. Nothing "
        "is consumed; take the approved arguments, or ask anew."
    )
    raise Rejected(422, "approval_digest", message, winner=winner)


# --- reading ----------------------------------------------------------------------------------------------------------


async def find(access: Access, run_id: str) -> RunState:
    """The run of an approval as it is now. Raises Rejected 404, also for a run that is none, or a fork of one: what
    people approved for one run is good for no other."""
    unknown = Rejected(404, "approval_unknown", f"there is no approval {run_id[:60]!r}.")
    try:
        row = await access.run(run_id)
    except Rejected:
        raise unknown from None
    state = await access.current(await access.state(row.id))
    plan = await access.catalog.plan(access.tenant, row.workflow)
    if not _is_for_approvals(plan) or state.forked:
        raise unknown
    return await access.seen(state)


async def settle(access: Access, run_id: str, seconds: float) -> RunState:
    """The run of the approval as soon as it is decided, at most so many seconds later. Where the server has no place
    for one more follower, as it is now."""

    def is_decided(state: RunState) -> bool:
        return status_of(state) != "pending"

    state = await find(access, run_id)
    if seconds <= 0 or is_decided(state):
        return state
    look = partial(find, access, run_id)
    return await access.wait_until(state, seconds, look, is_decided) or await look()


def _is_for_approvals(plan: Plan) -> bool:
    tool = plan.tools.get(CONSUME)
    return isinstance(tool, FrontendTool) and tool.answered


def find_approver(state: RunState) -> str:
    """Whose vote let an approved action through: the last one's."""
    gate = find_gate(state)
    assert gate is not None, "a gate stands before each consumption"
    votes = [vote for vote in gate.votes if vote.decision == "approve"]
    return votes[-1].on_behalf_of or votes[-1].by


def _consumption(call: PendingState) -> Json:
    return call.value.get("consumption") if isinstance(call.value, dict) else None


async def show(access: Access, state: RunState) -> schemas.Approval:
    """The approval that the run is, as REST shows it."""
    calls = [each.opened.args or "" for each in state.pendings.values()]
    return await run_unless_short((state.input, calls), _render, state, access.base)


def _render(state: RunState, base: str) -> schemas.Approval:
    gate, call = find_gate(state), call_of(state)
    action, arguments = approved_call(state)
    requested = state.input.get("arguments") if isinstance(state.input, dict) else None
    opened = next((each.opened for each in (call, gate) if each is not None and each.status == "open"), None)
    envelope = gate.value if gate is not None and isinstance(gate.value, dict) else {}
    consumed = call if status_of(state) == "consumed" else None
    digest = digest_of(action, arguments)
    return {
        "id": state.run_id,
        "status": status_of(state),
        "action": action,
        "arguments": arguments,
        "edited": digest != digest_of(action, requested),  # in Python 1 is True
        "digest": digest,
        "workflow": state.workflow,
        "requested_by": state.requester,
        "page": base + (addresses.run(state.run_id) if gate is None else addresses.pending(gate.opened.id)),
        "pending_id": None if gate is None else gate.opened.id,
        "expires_at": None if opened is None else time_of(opened.deadline),
        "reason": envelope.get("reason") if gate is None or gate.reason is None else gate.reason,
        "votes": envelope.get("votes", []),
        "consumed_at": None if consumed is None else time_of(consumed.at),
        "error": None if state.error is None else {"code": state.error.code, "message": state.error.message},
    }
