"""Our engine as a subject: `python -m bench.peers.ours chain|agent DSN`."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import structlog

from bench.engine import running
from bench.peers import talking
from bench.peers.talking import LOOK, Json, Line
from bench.workflows import chain
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.ops.gc import relax_collector
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.steps.tools import Context, tool

TOOLS: Final = ("bench.peers.ours",)
AGENT: Final = b"""\
hai: flow/v1
name: bench_agent
version: 1
models: {smart: {use: smart}}
tools:
  free: {python: "bench.peers.ours:free", effect: write}
  edited: {python: "bench.peers.ours:edited", effect: write}
  denied: {python: "bench.peers.ours:denied", effect: write}
steps:
  - id: chat
    agent:
      model: smart
      prompt: Do it.
      tools: [free, edited, denied]
      approvals: {free: none, edited: {from: anyone, edit: [n]}, denied: {from: anyone}}
output: ${{ steps.chat.output }}
"""


@tool
async def free(n: int, context: Context) -> int:
    """A call without approval."""
    return await talking.call_tool("free", n, context.idempotency_key)


@tool
async def edited(n: int, context: Context) -> int:
    """Is approved with another number."""
    return await talking.call_tool("edited", n, context.idempotency_key)


@tool
async def denied(n: int, context: Context) -> int:
    """Is denied."""
    return await talking.call_tool("denied", n, context.idempotency_key)


class Agent:
    """The agent of the bench's world. A run goes on by itself in the next process when this one's lease is over."""

    def __init__(self, runtime: Runtime, plan: Plan, line: Line) -> None:
        self._runtime = runtime
        self._plan = plan
        self._line = line
        self._states: dict[str, RunState] = {}  # as of their last commits by this process

    def committed(self, run: CachedRun, first_seq: int, events: Sequence[e.Event]) -> None:
        self._states[run.state.run_id] = run.state
        if run.state.status == "waiting" or isinstance(events[-1], e.TERMINAL):
            self._line.tell(LOOK)

    async def start(self, run: str) -> None:
        start = c.Start(run_id=UUID(run), thread_id=run, requester=c.LOCAL_PRINCIPAL.id, input={})
        await self._runtime.starts.start(LOCAL_TENANT, self._plan, start)

    async def resume(self, run: str) -> None:
        """Nothing to do: the worker that holds the run goes on with it."""

    async def look(self, run: str) -> Json:
        state = self._states.get(run) or await self._state(run)
        waiting = state.open_pendings if state.status == "waiting" else {}
        return {
            "open": {pending: path.rpartition("/")[2] for path, pending in waiting.items()},
            "ended": None if state.status in ("running", "waiting") else [state.status, state.output],
        }

    async def answer(self, run: str, call: str, decision: str, n: int | None = None) -> None:
        edits = None if n is None else {"n": n}
        given: dict[str, Any] = {"decision": decision, "edits": edits} if edits else {"decision": decision}
        answer = c.Answer(answers=(c.PendingAnswer(id=call, **given),), by=c.LOCAL_PRINCIPAL)
        await self._runtime.committer.submit(UUID(run), LOCAL_TENANT, answer)

    async def _state(self, run: str) -> RunState:
        state = await self._runtime.fanout.state_at(LOCAL_TENANT, UUID(run), 2**53)
        assert state is not None
        return state


async def be_agent(dsn: str) -> None:
    relax_collector()
    with tempfile.TemporaryDirectory(prefix="hai-flow-bench-") as directory:
        models = Path(directory) / "models.yaml"
        models.write_text(
            "hai: models/v1\nmodels: {smart: {provider: openai, model: m, api_key: '${{ secrets.K }}', "
            f"base_url: '{talking.model_url()}'}}}}\n"
        )
        settings = Settings(
            tools=TOOLS,
            models=models,
            secrets={"K": "none"},
            lease_seconds=2.0,
            heartbeat_seconds=0.3,
            poll_seconds=0.2,
        )
        runtime = Runtime(dsn, settings, performs=True)
        async with runtime.lifespan():
            handlers: dict[str, talking.Handler] = {}
            line = Line(handlers)
            _, plan = await runtime.catalog.publish(LOCAL_TENANT, AGENT)
            agent = Agent(runtime, plan, line)
            runtime.committer.listeners.committed.append(agent.committed)
            handlers |= {"start": agent.start, "resume": agent.resume, "look": agent.look, "answer": agent.answer}
            await line.serve()


async def be_chain(dsn: str) -> None:
    async with running(dsn, chain(talking.STEPS)) as engine:

        async def perform(runs: int, concurrency: int) -> float:
            return await talking.in_parallel(runs, concurrency, lambda: engine.finish_runs(1, 1))

        await Line({"chain": perform}).serve()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    import uvloop

    uvloop.run({"chain": be_chain, "agent": be_agent}[sys.argv[1]](sys.argv[2]))
