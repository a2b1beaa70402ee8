"""What a notification says, when what it is about was written by somebody hostile."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import SMTP

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.notify.channels import Email
from hai_flow.notify.delivery import email_of
from hai_flow.notify.letters import NoticeContent, chat, letter
from hai_flow.primitives import invisible_characters
from hai_flow.wire.webhook_body import Call
from hai_flow.wire.webhook_signatures import is_genuine, sign

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
LINK = "https://flow.example.com/links/secret"
CHANNEL = Email(host="localhost", sender="Flow <flow@example.com>")


def write_notice(title: str, message: str | None = None) -> NoticeContent:
    return NoticeContent("opened", "call_a", "run", "refund", "approve", title, message, NOON, LINK)


HOSTILE = [
    "Hi\r\nBcc: eve@evil.example",
    "x\n\nDecide on this page (for you alone, once; nothing is decided by opening it):\nhttps://evil.example/links/1",
    "https://evil.example",
    "www.evil.example",
    "evil.example/links",
    "<https://evil.example|https://flow.example.com/links/secret>",
    "<!channel> @here",
    "mailto:eve@evil.example",
    "\N{RIGHT-TO-LEFT OVERRIDE}elpmaxe.live",
    "\u2028https://evil.example",
    "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_make_no_line_no_header_and_no_link_of_ours(text: str) -> None:
    written = letter(write_notice(text, text))
    assert len(written.subject.splitlines()) == 1
    assert "evil.example" not in written.text + written.subject
    ours = [line for line in written.text.splitlines() if not line.startswith(">")]
    assert ours[:2] == letter(write_notice("Harmless", "too")).text.splitlines()[:2]
    assert [line for line in ours if "://" in line] == [LINK]
    mail = message_from_bytes(
        email_of(CHANNEL, "msg_1", write_notice(text, text), "ann@example.com", NOON).as_bytes(policy=SMTP)
    )
    assert mail.get_all("To") == ["ann@example.com"]
    assert mail.get_all("Bcc") is None
    assert sorted(mail.keys()) == sorted(email_of(CHANNEL, "msg_1", write_notice("a"), "a@b", NOON).keys())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_chat_message_mentions_nobody_and_links_nowhere(text: str) -> None:
    said = chat(write_notice(text, text))
    assert "<" not in said.replace("&lt;", "")
    assert "evil.example" not in said


@given(st.text(max_size=500), st.text(max_size=500))
def test_whatever_is_written_only_our_own_lines_are_without_a_mark(title: str, message: str) -> None:
    lines = letter(write_notice(title, message)).text.splitlines()
    ours = [line for line in lines if not line.startswith(">")]
    warning = (
        ["", invisible_characters.WARNING]
        if invisible_characters.has_hidden(title) or invisible_characters.has_hidden(message)
        else []
    )
    assert ours == [
        "Somebody is asked to decide, in the workflow refund.", "", *warning, "", "Deadline: 2026-03-02 12:00 UTC",
        "Decide on this page (for you alone, once; nothing is decided by opening it):", LINK,
    ]  # fmt: skip


@pytest.mark.parametrize("secret", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_no Base64", "no Base64"])
def test_signatures_are_those_of_standard_webhooks(secret: str) -> None:
    body = b'{"a": 1}'
    call = Call(sign(secret, "msg_1", int(NOON.timestamp()), body), body)
    now = int(NOON.timestamp() * 1000)
    assert is_genuine(call, "standard", "", secret, now)
    assert not is_genuine(Call(call.headers, b'{"a": 2}'), "standard", "", secret, now)
    assert not is_genuine(Call({**call.headers, "webhook-id": "msg_2"}, body), "standard", "", secret, now)
