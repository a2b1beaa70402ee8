"""`python -m bench peers`: measure, print the tables, write bench/peers/latest.json."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg

import cli
from bench.peers import chains, turns
from bench.peers.subjects import AGENTS, CHAINS, OUR_CHAIN, Kind
from bench.peers.turns import POINTS, Point
from bench.reference import Reference, shape_of
from bench.server import durable_server

LATEST: Final = Path(__file__).parent / "latest.json"
LOCK: Final = Path(__file__).parent / "requirements.lock"


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure; `turns` of each agent."""

    chains: chains.Size
    turns: int


FULL = Size(chains.FULL, turns=30)
QUICK = Size(chains.QUICK, turns=8)


def main(*, quick: bool) -> None:
    """Measure all. Ends with a sentence if the peers' environment can't be made."""
    try:
        environment = cli.separate_environment(cli.ROOT / ".venv-peers", LOCK)
    except cli.InstallError as error:
        sys.exit(f"The environment of the peers could not be made.\n{error}")
    began = time.perf_counter()
    with durable_server() as database:
        chained = {kind: database(f"chain_{kind.name}") for kind in CHAINS}
        agents = {kind: database(f"agent_{kind.name}") for kind in AGENTS}
        reference = database("reference")
        python = environment / "bin" / "python"
        size = QUICK if quick else FULL
        measured = asyncio.run(measure(chained, agents, reference, python, size))
    report = {
        "quick": quick,
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        **measured,
    }
    LATEST.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))
    print(f"\n{time.perf_counter() - began:.0f} s, {LATEST}")


async def measure(
    chained: Mapping[Kind, str],
    agents: Mapping[Kind, str],
    reference_dsn: str,
    python: Path,
    size: Size,
    points: Sequence[Point] = POINTS,
) -> dict[str, Any]:
    """The chains of kinds over migrated databases, then agents beside raw commits; `python`: that of the peers."""
    chain = await chains.measure(chained, python, size.chains)
    reference = await Reference.open(reference_dsn, await shape_of(chained[OUR_CHAIN]))
    try:
        turn = await turns.measure(agents, python, reference, size.turns, points)
    finally:
        await reference.close()
    postgres = await asyncpg.connect(reference_dsn)
    version = await postgres.fetchval("SHOW server_version")
    await postgres.close()
    versions = {"postgresql": version, **chain.pop("versions"), **turn.pop("versions")}
    return {"versions": versions, "chain": chain, "turn": turn}


def table(report: Mapping[str, Any]) -> str:
    """The report as text for people: chains, turns, and the avoidable repetitions after a kill."""
    chain, turn = report["chain"], report["turn"]
    lines = ["durable steps per second".ljust(44) + "busy   to ours      alone   to ours"]
    for name, rate in chain["steps_per_second"].items():
        alone, ratio = chain["steps_per_second_alone"][name], chain["to_ours_alone"][name]
        lines.append(f"{name:<38}{rate:>10,.0f}{chain['to_ours'][name]:>10.2f}{alone:>11,.0f}{ratio:>10.2f}")
    lines += ["", "an agent's turn".ljust(41) + "commits        ms"]
    for name, commits in turn["turn_in_commits"].items():
        lines.append(f"{name:<38}{commits:>10.1f}{turn['turn_milliseconds'][name]:>10.1f}")
    kinds = list(turn["kills"])
    lines += ["", "killed where".ljust(46) + "".join(f"{name:>20}" for name in kinds)]
    for title in turn["kills"][kinds[0]]:
        lines.append(f"{title:<46}" + "".join(f"{_shown(turn['kills'][name][title]):>20}" for name in kinds))
    lines += [
        "+n: made n times more than once has to be; ?n: a person was asked n times again; D: a denied call was made;",
        "X: the turn did not end rightly; =: as it has to be.",
        "",
        ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
    ]
    return "\n".join(lines)


def _shown(kill: Mapping[str, Any]) -> str:
    parts = [
        f"+{kill['beyond_the_unavoidable']}" if kill["beyond_the_unavoidable"] else "",
        f"?{kill['asked_a_person_again']}" if kill["asked_a_person_again"] else "",
        "D" if kill["denied_calls_made"] else "",
        "" if kill["finished_rightly"] else "X",
    ]
    return " ".join(filter(None, parts)) or "="
