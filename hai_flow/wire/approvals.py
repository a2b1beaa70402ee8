"""Approvals of agents that live elsewhere, read from their runs, and what a webhook is told of them. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Literal, TypeAlias

import rfc8785

from hai_flow import values
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.values import Json

ApprovalStatus: TypeAlias = Literal["pending", "approved", "consumed", "rejected", "expired", "cancelled", "failed"]
CONSUME: Final = "consume"  # the frontend tool that a workflow of approvals calls


def call_of(state: RunState) -> PendingState | None:
    """The call of `consume` that was answered; else the newest, unless it is over and people are asked anew."""
    calls = [each for each in state.pendings.values() if each.opened.kind == "tool" and each.opened.tool == CONSUME]
    call = max(calls, key=lambda each: (each.status == "answered", *_order(each)), default=None)
    gate = find_gate(state)
    if call is None or gate is None or call.status in ("open", "answered") or _order(gate) < _order(call):
        return call
    return None


def find_gate(state: RunState) -> PendingState | None:
    """The newest question to people."""
    gates = (each for each in state.pendings.values() if each.opened.kind in ("approve", "gate"))
    return max(gates, key=_order, default=None)


def _order(pending: PendingState) -> tuple[int, str]:
    return pending.opened.at, pending.opened.id


def status_of(state: RunState) -> ApprovalStatus:
    """The status of an approval, as REST shows it."""
    call, gate = call_of(state), find_gate(state)
    if call is not None and call.status in ("open", "answered"):
        over = call.status == "open" and state.ended
        return "cancelled" if over else "approved" if call.status == "open" else "consumed"
    if call is not None:
        return "expired" if call.status == "expired" else "cancelled"
    if gate is not None and gate.status in ("expired", "reject"):
        return "expired" if gate.status == "expired" else "rejected"
    if not state.ended:
        return "pending"
    return "cancelled" if state.status == "stopped" else "rejected" if state.status == "finished" else "failed"


def approved_call(state: RunState) -> tuple[str, Json]:
    """The action and the arguments: as approved, as far as edited, or as asked for."""
    for pending in (call_of(state), find_gate(state)):
        args = None if pending is None or pending.opened.args is None else values.loads(pending.opened.args)
        if isinstance(args, dict) and isinstance(args.get("action"), str) and "arguments" in args:
            return args["action"], args["arguments"]
    request = state.input if isinstance(state.input, dict) else {}
    return str(request.get("action", "")), request.get("arguments", {})


def digest_of(action: str, arguments: Json) -> str:
    """The digest of a call: the SHA-256, in hexadecimal, of `{"action": ..., "arguments": ...}` as RFC 8785 writes it.
    Raises Rejected 422 for a number that it can't write."""
    try:
        return sha256(rfc8785.dumps({"action": action, "arguments": arguments})).hexdigest()
    except (rfc8785.CanonicalizationError, ValueError) as error:
        raise Rejected(422, "approval_digest", f"`arguments` have no canonical form (RFC 8785): {error}.") from None


def write_outcome(state: RunState) -> tuple[str, bytes | None]:
    """The status of the approval, and the webhook that tells it: that and nothing of what it is about. None: there is
    nothing to tell yet."""
    status = status_of(state)
    if status == "pending":
        return status, None
    data = {"id": state.run_id, "status": status}
    document = {"type": f"approval.{status}", "timestamp": instants.rfc3339(state.at), "data": data}
    return status, values.dumps(document)
