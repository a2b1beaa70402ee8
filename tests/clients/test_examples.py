"""The examples of clients/examples, with tokens that end while they follow: nothing is lost, and nothing is doubled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from hai_flow_client import Client

from clients.examples import backend as example
from clients.examples.backend import Backend
from tests.clients import rig
from tests.clients.conftest import HERE
from tests.clients.typescript import running
from tests.support.chromium import Chromium
from tests.support.hai_client import parse, unique
from tests.support.identities import KEYS, People
from tests.support.server import ROOT, YAML, ServerProcess, serving

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages

EXAMPLES = Path(example.__file__).parent
SECONDS = 4  # that a token is good for: less than the run's pause, and enough for a busy machine to use it
COMING_BACK = "the token has ended; coming back"


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """The backend of the pages in clients/examples."""
    with running(Backend(EXAMPLES, "user:ann", seconds=SECONDS)) as backend:
        yield backend


@pytest.fixture(scope="module")
def strict(dsn: str, backend: Backend) -> Iterator[ServerProcess]:
    """A server with identity that lets in the pages, with a run that pauses for longer than a token is good."""
    with serving(dsn, environment={**KEYS, "HAI_FLOW_ALLOWED_ORIGINS": backend.origin}) as server:
        people = People(dsn)
        headers = {**YAML, **people.person("user:pat", roles=["publisher"])}
        source = (HERE / "flows" / "two_words.flow.yaml").read_bytes()
        assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=headers).status_code == 201
        with Client(server.url, key=people.key("service:shop", roles=["issuer"])[1]) as flow:
            backend.flow = flow
            yield server


@pytest.fixture(autouse=True)
def none_given(backend: Backend) -> None:
    backend.given = 0


def printed(command: list[str], directory: Path) -> tuple[list[str], str]:
    """The lines that the program printed, and its complaints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HAI_FLOW"))}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, encoding="utf-8", timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines(), done.stderr


def test_ag_ui_s_client_goes_on_with_the_next_token(strict: ServerProcess, backend: Backend, tmp_path: Path) -> None:
    for name in ("ag_ui_client.mjs", "tokens.js"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    packages = rig.npm_packages(HERE / "node") / "node_modules"
    (tmp_path / "node_modules" / "@ag-ui").mkdir(parents=True)
    (tmp_path / "node_modules" / "@ag-ui" / "client").symlink_to(packages / "ag-ui-1.0.0")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    arguments = [f"{strict.url}/workflows/two_words/ag-ui", unique("thread"), f"{backend.origin}/token", "go"]
    lines, complaints = printed([rig.node(), "ag_ui_client.mjs", *arguments], tmp_path)
    assert lines == ["user: go", "assistant: Before.", "assistant: After."]
    assert COMING_BACK in complaints


def test_agentscope_s_client_goes_on_with_the_next_token(strict: ServerProcess, backend: Backend) -> None:
    python = rig.python_packages(HERE / "agentscope") / "bin" / "python"
    arguments = [f"{strict.url}/workflows/two_words/process", unique("session"), f"{backend.origin}/token", "go"]
    lines, complaints = printed([str(python), str(EXAMPLES / "agentscope_client.py"), *arguments], EXAMPLES)
    assert lines == ["assistant: Before.", "assistant: After."]
    assert COMING_BACK in complaints


def test_the_python_client_goes_on_with_the_next_token(strict: ServerProcess, backend: Backend) -> None:
    arguments = [strict.url, f"{backend.origin}/token", "two_words"]
    lines, _ = printed([sys.executable, str(EXAMPLES / "python_client.py"), *arguments], ROOT)
    assert [line.split()[0] for line in lines] == [str(number + 1) for number in range(len(lines))]
    assert lines[-1].endswith("run_finished")
    assert backend.given > 2  # the start, the stream, and at least one more


# --- in a browser -------------------------------------------------------------------------------------------------


def test_an_event_source_goes_on_with_the_next_ticket(
    strict: ServerProcess, backend: Backend, browser: Chromium, dsn: str
) -> None:
    ann, thread = People(dsn).person("user:ann"), unique("thread")
    with browser.tab() as page:
        page.open(f"{backend.origin}/event_source.html?{urlencode({'url': strict.url, 'thread': thread})}")
        page.shows("Following.")
        body = {"workflow": "two_words", "thread_id": thread}
        run = httpx2.post(f"{strict.url}/v1/runs", json=body, headers=ann).json()
        page.shows("RUN_FINISHED")
        seen = page.evaluate("[...document.querySelectorAll('li')].map((it) => it.textContent)")
    whole = httpx2.get(f"{strict.url}/v1/runs/{run['id']}/events?dialect=social", headers=ann, timeout=60).content
    told = [event.data for event in parse(whole) if event.data is not None]
    assert seen[1:] == [f"{it['type']}: {it['answer']}" if it.get("answer") else it["type"] for it in told]
    assert {"TEXT_MESSAGE_END: Before.", "TEXT_MESSAGE_END: After."} <= set(seen)
    assert backend.given > 1


def test_a_web_socket_goes_on_with_the_next_ticket(strict: ServerProcess, backend: Backend, browser: Chromium) -> None:
    query = {"url": strict.url, "workflow": "two_words", "session": unique("session"), "message": "go"}
    with browser.tab() as page:
        page.open(f"{backend.origin}/web_socket.html?{urlencode(query)}")
        page.shows("Done.")
        seen = page.evaluate("[...document.querySelectorAll('li')].map((it) => it.textContent)")
    assert seen == ["user: go", "assistant: Before.", "assistant: After."]
    assert backend.given > 1
