"""The people behind a run: whom it remembers, and who gives way where there are too many."""

from __future__ import annotations

from typing import Final

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine.state.instigators import (
    INSTIGATORS_MAX,
    SENDERS_MAX,
    list_ids,
    list_new_senders,
    read_senders,
    with_senders,
)
from tests.support.runs import FORK, Play

_BY_TWO_AGENTS: Final = [f"agent:{agent} {' '.join(f'user:{agent}{n}' for n in range(100))}" for agent in "ab"]


def fold(*texts: str | None) -> tuple[str, ...]:
    senders: tuple[str, ...] = ()
    for each in texts:
        senders = with_senders(senders, read_senders(each))
    return senders


def test_people_of_agents_drive_out_nobody_who_sent_a_signal() -> None:
    senders = fold("user:ann", *_BY_TWO_AGENTS)
    assert len(senders) == SENDERS_MAX
    assert {"user:ann", "agent:a", "agent:b", "user:b99", "user:a99"} <= set(list_ids(senders))


def test_the_last_senders_are_remembered_in_their_order() -> None:
    people = [f"user:{n}" for n in range(SENDERS_MAX + 2)]
    assert fold(*people) == tuple(people[2:])


def test_people_of_an_agent_are_known_where_there_is_room() -> None:
    assert list(list_ids(fold("agent:a user:ann", "user:bob"))) == ["agent:a", "user:ann", "user:bob"]


@pytest.mark.parametrize("senders", [("user:ann",), ("~user:ann",)])
def test_who_is_known_already_is_not_new_as_one_of_an_agent(senders: tuple[str, ...]) -> None:
    assert list_new_senders(senders, read_senders("agent:a user:ann")) == ("agent:a",)
    assert with_senders(senders, ("~user:ann",)) is senders


def test_who_sends_one_after_their_agent_did_is_a_sender() -> None:
    assert "user:ann" in fold("agent:a user:ann", "user:ann")


def test_several_ids_in_one_text_are_several_people() -> None:
    assert list(list_ids(("agent:a user:ann", "user:bob"))) == ["agent:a", "user:ann", "user:bob"]


@pytest.mark.parametrize("text", [None, "", " "])
def test_a_signal_of_nobody_has_no_sender(text: str | None) -> None:
    assert read_senders(text) == ()


def test_people_of_a_fork_stand_before_those_of_its_run() -> None:
    play = Play("steps:\n  - {id: go, approve: {title: Go?, from: [role:boss]}}\n", start=False)
    play.start(instigators=tuple(f"user:{n}" for n in range(INSTIGATORS_MAX)))
    people = tuple(f"user:of-agent-{n}" for n in range(100))
    nobody = c.Answer(answers=(), by=c.Principal("agent:buyer"))
    fork = Play(play.plan, run_id=FORK, start=False)
    fork.do(c.Fork(run_id=FORK, of=play.run_id, events=tuple(play.events), answer=nobody, behind=people))
    assert {"user:ann", *people} <= set(fork.state.all_instigators)
