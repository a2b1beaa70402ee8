"""The messages as servers take them, and their tokens as scripts have them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.models.conversation import EMPTY_MESSAGE, EMPTY_RESULT, arrange
from hai_flow.models.providers.presets import PRESETS
from hai_flow.models.tokens import cut_to, tokens_of
from hai_flow.models.vocabulary import Call, Message, Tool

CALL = Call("c", "add", "{}")


def told(messages: list[Message], *, alternate: bool = True) -> list[tuple[str, Any]]:
    return [(each.role, each.content) for each in arrange(messages, alternate=alternate)]


def test_no_message_without_content_is_sent() -> None:
    given = [
        Message("system", " "),
        Message("user", ""),
        Message("assistant", ""),
        Message("assistant", "", (CALL,)),
        Message("tool", "", call_id="c"),
        Message("user", [{"type": "text", "text": ""}]),
    ]
    assert told(given, alternate=False) == [
        ("user", EMPTY_MESSAGE),
        ("assistant", ""),
        ("tool", EMPTY_RESULT),
        ("user", EMPTY_MESSAGE),
    ]


def test_a_picture_alone_is_content() -> None:
    picture = {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}}
    assert told([Message("user", [picture])]) == [("user", [picture])]


def test_neighbours_of_one_role_are_joined_where_the_server_needs_it() -> None:
    given = [
        Message("user", "Hello"),
        Message("user", "are you there?"),
        Message("assistant", "Yes."),
        Message("assistant", "What is it?"),
        Message("user", [{"type": "text", "text": "This"}]),
        Message("user", "!"),
    ]
    assert told(given) == [
        ("user", "Hello\n\nare you there?"),
        ("assistant", "Yes.\n\nWhat is it?"),
        ("user", [{"type": "text", "text": "This"}, {"type": "text", "text": "!"}]),
    ]
    assert len(told(given, alternate=False)) == 6
    assert [name for name, preset in PRESETS.items() if preset.quirks.alternate] == ["vllm", "ollama", "llamacpp"]


def test_results_and_calls_stand_for_themselves() -> None:
    given = [
        Message("assistant", "I add.", (CALL,)),
        Message("assistant", "And", (CALL,)),
        Message("tool", "1", call_id="c"),
        Message("tool", "2", call_id="c"),
    ]
    assert arrange(given, alternate=True) == given


def test_an_answer_that_was_dropped_lets_its_neighbours_meet() -> None:
    assert told([Message("user", "A"), Message("assistant", ""), Message("user", "B")]) == [("user", "A\n\nB")]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd", 1),
        ("abcde", 2),
        ("\u4f60\u597d\u4e16\u754c", 4),
        ("\u3053\u3093", 2),
        ("\uc548\ub155", 2),
        ("\u043f\u0440\u0438\u0432\u0435\u0442", 3),
        ("caf\u00e9", 1),
        ("ab \u4f60", 2),
        ("\u2192\u2192\u2460\u2014", 2),
    ],
)
def test_tokens_are_counted_as_scripts_have_them(text: str, tokens: int) -> None:
    assert tokens_of(text) == tokens


@given(st.text(max_size=300), st.integers(1, 100))
def test_a_text_is_cut_to_about_so_many_tokens(text: str, most: int) -> None:
    cut = cut_to(text, most)
    assert text.startswith(cut)
    assert cut == text or tokens_of(text) > most


def test_the_schemas_of_tools_count() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string", "description": "x" * 400}}}
    assert Tool("search", "Searches.", schema).tokens > 100


def test_names_and_arguments_of_calls_count() -> None:
    assert Message("assistant", "", (Call("c", "add", "x" * 40),)).tokens >= 10
