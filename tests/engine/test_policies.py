"""The rules of a question once their holes are filled: whom each stage asks, excludes, notifies, and means by `all`."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from hai_flow.engine import events as e
from hai_flow.engine.pendings.votes import Differs, Rules, asks, derive_rules, merge_values, to_json
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX
from hai_flow.engine.state.state import PendingState
from tests.support.people import DAY, HOUR, REQUESTER, Asked, approving, asking, escalate, failure, lit, policy, who

BOARD = {"board": ("user:ann", "user:bob", "user:joe"), "wide": ("user:ann", "group:staff")}


def rules(from_: Any = ("role:boss",), **more: Any) -> Rules:
    return derive_rules(Asked(approving(policy(from_, **more), roles=BOARD)).pending)


def impossible(from_: Any, **more: Any) -> str:
    """What is said of a question that nobody could ever decide."""
    return failure(approving(policy(from_, **more), roles=BOARD)).message


def test_listed_people_exclude_those_who_are_surely_excluded() -> None:
    assert rules(("role:board",), exclude=["user:bob"]).people == {
        "user:ann": ("role:board",),
        "user:joe": ("role:board",),
    }
    assert rules(("user:ann", "role:board")).people == {
        "user:ann": ("user:ann", "role:board"), "user:bob": ("role:board",), "user:joe": ("role:board",),
    }  # fmt: skip
    assert rules(("user:ann",), exclude=["role:intern"]).people == {"user:ann": ("user:ann",)}
    assert rules(("role:wide",)).people is None


def test_everybody_is_whom_the_quorum_of_all_means() -> None:
    assert rules(("role:board",), quorum="all").everyone == ("user:ann", "user:bob", "user:joe")
    assert rules(("role:board",)).everyone == ()


@pytest.mark.parametrize("found", [1, 2, "all"])
def test_a_quorum_that_is_worked_out_when_it_is_asked_is_a_number_or_all(found: Any) -> None:
    whole = rules(("role:board",), quorum=lit(found))
    assert whole.quorum == found
    assert whole.everyone == (("user:ann", "user:bob", "user:joe") if found == "all" else ())
    (later,) = rules(("role:board",), escalations=(escalate(DAY, quorum=lit(found)),)).escalations
    assert later == msgspec.structs.replace(whole, deadline=DAY)


@pytest.mark.parametrize(
    ("found", "shown"),
    [(0, "0"), (-1, "-1"), (1.5, "1.5"), (True, "true"), (None, "null"), ("two", '"two"'), ({"any": 1}, '{"any":1}')],
    ids=str,
)
def test_a_quorum_that_turns_out_to_be_something_else_fails_the_step(found: Any, shown: str) -> None:
    for asked in (policy(quorum=lit(found)), policy(escalations=(escalate(DAY, quorum=lit(found)),))):
        error = failure(approving(asked))
        assert error.code == "expression.error"
        assert error.message == f"loop[0]/gate: `quorum`: expected a number from 1, or `all`, found {shown}."


def test_of_a_long_quorum_that_is_none_only_the_beginning_is_shown() -> None:
    error = failure(approving(policy(quorum=lit("x" * 100))))
    assert error.message.endswith(', found "' + "x" * 79 + ".")


@pytest.mark.parametrize(
    ("from_", "exclude", "asked"),
    [
        (("anyone",), None, True),
        (("role:boss", "requester"), [], True),
        (("role:boss",), [], False),
        (("requester",), ["role:intern"], True),
        (("role:boss", "requester"), ["requester"], False),
        (("role:boss",), ["requester"], False),
        (("role:boss", REQUESTER), [], True),
    ],
    ids=str,
)
def test_who_started_the_run_is_asked_if_they_may_surely_vote(from_: Any, exclude: Any, asked: bool) -> None:
    more: dict[str, Any] = {"quorum": {"role:boss": 1}} if "role:boss" in from_ else {}
    assert rules(from_, exclude=exclude, **more).asks_requester is asked


def test_the_requester_is_excluded_from_approvals_unless_named() -> None:
    assert rules(("role:boss",)).exclude == ("requester",)
    assert rules(("role:boss", "anyone")).exclude == ()
    assert rules(("role:boss",), exclude=["user:bob"]).exclude == ("user:bob",)
    form = policy(("role:boss",), exclude=["user:bob"])
    assert derive_rules(Asked(asking(form)).pending).exclude == ()


def test_a_stage_takes_over_what_the_one_before_it_does_not_say_again() -> None:
    stages = (
        escalate(DAY, from_=["user:ann", "user:bob"], quorum="all"),
        escalate(2 * DAY, notify=(lit("ops"),), exclude=["user:bob"], quorum=1, remind=(HOUR, 1000)),
    )
    first = rules(("role:boss",), notify=(lit("boss"),), remind=(2000, 1000), escalations=stages)
    second, third = first.escalations
    assert (first.deadline, first.notify, first.remind) == (HOUR, ("boss",), (1000, 2000))
    assert (second.deadline, second.notify, second.remind) == (DAY, ("boss",), (1000, 2000))
    assert (second.from_, second.quorum, second.everyone) == (("user:ann", "user:bob"), "all", ("user:ann", "user:bob"))
    assert (third.deadline, third.notify, third.remind) == (2 * DAY, ("ops",), (1000, HOUR))
    assert (third.from_, third.exclude, third.quorum) == (("user:ann", "user:bob"), ("user:bob",), 1)
    assert third.people == {"user:ann": ("user:ann",)}
    assert all(not stage.escalations for stage in first.escalations)


def test_the_documents_default_is_notified_unless_a_policy_names_others() -> None:
    plan = dataclasses.replace(approving(policy()), default_notify=(lit("everybody"),))
    assert derive_rules(Asked(plan).pending).notify == ("everybody",)
    plan = dataclasses.replace(approving(policy(notify=(lit("boss"),))), default_notify=(lit("everybody"),))
    assert derive_rules(Asked(plan).pending).notify == ("boss",)


def test_a_question_that_nobody_can_decide_says_what_is_wrong_with_it() -> None:
    assert "`from` names nobody" in impossible(())
    assert "`from`: expected a selector" in impossible(("ann",), quorum="all")
    assert "`quorum: all` needs people that can be listed; `from` has others" in impossible(
        ("role:boss",), quorum="all"
    )
    assert "the quorum of 2 can't be reached: those who may decide are user:ann" in impossible(("user:ann",), quorum=2)
    assert "those who may decide are nobody" in impossible(("user:ann",), exclude=["user:ann"])
    seats = {"quorum": {"user:joe": 1, "any": 2}, "exclude": ["user:joe"]}
    assert "the quorum of user:joe: 1, any: 2 can't be reached" in impossible(("role:board",), **seats)


def test_rules_that_are_larger_than_an_event_are_not_asked() -> None:
    crowd = [f"user:{number:0180}" for number in range(EVENT_BYTES_MAX // 180)]
    assert failure(approving(policy(lit(crowd)))).code == "expression.too_large"


def test_every_selector_that_admits_or_counts_is_tried_on_a_vote() -> None:
    stages = (escalate(DAY, from_=["role:cfo"], quorum={"role:sre": 1, "any": 2}, exclude=["group:staff"]),)
    first = rules(
        ("role:boss", "user:ann"), quorum={"user:bob": 1, "any": 1}, exclude=["role:intern"], escalations=stages
    )
    assert first.selectors() == ("role:boss", "user:ann", "user:bob", "role:cfo", "role:sre")
    assert first.exclusions() == ("role:intern", "group:staff")


def test_a_question_of_a_release_without_rules_has_those_that_need_none() -> None:
    opened = e.PendingOpened(at=0, id="p", path="a", kind="tool", digest="")
    assert derive_rules(PendingState(opened)) == Rules()


def test_whoever_falls_under_one_of_several_exclusions_may_not_vote() -> None:
    found = rules(("role:board",), exclude=["user:bob", "role:intern", "user:joe"]).people
    assert found == {"user:ann": ("role:board",)}


@pytest.mark.parametrize("rule", ["min", "max"])
def test_values_that_can_not_be_ordered_have_no_extreme(rule: str) -> None:
    with pytest.raises(Differs, match=f"n is combined by {rule}: expected values that can be ordered"):
        merge_values(Rules(combine={"n": rule}), {}, [{"n": 1}, {"n": "x"}])


def test_what_only_some_have_given_is_combined_of_those() -> None:
    given = [{"a": 1, "b": True}, {"b": False, "c": "x"}, {}]
    rules = Rules(combine={"a": "list", "b": "all", "c": "last"})
    assert merge_values(rules, {}, given) == {"a": [1], "b": False, "c": "x"}
    assert merge_values(rules, None, given) is None


@pytest.mark.parametrize("listed", [False, True])
def test_the_rules_of_a_question_tell_whether_somebody_else_is_asked(listed: bool) -> None:
    """`listed`: all deciders are named, so that they are known by name when the question is opened."""
    ann, bob = (who("ann"), who("bob")) if listed else (who("ann", "boss"), who("bob", "boss"))
    from_ = ("user:ann", "user:bob") if listed else ("role:boss",)
    rules = Asked(approving(policy(from_, exclude=["user:bob"]))).pending.opened.policy
    assert asks(rules, ann)
    assert asks(rules, who("dan", for_="ann")) is listed, "who acts for somebody brings roles of their own"
    assert not asks(rules, bob)
    assert not asks(rules, who("eve"))


def test_a_person_in_a_workflows_role_is_asked_whatever_roles_they_bring() -> None:
    rules = to_json(Rules(from_=("role:boss",), people={"user:ann": ("role:boss",)}))
    assert asks(rules, who("ann"))
    assert not asks(rules, who("eve", "boss"))
