"""The builders of the Agent API, as its document uses them."""

from __future__ import annotations

import time

import pytest

from hai_flow.agent_api import MessageBuilder, ResponseBuilder, Sequence


def test_a_response_of_one_text_is_streamed_in_the_documents_order() -> None:
    response = ResponseBuilder("response_1", session_id="session_123", created_at=5)
    objects = list(response.generate_streaming_response(["Hello", " ", "World", "!"], message_id="msg_1", at=6))
    assert [(each["object"], each["status"]) for each in objects] == [
        ("response", "created"),
        ("response", "in_progress"),
        ("message", "in_progress"),
        *[("content", "in_progress")] * 4,
        ("content", "completed"),
        ("message", "completed"),
        ("response", "completed"),
    ]
    assert objects[7]["text"] == "Hello World!"
    assert objects[-1]["output"] == [objects[-2]]
    assert (objects[-1]["created_at"], objects[-1]["completed_at"]) == (5, 6)


def test_a_message_holds_its_contents_in_the_order_of_their_index() -> None:
    message = MessageBuilder("msg_1", "message", "assistant")
    text, image = message.create_content_builder("text"), message.create_content_builder("image")
    image.set_image_url("https://example.com/a.png").complete()
    text.set_text("Look:").complete()
    content = message.complete()["content"]
    assert [(each["index"], each["type"]) for each in content] == [(0, "text"), (1, "image")]


def test_data_grows_by_keys() -> None:
    data = MessageBuilder("msg_1", "message", "assistant").create_content_builder("data")
    assert data.add_data_delta({"status": "processing"})["delta"] is True
    data.add_data_delta({"status": "done", "result": "sunny"})
    assert data.complete()["data"] == {"status": "done", "result": "sunny"}


def test_what_was_handed_out_does_not_change_any_more() -> None:
    message = MessageBuilder("msg_1", "message", "assistant")
    data = message.create_content_builder("data").set_data({"tags": ["a"]})
    shown = data.complete()
    shown["data"]["tags"].append("b")
    assert data.complete()["data"] == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda content: content.add_text_delta("a"), "expected a text content, found a data content"),
        (lambda content: content.set(url="a"), "a data content has data, found url"),
    ],
)
def test_a_content_takes_only_what_its_type_has(wrong: object, message: str) -> None:
    content = MessageBuilder("msg_1", "message", "assistant").create_content_builder("data")
    with pytest.raises(ValueError, match=message):
        wrong(content)  # type: ignore[operator]


def test_numbers_stand_in_front_and_count_from_zero() -> None:
    sequence = Sequence()
    assert [sequence.numbered({"object": "response"})["sequence_number"] for _ in range(3)] == [0, 1, 2]


def test_the_documents_own_examples_run_as_they_stand() -> None:
    response_builder = ResponseBuilder(session_id="session_123")
    assert response_builder.created()["status"] == "created"
    assert response_builder.in_progress()["status"] == "in_progress"
    message_builder = response_builder.create_message_builder(role="assistant", message_type="message")
    text_builder = message_builder.create_content_builder("text", index=0)
    text_builder.set_text("这是一张图片:")
    text = text_builder.complete()
    image_builder = message_builder.create_content_builder(content_type="image", index=1)
    image_builder.set_image_url("https://example.com/image.jpg")
    message_builder.add_content(text).add_content(image_builder.complete())
    message = message_builder.complete()
    assert [each["type"] for each in message["content"]] == ["text", "image"]
    assert {each["msg_id"] for each in message["content"]} == {message["id"]}
    assert response_builder.completed()["output"] == [message]


def test_ids_and_times_that_are_not_given_are_new_ones_and_now() -> None:
    before = int(time.time())
    one, other = ResponseBuilder(), ResponseBuilder()
    assert one.id.startswith("response_")
    assert one.id != other.id
    first, second = one.create_message_builder(), one.create_message_builder()
    assert first.id.startswith("msg_")
    assert first.id != second.id
    *_, last = one.generate_streaming_response(text_tokens=["Hello", " ", "World", "!"], role="assistant")
    assert before <= last["created_at"] <= last["completed_at"] <= time.time()


def test_a_message_that_was_cut_off_is_incomplete_in_the_output_too() -> None:
    response = ResponseBuilder("response_1", created_at=5)
    cut, whole = response.create_message_builder("cut"), response.create_message_builder("whole")
    assert cut.complete("incomplete")["status"] == "incomplete"
    whole.complete()
    output = response.completed(at=6)["output"]
    assert [(each["id"], each["status"]) for each in output] == [("cut", "incomplete"), ("whole", "completed")]
