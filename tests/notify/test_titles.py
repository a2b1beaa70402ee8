"""Titles of questions in letters, in chats and on the page of a link: those that the console composes."""

from __future__ import annotations

import pytest

from hai_flow.primitives.titles import humanise, title_call

ROWS = [
    ("acts.mail?", "acts.mail", '{"to": "a@example.com", "subject": "Order\\nA-7"}', "Mail: a@example.com, Order A-7?"),
    ("Send it?", "acts.mail", '{"to": "a@example.com"}', "Send it?"),
    (None, "pay", '{"amount": 99.00, "sum": 12345678901234567890, "x": {"y": 1}}', "Pay: 99.00, 12345678901234567890?"),
    ("pay?", "pay", '{"a": true, "b": null, "c": " ", "d": 1, "e": 2, "f": 3, "g": 4}', "Pay: 1, 2, 3?"),
    ("pay?", "pay", '{"a": "' + "x" * 61 + '"}', "Pay: " + "x" * 60 + "…?"),
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
