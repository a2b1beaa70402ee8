"""Agents of other frameworks, with their real packages, ask people before they act: approve, deny, edit, expire, killed
while waiting, and a digest that differs (docs/approvals.md)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.client.test_adapters import House
from tests.clients import rig, typescript
from tests.support.examples import by_night
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import ROOT, YAML, serving

PROJECT: Final = Path(__file__).resolve().parent / "frameworks"
AI_SDK: Final = PROJECT.parent / "ai_sdk"
FRAMEWORKS: Final = ("openai_agents", "langchain", "langchain_per_call", "langgraph", "pydantic_ai", "ai_sdk")
SWAPS: Final = b"""
hai: flow/v1
name: swaps
version: 1
input:
  type: object
  required: [action, arguments]
  properties: {action: {type: string}, arguments: {type: object}}
tools:
  built_in: {python: hai_flow.steps.built_in, effect: read}
  consume:
    frontend:
      description: The agent acts, once
      parameters: {type: object, properties: {action: {type: string}, arguments: {type: object}}}
      result: {type: object}
      deadline: 1h
steps:
  - id: granted
    call: built_in.grant
    with: {action: "${{ input.action }}", arguments: "${{ input.arguments }}"}
    approval: {from: "role:boss", deadline: 1d}
  - call: consume
    with: {action: "another", arguments: "${{ input.arguments }}"}
"""


class Agents(House):
    """Agents of all frameworks, each in a process with the real package."""

    def __init__(self, url: str, people: People, directory: Path) -> None:
        super().__init__(url, people)
        self.processes: list[subprocess.Popen[str]] = []
        python = [str(rig.python_packages(PROJECT) / "bin" / "python"), str(PROJECT / "agent.py")]
        self.commands = {each: [*python, each] for each in FRAMEWORKS}
        self.ai_sdk = beside_the_ai_sdk(directory)
        self.commands["ai_sdk"] = [rig.node(), str(self.ai_sdk / "agent.mjs")]

    def start(self, framework: str, directory: Path, calls: list[Any], **plan: Any) -> subprocess.Popen[str]:
        """The process of an agent that makes these calls. Its directory is what a later one goes on from."""
        whole = {"calls": calls, "policy": {"from": ["role:boss"], "edit": True}, **plan}
        process = subprocess.Popen(
            [*self.commands[framework], str(directory), self.url, self.key, json.dumps(whole)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        self.processes.append(process)
        return process

    def run(self, framework: str, directory: Path, calls: list[Any], **plan: Any) -> str:
        return output_of(self.start(framework, directory, calls, **plan))


def beside_the_ai_sdk(directory: Path) -> Path:
    """A directory with the agent, the example of the page, the AI SDK, and our package as it would be installed."""
    packages = rig.npm_packages(AI_SDK)
    for name in ("agent.mjs", "types.ts"):
        shutil.copy(AI_SDK / name, directory)
    [example] = re.findall(r"```ts\n(.*?)```", (ROOT / "docs" / "approvals.md").read_text(), re.DOTALL)
    (directory / "example.ts").write_text(example)
    (directory / "package.json").write_text('{"type": "module"}')
    modules = directory / "node_modules"
    modules.mkdir()
    for package in (packages / "node_modules").iterdir():
        (modules / package.name).symlink_to(package)
    (modules / "hai-client").symlink_to(typescript.built(directory))
    return directory


@pytest.fixture(scope="module")
def agents(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as server:
        people = People(dsn)
        agents = Agents(server.url, people, tmp_path_factory.mktemp("agents"))
        author = {**YAML, "Authorization": f"Bearer {people.key('user:author', roles=['publisher'])[1]}"}
        published = httpx2.post(f"{server.url}/v1/workflows", content=SWAPS, headers=author)
        assert published.status_code == 201, published.text
        yield agents
        agents.boss.close()


@pytest.fixture(autouse=True)
def none_left(agents: Agents) -> Iterator[None]:
    """A test that fails leaves no process."""
    yield
    while agents.processes:
        process = agents.processes.pop()
        if process.returncode is None:
            process.kill()
            process.communicate()


def answer_of(process: subprocess.Popen[str]) -> dict[str, str]:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    answer: dict[str, str] = json.loads(out.splitlines()[-1])
    return answer


def output_of(process: subprocess.Popen[str]) -> str:
    answer = answer_of(process)
    assert "output" in answer, answer
    return answer["output"]


def performed(directory: Path) -> list[Any]:
    file = directory / "performed"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def transfer(amount: int) -> list[Any]:
    return ["transfer", {"amount": amount, "to": "DE"}]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_edited_call_is_performed_as_edited_and_a_rejected_one_is_not(
    agents: Agents, framework: str, tmp_path: Path
) -> None:
    process = agents.start(framework, tmp_path, [transfer(820_000), ["wipe", {"path": "/"}]])
    agents.decide("transfer", "approve", edits={"arguments": {"amount": 82, "to": "FR"}})
    agents.decide("wipe", "reject", reason="not on Fridays")
    assert "not on Fridays" in output_of(process)
    assert performed(tmp_path) == [["transfer", {"amount": 82, "to": "FR"}]]


@pytest.mark.parametrize("framework", by_night(FRAMEWORKS, ("langchain", "ai_sdk")))
def test_what_nobody_decides_in_time_is_not_performed(agents: Agents, framework: str, tmp_path: Path) -> None:
    assert "expired" in agents.run(framework, tmp_path, [transfer(1)], expires_in="1s")
    assert performed(tmp_path) == []


@pytest.mark.parametrize("framework", by_night(FRAMEWORKS, ("openai_agents", "ai_sdk")))
def test_an_agent_killed_while_waiting_resumes_its_approval_and_acts_once(
    agents: Agents, framework: str, tmp_path: Path
) -> None:
    first = agents.start(framework, tmp_path, [transfer(7)])
    [waiting] = agents.questions("transfer")
    first.kill()
    first.communicate()
    agents.decide("transfer", "approve")
    assert performed(tmp_path) == []
    output_of(agents.start(framework, tmp_path, [transfer(7)]))
    assert performed(tmp_path) == [transfer(7)]
    decided = agents.boss.inbox.decided()
    assert [each.id for each in decided if each.id == waiting] == [waiting]
    assert list(agents.boss.inbox.list()) == []


@pytest.mark.parametrize("framework", by_night(FRAMEWORKS, ("langchain_per_call", "ai_sdk")))
def test_what_was_approved_under_another_digest_is_not_performed(
    agents: Agents, framework: str, tmp_path: Path
) -> None:
    process = agents.start(framework, tmp_path, [transfer(9)], workflow="swaps", policy=None)
    agents.decide("transfer", "approve")
    assert "digest" in output_of(process)
    assert performed(tmp_path) == []


@pytest.mark.parametrize("framework", by_night(("openai_agents", "pydantic_ai", "ai_sdk"), ("pydantic_ai", "ai_sdk")))
def test_the_id_of_an_approved_call_is_good_for_no_other_arguments(
    agents: Agents, framework: str, tmp_path: Path
) -> None:
    first = agents.start(framework, tmp_path, [transfer(82_000)])
    agents.questions("transfer")
    first.kill()
    first.communicate()
    agents.decide("transfer", "approve")
    (tmp_path / "state").unlink()
    agents.run(framework, tmp_path, [transfer(820_000)])
    assert performed(tmp_path) == []


@pytest.mark.parametrize("framework", ["openai_agents", "ai_sdk"])
def test_a_guarded_tool_asks_people_though_the_state_says_approved(
    agents: Agents, framework: str, tmp_path: Path
) -> None:
    process = agents.start(framework, tmp_path, [transfer(3)], careless=True)
    agents.decide("transfer", "reject", reason="who said so")
    assert "who said so" in output_of(process)
    assert performed(tmp_path) == []


@pytest.mark.parametrize("framework", ["openai_agents", "ai_sdk"])
def test_an_interruption_by_a_tool_that_is_not_guarded_is_refused(
    agents: Agents, framework: str, tmp_path: Path
) -> None:
    answer = answer_of(agents.start(framework, tmp_path, [transfer(3)], unguarded=True))
    assert "Error: people are not asked about transfer" in answer["thrown"]
    assert performed(tmp_path) == []


def test_an_interrupt_that_is_no_approval_is_refused(agents: Agents, tmp_path: Path) -> None:
    answer = answer_of(agents.start("langgraph", tmp_path, [transfer(3)], value={"question": "how are you"}))
    assert answer["thrown"].startswith("ValueError: expected an interrupt of HumanInTheLoopMiddleware")


def test_edited_arguments_that_the_tool_refuses_are_not_performed(agents: Agents, tmp_path: Path) -> None:
    process = agents.start("ai_sdk", tmp_path, [transfer(9)])
    agents.decide("transfer", "approve", edits={"arguments": {"amount": "all", "to": "FR"}})
    assert "what the tool does not take" in output_of(process)
    assert performed(tmp_path) == []


def test_edited_arguments_reach_a_tool_as_its_schema_converts_them(agents: Agents, tmp_path: Path) -> None:
    process = agents.start("ai_sdk", tmp_path, [transfer(9)])
    agents.decide("transfer", "approve", edits={"arguments": {"amount": 82, "to": " FR "}})
    output_of(process)
    assert performed(tmp_path) == [["transfer", {"amount": 82, "to": "FR"}]]


def test_the_example_for_the_ai_sdk_has_the_types_of_the_ai_sdk(agents: Agents) -> None:
    compiler = "node_modules/hai-client/node_modules/typescript/bin/tsc"
    strict = ("--strict", "--exactOptionalPropertyTypes", "--skipLibCheck", "--noEmit", "--types", "")
    typescript.node(agents.ai_sdk, compiler, *strict, "--target", "es2022", "--module", "nodenext", "types.ts")
