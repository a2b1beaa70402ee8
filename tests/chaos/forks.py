"""The campaign of forks: two servers, six clients and random acts, while servers are killed. At the end everything that
a run had done is undone or somebody's, and nothing is left in a table.

    python -m tests.chaos.forks --minutes 30 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import httpx2

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.ops.verify import VerifiedRuns, Verifying, verify
from hai_flow.store.runs import logs
from tests.support.hai_client import unique
from tests.support.postgres import serve
from tests.support.server import YAML, ServerProcess, serving

CLIENTS: Final = 6
SERVERS: Final = 2
QUIET_SECONDS: Final = 180.0  # in which less has to be left over
OPEN: Final = "status NOT IN ('finished', 'failed', 'stopped')"
AT_REST: Final = ["waiting", "paused", "needs_attention"]
LEFT_OVER: Final = {
    "open runs": f"SELECT count(*) FROM runs WHERE {OPEN}",
    "outbox": "SELECT count(*) FROM outbox",
    "slots": "SELECT count(*) FROM slots",
    "waiting for a slot": "SELECT count(*) FROM slot_waiters",
    "queued messages": "SELECT count(*) FROM queued_messages WHERE refused IS NULL",
    "open questions": "SELECT count(*) FROM pendings WHERE status = 'open'",
}
BODY: Final = """
hai: flow/v1
name: {name}
version: 1
visibility: tenant
{head}
input: {{type: object, properties: {{n: {{type: integer, default: 1}}, key: {{type: string, default: k}}}}}}
tools: {{e: {{python: tests.support.effects, effect: write}}}}
steps:
  - {{id: a, call: e.echo, with: {{value: "${{{{ input.n }}}}"}}, undo: {{call: e.echo, with: {{value: ua}}}}}}
  - id: block
    try:
      - {{id: b, call: e.echo, with: {{value: 2}}, undo: {{call: e.echo, with: {{value: ub}}}}}}
      - {{id: first, ask: {{title: First?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
      - {{id: c, call: e.echo, with: {{value: 3}}, undo: {{call: e.echo, with: {{value: uc}}}}}}
    finally: [{{id: tidy, call: e.echo, with: {{value: tidy}}}}]
  - {{id: go, approve: {{title: Go?, from: anyone}}}}
  - {{id: odd, if: "${{{{ input.n % 5 == 0 }}}}", fail: {{code: my.odd, message: Odd.}}}}
  - {{id: last, ask: {{title: Last?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
"""
HEADS: Final = {
    "plain": "",
    "keyed": 'concurrency: {key: "${{ input.key }}", limit: 1}',
    "queues": "on_message: enqueue",
    "interrupts": "on_message: interrupt",
    "both": 'on_message: interrupt\nconcurrency: {key: "${{ input.key }}", limit: 2}',
}
STEPS: Final = ("a", "block", "block/b", "block/first", "block/c", "go", "last")


@dataclass
class Report:
    """The result of a campaign: how often each act had each answer, and what was found wrong."""

    seed: int
    acts: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    runs: int = 0
    forks: int = 0
    taken_back: int = 0
    faults: list[str] = field(default_factory=list)


class _Campaign:
    def __init__(self, dsn: str, seed: int) -> None:
        self.dsn = dsn
        self.report = Report(seed)
        self.random = random.Random(seed)
        self.servers: list[ServerProcess] = []
        self._stacks: list[ExitStack] = []
        self.workflows: list[str] = []

    # --- the servers

    def begin(self, number: int) -> None:
        """Begin the server with this number, or begin it anew."""
        stack = ExitStack()
        server = stack.enter_context(serving(self.dsn, may_fail=True))  # the report has its faults
        if number == len(self.servers):
            self.servers.append(server)
            self._stacks.append(stack)
        else:
            self._stacks[number].close()
            self.servers[number], self._stacks[number] = server, stack

    def end(self) -> None:
        for number, server in enumerate(self.servers):
            self.report.faults += [f"server {number}: {line[:300]}" for line in server.faults]
            self._stacks[number].close()

    async def kill(self, every: float, until: float) -> None:
        """kill -9 of one server after the other."""
        while time.monotonic() + every < until:
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * every)
            number = self.random.randrange(len(self.servers))
            self.report.faults += [f"server {number}: {line[:300]}" for line in self.servers[number].faults]
            await asyncio.to_thread(self.servers[number].kill)
            self.report.kills += 1
            await asyncio.to_thread(self.begin, number)

    # --- the clients

    async def ask(self, http: httpx2.AsyncClient, act: str, method: str, path: str, **more: Any) -> Any:
        """One request to any of the servers. None: it was refused, or the server is gone."""
        server = self.random.choice(self.servers)
        try:
            answer = await http.request(method, server.url + path, timeout=45, **more)
        except httpx2.HTTPError:
            self.report.acts[f"{act} lost"] += 1
            return None
        self.report.acts[f"{act} {answer.status_code}"] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self.report.faults.append(f"{act} {path}: {answer.status_code} {answer.text[:200]}")
        if not answer.is_success or not answer.headers.get("content-type", "").startswith("application/json"):
            return None
        return answer.json()

    async def work(self, number: int, until: float) -> None:
        """One client: acts at random, most of them on runs that others act on, too."""
        async with httpx2.AsyncClient() as http:
            while time.monotonic() < until:
                act = self.random.choice(_ACTS)
                await act(self, http)

    async def run(self, http: httpx2.AsyncClient, *statuses: str) -> dict[str, Any] | None:
        """Any of the newest runs, of one of these statuses."""
        status = self.random.choice(statuses) if statuses else None
        query: dict[str, Any] = {"limit": 30} | ({} if status is None else {"status": status})
        found = await self.ask(http, "list", "GET", "/v1/runs", params=query)
        return self.random.choice(found["items"]) if found and found["items"] else None

    async def start(self, http: httpx2.AsyncClient) -> None:
        given = {"n": self.random.randrange(12), "key": self.random.choice("xy")}
        body = {"workflow": self.random.choice(self.workflows), "input": given}
        await self.ask(http, "start", "POST", "/v1/runs", json=body)

    async def speak(self, http: httpx2.AsyncClient) -> None:
        """A message in a thread, mostly one with a run that is active. Nobody waits for what it says."""
        run = await self.run(http, "waiting", "running")
        thread = run["thread_id"] if run is not None and self.random.random() < 0.8 else unique("thread")
        workflow = run["workflow"] if run is not None else self.random.choice(self.workflows)
        message = {"id": unique("m"), "role": "user", "content": "go on"}
        body = {"threadId": thread, "runId": unique("turn"), "messages": [message], "state": {}, "tools": []}
        server = self.random.choice(self.servers)
        path = f"{server.url}/workflows/{workflow}/awp"
        try:
            async with asyncio.timeout(3), http.stream("POST", path, json=body, timeout=3) as answer:
                self.report.acts[f"speak {answer.status_code}"] += 1
                await answer.aread()
        except (httpx2.HTTPError, TimeoutError):
            self.report.acts["speak left"] += 1

    async def decide(self, http: httpx2.AsyncClient) -> None:
        found = await self.ask(http, "inbox", "GET", "/v1/pendings", params={"limit": 50})
        if found and found["items"]:
            pending = self.random.choice(found["items"])
            vote = self.random.choice(("approve", "approve", "reject"))
            body = {"values": {}} if pending["kind"] == "ask" else {"decision": vote}
            await self.ask(http, "decide", "POST", f"/v1/pendings/{pending['id']}/decide", json=body)

    async def control(self, http: httpx2.AsyncClient) -> None:
        act, statuses = self.random.choice(_CONTROLS)
        run = await self.run(http, *statuses)
        if run is not None:
            body = {"step": self.random.choice(STEPS)} if act == "skip" else {}
            await self.ask(http, act, "POST", f"/v1/runs/{run['id']}/{act}", json=body)

    async def fork(self, http: httpx2.AsyncClient) -> None:
        run = await self.run(http, "waiting", "waiting", "running", "stopped", "finished", "failed", "paused")
        if run is None:
            return
        body: dict[str, Any] = {"step": self.random.choice(STEPS)}
        if self.random.random() < 0.3:
            body = {"at": self.random.randrange(1, max(2, run["seq"] + 1))}
        if self.random.random() < 0.4:
            body["input"] = {"n": self.random.randrange(12), "key": self.random.choice("xy")}
        headers = {"Idempotency-Key": unique("key")}
        for _ in range(self.random.choice((1, 1, 2))):  # some send it twice, as after a lost answer
            await self.ask(http, "fork", "POST", f"/v1/runs/{run['id']}/fork", json=body, headers=headers)

    # --- the end

    async def come_to_rest(self) -> None:
        """Answer, resume and end everything, until nothing is left over."""
        eye = await asyncpg.connect(self.dsn)
        left: dict[str, int] = {}
        try:
            async with httpx2.AsyncClient() as http:
                until, least = time.monotonic() + QUIET_SECONDS, None
                while time.monotonic() < until:
                    await eye.execute("UPDATE slots SET promised_until = now() WHERE promised_until IS NOT NULL")
                    rows = await eye.fetch(
                        f"SELECT id FROM runs WHERE {OPEN} AND status = ANY ($1) ORDER BY place", AT_REST
                    )
                    for start in range(0, len(rows), CLIENTS):
                        ends = (self._terminate(http, row["id"]) for row in rows[start : start + CLIENTS])
                        await asyncio.gather(*ends)
                    left = {what: await eye.fetchval(query) for what, query in LEFT_OVER.items()}
                    if not any(left.values()):
                        break
                    if least is None or sum(left.values()) < least:  # thousands of runs wait for one slot
                        until, least = time.monotonic() + QUIET_SECONDS, sum(left.values())
                    await asyncio.sleep(0.5)
            self.report.faults += [f"left over: {count} {what}" for what, count in left.items() if count]
            await self._judge(eye)
        finally:
            await eye.close()

    async def _terminate(self, http: httpx2.AsyncClient, run_id: UUID) -> None:
        await self.ask(http, "terminate", "POST", f"/v1/runs/{run_id}/terminate", json={})

    async def _judge(self, eye: asyncpg.Connection[Any]) -> None:
        found = [VerifiedRuns(), *[each async for each in verify(eye, Verifying())]][-1]
        self.report.runs = found.runs
        self.report.faults += [f"verify: {each}" for each in found.violations]
        born = {row["id"]: row["copied"] for row in await eye.fetch("SELECT id, copied FROM runs")}
        self.report.forks = sum(1 for copied in born.values() if copied)
        for run_id in born:
            rows = await logs.read_log(eye, run_id, 0, 100_000)
            events = [event for row in rows for event in e.decode_events(row.events)]
            state = fold(RunState(str(run_id)), events)
            self.report.taken_back += sum(isinstance(each, e.WorkTakenBack) for each in events)
            orphaned = state.heir is not None and UUID(state.heir.run_id) not in born and state.left_at
            if orphaned:
                self.report.faults.append(f"orphan: run {run_id} has left its work to nobody")
            terminated = any(isinstance(each, e.RunStopped) and each.terminated for each in events)
            if state.status == "stopped" and not terminated and state.undoables:
                self.report.faults.append(f"run {run_id} is stopped and has not undone {sorted(state.undoables)}")


_Act = Callable[[_Campaign, httpx2.AsyncClient], Awaitable[None]]
_ACTS: Final[tuple[_Act, ...]] = (
    _Campaign.start,
    _Campaign.speak,
    _Campaign.speak,
    _Campaign.decide,
    _Campaign.decide,
    _Campaign.control,
    _Campaign.fork,
    _Campaign.fork,
    _Campaign.fork,
)
_CONTROLS: Final = (
    ("stop", ("waiting", "running", "queued")),
    ("pause", ("waiting", "running")),
    ("resume", ("paused",)),
    ("retry", ("failed", "needs_attention")),
    ("skip", ("waiting", "failed")),
    ("terminate", ("waiting",)),
)


async def campaign(dsn: str, *, seed: int, seconds: float, kill_every: float) -> Report:
    """Run the campaign over an empty database of this DSN."""
    made = _Campaign(dsn, seed)
    try:
        for number in range(SERVERS):
            await asyncio.to_thread(made.begin, number)
        async with httpx2.AsyncClient() as http:
            for kind, head in HEADS.items():
                name = f"{kind}_{unique('w')}".replace("-", "_")
                text = BODY.format(name=name, head=head)
                await made.ask(http, "publish", "POST", "/v1/workflows", content=text, headers=YAML)
                made.workflows.append(name)
        until = time.monotonic() + seconds
        await asyncio.gather(*(made.work(number, until) for number in range(CLIENTS)), made.kill(kill_every, until))
        await made.come_to_rest()
    finally:
        made.end()
    return made.report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--kill-every", type=float, default=20.0, help="seconds between two kills")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with serve(uuid4().hex[:12], "main") as postgres, postgres.database() as dsn:
        report = asyncio.run(campaign(dsn, seed=given.seed, seconds=given.minutes * 60, kill_every=given.kill_every))
    for act, count in sorted(report.acts.items()):
        print(f"{count:7} {act}")
    print(f"{report.runs} runs, {report.forks} forks, {report.kills} kills, {report.taken_back} took their work back")
    for fault in report.faults:
        print(fault)
    raise SystemExit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
