"""Which records of the audit a person's command makes, once it is decided. Pure.

`AuditActor` names the person that asks, and the way. Each command of a request has one. Commands of runs to each
other, of timers and of workers have none, for no person gave them. A refused command, and
one that changes nothing because it was carried out before, makes no record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decision import Decision
from hai_flow.engine.state.state import RunState
from hai_flow.store.audit.audit_chain import new_row
from hai_flow.store.commit.entries import AuditRow


class AuditActor(msgspec.Struct, frozen=True, kw_only=True):
    """The person that asks: the principal; `way` and `credential` (its id) that proved it; the `address` of the
    connection; and `via`, the protocol."""

    who: c.Principal
    way: str
    credential: str | None = None
    address: str | None = None
    via: str | None = None

    def row(self, act: str, *, subject: str | None = None, digest: bytes | None = None, **details: Any) -> AuditRow:
        """The record of `act` by this caller, with these details and those of the caller."""
        caller = {
            "on_behalf_of": self.who.on_behalf_of,
            "through": list(self.who.through) or None,
            "roles": list(self.who.roles) or None,
            "way": self.way,
            "credential": self.credential,
            "address": self.address,
            "via": self.via,
        }
        return new_row(act, self.who.id, {**caller, **details}, subject=subject, digest=digest)


def rows_of(asked: AuditActor, command: c.Command, before: RunState, decision: Decision) -> list[AuditRow]:
    """The records of a decided command; `before` is the run before it."""
    if isinstance(command, c.Answer):
        return _answers(asked, command, before, decision)
    if isinstance(command, c.ApplyRule):
        return [_vote_of_rule(asked, command, before, decision)]
    if isinstance(command, c.PickPeople):
        details = {"people": list(command.people), "before": command.before, "note": command.note or None}
        return [asked.row("pending.picked", subject=f"pending:{command.id}", **details)]
    if isinstance(command, c.Start | c.Fork):
        return [_began(asked, command, decision.state)]
    act = _CONTROLS.get(type(command))
    return [] if act is None else [asked.row(act, **_words(command))]


_CONTROLS: Final[Mapping[type[c.Command], str]] = {
    c.Pause: "run.paused",
    c.Resume: "run.resumed",
    c.Stop: "run.stopped",
    c.Terminate: "run.terminated",
    c.Retry: "run.retried",
    c.Skip: "run.step_skipped",
    c.Jump: "run.jumped",
    c.Migrate: "run.migrated",
}


def _words(command: c.Command) -> dict[str, Any]:
    if isinstance(command, c.Migrate):
        return {"to": command.to.sha256.hex(), "version": command.to.version}
    if isinstance(command, c.Jump):
        return {"ms": command.ms}
    if isinstance(command, c.Skip):
        return {"step": command.path, "output": command.output, "reason": command.reason or None}
    return {"reason": getattr(command, "reason", "") or None}


def _began(asked: AuditActor, command: c.Start | c.Fork, state: RunState) -> AuditRow:
    subject, digest = f"workflow:{state.workflow}@{state.version}", bytes.fromhex(state.sha256)
    if isinstance(command, c.Fork):
        edited = None if command.edits is None else _list_edits(command.edits)
        at = len(command.events)
        return asked.row("run.forked", subject=subject, digest=digest, of=str(command.of), at=at, edited=edited)
    return asked.row("run.started", subject=subject, digest=digest, thread=command.thread_id)


def _list_edits(edits: c.Edits) -> list[str]:
    """Which of `input`, `state` and `version` the fork changes; the values are in the run."""
    changes = {"input": edits.input is not msgspec.UNSET, "state": edits.state is not msgspec.UNSET}
    return [*(name for name, is_there in changes.items() if is_there), *(["version"] if edits.was is not None else [])]


def _answers(asked: AuditActor, command: c.Answer, before: RunState, decision: Decision) -> list[AuditRow]:
    by_pending: dict[str, dict[str, Any]] = {}
    for event in decision.events:
        tell = _TOLD.get(type(event))
        if tell is not None:
            by_pending.setdefault(getattr(event, "id", ""), {}).update(tell(event))
    rows: list[AuditRow] = []
    for answer in command.answers:
        pending = before.pendings.get(answer.id)
        if pending is None:
            continue
        details = by_pending.get(answer.id, {})
        words = {"decision": answer.decision, "reason": answer.reason, "error": answer.error}
        digest = bytes.fromhex(pending.opened.digest)
        rows.append(
            asked.row("pending.answered", subject=f"pending:{answer.id}", digest=digest, **{**words, **details})
        )
    return rows


def _vote_of_rule(asked: AuditActor, command: c.ApplyRule, before: RunState, decision: Decision) -> AuditRow:
    cast = [event for event in decision.events if isinstance(event, e.VoteCast)]
    decided = next((event.outcome for event in decision.events if isinstance(event, e.PendingDecided)), None)
    return asked.row(
        "pending.answered",
        subject=f"pending:{command.id}",
        digest=bytes.fromhex(before.pendings[command.id].opened.digest),
        rule=command.rule.id,
        rule_digest=command.rule.digest,
        decision=cast[0].decision,
        voters=[event.by for event in cast],
        outcome=decided,
    )


_TOLD: Final[dict[type[e.Event], Callable[[Any], dict[str, Any]]]] = {
    e.VoteCast: lambda event: {"decision": event.decision, "reason": event.reason, "answer": event.answer_sha},
    e.PendingEdited: lambda event: {"edits": event.edits, "edited_digest": event.digest},
    e.PendingDecided: lambda event: {"outcome": event.outcome, "answer": event.answer_sha},
}
