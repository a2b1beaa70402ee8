"""Cassettes: recorded from a service and a model on real sockets, then played without them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.runtime.test_models import catalogue
from tests.support.models import Answer, FakeModels, spoken
from tests.support.service import Received, Reply, Service
from tests.testing.test_cli import call

CANARY = "canary-31f07"
FLOW = """\
hai: flow/v1
name: stock
version: 1
input: {type: object, properties: {item: {type: string}}}
tools: {shop: {python: acme.shop, effect: read}}
models: {smart: {use: smart}}
steps:
  - id: look
    http: {get: "URL/stock/${{ input.item }}", headers: {X-Key: "${{ secrets.TOKEN }}"}}
    retry: {max: 2, every: 1s}
  - id: say
    llm: {model: smart, prompt: "Say that ${{ steps.look.output.json.n }} are left.", output: {type: object}}
  - id: agent
    agent: {model: smart, prompt: "How many?", tools: [shop.count]}
output: {n: "${{ steps.look.output.json.n }}", said: "${{ steps.say.output.said }}", last: "${{ steps.agent.output }}"}
"""
TEST = """\
hai: test/v1
workflow: stock.flow.yaml
mock:
  shop.count: {output: 3}
cases:
  - name: tea is left
    input: {item: tea}
    expect: {status: finished, output: {n: 3, said: three, last: Three.}, calls: {look: 2, agent: 1, shop.count: 1}}
  - name: all is mocked
    input: {item: milk}
    mock:
      GET */stock/milk: {output: {json: {n: 1}}}
      say: {output: {said: one}}
      agent: {text: One.}
    expect: {status: finished, output: {n: 1, said: one, last: One.}, calls: {"GET */stock/*": 1, "POST *": 0}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stock.test.yaml").write_text(TEST)
    return tmp_path


def answers() -> list[Any]:
    wanted = Answer("", calls=(("shop_count", "{}"),))
    return [spoken(Answer('{"said": "three"}')), spoken(wanted), spoken(Answer("Three."))]


async def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[Result, int]:
    """The tests with what services and models said to them, and how often the service was asked."""
    asked = 0

    def reply(received: Received) -> Reply:
        nonlocal asked
        asked += 1
        if asked == 1:
            return Reply(503, b"{}", headers=(("X-Echo", CANARY),))
        said = {"n": 3, "you": received.headers["x-key"]}
        return Reply(200, json.dumps(said).encode())

    monkeypatch.setenv("HAI_FLOW_SECRET_TOKEN", CANARY)
    monkeypatch.setenv("HAI_FLOW_SECRET_K", "sk-canary")
    monkeypatch.setenv("HAI_FLOW_HTTP_HOSTS", "127.0.0.1")
    monkeypatch.setenv("HAI_FLOW_TOOLS", "tests.testing.shop")
    async with Service(reply) as service, FakeModels(*answers()) as fake:
        monkeypatch.setenv("HAI_FLOW_MODELS", str(catalogue(folder, fake)))
        flow = FLOW.replace("URL", service.url().rstrip("/")).replace("acme.shop", "tests.testing.shop")
        (folder / "stock.flow.yaml").write_text(flow)
        return await asyncio.to_thread(call, folder, "--record", *options), asked


async def test_what_was_recorded_is_played_without_the_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = await recorded(folder, monkeypatch)
    assert result.exit_code == 0, result.output
    assert asked == 2
    written = (folder / "stock.cassette.json").read_text()
    assert CANARY not in written
    assert "sk-canary" not in written
    exchanges = json.loads(written)["exchanges"]
    assert [(each["kind"], "error" in each) for each in exchanges] == [
        ("http", True), ("http", False), ("llm", False), ("agent", False), ("agent", False)
    ]  # fmt: skip
    assert {each["case"] for each in exchanges} == {"tea is left"}
    assert exchanges[0]["request"]["headers"] == {"X-Key": "${{ secrets.TOKEN }}"}
    for name in ("HAI_FLOW_SECRET_TOKEN", "HAI_FLOW_SECRET_K", "HAI_FLOW_MODELS", "HAI_FLOW_HTTP_HOSTS"):
        monkeypatch.delenv(name)
    played = call(folder)
    assert played.exit_code == 0, played.output
    assert (folder / "stock.cassette.json").read_text() == written


async def test_a_request_that_was_not_recorded_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(folder, monkeypatch)
    flow = (folder / "stock.flow.yaml").read_text()
    (folder / "stock.flow.yaml").write_text(flow.replace("are left", "are there"))
    result = call(folder, "-k", "tea")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "step `say`" in said
    assert 'has no answer to this request: {"model":"smart","prompt":"Say that 3 are there."' in said
    assert "hai-flow test --record" in said


async def test_a_request_that_is_made_once_more_than_it_was_recorded_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(folder, monkeypatch)
    flow = (folder / "stock.flow.yaml").read_text()
    again = '  - id: again\n    llm: {model: smart, prompt: "Say that 3 are left.", output: {type: object}}\n'
    (folder / "stock.flow.yaml").write_text(flow.replace("  - id: agent\n", again + "  - id: agent\n"))
    result = call(folder, "-k", "tea")
    assert "has this request once, and here it is made once more" in " ".join(result.output.split())


async def test_a_case_that_fails_keeps_what_was_recorded_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(folder, monkeypatch)
    before = (folder / "stock.cassette.json").read_text()
    (folder / "stock.test.yaml").write_text(TEST.replace("{n: 3, said: three", "{n: 4, said: three"))
    result, asked = await recorded(folder, monkeypatch)
    assert (result.exit_code, asked) == (1, 2)
    assert (folder / "stock.cassette.json").read_text() == before


def test_without_a_cassette_the_hint_names_the_way_to_one(folder: Path) -> None:
    (folder / "stock.flow.yaml").write_text(FLOW.replace("URL", "https://x.example"))
    result = call(folder, "-k", "tea")
    assert "which is not mocked" in result.output
    assert "hai-flow test --record" in " ".join(result.output.split())
    assert not (folder / "stock.cassette.json").exists()


def test_a_file_that_is_no_cassette_is_a_finding(folder: Path) -> None:
    (folder / "stock.flow.yaml").write_text(FLOW.replace("URL", "https://x.example"))
    (folder / "stock.cassette.json").write_text('{"hai": "cassette/v9"}')
    result = call(folder)
    assert result.exit_code == 2
    assert "is no cassette" in result.output


def test_a_request_is_no_name_in_a_workflow_that_asks_no_service(tmp_path: Path) -> None:
    (tmp_path / "a.flow.yaml").write_text("hai: flow/v1\nname: a\nversion: 1\nsteps: [{say: hi}]\n")
    text = "hai: test/v1\nworkflow: a.flow.yaml\nmock: {GET *: {output: {}}}\ncases: [{name: x}]\n"
    (tmp_path / "a.test.yaml").write_text(text)
    assert "no step of the workflow performs `GET *`" in call(tmp_path).output
