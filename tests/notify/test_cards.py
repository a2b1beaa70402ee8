"""Cards: the arguments whole or their digest, hidden signs as codes, and what became of a question."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import events as e
from hai_flow.engine.state.state import PendingState
from hai_flow.notify.chat import cards
from hai_flow.notify.chat.contract import Card, DialogField, DialogLimits
from hai_flow.primitives.invisible_characters import has_hidden

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def pending(args: str | None = '{"n": 1}', status: str = "open", **more: Any) -> PendingState:
    policy = {"from": ["role:boss"], "exclude": ["requester"], "quorum": 2, **more.pop("policy", {})}
    fields: dict[str, Any] = {
        "kind": "gate",
        "title": "Pay?",
        "tool": "shop.pay",
        "options": ("approve", "reject"),
        **more,
    }
    opened = e.PendingOpened(at=0, id="p", path="x", digest="ab" * 32, args=args, policy=policy, deadline=0, **fields)
    return PendingState(opened, status=status)


def card(question: PendingState, most: int = 1000, *, evidence: bool = False) -> Card:
    return cards.build_card("c", "paying", question, page=None, arguments_max=most, shows_evidence=evidence)


@given(_JSON)
def test_arguments_with_line_breaks_are_the_same_value_and_literals(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    broken = cards.indent(text)
    assert json.loads(broken) == value
    assert "".join(broken.split()) == "".join(text.split())


@pytest.mark.parametrize("text", ['{"a":1.10,"b":1e2,"c":12345678901234567890}', "[]", "{}", '[{}, [], "[{,:"]'])
def test_no_literal_of_the_arguments_is_written_anew(text: str) -> None:
    broken = cards.indent(text)
    assert json.loads(broken, parse_float=str, parse_int=str) == json.loads(text, parse_float=str, parse_int=str)


def test_arguments_that_are_too_long_are_not_cut_but_named_by_their_digest() -> None:
    for n in (200, 90):  # at all, and as people read them
        long = card(pending('{"a": "' + "x" * n + '"}'), 100)
        assert (long.arguments, long.digest) == (None, "ab" * 32)
        assert any("ab" * 32 in line for line in long.lines())
    whole = card(pending('{"a": 1}'), 100)
    assert (whole.arguments, whole.digest) == ('{\n  "a": 1\n}', None)


def test_signs_that_nobody_sees_are_codes_wherever_they_stand() -> None:
    hidden = "pay \u202ecba\u202c \u200b\u0430pple"
    question = pending(json.dumps({"a": hidden}, ensure_ascii=False), title=hidden, message=hidden, tool=hidden)
    shown = card(question)
    assert shown.warning is not None
    texts = [shown.arguments or "", *shown.lines()]
    assert not any(has_hidden(text.replace("\n", " ")) for text in texts)
    assert json.loads(shown.arguments or "") == {"a": hidden}


def test_evidence_is_for_deciders_alone() -> None:
    question = pending(None, kind="approve", tool=None, evidence='{"why": "because"}')
    room, own = card(question), card(question, evidence=True)
    assert (room.arguments, room.digest) == (None, "ab" * 32)
    assert "because" in (own.arguments or "")


def test_a_card_says_who_may_decide_how_many_and_who_not() -> None:
    facts = dict(card(pending()).facts)
    assert facts["Who may decide"] == "role:boss; needed: 2; not requester"
    assert facts["Until"] == "1970-01-01 00:00 UTC"
    assert facts["Action"] == "shop.pay"


@pytest.mark.parametrize(
    ("status", "told"), [("approve", "Approved"), ("reject", "Rejected"), ("expired", "Expired"), ("revise", "Revise")]
)
def test_the_end_of_a_question_is_named(status: str, told: str) -> None:
    assert (card(pending(status=status)).result or "").startswith(told)


@pytest.mark.parametrize(
    ("vote", "name"),
    [
        ({"by": "user:bob", "rule": e.RuleUse("7f3c", "d")}, "user:bob by rule 7f3c"),
        ({"by": "user:bob", "on_behalf_of": "user:cfo"}, "user:bob for user:cfo"),
        ({"by": "rule:7f3c", "rule": e.RuleUse("7f3c", "d", True), "decision": "reject"}, "rule:7f3c"),
    ],
)
def test_a_card_says_for_whom_and_by_which_rule_a_vote_was_cast(vote: dict[str, Any], name: str) -> None:
    cast = msgspec.structs.replace(e.VoteCast(at=0, id="p", by="", decision="approve"), **vote)
    shown = card(msgspec.structs.replace(pending(status=cast.decision), votes=(cast,)))
    assert dict(shown.facts)["Votes"] == f"{name} ({cast.decision})"
    assert f"ed by {name}." in (shown.result or "")


def test_what_needs_more_than_a_press_is_marked() -> None:
    rules = {"reasons": ["reject"], "edit": ["n"]}
    question = pending(policy=rules)
    choices = cards.list_choices(question.opened, cards.derive_rules(question))
    assert [(each.option, each.asks) for each in choices] == [("approve", False), ("reject", True), ("~edit", True)]
    asking = pending(None, kind="ask", schema={"type": "object"}, options=())
    assert [each.option for each in cards.list_choices(asking.opened, cards.derive_rules(asking))] == [""]
    call = pending(kind="tool")
    assert cards.list_choices(call.opened, cards.derive_rules(call)) == ()


LIMITS = DialogLimits(fields=2, label=10, choices=3, choice=5, choices_text=20, value=8)
FIELD = DialogField("f", "Amount", "text", value="12345678")
CHOICE = DialogField("f", "Which", "choice", choices=(("0", "a"), ("1", "b")))


@pytest.mark.parametrize("fields", [(), (FIELD,), (FIELD, CHOICE)])
def test_a_dialog_that_is_shown_whole_is_opened(fields: tuple[DialogField, ...]) -> None:
    assert LIMITS.admit(fields)


@pytest.mark.parametrize(
    "field",
    [
        FIELD._replace(value="123456789"),
        FIELD._replace(label="Amount due."),
        CHOICE._replace(choices=(("0", "a"),) * 4),
        CHOICE._replace(choices=(("0", "abcdef"),)),
        CHOICE._replace(choices=(("0", "abcde"), ("1", "abcde"), ("2", "abcde"))),
    ],
    ids=["value", "label", "choices", "one choice", "all choices"],
)
def test_a_dialog_that_would_cut_a_field_is_not_opened(field: DialogField) -> None:
    assert not LIMITS.admit((field,))


def test_a_dialog_that_would_leave_out_a_field_is_not_opened() -> None:
    assert not LIMITS.admit((FIELD, FIELD, FIELD))


def test_deciders_without_number_leave_room_for_the_rest_of_a_card() -> None:
    many = [f"user:person-{number:04}" for number in range(5000)]
    facts = dict(card(pending(policy={"from": many, "exclude": many})).facts)
    assert all(len(text) <= cards.FACT_MAX for text in facts.values())
    assert facts["Who may decide"].startswith("user:person-0000, user:person-0001, ")
    assert "Until" in facts
