"""SSE bytes and cursors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.wire import sse
from hai_flow.wire.sent_json import dump
from hai_flow.wire.sse import Cursor, event_bytes, parse_cursor
from tests.wire.stories import RUN, TEXTS

INJECTIONS = ["a\nb", "a\r\nb", "a\rb", "x\n\ndata: {}", "\n", "\r", "\x00", "5\nevent: evil"]


def test_an_event_is_written_with_line_feeds_only():
    assert event_bytes(b"{}") == b"data: {}\n\n"
    assert event_bytes(b"{}", id="7", event="step_started") == b"id: 7\nevent: step_started\ndata: {}\n\n"
    assert sse.KEEP_ALIVE == b": keep-alive\n\n"


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_breaks_out_of_its_line(text):
    with pytest.raises(ValueError, match="one line"):
        event_bytes(b"{}", id=text)
    with pytest.raises(ValueError, match="one line"):
        event_bytes(b"{}", event=text)
    if "\x00" not in text:
        with pytest.raises(ValueError, match="one line"):
            event_bytes(text.encode())


@given(TEXTS | st.sampled_from([*INJECTIONS, "\u2028", "\u2029", "\x85", "\x0b\x0c\x1c\x1d\x1e"]))
def test_any_text_stays_in_one_line_for_every_kind_of_reader(text):
    data = dump({"a": text, text: 1})
    lines = event_bytes(data).decode().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0].removeprefix("data: ")) == {"a": text, text: 1}


@given(st.integers(0, 10**15 - 1), st.integers(0, 10**15 - 1))
def test_a_cursor_reads_back(seq, frame):
    cursor = Cursor(RUN, "hai-1", seq, frame)
    assert parse_cursor(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        f"{RUN}.hai-1.5",
        f"{RUN}.hai-1.5.0.0",
        f"{RUN}.hai-1.05.0",
        f"{RUN}.hai-1.-5.0",
        f"{RUN}.hai-1.5.0\n",
        f" {RUN}.hai-1.5.0",
        f"{RUN}.hai-1.٥.0",
        f"{RUN}.HAI.5.0",
        f"{RUN.upper()}.hai-1.5.0",
        f"{RUN[:-1]}.hai-1.5.0",
        f"{RUN}.hai-1.{'9' * 16}.0",
        f"{RUN}..5.0",
    ],
)
def test_a_cursor_in_any_other_spelling_is_refused(text):
    with pytest.raises(ValueError, match="expected a cursor"):
        parse_cursor(text)
