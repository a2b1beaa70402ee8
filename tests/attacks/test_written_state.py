"""State that somebody writes who may only answer: it counts no more than any other that nobody asked for."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import pytest

from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import HaiClient, answer, user
from tests.support.server import YAML, ServerProcess

CHILD: Final = """
hai: flow/v1
name: payee_below
version: 1
state: {note: {type: string, default: none, client: true}}
steps: [{id: ask, approve: {title: Pay?, from: anyone}}]
output: ${{ state.note }}
"""
PAYEE: Final = """
hai: flow/v1
name: payee
version: 1
state: {account: {type: string, default: of the requester, client: true}}
steps:
  - {id: sub, run: payee_below}
  - {id: ask, approve: {title: Pay?, from: anyone}}
output: {account: "${{ state.account }}", note: "${{ steps.sub.output }}"}
"""
EVE: Final = {"HAI-Act-As": "user:eve"}
POSTED: Final = {"account": "of eve", "note": "of eve"}


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    for text in (CHILD, PAYEE):
        assert httpx2.post(f"{server.url}/v1/workflows", content=text, headers=YAML).status_code in (200, 201)


def output_of(server: ServerProcess, thread_id: str) -> Any:
    runs = httpx2.get(f"{server.url}/v1/runs", params={"thread_id": thread_id}).json()["items"]
    (root,) = [each["id"] for each in runs if each["workflow"] == "payee"]
    return httpx2.get(f"{server.url}/v1/runs/{root}/snapshot").json()["output"]


@pytest.mark.parametrize("who", ["requester", "eve"])
def test_the_state_that_an_approver_posts_over_ag_ui_is_not_read(server: ServerProcess, who: str) -> None:
    requester = AguiClient(server.url, workflow="payee")
    headers = EVE if who == "eve" else {}
    client = AguiClient(server.url, requester.thread_id, workflow="payee", headers=headers)
    requester.post(user("go"))
    for _ in range(2):  # first the run below asks, then the thread's own
        (interrupt,) = client.post().interrupts()
        answered = client.post(resume=[resolved(interrupt, {"approved": True})], state=POSTED)
        assert answered.status == 200
    expected = {"account": "of the requester", "note": "none"} if who == "eve" else POSTED
    assert output_of(server, requester.thread_id) == expected


def test_the_state_that_an_approver_posts_over_hai_is_not_even_judged(server: ServerProcess) -> None:
    requester = HaiClient(server.url, workflow="payee")
    requester.post(user("go"))
    eve = HaiClient(server.url, requester.thread_id, workflow="payee", headers=EVE)
    for _ in range(2):
        (interrupt,) = AguiClient(server.url, requester.thread_id, workflow="payee", headers=EVE).post().interrupts()
        given = eve.post(answer(interrupt["id"], "confirmed"), state={"account": 5, "note": []})
        assert given.status == 200
    assert output_of(server, requester.thread_id) == {"account": "of the requester", "note": "none"}
