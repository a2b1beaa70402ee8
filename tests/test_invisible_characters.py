"""What people read is what is done: hidden, turning and look-alike signs are shown as codes, by one list."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.api.rest.people import links
from hai_flow.cli.console import clean, join_lines, json_text
from hai_flow.notify.channels import Email
from hai_flow.notify.chat import dingtalk, feishu, slack, teams, wecom
from hai_flow.notify.chat.cards import build_card
from hai_flow.notify.delivery import email_of
from hai_flow.notify.letters import NoticeContent, chat, letter
from hai_flow.primitives import invisible_characters
from hai_flow.wire import mcp

SAMPLES = [  # the same as in console/src/logic/signs.test.ts
    ("to \u202egpj.exe\u2066 \u200bnow", "to [U+202E]gpj.exe[U+2066] [U+200B]now"),
    ("a\ufeffb\u00adc\u061cd\u2060e", "a[U+FEFF]b[U+00AD]c[U+061C]d[U+2060]e"),
    ("\U000e0041\U000e0042hidden\u3164\u115f", "[U+E0041][U+E0042]hidden[U+3164][U+115F]"),
    ("p\u0430ypal, \u043f\u0440\u0438\u0432\u0435\u0442", "p[U+0430]ypal, \u043f\u0440\u0438\u0432\u0435\u0442"),
    ("\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 1\ufe0f\u20e3",) * 2,
    (
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 a\u200cb",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 a[U+200C]b",
    ),
    ("x\ufe0f \u2764\ufe0f\ufe0f", "x[U+FE0F] \u2764\ufe0f[U+FE0F]"),
    ("tab\tline\nend \u4e2d\u6587\u3000é",) * 2,
    ("\x1b[2J\x9b\x00", "[U+001B][2J[U+009B][U+0000]"),
]


@pytest.mark.parametrize(("text", "shown"), SAMPLES)
def test_hidden_and_look_alike_signs_are_codes_and_needed_ones_stay(text: str, shown: str) -> None:
    assert invisible_characters.reveal(text) == shown
    assert invisible_characters.has_hidden(text) == (text != shown)
    assert json.loads(invisible_characters.escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.slow
def test_every_sign_that_unicode_calls_hidden_is_in_the_list() -> None:
    hidden = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in hidden and chr(code) not in "\t\n":
            assert invisible_characters.reveal(f"a{chr(code)}b") == f"a[U+{code:04X}]b"


@given(st.text(st.characters()))
def test_the_codes_are_one_for_one_and_json_keeps_its_value(text: str) -> None:
    assert invisible_characters.reveal(invisible_characters.reveal(text)) == invisible_characters.reveal(text)
    assert json.loads(json_text({text: [text]})) == {text: [text]}


def test_the_escapes_of_json_do_not_make_a_word_of_two_scripts() -> None:
    assert json_text("\n\u043f\u0440\u0438\u0432\u0435\u0442") == '"\\n\u043f\u0440\u0438\u0432\u0435\u0442"'


def test_the_command_line_shows_codes() -> None:
    assert clean("a\u202eb\u200b\r\nc") == "a[U+202E]b[U+200B]\nc"
    assert join_lines("a\u200b\n b") == "a[U+200B] b"
    assert json_text({"to": "\u202e\u200b"}) == '{"to": "\\u202e\\u200b"}'


def write_notice(title: str, message: str | None = None) -> NoticeContent:
    return NoticeContent("opened", "p", "r", "w", "approve", title, message, None)


def _question(text: str) -> Any:
    """A question whose every text is this one."""
    opened = SimpleNamespace(
        id="call_a", heading=text, title=text, message=text, args=None, evidence=None, kind="gate", schema=None,
        digest="d", options=("approve",), tool=text, deadline=None, policy={"from": [text]},
    )  # fmt: skip
    return SimpleNamespace(opened=opened, status="open", votes=(), decided_by=None)


def _card(render: Callable[[Any], Any]) -> Callable[[str], str]:
    """What a chat shows of a question whose arguments and evidence have the text, too."""

    def show(text: str) -> str:
        question = _question(text)
        question.opened.args = question.opened.evidence = json.dumps({"to": text}, ensure_ascii=False)
        card = build_card("call_a", text, question, page=None, arguments_max=9000, shows_evidence=True)
        return "\n".join(_texts(render(card)))

    return show


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


def _mail(text: str) -> str:
    channel = Email(host="localhost", sender="flow@example.com")
    mail = email_of(channel, "n", write_notice(text, text), "ann@example.com", datetime.now(UTC))
    return f"{mail['Subject']}\n{mail.get_content()}"


def _run(text: str, *, mine: bool) -> str:
    questions = [mcp.Question(_question(text), mine, "https://flow.example.com")]
    return mcp.describe_run(mcp.RunView(cast("Any", SimpleNamespace(status="waiting")), questions, "", 0))


SURFACES: dict[str, Callable[[str], str]] = {
    "a mail": _mail,
    "a message in a chat": lambda text: chat(write_notice(text, text)),
    "a card of DingTalk": _card(dingtalk._parameters),
    "a card of Feishu": _card(feishu._content),
    "a card of Slack": _card(slack._message),
    "a card of Teams": _card(teams._activity),
    "a card of WeCom": _card(wecom._template),
    "a terminal": clean,
    "a tool's form over MCP": lambda text: str(
        mcp._request(mcp.Question(_question(text), True, "u"), forms=True, urls=True)
    ),
    "a task of MCP and A2A": lambda text: _run(text, mine=True),
    "a task that waits for others": lambda text: _run(text, mine=False),
}
HOSTILE = (
    "Pay \u202e001\u2066", "p\u0430ypal\u200b", "\x1b[2J\x1b]8;;https://evil.example\x07here\x1b]8;;\x07",
    "**x** \x9b31m \U000e0041 \u2028<script>", "\ufeff\u00ad# Approved\x08",
)  # fmt: skip


@pytest.mark.parametrize("surface", SURFACES)
def test_no_surface_shows_a_hidden_sign_of_a_title_or_message(surface: str) -> None:
    for text in HOSTILE:
        shown = SURFACES[surface](text)
        assert "[U+" in shown or "\N{REPLACEMENT CHARACTER}" in shown
        assert not invisible_characters.has_hidden(shown), text
    assert invisible_characters.WARNING not in letter(write_notice("Pay 100", "中文")).text
    assert invisible_characters.WARNING.split(",")[0] in letter(write_notice(HOSTILE[0])).text


def test_the_page_of_a_link_shows_codes_and_says_so() -> None:
    def page(args: str) -> str:
        opened = SimpleNamespace(
            title="Send?", message="to \u202ex", args=args, evidence=None, kind="gate", schema=None, digest="d",
            options=("approve",), tool=None,
        )  # fmt: skip
        link = SimpleNamespace(principal="user:a", at=datetime.now(UTC))
        return links._question("en", "w", cast("Any", link), cast("Any", SimpleNamespace(opened=opened)))

    shown = page('{"to": "\u200b\\n\u043f\u0440\u0438"}')
    assert "to [U+202E]x" in shown
    assert "\\u200b\\n\u043f\u0440\u0438" in shown
    assert 'role="note"' in shown
