"""`hai-flow status`: the state of a deployment, on one screen. From the database itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import typer

from hai_flow.cli.admin.each_cell import CONNECT_SECONDS, CellDatabase, CellOption, Visit, places, through
from hai_flow.cli.console import Styled
from hai_flow.cli.errors import FAILED
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.terminal import out, plural, print_json, roughly, say

LISTED_MAX: Final = 20  # servers, and workers


def status(cell: CellOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show the state of the deployment: database, servers, workers, queue, open runs, questions, messages, cells.

    Exits with 1 if anything needs a person; these faults are listed at the end."""
    with places(load_settings(data_dir=data_dir), cell) as chosen:
        report = _report(asyncio.run(through(chosen, _collect_cell_status, alone=len(chosen) == 1)))
    if as_json:
        print_json(report)
    else:
        _tell(report)
    if report["faults"]:
        raise typer.Exit(FAILED)


def _report(visits: Sequence[Visit[dict[str, Any]]]) -> dict[str, Any]:
    """The report of the first cell (home, where all are asked), with those of the others as its `cells`."""
    first, *others = [(each.cell, each.result or {"faults": [each.fault]}) for each in visits]
    report = first[1]
    faults = [*report["faults"], *(f"cell {name}: {fault}" for name, each in others for fault in each["faults"])]
    return {**report, "faults": faults, "cells": dict(others)}


async def _collect_cell_status(place: CellDatabase) -> dict[str, Any]:
    from hai_flow.runtime.ops.status_problems import SchemaStatus, faults
    from hai_flow.store.ops import database_history, status
    from hai_flow.store.ops.health import MORE_SPACE, find_space_fault
    from hai_flow.store.postgres import revisions
    from hai_flow.store.postgres.several_hosts import open_connection

    database = place.database
    connection = await open_connection(database.dsn, statement_cache_size=0, timeout=CONNECT_SECONDS)
    try:
        revision = await revisions.current(database.dsn)
        is_known = revision is None or revision in revisions.list_revisions()
        version = await connection.fetchval("SELECT current_setting('server_version')")
        ours = revision == revisions.head() or not is_known
        era = await database_history.look(connection) if ours else None
        standing = await status.standing(connection) if ours else None
        no_space = await find_space_fault(connection)
    finally:
        await connection.close()
    held = None if era is None else era.held or era.moved
    schema = SchemaStatus(revision=revision, newest=revisions.head(), known=is_known, held=held)
    return {
        "database": {"place": database.shown, "version": version, "schema": revision, "held": held},
        **({} if standing is None else _render_standing(standing)),
        "faults": [*([f"nothing is stored: {no_space}; {MORE_SPACE}"] if no_space else ()), *faults(schema, standing)],
    }


def _render_standing(standing: Any) -> dict[str, Any]:
    import msgspec

    return {
        "servers": [each._asdict() for each in standing.servers],
        "workers": [each._asdict() for each in standing.workers],
        "waiting": msgspec.to_builtins(standing.waiting),
        "runs": dict(standing.runs),
    }


def _tell(report: dict[str, Any]) -> None:
    database = report.get("database")
    if database is not None:
        say(f"{database['place']}: PostgreSQL {database['version']}, schema {database['schema'] or 'none'}")
    if "waiting" in report:
        _tell_standing(report)
    for name, cell in report["cells"].items():
        if "waiting" not in cell:
            say(f"cell {name}: {'; '.join(cell['faults'])}", "red")
            continue
        waiting, runs = cell["waiting"], sum(cell["runs"].values())
        say(f"cell {name}: {plural(runs, 'open run')}, {waiting['due']} due, {plural(waiting['workers'], 'worker')}")
    for fault in report["faults"]:
        say(f"{fault}.", "red")
    if not report["faults"]:
        say("Nothing needs an operator.", "green")


def _tell_standing(report: dict[str, Any]) -> None:
    from hai_flow.runtime.ops.status_problems import SILENT_SECONDS, write_bounded

    waiting = report["waiting"]
    rows: list[Any] = []
    for each in report["servers"][:LISTED_MAX]:
        silent = each["seen"] > SILENT_SECONDS
        state = f"silent for {_time(each['seen'])}" if silent else f"up for {_time(each['up'])}"
        rows.append(("server", each["name"], each["release"], Styled(state, "yellow" if silent else "green")))
    for each in report["workers"][:LISTED_MAX]:
        alive = each["lease"] > 0
        rows.append(
            (
                "worker",
                each["name"],
                each["release"] or "",
                Styled(f"{'holds' if alive else 'dead, held'} {each['held']}", "green" if alive else "red"),
            )
        )
    beyond = len(report["servers"]) + len(report["workers"]) - len(rows)
    out().table(rows or [("servers, workers", "none", "", "")], heads=("", "name", "release", "state"))
    if beyond:
        say(f"and {beyond} more.")
    open_runs = ", ".join(f"{write_bounded(count)} {name}" for name, count in report["runs"].items() if count) or "none"
    out().table(
        [
            ("open runs", open_runs),
            ("queue", _write_queue(waiting)),
            ("questions", f"{write_bounded(waiting['pendings'])} open{_oldest(waiting['pendings_age'])}"),
            ("messages", f"{write_bounded(waiting['outbox'])} on their way{_oldest(waiting['outbox_age'])}"),
            ("audit", f"unsealed for {_time(waiting['unsealed_age'])}" if waiting["unsealed_age"] >= 1 else "sealed"),
        ],
        heads=("what", "now"),
    )


def _write_queue(waiting: dict[str, Any]) -> str:
    from hai_flow.runtime.ops.status_problems import write_bounded

    due, overdue = write_bounded(waiting["due"]), write_bounded(waiting["overdue"])
    return f"{due} due{_oldest(waiting['due_age'])}, {overdue} overdue"


def _oldest(seconds: float) -> str:
    return f", the oldest for {_time(seconds)}" if seconds >= 1 else ""


def _time(seconds: float) -> str:
    return roughly(int(seconds) * 1000)
