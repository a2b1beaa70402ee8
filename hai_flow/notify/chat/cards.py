"""The content of the card of a question. Pure.

The arguments are shown as they are bound by the digest: their JSON text with line breaks, whole, or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hai_flow.engine.events import PendingOpened, VoteCast
from hai_flow.engine.pendings.votes import Rules, derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.notify.chat.contract import Button, Card
from hai_flow.notify.letters import introduce
from hai_flow.primitives import instants
from hai_flow.primitives.invisible_characters import WARNING, escape_json, has_hidden, reveal
from hai_flow.primitives.markdown import to_text

TITLE_MAX: Final = 300
MESSAGE_MAX: Final = 1000
FACT_MAX: Final = 600
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_ENDS: Final = {
    "approve": "Approved", "reject": "Rejected", "answered": "Answered", "declined": "Declined",
    "expired": "Expired: nobody decided in time", "voided": "Withdrawn: no answer is needed any more",
}  # fmt: skip


class Choice(NamedTuple):
    """A button of a question: its option (`edit`: an approval with other arguments; "": the answer to a form).
    `asks`: it needs more than a press."""

    option: str
    label: str
    asks: bool


EDIT: Final = "~edit"
_LABELS: Final = {"approve": "Approve", "reject": "Reject", EDIT: "Edit…", "": "Answer…"}
_STYLES: Final[Mapping[str, Any]] = {"approve": "primary", "reject": "danger"}


def list_choices(opened: PendingOpened, rules: Rules) -> tuple[Choice, ...]:
    """The decisions that a card of the question can offer."""
    if opened.kind == "ask":
        return (Choice("", _LABELS[""], True),)
    if opened.kind not in ("approve", "gate"):
        return ()
    choices = [
        Choice(
            option,
            _LABELS.get(option, reveal(option)),
            option in rules.reasons or rules.confirm or (opened.schema is not None and option in ("approve", "accept")),
        )
        for option in opened.options
    ]
    if rules.edit and opened.kind == "gate":
        choices.append(Choice(EDIT, _LABELS[EDIT], True))
    return tuple(choices)


def build_card(
    id: str,
    workflow: str,
    pending: PendingState,
    *,
    what: str = "opened",
    page: str | None,
    arguments_max: int,
    shows_evidence: bool,
) -> Card:
    """The card of a question, without its buttons. `what`: why it comes, as in `letters`. `shows_evidence`: its only
    reader is one of the deciders."""
    opened, rules = pending.opened, derive_rules(pending)
    texts = [each for each in (opened.args, opened.evidence if shows_evidence else None) if each]
    arguments = None
    if sum(map(len, texts)) <= arguments_max:  # written for people it is longer
        arguments = "\n".join(escape_json(indent(each)) for each in texts) or None
    if arguments is not None and len(arguments) > arguments_max:
        arguments = None
    digest = opened.digest if arguments is None and (opened.args or opened.evidence) else None
    title = opened.heading or "A question"
    message = opened.message
    hidden = has_hidden(title) or has_hidden(message or "") or any(escape_json(each) != each for each in texts)
    return Card(
        id=id,
        heading=introduce(what if pending.status == "open" else "opened", reveal(workflow)),
        title=_cut(" ".join(reveal(title).split()), TITLE_MAX),
        message=None if not message else _cut(reveal(to_text(message, MESSAGE_MAX)), MESSAGE_MAX),
        arguments=arguments,
        digest=digest,
        facts=tuple((name, _cut(text, FACT_MAX)) for name, text in _list_facts(pending, opened, rules)),
        warning=WARNING if hidden else None,
        result=None if pending.status == "open" else _describe_end(pending),
        page=page,
    )


def with_buttons(card: Card, choices: Sequence[Choice], tokens: Sequence[str]) -> Card:
    buttons = [
        Button(each.label, token, _STYLES.get(each.option, "plain"), each.asks)
        for each, token in zip(choices, tokens, strict=True)
    ]
    return replace(card, buttons=tuple(buttons))


def digest_of(card: Card, choices: Sequence[Choice]) -> bytes:
    """The digest of the content: equal where no reader would see a difference."""
    return sha256(msgspec.json.encode([card, choices])).digest()


def indent(text: str) -> str:
    """JSON text with a line for each member, and every literal as it stands."""
    out: list[str] = []
    depth = 0
    for token in _TOKEN.findall(text):
        depth += (token in ("{", "[")) - (token in ("}", "]"))
        line_end = f"\n{'  ' * depth}"
        match token:
            case "{" | "[" | ",":
                out.append(token + line_end)
            case "}" | "]":
                out.append(line_end + token)
            case ":":
                out.append(": ")
            case _:
                out.append("".join(token.split()) if token[0] in "{[" else token)
    return "".join(out)


def _list_facts(pending: PendingState, opened: PendingOpened, rules: Rules) -> list[tuple[str, str]]:
    facts = []
    if opened.tool is not None:
        facts.append(("Action", reveal(opened.tool)))
    facts.append(("Who may decide", _describe_deciders(rules)))
    if opened.deadline is not None:
        facts.append(("Until", _format(opened.deadline)))
    if pending.votes:
        votes = ", ".join(f"{_name_voter(each)} ({each.decision})" for each in pending.votes)
        facts.append(("Votes", reveal(votes)))
    return facts


def _describe_deciders(rules: Rules) -> str:
    text = ", ".join(rules.from_) or "nobody"
    if isinstance(rules.quorum, dict):
        text += f"; needed: {', '.join(f'{number} of {name}' for name, number in rules.quorum.items())}"
    elif rules.quorum != 1:
        text += f"; needed: {rules.quorum}"
    if rules.exclude:
        text += f"; not {', '.join(rules.exclude)}"
    return reveal(text)


def _describe_end(pending: PendingState) -> str:
    """The end of the question, the people that decided it, and the time."""
    end = _ENDS.get(pending.status, reveal(pending.status).capitalize())
    people = [_name_voter(each) for each in pending.votes if each.decision == pending.status]
    if not people and pending.by is not None:
        people = [pending.by if pending.on_behalf_of is None else f"{pending.by} for {pending.on_behalf_of}"]
    by = f" by {reveal(', '.join(dict.fromkeys(people)))}" if people else ""
    at = "" if pending.at is None else f", {_format(pending.at)}"
    return f"{end}{by}{at}."


def _name_voter(vote: VoteCast) -> str:
    """Who has voted, for whom, and by which standing rule; a `never` votes in nobody's name."""
    person = vote.by if vote.on_behalf_of is None else f"{vote.by} for {vote.on_behalf_of}"
    return person if vote.rule is None or vote.rule.never else f"{person} by rule {vote.rule.id}"


def _format(ms: int) -> str:
    return f"{instants.instant(ms).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
