"""Titles of questions, as every surface has them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hai_flow.engine.events import PendingOpened
from hai_flow.primitives.titles import humanise, title_call

ROWS = [
    ("acts.mail?", "acts.mail", '{"to": "a@example.com", "subject": "Order\\nA-7"}', "Mail: a@example.com, Order A-7?"),
    ("Send it?", "acts.mail", '{"to": "a@example.com"}', "Send it?"),
    (None, "pay", '{"amount": 99.00, "sum": 12345678901234567890, "x": {"y": 1}}', "Pay: 99.00, 12345678901234567890?"),
    ("pay?", "pay", '{"a": true, "b": null, "c": " ", "d": 1, "e": 2, "f": 3, "g": 4}', "Pay: 1, 2, 3?"),
    ("pay?", "pay", '{"a": "' + "x" * 61 + '"}', "Pay: " + "x" * 60 + "…?"),
    ("pay?", "pay", '{"o": {}, "i": {"to": {"x": 1}, "sum": 9.50}, "j": {"k": 2}}', "Pay: 9.50?"),
    ("pay?", "pay", '{"a": {"b": {"c": {"d": {"e": 1}}}}}', "Pay?"),
    ("pay?", "pay", '{"to": "# a\\u202eb\\n<b>\\u200b"}', "Pay: # a[U+202E]b <b>[U+200B]?"),
    ("send_mail?", "send_mail", None, "Send mail?"),
    ("send_mail?", "send_mail", '"[personal]"', "Send mail?"),
    ("run refund?", "run refund", '{"order": "A-1"}', "Run refund: A-1?"),
    ("POST https://a.example/pay?", "POST https://a.example/pay", '{"method": "post"}', "POST https://a.example/pay?"),
    ("", None, None, ""),
    (None, None, None, None),
]


@pytest.mark.parametrize(("title", "tool", "args", "expected"), ROWS)
def test_a_call_without_a_title_is_named_by_its_tool_and_arguments(
    title: str | None, tool: str | None, args: str | None, expected: str | None
) -> None:
    assert title_call(title, tool, args) == expected


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ('{"title": "Send  a\\nmail.", "description": "d"}', "Mail “Send a mail”: a@example.com?"),
        ('{"title": "' + "x" * 10_000 + '"}', "Mail “" + "x" * 60 + "…”: a@example.com?"),
        ('{"title": "MAIL!"}', "Mail: a@example.com?"),
        ('{"title": "”: b@example.com? “"}', "Mail “': b@example.com? '”: a@example.com?"),
        ('{"title": "# **Read**\\u202e\\u200b\\u0007"}', "Mail “# **Read**[U+202E][U+200B][U+0007]”: a@example.com?"),
        ('{"title": " "}', "Mail: a@example.com?"),
        ('{"title": {"a": 1}}', "Mail: a@example.com?"),
        ('"[personal]"', "Mail: a@example.com?"),
        (None, "Mail: a@example.com?"),
    ],
)
def test_the_title_of_a_tool_is_quoted_beside_its_name(evidence: str | None, expected: str) -> None:
    assert title_call("acts.mail?", "acts.mail", '{"to": "a@example.com"}', evidence) == expected
    assert title_call("Send it?", "acts.mail", '{"to": "a@example.com"}', evidence) == "Send it?"


def test_only_what_a_gate_has_found_out_names_its_tool() -> None:
    opened = PendingOpened(
        at=1, id="p", path="a", kind="gate", digest="d", tool="acts.mail", evidence='{"title": "Send"}'
    )
    assert (opened.heading, replace(opened, kind="doubt").heading) == ("Mail “Send”?", "Mail?")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("value_eur", "Value EUR"),
        ("askLegal", "Ask legal"),
        ("customer-id", "Customer ID"),
        ("IBAN", "IBAN"),
        ("a.b", "a.b"),
        ("__x", "__x"),
    ],
)
def test_a_name_is_read_as_words(name: str, text: str) -> None:
    assert humanise(name) == text
