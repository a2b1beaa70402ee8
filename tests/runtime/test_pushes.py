"""What an address is told of a run: whose it is, how often, and which questions its caller may answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest

from hai_flow.engine.state.state import RunState
from hai_flow.runtime.messaging import pushes
from hai_flow.runtime.messaging.pushes import PushCaller, Pushes
from hai_flow.wire.a2a.pushes import PushConfig
from tests.support.runs import Play

ASKS = """
steps: [{id: ok, approve: {title: Go?, from: anyone, deadline: 1h}, on_reject: [{fail: {code: no, message: No.}}]}]
"""
APPROVAL = PushConfig("p", "https://a.example/", approval=True)
CALLER = PushCaller("user:ann", ("clerk",), ("sales",), key="k")


def service() -> Any:
    made = object.__new__(Pushes)
    made._database = made._credentials = cast(Any, None)
    return made


async def look(state: RunState, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, tuple[Any, ...]]:
    """The notice for the webhook of an approval, and the roles and groups that the caller's key needs."""
    held: list[tuple[Any, ...]] = []

    async def state_at(*given: Any) -> RunState:
        return state

    async def is_over(pool: Any, tenant: Any, key: str, id: str, *given: Any) -> bool:
        held.append(given)
        return False

    monkeypatch.setattr(pushes, "state_at", state_at)
    monkeypatch.setattr(pushes.keys, "is_over", is_over)
    push = SimpleNamespace(tenant=uuid4(), run_id=uuid4())
    return await service()._look(push, APPROVAL, CALLER), held[0]


@pytest.mark.parametrize(
    ("requester", "forked", "needs_roles"), [("user:ann", 0, False), ("user:ann", 1, True), ("user:bob", 0, True)]
)
async def test_the_address_of_a_key_needs_its_roles_for_what_is_not_its_own(
    monkeypatch: pytest.MonkeyPatch, requester: str, forked: int, needs_roles: bool
) -> None:
    state = msgspec.structs.replace(Play(ASKS).state, requester=requester, forked=forked)
    _, held = await look(state, monkeypatch)
    assert held == ((("clerk",), ("sales",)) if needs_roles else ((), ()))


@pytest.mark.parametrize(("decision", "status", "is_last"), [("reject", "rejected", True), (None, "failed", False)])
async def test_an_approval_that_has_failed_may_be_told_of_again(
    monkeypatch: pytest.MonkeyPatch, decision: str | None, status: str, is_last: bool
) -> None:
    play = Play(ASKS)
    if decision is None:
        play.state = msgspec.structs.replace(play.state, status="failed")
    else:
        play.answer("ok", decision=decision, reason="no")
    notice, _ = await look(play.state, monkeypatch)
    assert (notice.state, notice.is_last) == (status, is_last)
    (question,) = play.state.pendings.values()
    twice = msgspec.structs.replace(play.state, pendings=play.state.pendings.set("another", question))
    assert (await look(twice, monkeypatch))[0].mark != notice.mark, "it was asked again meanwhile"


@pytest.mark.parametrize(("may", "obstacle", "mine"), [(True, None, True), (False, None, False), (True, "it", False)])
async def test_a_question_is_the_callers_own_only_if_they_may_answer_it(
    may: bool, obstacle: str | None, mine: bool
) -> None:
    async def item(*given: Any) -> Any:
        return SimpleNamespace(obstacle=obstacle)

    made, play = service(), Play(ASKS)
    made._inbox = SimpleNamespace(item=item)
    (question,) = await made._list_questions(SimpleNamespace(tenant=uuid4(), may=may), play.state, CALLER)
    assert question.mine is mine
