"""`python -m bench`: measure, print a table, write bench/latest.json.

`peers`: measure other engines beside ours (docs/peers.md). `--quick`: rougher; `--profile`: look inside;
`--against COMMIT`: measure this tree and a commit in turns, and compare; `--commit-delay MS`: as on a slower disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog

from bench import (
    agents,
    auditing,
    dev_start,
    fanout,
    feeds,
    floor,
    freezes,
    idle,
    language,
    memory,
    neighbours,
    receipts,
    resume,
    stalls,
    starts,
    streams,
    telemetry,
    throughput,
    walls,
    world,
)
from bench.against import against, exit_on_sigterm
from bench.peers import report as peers
from bench.profiling import profile
from bench.server import durable_server

LATEST = Path(__file__).parent / "latest.json"
KEYS = {
    "steps_vs_group_commit": "steps/s of the whole engine, to a bare group commit of the same rows",
    "steps_vs_transaction_per_step": "steps/s of the whole engine, to one transaction per step",
    "start_in_commits": "from handing in the start of a plain run until it is committed, in raw commits; aim 1.6",
    "mcp_start_vs_rest": "a start as a task of MCP, from its request to its answer, to one by REST; aim 1.3",
    "a2a_start_vs_rest": "the same over A2A; aim 1.3",
    "waiting_tasks_cpu": "of a core, for 1,000 waiting tasks of MCP that are polled as they say; aim 0.02",
    "resume_in_commits": "from an answer to the next step's event at a follower, in raw commits of one run",
    "token_delay_in_commits": "from a piece of a streamed text to a follower that has it, in raw commits of one run",
    "chunk_rows_at_50_streams": "rows of the log for each piece, where 50 texts are streamed at once",
    "agent_turn_in_commits": "a turn of an agent with one call, without its model, in raw commits of one run",
    "tool_transaction_vs_plain": "a step whose tool writes in its own transaction, to one whose tool writes nothing",
    "auth_and_rls_cost": "a request with a key, read behind row-level security, to one without either",
    "audit_cost": "a start of a run that the audit records, to one that it does not",
    "neighbour_at_limit": "starts of a tenant beside one that is refused without end, to those alone; aim over 0.5",
    "loop_stall_ms": "the longest standstill of the loop beside hostile authors, in milliseconds; aim under 50",
    "dev_start_vs_before": "processor time of `dev` until it is ready, to that of commit 816c0e8b; aim under 0.65",
    "feed_cost_idle": "reads of lists a second for an open console beside commits of other tenants; aim 0",
    "idle_statements_per_second": "statements a second of a process that performs and has nothing to do; aim 3",
    "freeze_cost": "a step whose commits read the switch that freezes, to one whose commits do not; aim 1.00",
    "receipt_ms": "a signed receipt of one decision, read off the log of its run, in milliseconds",
    "telemetry_cost": "a step with metrics, census and traces, to one that nobody watches",
    "suspended_memory_ratio": "resident memory beside many suspended runs, to that beside few",
    "validate_vs_yaml_load": "checking a document of 500 steps, to PyYAML's C loader alone on it",
    "for_each_cost_10000_vs_100": "an item of a list of 10,000, to an item of a list of 100",
    "fanout_vs_starlette": "deliveries to 1,000 followers per core-second, to a bare Starlette stream of the bytes",
    "fanout_bursts_vs_starlette": "the same in bursts of ten events",
    "follower_memory_vs_starlette": "memory of an idle follower, to that of one of the bare Starlette stream",
    "steps_with_expressions_vs_plain": "steps/s with conditions, arithmetic and state, to those of the chain above",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=["peers"], help="measure other engines beside ours, and kill them")
    parser.add_argument("--quick", action="store_true", help="rougher, in four minutes; with --against in twenty")
    parser.add_argument("--profile", action="store_true", help="where the engine's time goes; writes nothing")
    parser.add_argument("--against", metavar="COMMIT", help="measure this tree and that commit in turns, and compare")
    parser.add_argument(
        "--commit-delay",
        type=float,
        default=0.0,
        metavar="MS",
        help="each commit takes this much longer, as on a slower disk; writes nothing",
    )
    arguments = parser.parse_args()
    exit_on_sigterm()
    if arguments.against is not None:
        print(against(arguments.against, quick=arguments.quick))
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if arguments.part == "peers":
        peers.main(quick=arguments.quick)
        return
    with durable_server(arguments.commit_delay) as database:
        if arguments.profile:
            _run(profile(database("engine"), database("reference")))
            return
        began = time.perf_counter()
        details: dict[str, dict[str, Any]] = {
            "throughput": _run(
                throughput.measure(
                    database("engine"),
                    database("reference"),
                    throughput.QUICK if arguments.quick else throughput.FULL,
                )
            ),
            "resume": _run(
                resume.measure(database("resume"), database("resume_reference"), 50 if arguments.quick else 200)
            ),
            "starts": _run(
                starts.measure(database("starts"), database("starts_reference"), 50 if arguments.quick else 200)
            ),
            "floor": _run(
                floor.measure(database("floor"), database("floor_reference"), 50 if arguments.quick else 200)
            ),
            "agents": _run(agents.measure(database("agents"), 50 if arguments.quick else 200)),
            "streams": _run(
                streams.measure(database("streams"), database("streams_reference"), 1.0 if arguments.quick else 4.0)
            ),
            "world": _run(world.measure(database("world"), database("world_reference"), 5 if arguments.quick else 20)),
            "walls": _run(walls.measure(database("walls"), 20 if arguments.quick else 100)),
            "auditing": _run(auditing.measure(database("auditing"), 20 if arguments.quick else 100)),
            "neighbours": _run(neighbours.measure(database("neighbours"), 5 if arguments.quick else 15)),
            "stalls": _run(stalls.measure(database("stalls"), 2 if arguments.quick else 7)),
            "feeds": _run(feeds.measure(database("feeds"), 3.0 if arguments.quick else 20.0)),
            "idle": _run(idle.measure(database("idle"), 5.0 if arguments.quick else 20.0)),
            "freezes": _run(freezes.measure(database("freezes"), *((3, 256) if arguments.quick else (7, 1024)))),
            "receipts": _run(receipts.measure(database("receipts"), 50 if arguments.quick else 200)),
            "telemetry": _run(telemetry.measure(database("telemetry"), *((3, 256) if arguments.quick else (7, 1024)))),
            "validation": language.validation(language.QUICK if arguments.quick else language.FULL),
            "language": _run(
                language.measure(database("language"), language.QUICK if arguments.quick else language.FULL)
            ),
            "fanout": _run(fanout.measure(database("fanout"), fanout.QUICK if arguments.quick else fanout.FULL)),
            "dev_start": _run(dev_start.measure(1 if arguments.quick else 5)),
            "memory": _run(memory.measure(database("memory"), readings=1 if arguments.quick else 3)),
        }
    report = reported(details, quick=arguments.quick)
    print(table(report))
    if arguments.commit_delay:
        return
    LATEST.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{time.perf_counter() - began:.0f} s, {LATEST}")


def reported(details: dict[str, dict[str, Any]], *, quick: bool) -> dict[str, Any]:
    """The report: the keys first, then the numbers that they are computed from, and the machine."""
    measured = {key: value for part in details.values() for key, value in part.items()}
    return {
        **{key: round(measured[key], 4) for key in KEYS},
        "quick": quick,
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "details": details,
    }


def table(report: dict[str, Any]) -> str:
    """The report as people read it."""
    lines = [
        _in_absolute_numbers(report),
        *(f"{key:<32}{report[key]:>10.3f}   {meaning}" for key, meaning in KEYS.items()),
    ]
    for part, details in report["details"].items():
        lines.append(f"\n{part}")
        for name, value in details.items():
            if name not in KEYS:
                lines.append(f"  {name:<30}{_shown(value)}")
    return "\n".join(lines)


def _in_absolute_numbers(report: dict[str, Any]) -> str:
    """What the ratios are of, on this machine."""
    rates, machine = report["details"]["throughput"]["steps_per_second"], report["machine"]
    return (
        f"{rates['engine']:,.0f} durable steps a second on {machine['cores']} cores ({machine['system']}, Python "
        f"{machine['python']}); a raw group commit of the same rows {rates['group_commit']:,.0f}; one transaction a "
        f"step {rates['transaction_per_step']:,.0f}\n"
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "   ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


if __name__ == "__main__":
    main()
