"""Agents of other frameworks that ask people before they act (docs/approvals.md). `ask` is what all adapters do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hai_flow_client.blocking import Client
from hai_flow_client.errors import Conflict
from hai_flow_client.values import Json


class Verdict(NamedTuple):
    """What became of an approval. `approved`: it was consumed just now, so act, once, with `arguments`, which people
    may have edited. Otherwise `reason` says why not."""

    approved: bool
    arguments: dict[str, Json]
    reason: str


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
    """Ask people, wait for them, and consume their yes. With a `key` a process that was killed while it waited finds
    the same approval again; one that was killed behind the consumption is told no, since it may have acted."""
    asked = flow.approvals.request(
        action, arguments, policy, workflow=workflow, expires_in=expires_in, message=message, key=key
    )
    decided = flow.approvals.wait(asked)
    own = dict(arguments)
    if decided.status != "approved":
        return Verdict(False, own, f"{decided.status}: {decided.reason}" if decided.reason else decided.status)
    try:
        consumed = flow.approvals.consume(decided)
    except Conflict as conflict:
        return Verdict(False, own, str(conflict))
    approved = consumed.arguments
    return Verdict(True, approved if isinstance(approved, dict) else own, consumed.reason or "")
