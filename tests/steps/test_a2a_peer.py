"""What agents of others say over A2A, as 1.0 writes it and as 0.3 does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.errors import StepError
from hai_flow.steps.a2a import peer
from hai_flow.steps.a2a.peer import Interface

URL = "https://agents.example.com/planner"
NEW = {"url": f"{URL}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
REST = {"url": f"{URL}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
OLD = {"url": f"{URL}/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
GRPC = {"url": f"{URL}/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"}


@pytest.mark.parametrize(
    ("card", "interface"),
    [
        ({"supportedInterfaces": [GRPC, OLD, REST, NEW]}, Interface(f"{URL}/rpc", False, False)),
        ({"supportedInterfaces": [OLD, REST]}, Interface(f"{URL}/rest", False, True)),
        ({"supportedInterfaces": [GRPC, OLD]}, Interface(f"{URL}/old", True, False)),
        ({"url": f"{URL}/v03", "protocolVersion": "0.3.0"}, Interface(f"{URL}/v03", True, False)),
        ({"url": f"{URL}/v03", "preferredTransport": "jsonrpc"}, Interface(f"{URL}/v03", True, False)),
        ({"supportedInterfaces": {**NEW, "protocolBinding": "JsonRpc"}}, Interface(f"{URL}/rpc", False, False)),
        (
            {"url": "x", "preferredTransport": "GRPC", "additionalInterfaces": [{"url": URL, "transport": "JSONRPC"}]},
            Interface(URL, True, False),
        ),
        *(
            ({"supportedInterfaces": [{**NEW, "url": f"http://{own}:9999/rpc"}]},
             Interface("https://agents.example.com/rpc", False, False))
            for own in ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")
        ),
        *(
            ({"supportedInterfaces": [{**NEW, "url": f"http://agents.example.com{port}/rpc"}]},
             Interface("https://agents.example.com/rpc", False, False))
            for port in ("", ":80")
        ),
        ({"supportedInterfaces": [{**NEW, "url": "https://agents.example.com:443/x"}]},
         Interface("https://agents.example.com:443/x", False, False)),
    ],
)  # fmt: skip
def test_the_newest_interface_that_is_understood_is_taken(card: Any, interface: Interface) -> None:
    assert peer.choose_interface(card, URL) == interface


@pytest.mark.parametrize("url", ["https://evil.example/rpc", "http://agents.example.com:8000/rpc", "https://agents.example.com:8443/rpc",
                                 "https://agents.example.com@evil.example/", "https://[x"])  # fmt: skip
def test_a_card_leads_to_no_other_server(url: str) -> None:
    with pytest.raises(StepError, match="another server"):
        peer.choose_interface({"supportedInterfaces": [{**NEW, "url": url}]}, URL)


@pytest.mark.parametrize(
    "card", [None, [], "card", {}, {"supportedInterfaces": [GRPC]}, {"supportedInterfaces": "x", "url": 3}]
)
def test_a_card_without_an_interface_that_is_understood_is_refused(card: Any) -> None:
    with pytest.raises(StepError, match="neither JSON-RPC nor REST"):
        peer.choose_interface(card, URL)


@pytest.mark.parametrize(
    ("task", "state"),
    [
        ({"status": {"state": "TASK_STATE_INPUT_REQUIRED"}}, "input-required"),
        ({"status": {"state": "input-required"}}, "input-required"),
        ({"status": {"state": "TASK_STATE_COMPLETED"}}, "completed"),
        ({"status": None}, ""),
        ({"status": "failed"}, "failed"),
    ],
)
def test_states_of_both_versions_are_one(task: Any, state: str) -> None:
    assert peer.state_of(task) == state


def asking(*parts: Any, **more: Any) -> dict[str, Any]:
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": list(parts)}, **more}
    return {"id": "t1", "status": status}


def test_a_question_without_a_form_is_asked_for_one_text() -> None:
    question = peer.question_of(asking({"text": "Which colour?"}))
    assert (question.text, question.form) == ("Which colour?", peer.ANSWER_FORM)
    assert peer.write_answer(question.pending, {"answer": "blue"}) == [{"text": "blue"}]


def test_a_question_of_hai_flow_has_form_or_options_and_names_its_id() -> None:
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    foreign = {"id": "p0", "may_answer": False, "form": form}
    pending = {"id": "p1", "may_answer": True, "form": form}
    question = peer.question_of(asking({"data": {"hai.pending": [foreign, pending]}}))
    assert question.form == form
    answer = {"hai.pending": {"id": "p1", "values": {"ok": True}}}
    assert peer.write_answer(question.pending, {"ok": True}) == [{"data": answer}]
    gate = {"id": "p2", "may_answer": True, "digest": "4b20", "options": ["approve", None, "reject"]}
    question = peer.question_of(asking({"data": {"hai.pending": [gate]}}))
    assert question.form["properties"]["decision"]["enum"] == ["approve", "reject"]
    answer = {"hai.pending": {"id": "p2", "digest": "4b20", "decision": "approve"}}
    assert peer.write_answer(question.pending, {"decision": "approve"}) == [{"data": answer}]


def test_a_question_with_an_id_is_the_same_at_any_time() -> None:
    def digest(id: str, at: str) -> str:
        status = {
            "state": "input-required",
            "message": {"messageId": id, "parts": [{"text": "Again?"}]},
            "timestamp": at,
        }
        return peer.question_of({"id": "t1", "status": status}).digest

    assert digest("m1", "1") == digest("m1", "2") != digest("m2", "2")


def test_another_question_of_a_task_with_equal_words_has_another_digest() -> None:
    one, other = asking({"text": "Again?"}, timestamp="1"), asking({"text": "Again?"}, timestamp="2")
    assert peer.question_of(one).digest == peer.question_of(asking({"text": "Again?"}, timestamp="1")).digest
    assert peer.question_of(one).digest != peer.question_of(other).digest


def test_artifacts_of_both_versions_are_one_output() -> None:
    new = [{"name": "a", "parts": [{"text": "one"}, {"data": {"n": 1}}, {"raw": "aGk=", "mediaType": "image/png"}]}]
    old = [
        {
            "name": "a",
            "parts": [
                {"kind": "text", "text": "one"},
                {"kind": "data", "data": {"n": 1}},
                {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}},
            ],
        }
    ]
    output = peer.output_of({"artifacts": new})
    assert output == peer.output_of({"artifacts": old})
    assert (output["text"], output["data"]) == ("one", {"n": 1})
    assert output["parts"][2] == {
        "type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}, "artifact": "a",
    }  # fmt: skip


def test_odd_parts_are_read_and_too_many_are_refused() -> None:
    odd = {"artifacts": [{"parts": [None, {"strange": 1}, {"url": "https://x.example/a.pdf"}]}, 3, {"parts": "none"}]}
    kinds = [each["type"] for each in peer.output_of(odd)["parts"]]
    assert kinds == ["text", "document"]
    with pytest.raises(StepError, match="100 are taken"):
        peer.output_of({"artifacts": [{"parts": [{"text": "x"}] * 101}]})


@pytest.mark.parametrize("result", [None, 3, [], {}, {"task": {"id": 1, "status": {}}}, {"message": {"parts": "x"}}])
def test_what_is_neither_a_task_nor_a_message_is_refused(result: Any) -> None:
    with pytest.raises(StepError, match="neither a task nor a message"):
        peer.read_result(result)


def test_a_part_or_an_artifact_that_stands_alone_is_a_list_of_one() -> None:
    artifact = {"artifactId": "a", "parts": {"text": "fine"}}
    assert peer.output_of({"artifacts": artifact})["text"] == "fine"
    assert peer.words_of({"status": {"message": {"parts": {"text": "soon"}}}}) == "soon"


def test_a_repeated_artifact_is_one_and_without_any_the_status_is_read() -> None:
    one, again, other = ({"artifactId": id, "parts": [{"text": id}]} for id in ("a", "a", "b"))
    assert peer.output_of({"artifacts": [one, again, other, {**other, "artifactId": ""}]})["text"] == "a\nb\nb"
    assert peer.output_of({"status": {"message": {"parts": [{"text": "42"}]}}, "artifacts": []})["text"] == "42"


def test_a_message_is_a_completed_task() -> None:
    task = peer.read_result({"message": {"parts": [{"text": "hi"}]}})
    assert (peer.state_of(task), peer.output_of(task)["text"]) == ("completed", "hi")


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("cancelled", "canceled"), ("TASK_STATE_CANCELLED", "canceled"), ("CANCELED", "canceled"), ("error", "failed"),
        ("Succeeded", "completed"), ("success", "completed"), ("DONE", "completed"), ("TASK_STATE_FAILED", "failed"),
        ("INPUT_REQUIRED", "input-required"), ("working", "working"),
    ],
)  # fmt: skip
def test_a_task_that_is_over_is_so_however_its_state_is_spelled(said: str, state: str) -> None:
    assert peer.state_of({"status": {"state": said}}) == state


DONE = {"id": "t", "status": {"state": "completed"}}
SAID = json.dumps({"result": {**DONE, "artifacts": [{"parts": [{"text": "a\u2028b\x85c"}]}]}}, ensure_ascii=False)


@pytest.mark.parametrize(
    "stream",
    [
        f"data: {SAID}\n\n",
        f"\ufeffdata: {SAID}",
        "data: {\ndata: " + SAID[1:] + "\r\n\r\n",
        f'data: {{"result": {{}}}}\ndata: {SAID}\n',
    ],
    ids=repr,
)
def test_an_event_of_any_lines_is_read_with_all_its_characters(stream: str) -> None:
    assert peer.output_of(peer.read_result(peer.read_answer(stream)["result"]))["text"] == "a\u2028b\x85c"


def test_a_stream_within_a_stream_without_end_is_no_answer() -> None:
    assert peer.read_answer("data:" * 5000) is None


def test_a_member_by_both_names_stays() -> None:
    both = {"taskId": "t", "task_id": None, "context_id": "c"}
    assert peer.use_protocol_names(both) == {"taskId": "t", "task_id": None, "contextId": "c"}


def test_an_interface_without_an_address_is_none() -> None:
    card = {"supportedInterfaces": [{"protocolBinding": "JSONRPC"}], "url": "https://x/a"}
    assert peer.choose_interface(card, "https://x") == Interface("https://x/a", old=True, rest=False)


def test_words_of_ours_are_no_answer_however_their_role_is_called() -> None:
    for role in ("user", "ROLE_USER", 1):
        assert peer.output_of({**DONE, "history": [{"role": role, "parts": [{"text": "go"}]}]})["text"] == ""


def test_names_of_the_protocol_are_read_in_both_forms_those_of_data_stay() -> None:
    own = {"order_id": 1, "lines": [{"unit_price": 2}]}
    given = {"task_id": "t", "metadata": own, "parts": [{"data": own}], "context_id": 1, "contextId": 2}
    named = {"taskId": "t", "metadata": own, "parts": [{"data": own}], "context_id": 1, "contextId": 2}
    assert peer.use_protocol_names(given) == named
