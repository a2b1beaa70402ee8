"""The costs of the language: checking a document, the expressions of a step, and an item of a long list."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from bench.engine import Engine, running
from bench.workflows import STEPS, calculating, chain, listing, long_document
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.plan import Call, Plan, Set

DOCUMENT_STEPS: Final = 500
CALCULATED: Final = 30


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure: rounds of everything, runs of a round, documents of a round, items of both lists."""

    rounds: int
    runs: int
    documents: int
    few: int = 100
    many: int = 10_000


FULL = Size(rounds=5, runs=256, documents=5)
QUICK = Size(rounds=3, runs=128, documents=2)


def validation(size: Size) -> dict[str, Any]:
    """A 500-step document checked, against PyYAML's C loader alone on the same bytes."""
    document = long_document(DOCUMENT_STEPS)
    assert not check_workflow(document), "the document has no findings"
    checked, loaded = [], []
    for _ in range(size.rounds * size.documents):
        checked.append(_seconds(lambda: check_workflow(document)))
        loaded.append(_seconds(lambda: yaml.load(document, yaml.CSafeLoader)))
    check, load = statistics.median(checked), statistics.median(loaded)
    return {
        "validate_vs_yaml_load": check / load,
        "document_bytes": len(document),
        "check_ms": check * 1000,
        "load_ms": load * 1000,
    }


async def measure(dsn: str, size: Size) -> dict[str, Any]:
    """Interleaved rounds over the database `dsn`; medians and ratios."""
    async with running(dsn, chain()) as engine:
        plain, calculated = engine.plan, await engine.published(calculating(CALCULATED))
        lists = await engine.published(listing())
        await engine.finish_runs(size.runs)
        await engine.finish_runs(size.runs // 3, plan=calculated)
        await _list(engine, lists, size.few)
        rates: dict[str, list[float]] = {"plain": [], "with_expressions": []}
        items: dict[int, list[float]] = {size.few: [], size.many: []}
        grown: list[float] = []
        for _ in range(size.rounds):
            rates["plain"].append(await _rate(engine, plain, size.runs, STEPS))
            rates["with_expressions"].append(
                await _rate(engine, calculated, size.runs * STEPS // CALCULATED, CALCULATED)
            )
            items[size.few].append(statistics.median([await _list(engine, lists, size.few) for _ in range(10)]))
            before = _peak()
            items[size.many].append(await _list(engine, lists, size.many))
            grown.append(_peak() - before)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    cost = {count: statistics.median(each) * 1e6 for count, each in items.items()}
    return {
        "steps_with_expressions_vs_plain": medians["with_expressions"] / medians["plain"],
        "for_each_cost_10000_vs_100": cost[size.many] / cost[size.few],
        "steps_per_second": medians,
        "evaluator_us_per_step": _evaluator(calculated),
        "us_per_item": {str(count): each for count, each in cost.items()},
        "peak_memory_mib_of_the_long_list": max(grown) / 2**20,
    }


async def _rate(engine: Engine, plan: Plan, runs: int, steps: int) -> float:
    began = time.perf_counter()
    await engine.finish_runs(runs, plan=plan)
    return runs * steps / (time.perf_counter() - began)


async def _list(engine: Engine, plan: Plan, count: int) -> float:
    """Seconds per item of one run over `count` items."""
    began = time.perf_counter()
    await engine.finish_runs(1, plan=plan, input={"items": list(range(count))})
    return (time.perf_counter() - began) / count


def _evaluator(plan: Plan) -> float:
    """Microseconds that the expressions of one step take by themselves."""
    scope = {
        "state": {"total": 3.0, "seen": [1.0, 2.0]},
        "input": {"n": 1},
        "steps": {step.id: {"status": "finished", "output": 2.0} for step in plan.steps.values()},
    }
    work: list[Callable[[], Any]] = []
    for step in plan.steps.values():
        if step.condition is not None:
            work.append(lambda condition=step.condition: condition.evaluate(scope))
        if isinstance(step.verb, Call):
            work.append(lambda arguments=step.verb.arguments: arguments.render(scope))
        elif isinstance(step.verb, Set):
            work += [lambda value=value: value.render(scope) for _, value in step.verb.assign]
    rounds = [_seconds(lambda: [each() for each in work]) for _ in range(200)]
    return statistics.median(rounds) * 1e6 / len(plan.steps)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
