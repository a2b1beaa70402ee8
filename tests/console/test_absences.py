"""Absences in the console: entered, listed, ended; their delegates, and questions that nobody is left to decide."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx2

from tests.console.browser import PHONE
from tests.console.conftest import NewPage, Picture
from tests.support.hai_client import unique
from tests.support.postgres import execute
from tests.support.server import YAML

Asked = Callable[..., dict[str, Any]]
ASKS: Final = """
hai: flow/v1
name: {name}
version: 1
steps:
  - id: ask
    approve: {{title: "May {name} begin?", from: "user:{name}", deadline: 3 working days}}
"""


async def strand(dsn: str, pending: str, why: str) -> None:
    """What the sweep of questions that nobody can decide writes, at once."""
    await execute(dsn, "UPDATE pendings SET nobody = $2, nobody_since = now() WHERE id = $1", pending, why)


def test_absences_are_entered_listed_and_ended_and_delegates_decide(
    page: NewPage, asked: Asked, http: httpx2.Client, picture: Picture
) -> None:
    ann, bob = unique("ann"), unique("bob")
    http.post("/v1/workflows", content=ASKS.format(name=ann), headers=YAML).raise_for_status()
    pending = asked(ann, "user:cat")
    shown = page(**PHONE)
    act_as = "sessionStorage.setItem('hai.act-as', %s)"
    shown.play(["addInitScript", {"content": act_as % json.dumps(f"user:{ann}")}])
    shown.goto("/console/settings")
    shown.locator("summary:has-text('Absences')").first().click()
    section = shown.locator("details[open]")
    section.words("Nobody is away.").there()
    today = datetime.now(UTC).date()
    section.label("I am away from").fill("2020-01-01")
    section.label("until the end of").fill(f"{today + timedelta(days=9)}")
    section.label("Who decides for me").fill(bob)
    section.role("button", "Add").click()
    section.locator(".field:has-text('I am away from') .error").there()
    assert section.locator("[role=alert]").count() == 1
    assert section.label("I am away from").play("getAttribute", "aria-invalid") == "true"
    assert shown.axe() == []
    section.label("I am away from").fill(f"{today + timedelta(days=1)}")
    section.label("until the end of").fill(f"{today}")
    section.role("button", "Add").click()
    section.locator(".field:has-text('until the end of') .error").there()
    section.label("I am away from").fill(shown.evaluate("new Date().toLocaleDateString('sv')"))
    section.label("until the end of").fill(f"{today + timedelta(days=9)}")
    section.label("Who decides for me").fill(ann)
    section.role("button", "Add").click()
    section.locator(".field:has-text('Who decides for me') .error").there()
    section.label("Who decides for me").fill(bob)
    section.role("button", "Add").click()
    section.words(f"You are away; {bob} decides for you").there()
    assert section.locator(".error").count() == 0
    section.words("You are away").play("scrollIntoViewIfNeeded")
    picture(shown, "absences")

    shown.play(["addInitScript", {"content": act_as % json.dumps(f"user:{bob}")}])
    shown.goto("/console/inbox")
    row = shown.locator(f"li:has-text('May {ann} begin?')")
    row.words(f"for {ann}").there()
    shown.goto(f"/console/decide/{pending['id']}")
    assert "3 working days" in shown.locator("article header").there().text()
    assert shown.label("On behalf of").play("innerText") == ann

    shown.play(["addInitScript", {"content": act_as % json.dumps(f"user:{ann}")}])
    shown.goto("/console/settings")
    shown.locator("summary:has-text('Absences')").first().click()
    section.role("button", "End").click()
    section.words("Nobody is away.").there()


def test_an_undecidable_question_says_why_in_list_page_and_overview(
    page: NewPage, asked: Asked, http: httpx2.Client, server_dsn: str, picture: Picture
) -> None:
    ann = unique("ann")
    http.post("/v1/workflows", content=ASKS.format(name=ann), headers=YAML).raise_for_status()
    day = datetime.now(UTC).date()
    body = {"first_day": f"{day}", "last_day": f"{day + timedelta(days=9)}"}
    away = http.post("/v1/absences", json=body, headers={"HAI-Act-As": f"user:{ann}"}).raise_for_status().json()
    pending = asked(ann, "user:cat")
    asyncio.run(
        strand(server_dsn, pending["id"], f"user:{ann} is away until {away['last_day']} and has not named a delegate")
    )
    shown = page(colorScheme="dark").goto("/console/overview")
    shown.locator("ul.faults li:has-text('can be decided by nobody') a").click()
    shown.locator(f"li:has-text('May {ann} begin?') .tag:has-text('nobody can decide')").there()
    shown.goto(f"/console/inbox/{pending['id']}?view=all")
    shown.words(f"{ann} is away until").there()
    shown.locator(f"li:has-text('May {ann} begin?')").first().there()
    picture(shown, "nobody")
    assert shown.axe() == []
    http.delete(f"/v1/absences/{away['id']}").raise_for_status()
    http.post(
        f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}, headers={"HAI-Act-As": f"user:{ann}"}
    )
