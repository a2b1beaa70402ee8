"""`hai-flow recover`: looks after a database that has gone back in time. On the database itself, as its owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hai_flow.cli.admin.each_cell import CONNECT_SECONDS, CellDatabase, CellOption, places, tell_faults, through
from hai_flow.cli.database import demand_schema
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.serve.logs import configure_logs
from hai_flow.cli.terminal import note, out, plural, print_json, program, say
from hai_flow.store.postgres.connections import Connection

if TYPE_CHECKING:
    from hai_flow.runtime.restore import Doubt, HoldResult, State

SHOWN_MAX: Final = 20
BY: Final = "operator:restored"
VALID_AGAIN: Final = (
    "What was revoked, ended or erased since that time is valid again: API keys with their tokens, sign-ins and links, "
    "delegations, standing rules, and the data of people. Freezes from since then are gone."
)


def recover(
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Pause runs that may repeat effects, and let the others continue.")
    ] = False,
    nothing_lost: Annotated[
        bool, typer.Option("--nothing-lost", help="The database was only moved, without loss: continue all runs.")
    ] = False,
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether a cell's database was restored to an earlier point, and list the runs that may repeat effects.

    If one has, no server and no worker starts. --confirm pauses each run that may repeat an effect which is not
    declared safe to repeat, and the schedules that are overdue; then processes start again, and you review the paused
    runs and schedules. Exits with 1 while the database is held. Connect as the owner of the tables."""
    if confirm and nothing_lost:
        raise UsageError("expected one of --confirm and --nothing-lost.")
    settings = load_settings(data_dir=data_dir)
    # The owner of the tables works as such here, and it should.
    configure_logs("warning", settings.logs, heard={"no_role_of_its_own": lambda _: None})
    with places(settings, cell) as chosen:
        several = len(chosen) > 1
        if nothing_lost and several:
            raise UsageError("--nothing-lost: expected --cell as well: which database was moved.")

        async def look(place: CellDatabase) -> dict[str, Any]:
            return await _check_history(place, confirm=confirm, nothing_lost=nothing_lost)

        visits = asyncio.run(through(chosen, look, alone=not several))
    reports = {each.cell: each.result or {"fault": each.fault} for each in visits}
    if as_json:
        first, *others = reports
        print_json({**reports[first], **({"cells": {name: reports[name] for name in others}} if several else {})})
    else:
        for each in visits:
            if each.result is not None:
                if several:
                    say(f"cell {each.cell}:")
                _tell(each.result, f" --cell {each.cell}" if several else "")
        tell_faults(visits)
    if any(report.get("held") or "fault" in report for report in reports.values()):
        raise typer.Exit(FAILED)


async def _check_history(place: CellDatabase, *, confirm: bool, nothing_lost: bool) -> dict[str, Any]:
    from hai_flow.runtime import restore
    from hai_flow.runtime.ops.external_heartbeat import Witness
    from hai_flow.store.ops import database_history
    from hai_flow.store.postgres.several_hosts import open_connection

    settings, database = place.settings, place.database
    connection = await open_connection(database.direct or database.dsn, timeout=CONNECT_SECONDS)
    try:
        await demand_schema(database)
        witness = None if settings.witness is None else Witness(settings.witness)
        history = await database_history.current(connection)
        beat = None if witness is None else await witness.read(history.database)
        state = await restore.state_of(connection, beat)
        report = _state(state)
        if confirm or nothing_lost:
            await _demand_owner(connection)
        if confirm and report["held"]:
            report |= await _confirm(place, connection, state)
        elif nothing_lost and report["held"]:
            await database_history.begin_next(connection, state.era, "a person says that nothing was lost")
            report |= {"held": None, "moved": True}
        else:
            report |= await _review(connection)
        return report
    finally:
        await connection.close()


async def _demand_owner(connection: Connection) -> None:
    """Raise UsageError for another role, which could pause runs and could not end the hold."""
    owner = await connection.fetchrow(
        "SELECT pg_get_userbyid(relowner) AS name, pg_has_role(relowner, 'USAGE') AS ours, current_user AS role"
        " FROM pg_class WHERE oid = 'runs'::regclass"
    )
    if owner is not None and not owner["ours"]:
        expected = f"the owner of the tables, {owner['name']}, in HAI_FLOW_DATABASE_URL"
        raise UsageError(f"expected {expected}, found {owner['role']}.")


def _state(state: State) -> dict[str, Any]:
    held = state.era.held or state.era.moved
    if held is None and state.era.timeline_moved and state.seen is None:
        held = "its server has begun another timeline"
    return {
        "era": state.era.n,
        "held": held,
        "stands_at": None if state.last is None else state.last.at.isoformat(),
        "seen_at": None if state.seen is None else state.seen.at.isoformat(),
    }


async def _review(connection: Connection) -> dict[str, Any]:
    from hai_flow.runtime import restore

    doubtful: list[Doubt] = []
    safe = 0
    async for page in restore.doubts(connection):
        doubtful += [doubt for doubt in page if doubt.steps]
        safe += sum(not doubt.steps for doubt in page)
    return {"may_repeat": [_view(doubt) for doubt in doubtful], "safe": safe}


def _view(doubt: Doubt) -> dict[str, Any]:
    return {"id": str(doubt.run_id), "workflow": doubt.workflow, "status": doubt.status, "steps": list(doubt.steps)}


async def _confirm(place: CellDatabase, connection: Connection, state: State) -> dict[str, Any]:
    from hai_flow.runtime import restore
    from hai_flow.runtime.runtime import Runtime
    from hai_flow.store.ops import database_history

    if state.era.held is None:
        await database_history.hold(connection, state.era, state.era.moved or "its server has begun another timeline")
    schedules = await database_history.pause_due_schedules(connection)
    held: list[HoldResult] = []
    runtime = Runtime(place.database.dsn, place.settings, performs=False, restoring=True, cell=place.number)
    async with runtime.lifespan():
        undelivered = await restore.deliver(runtime, connection)
        async for page in restore.hold(runtime, connection, state.era, BY):
            held += page
            note(f"{plural(len(held), 'run')} looked at.")
    await database_history.begin_next(connection, state.era, f"restored: {state.era.held or state.era.moved or ''}")
    return {
        "held": None,
        "paused": [_view(each.doubt) for each in held if each.refused is None],
        "not_paused": [{**_view(each.doubt), "why": each.refused} for each in held if each.refused is not None],
        "schedules": schedules,
        "undelivered": undelivered,
    }


def _tell(report: dict[str, Any], of: str) -> None:
    if report["held"] is not None:
        say(f"This database may have gone back in time: {report['held']}.", "red")
        if report["stands_at"] is not None:
            say(f"It stands at {report['stands_at']}.")
        if report["seen_at"] is not None:
            say(
                f"The witness has seen it at {report['seen_at']}: what was performed in between may be performed again."
            )
    if "paused" in report:
        _tell_confirmed(report)
    elif "moved" in report:
        say("It goes on as it was: start the servers and workers.", "green")
    else:
        if report["held"] is None:
            say(f"Nothing says that this database has gone back in time (era {report['era']}).", "green")
            return
        say(VALID_AGAIN, "yellow")
        _list(report["may_repeat"], "may repeat something")
        say(f"{plural(report['safe'], 'run')} would repeat only what is declared safe to repeat.")
        say(f"To hold those for review, and let the others go on: {program()} recover --confirm{of}")


def _tell_confirmed(report: dict[str, Any]) -> None:
    they = "it" if len(report["paused"]) == 1 else "they"
    _list(report["paused"], f"paused, because {they} may repeat something")
    if report["not_paused"]:
        say(f"{plural(len(report['not_paused']), 'run')} could not be paused:", "yellow")
        for each in report["not_paused"][:SHOWN_MAX]:
            say(f"  {each['id']} {each['workflow']} ({each['status']}): {each['why']}", "yellow")
    for workflow in report["schedules"]:
        say(f"A schedule of {workflow} is paused: an instant of it has passed, and may have started its run already.")
    if report["undelivered"]:
        say(f"{plural(report['undelivered'], 'message')} between runs can't be delivered now.", "yellow")
    say(VALID_AGAIN, "yellow")
    say(f"Revoke the keys that must not be valid before you start servers: {program()} keys list")
    say("Start the servers and workers. Then look at each run that is paused, and resume or stop it:", "green")
    say(f"  {program()} runs --status paused")


def _list(runs: list[dict[str, Any]], what: str) -> None:
    by = Counter(each["workflow"] for each in runs)
    say(f"{plural(len(runs), 'run')} {what}{':' if runs else '.'}")
    if runs:
        rows: list[Any] = [
            (each["id"], each["workflow"], each["status"], ", ".join(each["steps"])) for each in runs[:SHOWN_MAX]
        ]
        out().table(rows, heads=("run", "workflow", "status", "steps"))
        if len(runs) > SHOWN_MAX:
            say(
                f"and {len(runs) - SHOWN_MAX} more: " + ", ".join(f"{name} {count}" for name, count in by.most_common())
            )
