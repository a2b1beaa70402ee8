"""A rolling restart with real processes: each server and worker is replaced while runs go on, and nobody notices."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hai_flow_client import Client

from tests.support.commands import SECONDS_MAX, Process, run, started

pytestmark = pytest.mark.costly

# What a worker has begun is in this file before it goes on; nobody else writes there.
TOOLS = """
import asyncio, os
from hai_flow.steps.tools import Context, tool

@tool
async def work(context: Context) -> str:
    with open(os.environ["ROLLING_LEDGER"], "a") as ledger:
        ledger.write(f"{context.run_id} {context.path} {context.attempt}\\n")
    await asyncio.sleep(0.3)
    return "done"
"""
FLOW = """
hai: flow/v1
name: rolling
version: 1
tools:
  work: {python: rolling_tools, effect: write}
steps:
  - {id: one, call: work.work}
  - {id: two, call: work.work}
  - id: sure
    ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}
  - {id: three, call: work.work}
  - {id: rest, wait: {for: 1s}}
  - {id: four, call: work.work}
"""
WORKS = {"one", "two", "three", "four"}


class Balancer:
    """One address in front of servers that come and go: each new connection is led to the one that is named now."""

    def __init__(self) -> None:
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listens.getsockname()[1]}"
        self.port = 0
        self._lines: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listens.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.port), 5)
                except OSError:
                    client.close()
                    continue
                self._lines.append(threading.Thread(target=_bridge, args=(client, server), daemon=True))
                self._lines[-1].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listens.shutdown(socket.SHUT_RDWR)  # else the thread that accepts goes on
        self._listens.close()
        for thread in (self._thread, *self._lines):
            thread.join(SECONDS_MAX)


def _bridge(client: socket.socket, server: socket.socket) -> None:
    with client, server:
        back = threading.Thread(target=_carry, args=(server, client), daemon=True)
        back.start()
        _carry(client, server)
        back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Deployment:
    """Two servers, each behind an address that stays, and three workers, over one database."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        self.ledger = folder / "ledger"
        self.ledger.touch()
        (folder / "rolling_tools.py").write_text(TOOLS)
        self.settings = {
            "HAI_FLOW_DATABASE_URL": dsn,
            "HAI_FLOW_PUBLISH": "1",
            "HAI_FLOW_TOOLS": "rolling_tools",
            "HAI_FLOW_SHUTDOWN_SECONDS": "60",
            # Whoever had to wait for the end of a lease would wait for longer than this test.
            "HAI_FLOW_LEASE_SECONDS": "3600",
            "ROLLING_LEDGER": str(self.ledger),
        }
        self._all = contextlib.ExitStack()
        self.balancers = [Balancer(), Balancer()]
        self.servers = [self._serve(balancer) for balancer in self.balancers]
        self.workers = [self._work() for _ in range(3)]

    def _begin(self, *arguments: str) -> Process:
        log = self._folder / f"log-{time.monotonic_ns()}"
        return self._all.enter_context(started(log, *arguments, folder=self._folder, **self.settings))

    def _serve(self, balancer: Balancer) -> Process:
        process = self._begin("serve", "--port", "0")
        port = int(process.wait_for(r"Serving http://\S+:(\d+)")[1])
        balancer.port = port
        return process

    def _work(self) -> Process:
        process = self._begin("worker")
        process.wait_for(r"Worker \d+ performs")
        return process

    def replace(self, number: int) -> None:
        """The new one first, then the old one drains."""
        if number < len(self.servers):
            old, self.servers[number] = self.servers[number], self._serve(self.balancers[number])
        else:
            number -= len(self.servers)
            old, self.workers[number] = self.workers[number], self._work()
        assert old.end(signal.SIGTERM) == 143
        assert "Traceback" not in old.output

    def close(self) -> None:
        self._all.close()
        for balancer in self.balancers:
            balancer.close()


@contextlib.contextmanager
def deployed(folder: Path, dsn: str) -> Iterator[Deployment]:
    deployment = Deployment(folder, dsn)
    try:
        yield deployment
    finally:
        deployment.close()


def test_every_process_is_replaced_without_a_wait_or_a_missed_event(database_url: str, tmp_path: Path) -> None:
    seen: dict[str, list[int]] = {}
    with deployed(tmp_path, database_url) as deployment:
        clients = [Client(balancer.url) for balancer in deployment.balancers]
        clients[0].workflows.publish(FLOW)
        followers: list[threading.Thread] = []

        def begin(number: int) -> str:
            run_id = clients[number % 2].runs.start("rolling").id

            def follow() -> None:
                with Client(deployment.balancers[(number + 1) % 2].url) as follower:
                    for event in follower.runs.follow(run_id):
                        seen.setdefault(run_id, []).append(event.seq)

            followers.append(threading.Thread(target=follow))
            followers[-1].start()
            return run_id

        def answer(number: int, run_id: str) -> None:
            client = clients[number % 2]
            assert client.runs.wait(run_id, timeout=SECONDS_MAX).status == "waiting"
            (pending,) = [each for each in client.pendings.list() if each.run_id == run_id]
            client.pendings.answer(pending, {"ok": True})

        waits = [begin(number) for number in range(3)]  # all the while
        runs: list[str] = []
        for number in range(5):
            some = [begin(number + each) for each in range(3)]
            deployment.replace(number)
            for each, run_id in enumerate(some):
                answer(each, run_id)
            runs += some
        for number, run_id in enumerate(waits):
            answer(number, run_id)
        for run_id in [*runs, *waits]:
            clients[0].runs.result(run_id, timeout=SECONDS_MAX)
        for follower in followers:
            follower.join(SECONDS_MAX)
            assert not follower.is_alive()
        states = Counter(each.state for each in clients[1].workers.list().items)
        ends = {run_id: clients[1].runs.get(run_id).seq for run_id in [*runs, *waits]}
        for client in clients:
            client.close()
        assert states == {"alive": 3, "ended": 3}, "each handed everything back"
        performed = Counter(line.rsplit(" ", 1)[0] for line in deployment.ledger.read_text().splitlines())
        assert set(performed.values()) == {1}, "nothing was lost, so nothing was begun again"
        assert len(performed) == len(ends) * len(WORKS)
        verified = run("verify", "--json", **deployment.settings)
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout)["runs"] == len(ends)
    assert seen == {run_id: list(range(1, seq + 1)) for run_id, seq in ends.items()}, "every event, once, in order"
