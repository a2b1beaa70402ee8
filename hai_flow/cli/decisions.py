"""The decision of people in words: what it was, by whom, and why."""

from __future__ import annotations

from hai_flow.cli.terminal import compact
from hai_flow.values import Json


def is_envelope(value: Json) -> bool:
    """Whether it is the output of an approval."""
    return isinstance(value, dict) and {"decision", "votes", "expired"} <= value.keys()


def approval(value: Json) -> str:
    """The output of an approval, in words: the decision, the people and their reasons."""
    parts = [str(value["decision"])]
    votes = value["votes"] or []
    if value["expired"]:
        parts.append("nobody decided in time")
    elif len(votes) == 1:
        parts[0] += f" by {_format_voter(votes[0])}"
    if len(votes) == 1 and votes[0].get("reason"):
        parts.append(votes[0]["reason"])
    if len(votes) > 1:
        parts += [f"{_format_voter(vote)} {vote['decision']}{_because(vote)}" for vote in votes]
    for name in ("values", "edits"):
        if value.get(name):
            parts.append(f"{name} {compact(value[name])}")
    if value.get("escalations"):
        count = len(value["escalations"])
        parts.append("escalated" if count == 1 else f"escalated {count} times")
    head, *rest = parts
    return f"{head}: {'; '.join(rest)}" if rest else head


def _format_voter(vote: Json) -> str:
    delegate = f" for {vote['on_behalf_of']}" if vote.get("on_behalf_of") else ""
    roles = f" ({', '.join(vote['roles'])})" if vote.get("roles") else ""
    counts = "" if vote.get("counts", True) else ", which does not count any more"
    rule = f", by rule {vote['rule']}" if vote.get("rule") else ""
    return f"{vote['by']}{delegate}{roles}{rule}{counts}"


def _because(vote: Json) -> str:
    return f", {vote['reason']}" if vote.get("reason") else ""
