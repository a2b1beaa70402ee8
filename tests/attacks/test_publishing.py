"""Who can publish a workflow does not own the machine: only the deployment's own tools are called."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.catalog import workflows
from tests.runtime.conftest import is_now
from tests.support.commands import started
from tests.support.ledger import log_of
from tests.support.postgres import connecting
from tests.support.server import YAML
from tests.support.waiting import until

SHELL = """
hai: flow/v1
name: shell
version: 1
tools: {{sh: {{python: {module}, effect: read}}}}
steps:
  - {{id: harm, call: {call}, with: {{cmd: "{cmd}"}}, retry: {{max: 0}}}}
"""


@pytest.mark.parametrize("query", [{}, {"dev": "true"}], ids=["published", "dev copy"])
@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("subprocess", "sh.getoutput"),
        ("os", "sh.system"),
        ("builtins", "sh.eval"),
        ("pty", "sh.spawn"),
        ("'hai_flow.examples:asyncio'", "sh"),
        ("hai_flow.cli.run_until_signal", "sh.live"),
        ("tests.support.server", "sh.serving"),  # a module below the current directory of the server
        ("registered", "sh.getoutput"),
    ],
)
def test_a_module_of_the_machine_is_refused_when_it_is_published(
    http: httpx2.Client, module: str, call: str, query: dict[str, str]
) -> None:
    source = SHELL.format(module=module, call=call, cmd="id")
    refused = http.post("/v1/workflows", content=source, params=query, headers=YAML)
    assert refused.status_code == 422
    assert [each["code"] for each in refused.json()["findings"]] == ["step.unavailable"]
    assert http.get("/v1/workflows/shell").status_code == 404


async def test_a_worker_refuses_what_is_in_the_database_all_the_same(database_url: str, tmp_path: Path) -> None:
    """Another process, which took tools from more modules, may have stored it."""
    harm = tmp_path / "harm"
    source = SHELL.format(module="subprocess", call="sh.getoutput", cmd=f"touch {harm}").encode()
    settings = Settings(lease_seconds=3.0, heartbeat_seconds=0.3, poll_seconds=0.1)
    runtime = Runtime(database_url, settings, performs=True, project=True)
    async with runtime.lifespan():
        run_id = await _started_unchecked(runtime, source)
        await until(lambda: is_now(runtime, run_id, "failed"))
    async with connecting(database_url) as eye:
        (failed,) = [event for event in await log_of(eye, run_id) if isinstance(event, e.RunFailed)]
    assert failed.error.code == "tool.not_allowed"
    assert not harm.exists()


async def _started_unchecked(runtime: Runtime, source: bytes) -> UUID:
    plan = compile_workflow(source, "shell")
    pool = runtime.database.api
    await workflows.publish_workflow(pool, LOCAL_TENANT, name=plan.name, version=plan.version, source=source)
    run_id = runtime.starts.new_id()
    start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:mallory", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, start)
    return run_id


def test_a_server_takes_no_workflow_over_the_network_unless_it_is_told_to(database_url: str, tmp_path: Path) -> None:
    harmless = "hai: flow/v1\nname: harmless\nversion: 1\nsteps:\n  - say: hello\n"
    for setting, status in (({}, 403), ({"HAI_FLOW_PUBLISH": "1"}, 201)):
        settings = {"HAI_FLOW_DATABASE_URL": database_url, **setting}
        with started(tmp_path / "log", "serve", "--port", "0", **settings) as server:
            url = server.wait_for(r"Serving (http://\S+)")[1]
            answer = httpx2.post(f"{url}/v1/workflows", content=harmless, headers=YAML)
            assert answer.status_code == status
            if status == 403:
                assert answer.json()["code"] == "publishing_off"
                assert "HAI_FLOW_PUBLISH=1" in answer.json()["detail"]
                assert httpx2.get(f"{url}/v1/workflows/harmless").status_code == 404
            server.end(signal.SIGTERM)
