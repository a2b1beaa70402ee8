"""Chat where a tenant lives in several cells: a platform calls one address, and the button names the cell of its
question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hai_flow.cells import cell_of, cell_of_address
from tests.api.test_cells import YAML, Deployment, deployed
from tests.support import cells as support
from tests.support.chats import Call, Shown, SlackPlatform
from tests.support.waiting import until

FLOW = """
hai: flow/v1
name: going
version: 1
steps:
  - {id: go, approve: {title: "Go ${{ run.id }}?", from: [role:boss], notify: [chat], deadline: 1d}}
"""


def _write_channels(platform: SlackPlatform, folder: Path) -> Path:
    channel = {"kind": platform.kind, **platform.settings(), "room": platform.room}
    people = {"user:ann": {"roles": ["boss"], "accounts": {"chat": platform.ann}}}
    file = folder / "notify.json"
    tenants = {"acme": {"channels": {"chat": channel}, "people": people}}
    file.write_text(json.dumps({"hai": "notify/v1", "hosts": ["127.0.0.1"], "tenants": tenants}))
    return file


async def _deliver(there: Deployment, platform: SlackPlatform, call: Call) -> str:
    """Deliver the call to the server. Returns the text that the person reads of it."""
    platform.whispers.clear()
    answer = await there.http.request(
        call.method, "/chat/@acme/chat", content=call.content, headers=dict(call.headers), params=dict(call.params)
    )
    assert answer.status_code == 200, answer.text
    return " ".join([platform.read_answer(answer), *(text for _, text in platform.whispers)])


@pytest.mark.costly
async def test_a_press_decides_in_the_cell_of_its_question_and_in_no_other(database_url: str, tmp_path: Path) -> None:
    platform = SlackPlatform()
    with platform.serving():
        channels = _write_channels(platform, tmp_path)
        async with (
            support.schemas(database_url, 1, 2) as (one, two),
            deployed(database_url, one, two, notify=channels, secrets=platform.secrets) as there,
        ):
            who = await there.tenant("acme", one, two)
            published = await there.http.post("/v1/workflows", content=FLOW, headers={**who, **YAML})
            assert published.status_code == 201, published.text
            runs = await _runs_in_both(there, who)
            cards = {cell: await _card_of(platform, run) for cell, run in runs.items()}
            for cell, card in cards.items():
                token = card.buttons["Approve"]
                assert cell_of_address(token) == cell
                elsewhere = f"{token.rpartition('.')[0]}.{3 - cell}"
                for wrong in (elsewhere, f"{token.rpartition('.')[0]}.9", token.rpartition(".")[0]):
                    told = await _deliver(there, platform, platform.press(card, "Approve", platform.ann, token=wrong))
                    assert "not good any more" in told or "the cell '9'" in told, told
                    assert await _votes(there, who, runs[cell]) == []
            code = (await there.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=who)).json()["code"]
            assert "Connected" in await _deliver(there, platform, platform.say("U0ADMIN", f"connect {code}"))
            for cell, card in cards.items():
                assert "started this run" in await _deliver(there, platform, platform.press(card, "Approve", "U0ADMIN"))
                told = await _deliver(there, platform, platform.press(card, "Approve", platform.ann))
                assert "Recorded, as user:ann" in told
                assert await _votes(there, who, runs[cell]) == [("user:ann", "chat")]
                again = await _deliver(there, platform, platform.press(card, "Approve", platform.ann))
                assert "Recorded" not in again
                assert "Approved by user:ann" in await until(lambda card=card: _text_of(platform, card), 60)


async def _runs_in_both(there: Deployment, who: Mapping[str, str]) -> dict[int, str]:
    runs: dict[int, str] = {}
    while len(runs) < 2:
        answer = await there.http.post("/v1/runs", json={"workflow": "going"}, headers=dict(who))
        assert answer.status_code == 201, answer.text
        runs[cell_of(UUID(answer.json()["id"]))] = answer.json()["id"]
    return runs


async def _card_of(platform: SlackPlatform, run: str) -> Shown:
    async def card() -> Shown | None:
        return next(iter(platform.of(run)), None)

    shown = await until(card, 60)
    assert shown is not None
    return shown


async def _text_of(platform: SlackPlatform, card: Shown) -> str:
    """What the card says, once it has no buttons."""
    now = platform.cards[card.id]
    return "" if now.buttons else now.text


async def _votes(there: Deployment, who: Mapping[str, str], run: str) -> list[tuple[Any, Any]]:
    page = (await there.http.get(f"/v1/runs/{run}/events", headers=dict(who))).json()
    return [(each["by"], each["via"]) for each in page["items"] if each["type"] == "vote_cast"]
