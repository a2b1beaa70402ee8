"""`hai-flow verify`: checks that the rules of runs hold for those in the databases. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from hai_flow.cells import cell_of
from hai_flow.cli.admin.each_cell import CellDatabase, CellOption, cells_view, tell_faults, visit
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import DataDirOption, JsonOption
from hai_flow.cli.terminal import note, plural, print_json, say
from hai_flow.store.postgres.connections import Connection

if TYPE_CHECKING:
    from hai_flow.runtime.ops.verify import VerifiedRuns, Verifying

NOTE_SECONDS: Final = 5.0  # between two words on how far it has got


def verify(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The whole id of one run. Default: all.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only runs of this tenant.")] = None,
    late: Annotated[
        str | None, typer.Option("--late", metavar="SECONDS", help="Report runs that wait longer for a worker.")
    ] = None,
    pace: Annotated[
        str | None, typer.Option("--pace", metavar="RUNS", help="Maximum number of runs to read in a second.")
    ] = None,
    no_decide: Annotated[bool, typer.Option("--no-decide", help="Do not repeat decisions, which is faster.")] = False,
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every run's integrity against its log.

    It checks the chain, the order, the fold and every row made from it, votes and gates, timers, slots, and the runs
    above and below. Names the run, the event and the rule of each violation. Exits with 1 if
    any is broken, or a cell could not be looked at.

    It reads the databases themselves, a page of runs at a time, and changes nothing; runs go on meanwhile."""
    seconds, runs_a_second, run_id = _number(late, "--late"), _number(pace, "--pace"), _id(run)

    async def work(place: CellDatabase, connection: Connection) -> VerifiedRuns | None:
        from hai_flow.runtime.ops.verify import Verifying
        from hai_flow.runtime.settings import bounds_of

        named = None if tenant is None else await _tenant(connection, tenant)
        if tenant is not None and named is None:
            return None
        request = Verifying(
            tenant=named,
            run_id=run_id,
            late=None if seconds is None else timedelta(seconds=seconds),
            pace=runs_a_second,
            limits=None if no_decide else bounds_of(place.settings),
        )
        return await _verify_cell(connection, request, as_json)

    visits = visit(data_dir, cell, work, chosen=lambda cells: _with_run(cells, run_id))
    away = any(each.fault is not None for each in visits)
    results = [each.result for each in visits if each.result is not None]
    total = _join_results(results)
    if not results and not away:
        raise UsageError(f"there is no tenant {tenant!r}.")
    if run_id is not None and not total.runs and not total.unread and not away:
        raise UsageError(f"there is no run {run_id}.")
    if as_json:
        print_json({**_render_result(total), **cells_view(visits, _render_result)})
    else:
        for each in visits if len(visits) > 1 else ():
            if each.result is not None:
                _tell_end(each.result, f"cell {each.cell}: ")
        tell_faults(visits)
        if len(results) == len(visits) == 1:
            _tell_end(total)
    if total.broken or away:
        raise typer.Exit(FAILED)


def _with_run(cells: Sequence[CellDatabase], run_id: UUID | None) -> Sequence[CellDatabase]:
    """The cell that the run's id names, if it is one of these."""
    named = [] if run_id is None else [place for place in cells if place.number == cell_of(run_id)]
    return named or cells


def _join_results(there: Sequence[VerifiedRuns]) -> VerifiedRuns:
    """The findings of several cells as one."""
    from hai_flow.runtime.ops.verify import VerifiedRuns

    total = VerifiedRuns()
    for each in there:
        total.join(each)
    return total


async def _verify_cell(connection: Connection, asked: Verifying, as_json: bool) -> VerifiedRuns:
    """Verify one cell. Each violation is printed as soon as it is found."""
    from hai_flow.runtime.ops.verify import VerifiedRuns
    from hai_flow.runtime.ops.verify import verify as verify_runs

    printed, result, next_note = 0, VerifiedRuns(), time.monotonic() + NOTE_SECONDS
    async for result in verify_runs(connection, asked):
        for violation in result.violations[printed:] if not as_json else ():
            at = "" if violation.seq is None else f", event {violation.seq}"
            say(f"run {violation.run_id}{at}: {violation.rule}: {violation.message}.", "red")
        printed = len(result.violations)
        if time.monotonic() > next_note:
            next_note = time.monotonic() + NOTE_SECONDS
            note(f"{plural(result.runs, 'run')} so far.")
    return result


def _render_result(found: VerifiedRuns) -> dict[str, Any]:
    return {
        "runs": found.runs,
        "events": found.events,
        "unread": found.unread,
        "undecided": found.undecided,
        "older": found.older,
        "broken": found.broken,
        "violations": [{**each._asdict(), "run_id": str(each.run_id)} for each in found.violations],
        "reached": dict(sorted(found.reached.items())),
    }


def _tell_end(found: VerifiedRuns, of: str = "") -> None:
    extent = f"{of}{plural(found.runs, 'run')} with {plural(found.events, 'event')}"
    if found.broken:
        runs = len({each.run_id for each in found.violations})
        say(f"{extent}: {plural(found.broken, 'violation')} in {plural(runs, 'run')}.", "red")
    else:
        say(f"{extent}: everything holds.")
    if found.older:
        rows = plural(found.older, "row")
        say(f"{of}{rows} less than this release writes, as an older one left it: see docs/upgrades.md.", "yellow")
    if found.unread:
        say(f"{of}{plural(found.unread, 'run')} of a newer release: not looked at.", "yellow")


async def _tenant(connection: Connection, name: str) -> UUID | None:
    from hai_flow.store.identity import tenants

    row = await tenants.find_tenant(connection, name)
    return None if row is None else row.id


def _number(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
        if 0 < number < 1e9:
            return number
    except ValueError:
        pass
    raise UsageError(f"expected a number above 0 for {option}, found {text!r}.")


def _id(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise UsageError(f"expected the whole id of a run, found {text!r}.") from None
