"""A2A over plain HTTP: cards, both bindings, versions, and what is refused (docs/protocols/a2a.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from hai_flow.engine.state.state import MessageState, RunState
from hai_flow.wire.a2a.tasks import A2AEncoder
from hai_flow.wire.dialects.dialect import Profile
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import ROOT, YAML, ServerProcess, expect, serving

FLOWS = ROOT / "tests" / "clients" / "mcp_flows"
VERSION = {"A2A-Version": "1.0"}
SUPPORT = {"HAI-Act-As": "user:sue,role:support"}


@pytest.fixture(autouse=True, scope="module")
def published(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url) as http:
        for flow in sorted(FLOWS.glob("*.flow.yaml")):
            expect(http.post("/v1/workflows", content=flow.read_bytes(), headers=YAML), 200, 201)


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=60, headers=VERSION) as client:
        yield client


def message(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"message": {"messageId": unique("m"), "role": "ROLE_USER", "parts": list(parts), **fields}}


def rpc(http: httpx2.Client, method: str, params: Any, path: str = "/a2a", **headers: str) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answered: dict[str, Any] = http.post(path, json=body, headers=headers).json()
    return answered


def send(http: httpx2.Client, workflow: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    answered = rpc(http, "SendMessage", message(*parts, **fields), f"/workflows/{workflow}/a2a")
    task: dict[str, Any] = answered["result"]["task"]
    return task


def code(answered: dict[str, Any]) -> int:
    found: int = answered["error"]["code"]
    return found


# --- cards ------------------------------------------------------------------------------------------------------------


def test_the_open_card_names_no_workflow_and_the_extended_one_names_each(http: httpx2.Client) -> None:
    card = http.get("/.well-known/agent-card.json").json()
    assert [skill["id"] for skill in card["skills"]] == ["workflows"]
    assert card["capabilities"]["streaming"]
    skills = {skill["id"] for skill in rpc(http, "GetExtendedAgentCard", {})["result"]["skills"]}
    assert {"greet", "refund_order"} <= skills
    assert skills == {skill["id"] for skill in http.get("/a2a/extendedAgentCard").json()["skills"]}


def test_the_card_of_a_workflow_has_its_texts_and_its_addresses(http: httpx2.Client) -> None:
    card = http.get("/workflows/refund_order/.well-known/agent-card.json").json()
    assert (card["name"], card["version"]) == ("Refund an order", "1")
    assert {each["url"].rpartition("/workflows/")[2] for each in card["supportedInterfaces"]} == {"refund_order/a2a"}
    assert http.get("/workflows/no_such/.well-known/agent-card.json").status_code == 404


# --- starting ---------------------------------------------------------------------------------------------------------


def test_the_servers_agent_starts_the_workflow_that_metadata_name(http: httpx2.Client) -> None:
    params = message({"data": {"name": "Ann"}}, metadata={"hai-flow/workflow": "greet"})
    task = rpc(http, "SendMessage", params)["result"]["task"]
    assert (task["status"]["state"], task["metadata"]["hai-flow/workflow"]) == ("TASK_STATE_COMPLETED", "greet@1")
    unnamed = rpc(http, "SendMessage", message({"data": {"name": "Ann"}}))
    assert code(unnamed) == -32602
    names = unnamed["error"]["message"].removesuffix(".").partition("those for you are ")[2].split(", ")
    assert set(names) <= {skill["id"] for skill in http.get("/a2a/extendedAgentCard").json()["skills"]}


def test_json_rpc_answers_at_the_address_with_a_slash_too(http: httpx2.Client) -> None:
    assert code(rpc(http, "GetTask", {"id": "x"}, "/a2a/")) == -32001


def test_a_send_that_returns_at_once_does_not_wait_for_the_run(http: httpx2.Client) -> None:
    params = {**message({"data": {"seconds": 600}}), "configuration": {"returnImmediately": True}}
    task = rpc(http, "SendMessage", params, "/workflows/slow_compute/a2a")["result"]["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    cancelled = http.post(f"/a2a/tasks/{task['id']}:cancel").json()
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    assert http.post(f"/a2a/tasks/{task['id']}:cancel").status_code == 409


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({}, "/message"), ({"message": 1}, "/message"), ([], "/params"),
        ({"message": {"role": "ROLE_USER", "parts": [{"text": "a"}]}}, "/message/messageId"),
        ({"message": {"messageId": "", "role": "ROLE_USER", "parts": [{"text": "a"}]}}, "/message/messageId"),
        ({"message": {"messageId": "x", "role": "ROLE_AGENT", "parts": [{"text": "a"}]}}, "/message/role"),
        ({"message": {"messageId": "x", "role": "ROLE_USER", "parts": []}}, "/message/parts"),
        ({"message": {"messageId": "x", "role": "ROLE_USER", "parts": "abc"}}, "/message/parts"),
        ({"message": {"messageId": "x", "role": "ROLE_USER", "parts": [1]}}, "/message/parts/0"),
        ({"message": {"messageId": "x", "role": "ROLE_USER", "parts": [{}]}}, "/message/parts/0"),
        ({"message": {"messageId": "x", "role": "ROLE_USER", "parts": [{"data": 7}]}}, "/message/parts"),
        (message({"text": "a"}, taskId=7), "/message/taskId"),
        (message({"data": {"name": 7}}), "/name"), (message({"text": "a"}, contextId="a\nb"), "/message/contextId"),
    ],
)  # fmt: skip
def test_a_wrong_message_is_refused_at_its_place(http: httpx2.Client, params: Any, place: str) -> None:
    answered = rpc(http, "SendMessage", params, "/workflows/greet/a2a")
    assert code(answered) == -32602
    assert place in answered["error"]["message"]
    assert answered["error"]["data"][0]["domain"] == "a2a-protocol.org"


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        ("/configuration", {"configuration": 7}),
        ("/configuration/returnImmediately", {"configuration": {"returnImmediately": "x"}}),
        ("/configuration/blocking", {"configuration": {"blocking": 0}}),
        ("/configuration/historyLength", {"configuration": {"historyLength": 1.5}}),
        ("metadata: expected an object", {"metadata": "user:eve"}),
        ("metadata/hai-flow/workflow", {"metadata": {"hai-flow/workflow": 7}}),
    ],
)
def test_a_message_whose_wishes_are_wrong_starts_nothing(http: httpx2.Client, place: str, fields: Any) -> None:
    context = unique("context")
    params = {**message({"data": {"name": "Ann"}}, contextId=context), **fields}
    answered = rpc(http, "SendMessage", params, "/workflows/greet/a2a")
    assert (code(answered), place in answered["error"]["message"]) == (-32602, True)
    assert not rpc(http, "ListTasks", {"contextId": context})["result"]["tasks"]


def test_files_unknown_methods_and_versions_have_codes_of_their_own(http: httpx2.Client) -> None:
    assert code(rpc(http, "SendMessage", message({"url": "https://a.example/x"}), "/workflows/greet/a2a")) == -32005
    assert code(rpc(http, "CreateTaskPushNotificationConfig", {})) == -32602
    assert code(rpc(http, "NoSuchMethod", {})) == -32601
    assert code(rpc(http, "GetTask", {"id": "x"}, **{"A2A-Version": "7.0"})) == -32009
    assert http.get("/a2a/tasks/x", headers={"A2A-Version": "7.0"}).json()["error"]["details"][0]["reason"] == (
        "VERSION_NOT_SUPPORTED"
    )
    for several in (["1.0", "7.0"], ["1.0.0", "7.0"], ["1.0.1", "0.3"], ["1.0.0,7.0"], ["1.0", "1.0"]):
        assert http.get("/a2a/tasks", headers=[("A2A-Version", each) for each in several]).status_code == 400
        bare, params = {"A2A-Version": ""}, {"A2A-Version": several}
        assert http.get("/a2a/tasks", headers=bare, params=params).status_code == 400
    assert http.get("/a2a/no/such").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"id": 1}', b'{"jsonrpc":"2.0","method":"GetTask"}'])
def test_a_body_that_is_no_request_is_an_error_and_none_of_the_server(http: httpx2.Client, body: bytes) -> None:
    answered = http.post("/a2a", content=body, headers={"Content-Type": "application/json"})
    assert answered.status_code < 500
    assert answered.json()["error"]["code"] in (-32700, -32600)


def test_text_without_a_declaration_as_json_is_another_content_type(http: httpx2.Client) -> None:
    answered = http.post("/a2a", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answered.json()["error"]["code"] == -32005
    expect(http.post("/a2a/message:send", content=b"{}", headers={"Content-Type": "text/plain"}), 415)


def test_a_message_id_means_one_task_whatever_the_second_message_says(http: httpx2.Client) -> None:
    id = unique("m")
    first = send(http, "greet", {"data": {"name": "Ann"}}, messageId=id)
    assert send(http, "greet", {"data": {"name": "Ann"}}, messageId=id)["id"] == first["id"]
    again = rpc(http, "SendMessage", message({"data": {"name": "Bob"}}, messageId=id), "/workflows/greet/a2a")
    assert again["error"]["data"][0]["metadata"]["code"] == "command_id_reused"


# --- answering --------------------------------------------------------------------------------------------------------


def test_an_answer_of_text_is_taken_where_only_one_can_be_meant(http: httpx2.Client) -> None:
    task = send(http, "count_slowly", {"text": "Count!"})
    done = send(http, "count_slowly", {"text": "please"}, taskId=task["id"])
    assert [each["parts"][0].get("text") for each in done["artifacts"][:2]] == ["One.", "Two, please."]


def test_of_two_questions_the_answer_names_one(http: httpx2.Client) -> None:
    task = send(http, "multi_input", {"data": {}})
    (data,) = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    assert len(data["hai.pending"]) == 2
    vague = rpc(http, "SendMessage", message({"data": {"name": "Ann"}}, taskId=task["id"]))
    assert code(vague) == -32602
    for each in data["hai.pending"]:
        answer = {"hai.pending": {"id": each["id"], "values": {"name": "Ann"}}}
        task = send(http, "multi_input", {"data": answer}, taskId=task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_answer_that_comes_again_is_answered_as_it_was(http: httpx2.Client) -> None:
    over, id = send(http, "count_slowly", {"text": "Count!"}), unique("m")
    first = send(http, "count_slowly", {"text": "please"}, taskId=over["id"], messageId=id)
    assert send(http, "count_slowly", {"text": "please"}, taskId=over["id"], messageId=id) == first
    other = message({"text": "now"}, taskId=over["id"], messageId=id)
    answered = rpc(http, "SendMessage", other, "/workflows/count_slowly/a2a")
    assert answered["error"]["data"][0]["metadata"]["code"] == "command_id_reused"
    new = message({"text": "please"}, taskId=over["id"])
    assert code(rpc(http, "SendMessage", new, "/workflows/count_slowly/a2a")) == -32004


def test_an_answer_that_comes_again_is_not_taken_for_the_other_question(http: httpx2.Client) -> None:
    task = send(http, "multi_input", {"data": {}})
    (data,) = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    answer, id = {"hai.pending": {"id": data["hai.pending"][0]["id"], "values": {"name": "Ann"}}}, unique("m")
    for _ in range(2):
        task = send(http, "multi_input", {"data": answer}, taskId=task["id"], messageId=id)
        (data,) = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
        assert len(data["hai.pending"]) == 1
    vague = unique("m")
    done = send(http, "multi_input", {"data": {"name": "Bob"}}, taskId=task["id"], messageId=vague)
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert send(http, "multi_input", {"data": {"name": "Bob"}}, taskId=task["id"], messageId=vague) == done


def test_answers_to_other_tasks_and_contexts_are_refused(http: httpx2.Client) -> None:
    one, other = (send(http, "confirm_delete", {"data": {"filename": name}}) for name in ("a", "b"))
    question = one["status"]["message"]["parts"][1]["data"]["hai.pending"][0]["id"]
    answer = {"data": {"hai.pending": {"id": question, "values": {"confirm": True}}}}
    assert code(rpc(http, "SendMessage", message(answer, taskId=other["id"]))) == -32602
    assert code(rpc(http, "SendMessage", message(answer, taskId=one["id"], contextId=other["contextId"]))) == -32602
    assert code(rpc(http, "SendMessage", message(answer, taskId=one["id"]), "/workflows/greet/a2a")) == -32001
    stranger = rpc(http, "GetTask", {"id": one["id"]}, "/workflows/greet/a2a")
    assert code(stranger) == -32001


def test_who_may_not_decide_is_refused_and_the_question_stays_open(http: httpx2.Client) -> None:
    task = send(http, "refund_order", {"data": {"order": "A-1", "amount": 80}})
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    question = task["status"]["message"]["parts"][1]["data"]["hai.pending"][0]
    assert "digest" not in question
    vote = {"data": {"hai.pending": {"id": question["id"], "decision": "approve"}}}
    refused = rpc(http, "SendMessage", message(vote, taskId=task["id"]), **{"HAI-Act-As": "user:eve"})
    assert "error" in refused
    assert http.get(f"/a2a/tasks/{task['id']}").json()["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"


# --- streams ----------------------------------------------------------------------------------------------------------


def events(answered: httpx2.Response) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for block in answered.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in lines:
            found.append((int(lines["id"]), json.loads(lines["data"])))
    return found


def test_a_stream_that_was_lost_goes_on_behind_its_last_event(http: httpx2.Client, server: ServerProcess) -> None:
    task = send(http, "count_slowly", {"text": "Count!"})
    place = task_seq(http, task["id"])
    path = f"/a2a/tasks/{task['id']}:subscribe"
    with httpx2.Client(base_url=server.url, timeout=60, headers=VERSION) as other:
        with other.stream("GET", path, headers={"Last-Event-ID": str(place)}) as stream:
            send(http, "count_slowly", {"text": "again"}, taskId=task["id"])
            stream.read()
        rest = events(stream)
    assert all(seq > place for seq, _ in rest)
    text = "".join(
        each["artifactUpdate"]["artifact"]["parts"][0].get("text", "") for _, each in rest if "artifactUpdate" in each
    )
    assert text == "Two, again."
    assert rest[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    late = rpc(http, "SubscribeToTask", {"id": task["id"]})
    assert code(late) == -32004


def task_seq(http: httpx2.Client, id: str) -> int:
    seq: int = http.get(f"/v1/runs/{id}").json()["seq"]
    return seq


def test_a_stream_in_the_words_of_0_3_marks_its_last_status(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        posted = {"messageId": unique("m"), "role": "user", "parts": [{"kind": "data", "data": {"name": "Ann"}}]}
        body = {"jsonrpc": "2.0", "id": "a", "method": "message/stream", "params": {"message": posted}}
        found = [event["result"] for _, event in events(http.post("/workflows/greet/a2a", json=body))]
    assert found[0]["kind"] == "task"
    assert (found[-1]["kind"], found[-1]["final"], found[-1]["status"]["state"]) == ("status-update", True, "completed")
    assert not any(each.get("final") for each in found[:-1])


def test_tasks_are_listed_by_context_and_state_page_by_page(http: httpx2.Client) -> None:
    first = send(http, "greet", {"data": {"name": "Ann"}})
    others = [send(http, "greet", {"data": {"name": "Bob"}}, contextId=first["contextId"]) for _ in range(2)]
    params = {"contextId": first["contextId"], "pageSize": 2}
    page = rpc(http, "ListTasks", params)["result"]
    assert [each["id"] for each in page["tasks"]] == [others[1]["id"], others[0]["id"]]
    rest = http.get("/a2a/tasks", params={**params, "pageToken": page["nextPageToken"]}).json()
    assert [each["id"] for each in rest["tasks"]] == [first["id"]]
    assert not rpc(http, "ListTasks", {**params, "status": "TASK_STATE_WORKING"})["result"]["tasks"]
    newest = others[1]["status"]["timestamp"]
    assert [
        each["id"] for each in rpc(http, "ListTasks", {**params, "statusTimestampAfter": newest})["result"]["tasks"]
    ] == [others[1]["id"]]
    for wrong in (
        {"pageSize": 1000}, {"pageSize": 1.5}, {"status": "GOOD"}, {"contextId": 7}, {"pageToken": "x"},
        {"statusTimestampAfter": "yesterday"}, {"includeArtifacts": "maybe"},
        {"includeArtifacts": 1}, {"includeArtifacts": 0.0},
    ):  # fmt: skip
        assert code(rpc(http, "ListTasks", wrong)) == -32602
    assert http.get("/a2a/tasks?contextId=%00").status_code == 400
    assert http.get("/a2a/tasks?pageSize=0").json()["pageSize"] == 20


def test_the_pieces_of_a_text_are_appended_and_the_first_is_not() -> None:
    state = RunState("run", thread_id="t", status="running")
    encoder = A2AEncoder(Profile(dialect="a2a"), state)
    message = MessageState(n=1, id="m", role="assistant", at=0, turn=0, path="say")
    updates = []
    for content in ("One ", "two"):
        message = msgspec.structs.replace(message, content=message.content + content)
        updates += [json.loads(frame.data)["artifactUpdate"] for frame in encoder.message_content(0, message, content)]
    assert [each.get("append", False) for each in updates] == [False, True]
    (last,) = encoder.message_ended(0, message)
    assert json.loads(last.data)["artifactUpdate"]["lastChunk"]


# --- who calls --------------------------------------------------------------------------------------------------------


def test_a_task_of_somebody_else_is_unknown_and_an_agent_does_not_decide(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as strict:
        people = People(dsn)
        publisher = people.person("user:pat", roles=["publisher"])
        ann = people.person("user:ann", roles=["requester"])
        bob = people.person("user:bob", roles=["requester"])
        agent = people.person("agent:support", roles=["decider", "support", "operator"])
        with httpx2.Client(base_url=strict.url, timeout=60, headers=VERSION) as http:
            for name in ("refund_order", "confirm_delete"):
                source = (FLOWS / f"{name}.flow.yaml").read_bytes()
                assert http.post("/v1/workflows", content=source, headers={**YAML, **publisher}).status_code == 201
            path = "/workflows/refund_order/a2a"
            assert http.post(path, json={}).status_code == 401
            params = message({"data": {"order": "A-1", "amount": 80}})
            task = rpc(http, "SendMessage", params, path, **ann)["result"]["task"]
            for method in ("GetTask", "CancelTask", "SubscribeToTask"):
                assert code(rpc(http, method, {"id": task["id"]}, **bob)) == -32001
            assert rpc(http, "ListTasks", {}, **bob)["result"]["tasks"] == []
            pending = task["status"]["message"]["parts"][1]["data"]["hai.pending"][0]["id"]
            vote = message({"data": {"hai.pending": {"id": pending, "decision": "approve"}}}, taskId=task["id"])
            refused = rpc(http, "SendMessage", vote, **agent)
            assert refused["error"]["data"][0]["metadata"]["code"] == "vote.agent"
            shown = rpc(http, "GetTask", {"id": task["id"]}, **ann)["result"]
            assert shown["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"


FILES = """
hai: flow/v1
name: {name}
version: 1
input: {{type: object, properties: {{text: {{type: string, x-a2a: text}}, id: {{type: string, x-a2a: message_id}}}}}}
output: [{{url: "https://example.com/a.txt", filename: "${{{{ input.text }}}}", mediaType: "${{{{ input.id }}}}"}}]
steps: [{{say: Done.}}]
"""


def test_input_fields_take_a_messages_text_and_id_and_files_are_parts(http: httpx2.Client) -> None:
    name = unique("files").replace("-", "_").lower()
    assert http.post("/v1/workflows", content=FILES.format(name=name), headers=YAML).status_code == 201
    id = unique("m")
    task = send(http, name, {"text": "a.txt"}, messageId=id)
    part = {"url": "https://example.com/a.txt", "filename": "a.txt", "mediaType": id}
    assert [each["parts"] for each in task["artifacts"] if each["artifactId"] == "output"] == [[part]]
    old = rpc(http, "message/send", message({"text": "b.txt"}), f"/workflows/{name}/a2a", **{"A2A-Version": ""})
    files = [each["file"] for artifact in old["result"]["artifacts"] for each in artifact["parts"] if "file" in each]
    assert [(each["uri"], each["name"]) for each in files] == [("https://example.com/a.txt", "b.txt")]


def test_messages_of_one_id_with_other_texts_are_other_tasks(http: httpx2.Client) -> None:
    id, data = unique("m"), {"data": {"name": "Ann"}}
    first = send(http, "greet", data, {"text": "one"}, messageId=id)
    assert send(http, "greet", data, {"text": "one"}, messageId=id)["id"] == first["id"]
    assert send(http, "greet", data, {"text": "two"}, messageId=id)["id"] != first["id"]


@pytest.mark.parametrize("accepts", ["application/json", "application/a2a+json"])
def test_answers_of_rest_have_the_type_that_the_client_accepts(http: httpx2.Client, accepts: str) -> None:
    for path in ("/a2a/tasks", "/a2a/tasks/unknown"):
        assert http.get(path, headers={"Accept": accepts}).headers["content-type"] == accepts
