"""The commands as processes: over a real database, with real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from hai_flow_client import Client
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.cli.serve import migrate as migrating
from hai_flow.embedded import EmbeddedPostgres
from hai_flow.store.postgres import revisions
from tests.support.commands import ROOT, SECONDS_MAX, Process, command, run, started
from tests.support.postgres import execute, run_apart
from tests.support.scraping import Scrape
from tests.support.terminals import on_a_terminal, read_until
from tests.support.values import require
from tests.support.waiting import wait_for

pytestmark = pytest.mark.costly


def told(client: Client, run_id: str) -> set[str]:
    """The types of the run's events."""
    return {event["type"] for event in client.request("GET", f"/v1/runs/{run_id}/events").read()["items"]}


def test_a_worker_imports_neither_a_web_framework_nor_migrations(database_url: str, tmp_path: Path) -> None:
    # sitecustomize is imported first of all: at the end it tells what the worker itself had loaded.
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "names = {'alembic', 'fastapi', 'sqlalchemy', 'starlette', 'uvicorn'}\n"
        "atexit.register(lambda: print('loaded:', sorted(names & {name.partition('.')[0] for name in sys.modules})))\n"
    )
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    with started(tmp_path / "log", "worker", HAI_FLOW_DATABASE_URL=database_url, PYTHONPATH=path) as worker:
        worker.wait_for(r"Worker \d+ performs")
        assert worker.end(signal.SIGTERM) == 143
        assert "Stopping. Ctrl-C again stops at once.\n" in worker.output
        assert "loaded: []" in worker.output
        assert "Traceback" not in worker.output


def test_a_process_over_an_old_schema_says_what_to_do(empty_database_url: str) -> None:
    for name in ("serve", "worker"):
        refused = run(name, HAI_FLOW_DATABASE_URL=empty_database_url)
        assert refused.returncode == 1
        assert re.search(r"does not have the schema of this release: run .* migrate\.\n$", refused.stderr)
    assert run("migrate", HAI_FLOW_DATABASE_URL=empty_database_url).returncode == 0
    assert run_apart(revisions.current(empty_database_url)) == revisions.head()


def test_migrate_logs_on_standard_error_and_not_that_an_owner_owns(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def migrate(_: object) -> None:
        for event in ("no_role_of_its_own", "another"):
            structlog.get_logger("x").warning(event)

    monkeypatch.setattr(migrating, "migrate_if_behind", migrate)
    try:
        done = CliRunner().invoke(app, ["migrate"], env={"HAI_FLOW_DATABASE_URL": database_url})
    finally:
        structlog.reset_defaults()
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 1
    assert "another" in done.stderr
    assert "no_role_of_its_own" not in done.output


def test_a_database_that_does_not_answer_is_a_sentence() -> None:
    refused = run("worker", HAI_FLOW_DATABASE_URL="postgresql://secret:word@127.0.0.1:9/none")
    assert refused.returncode == 1
    assert "does not answer" in refused.stderr
    assert "word" not in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_database_or_a_role_that_is_not_there_or_may_not_is_a_sentence() -> None:
    short = tempfile.TemporaryDirectory(prefix="hai-")
    with short as directory, EmbeddedPostgres(Path(directory) / "pg", durable=False) as postgres:
        postgres.ensure_database()
        dsn = postgres.dsn()
        run_apart(execute(dsn, "CREATE ROLE ann LOGIN"))
        for url, expected in (
            (postgres.dsn("nowhere"), 'database "nowhere" does not exist'),
            (dsn.replace("postgres@", "bob@"), 'role "bob" does not exist'),
            (dsn.replace("postgres@", "ann@"), "Make it the owner of the database"),
        ):
            refused = run("migrate", HAI_FLOW_DATABASE_URL=url)
            assert refused.returncode == 1
            assert expected in refused.stderr
            assert len(refused.stderr.splitlines()) == 1


def test_dev_takes_over_at_once_from_one_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import asyncio\nasync def nap():\n    await asyncio.sleep(3600)\n")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "nap.flow.yaml").write_text(
        "hai: flow/v1\nname: nap\nversion: 1\ntools: {slow: {python: slow, effect: read}}\n"
        "steps: [{id: sleep, call: slow.nap}]\n"
    )
    with tempfile.TemporaryDirectory(prefix="hai-") as directory:
        dev = ("dev", "--port", "0", "--no-open", "--data-dir", f"{directory}/pg")
        with started(tmp_path / "first", *dev, folder=tmp_path) as first:
            url = first.wait_for(r"Serving (http://\S+)")[1]
            with Client(url) as client:
                begun = client.request("POST", "/v1/runs", json={"workflow": "nap", "input": {}}).read()["id"]
                wait_for(lambda: "step_started" in told(client, begun))
            first.end(signal.SIGKILL)
        with started(tmp_path / "second", *dev, folder=tmp_path, HAI_FLOW_SHUTDOWN_SECONDS="0.5") as second:
            url = second.wait_for(r"Serving (http://\S+)")[1]
            with Client(url) as client:
                wait_for(lambda: "step_retried" in told(client, begun))
            ended = "DO $$ BEGIN ASSERT (SELECT count(*) FROM workers WHERE alive_until = '-infinity') = 1; END $$"
            run_apart(execute(EmbeddedPostgres(f"{directory}/pg").dsn(), ended))
            assert "if it is dead" not in second.output
            second.end(signal.SIGTERM)


def test_dev_with_identity_prints_a_link_that_signs_one_browser_in(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hai-") as directory:
        dev = ("dev", "--port", "0", "--no-open", "--data-dir", f"{directory}/pg")
        with started(tmp_path / "dev", *dev, folder=tmp_path, HAI_FLOW_IDENTITY="keys") as process:
            link = process.wait_for(r"Sign in once.*(http://\S+/sign-in/link/\S+)")[1]
            url = process.wait_for(r"Serving (http://\S+)")[1]
            assert httpx2.get(f"{url}/v1/runs").status_code == 401
            assert [httpx2.post(link).status_code for _ in range(2)] == [303, 401]
            making = process.wait_for(r"(export HAI_FLOW_KEY=.*)")[1]
            assert "warning" not in process.output, "the examples are ours"
            assert re.search(r'curl http\S+/v1/runs -H "Authorization: Bearer \$HAI_FLOW_KEY"', process.output)
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            shell = ["bash", "-c", f"{making}; printf %s $HAI_FLOW_KEY"]
            key = subprocess.run(shell, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True)
            found = httpx2.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {key.stdout}"})
            assert found.status_code == 200, key.stderr
            process.end(signal.SIGTERM)


def test_without_a_server_the_sentence_says_how_to_start_one() -> None:
    refused = run("runs", HAI_FLOW_URL="http://127.0.0.1:9")
    assert refused.returncode == 4
    assert refused.stderr.startswith("hai-flow: No server answers at http://127.0.0.1:9")
    assert " dev`" in refused.stderr


def test_a_run_that_ends_exits_by_its_outcome(database_url: str, tmp_path: Path) -> None:
    finished = run("run", "workflows/weather.flow.yaml", "-i", "city=Berlin", HAI_FLOW_DATABASE_URL=database_url)
    assert finished.returncode == 0, finished.stderr
    assert "⚙ get_weather → rain, 12°C\n" in finished.stdout
    assert finished.stdout.endswith('finished: {"weather": "rain, 12°C"}\n')
    failing = tmp_path / "failing.yaml"
    failing.write_text(
        "hai: flow/v1\nname: failing\nversion: 1\nsteps:\n  - fail: {code: shop.closed, message: Closed on Sundays}\n"
    )
    failed = run("run", str(failing), HAI_FLOW_DATABASE_URL=database_url)
    assert failed.returncode == 1, failed.stderr
    assert "failed: shop.closed: Closed on Sundays" in failed.stdout


def test_a_run_that_waits_exits_with_3_and_is_decided_at_a_server(database_url: str, tmp_path: Path) -> None:
    waits = run("run", "workflows/cleanup.flow.yaml", "--json", "-i", "count=3", HAI_FLOW_DATABASE_URL=database_url)
    assert waits.returncode == 3, waits.stderr
    standing = json.loads(waits.stdout)
    assert standing["status"] == "waiting"
    (pending,) = standing["pendings"]

    with (
        started(
            tmp_path / "serve", "serve", "--port", "0", HAI_FLOW_DATABASE_URL=database_url, HAI_FLOW_PUBLISH="1"
        ) as server,
        started(tmp_path / "worker", "worker", HAI_FLOW_DATABASE_URL=database_url) as worker,
    ):
        url = server.wait_for(r"Serving (http://\S+)")[1]
        worker.wait_for(r"Worker \d+ performs")

        def ask(*arguments: str, code: int = 0) -> Any:
            answer = run(*arguments, "--json", HAI_FLOW_URL=url)
            assert answer.returncode == code, answer.stderr
            return json.loads(answer.stdout)

        assert [each["id"] for each in ask("pendings")["items"]] == [pending["id"]]
        assert "decide " + pending["id"] in run("pendings", HAI_FLOW_URL=url).stdout
        assert ask("decide", pending["id"], "--result", "[]", code=1)["findings"]
        assert ask("decide", pending["id"], "--result", "true")["status"] == "answered"
        assert ask("decide", pending["id"], "--result", "true")["already"] is True
        assert ask("decide", pending["id"], "--result", "false", code=1)["winner"]["value"] is True

        followed = run("events", standing["run_id"][:18], "--follow", HAI_FLOW_URL=url)
        assert followed.returncode == 0, followed.stderr
        assert followed.stdout.endswith('finished: {"deleted": 3}\n')
        shown = ask("show", standing["run_id"])
        assert (shown["status"], shown["snapshot"]["output"]) == ("finished", {"deleted": 3})
        assert standing["run_id"] in run("runs", "--status", "finished", HAI_FLOW_URL=url).stdout

        remote = run("run", "workflows/cleanup.flow.yaml", "--server", url)
        assert remote.returncode == 3, remote.stderr
        second = require(re.search(r"run (\S+)\n", remote.stderr))
        assert ask("pause", second[1], "--reason", "let me look")["status"] == "paused"
        assert ask("resume", second[1])["status"] == "waiting"
        assert ask("terminate", second[1])["status"] == "stopped"
        assert ask("retry", second[1], code=1)["status"] == 409

        assert server.end(signal.SIGINT) == 0
        assert worker.end(signal.SIGINT) == 0
        assert "Traceback" not in server.output + worker.output


def test_on_a_terminal_a_run_asks_there_until_it_ends(database_url: str) -> None:
    arguments = command("run", "workflows/release.flow.yaml", "-i", "release=v9")
    with on_a_terminal(arguments, HAI_FLOW_DATABASE_URL=database_url) as (near, process):
        read_until(near, "approve/reject: ")
        os.write(near, b"approve\n")
        read_until(near, "reason (may be empty): ")
        os.write(near, b"tested\n")
        read_until(near, "Waiting for your answer to: Security: ship v9?")
        read_until(near, "approve/reject: ")
        os.write(near, b"r\n")
        read_until(near, "reason (may be empty): ")
        os.write(near, b"open findings\n")
        assert "Not released: open findings" in read_until(near, 'finished: {"released": false}')
        assert process.wait(SECONDS_MAX) == 0


def test_who_may_not_answer_is_not_asked_but_told_as_whom_to(database_url: str, tmp_path: Path) -> None:
    flow = tmp_path / "ship.flow.yaml"
    flow.write_text(
        "hai: flow/v1\nname: ship\nversion: 1\n"
        "steps: [{id: gate, approve: {title: Ship?, from: 'role:qa', exclude: requester}}]\n"
    )
    with on_a_terminal(command("run", str(flow)), HAI_FLOW_DATABASE_URL=database_url) as (near, process):
        shown = read_until(near, "--as user:ann,role:qa")
        assert "waits for a person" in shown
        assert "Waiting for your answer" not in shown
        read_until(near, "or: reject")
        assert process.wait(SECONDS_MAX) == 3


def test_runs_that_wait_for_a_worker_while_none_is_alive_are_told(database_url: str, tmp_path: Path) -> None:
    settings = {"HAI_FLOW_DATABASE_URL": database_url, "HAI_FLOW_PUBLISH": "1"}
    with started(tmp_path / "serve", "serve", "--port", "0", **settings) as server:
        url = server.wait_for(r"Serving (http://\S+)")[1]
        assert run("runs", HAI_FLOW_URL=url).stderr == ""
        assert run("publish", "workflows/weather.flow.yaml", HAI_FLOW_URL=url).returncode == 0
        with Client(url) as client:
            begun = client.runs.start("weather", {"city": "Berlin"}).id
            ready = client.request("GET", "/readyz").read()
            told = {"worker": False, "workers": 0, "waiting": 1, "unserved": ["default"], "hints": "good"}
            assert ready == {"status": "ready", **told}
            for arguments in (["runs"], ["show", begun]):
                told = run(*arguments, HAI_FLOW_URL=url)
                assert re.search(
                    r"^1 run waits for a worker, and none is alive\. Start one: .* worker$", told.stderr, re.M
                )
            with started(tmp_path / "worker", "worker", **settings) as worker:
                worker.wait_for(r"Worker \d+ performs")
                client.runs.wait(begun)
                ready = client.request("GET", "/readyz").read()
                assert (ready["workers"], ready["waiting"]) == (1, 0)
                assert run("runs", HAI_FLOW_URL=url).stderr == ""


def test_each_process_counts_what_it_does_on_a_port_of_its_own(database_url: str, tmp_path: Path) -> None:
    settings = {"HAI_FLOW_DATABASE_URL": database_url, "HAI_FLOW_PUBLISH": "1", "HAI_FLOW_METRICS": ":0"}

    def shown(process: Process) -> Scrape:
        return Scrape(httpx2.get(process.wait_for(r"Metrics are at (http://127\.0\.0\.1:\d+/metrics)\.")[1]).text)

    with (
        started(tmp_path / "serve", "serve", "--port", "0", **settings) as server,
        started(tmp_path / "worker", "worker", **settings) as worker,
    ):
        url = server.wait_for(r"Serving (http://\S+)")[1]
        assert run("publish", "workflows/weather.flow.yaml", HAI_FLOW_URL=url).returncode == 0
        with Client(url) as client:
            client.runs.wait(client.runs.start("weather", {"city": "Berlin"}).id)
        here, there = shown(server), shown(worker)
        assert here.value("runs_started_total", workflow="weather") == 1
        assert there.value("runs_ended_total", workflow="weather", status="finished") == 1
        assert here.value("http_request_seconds_count", method="POST", route="/v1/runs", status="2xx") == 1
        routes = {
            dict(labels)["route"] for name, labels in here.samples if name == "hai_flow_http_request_seconds_count"
        }
        assert all("{" in route or not re.search(r"[0-9a-f]{8}-", route) for route in routes)


PARENT = """\
hai: flow/v1
name: parent
version: 1
steps:
  - {id: sub, run: release, with: {release: v9}}
output: "${{ steps.sub.output }}"
"""


def test_what_a_child_asks_is_asked_in_the_terminal_too(database_url: str, tmp_path: Path) -> None:
    parent = tmp_path / "parent.yaml"
    parent.write_text(PARENT)
    settings = {"HAI_FLOW_DATABASE_URL": database_url}
    published = run("run", "workflows/release.flow.yaml", "--json", "-i", "release=v8", **settings)
    assert published.returncode == 3, published.stderr
    waits = run("run", str(parent), "--json", **settings)
    assert waits.returncode == 3, waits.stderr
    standing = json.loads(waits.stdout)
    assert standing["status"] == "waiting"
    assert [each["kind"] for each in standing["pendings"]] == ["approve", "approve"]
    with on_a_terminal(command("run", str(parent)), **settings) as (near, process):
        read_until(near, "approve/reject: ")
        os.write(near, b"approve\n")
        read_until(near, "reason (may be empty): ")
        os.write(near, b"tested\n")
        read_until(near, "approve/reject: ")
        os.write(near, b"r\n")
        read_until(near, "reason (may be empty): ")
        os.write(near, b"open findings\n")
        assert "Not released: open findings" in read_until(near, 'finished: {"released": false}')
        assert process.wait(SECONDS_MAX) == 0


@pytest.mark.timeout(180)
def test_dev_starts_everything_tells_what_to_try_and_stops_cleanly(tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    for path in (ROOT / "workflows").glob("*.flow.yaml"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "broken.yaml").write_text("hai: flow/v1\nname: broken\n")
    needs_models = ROOT / "workflows" / "examples" / "research_and_email.flow.yaml"
    (folder / "later.yaml").write_bytes(needs_models.read_bytes())
    arguments = (
        "dev", "--port", "0", "--data-dir", str(tmp_path / "data"), "--workflows", str(folder), "--no-open", "--demo",
    )  # fmt: skip
    with started(tmp_path / "log", *arguments) as dev:
        url = dev.wait_for(r"Serving (http://\S+)")[1]
        assert re.search(r"broken\.yaml is not loaded:\n.*broken\.yaml:", dev.output)
        assert re.search(r"8 workflows from \S+: [a-z_@0-9+, ]+\n", dev.output), "the names, on a line"
        assert re.search(r"^No identity is configured: .* HAI_FLOW_IDENTITY=keys$", dev.output, re.MULTILINE)
        assert "no_identity" not in dev.output, "it is read by a person"
        pending = dev.wait_for(r"decide (call_\S+) approve --server")[1]
        # The commands that it suggests work as they are printed.
        for curl in re.findall(r"^  (curl .*)$", dev.output, re.MULTILINE):
            answer = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, timeout=SECONDS_MAX)
            assert '"status":4' not in answer.stdout
            assert answer.stdout.strip(), curl
        assert run("decide", pending, "approve", HAI_FLOW_URL=url).stdout.startswith("pay: approve already")

        edited = folder / "weather.flow.yaml"
        edited.write_text(edited.read_text() + "# edited\n")
        dev.wait_for(r"weather\.flow\.yaml is saved and published as weather@1\+[0-9a-f]{8}\n")
        assert dev.end(signal.SIGINT) == 0
        assert re.search(r"Stopping\. Ctrl-C again stops at once\.\nStopped\.\n$", dev.output)
        assert "Traceback" not in dev.output
    assert not (tmp_path / "data" / "data" / "postmaster.pid").exists()


def test_where_a_tool_failed_is_shown_with_its_run(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "till.py").write_text("def sell():\n    raise ValueError('the till is locked')\n")
    flow = "hai: flow/v1\nname: shop\nversion: 1\ntools: {till: {python: till}}\nsteps: [{id: sale, call: till.sell}]\n"
    (tmp_path / "shop.flow.yaml").write_text(flow)
    failed = run("run", "shop.flow.yaml", folder=tmp_path, HAI_FLOW_DATABASE_URL=database_url)
    assert failed.returncode == 1, failed.stderr
    assert "raise ValueError('the till is locked')" in failed.stdout
    run_id = require(re.search(r"run (\S+)", failed.stderr))
    with started(tmp_path / "log", "serve", "--port", "0", HAI_FLOW_DATABASE_URL=database_url) as server:
        url = server.wait_for(r"Serving (http://\S+)").group(1)
        shown = run("show", run_id[1], HAI_FLOW_URL=url)
    assert re.search(r'sale raised:\n.*File "\S+till.py", line 2, in sell', shown.stdout, re.DOTALL), shown.stdout


TELLING = """
hai: flow/v1
name: telling
version: 1
steps:
  - approve: {title: Go?, from: [anyone, role:controler, role:reviewer], notify: [nowhere]}
"""


def test_serve_logs_the_doubts_about_its_workflows(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "telling.flow.yaml").write_text(TELLING)
    settings = {"HAI_FLOW_DATABASE_URL": database_url, "HAI_FLOW_PUBLISH": "1"}
    with started(tmp_path / "first", "serve", "--port", "0", **settings) as first:
        url = first.wait_for(r"Serving (http://\S+)")[1]
        roles = ("--role", "controller", "--role", "viewer")
        assert run("keys", "create", "user:ann", *roles, HAI_FLOW_DATABASE_URL=database_url).returncode == 0
        published = run("publish", str(tmp_path / "telling.flow.yaml"), "--server", url)
        assert "this server has no channel `nowhere`" in published.stdout + published.stderr
        assert "the role `controler`; did you mean `controller`?" in published.stderr
        assert "`viewer`" not in published.stderr, "`reviewer` is a word of its own"
        first.end(signal.SIGTERM)
    assert run("tenants", "create", "acme", **settings).returncode == 0
    move = "UPDATE workflows SET tenant = (SELECT id FROM tenants WHERE name = 'acme')"
    run_apart(execute(database_url, move))
    with started(tmp_path / "second", "serve", "--port", "0", **settings) as second:
        line = second.wait_for(r".*workflow_doubtful.*")[0]
        assert "this server has no channel `nowhere`" in line
        assert '"tenant": "acme"' in line, "of each tenant, not of the default one alone"
        second.end(signal.SIGTERM)
