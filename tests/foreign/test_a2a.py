"""Agents of others over real sockets, as sloppy as they are: cards that lie elsewhere, states in other words, tasks in
other forms. Each is given its errand once, and what it said reaches the step, or a person."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from hai_flow import values
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Template
from hai_flow.errors import AsksPerson, OutcomeLost, StepError
from hai_flow.steps.a2a import runner as a2a_runner
from hai_flow.steps.a2a.runner import A2ARunner
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.runner import HttpRunner
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.runner import Answer, Attempt
from hai_flow.steps.secrets import Secrets
from tests.steps.test_mcp import Heard
from tests.support.service import Received, Reply, Service

CARDS: Final = ("/.well-known/agent-card.json",)
SAID: Final = {"artifactId": "a", "parts": [{"text": "painted"}]}
Json = Any


def task(state: Json = "TASK_STATE_COMPLETED", *, status: Json = None, **more: Json) -> Json:
    return {"id": "t", "status": {"state": state} if status is None else status, **more}


class Sloppy:
    """An agent that answers a method with the next of its `answers` (the last one again and again), and lists no tasks.
    `card` is what it adds to its card, `at` where that stands. `got`: the methods that it was asked."""

    def __init__(
        self,
        *answers: Json,
        card: Json = None,
        at: tuple[str, ...] = CARDS,
        old: bool = False,
        kind: str = "application/json",
    ) -> None:
        self.answers, self.card, self.at, self.old, self.kind = list(answers), card, at, old, kind
        self.got: list[str] = []
        self.url = ""

    def __call__(self, received: Received) -> Reply:
        if received.method == "GET":
            if received.target not in self.at:
                return Reply(404, b"<html>no</html>", "text/html")
            return Reply(body=json.dumps(self._describe()).encode(), type=self.kind)
        asked = json.loads(received.body)
        self.got.append(asked["method"])
        if asked["method"] == "ListTasks":
            return self._reply({"error": {"code": -32601, "message": "no such method"}})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer = answer(self) if callable(answer) else answer
        if isinstance(answer, Reply):
            return answer
        return self._reply(answer if isinstance(answer, dict) and "error" in answer else {"result": answer})

    def _reply(self, answer: Json) -> Reply:
        return Reply(body=json.dumps({"jsonrpc": "2.0", "id": 1, **answer}).encode(), type=self.kind)

    def _describe(self) -> Json:
        if callable(self.card):
            return self.card(self)
        if self.old:
            return {"name": "p", "url": self.url, "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
        return {"supportedInterfaces": [{"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC"}]}

    @property
    def sends(self) -> int:
        return sum(each in ("SendMessage", "message/send") for each in self.got)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2a_runner, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(a2a_runner, "POLL_SECONDS_MAX", 0.01)
    monkeypatch.setattr(a2a_runner, "TAKEN_SECONDS", 0.2)
    monkeypatch.setattr(a2a_runner, "UNKNOWN_SECONDS", 0.2)


async def perform(agent: Sloppy, *, path: str = "", answer: Answer | None = None, number: int = 1) -> Json:
    async def evaluate(template: Any, /, **names: Any) -> Any:
        return cast(Template, template).render(names)

    async with asyncio.timeout(10), Service(agent) as service:
        agent.url = service.url("")
        source = (
            f"hai: flow/v1\nname: s\nversion: 1\ntools: {{far: {{a2a: '{agent.url}{path}'}}}}\n"
            "steps: [{id: a, call: far, with: {text: go}}]\n"
        )
        step = compile_workflow(source.encode()).steps["a"]
        attempt = Attempt(
            "r", "a", number, values.dumps({"text": "go"}).decode(), step, evaluate=evaluate, answer=answer
        )
        http = HttpRunner(EgressGuard(("127.0.0.1",)), Secrets(), HttpConfig())
        try:
            return await A2ARunner(http).perform(attempt, Heard())
        finally:
            await http.close()


async def failure(agent: Sloppy, **more: Any) -> StepError:
    with pytest.raises(StepError) as raised:
        await perform(agent, **more)
    return raised.value


# --- cards ------------------------------------------------------------------------------------------------------------


def interface(**fields: Json) -> Callable[[Sloppy], Json]:
    return lambda agent: {"supportedInterfaces": [{"url": f"{agent.url}/rpc", **fields}]}


CARD_FORMS: Final[dict[str, Callable[[Sloppy], Json]]] = {
    "as 1.0 has it": interface(protocolBinding="JSONRPC", protocolVersion="1.0"),
    "its binding in other letters": interface(protocolBinding="json-rpc"),
    "its binding is its transport": interface(transport="JSONRPC", protocolVersion="1.0"),
    "names with underscores": lambda agent: {
        "supported_interfaces": [{"url": agent.url, "protocol_binding": "JSONRPC", "protocol_version": "1.0"}]
    },
    "an address within its server": lambda agent: {
        "supportedInterfaces": [{"url": "/rpc", "protocolBinding": "JSONRPC"}]
    },
    "an interface that stands alone": lambda agent: {
        "supportedInterfaces": {"url": agent.url, "protocolBinding": "JSONRPC"}
    },
    "null for what it has not": lambda agent: {
        "name": None,
        "skills": None,
        "additionalInterfaces": None,
        "supportedInterfaces": [None, {"url": agent.url, "protocolBinding": "JSONRPC", "tenant": None}],
    },
}


@pytest.mark.parametrize("form", CARD_FORMS)
async def test_a_card_in_an_odd_form_leads_to_its_agent(form: str) -> None:
    agent = Sloppy(task(artifacts=[SAID]), card=CARD_FORMS[form])
    assert (await perform(agent))["text"] == "painted"
    assert agent.got == ["SendMessage"]


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "text/html; charset=utf-8", ""])
async def test_a_card_and_answers_of_any_type_are_read(kind: str) -> None:
    assert (await perform(Sloppy(task(artifacts=[SAID]), kind=kind)))["text"] == "painted"


@pytest.mark.parametrize("path", ["", "/planner"])
async def test_a_card_at_the_place_of_older_versions_is_found(path: str) -> None:
    agent = Sloppy(task("completed", artifacts=[SAID]), old=True, at=(f"{path}/.well-known/agent.json",))
    assert (await perform(agent, path=path))["text"] == "painted"
    assert agent.got == ["message/send"]


async def test_a_page_in_the_place_of_the_card_is_no_card() -> None:
    agent = Sloppy(task("completed", artifacts=[SAID]), old=True, at=("/.well-known/agent.json",))
    page = Reply(body=b"<html>Welcome</html>", type="text/html")
    answer = Sloppy.__call__

    class Welcoming(Sloppy):
        def __call__(self, received: Received) -> Reply:
            return page if received.target == CARDS[0] else answer(self, received)

    agent.__class__ = Welcoming
    assert (await perform(agent))["text"] == "painted"


async def test_an_agent_without_a_card_is_told_with_the_places_and_what_to_do() -> None:
    fault = await failure(Sloppy(task(), at=()))
    assert (fault.code, fault.retriable) == ("tool.unavailable", False)
    for words in ("/.well-known/agent-card.json", "/.well-known/agent.json", "404", "ends in .json"):
        assert words in fault.message, fault.message


# --- tasks ------------------------------------------------------------------------------------------------------------

TASKS: Final[dict[str, Json]] = {
    "as 1.0 has it": {"task": task(artifacts=[SAID])},
    "as 0.3 has it": {"kind": "task", **task("completed", artifacts=[SAID])},
    "the number of its state": task(3, artifacts=[SAID]),
    "its state as Python names it": task("TaskState.COMPLETED", artifacts=[SAID]),
    "its state as a word": task(status="completed", artifacts=[SAID]),
    "another word for its state": task("Finished", artifacts=[SAID]),
    "names with underscores": task(artifacts=[{"artifact_id": "a", "parts": [{"text": "painted"}]}]),
    "a number as its id": {**task(artifacts=[SAID]), "id": 7},
    "a message": {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "painted"}]}},
    "a message of 0.3": {"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": "painted"}]},
    "a message about its task": {"message": {"taskId": "t", "role": "agent", "parts": [{"text": "painted"}]}},
    "parts that are texts": task(artifacts=[{"parts": ["painted"]}]),
    "parts within another": task(artifacts=[{"parts": [{"root": {"kind": "text", "text": "painted"}}]}]),
    "parts as the content": task(artifacts=[{"content": [{"text": "painted"}]}]),
    "what it said in its history alone": task(
        artifacts=[],
        history=[
            {"role": "ROLE_USER", "parts": [{"text": "go"}]},
            {"role": "ROLE_AGENT", "parts": [{"text": "I begin"}]},
            {"role": "ROLE_AGENT", "parts": [{"text": "painted"}]},
        ],
    ),
    "an artifact without parts beside its message": task(
        status={"state": "completed", "message": {"parts": [{"text": "painted"}]}}, artifacts=[{"artifactId": "a"}]
    ),
}


@pytest.mark.parametrize("form", TASKS)
async def test_a_task_in_an_odd_form_is_read(form: str) -> None:
    agent = Sloppy(TASKS[form])
    assert (await perform(agent))["text"] == "painted"
    assert agent.got == ["SendMessage"]


EVENT: Final = {"taskId": "t", "contextId": "c", "final": True}
UNENDED: Final[dict[str, Json]] = {
    "submitted": task("TASK_STATE_SUBMITTED"),
    "in progress": task("in_progress"),
    "an event of its status": {"kind": "status-update", "status": {"state": "completed"}, **EVENT},
    "an event of its status as 1.0 has it": {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}, **EVENT}},
    "an event of an artifact": {"artifactUpdate": {"artifact": SAID, **EVENT}},
}


@pytest.mark.parametrize("form", UNENDED)
async def test_a_task_that_goes_on_is_followed_to_its_end(form: str) -> None:
    agent = Sloppy(UNENDED[form], task(artifacts=[SAID]))
    assert (await perform(agent))["text"] == "painted"
    assert agent.got == ["SendMessage", "GetTask"]


def events(*results: Json) -> Reply:
    lines = (f"data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': each})}\r\n\r\n" for each in results)
    return Reply(body=f": hello\r\n\r\n{''.join(lines)}".encode(), type="text/event-stream")


STREAMS: Final[dict[str, tuple[Reply, list[str]]]] = {
    "a stream of the task": (events(task("working"), task(artifacts=[SAID])), ["SendMessage"]),
    "a stream that ends early": (events(task("TASK_STATE_WORKING")), ["SendMessage", "GetTask"]),
    "a stream without the task": (
        events(
            {"statusUpdate": {"status": {"state": "working"}, **EVENT}}, {"artifactUpdate": {"artifact": SAID, **EVENT}}
        ),
        ["SendMessage", "GetTask"],
    ),
}


@pytest.mark.parametrize("form", STREAMS)
async def test_an_agent_that_only_streams_is_understood(form: str) -> None:
    reply, asked = STREAMS[form]
    agent = Sloppy(reply, task(artifacts=[SAID]))
    assert (await perform(agent))["text"] == "painted"
    assert agent.got == asked


ENDS: Final = [
    ("TASK_STATE_FAILED", "tool.failed"), (4, "tool.failed"), ("errored", "tool.failed"), ("timed-out", "tool.failed"),
    ("Rejected", "tool.declined"), ("refused", "tool.declined"), ("aborted", "tool.failed"),
    ("CANCELLED", "tool.failed"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "code"), ENDS)
async def test_a_task_that_failed_is_so_by_any_word_with_its_own_words(state: Json, code: str) -> None:
    status = {"state": state, "message": {"parts": [{"text": "no paint"}]}}
    fault = await failure(Sloppy(task(status=status)))
    assert (fault.code, "no paint" in fault.message) == (code, True)


# --- errors and doubts ------------------------------------------------------------------------------------------------

REFUSALS: Final[dict[str, Json]] = {
    "as the protocol has it": {"error": {"code": -32602, "message": "no paint"}},
    "with data alone": {"error": {"code": -32600, "data": "no paint"}},
    "an operation that it has not": {"error": {"code": -32004, "message": "no paint"}},
    "a version that it does not speak": {"error": {"code": -32009, "message": "no paint"}},
}


@pytest.mark.parametrize("form", REFUSALS)
async def test_an_errand_that_is_refused_is_told_in_the_agents_words(form: str) -> None:
    agent = Sloppy(REFUSALS[form])
    fault = await failure(agent)
    assert (fault.code, "no paint" in fault.message, agent.sends) == ("tool.failed", True, 1)


def with_status(status: int, code: int) -> Reply:
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no paint"}}
    return Reply(status, json.dumps(body).encode())


@pytest.mark.parametrize(("status", "code"), [(400, -32602), (404, -32601), (500, -32601)])
async def test_an_error_with_a_status_of_http_is_the_error(status: int, code: int) -> None:
    agent = Sloppy(with_status(status, code))
    fault = await failure(agent)
    assert (fault.code, "no paint" in fault.message, agent.sends) == ("tool.failed", True, 1)
    for doubtful in (400, 500):
        fault = await failure(Sloppy(with_status(doubtful, -32603)))
        assert isinstance(fault, OutcomeLost), fault
        assert "no paint" in fault.message


DOUBTS: Final[dict[str, tuple[Json, ...]]] = {
    "an exception in its own code": ({"error": {"code": -32603, "message": "no paint"}},),
    "an exception, with data alone": ({"error": {"code": -32603, "data": "no paint"}},),
    "an answer of its own that it can't read": ({"error": {"code": -32006, "message": "no paint"}},),
    "an error as a text": ({"error": "no paint"},),
    "a code as text": ({"error": {"code": "E7", "message": "no paint"}},),
    "a code of its own": ({"error": {"code": -32000, "message": "no paint"}},),
    "what it was asked, elsewhere": (Reply(303, headers=(("Location", "/tasks/t"),)),),
    "a result and an error at once": ({"error": {"code": -1, "message": "no"}, "result": task()},),
    "neither a task nor a message": ({"ok": True},),
    "null": (None,),
    "a page": (Reply(body=b"<html>Welcome</html>", type="text/html"),),
    "half of its answer": (Reply(body=b'{"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "sta'),),
    "another task when it is asked": (task("working"), {**task(), "id": "other"}),
    "nothing when it is asked": (task("working"), {"ok": True}),
    "an error when it is asked": (task("working"), {"error": "I forgot"}),
    "a page when it is asked": (task("working"), Reply(body=b"<html>Welcome</html>", type="text/html")),
}


@pytest.mark.parametrize("form", DOUBTS)
async def test_a_doubt_about_an_answer_goes_to_people_and_nothing_is_sent_again(form: str) -> None:
    agent = Sloppy(*DOUBTS[form])
    fault = await failure(agent)
    assert isinstance(fault, OutcomeLost), fault
    assert agent.sends == 1


@pytest.mark.parametrize(("tasks", "words"), [([], "answers with an error"), (["failed"], "was failed")])
async def test_an_exception_of_an_agent_that_lists_its_tasks_is_a_failure(tasks: list[str], words: str) -> None:
    class Listing(Sloppy):
        context = ""

        def __call__(self, received: Received) -> Reply:
            asked = json.loads(received.body or b"{}")
            if asked.get("method") == "SendMessage":
                self.context = asked["params"]["message"]["contextId"]
            if asked.get("method") != "ListTasks":
                return super().__call__(received)
            return self._reply({"result": {"tasks": [task(each, contextId=self.context) for each in tasks]}})

    agent = Listing({"error": {"code": -32603, "message": "no paint"}}, task("failed"))
    fault = await failure(agent)
    assert (fault.code, words in fault.message, "no paint" in fault.message) == ("tool.failed", True, True), fault
    assert agent.sends == 1


class Leading(Sloppy):
    """Leads from /rpc to `place`, with `status`."""

    def __init__(self, status: int, place: str) -> None:
        super().__init__(task(artifacts=[SAID]))
        self.status, self.place = status, place

    def __call__(self, received: Received) -> Reply:
        if received.method == "POST" and received.target == "/rpc":
            return Reply(self.status, headers=(("Location", self.place),))
        return super().__call__(received)


@pytest.mark.parametrize("status", [307, 308])
async def test_an_agent_leading_on_within_its_server_is_given_its_errand_there(status: int) -> None:
    agent = Leading(status, "/rpc/")
    assert (await perform(agent))["text"] == "painted"
    assert agent.sends == 1


@pytest.mark.parametrize(
    ("status", "place"), [(307, "https://u:key@elsewhere.example/rpc?key=1"), (301, "/rpc/"), (302, "/rpc/")]
)
async def test_an_agent_that_leads_elsewhere_is_told_with_the_place(status: int, place: str) -> None:
    agent = Leading(status, place)
    fault = await failure(agent)
    named = "https://elsewhere.example/rpc" if "elsewhere" in place else f"{agent.url}/rpc/"
    assert (fault.code, f"leads to {named}; name that" in fault.message, agent.sends) == ("http.status", True, 0)
    assert "key" not in fault.message


@pytest.mark.parametrize("place", ["/rpc", "/rpc#here"])
async def test_an_agent_that_leads_to_its_own_address_is_given_its_errand_once(place: str) -> None:
    asked: list[str] = []

    class Circling(Leading):
        def __call__(self, received: Received) -> Reply:
            asked.append(received.method)
            return super().__call__(received)

    fault = await failure(Circling(307, place))
    assert (fault.code, asked.count("POST") <= 2) == ("http.status", True), (fault, asked)


# --- questions --------------------------------------------------------------------------------------------------------


TIMES: Final = itertools.count()


def question(agent: Sloppy) -> Json:
    """The same question, with the time at which it is asked for."""
    message = {"messageId": "q1", "role": "agent", "parts": [{"text": "Which colour?"}]}
    return task(status={"state": "Input Required", "message": message, "timestamp": str(next(TIMES))})


async def test_a_question_whose_time_is_always_now_is_answered_once() -> None:
    agent = Sloppy(question)
    with pytest.raises(AsksPerson) as asked:
        await perform(agent)
    assert "Which colour?" in str(asked.value)
    agent = Sloppy(question, task("working"), task(artifacts=[SAID]))
    answer = Answer("accept", {"answer": "red"}, asked.value.state, ())
    output = await perform(agent, answer=answer, number=2)
    assert (output["text"], agent.got) == ("painted", ["GetTask", "SendMessage", "GetTask"])


RENAMED: Final = itertools.count()


def renamed(agent: Sloppy) -> Json:
    """The same question, whose message has another id whenever it is asked for."""
    message = {"messageId": f"q{next(RENAMED)}", "role": "agent", "parts": [{"text": "Which colour?"}]}
    return task(status={"state": "input-required", "message": message})


async def test_a_question_whose_id_is_always_new_is_answered_once() -> None:
    with pytest.raises(AsksPerson) as asked:
        await perform(Sloppy(renamed))
    answer = Answer("accept", {"answer": "red"}, asked.value.state, ())
    agent = Sloppy(renamed, task("working"), renamed, renamed, task(artifacts=[SAID]))
    output = await perform(agent, answer=answer, number=2)
    assert (output["text"], agent.sends) == ("painted", 1)
    agent = Sloppy(renamed)
    with pytest.raises(AsksPerson, match="Which colour"):  # it does not take the answer: it asks again, after a while
        await perform(agent, answer=answer, number=2)
    assert agent.sends == 1


def asks_again(number: int) -> Json:
    """A question in the same words each time, with the id of its own."""
    message = {"messageId": f"q{number}", "role": "agent", "parts": [{"text": "Which colour?"}]}
    return task(status={"state": "input-required", "message": message})


CUT: Final = Reply(503, b"gone")


async def test_an_answer_that_may_be_taken_is_not_given_to_the_next_question() -> None:
    with pytest.raises(AsksPerson) as asked:
        await perform(Sloppy(asks_again(1)))
    answer = Answer("accept", {"answer": "red"}, asked.value.state, ())
    agent = Sloppy(asks_again(1), CUT, asks_again(2))
    with pytest.raises(AsksPerson, match="Which colour"):
        await perform(agent, answer=answer, number=2)
    assert agent.sends == 1
    agent = Sloppy(renamed, CUT, renamed)
    with pytest.raises(OutcomeLost):
        await perform(agent, answer=answer, number=2)
    assert agent.sends == 1


async def test_a_look_that_fails_for_a_while_is_repeated() -> None:
    agent = Sloppy(task("working"), with_status(500, -32603), with_status(500, -32603), task(artifacts=[SAID]))
    assert (await perform(agent))["text"] == "painted"


NO_TASK: Final = {"error": {"code": -32001, "message": "no such task"}}


async def test_a_task_that_one_process_does_not_know_is_looked_for_again() -> None:
    agent = Sloppy(task("working"), NO_TASK, task("working"), NO_TASK, NO_TASK, task(artifacts=[SAID]))
    assert ((await perform(agent))["text"], agent.sends) == ("painted", 1)
    fault = await failure(Sloppy(task("working"), NO_TASK))
    assert isinstance(fault, OutcomeLost), fault
    assert "no such task" in fault.message


@pytest.mark.parametrize("status", [401, 403, 404, 410, 501])
async def test_a_task_that_can_not_be_looked_at_is_a_doubt(status: int) -> None:
    agent = Sloppy(task("working"), Reply(status, b"no licence", "text/plain"))
    fault = await failure(agent)
    assert isinstance(fault, OutcomeLost), fault
    assert (agent.sends, str(status) in fault.message) == (1, True)


async def test_an_agent_that_has_no_list_of_tasks_is_given_its_errand_anew() -> None:
    class Closed(Sloppy):
        def __call__(self, received: Received) -> Reply:
            return Reply(501, b"no") if b'"ListTasks"' in received.body else super().__call__(received)

    agent = Closed(task(artifacts=[SAID]))
    assert ((await perform(agent, number=2))["text"], agent.got) == ("painted", ["SendMessage"])


@pytest.mark.parametrize("listed", [Reply(403, b"no"), Reply(404, b"no"), Reply(501, b"no")])
async def test_a_doubt_stays_one_where_the_tasks_can_not_be_listed(listed: Reply) -> None:
    class Closed(Sloppy):
        def __call__(self, received: Received) -> Reply:
            return listed if b'"ListTasks"' in received.body else super().__call__(received)

    fault = await failure(Closed({"error": {"code": -32603, "message": "no paint"}}))
    assert isinstance(fault, OutcomeLost), fault


async def test_a_message_that_is_answered_elsewhere_is_a_doubt_by_rest_too() -> None:
    class Rest(Sloppy):
        def _describe(self) -> Json:
            return {"supportedInterfaces": [{"url": f"{self.url}/rest", "protocolBinding": "HTTP+JSON"}]}

        def __call__(self, received: Received) -> Reply:
            if received.target.startswith("/rest"):
                elsewhere = Reply(303, headers=(("Location", "/tasks/t"),))
                return elsewhere if received.method == "POST" else Reply(404, b"no")
            return super().__call__(received)

    fault = await failure(Rest(task()))
    assert isinstance(fault, OutcomeLost), fault


PAGE: Final = Reply(body=b"<html>Welcome</html>", type="text/html")
DOUBTFUL_ANSWERS: Final[dict[str, tuple[Json, ...]]] = {
    "a page when the task is asked for": (PAGE,),
    "a page in the place of its answer": (question, PAGE, question),
    "half of its answer": (question, Reply(body=b'{"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "sta'), question),
    "an exception in its own code": (question, {"error": {"code": -32603, "message": "no"}}, question),
}


@pytest.mark.parametrize("form", DOUBTFUL_ANSWERS)
async def test_a_doubt_about_the_task_of_a_question_goes_to_people(form: str) -> None:
    with pytest.raises(AsksPerson) as asked:
        await perform(Sloppy(question))
    agent = Sloppy(*DOUBTFUL_ANSWERS[form])
    fault = await failure(agent, answer=Answer("accept", {"answer": "red"}, asked.value.state, ()), number=2)
    assert isinstance(fault, OutcomeLost), fault
    assert agent.sends < 2
