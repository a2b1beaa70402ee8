"""Markdown that agents and clients write can't be more than text: not in the console, in letters nor in terminals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import pytest

from hai_flow.notify.letters import NoticeContent, letter
from tests.console.conftest import NewPage, pending_of
from tests.console.conftest import built as built
from tests.console.conftest import driver as driver
from tests.console.conftest import models as models
from tests.console.conftest import page as page
from tests.console.conftest import server as server
from tests.console.conftest import server_dsn as server_dsn
from tests.support.examples import by_night
from tests.support.server import YAML, ServerProcess

HOSTILE: Final = {
    "a script": "<script>alert(1)</script> <img src=x onerror=alert(1)>",
    "a scheme": "[pay](javascript:alert(1)) [pay](JaVaScRiPt:alert(1)) [pay](data:text/html,x) [pay](vbscript:x)",
    "an image of elsewhere": "![pixel](https://evil.example/p.png) ![p][r]\n\n[r]: https://evil.example/p.png",
    "a host that is another": "[bank.example](https://bank.example@evil.example/)",
    "a quote in an address": '[x](https://a.example/"onmouseover="alert(1))',
    "a hidden comment": "[//]: # (hidden) <!-- hidden -->\n\n[hidden]: https://a.example 'hidden'",
    "deep": "> " * 3000 + "x\n" + "- " * 3000 + "y",
    "emphasis": "*a **b " * 3000,
    "a table": "|a|b|\n|-|-|\n" + "|x|y|z|\n" * 500,
    "turned": "**\u202egpj.exe** [x](https://a.example/\u202e)",
}
FLOW: Final = b"""
hai: flow/v1
name: hostile_markdown
version: 1
input: {type: object, properties: {text: {type: string}}}
steps:
  - say: "${{ input.text }}"
  - approve: {from: anyone, title: Read it?, message: "${{ input.text }}", evidence: "${{ input.text }}"}
"""


@pytest.fixture
def ask(server: ServerProcess) -> Callable[[str], dict[str, Any]]:
    def begin(text: str) -> dict[str, Any]:
        with httpx2.Client(base_url=server.url, timeout=60) as http:
            assert http.post("/v1/workflows", content=FLOW, headers=YAML).status_code in (200, 201)
            run = http.post(
                "/v1/runs", json={"workflow": "hostile_markdown", "input": {"text": text}}
            ).raise_for_status()
            return pending_of(http, run.json()["id"])

    return begin


LONG: Final = ("deep", "emphasis", "a table")
TOGETHER: Final = "\n\n".join(text for name, text in HOSTILE.items() if name not in LONG)


@pytest.mark.costly
@pytest.mark.parametrize("name", by_night(("all that are short", *HOSTILE), ("all that are short", *LONG)))
def test_hostile_markdown_is_text_and_links_that_say_their_host(
    page: NewPage, ask: Callable[[str], dict[str, Any]], name: str
) -> None:
    pending = ask(HOSTILE.get(name, TOGETHER))
    for path in (f"/console/decide/{pending['id']}", f"/console/runs/{pending['run_id']}"):
        shown = page(viewport={"width": 390, "height": 844}).goto(path)
        shown.locator(".markdown").first().there()
        assert (
            shown.evaluate("document.querySelectorAll('#root script, #root img, #root iframe, #root style').length")
            == 0
        )
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        links = shown.evaluate(
            "[...document.querySelectorAll('.markdown a')].map((each) =>"
            " [each.protocol, each.host, each.nextElementSibling?.innerText ?? '', each.rel,"
            " each.getAttributeNames().join()])"
        )
        for protocol, host, said, rel, names in links:
            assert protocol in ("https:", "http:", "mailto:")
            assert said == f"({host})"
            assert "noopener" in rel
            assert "onmouseover" not in names
        assert "hidden" in shown.locator(".markdown").first().text() or name not in (
            "a hidden comment",
            "all that are short",
        )
        assert not shown.evaluate("/[\\u202e]/.test(document.body.innerText)")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markdown_makes_no_link_in_a_letter(name: str) -> None:
    told = NoticeContent(
        "opened", "call_a", "run", "refund", "approve", "Title", HOSTILE[name], datetime(2026, 3, 2, tzinfo=UTC)
    )
    text = letter(told).text
    assert "https://" not in text
    assert "evil.example" not in text
    assert all(line.startswith(">") for line in text.splitlines() if "alert" in line)
