"""The processes that drive other people's clients, and a server with workflows of ours for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.clients import rig
from tests.clients.ag_ui import Agent
from tests.support import chromium
from tests.support.chromium import Chromium
from tests.support.examples import COSTLY
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

HERE = Path(__file__).resolve().parent
DOJO = HERE.parents[1] / "workflows" / "dojo"


def pytest_itemcollected(item: pytest.Item) -> None:
    names = getattr(item, "fixturenames", ())
    if "postgres_server" in names and "node_driver" not in names:  # that one process serves them all
        item.add_marker(COSTLY)


def publish_flows(url: str) -> None:
    """Publish the workflows of these tests, those that one runs (`subgraphs_hotels`) before it (`subgraphs`)."""
    with httpx2.Client(base_url=url) as http:
        for flow in sorted([*(HERE / "flows").glob("*.flow.yaml"), *DOJO.glob("*.flow.yaml")], reverse=True):
            published = http.post("/v1/workflows", content=flow.read_bytes(), headers=YAML)
            assert published.status_code in (200, 201), published.text


@pytest.fixture(scope="package")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    """A server that no test harms. It must not have had a fault when they are done."""
    with postgres_server.database() as dsn, serving(dsn) as process:
        publish_flows(process.url)
        yield process
        assert process.process.poll() is None


@pytest.fixture(scope="package")
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="package")
def node_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Driver]:
    """A Node process with all versions of `@ag-ui/client`."""
    directory = rig.project_beside(rig.npm_packages(HERE / "node"), HERE / "node", tmp_path_factory.mktemp("node"))
    with rig.driving([rig.node(), "driver.mjs"], directory) as driver:
        yield driver


NewAgent = Callable[..., Agent]


@pytest.fixture
def agent(node_driver: rig.Driver, server: ServerProcess) -> NewAgent:
    """A new agent of a version, on a thread of its own, for a workflow."""

    def new(version: str, workflow: str, **more: object) -> Agent:
        return Agent(node_driver, version, f"{server.url}/workflows/{workflow}/ag-ui", **more)  # type: ignore[arg-type]

    return new


@pytest.fixture(scope="package")
def browser() -> Iterator[Chromium]:
    """A real browser. Its tests are left out where there is none; `make test-browsers` installs one, and runs them."""
    program = chromium.found()
    if program is None:
        pytest.skip("there is no chromium on PATH: apt-get install chromium")
    with chromium.browsing(program) as browser:
        yield browser


@pytest.fixture(scope="package")
def agentscope_driver() -> Iterator[rig.Driver]:
    """A process with agentscope-runtime's client, in an environment of its own."""
    project = HERE / "agentscope"
    environment = rig.python_packages(project)
    with rig.driving([str(environment / "bin" / "python"), str(project / "driver.py")], project) as driver:
        yield driver
