"""How other people's clients carry a credential (docs/protocols/credentials.md): each as its own users would do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients import rig, typescript
from tests.clients.ag_ui import VERSIONS, Agent
from tests.clients.typescript import node
from tests.support.hai_client import parse, unique
from tests.support.identities import KEYS, People, carried
from tests.support.server import ServerProcess, serving

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages

CHAT = {"HAI_FLOW_DEFAULT_WORKFLOW": "chat"}


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={**KEYS, **CHAT}) as process:
        yield process


@pytest.fixture(scope="module")
def page(dsn: str, strict: ServerProcess) -> str:
    """The token that a backend gave its page, for `user:ann`."""
    backend = People(dsn).person("service:shop", roles=["issuer"])
    return httpx2.post(f"{strict.url}/v1/tokens", json={"principal": "user:ann"}, headers=backend).json()["token"]


def started_by(strict: ServerProcess, dsn: str, thread_id: str) -> str:
    viewer = People(dsn).person("user:eve", roles=["viewer"])
    found = httpx2.get(f"{strict.url}/v1/runs", params={"thread_id": thread_id}, headers=viewer).json()["items"]
    return found[0]["started_by"]


def user(content: str) -> dict[str, Any]:
    return {"id": unique("m"), "role": "user", "content": content}


@pytest.mark.parametrize("version", VERSIONS)
def test_ag_ui_s_client_has_it_in_its_headers(
    node_driver: rig.Driver, strict: ServerProcess, dsn: str, page: str, version: str
) -> None:
    url = f"{strict.url}/workflows/chat/ag-ui"
    agent = Agent(node_driver, version, url, headers=carried(page))
    assert agent.run(user("hello")).types[-1] == "RUN_FINISHED"
    assert started_by(strict, dsn, agent.thread_id) == "user:ann"
    refused = Agent(node_driver, version, url).run(user("hello"))
    assert (refused.status, "auth.missing" in refused.body.decode()) == (401, True)


def test_agentscope_s_client_has_it_as_its_token(
    agentscope_driver: rig.Driver, strict: ServerProcess, dsn: str, page: str
) -> None:
    session = unique("s")
    said = {"type": "message", "role": "user", "content": [{"type": "text", "text": "hello"}]}
    request = {"input": [said], "stream": True, "session_id": session, "user_id": "u1"}
    url = f"{strict.url}/workflows/chat/process"
    reply = agentscope_driver.ask("process", url=url, way="astream", request=request, token=page)
    assert reply["thrown"] is None
    assert reply["events"][-1]["status"] == "completed"
    assert started_by(strict, dsn, session) == "user:ann"
    refused = agentscope_driver.ask("process", url=url, way="astream", request=request)
    assert refused["thrown"]["status"] == 401


def test_hai_client_has_it_as_its_key(
    tmp_path_factory: pytest.TempPathFactory, strict: ServerProcess, dsn: str, page: str
) -> None:
    package = typescript.built(tmp_path_factory.mktemp("hai-client"))
    thread = unique("t")
    asked = {"scenario": "signedIn", "url": strict.url, "key": page, "threadId": thread}
    told = json.loads(node(package, "test/live.mjs", json.dumps(asked)))
    assert told == {"refused": [401, "auth.missing"], "error": None, "asked": 1}
    assert started_by(strict, dsn, thread) == "user:ann"


def test_copilotkit_s_requests_carry_it(strict: ServerProcess, dsn: str, page: str) -> None:
    """Its `headers` go with each request to its runtime: the agents there are, a run, a look at the thread."""
    thread = unique("t")
    body = {"threadId": thread, "runId": unique("r"), "messages": [user("hello")], "tools": [], "context": []}
    with httpx2.Client(base_url=strict.url, headers=carried(page), timeout=30) as runtime:
        assert "chat" in runtime.get("/cpk/info").json()["agents"]
        assert runtime.post("/cpk/agent/chat/run", json=body).status_code == 200
        assert runtime.post("/cpk/agent/chat/connect", json={**body, "runId": unique("r")}).status_code == 200
    assert started_by(strict, dsn, thread) == "user:ann"
    assert httpx2.get(f"{strict.url}/cpk/info").status_code == 401


def test_an_event_source_has_a_ticket(strict: ServerProcess, page: str) -> None:
    run = httpx2.post(f"{strict.url}/v1/runs", json={"workflow": "chat"}, headers=carried(page)).json()
    ticket = httpx2.post(f"{strict.url}/v1/tickets", headers=carried(page)).json()["ticket"]
    path = f"{strict.url}/v1/runs/{run['id']}/events?ticket={ticket}"
    with httpx2.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
        data = b""
        for piece in response.iter_bytes():
            data += piece
            if b"run_started" in data and data.endswith(b"\n\n"):
                break
    assert parse(data)[0].name == "run_started"


def test_the_page_of_credentials_names_what_is_there() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "protocols" / "credentials.md").read_text()
    for name in (
        "HttpAgent",
        "runtimeUrl",
        "HTTPAgentAPIClient",
        "/v1/tickets",
        "/v1/tokens",
        "HAI_FLOW_KEY",
        "ticket=",
    ):
        assert name in text
