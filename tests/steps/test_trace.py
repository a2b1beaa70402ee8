"""Where a tool failed, as operators are told it."""

from __future__ import annotations

import pytest

from hai_flow.steps.python.trace import CHARS_MAX, text_of, trace_of


def failing(secret: str) -> None:
    password = secret + "!"
    raise ValueError("the till is locked" if password else "")


def caught(function: object, *arguments: object) -> BaseException:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 whatever it is
        function(*arguments)  # type: ignore[operator]
    return raised.value


def test_it_names_the_line_and_what_was_said_but_no_values() -> None:
    told = trace_of(caught(failing, "hunter2"))
    assert 'raise ValueError("the till is locked"' in told
    assert told.endswith("ValueError: the till is locked")
    assert "hunter2" not in told


def test_it_is_bounded_and_keeps_the_end() -> None:
    def deep(n: int) -> None:
        try:
            deep(n - 1) if n else failing("x")
        except ValueError as error:
            raise ValueError("again " * 40) from error

    told = trace_of(caught(deep, 40))
    assert len(told) == CHARS_MAX
    assert told.rstrip().endswith("again")


def test_it_can_be_stored_whatever_the_exception_says() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def broken() -> None:
        raise Broken

    def odd() -> None:
        raise ValueError("\x00 \ud800")

    assert "Broken" in trace_of(caught(broken))
    assert text_of(caught(broken)) == "Broken: (its text can't be shown: RuntimeError)"
    assert trace_of(caught(odd)).endswith("ValueError: \ufffd \ufffd")
