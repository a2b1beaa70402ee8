"""Agents of other frameworks that ask people before they act (docs/approvals.md). `ask_all` is what all adapters do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hai_flow_client.blocking import Client
from hai_flow_client.errors import Conflict, Invalid
from hai_flow_client.models import Approval
from hai_flow_client.values import Json


class Call(NamedTuple):
    """An action that an agent wants to take. With a `key` a process that was killed while it waited finds the same
    approval again; one that was killed behind the consumption is told no, since it may have acted."""

    action: str
    arguments: Mapping[str, Json]
    key: str | None = None


class Verdict(NamedTuple):
    """What became of an approval. `approved`: it was consumed just now, so act, once, with `arguments`, which people
    may have edited (`edited`). Otherwise `reason` says why not."""

    approved: bool
    arguments: dict[str, Json]
    reason: str
    edited: bool = False


def ask(
    flow: Client,
    action: str,
    arguments: Mapping[str, Json],
    policy: Mapping[str, Json] | None = None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
    message: str | None = None,
    key: str | None = None,
) -> Verdict:
    """Ask people about one action, wait for them, and consume their yes. `key`: as in `Call`."""
    call = Call(action, arguments, key)
    return ask_all(flow, [call], policy, workflow=workflow, expires_in=expires_in, message=message)[0]


def ask_all(
    flow: Client,
    calls: Sequence[Call],
    policy: Mapping[str, Json] | None = None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
    message: str | None = None,
) -> list[Verdict]:
    """Ask people about several actions at once, and consume what they approved when all are decided."""
    decided = [
        wait_for(flow, asked)
        for asked in [
            request(flow, call, policy, workflow=workflow, expires_in=expires_in, message=message) for call in calls
        ]
    ]
    return [_consume(flow, call, approval) for call, approval in zip(calls, decided, strict=True)]


def request(
    flow: Client,
    call: Call,
    policy: Mapping[str, Json] | None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
    message: str | None = None,
) -> Approval | Verdict:
    """The approval of this call, asked for now or before. A no: the key was used for another call, with another
    action or other arguments."""
    try:
        return flow.approvals.request(
            call.action, call.arguments, policy, workflow=workflow, expires_in=expires_in, message=message, key=call.key
        )
    except Conflict as conflict:
        return Verdict(False, dict(call.arguments), str(conflict))


def wait_for(flow: Client, asked: Approval | Verdict) -> Approval | Verdict:
    """The approval as soon as it is decided. A no: people rejected it, or it is good for nothing more."""
    if isinstance(asked, Verdict):
        return asked
    decided = flow.approvals.wait(asked)
    if decided.status == "approved":
        return decided
    reason = f"{decided.status}: {decided.reason}" if decided.reason else decided.status
    return Verdict(False, _arguments_of(decided), reason)


def _consume(flow: Client, call: Call, decided: Approval | Verdict) -> Verdict:
    """Consume it for the action of the call with its arguments, or as people edited them."""
    if isinstance(decided, Verdict):
        return decided
    arguments = _arguments_of(decided) if decided.edited else dict(call.arguments)
    try:
        consumed = flow.approvals.consume(decided, arguments, action=call.action)
    except (Conflict, Invalid) as refusal:
        return Verdict(False, dict(call.arguments), str(refusal))
    return Verdict(True, arguments, consumed.reason or "", decided.edited)


def _arguments_of(approval: Approval) -> dict[str, Json]:
    return approval.arguments if isinstance(approval.arguments, dict) else {}
