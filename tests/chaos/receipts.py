"""The campaign of receipts: kill -9 between vote, effect and receipt, so many times. Each decision has exactly one
receipt, the same whenever it is asked for, which the verifier outside of the package accepts and which says what the
run's log and the world say.

    python -m tests.chaos.receipts --kills 1000 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from hai_flow_chaos import http
from hai_flow_chaos.clients import Caller
from hai_flow_chaos.effects import World
from hai_flow_chaos.history import History
from hai_flow_chaos.plan import Campaign
from hai_flow_chaos.stage import Stage, staged

from clients.receipts.verify_receipt import verify
from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.runtime.people.receipts import make_key
from hai_flow.store.runs import run_bundle

LIVES: Final = 8  # decisions under way at each moment
PAUSE_SECONDS: Final = 0.5  # the longest from when the processes are ready to a kill
READY_SECONDS: Final = 120.0
FLOW: Final = """
hai: flow/v1
name: proven
version: 1
input: {type: object, required: [world, n], properties: {world: {type: string}, n: {type: integer}}}
tools: {world: {python: hai_flow_chaos.tools, effect: external}}
defaults: {retry: {max: 50, every: 100ms}}
steps:
  - id: act
    call: world.act
    with: {to: "${{ input.world }}", detail: "as asked"}
    approval: {from: [user:ann, user:bob], quorum: 2, edit: [detail], deadline: 1h}
    on_reject: [{return: null}]
"""
STAGES: Final = ("asking", "between vote and vote", "between vote and effect", "before the receipt")


@dataclass(slots=True)
class Proof:
    """A decision: the run, the bytes of each receipt that was given, and the content of one."""

    run_id: str
    pending_id: str
    decision: str
    receipts: set[bytes]
    content: Mapping[str, Any]


@dataclass(slots=True)
class Drill:
    """Decisions are made and proven while processes are killed. `stages`: where each decision stands; `struck`: how
    many kills found one there."""

    stage: Stage
    world: World
    history: History
    caller: Caller
    chance: random.Random
    keys: str = ""
    over: bool = False
    kills: int = 0
    stages: dict[int, str] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)
    proofs: list[Proof] = field(default_factory=list)

    async def live(self, life: int) -> None:
        """Make one decision after the other, until the last kill is over."""
        while not self.over:
            self.proofs.append(await self._prove(life))

    async def _prove(self, life: int) -> Proof:
        ask, decision = self.caller.ask, "approve" if self.chance.random() < 0.9 else "reject"
        self.stages[life] = STAGES[0]
        body = {"workflow": "proven", "input": {"world": self.world.url, "n": life}}
        run = (await ask("operator", "POST", "/v1/runs", body, key=f"{life}-{self.chance.random()}")).body
        path = f"/v1/runs/{run['id']}/snapshot"
        while True:
            questions = (await ask("operator", "GET", path)).body["pendings"]
            if questions:
                break
            await asyncio.sleep(0.05)
        pending_id = questions[0]["id"]
        answer: dict[str, Any] = {"decision": decision}
        if decision == "approve" and self.chance.random() < 0.5:
            answer["edits"] = {"detail": f"edited {self.chance.random()}"}
        for who in ("ann", "bob"):
            await ask(who, "POST", f"/v1/pendings/{pending_id}/decide", answer)
            self.stages[life] = STAGES[1 if who == "ann" else 2]
            answer = {"decision": decision}
        first = await self._fetch(run["id"], pending_id)
        self.stages[life] = STAGES[3]
        again = await self._fetch(run["id"], pending_id)
        return Proof(run["id"], pending_id, decision, {first, again}, verify(first.decode(), self.keys))

    async def _fetch(self, run_id: str, pending_id: str) -> bytes:
        """The bytes of the receipt, as soon as there is one. A run whose attempts were lost too often in a row waits
        for an operator, who has it retried."""
        path, headers = f"/v1/pendings/{pending_id}/receipt", self.caller.credential("operator")
        while True:
            with contextlib.suppress(http.Lost):
                sent = http.asked(self.caller.server(), "GET", path, headers, seconds=15.0)
                async with sent as answer:
                    text = await answer.body()
                if answer.status == 200:
                    return text
            run = (await self.caller.ask("operator", "GET", f"/v1/runs/{run_id}")).body
            if run["status"] == "needs_attention":
                await self.caller.ask("operator", "POST", f"/v1/runs/{run_id}/retry")
            await asyncio.sleep(self.chance.uniform(0.05, 0.2))

    async def strike(self, kills: int, minutes: float) -> None:
        """Kill a server or a worker, or two of them, as often as that. What counts are kills that find a decision
        between its first vote and its receipt. It ends early after so many `minutes`."""
        end = self.history.now() + minutes * 60
        while self.kills < kills and self.history.now() < end:
            async with asyncio.timeout(READY_SECONDS):
                await asyncio.gather(*(seat.ready.wait() for seat in self.stage.seats))
            await asyncio.sleep(self.chance.uniform(0, PAUSE_SECONDS))
            standing = {each for each in self.stages.values() if each != STAGES[0]}
            for seat in self.chance.sample(self.stage.seats, self.chance.choice((1, 1, 2))):
                if seat.kill() and standing:
                    self.kills += 1
                    self.struck.update(standing)
        self.over = True

    async def fetch_keys(self) -> str:
        """The public keys, as the server shows them."""
        return values.dumps((await self.caller.ask("operator", "GET", "/.well-known/jwks.json")).body).decode()


def find_faults(proof: Proof, events: Sequence[e.Event], effects: Sequence[int]) -> list[str]:
    """What is wrong with a receipt, held against the run's log and the attempts that the world has seen."""
    content, executed = proof.content, proof.content["executed"]
    faults = [f"{len(proof.receipts)} receipts were given"] if len(proof.receipts) != 1 else []
    opened = next(event for event in events if isinstance(event, e.PendingOpened))
    votes = [event for event in events if isinstance(event, e.VoteCast) and event.id == opened.id]
    logged = [event.attempt for event in events if isinstance(event, e.AttemptStarted)]
    ended = sum(isinstance(event, e.StepFinished) and event.path == opened.path for event in events)
    if len(content["votes"]) != len(votes) or content["decision"]["outcome"] != proof.decision:
        faults.append(f"it has {len(content['votes'])} votes, the log {len(votes)}")
    if [each["attempt"] for each in executed] != logged:
        faults.append(f"it has the attempts {[each['attempt'] for each in executed]}, the log {logged}")
    if proof.decision == "approve" and (ended, [each["outcome"] for each in executed].count("finished")) != (1, 1):
        faults.append(f"the step has finished {ended} times, and in the receipt {executed}")
    if proof.decision == "reject" and (executed or effects):
        faults.append("what was refused was done")
    if not set(effects) <= set(logged) or len(effects) != len(set(effects)):
        faults.append(f"the world saw the attempts {list(effects)}, the log {logged}")
    return faults


async def drill(kills: int, seed: int, report: Path, minutes: float = 600) -> tuple[Drill, list[str]]:
    """The drill, and everything that was wrong with a receipt."""
    history, chance = History(), random.Random(seed)
    campaign = Campaign(seed, servers=1, workers=2, lease=2.0)
    keys = report / "keys.json"
    make_key(keys)
    keys.chmod(0o644)
    extra = {"HAI_FLOW_RECEIPT_KEYS": str(keys)}
    faults: list[str] = []
    async with World(history) as world, staged(campaign, history, report, extra, keep=False) as stage:
        made = Drill(stage, world, history, Caller(stage, history, chance), chance)
        published = await made.caller.ask("operator", "POST", "/v1/workflows", yaml=FLOW.encode())
        assert published.ok, published
        made.keys = await made.fetch_keys()
        async with asyncio.TaskGroup() as group:
            for life in range(LIVES):
                group.create_task(made.live(life))
            group.create_task(made.strike(kills, minutes))
        effects = history.effects_by_key()
        connection = await stage.connect()
        try:
            for proof in made.proofs:
                events: list[e.Event] = []
                async for row in run_bundle.log_rows(connection, UUID(proof.run_id)):
                    events += e.decode_events(row["events"])
                seen = [each.attempt for each in effects.get(f"{proof.run_id}/act", ())]
                faults += [f"{proof.pending_id}: {fault}" for fault in find_faults(proof, events, seen)]
        finally:
            await connection.close()
    return made, faults + [str(each) for each in history.broken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=600, help="at most so long")
    arguments = parser.parse_args()
    print(f"Seed {arguments.seed}.", flush=True)
    with tempfile.TemporaryDirectory(prefix="hai-flow-receipts-") as report:
        Path(report).chmod(0o755)
        made, faults = asyncio.run(drill(arguments.kills, arguments.seed, Path(report), arguments.minutes))
    print(f"{made.kills} kills, {len(made.proofs)} decisions with one receipt each; kills that found a decision:")
    for name in STAGES[1:]:
        print(f"  {name}: {made.struck[name]}")
    for fault in faults[:20]:
        print(fault)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
