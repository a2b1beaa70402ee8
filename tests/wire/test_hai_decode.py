"""What a POST may say, and how it is refused (docs/design/protocols.md#history-is-not-evidence)."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine.events import UserMessage
from hai_flow.errors import Rejected
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialects.dialect import Posted, ToolMessage
from hai_flow.wire.dialects.hai import HAI, decode
from hai_flow.wire.posted_json import Limits

LIMITS = Limits()
IDS = {"threadId": "thread_12345", "runId": "run_67890"}


def post(**fields: Any) -> Posted:
    return decode(json.dumps(IDS | fields).encode(), LIMITS)


def refused(body: bytes | dict[str, Any], limits: Limits = LIMITS) -> Rejected:
    with pytest.raises(Rejected) as caught:
        decode(body if isinstance(body, bytes) else json.dumps(body).encode(), limits)
    return caught.value


def test_the_dialects_are_registered_by_name():
    assert list(DIALECTS) == ["hai", "agui", "social", "aui", "agent-api", "log"]
    assert DIALECTS["hai"] is HAI
    assert all(dialect.name == name for name, dialect in DIALECTS.items())


def test_a_byte_order_mark_before_a_body_is_ignored():
    assert decode(b"\xef\xbb\xbf" + json.dumps(IDS).encode(), LIMITS).thread_id == "thread_12345"


def test_thread_and_run_are_enough():
    posted = post()
    assert (posted.thread_id, posted.wire_run_id) == ("thread_12345", "run_67890")
    assert posted.body_sha == sha256(json.dumps(IDS).encode()).hexdigest()
    assert (posted.user_messages, posted.tool_messages, posted.history) == ((), (), ())
    assert (posted.workflow, posted.input) == (None, {})


def test_the_documents_own_request_is_read():
    posted = post(
        messages=[
            {"id": "msg_1", "role": "user", "content": "介绍下HAI", "timestamp": 1620000000000, "extra": {"k": None}},
            {"id": "msg-2", "role": "assistant", "toolCalls": [{"id": "tool-123"}]},
            {"id": "result-789", "role": "tool", "content": "true", "toolCallId": "tool-123"},
        ],
        context=[{"id": "c", "role": "user", "content": "anything"}],
        tools=[{"name": "confirmAction", "description": "d", "parameters": {"type": "object"}}],
        forwardedProps={"workflow": "refund", "input": {"a": 1}, "hai": {"text": "plain"}},
    )
    assert posted.user_messages == (
        UserMessage("msg_1", "user", "介绍下HAI", timestamp=1620000000000, extra={"k": None}),
    )
    assert posted.tool_messages == (ToolMessage("result-789", "tool-123", "true"),)
    assert posted.history == (("msg_1", "user"), ("msg-2", "assistant"), ("result-789", "tool"))
    assert (posted.workflow, posted.input) == ("refund", {"a": 1})
    assert posted.profile.client_tools == {"confirmAction"}
    assert posted.profile.option("hai.text") == "plain"
    turn = posted.turn()
    assert (turn.wire_run_id, turn.dialect, turn.client_tools) == ("run_67890", "hai", ("confirmAction",))
    assert turn.profile["options"] == {"hai.text": "plain"}
    assert turn.body_sha == posted.body_sha


def test_the_usual_is_a_wish_where_the_server_may_have_another():
    assert post(forwardedProps={"hai": {"results": "server"}}).profile.option("hai.results") == "server"
    assert post(forwardedProps={"hai": {"results": "all"}}).profile.option("hai.results") == "all"
    assert post().profile.option("hai.results") is None


def test_equal_wishes_make_equal_profiles():
    assert post(forwardedProps={"hai": {"text": "document"}}).profile == post().profile
    assert hash(post(tools=[{"name": "a"}, {"name": "b"}]).profile) == hash(
        post(tools=[{"name": "b"}, {"name": "a"}]).profile
    )


def test_optional_fields_may_be_null():
    posted = post(messages=None, tools=None, context=None, state=None, forwardedProps=None)
    assert posted.history == ()
    assert post(messages=[{"id": "m", "role": "user", "content": None, "name": None}]).user_messages[0].content == ""


def test_content_parts_are_kept_as_they_came():
    parts = [{"type": "image", "source": {"type": "url", "value": "https://x"}}, {"type": "text", "text": "see"}]
    assert post(messages=[{"id": "m", "role": "user", "content": parts}]).user_messages[0].content == parts


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image"}], '[{"type":"image"}]'),
        ("", ""),
    ],
)
def test_an_answer_is_text(content, text):
    message = {"id": "m", "role": "tool", "toolCallId": "c", "content": content}
    assert post(messages=[message]).tool_messages[0].content == text


def test_an_answer_may_be_an_error():
    message = {"id": "m", "role": "tool", "toolCallId": "c", "error": "denied"}
    assert post(messages=[message]).tool_messages == (ToolMessage("m", "c", None, "denied"),)


def test_what_is_ignored_is_not_judged():
    posted = post(messages=[{"id": "a", "role": "activity", "content": 1}, {"id": "s", "role": "system"}], state=[1])
    assert posted.history == (("a", "activity"), ("s", "system"))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], ""),
        ({"runId": "r"}, "/threadId"),
        ({"threadId": "t", "runId": ""}, "/runId"),
        ({"threadId": "t", "runId": 5}, "/runId"),
        (IDS | {"runId": "x" * 201}, "/runId"),
        (IDS | {"threadId": "a\nb"}, "/threadId"),
        (IDS | {"messages": {}}, "/messages"),
        (IDS | {"messages": ["x"]}, "/messages/0"),
        (IDS | {"messages": [{"role": "user", "content": "x"}]}, "/messages/0/id"),
        (IDS | {"messages": [{"id": "m"}]}, "/messages/0/role"),
        (IDS | {"messages": [{"id": "m", "role": "user", "content": 5}]}, "/messages/0/content"),
        (IDS | {"messages": [{"id": "m", "role": "user", "content": ["x"]}]}, "/messages/0/content"),
        (IDS | {"messages": [{"id": "m", "role": "user", "timestamp": "x"}]}, "/messages/0/timestamp"),
        (IDS | {"messages": [{"id": "m", "role": "user", "name": 1}]}, "/messages/0/name"),
        (IDS | {"messages": [{"id": "m", "role": "user"}] * 2}, "/messages/1/id"),
        (IDS | {"messages": [{"id": "m", "role": "tool", "content": "x"}]}, "/messages/0/toolCallId"),
        (IDS | {"messages": [{"id": "m", "role": "tool", "toolCallId": "c"}]}, "/messages/0/content"),
        (IDS | {"tools": [{"description": "x"}]}, "/tools/0/name"),
        (IDS | {"forwardedProps": 5}, "/forwardedProps"),
        (IDS | {"forwardedProps": {"workflow": 5}}, "/forwardedProps/workflow"),
        (IDS | {"forwardedProps": {"hai": "x"}}, "/forwardedProps/hai"),
        (IDS | {"forwardedProps": {"hai": {"text": "loud"}}}, "/forwardedProps/hai/text"),
        (IDS | {"forwardedProps": {"hai": {"snapshot": ["x"]}}}, "/forwardedProps/hai/snapshot"),
        (IDS | {"forwardedProps": {"input": {"x": 2**60}}}, "/forwardedProps/input/x"),
        (IDS | {"forwardedProps": {"input": {"x": "\x00"}}}, "/forwardedProps/input/x"),
        (IDS | {"state": "\ud800"}, "/state"),
    ],
)
def test_a_body_that_does_not_fit_is_refused_at_its_place(body, path):
    error = refused(body)
    assert (error.status, error.code) == (422, "body.invalid")
    assert [finding["path"] for finding in error.findings] == [path]


def test_a_number_of_too_many_digits_is_refused_without_a_word_of_python():
    problem = refused(b'{"threadId":"a","runId":"b","state":' + b"9" * 5000 + b"}")
    assert (problem.status, problem.code) == (400, "body.not_json")
    assert problem.detail.endswith("a number has too many digits")


def test_all_findings_are_told_at_once():
    error = refused({"messages": [{"id": "m"}], "tools": [{}]})
    assert {finding["path"] for finding in error.findings} == {
        "/threadId",
        "/runId",
        "/messages/0/role",
        "/tools/0/name",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"{} {}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"1" * 5000,
        b'{"threadId":"t","threadId":"u","runId":"r"}',
        b'{"a":{"b":1,"b":1}}',
        b"'x'",
        b'{"a":"\n"}',
    ],
)
def test_what_is_not_json_is_refused(body):
    assert (refused(body).status, refused(body).code) == (400, "body.not_json")


@pytest.mark.parametrize(
    "body",
    [
        b" " * (LIMITS.body_bytes_max + 1),
        b"[" * 100_000,
        b'{"a":' * 65,
        b'{"a":"\\"",' + b'"b":' + b"[" * 64,
        json.dumps(IDS | {"messages": [{"id": "m", "role": "system"}] * 501}).encode(),
        json.dumps(IDS | {"tools": [{"name": "t"}] * 201}).encode(),
    ],
)
def test_what_is_beyond_a_limit_is_refused(body):
    assert (refused(body).status, refused(body).code) == (413, "body.too_large")


def test_brackets_inside_strings_do_not_nest():
    assert post(state="[{" * 500 + '\\"').thread_id == "thread_12345"


def test_64_levels_are_deep_enough():
    nested: Any = []
    for _ in range(61):
        nested = [nested]
    assert post(state={"a": nested}).thread_id == "thread_12345"


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'"' + b'\\"' * 500_000, 400),
        (b'{"a":1' + b"".join(b',"%d":1' % n for n in range(90_000)) + b',"89999":1}', 400),
        (json.dumps(IDS | {"messages": [{} for _ in range(500)]}).encode(), 422),
        (json.dumps({"state": "\\" * 500_000}).encode(), 422),
    ],
)
def test_no_body_takes_long_to_judge(body, status):
    assert len(body) <= LIMITS.body_bytes_max
    assert refused(body).status == status


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\0truefalsn', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(body):
    assert refused(body).status in (400, 422)
