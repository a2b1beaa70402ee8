"""The cost of an agent's durable loop beside its model, and the cost of a tool's own transaction.

`agent_turn_in_commits`: a model that answers at once calls one tool in each of twenty turns; the median time of a turn
(ask, record the answer, call, record its result) in raw durable commits of one run. `tool_transaction_vs_plain`: the
time of a step whose tool writes in a transaction of its own, to that of a step whose tool writes nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from bench.engine import Engine, running
from bench.reference import Reference, shape_of
from bench.resume import commit_seconds
from bench.workflows import AGENT, BOOKKEEPING, TURNS, chain
from hai_flow.models.providers.catalogue import Catalogue, read_catalogue
from hai_flow.models.providers.endpoints import Providers
from hai_flow.models.vocabulary import CallArgs, CallStart, Endpoint, Finish, ModelProvider, Piece, Request, Text, Usage
from hai_flow.runtime.runtime import Runtime
from hai_flow.steps.llm import LlmRunner
from hai_flow.steps.python.runner import PythonRunner
from hai_flow.steps.runner import Registry
from hai_flow.steps.secrets import Secrets

_MODELS: Final = b"{hai: models/v1, models: {counting: {provider: ollama, model: counting}}}"
COMMITS: Final = 50
AT_ONCE: Final = 8


async def measure(dsn: str, reference_dsn: str, runs: int) -> dict[str, Any]:
    """`runs`: agents one after the other, and chains of steps with and without a transaction."""
    async with running(dsn, AGENT, prepared=_with_model_at_once) as engine:
        await _finished(engine, 1)
        reference = await Reference.open(reference_dsn, await shape_of(dsn))
        try:
            await commit_seconds(reference)
            commits = [await commit_seconds(reference) for _ in range(COMMITS)]
            agents = [await _finished(engine, 1) for _ in range(runs)]
            commits += [await commit_seconds(reference) for _ in range(COMMITS)]
        finally:
            await reference.close()
    plain, written = [], []
    async with running(dsn, chain()) as engine:
        tools = await engine.runtime.database.tools()  # the role of the URL: the table is the deployment's own
        await tools.execute("CREATE TABLE IF NOT EXISTS bench_books (n bigint)")
        books = await engine.published(BOOKKEEPING)
        for _ in range(3):
            plain.append(await _finished(engine, AT_ONCE))
            began = time.perf_counter()
            await engine.finish_runs(AT_ONCE, AT_ONCE, plan=books)
            written.append(time.perf_counter() - began)
    commit, turn = statistics.median(commits), statistics.median(agents) / (TURNS + 1)
    with_transaction, without = min(written), min(plain)
    return {
        "agent_turn_in_commits": turn / commit,
        "tool_transaction_vs_plain": with_transaction / without,
        "milliseconds": {"commit": commit * 1e3, "turn": turn * 1e3},
        "steps_seconds": {"plain": without, "in_transactions": with_transaction},
    }


async def _finished(engine: Engine, count: int) -> float:
    """Seconds that so many runs take, at once."""
    began = time.perf_counter()
    await engine.finish_runs(count, count)
    return time.perf_counter() - began


def _with_model_at_once(runtime: Runtime) -> None:
    """Let the process ask a model that takes no time."""
    providers = _AtOnce()
    models, _ = read_catalogue(_MODELS, "models.yaml")
    llm = LlmRunner(Catalogue(models, providers.offered), providers, Secrets())
    runtime.registry = Registry({"python": PythonRunner(runtime.toolbox), "llm": llm})


class _AtOnce(Providers):
    async def of(self, endpoint: Endpoint) -> ModelProvider:
        return _Counting()


class _Counting:
    """A model that calls the tool until it has been called often enough."""

    def fault(self, endpoint: Endpoint) -> str | None:
        return None

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        called = sum(message.role == "tool" for message in request.messages)
        if called < TURNS:
            yield CallStart(f"c{called}", request.tools[0].name)
            yield CallArgs(f"c{called}", f'{{"n": {called}}}')
        else:
            yield Text("Done.")
        yield Usage(input=10, output=10)
        yield Finish("stop")

    async def close(self) -> None:
        pass
