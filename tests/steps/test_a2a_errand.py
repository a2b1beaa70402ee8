"""One errand at an agent of others, whose answers are scripted: none is given twice, whatever is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

import httpx2
import msgspec
import pytest

from hai_flow import values
from hai_flow.errors import OutcomeLost, StepError
from hai_flow.steps.a2a import peer, runner
from hai_flow.steps.a2a.runner import Agent, Errand, Refused
from hai_flow.steps.runner import Answer, Attempt


class ScriptedAgent:
    """Has tasks, and takes an answer `slow` looks after it came. `lists`: those that it lists. `breaks`: the connection
    breaks behind so many messages."""

    def __init__(self, lists: list[Any] | None = None, *, breaks: int = 0, slow: int = 0) -> None:
        self.tasks: dict[str, Any] = {}
        self.lists = lists
        self.sent: list[Any] = []
        self._breaks, self._slow, self._looks = breaks, slow, 0

    async def send(self, parts: Any, id: str, *, context: str | None = None, task: str | None = None) -> Any:
        self.sent.append(parts)
        self._looks = 0
        if self._breaks:
            self._breaks -= 1
            try:
                raise httpx2.ReadError("broken")
            except httpx2.ReadError:
                raise StepError("the connection broke", code="http.connection") from None
        return {"id": task or "new", "contextId": context, "status": {"state": "completed"}}

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "ListTasks":
            if self.lists is None:
                raise Refused(-32601, "no such method")
            return {"tasks": self.lists}
        self._looks += 1
        if self.sent and self._looks > self._slow:
            return {"id": params["id"], "status": {"state": "completed"}}
        return self.tasks[params["id"]]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(runner, "TAKEN_SECONDS", 0.5)


ASKING = {"id": "t", "status": {"state": "input-required", "message": {"parts": [{"text": "Which?"}]}}}


def errand(
    agent: ScriptedAgent, *, number: int = 2, lost: int = 0, answered: bool = False, begin: Any = None
) -> Errand:
    state = json.dumps({"task": "t", "question": peer.question_of(ASKING).digest, "pending": None})
    attempt = Attempt(
        "r", "s", number, "{}", cast(Any, None), lost=lost, key="k",
        answer=Answer("accept", {"answer": "red"}, state, ()) if answered else None,
        **({} if begin is None else {"begin": begin}),
    )  # fmt: skip
    agent.tasks["t"] = ASKING
    return Errand(cast(Agent, agent), attempt, cast(Any, None), streams=False)


async def test_a_task_of_another_context_is_not_taken_for_the_errands_own() -> None:
    agent = ScriptedAgent([{"id": "t", "contextId": "somebody else's", "status": {"state": "completed"}}])
    task = await errand(agent).begin({"text": "go"})
    assert task["id"] == "new"
    assert agent.sent == [[{"text": "go"}]]


async def test_a_lost_attempt_beside_unrelated_tasks_asks_people() -> None:
    agent = ScriptedAgent([{"id": "t", "contextId": "somebody else's", "status": {"state": "completed"}}])
    with pytest.raises(OutcomeLost, match="other contexts"):
        await errand(agent, lost=1).begin({"text": "go"})
    assert agent.sent == []


class Closed(Exception):
    pass


async def refuse_to_begin() -> None:
    raise Closed


async def test_a_task_that_a_lost_attempt_did_not_begin_is_sent_if_it_may_be() -> None:
    agent = ScriptedAgent([])
    with pytest.raises(Closed):
        await errand(agent, lost=1, begin=refuse_to_begin).begin({"text": "go"})
    assert agent.sent == []


async def test_a_lost_attempts_task_goes_on_whether_or_not_it_may_begin() -> None:
    agent = ScriptedAgent(
        [{"id": "t", "contextId": errand(ScriptedAgent(), lost=1)._context, "status": {"state": "working"}}]
    )
    task = await errand(agent, lost=1, begin=refuse_to_begin).begin({"text": "go"})
    assert task["id"] == "t"
    assert agent.sent == []


async def test_an_answer_cut_off_is_not_repeated_to_an_agent_slow_to_take_it() -> None:
    agent = ScriptedAgent(breaks=1, slow=20)
    task = await errand(agent, answered=True).begin({})
    assert peer.state_of(task) == "completed"
    assert agent.sent == [[{"text": "red"}]]


async def test_an_answer_that_did_not_arrive_is_given_again() -> None:
    agent = ScriptedAgent(breaks=1, slow=10**9)
    task = await errand(agent, answered=True).begin({})
    assert peer.state_of(task) == "input-required"
    assert agent.sent == [[{"text": "red"}]] * 2


async def test_an_answer_that_a_lost_attempt_has_given_is_not_given_again() -> None:
    agent = ScriptedAgent(slow=20)
    agent.sent.append("by the attempt that was lost")
    task = await errand(agent, lost=1, answered=True).begin({})
    assert peer.state_of(task) == "completed"
    assert agent.sent == ["by the attempt that was lost"]


async def test_a_task_cancelled_with_its_step_is_not_that_of_the_retry() -> None:
    agent = ScriptedAgent([{"id": "t", "contextId": errand(ScriptedAgent())._context, "status": {"state": "canceled"}}])
    task = await errand(agent).begin({"text": "go"})
    assert task["id"] == "new"


async def test_an_answer_about_another_task_is_refused() -> None:
    agent = ScriptedAgent()
    own = errand(agent)
    agent.tasks["t"] = {**ASKING, "id": "other"}
    with pytest.raises(StepError, match="another one") as refused:
        await own._get("t")
    assert refused.value.code == "tool.invalid_result"
    assert agent.sent == []


@pytest.mark.parametrize(
    ("words", "sends"),
    [
        ("context deadline exceeded", 1), ("Context cancelled", 1), ("This model's maximum context length is 8192", 1),
        ("unknown contextId", 2), ("Context not found", 2),
    ],
)  # fmt: skip
async def test_only_a_refused_context_is_left_out_of_a_second_message(words: str, sends: int) -> None:
    class Refusing(ScriptedAgent):
        async def send(self, parts: Any, id: str, **more: Any) -> Any:
            self.sent.append(parts)
            raise Refused(-32602, words)

    agent = Refusing()
    with pytest.raises(Refused):
        await errand(agent, number=1).begin({"text": "go"})
    assert len(agent.sent) == sends
    behind_a_loss = Refusing([])
    with pytest.raises(OutcomeLost if sends == 2 else Refused):
        await errand(behind_a_loss, lost=1).begin({"text": "go"})
    assert len(behind_a_loss.sent) == 1, "without a context no attempt before it could have been found"


class Listing(ScriptedAgent):
    """Answers with `listed` when it is asked for its tasks."""

    def __init__(self, listed: Any) -> None:
        super().__init__()
        self._listed = listed

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        return self._listed if method == "ListTasks" else await super().ask(method, params)


@pytest.mark.parametrize("listed", [None, "page", {"ok": True}, {"tasks": "none"}], ids=repr)
async def test_a_lost_attempt_that_is_answered_with_no_list_asks_people(listed: Any) -> None:
    agent = Listing(listed)
    with pytest.raises(OutcomeLost):
        await errand(agent, lost=1).begin({"text": "go"})
    assert agent.sent == []


@pytest.mark.parametrize("listed", [{}, [], {"tasks": None}, {"pageSize": 20}], ids=repr)
async def test_an_empty_list_of_tasks_is_one_in_any_form(listed: Any) -> None:
    assert (await errand(Listing(listed), lost=1).begin({"text": "go"}))["id"] == "new"


async def test_a_question_noted_with_its_time_by_an_older_release_is_answered() -> None:
    agent, message = ScriptedAgent(), {"messageId": "q", "parts": [{"text": "Which?"}]}
    own = errand(agent, answered=True)
    agent.tasks["t"] = {"id": "t", "status": {"state": "input-required", "message": message, "timestamp": "now"}}
    noted = sha256(values.dumps(["t", message, "now"])).hexdigest()[:32]
    state = json.dumps({"task": "t", "question": noted, "pending": None})
    own._attempt = msgspec.structs.replace(own._attempt, answer=Answer("accept", {"answer": "red"}, state, ()))
    assert peer.state_of(await own.begin({})) == "completed"
    assert agent.sent == [[{"text": "red"}]]


@pytest.mark.parametrize(("context", "is_other"), [("hai-of another call", True), ("the agent's own", False)])
async def test_an_agent_that_answers_with_the_task_of_another_call_is_in_doubt(context: str, is_other: bool) -> None:
    class Confused(ScriptedAgent):
        async def send(self, parts: Any, id: str, **more: Any) -> Any:
            return {"id": "x", "contextId": context, "status": {"state": "completed"}}

    begun = errand(Confused(), number=1).begin({"text": "go"})
    if is_other:
        with pytest.raises(OutcomeLost, match="the task of another call"):
            await begun
    else:
        assert (await begun)["id"] == "x"


@pytest.mark.parametrize(("failures", "id"), [(0, "f"), (1, "new")], ids=["not reported", "reported"])
async def test_a_failed_task_counts_once(failures: int, id: str) -> None:
    context = errand(ScriptedAgent())._context
    failed = {"id": "f", "contextId": context, "status": {"state": "failed"}}
    agent = ScriptedAgent([failed])
    agent.tasks["f"] = failed
    own = errand(agent)
    own._attempt = msgspec.structs.replace(own._attempt, failures=failures)
    assert (await own.begin({"text": "go"}))["id"] == id


async def test_only_what_is_alive_of_a_steps_tasks_is_cancelled() -> None:
    cancelled: list[str] = []

    class Leaving(ScriptedAgent):
        async def ask(self, method: str, params: Mapping[str, Any], key: str | None = None) -> Any:
            if method != "CancelTask":
                return await super().ask(method, params)
            cancelled.append(params["id"])
            return {}

    agent = Leaving()
    own = errand(agent)
    agent.tasks |= {
        state: {"id": state, "contextId": own._context, "status": {"state": state}}
        for state in ("working", "completed", "failed", "canceled")
    }
    agent.lists = [each for each in agent.tasks.values() if "contextId" in each]
    await own.leave(json.dumps({"task": "t"}))
    assert cancelled == ["t", "working"]


@pytest.mark.parametrize(("wanted", "seconds"), [(None, 0.001), (7.0, 7.0), (10**6, 300.0)])
async def test_an_agent_that_is_busy_is_asked_again_when_it_says(wanted: float | None, seconds: float) -> None:
    rests: list[float] = []

    async def rest(each: float) -> None:
        rests.append(each)

    busy = StepError("busy", code="http.status", retriable=True, data={"status": 429}, retry_after=wanted)

    class Busy(ScriptedAgent):
        async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
            if not rests:
                raise busy
            return await super().ask(method, params)

    own = errand(Busy([]))
    own._attempt = msgspec.structs.replace(own._attempt, rest=rest)
    assert await own._patiently(own._list) == []
    assert rests == [seconds]


@pytest.mark.parametrize(
    ("status", "refused"),
    [(400, -32602), (404, -32001), (405, -32601), (401, None), (403, None), (429, None), (500, None)],
)
async def test_a_status_that_is_none_of_the_task_is_no_refusal(status: int, refused: int | None) -> None:
    """Of a token that is missing, or of an agent that is busy, nothing follows for the task."""

    async def answer(*given: Any) -> Any:
        raise StepError(f"it answers {status}", code="http.status", data={"status": status, "text": ""})

    agent = Agent(cast(Any, None), cast(Any, None), cast(Any, None), peer.Interface("http://a/", False, True))
    agent._exchange = answer  # type: ignore[method-assign]
    if refused is None:
        with pytest.raises(StepError, match=f"it answers {status}"):
            await agent.ask("GetTask", {"id": "t"})
    else:
        with pytest.raises(Refused) as raised:
            await agent.ask("GetTask", {"id": "t"})
        assert raised.value.code == refused
