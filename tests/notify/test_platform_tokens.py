"""Tokens of chat platforms: read from an answer, kept while they last."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.notify.chat.base import PlatformToken, read_token
from hai_flow.notify.chat.contract import NotSent, Response


def read(body: Any, status: int = 200) -> tuple[str, float]:
    return read_token("chatty", Response(status, body), "token", "lasts", "code")


def test_a_token_is_read_with_its_seconds() -> None:
    assert read({"token": "t", "lasts": 7200}) == ("t", 7200.0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "503"),
        ({"code": 99991663}, "99991663"),
        ({"code": "forbidden"}, "forbidden"),
        ({"token": "", "lasts": 7200, "code": 1}, "1"),
        ({"token": "t", "lasts": "7200"}, "503"),
        ({"token": ["t"], "lasts": 7200}, "503"),
    ],
)
def test_an_answer_without_a_token_is_a_failed_try_with_its_reason(body: Any, reason: str) -> None:
    with pytest.raises(NotSent, match=f"^chatty gives no token: {reason}$"):
        read(body, status=503)


async def test_a_token_is_got_once_while_it_lasts_and_again_when_it_was_refused() -> None:
    tokens = iter(["a", "b"])

    async def get() -> tuple[str, float]:
        return next(tokens), 7200.0

    token = PlatformToken(get)
    assert [await token.text(), await token.text()] == ["a", "a"]
    token.forget()
    assert await token.text() == "b"
