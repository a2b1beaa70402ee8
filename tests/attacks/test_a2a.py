"""Attacks on the A2A server: tasks, contexts and messages of others, votes, bombs, and addresses to be called.

Each is refused with its code, and leaves nothing in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg
import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import ROOT, YAML, ServerProcess, serving

FLOWS: Final = ROOT / "tests" / "clients" / "mcp_flows"
PARENT: Final = """
hai: flow/v1
name: parent_of_question
version: 1
input: {type: object, required: [filename], properties: {filename: {type: string}}}
steps:
  - id: below
    run: confirm_delete
    with: {filename: "${{ input.filename }}"}
output: ${{ steps.below.output }}
"""
READS_FILE: Final = """
hai: flow/v1
name: reads_file
version: 1
input: {type: object, required: [paper], properties: {paper: {type: string, format: file}}}
steps: [{id: sure, ask: {title: Read it?, form: {type: object}, from: requester}}]
"""
STORED: Final = (
    "log",
    "runs",
    "commands",
    "pendings",
    "votes",
    "outbox",
    "signals",
    "files",
    "queued_messages",
    "pushes",
)
"""The tables in which a message, an answer or a start would leave a row."""


class House(NamedTuple):
    """A server, its callers, and what is Ann's: tasks that ask her and others, and a file."""

    server: ServerProcess
    people: People
    http: httpx2.Client
    who: Mapping[str, dict[str, str]]
    asks_ann: dict[str, Any]
    asks_others: dict[str, Any]
    child: str
    file: str
    message_id: str

    def question(self, task: dict[str, Any]) -> str:
        id: str = task["status"]["message"]["parts"][1]["data"]["hai.pending"][0]["id"]
        return id

    def count_rows(self) -> dict[str, int]:
        async def counts(connection: asyncpg.Connection) -> dict[str, int]:
            return {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for name in STORED}

        return self.people.do(counts)


def message(*parts: Any, configuration: Any = None, **fields: Any) -> dict[str, Any]:
    params: dict[str, Any] = {
        "message": {"messageId": unique("m"), "role": "ROLE_USER", "parts": list(parts), **fields}
    }
    return params if configuration is None else {**params, "configuration": configuration}


def post(http: httpx2.Client, who: dict[str, str], method: str, params: Any, path: str = "/a2a") -> httpx2.Response:
    version = {} if "/" in method else {"A2A-Version": "1.0"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return http.post(path, json=body, headers={**who, **version})


def begin(http: httpx2.Client, who: dict[str, str], name: str, data: Any, **fields: Any) -> dict[str, Any]:
    answer = post(http, who, "SendMessage", message({"data": data}, **fields), f"/workflows/{name}/a2a").json()
    task: dict[str, Any] = answer["result"]["task"]
    return task


@pytest.fixture(scope="module")
def house(postgres_server: Server) -> Iterator[House]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, "HAI_FLOW_REFUSALS_PEER_MAX": "10000"}) as server,
        httpx2.Client(base_url=server.url, timeout=60) as http,
    ):
        people = People(dsn)
        who = {
            "ann": people.person("user:ann"),
            "bob": people.person("user:bob"),
            "agent": people.person("agent:support", roles=["support"]),
            "other tenant": people.person("user:ann", roles=["operator", "support"], tenant="other"),
        }
        publisher = people.person("user:pat", roles=["publisher"])
        flows = [(FLOWS / f"{name}.flow.yaml").read_text() for name in ("confirm_delete", "greet", "refund_order")]
        for source in (*flows, PARENT, READS_FILE):
            answer = http.post("/v1/workflows", content=source, headers={**YAML, **publisher})
            assert answer.status_code == 201, answer.text
        message_id = unique("first")
        asks_ann = begin(http, who["ann"], "confirm_delete", {"filename": "a.txt"}, messageId=message_id)
        asks_others = begin(http, who["ann"], "refund_order", {"order": "A-1", "amount": 80})
        parent = begin(http, who["ann"], "parent_of_question", {"filename": "b.txt"})
        uploaded = http.post("/v1/files", content=b"secret", headers={**who["ann"], "Content-Type": "text/plain"})
        yield House(
            server, people, http, who, asks_ann, asks_others, child_of(parent, http, who["ann"]),
            uploaded.json()["id"], message_id,
        )  # fmt: skip


def child_of(task: dict[str, Any], http: httpx2.Client, who: dict[str, str]) -> str:
    """The run below the task: the one that its question belongs to."""
    id = task["status"]["message"]["parts"][1]["data"]["hai.pending"][0]["id"]
    child: str = http.get(f"/v1/pendings/{id}", headers=who).json()["run_id"]
    assert child != task["id"]
    return child


Params: TypeAlias = Callable[[House], Any]


class Attack(NamedTuple):
    """A request of somebody with a key, and the code of its refusal. `path`: of the agent that it is sent to."""

    name: str
    who: str
    method: str
    params: Params
    code: int
    path: str = "/a2a"


def to_task(house: House, task: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    return message(*parts, taskId=task, **fields)


def id_of_asking(house: House) -> dict[str, Any]:
    return {"id": house.asks_ann["id"]}


def push_of_asking(house: House) -> dict[str, Any]:
    return {"taskId": house.asks_ann["id"], "id": "hers", "url": "https://example.com/"}


def id_of_child(house: House) -> dict[str, Any]:
    return {"id": house.child}


def answer(house: House, task: str, question: str, **fields: Any) -> dict[str, Any]:
    return to_task(house, task, {"data": {"hai.pending": {"id": question, **(fields or {"values": YES})}}})


def answer_hers(house: House) -> dict[str, Any]:
    return answer(house, house.asks_ann["id"], house.question(house.asks_ann))


def answer_of_child(house: House) -> dict[str, Any]:
    return to_task(house, house.child, {"data": YES})


def vote(house: House) -> dict[str, Any]:
    return answer(house, house.asks_others["id"], house.question(house.asks_others), decision="approve")


def answer_through_another_task(house: House) -> dict[str, Any]:
    return answer(house, house.asks_others["id"], house.question(house.asks_ann))


def answer_with_her_context(house: House) -> dict[str, Any]:
    return to_task(house, house.asks_ann["id"], {"data": YES}, contextId=house.asks_others["contextId"])


def start_in_her_context(house: House) -> dict[str, Any]:
    return message({"data": FILE}, contextId=house.asks_ann["contextId"])


def repeat_with_other_data(house: House) -> dict[str, Any]:
    return message({"data": {"filename": "other.txt"}}, messageId=house.message_id)


def start_with_her_file(house: House) -> dict[str, Any]:
    return message({"data": {"paper": house.file}})


def start_of(*parts: Any, configuration: Any = None, **fields: Any) -> Params:
    return lambda house: message(*parts, configuration=configuration, **fields)


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"deeper": value}
    return value


YES: Final = {"confirm": True}
FILE: Final = {"filename": "a.txt"}
INTERNAL: Final = {"url": "http://169.254.169.254/latest/meta-data"}
CONFIRM: Final = "/workflows/confirm_delete/a2a"
READS: Final = "/workflows/reads_file/a2a"
UNKNOWN: Final = -32001
INVALID: Final = -32602
TOO_LARGE: Final = 413
"""Of what is not read at all: the status of HTTP is the answer."""
STRANGERS: Final = ("bob", "agent", "other tenant")
_OF_TASKS: Final[tuple[tuple[str, Params], ...]] = (
    ("GetTask", id_of_asking), ("CancelTask", id_of_asking), ("SubscribeToTask", id_of_asking),
    ("SendMessage", answer_hers), ("SendStreamingMessage", answer_hers), ("GetTask", id_of_child),
    ("CancelTask", id_of_child), ("SendMessage", answer_of_child), ("tasks/get", id_of_asking),
    ("tasks/cancel", id_of_asking), ("CreateTaskPushNotificationConfig", push_of_asking),
    ("GetTaskPushNotificationConfig", push_of_asking), ("ListTaskPushNotificationConfigs", push_of_asking),
    ("DeleteTaskPushNotificationConfig", push_of_asking),
    ("tasks/resubscribe", id_of_asking), ("message/send", answer_hers),
)  # fmt: skip
"""What somebody does to a task that is not theirs, or to a run below it, in both versions."""
ATTACKS: Final = (
    *(
        Attack(f"{method} of {params.__name__} by {who}", who, method, params, UNKNOWN)
        for who in STRANGERS
        for method, params in _OF_TASKS
    ),
    Attack("a start in the context of somebody else", "bob", "SendMessage", start_in_her_context, INVALID, CONFIRM),
    Attack("a message again with other data", "ann", "SendMessage", repeat_with_other_data, INVALID, CONFIRM),
    Attack("the vote of the one who asks", "ann", "SendMessage", vote, INVALID),
    Attack("an answer through another task", "ann", "SendMessage", answer_through_another_task, INVALID),
    Attack("an answer in another context", "ann", "SendMessage", answer_with_her_context, INVALID),
    Attack("an answer to the agent of another workflow", "ann", "SendMessage", answer_hers, UNKNOWN, READS),
    Attack("the file of somebody else as an input", "bob", "SendMessage", start_with_her_file, INVALID, READS),
    Attack("a file as a part", "bob", "SendMessage", start_of({"url": "https://a.example/x"}), -32005, CONFIRM),
    Attack(
        "a file of 0.3 as a part", "bob", "message/send",
        start_of({"kind": "file", "file": {"uri": "file:///etc/passwd"}}), -32005, CONFIRM,
    ),
    Attack("a text that is too long", "bob", "SendMessage", start_of({"text": "x" * 200_000}), INVALID, CONFIRM),
    Attack("data that is too deep", "bob", "SendMessage", start_of({"data": deep(80)}), TOO_LARGE, CONFIRM),
    Attack("the words of the agent itself", "bob", "SendMessage", start_of({"data": FILE}, role="ROLE_AGENT"),
           INVALID, CONFIRM),
    Attack("another workflow by the metadata", "bob", "SendMessage",
           start_of({"data": FILE}, metadata={"hai-flow/workflow": "greet"}), INVALID, CONFIRM),
    Attack("a workflow that is not there", "bob", "SendMessage", start_of({"data": FILE}), INVALID,
           "/workflows/no_such/a2a"),
    Attack("an id of a message with control characters", "bob", "SendMessage",
           start_of({"data": FILE}, messageId="a\r\nb"), INVALID, CONFIRM),
    Attack("a method that is not there", "bob", "EraseTask", id_of_asking, -32601),
    Attack("a method of the database", "bob", "tasks/get; DROP TABLE runs", id_of_asking, -32601),
    Attack("a list of tasks through an invented token", "bob", "ListTasks", lambda _: {"pageToken": "x" * 50}, INVALID),
    Attack("an id that is a list", "bob", "GetTask", lambda house: {"id": [house.asks_ann["id"]]}, INVALID),
    Attack("an internal address to be called", "ann", "CreateTaskPushNotificationConfig",
           lambda house: {"taskId": house.asks_ann["id"], **INTERNAL}, INVALID),
    Attack("an internal address beside a start", "ann", "SendMessage",
           start_of({"data": FILE}, configuration={"taskPushNotificationConfig": INTERNAL}), INVALID, CONFIRM),
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_over_json_rpc_is_refused_and_leaves_nothing(house: House, attack: Attack) -> None:
    before = house.count_rows()
    answered = post(house.http, house.who[attack.who], attack.method, attack.params(house), attack.path)
    assert answered.json().get("error", {}).get("code", answered.status_code) == attack.code, answered.text
    assert answered.status_code < 500
    assert house.count_rows() == before


PATHS: Final = {
    "GetTask": ("GET", "/tasks/{id}"), "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"), "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
}  # fmt: skip
OVER_REST: Final = tuple(
    attack for attack in ATTACKS if attack.method in PATHS and attack.name != "an id that is a list"
)
STATUSES: Final = {UNKNOWN: {404}, INVALID: {400, 403}, -32005: {415}, TOO_LARGE: {413}}


@pytest.mark.parametrize("attack", OVER_REST, ids=lambda attack: attack.name)
def test_an_attack_over_rest_is_refused_and_leaves_nothing(house: House, attack: Attack) -> None:
    before = house.count_rows()
    verb, path = PATHS[attack.method]
    params = attack.params(house)
    path = attack.path + path.format(id=params.get("id"))
    headers = {**house.who[attack.who], "A2A-Version": "1.0"}
    answered = house.http.request(verb, path, headers=headers, **({"json": params} if verb == "POST" else {}))
    assert answered.status_code in STATUSES[attack.code], answered.text
    assert house.count_rows() == before


BODIES: Final = {
    "too large": (b'{"a": "' + b"x" * 2**20 + b'"}', "application/json", 413),
    "deep lists": (b"[" * 100_000, "application/json", 413),
    "a number of a million digits": (b"9" * 1_000_000, "application/json", 200),
    "a form": (b"jsonrpc=2.0", "application/x-www-form-urlencoded", 200),
    "a page": (b"<script>", "text/html", 200),
    "no text": (b"\xff\xfe", "application/json", 200),
    "a name twice": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "method": "ListTasks"}',
        "application/json",
        200,
    ),
    "a batch": (b'[{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}]', "application/json", 200),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_request_is_refused_and_leaves_nothing(house: House, name: str) -> None:
    before = house.count_rows()
    body, media_type, status = BODIES[name]
    answered = house.http.post("/a2a", content=body, headers={**house.who["bob"], "Content-Type": media_type})
    assert answered.status_code == status, answered.text
    assert answered.status_code == 413 or "error" in answered.json()
    assert house.count_rows() == before


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer hai_x"}, {"HAI-Act-As": "user:ann"}], ids=str)
@pytest.mark.parametrize("path", ["/a2a", CONFIRM, "/a2a/message:send", "/a2a/tasks"])
def test_nobody_without_a_credential_speaks_with_an_agent(house: House, headers: dict[str, str], path: str) -> None:
    before = house.count_rows()
    answered = house.http.post(path, json=message({"data": FILE}), headers=headers)
    assert answered.status_code == (403 if "HAI-Act-As" in headers else 401)
    assert house.count_rows() == before


def test_a_list_of_tasks_shows_nobody_those_of_others(house: House) -> None:
    for who in STRANGERS:
        for params in ({}, {"contextId": house.asks_ann["contextId"]}):
            assert post(house.http, house.who[who], "ListTasks", params).json()["result"]["tasks"] == []


def test_after_all_attacks_the_questions_are_open_for_those_whom_they_ask(house: House) -> None:
    states = {}
    for task in (house.asks_ann, house.asks_others):
        shown = post(house.http, house.who["ann"], "GetTask", {"id": task["id"]}).json()["result"]
        states[task["id"]] = shown["status"]["state"]
    assert list(states.values()) == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"]


TWO: Final = """
hai: flow/v1
name: two_say_yes
version: 1
steps:
  - {id: go, approve: {title: Go?, from: [role:boss], quorum: 2, reject_when: 2}}
"""


@pytest.mark.parametrize("second", ["approve", "reject"])
def test_two_people_whose_messages_have_the_same_id_have_two_votes(house: House, second: str) -> None:
    """A client may number its messages: nobody's vote is taken for another's that was sent again."""
    publisher = house.people.person("user:pat", roles=["publisher"])
    assert house.http.post("/v1/workflows", content=TWO, headers={**YAML, **publisher}).status_code in (200, 201)
    bosses = [house.people.person(f"user:{unique('boss')}", roles=["requester", "decider", "boss"]) for _ in range(2)]
    task = begin(house.http, house.who["bob"], "two_say_yes", {})
    for boss, decision in zip(bosses, ("approve", second), strict=True):
        params = message({"data": {"decision": decision}}, taskId=task["id"], messageId="2")
        answer = post(house.http, boss, "SendMessage", {**params, "configuration": {"returnImmediately": True}})
        assert "result" in answer.json(), answer.text
    query = "SELECT array_agg(v.decision ORDER BY v.decision) FROM votes v WHERE v.run_id = $1::uuid"
    assert house.people.do(lambda connection: connection.fetchval(query, task["id"])) == sorted(["approve", second])


def test_an_id_that_goes_on_in_the_id_of_the_message_is_nobody_elses_vote(house: House) -> None:
    """The ids of people and of messages may have colons: `user:a`, `b:2` is not `user:a:b`, `2`."""
    one = f"user:{unique('boss')}"
    roles = ["requester", "decider", "boss"]
    voters = ((house.people.person(one, roles=roles), "b:2"), (house.people.person(f"{one}:b", roles=roles), "2"))
    task = begin(house.http, house.who["bob"], "two_say_yes", {})
    for boss, id in voters:
        params = message({"data": {"decision": "approve"}}, taskId=task["id"], messageId=id)
        answer = post(house.http, boss, "SendMessage", {**params, "configuration": {"returnImmediately": True}})
        assert "result" in answer.json(), answer.text
    query = "SELECT count(*) FROM votes v WHERE v.run_id = $1::uuid"
    assert house.people.do(lambda connection: connection.fetchval(query, task["id"])) == 2
