"""`run`: what it tells of models that others stand in for, and workflows that a server has, by their names."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.models import Answer, FakeModels, spoken

ASKS = """
hai: flow/v1
name: asks
version: 1
models: {smart: {provider: openai, base_url: http://127.0.0.1:9/v1, model: gpt, api_key: "${{ secrets.OPENAI }}"}}
steps:
  - {id: first, llm: {model: smart, prompt: Tea?}}
  - {id: second, llm: {model: smart, prompt: Milk?}}
output: ${{ steps.second.output }}
"""
KEYLESS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_MODEL": ""}


@pytest.fixture
def asks(tmp_path: Path) -> str:
    flow = tmp_path / "asks.flow.yaml"
    flow.write_text(ASKS)
    return str(flow)


def warnings_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if "in its place" in line]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_script_that_answers_for_a_model_is_told_once_with_what_is_missing(
    database_url: str, asks: str, more: tuple[str, ...]
) -> None:
    ended = run("run", asks, *more, HAI_FLOW_DATABASE_URL=database_url, **KEYLESS)
    assert ended.returncode == 0, ended.stderr
    assert warnings_in(ended.stderr) == [
        "The model `smart` is not asked, a script answers in its place: the secret `OPENAI` is not there: "
        "HAI_FLOW_SECRET_OPENAI is not set."
    ]
    assert "model_stands_in" not in ended.stderr
    assert warnings_in(ended.stdout) == []
    if more:
        assert json.loads(ended.stdout)["output"].startswith("(Scripted model")


async def test_a_model_that_answers_for_another_is_told_without_its_key(database_url: str, asks: str) -> None:
    async with FakeModels(spoken(Answer("Real."))) as fake:
        settings = {"OPENAI_API_KEY": "sk-of-the-environment", "OPENAI_BASE_URL": fake.url, "OPENAI_MODEL": "other"}
        ended = await asyncio.to_thread(run, "run", asks, "--json", HAI_FLOW_DATABASE_URL=database_url, **settings)
    assert json.loads(ended.stdout)["output"] == "Real."
    (line,) = warnings_in(ended.stderr)
    assert "`smart` is not asked, openai/gpt, with the key in OPENAI_API_KEY, answers in its place: " in line
    assert "HAI_FLOW_SECRET_OPENAI is not set" in line
    assert "sk-of-the-environment" not in ended.stdout + ended.stderr


def test_nothing_is_told_of_a_model_that_is_asked_itself(database_url: str, asks: str) -> None:
    ended = run("run", asks, HAI_FLOW_DATABASE_URL=database_url, HAI_FLOW_SECRET_OPENAI="sk-own", **KEYLESS)
    assert warnings_in(ended.stderr) == []
    assert "Scripted model" not in ended.stdout
