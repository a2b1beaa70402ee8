"""The drill of freezes: thousands of runs that were started under a freeze are let go, and act on the world as fast as
their workers can; in the midst of that an operator freezes the tenant again. From two seconds later until the thaw the
world sees no effect; behind the thaw every run goes on where it was, and has done each of its acts once.

    python -m tests.chaos.freezes --runs 5000 --workers 3
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hai_flow_chaos.clients import Caller
from hai_flow_chaos.effects import World
from hai_flow_chaos.history import History
from hai_flow_chaos.plan import OBEYED_SECONDS, Campaign
from hai_flow_chaos.stage import staged

from tests.support.waiting import until

if TYPE_CHECKING:
    from asyncpg import Connection

ACTS: Final = 2
FROZEN_SECONDS: Final = 10.0
CALLERS: Final = 48
OVER_SECONDS: Final = 900
FLOW: Final = f"""
hai: flow/v1
name: acting
version: 1
input: {{type: object, required: [world], properties: {{world: {{type: string}}}}}}
tools: {{world: {{python: hai_flow_chaos.tools, effect: write}}}}
defaults: {{retry: {{max: 50, every: 100ms}}}}
steps:
  - repeat:
      max: {ACTS}
      steps:
        - {{id: act, call: world.act, with: {{to: "${{{{ input.world }}}}"}}}}
"""


@dataclass(slots=True)
class DrillOutcome:
    """Effects before the freeze, from two seconds after it until the thaw (`late`, seconds behind the freeze), and of
    all runs by their key. `held`: the runs with an act that waited for the thaw; `unfinished`: those that have not
    ended."""

    before: int
    held: int
    late: list[float]
    by_key: Counter[str]
    unfinished: int


async def drill(runs: int, workers: int, report: Path) -> DrillOutcome:
    """Start so many runs, freeze them in the midst of their acts, thaw them, and wait for their ends."""
    history = History()
    campaign = Campaign(1, servers=1, workers=workers, lease=10.0)
    async with World(history) as world, staged(campaign, history, report, {}, keep=False) as stage:
        ask = Caller(stage, history, random.Random(1)).ask
        assert (await ask("operator", "POST", "/v1/workflows", yaml=FLOW.encode())).ok
        numbers = iter(range(runs))

        async def start() -> None:
            for number in numbers:
                body = {"workflow": "acting", "input": {"world": world.url}}
                assert (await ask("operator", "POST", "/v1/runs", body, key=f"run-{number}")).ok

        async def freeze() -> str:
            made = await ask("operator", "POST", "/v1/freezes", {"scope": "tenant", "reason": "a drill"})
            return str(made.body["id"])

        async def thaw(id: str) -> None:
            assert (await ask("operator", "POST", f"/v1/freezes/{id}/thaw")).ok

        first = await freeze()
        await asyncio.gather(*(start() for _ in range(CALLERS)))
        print(f"{runs} runs wait for the thaw since {history.now():.0f} s", flush=True)
        await thaw(first)
        await until(lambda: len(history.effects) > runs // 10, seconds=OVER_SECONDS)
        frozen = await freeze()
        obeyed, before = history.now() + OBEYED_SECONDS, len(history.effects)
        await asyncio.sleep(OBEYED_SECONDS + FROZEN_SECONDS)
        connection = await stage.connect()
        try:
            held = await connection.fetchval("SELECT count(*) FROM runs WHERE held <> ''")
            thawed = history.now()
            await thaw(frozen)
            unfinished = await _count_unfinished(connection)
        finally:
            await connection.close()
        late = [each.at - obeyed + OBEYED_SECONDS for each in history.effects if obeyed < each.at < thawed]
        return DrillOutcome(before, held, late, Counter(each.key for each in history.effects), unfinished)


async def _count_unfinished(connection: Connection[Any]) -> int:
    """The runs that have not ended, as soon as there are none, or at the latest after `OVER_SECONDS`."""
    count = -1
    for _ in range(OVER_SECONDS):
        count = await connection.fetchval("SELECT count(*) FROM runs WHERE ended_at IS NULL")
        if not count:
            break
        await asyncio.sleep(1)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hai-flow-freezes-") as report:
        Path(report).chmod(0o755)
        outcome = asyncio.run(drill(arguments.runs, arguments.workers, Path(report)))
    twice = [key for key, count in outcome.by_key.items() if count > 1]
    missing = arguments.runs * ACTS - len(outcome.by_key)
    print(
        f"{arguments.runs} runs, {outcome.before} effects before the freeze, {len(outcome.late)} later than two seconds"
    )
    print(f"behind the thaw: {outcome.unfinished} have not ended, {missing} acts are missing, {len(twice)} came twice")
    raise SystemExit(1 if outcome.late or not outcome.held or twice or missing or outcome.unfinished else 0)


if __name__ == "__main__":
    main()
