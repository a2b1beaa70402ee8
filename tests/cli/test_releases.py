"""Two releases over one database: each goes on with what the other has begun, and the older one leaves what it can't
read. The older one is a commit of this repository; where there is no history (an sdist), the corpus of logs stands for
it (tests/corpus)."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest
from hai_flow_client import Client

from hai_flow.engine import events as e
from tests.support.commands import ROOT, SECONDS_MAX, run, started

pytestmark = pytest.mark.costly

BEFORE: Final = "8d7c261"  # the last commit of before runs had queues
SAME_ABI: Final = "2bb638d3"  # a commit whose events have this release's ABI, and whose answers have `retired_at`

FLOW: Final = """
hai: flow/v1
name: {name}
version: 1
{queue}
tools:
  work: {{python: release_tools, effect: write}}
steps:
  - {{id: one, call: work.work}}
  - id: sure
    ask: {{title: Sure?, from: anyone, form: {{properties: {{ok: {{type: boolean}}}}}}}}
  - {{id: two, call: work.work}}
"""
TOOLS: Final = """
from hai_flow import __file__
from hai_flow.steps.tools import Context, tool

@tool
async def work(context: Context) -> str:
    return __file__
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of an older release, whose events may have an older ABI."""
    return unpacked(BEFORE, tmp_path_factory)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of an older release that reads this one's events."""
    return unpacked(SAME_ABI, tmp_path_factory)


def unpacked(commit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = subprocess.run(["git", "archive", commit, "hai_flow", "migrations"], cwd=ROOT, capture_output=True)
    if packed.returncode:
        pytest.skip("there is no history here")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def abi_of(source: Path) -> int:
    found = re.search(r"^ABI: Final = (\d+)$", (source / "hai_flow" / "engine" / "events.py").read_text(), re.M)
    assert found is not None
    return int(found[1])


def test_one_release_finishes_the_others_runs_and_leaves_unreadable_ones(
    database_url: str, tmp_path: Path, before: Path
) -> None:
    (tmp_path / "release_tools.py").write_text(TOOLS)
    settings = {
        "HAI_FLOW_DATABASE_URL": database_url,
        "HAI_FLOW_PUBLISH": "1",
        "HAI_FLOW_TOOLS": "release_tools",
        "HAI_FLOW_LEASE_SECONDS": "3600",
    }
    older = {**settings, "PYTHONPATH": str(before)}

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(started(tmp_path / "serve", "serve", "--port", "0", folder=tmp_path, **settings))
        client = stack.enter_context(Client(server.wait_for(r"Serving (http://\S+) ")[1]))
        for name, queue in (("plain", ""), ("queued", "queue: gpu")):
            client.workflows.publish(FLOW.format(name=name, queue=queue))
        reads = abi_of(before) >= e.ABI
        with started(tmp_path / "older", "worker", folder=tmp_path, **older) as worker:
            worker.wait_for(r"Worker \d+ performs")
            queued = client.runs.start("queued").id
            plain = client.runs.start("plain").id
            if reads:
                assert client.runs.wait(plain, timeout=SECONDS_MAX).status == "waiting"
                assert client.workers.list().items[0].release is None, "it tells nothing of itself"
            assert worker.end(signal.SIGTERM) == 143
            assert "Traceback" not in worker.output
        left = client.runs.get(queued)
        assert (left.status, left.queue) == ("running", "gpu")
        with started(
            tmp_path / "newer", "worker", "--queue", "gpu", "--queue", "default", folder=tmp_path, **settings
        ) as worker:
            worker.wait_for(r"Worker \d+ performs")
            for run_id in (plain, queued):
                assert client.runs.wait(run_id, timeout=SECONDS_MAX).status == "waiting"
            assert worker.end(signal.SIGTERM) == 143
        answer_all(client)
        assert {client.runs.get(run_id).status for run_id in (plain, queued)} == {"running"}
        with started(tmp_path / "older", "worker", folder=tmp_path, **older) as worker:
            worker.wait_for(r"Worker \d+ performs")
            if reads:
                client.runs.result(plain, timeout=SECONDS_MAX)
            with started(tmp_path / "newer", "worker", "--queue", "*", folder=tmp_path, **settings) as last:
                last.wait_for(r"Worker \d+ performs")
                for run_id in (plain, queued):
                    client.runs.result(run_id, timeout=SECONDS_MAX)
        performed_by = {
            run_id: {
                each["path"]: str(before) in each["output"]
                for each in client.runs.follow_json(run_id)
                if each["type"] == "step_finished" and each["path"] in ("one", "two")
            }
            for run_id in (plain, queued)
        }
    assert performed_by == {plain: {"one": reads, "two": reads}, queued: {"one": False, "two": False}}


def test_servers_of_both_releases_go_on_with_what_the_other_has_taken_in(
    database_url: str, tmp_path: Path, beside: Path
) -> None:
    """Side by side on the newer schema: what is started at one is answered at the other, whichever release performs it,
    and both show the same."""
    (tmp_path / "release_tools.py").write_text(TOOLS)
    settings = {
        "HAI_FLOW_DATABASE_URL": database_url,
        "HAI_FLOW_PUBLISH": "1",
        "HAI_FLOW_TOOLS": "release_tools",
        "HAI_FLOW_LEASE_SECONDS": "3600",
    }
    older = {**settings, "PYTHONPATH": str(beside)}
    assert abi_of(beside) == e.ABI, "take a commit whose events have this release's ABI"
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(started(tmp_path / name, "serve", "--port", "0", folder=tmp_path, **its))
            for name, its in (("serve-older", older), ("serve-newer", settings))
        ]
        then, now = [stack.enter_context(Client(server.wait_for(r"Serving (http://\S+) ")[1])) for server in servers]
        then.workflows.publish(FLOW.format(name="plain", queue=""))
        with started(tmp_path / "older", "worker", folder=tmp_path, **older) as worker:
            worker.wait_for(r"Worker \d+ performs")
            runs = {name: client.runs.start("plain").id for name, client in (("then", then), ("now", now))}
            for client in (then, now):
                for run_id in runs.values():
                    assert client.runs.wait(run_id, timeout=SECONDS_MAX).status == "waiting"
            assert worker.end(signal.SIGTERM) == 143
        for client, run_id in ((now, runs["then"]), (then, runs["now"])):
            (pending,) = [each for each in client.pendings.list() if each.run_id == run_id]
            client.pendings.answer(pending, {"ok": True})
        with started(tmp_path / "newer", "worker", folder=tmp_path, **settings) as worker:
            worker.wait_for(r"Worker \d+ performs")
            for client in (then, now):
                for run_id in runs.values():
                    client.runs.result(run_id, timeout=SECONDS_MAX)
        for run_id in runs.values():
            shown = [[each["type"] for each in client.runs.follow_json(run_id)] for client in (then, now)]
            assert shown[0] == shown[1]
            assert shown[0][-1] == "run_finished"
        for server in servers:
            assert "Traceback" not in server.output
    verified = run("verify", "--json", **settings)
    assert verified.returncode == 0, verified.stdout


def answer_all(client: Client) -> None:
    for pending in client.pendings.list():
        client.pendings.answer(pending, {"ok": True})
