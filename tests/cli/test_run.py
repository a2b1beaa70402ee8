"""`run`: what it tells of models that others stand in for, and workflows that a server has, by their names."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import httpx2
import pytest

from hai_flow.api.permissions.sign_in_limits import DENIED
from tests.support.commands import SECONDS_MAX, command, run
from tests.support.identities import KEYS, People, carried
from tests.support.models import Answer, FakeModels, spoken
from tests.support.server import YAML, ServerProcess, serving
from tests.support.terminals import on_a_terminal, read_until
from tests.support.waiting import wait_for

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
LEADS = (("user:rea", ["requester"]), ("user:lea", ["requester", "lead"]))
KEYLESS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_MODEL": ""}


@pytest.fixture
def asks(tmp_path: Path) -> str:
    flow = tmp_path / "asks.flow.yaml"
    flow.write_text(ASKS)
    return str(flow)


def warnings_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if "in its place" in line]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_incomplete_script_for_a_model_is_reported_once(database_url: str, asks: str, more: tuple[str, ...]) -> None:
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


# --- by its name ------------------------------------------------------------------------------------------------------

ORDER = """
hai: flow/v1
name: order
version: 1
input: {type: object, required: [item], properties: {item: {type: string}, count: {type: integer}}}
steps: [{id: said, say: "${{ input.item }}"}]
output: "${{ input }}"
"""
LATER = ORDER.replace("version: 1", "version: 2").replace('output: "${{ input }}"', 'output: {later: "${{ input }}"}')

Asking: TypeAlias = "Callable[..., subprocess.CompletedProcess[str]]"


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    """A server that asks for keys, and has `order` in two versions."""
    with serving(dsn, environment=KEYS) as process:
        publisher = {**People(dsn).person("user:pia", roles=["publisher"]), **YAML}
        for text in (ORDER, LATER):
            answer = httpx2.post(f"{process.url}/v1/workflows", content=text, headers=publisher)
            assert answer.status_code == 201, answer.text
        yield process


@pytest.fixture(scope="module")
def keys(dsn: str) -> dict[str, str]:
    """By role: a key of somebody who has it."""
    roles = ("requester", "operator", "auditor")
    return {role: People(dsn).key(f"user:{role}", roles=[role])[1] for role in roles}


@pytest.fixture
def asking(strict: ServerProcess, keys: dict[str, str], tmp_path: Path) -> Asking:
    """A `run` by somebody of this role, in an empty folder."""

    def ask(role: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        ended = run("run", *arguments, folder=tmp_path, HAI_FLOW_URL=strict.url, HAI_FLOW_KEY=keys[role])
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    return ask


def test_who_may_only_start_runs_starts_a_workflow_by_its_name(
    strict: ServerProcess, keys: dict[str, str], asking: Asking
) -> None:
    started = asking("requester", "order@2", "-i", "item=tea", "--thread", "desk", "--detach")
    begun = started.stdout.removesuffix("\n")
    assert re.search(rf"^order@2 is started\..*\n.* events {begun} --follow\n.* pendings\n", started.stderr)
    shown = httpx2.get(f"{strict.url}/v1/runs/{begun}", headers=carried(keys["requester"])).json()
    assert (shown["input"], shown["thread_id"], shown["started_by"]) == ({"item": "tea"}, "desk", "user:requester")
    told = json.loads(asking("requester", "order", "--input-json", '{"item": "tea"}', "--detach", "--json").stdout)
    assert set(told) == {"run_id", "status", "output", "error", "pendings"}


def test_a_start_by_name_tries_nothing_that_is_not_allowed(
    dsn: str, strict: ServerProcess, keys: dict[str, str], tmp_path: Path
) -> None:
    """Whatever was tried would stand in the audit before what is tried behind it."""
    _, key = People(dsn).key("user:una")
    settings = {"HAI_FLOW_URL": strict.url, "HAI_FLOW_KEY": key}
    begun = run("run", "order", "-i", "item=tea", "--detach", folder=tmp_path, **settings).stdout.strip()
    assert httpx2.post(f"{strict.url}/v1/runs/{begun}/pause", headers=carried(key)).status_code == 403
    auditor = carried(keys["auditor"])

    def list_denied() -> list[str]:
        records = httpx2.get(f"{strict.url}/v1/audit", params={"act": DENIED}, headers=auditor).json()["items"]
        return [each["details"]["via"] for each in records if each["by"] == "user:una"]

    assert wait_for(list_denied) == ["/v1/runs/{run_id}/pause"]


def test_what_is_started_by_its_name_is_followed_here(asking: Asking) -> None:
    held = asking("requester", "order@2", "-i", "item=tea")
    assert re.search(r"^order@2, run \S+\n", held.stderr)
    assert "tea" in held.stdout
    newest = json.loads(asking("requester", "order", "-i", "item=tea", "--json").stdout)
    assert (newest["status"], newest["output"]) == ("finished", {"later": {"item": "tea"}})


def test_an_input_is_read_by_a_visible_schema_or_judged_by_the_server(asking: Asking) -> None:
    found = json.loads(asking("operator", "order@1", "-i", "item=12", "-i", "count=3", "--json").stdout)
    assert found["output"] == {"item": "12", "count": 3}
    unfit = asking("operator", "order@1", "--detach", code=2)
    assert "the input does not fit" in unfit.stderr
    refused = asking("requester", "order@2", "-i", "item=12", "--detach", code=1)
    assert "item" in refused.stderr
    assert """-i 'KEY="123"'""" in refused.stderr
    quoted = json.loads(asking("requester", "order@2", "-i", 'item="12"', "--json").stdout)
    assert quoted["output"] == {"later": {"item": "12"}}


def test_a_requester_is_told_to_leave_out_a_version_that_is_not_the_latest(asking: Asking) -> None:
    for word in ("order@1", "order@9"):
        refused = asking("requester", word, "-i", "item=tea", "--detach", code=1)
        assert f"names {word}: leave the version out" in refused.stderr
        assert "There is no file" not in refused.stderr


def test_a_word_that_is_neither_a_file_nor_a_name_is_told_of_both(asking: Asking, tmp_path: Path) -> None:
    both = r"There is no file '{}'\. Expected a workflow file .*, or the name of a workflow that the server has"
    for role, word in (("requester", "ordre"), ("requester", "No Name"), ("requester", ".."), ("operator", "order@9")):
        unknown = asking(role, word, "--detach", code=1)
        assert "there is no workflow" in unknown.stderr
        assert re.search(both.format(re.escape(word)), unknown.stderr), unknown.stderr
    silent = run("run", "ordre", folder=tmp_path, HAI_FLOW_URL="http://127.0.0.1:9")
    assert silent.returncode == 4
    assert "No server answers" in silent.stderr
    assert re.search(both.format("ordre"), silent.stderr)
    here = asking("requester", "ordre", "--data-dir", "there", code=2)
    assert re.search(both.format("ordre"), here.stderr)
    assert "expected a workflow file" in asking("requester", "", code=2).stderr


@pytest.mark.parametrize("word", ["order.yaml", "order.yml", "./order"])
def test_a_word_that_looks_like_a_file_is_one(asking: Asking, word: str) -> None:
    assert f"{Path(word)}: expected a workflow file that can be read" in asking("requester", word, code=2).stderr


def test_a_file_that_is_there_goes_before_a_name_and_a_folder_does_not(asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "order").mkdir()
    asking("requester", "order", "-i", "item=tea", "--detach")
    (tmp_path / "order").rmdir()
    (tmp_path / "order").write_text("hai: flow/v1\nname: order\n")
    assert "order:1:1: " in asking("requester", "order", "-i", "item=tea", "--detach", code=1).stderr


def test_a_file_that_the_server_has_is_started_by_who_may_not_read_it(
    strict: ServerProcess, asking: Asking, tmp_path: Path
) -> None:
    (tmp_path / "order.yaml").write_text(LATER)
    started = asking("requester", "order.yaml", "-i", "item=tea", "--detach")
    assert started.stderr.startswith("order@2 is started.")
    held = asking("requester", "order.yaml", "-i", "item=tea", "--server", strict.url)
    assert "tea" in held.stdout


@pytest.mark.parametrize("text", [ORDER + "description: mine\n", LATER + "description: mine\n"])
@pytest.mark.parametrize("role", ["requester", "operator"])
def test_a_file_that_the_server_lacks_and_refuses_is_started_by_name(
    asking: Asking, tmp_path: Path, role: str, text: str
) -> None:
    (tmp_path / "order.yaml").write_text(text)
    refused = asking(role, "order.yaml", "-i", "item=tea", "--detach", code=1)
    assert "the right publish" in refused.stderr
    assert re.search(r"started by its name: .* run order\n", refused.stderr)


# --- questions, at a server that knows its callers --------------------------------------------------------------------

SHIP = """
hai: flow/v1
name: ship
version: 1
steps:
  - {id: sure, approve: {title: Sure?, from: requester}}
  - {id: gate, approve: {title: Ship?, from: "role:lead", exclude: []}}
"""


def test_at_a_server_with_identity_the_terminal_asks_only_its_person(
    dsn: str, strict: ServerProcess, tmp_path: Path
) -> None:
    publisher = {**People(dsn).person("user:pia", roles=["publisher"]), **YAML}
    assert httpx2.post(f"{strict.url}/v1/workflows", content=SHIP, headers=publisher).status_code == 201
    settings = {"HAI_FLOW_URL": strict.url}
    requester, lead = (People(dsn).key(id, roles=roles)[1] for id, roles in LEADS)
    with on_a_terminal(command("run", "ship"), tmp_path, HAI_FLOW_KEY=requester, **settings) as (near, process):
        read_until(near, "Waiting for your answer to: Sure?")
        read_until(near, "approve/reject: ")
        os.write(near, b"approve\n\n")
        shown = read_until(near, "Ship?: it asks role:lead, not you (user:rea)")
        assert "--as" not in shown
        assert process.wait(SECONDS_MAX) == 3
    with on_a_terminal(command("run", "ship"), tmp_path, HAI_FLOW_KEY=lead, **settings) as (near, process):
        for title in ("Sure?", "Ship?"):
            read_until(near, f"Waiting for your answer to: {title}")
            read_until(near, "approve/reject: ")
            os.write(near, b"approve\n\n")
        assert process.wait(SECONDS_MAX) == 0


SEATED = """
hai: flow/v1
name: seated
version: 1
concurrency: {key: desk}
steps: [{id: gate, approve: {title: Done?, from: requester}}]
"""


def test_at_a_server_with_identity_queued_and_paused_runs_say_why(
    dsn: str, strict: ServerProcess, keys: dict[str, str], asking: Asking
) -> None:
    publisher = {**People(dsn).person("user:pia", roles=["publisher"]), **YAML}
    assert httpx2.post(f"{strict.url}/v1/workflows", content=SEATED, headers=publisher).status_code == 201
    first, second = (asking("operator", "seated", "--detach").stdout.strip() for _ in range(2))
    settings = {"HAI_FLOW_URL": strict.url, "HAI_FLOW_KEY": keys["operator"]}
    assert f"show {first}\n" in run("show", second, **settings).stdout
    assert run("pause", second, "--reason", "no hurry", **settings).returncode == 0
    assert " by user:operator: no hurry\n" in run("show", second, **settings).stdout


# --- with the workflows beside it -------------------------------------------------------------------------------------

LEAF = (
    "hai: flow/v1\nname: leaf\nversion: 1\ninput: {type: object, properties: {n: {type: integer}}}\n"
    'steps: [say: hi]\noutput: "${{ input.n }}"\n'
)
KID = (
    "hai: flow/v1\nname: kid\nversion: 1\nsteps: [{id: below, run: leaf, with: {n: 3}}]\n"
    "output: ${{ steps.below.output }}\n"
)
TOP = "hai: flow/v1\nname: top\nversion: 1\nsteps: [{id: sub, run: kid}]\noutput: ${{ steps.sub.output }}\n"


def write_family(folder: Path, **texts: str) -> None:
    for name, text in {"top": TOP, "kid": KID, "leaf": LEAF, **texts}.items():
        (folder / f"{name}.flow.yaml").write_text(text)


def test_a_file_is_run_with_the_workflows_beside_it_and_those_below_them(database_url: str, tmp_path: Path) -> None:
    write_family(tmp_path, other="steps: [")  # a broken file that nobody runs does not matter
    ended = run("run", "top.flow.yaml", "--json", folder=tmp_path, HAI_FLOW_DATABASE_URL=database_url)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["output"] == 3


def test_a_workflow_that_a_file_runs_is_shown_with_its_mistake(database_url: str, tmp_path: Path) -> None:
    write_family(tmp_path, leaf=LEAF.replace("say: hi", "sya: hi"))
    ended = run("run", "top.flow.yaml", folder=tmp_path, HAI_FLOW_DATABASE_URL=database_url)
    assert ended.returncode == 1
    assert re.search(r"leaf\.flow\.yaml:5:\d+: .*`?sya`?", ended.stderr), ended.stderr


def test_a_server_gets_the_workflows_beside_a_file_that_is_run_there(database_url: str, tmp_path: Path) -> None:
    write_family(tmp_path)
    with serving(database_url) as process:
        for number in ("3", "4"):  # also where the server has the workflow itself, and another one below it
            write_family(tmp_path, kid=KID.replace("n: 3", f"n: {number}"))
            ended = run("run", "top.flow.yaml", "--json", "--server", process.url, folder=tmp_path)
            assert ended.returncode == 0, ended.stderr
            assert json.loads(ended.stdout)["output"] == int(number)


def test_json_has_the_frames_of_a_failed_tool_and_nothing_that_it_prints(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def divide(by: int):\n    print('dividing')\n    return 1 / by\n")
    flow = tmp_path / "fails.flow.yaml"
    flow.write_text(
        "hai: flow/v1\nname: fails\nversion: 1\ntools: {t: {python: failing, effect: write}}\n"
        "steps: [{call: t.divide, with: {by: 0}}]\n"
    )
    ended = run("run", flow.name, "--json", folder=tmp_path, HAI_FLOW_DATABASE_URL=database_url, **KEYLESS)
    assert ended.returncode == 1
    assert "return 1 / by" in json.loads(ended.stdout)["traceback"]
    assert "dividing" in ended.stderr
