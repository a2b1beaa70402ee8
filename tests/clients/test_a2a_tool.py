"""Workflows call agents of others: one made with the official A2A SDK's server, and HAI Flow itself.

The agent writes a line for each thing that it does, so whatever is done twice is seen. Servers that perform the calls
are killed with -9.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients import rig
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for
from tests.test_tutorial import free_port

PROJECT = Path(__file__).resolve().parent / "a2a"
LOOPBACK = {"HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}
NUMBERS = itertools.count()
BINDINGS = ["JSONRPC/1.0", "HTTP+JSON/1.0", "JSONRPC/0.3"]
FLOW = """
hai: flow/v1
name: {name}
version: 1
input: {{type: object, required: [text], properties: {{text: {{type: string}}}}}}
tools: {{painter: {{a2a: "{url}"}}}}
steps:
  - {{id: job, call: painter, with: {{text: "${{{{ input.text }}}}"}}{step}}}
  - {{return: "${{{{ steps.job.output }}}}"}}
"""


class Painter:
    """The foreign agent as a process of its own."""

    def __init__(self, directory: Path, bindings: str) -> None:
        self.effects = directory / "effects"
        self.effects.touch()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._bindings = bindings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        python = rig.python_packages(PROJECT) / "bin" / "python"
        arguments = [str(python), str(PROJECT / "agent.py"), str(self.effects), str(self.port), self._bindings]
        self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)

        def is_up() -> bool:
            with contextlib.suppress(httpx2.TransportError):
                return httpx2.get(f"{self.url}/.well-known/agent-card.json").status_code == 200
            return False

        wait_for(is_up)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    @property
    def did(self) -> list[str]:
        return [line.split()[0] for line in self.effects.read_text().splitlines()]


@contextlib.contextmanager
def painting(directory: Path, bindings: str = "JSONRPC/1.0") -> Iterator[Painter]:
    painter = Painter(directory, bindings)
    try:
        painter.start()
        yield painter
    finally:
        painter.kill()


@pytest.fixture(scope="module")
def server(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment=LOOPBACK) as server:
        yield server


@pytest.fixture(scope="module", params=BINDINGS)
def own_painter(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Painter]:
    with painting(tmp_path_factory.mktemp("painter"), request.param) as painter:
        yield painter


@pytest.fixture
def painter(own_painter: Painter) -> Painter:
    own_painter.effects.write_text("")
    return own_painter


def start(server: str, painter: str, text: str, *, step: str = "") -> str:
    name = f"errand_{next(NUMBERS)}"
    flow = FLOW.format(name=name, url=painter, step=f", {step}" if step else "")
    with httpx2.Client(base_url=server, timeout=60) as http:
        expect(http.post("/v1/workflows", content=flow.encode(), headers=YAML), 200, 201)
        id: str = expect(http.post("/v1/runs", json={"workflow": name, "input": {"text": text}}), 201).json()["id"]
        return id


def run(server: str, id: str) -> dict[str, Any]:
    run: dict[str, Any] = httpx2.get(f"{server}/v1/runs/{id}").json()
    return run


def settled(server: str, id: str, enough: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
    is_enough = enough or (lambda run: run["status"] not in ("running", "queued"))
    wait_for(lambda: is_enough(run(server, id)))
    return run(server, id)


def questions(server: str, id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = httpx2.get(f"{server}/v1/pendings", params={"run_id": id}).json()["items"]
    return items


def wait_for_question(server: str, id: str, text: str) -> dict[str, Any]:
    """The open question of the run that has this text."""
    wait_for(lambda: any(text in str(each["message"]) for each in questions(server, id)))
    return next(each for each in questions(server, id) if text in str(each["message"]))


def answer(server: str, question: dict[str, Any], **fields: Any) -> None:
    expect(httpx2.post(f"{server}/v1/pendings/{question['id']}/decide", json=fields), 200)


def test_the_output_has_the_text_the_data_and_the_files_of_the_artifacts(
    server: ServerProcess, painter: Painter
) -> None:
    done = settled(server.url, start(server.url, painter.url, "hello"))
    assert done["status"] == "finished", done
    assert done["output"]["text"] == "hello"
    assert done["output"]["data"] is None
    done = settled(server.url, start(server.url, painter.url, "file"))
    assert done["output"]["text"] == "a file"
    (file, text) = done["output"]["parts"]
    assert file["source"]["type"] == "file", file
    content = httpx2.get(f"{server.url}/v1/files/{file['source']['value']}")
    assert content.content == b"hallo"
    assert (text["type"], text["artifact"]) == ("text", "result")


def test_an_agents_question_is_the_runs_and_its_answer_resumes_the_task(
    server: ServerProcess, painter: Painter
) -> None:
    id = start(server.url, painter.url, "twice")
    answer(server.url, wait_for_question(server.url, id, "Which size?"), values={"answer": "large"})
    answer(server.url, wait_for_question(server.url, id, "Which shape?"), values={"answer": "round"})
    done = settled(server.url, id)
    assert done["output"]["data"] == {"last": "round"}
    assert painter.did == ["twice", "size=large", "shape=round"]


@pytest.mark.parametrize(
    ("text", "code", "words"), [("fail", "tool.failed", "no paint left"), ("reject", "tool.declined", "I do not paint")]
)
def test_a_failed_or_rejected_task_fails_the_step_in_the_agents_words(
    server: ServerProcess, painter: Painter, text: str, code: str, words: str
) -> None:
    failed = settled(server.url, start(server.url, painter.url, text))
    assert (failed["status"], failed["error"]["code"]) == ("failed", code)
    assert words in failed["error"]["message"]


def test_a_retry_of_a_failed_task_begins_another_one(server: ServerProcess, painter: Painter) -> None:
    step = "retry: {max: 2, every: 1s, backoff: fixed}"
    failed = settled(server.url, start(server.url, painter.url, "fail", step=step), lambda run: bool(run["ended_at"]))
    assert failed["error"]["code"] == "tool.failed"
    assert painter.did == ["fail", "fail", "fail"]


def test_a_stop_of_the_run_cancels_the_task(server: ServerProcess, painter: Painter) -> None:
    id = start(server.url, painter.url, "wait")
    wait_for(lambda: painter.did == ["wait"])
    assert httpx2.post(f"{server.url}/v1/runs/{id}/stop", json={"reason": "enough"}).status_code in (200, 202)
    settled(server.url, id, lambda run: run["status"] == "stopped")
    wait_for(lambda: painter.did == ["wait", "cancelled"])


def test_a_declined_question_cancels_the_task(server: ServerProcess, painter: Painter) -> None:
    id = start(server.url, painter.url, "paint")
    answer(server.url, wait_for_question(server.url, id, "Which colour?"), decision="decline", reason="too dear")
    failed = settled(server.url, id)
    assert failed["error"]["code"] == "tool.declined"
    assert painter.did == ["paint", "cancelled"]


def test_an_agent_that_is_not_there_fails_the_step(server: ServerProcess) -> None:
    failed = settled(server.url, start(server.url, f"http://127.0.0.1:{free_port()}", "hello"))
    assert failed["error"]["code"] == "http.connection"


@pytest.mark.parametrize("bindings", BINDINGS[:2])
def test_a_server_killed_around_an_agents_question_leaves_one_task(
    postgres_server: Server, tmp_path: Path, bindings: str
) -> None:
    with postgres_server.database() as dsn, painting(tmp_path, bindings) as painter:
        with serving(dsn, environment=LOOPBACK) as first:
            working = start(first.url, painter.url, "wait")
            wait_for(lambda: painter.did == ["wait"])
            first.kill()
        with serving(dsn, environment=LOOPBACK) as second:
            painter.effects.with_name("go").touch()
            assert settled(second.url, working)["output"]["data"] == {"waited": True}
            assert painter.did == ["wait"]
            asking = start(second.url, painter.url, "paint")
            wait_for_question(second.url, asking, "Which colour?")
            second.kill()
        with serving(dsn, environment=LOOPBACK) as third:
            answer(third.url, wait_for_question(third.url, asking, "Which colour?"), values={"answer": "blue"})
            done = settled(third.url, asking)
            assert done["output"]["data"] == {"last": "blue"}
            assert painter.did == ["wait", "paint", "colour=blue"]


def test_an_agent_that_lists_no_tasks_is_not_asked_twice_but_people_are(
    postgres_server: Server, tmp_path: Path
) -> None:
    with postgres_server.database() as dsn, painting(tmp_path, "JSONRPC/0.3") as painter:
        with serving(dsn, environment=LOOPBACK) as first:
            id = start(first.url, painter.url, "wait")
            wait_for(lambda: painter.did == ["wait"])
            first.kill()
        with serving(dsn, environment=LOOPBACK) as second:
            doubt = wait_for_question(second.url, id, "Nobody knows whether the agent has begun")
            assert painter.did == ["wait"]
            painter.effects.with_name("go").touch()
            answer(second.url, doubt, decision="again", reason="it has not")
            assert settled(second.url, id)["output"]["data"] == {"waited": True}
            assert painter.did == ["wait", "wait"]


def test_workflows_call_workflows_of_another_server_as_agents(postgres_server: Server) -> None:
    flow = (PROJECT.parent / "mcp_flows" / "confirm_delete.flow.yaml").read_bytes()
    with (
        postgres_server.database() as here,
        postgres_server.database() as there,
        serving(here, environment=LOOPBACK) as caller,
        serving(there) as called,
    ):
        assert httpx2.post(f"{called.url}/v1/workflows", content=flow, headers=YAML).status_code == 201
        own = FLOW.format(name="outer", url=f"{called.url}/workflows/confirm_delete", step="").replace(
            "with: {text:", "with: {data: {filename: a.txt}, text:"
        )
        assert httpx2.post(f"{caller.url}/v1/workflows", content=own.encode(), headers=YAML).status_code == 201
        answer_ = httpx2.post(f"{caller.url}/v1/runs", json={"workflow": "outer", "input": {"text": "please"}})
        id = answer_.json()["id"]
        question = wait_for_question(caller.url, id, "a.txt")
        assert question["schema"]["required"] == ["confirm"]
        answer(caller.url, question, values={"confirm": True})
        assert settled(caller.url, id)["output"]["text"] == "confirmed: true"
        runs = httpx2.get(f"{called.url}/v1/runs").json()["items"]
        assert [each["status"] for each in runs] == ["finished"]
