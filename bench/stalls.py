"""How long the loop of a process stands still while authors send it what is long to work on.

`loop_stall_ms`: the longest time in which nothing else was done, in milliseconds, the median of some rounds. In each
round clients start runs while authors have hostile and large documents checked, and publish one that nobody has seen.
The clock counts, so on a machine that does much else the number is that machine's as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from bench.engine import running
from bench.workflows import chain
from hai_flow.api.app import create_app
from hai_flow.telemetry.loop_watch import LoopWatch

CLIENTS: Final = 4
RUNS: Final = 60  # of a round
_YAML: Final = {"Content-Type": "application/yaml"}
_HEAD: Final = "hai: flow/v1\nname: stalling\nversion: 1\n"


def _doubled(keyword: str, times: int) -> str:
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(1, times + 1):
        before = {"$ref": f"#/$defs/a{number - 1}"}
        definitions[f"a{number}"] = {keyword: [before, before]}
    return f"{_HEAD}state: {{x: {json.dumps({'$defs': definitions, '$ref': f'#/$defs/a{times}', 'default': 1})}}}\n"


def _steps(count: int, step: str) -> str:
    return f"{_HEAD}steps:\n" + "".join(f"  - {step.replace('NUMBER', str(number))}\n" for number in range(count))


DOCUMENTS: Final = (
    _doubled("allOf", 30) + "steps: [{say: hi}]\n",
    _doubled("anyOf", 11) + "steps: [{say: hi}]\n",
    _steps(3_000, 'say: "hello ${{ run.id }}"'),
    _steps(500, "if: NUMBER + 1 > NUMBER * 2\n    say: hi"),
    _steps(500, 'say: "${{ inptu.xNUMBER }}"'),
    f'{_HEAD}steps: [{{if: "size([1,2,3].map(a, [1,2,3].map(b, [a, b]))) > 0", say: hi}}]\n',
)
LISTS: Final = b"""hai: flow/v1
name: bench_lists
version: 1
input: {type: object, properties: {rows: {type: array, items: {type: integer}}}}
state: {kept: {type: integer, default: 0}}
steps:
  - set: {kept: "${{ size(input.rows.sort_by(x, -x).map(x, x + 1)) }}"}
"""


async def measure(dsn: str, rounds: int) -> dict[str, Any]:
    async with running(dsn, chain(3)) as engine:
        lists = await engine.published(LISTS)
        rows = {"rows": list(range(1_000))}
        app = create_app(engine.runtime.settings, engine.runtime)
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as author:
            await author.post("/v1/workflows/validate", content=DOCUMENTS[-1], headers=_YAML)
            await engine.finish_runs(RUNS, CLIENTS)
            await engine.finish_runs(1, 1, plan=lists, input=rows)
            watch = LoopWatch()
            await watch.start()
            stalls: list[float] = []
            checked = 0
            for number in range(rounds):
                watch.forget()
                async with _writing(author) as counted:
                    source = DOCUMENTS[2].replace("name: stalling", f"name: stalling_{number}").encode()
                    await asyncio.gather(
                        engine.finish_runs(RUNS, CLIENTS),
                        engine.finish_runs(2, 1, plan=lists, input=rows),
                        engine.published(source),
                    )
                stalls.append(1000 * watch.longest)
                checked += counted[0]
            await watch.stop()
    return {
        "loop_stall_ms": statistics.median(stalls),
        "loop_stall_ms_worst": max(stalls),
        "documents_checked": checked,
    }


@contextlib.asynccontextmanager
async def _writing(author: httpx2.AsyncClient) -> AsyncIterator[list[int]]:
    """An author who has one document after the other checked until the end; yields how many there were."""
    counted = [0]

    async def write() -> None:
        while True:
            for document in DOCUMENTS:
                answer = await author.post("/v1/workflows/validate", content=document, headers=_YAML)
                answer.raise_for_status()
                counted[0] += 1

    task = asyncio.create_task(write())
    try:
        yield counted
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
