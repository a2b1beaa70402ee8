"""Approvals: who may vote, what a vote comes to, and what follows from the decision (docs/language.md#people)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings import validate_answers
from hai_flow.engine.state.ids import pending_id
from hai_flow.errors import Rejected
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.questions import renders_as_tool_call
from tests.support.people import (
    DAY,
    HOUR,
    REQUESTER,
    RUN,
    Asked,
    approving,
    asking,
    escalate,
    failure,
    gated,
    picking,
    policy,
    who,
)

ANN, BOB, EVE = who("ann", "boss"), who("bob", "boss"), who("eve", "boss")
REQ = c.Principal(REQUESTER, ("boss",))
BOARD = {"board": ("user:ann", "user:bob", "user:eve")}


def asked(from_: Any = ("role:boss",), *, roles: Any = None, handlers: tuple[str, ...] = (), **rules: Any) -> Asked:
    return Asked(approving(policy(from_, **rules), roles=roles, handlers=handlers))


# --- who may vote -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("from_", "voter"),
    [
        ("user:ann", who("ann")),
        ("role:boss", who("ann", "boss")),
        ("group:finance", who("ann", groups=("finance",))),
        ("anyone", who("ann")),
        ("requester", c.Principal(REQUESTER)),
        ("role:board", who("ann")),
    ],
)
def test_every_kind_of_selector_lets_its_people_vote(from_: str, voter: c.Principal) -> None:
    ask = asked((from_,), roles=BOARD)
    assert ask.can(voter)
    ask.vote(voter)
    assert ask.envelope["decision"] == "approve"


@pytest.mark.parametrize(
    ("from_", "voter"),
    [
        ("user:ann", who("annette")),
        ("role:boss", who("ann", "bossy")),
        ("group:finance", who("ann", "finance")),
        ("requester", who("ann", "boss")),
        ("role:board", who("joe", "board")),  # the document says who that is
    ],
)
def test_nobody_else_may_vote(from_: str, voter: c.Principal) -> None:
    ask = asked((from_,), roles=BOARD)
    assert not ask.can(voter)
    refusal = ask.refusal(voter)
    assert (refusal.status, refusal.code) == (403, "pending_forbidden")
    assert ask.is_open


def test_a_role_that_lists_a_group_has_its_members() -> None:
    ask = asked(("role:money",), roles={"money": ("group:finance", "user:joe")})
    assert ask.can(who("ann", groups=("finance",)))
    assert ask.can(who("joe"))
    assert not ask.can(who("ann", "money"))


def test_who_started_the_run_is_excluded_whatever_roles_they_have() -> None:
    assert asked().refusal(REQ).status == 403


@pytest.mark.parametrize("from_", [("requester", "role:boss"), ("anyone",)])
def test_unless_from_names_the_requester_or_anyone(from_: tuple[str, ...]) -> None:
    assert asked(from_).can(REQ)


def test_an_empty_exclusion_excludes_nobody() -> None:
    assert asked(exclude=[]).can(REQ)


def test_an_exclusion_by_role_or_group_covers_all_who_have_it() -> None:
    ask = asked(exclude=["role:intern", "group:audit", "user:eve"])
    assert not ask.can(who("ann", "boss", "intern"))
    assert not ask.can(who("ann", "boss", groups=("audit",)))
    assert not ask.can(EVE)
    assert ask.can(REQ)


@pytest.mark.parametrize(
    "voter", [REQ, who("eve", "boss", "intern"), c.Principal("agent:bot", ("boss",)), ANN, who("joe")]
)
def test_a_refusal_names_the_rule_and_those_who_may_decide(voter: c.Principal) -> None:
    ask = asked(quorum=2, exclude=["requester", "role:intern"])
    ask.vote(ANN)
    refusal = ask.refusal(voter, "reject")
    assert refusal.status == 403
    assert "role:boss" in refusal.detail, refusal.detail


def test_a_delegate_votes_as_the_other() -> None:
    ask = asked(("user:ann",))
    assert ask.can(who("dan", for_="ann"))
    assert not asked(("user:dan",)).can(who("dan", for_="ann"))
    ask.vote(who("dan", for_="ann"))
    assert [(vote["by"], vote["on_behalf_of"]) for vote in ask.envelope["votes"]] == [("user:dan", "user:ann")]


def test_neither_a_delegate_nor_the_other_may_be_excluded() -> None:
    ask = asked(exclude=["user:ann"])
    assert ask.refusal(who("dan", "boss", for_="ann")).status == 403
    assert ask.refusal(c.Principal("user:ann", ("boss",), (), "user:dan")).status == 403
    assert asked().refusal(c.Principal("user:dan", ("boss",), (), REQUESTER)).status == 403


@pytest.mark.parametrize(
    "again", [ANN, who("dan", "boss"), who("ann", "boss", for_="dan"), who("eve", "boss", for_="ann")]
)
def test_a_delegate_and_the_other_have_one_vote_together(again: c.Principal) -> None:
    ask = asked(quorum=3)
    ask.vote(who("dan", "boss", for_="ann"))
    assert ask.refusal(again).code == "vote_final"
    assert not ask.can(again)


def test_a_vote_is_final() -> None:
    ask = asked(quorum=2)
    ask.vote(ANN)
    assert (ask.refusal(ANN, "reject").status, ask.refusal(ANN, "reject").code) == (403, "vote_final")
    assert len(ask.of(e.VoteCast)) == 1


def test_the_same_vote_again_is_already_so() -> None:
    ask = asked(quorum=2)
    assert ask.vote(ANN, reason="fine") == ["accepted"]
    assert ask.vote(ANN, reason="fine") == ["already"]
    ask.vote(BOB)
    assert ask.vote(ANN, reason="fine") == ["already"]


def test_the_roles_that_were_matched_are_kept_with_the_vote() -> None:
    ask = asked(("role:boss", "user:ann"), quorum={"role:dev": 1})
    ask.vote(who("ann", "boss", "dev", "unrelated"))
    assert ask.envelope["votes"][0]["roles"] == ["boss", "dev"]
    assert ask.of(e.VoteCast)[0].matched == ("role:boss", "user:ann", "role:dev")


# --- the order of refusals --------------------------------------------------------------------------------------------


def test_a_pending_that_does_not_exist_is_unknown() -> None:
    ask = asked()
    strange = c.PendingAnswer(id=pending_id(str(RUN), "elsewhere", 0), decision="approve")
    with pytest.raises(Rejected) as refusal:
        ask.do(lambda draft, step: validate_answers.readings(draft, c.Answer(answers=(strange,), by=ANN)))
    assert (refusal.value.status, refusal.value.code) == (404, "pending_unknown")


def test_what_was_decided_is_told_before_who_may_not_vote() -> None:
    ask = asked()
    ask.vote(ANN, reason="fine")
    refusal = ask.refusal(who("stranger"), "reject")
    assert (refusal.status, refusal.code) == (409, "pending_decided")
    assert refusal.winner is not None
    assert (refusal.winner["by"], refusal.winner["outcome"], refusal.winner["reason"]) == (
        "user:ann",
        "approve",
        "fine",
    )


def test_what_has_expired_is_told_before_who_may_not_vote() -> None:
    ask = asked()
    ask.advance(HOUR)
    assert ask.refusal(who("stranger"), "what?").status == 410


def test_who_may_not_vote_is_told_before_what_is_wrong_with_the_vote() -> None:
    ask = asked()
    assert ask.refusal(who("stranger"), "what?").status == 403
    assert ask.refusal(ANN, "what?").status == 422


def test_a_vote_on_another_digest_is_refused_and_the_question_stays_open() -> None:
    ask = asked()
    refusal = ask.refusal(ANN, digest="0" * 64)
    assert (refusal.status, refusal.code) == (422, "answer.digest")
    assert ask.vote(ANN, digest=ask.pending.opened.digest) == ["accepted"]


# --- quorum -----------------------------------------------------------------------------------------------------------


def test_one_approval_is_enough_unless_the_quorum_says_otherwise() -> None:
    ask = asked()
    ask.vote(ANN)
    assert ask.status == "finished"


def test_a_number_counts_distinct_people() -> None:
    ask = asked(quorum=2)
    ask.vote(ANN)
    assert ask.is_open
    assert ask.needs["missing"] == {"people": 1, "seats": {}, "names": []}
    ask.vote(BOB)
    assert ask.status == "finished"
    assert ask.pending.by == "user:bob"


def test_all_needs_everyone_in_from() -> None:
    ask = asked(("role:board",), roles=BOARD, quorum="all")
    ask.vote(who("ann"))
    ask.vote(who("eve"))
    assert ask.needs["missing"]["names"] == ["user:bob"]
    ask.vote(who("bob"))
    assert ask.status == "finished"


@pytest.mark.parametrize(
    ("voter", "ids"),
    [(who("ann"), {"aliases": ("user:annie",)}), (who("joe", for_="ann"), {"lent_aliases": ("user:annie",)})],
)
def test_everyone_may_be_named_by_a_further_id(voter: c.Principal, ids: dict[str, Any]) -> None:
    ask = asked(("user:annie", "user:bob"), quorum="all")
    ask.vote(msgspec.structs.replace(voter, **ids))
    assert ask.needs["missing"]["names"] == ["user:bob"]
    ask.vote(who("bob"))
    assert ask.status == "finished"


def test_seats_are_filled_by_people_who_have_the_role() -> None:
    ask = asked(("role:boss", "role:sre"), quorum={"role:sre": 1, "any": 2})
    ask.vote(ANN)
    ask.vote(BOB)
    assert ask.is_open
    assert ask.needs["missing"] == {"people": 0, "seats": {"role:sre": 1}, "names": []}
    ask.vote(who("joe", "sre"))
    assert ask.status == "finished"


def test_a_person_with_two_roles_fills_one_seat() -> None:
    ask = asked(("role:sre", "role:dev"), quorum={"role:sre": 1, "role:dev": 1})
    ask.vote(who("ann", "sre", "dev"))
    assert ask.is_open
    ask.vote(who("bob", "sre"))
    assert ask.status == "finished"


# --- rejecting --------------------------------------------------------------------------------------------------------


def test_the_first_rejection_decides() -> None:
    ask = asked(quorum=2)
    ask.vote(ANN)
    ask.vote(BOB, "reject", reason="no")
    assert (ask.status, ask.error, ask.envelope["reason"]) == ("failed", "approval.rejected", "no")


def test_a_number_of_rejections_counts_distinct_people() -> None:
    ask = asked(reject_when=2, quorum=2)
    ask.vote(ANN, "reject")
    assert ask.is_open
    ask.vote(BOB, "reject")
    assert ask.error == "approval.rejected"


def test_unreachable_waits_until_nobody_could_turn_it_round() -> None:
    ask = asked(("role:board",), roles=BOARD, quorum=2, reject_when="unreachable")
    ask.vote(ANN, "reject")
    assert ask.is_open
    ask.vote(BOB, "reject")
    assert (ask.error, ask.pending.by) == ("approval.rejected", "user:bob")


def test_who_cannot_be_listed_is_never_given_up() -> None:
    ask = asked(quorum=2, reject_when="unreachable")
    for voter in (ANN, BOB, EVE):
        ask.vote(voter, "reject")
    assert ask.is_open
    assert ask.needs["people"] is None


def test_a_quorum_that_rejections_made_unreachable_rejects_regardless() -> None:
    ask = asked(("user:ann", "user:bob"), quorum=2, reject_when=2)
    ask.vote(who("ann"), "reject")
    assert ask.error == "approval.rejected"


def test_the_approval_that_meets_the_quorum_wins_over_earlier_rejections() -> None:
    ask = asked(quorum=2, reject_when=3)
    ask.vote(ANN, "reject")
    ask.vote(BOB)
    ask.vote(EVE)
    assert ask.envelope["decision"] == "approve"
    assert [vote["decision"] for vote in ask.envelope["votes"]] == ["reject", "approve", "approve"]


# --- what can never be decided ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("from_", "more"),
    [
        (("user:ann",), {"quorum": 2}),
        (("user:ann", "user:bob"), {"quorum": 2, "exclude": ["user:bob"]}),
        (("role:board",), {"quorum": 4}),
        (("role:board",), {"quorum": {"user:joe": 1}}),
        (("requester",), {"exclude": ["requester"]}),
        (("user:ann", REQUESTER), {"quorum": "all"}),
        (("role:boss",), {"quorum": "all"}),
        (("ann",), {}),
        (("",), {}),
        ((7,), {}),
        ((), {}),
        ((None, "user:ann"), {}),
        (("user:ann",), {"exclude": ["bob"]}),
    ],
    ids=str,
)
def test_what_nobody_could_ever_decide_is_impossible_and_nobody_is_asked(from_: Any, more: dict[str, Any]) -> None:
    raised = failure(approving(policy(from_, **more), roles=BOARD))
    assert raised.code == "approval.impossible"


def test_what_cannot_be_told_before_the_votes_is_not_impossible() -> None:
    assert asked(("user:ann", "user:bob"), quorum={"role:sre": 2}).is_open
    assert asked(("user:ann",), exclude=["role:intern"]).is_open
    assert asked(("role:boss",), quorum=100).is_open


def test_an_impossible_stage_acts_as_if_its_deadline_had_passed() -> None:
    ask = asked(("user:ann",), quorum=2, escalations=(escalate(DAY, from_=["role:boss"]),))
    assert [event.reason for event in ask.of(e.PendingEscalated)] == [
        "the quorum of 2 can't be reached: those who may decide are user:ann"
    ]
    assert [(timer.kind, timer.due - ask.now) for timer in ask.state.timers] == [("deadline", DAY)]
    ask.vote(BOB)
    ask.vote(EVE)
    assert ask.status == "finished"


def test_a_hole_may_give_one_selector_or_several() -> None:
    assert asked("user:ann").can(who("ann"))
    assert asked([["user:ann", "user:bob"], "user:eve"]).needs["from"] == ["user:ann", "user:bob", "user:eve"]


# --- options ----------------------------------------------------------------------------------------------------------


def test_an_option_of_the_author_decides_at_once_and_its_handler_runs() -> None:
    ask = asked(quorum=2, options=("approve", "revise", "reject"), handlers=("revise",))
    ask.vote(ANN)
    ask.vote(BOB, "revise", reason="shorter")
    assert (ask.status, ask.handler, ask.state.ready) == ("skipped", "~revise", (f"{ask.path}/~revise/tell",))
    assert (ask.envelope["decision"], ask.envelope["reason"]) == ("revise", "shorter")
    assert ask.state.steps[ask.path].output == ask.envelope


def test_only_the_options_can_be_chosen() -> None:
    assert asked().refusal(ANN, "revise").status == 422


def test_the_reject_handler_runs_before_the_rejection_is_raised() -> None:
    ask = asked(handlers=("reject",))
    ask.vote(ANN, "reject")
    assert (ask.status, ask.error, ask.handler) == ("failed", "approval.rejected", "~reject")
    assert ask.state.ready == (f"{ask.path}/~reject/tell",)


# --- the envelope -----------------------------------------------------------------------------------------------------


def test_the_envelope_tells_who_decided_what_and_when() -> None:
    ask = asked(quorum=2)
    ask.vote(ANN)
    ask.vote(BOB, reason="fine")
    digest = ask.pending.opened.digest
    vote = {
        "on_behalf_of": None, "roles": ["boss"], "decision": "approve", "values": None,
        "at": "2026-03-02T12:00:00.000Z", "via": "rest", "digest": digest, "counts": True,
    }  # fmt: skip
    assert ask.envelope == {
        "decision": "approve", "reason": "fine", "values": None, "edits": None, "expired": False, "escalations": [],
        "votes": [{**vote, "by": "user:ann", "reason": None}, {**vote, "by": "user:bob", "reason": "fine"}],
    }  # fmt: skip
    assert ask.state.steps[ask.path].output == ask.envelope


def test_a_question_is_hashed_with_workflow_run_and_evidence() -> None:
    def bound(**fields: Any) -> str:
        return Asked(approving(policy(), **fields)).pending.opened.digest

    assert bound() == bound()
    assert len({bound(), bound(sha=b"\x02" * 32), bound(evidence={"n": 1}), bound(evidence={"n": 2})}) == 4


def test_evidence_is_stored_as_the_text_that_is_hashed() -> None:
    assert Asked(approving(policy(), evidence={"b": 1, "a": 2.0})).pending.opened.evidence == '{"b":1,"a":2.0}'


# --- asks and frontend calls ------------------------------------------------------------------------------------------

FORM = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def test_the_first_answer_to_an_ask_decides() -> None:
    ask = Asked(asking(policy(("role:boss",), form=FORM)))
    assert ask.refusal(who("joe"), None, values={"n": 1}).status == 403
    ask.answer(ANN, values={"n": 1})
    assert (ask.status, ask.state.steps[ask.path].output) == ("finished", {"n": 1})
    assert ask.refusal(BOB, None, values={"n": 2}).status == 409
    assert ask.of(e.VoteCast) == []


def test_an_ask_excludes_nobody() -> None:
    assert Asked(asking(policy(("role:boss",), form=FORM))).can(REQ)


def test_a_frontend_call_is_answered_by_the_requester_and_nobody_else() -> None:
    ask = Asked(picking(), args={"n": 1})
    assert ask.refusal(ANN, None, content="x").status == 403
    assert ask.refusal(who("dan", for_="ann"), None, content="x").status == 403
    ask.answer(c.Principal(REQUESTER), content="x")
    assert (ask.status, ask.state.steps[ask.path].output) == ("finished", "x")
    assert ask.of(e.ToolCallResolved)[0].content == "x"


def test_a_frontend_call_expires_with_its_own_code() -> None:
    ask = Asked(picking())
    ask.advance(HOUR)
    assert ask.error == "tool.expired"


def test_needs_tells_who_may_decide_what_was_voted_and_what_is_missing() -> None:
    ask = asked(("user:ann", "user:bob"), quorum=2, escalations=(escalate(),))
    ask.vote(who("ann"))
    assert {key: ask.needs[key] for key in ("from", "people", "missing", "escalations")} == {
        "from": ["user:ann", "user:bob"],
        "people": ["user:bob"],
        "missing": {"people": 1, "seats": {}, "names": []},
        "escalations": {"passed": 0, "left": 1},
    }
    assert [(vote["by"], vote["counts"]) for vote in ask.needs["votes"]] == [("user:ann", True)]
    assert not ask.can(who("ann"))
    assert ask.can(who("bob"))


def test_nobody_may_decide_what_is_decided() -> None:
    ask = asked()
    ask.vote(ANN)
    assert not ask.can(BOB)


def test_a_gate_names_the_call_and_shows_its_arguments() -> None:
    opened = Asked(gated(policy()), args={"amount": 5}).pending.opened
    assert (opened.kind, opened.title, opened.tool, opened.args) == (
        "gate", "shop.refund?", "shop.refund", '{"amount":5}',
    )  # fmt: skip


@pytest.mark.parametrize(
    ("from_", "more", "asked_too"),
    [
        (("requester",), {}, True),
        (("anyone",), {}, True),
        ((REQUESTER,), {"exclude": []}, True),
        ((REQUESTER,), {"exclude": ["role:intern"]}, True),
        (("role:boss",), {}, False),  # nobody can tell before they vote
        (("role:boss", REQUESTER), {}, False),
        (("anyone",), {"exclude": ["requester"]}, False),
    ],
    ids=str,
)
def test_only_a_question_to_the_requester_is_answerable_by_their_client(
    from_: Any, more: dict[str, Any], asked_too: bool
) -> None:
    opened = asked(from_, **more).pending.opened
    profile = Profile(dialect="hai", client_tools=frozenset({"confirmAction"}))
    assert renders_as_tool_call(profile, opened) == asked_too
