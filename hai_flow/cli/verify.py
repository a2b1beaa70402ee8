"""`hai-flow verify`: whether what must hold of runs holds of those in the database. It changes nothing."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from hai_flow.cli.operate import JsonOption
from hai_flow.cli.processes import DataDirOption, load_settings, over_database
from hai_flow.cli.terminal import FAILED, UsageError, note, plural, print_json, say

if TYPE_CHECKING:
    from hai_flow.runtime.verifying import Verified, Verifying

NOTE_SECONDS: Final = 5.0  # between two words on how far it has got


def verify(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run, by its id. Default: all.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only runs of this tenant.")] = None,
    late: Annotated[
        str | None,
        typer.Option("--late", metavar="SECONDS", help="Also runs that wait longer than this for a worker."),
    ] = None,
    pace: Annotated[
        str | None, typer.Option("--pace", metavar="RUNS", help="Look at no more runs than this in a second.")
    ] = None,
    no_decide: Annotated[bool, typer.Option("--no-decide", help="Do not make decisions again: quicker.")] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold every run against its own log: the chain, the order, the fold and every row made from it, votes and gates,
    timers, slots, the runs above and below. Says which run, which event and which rule. Exits with 1 if any is broken.

    It reads the database itself, a page of runs at a time, and changes nothing; runs go on meanwhile.
    """
    seconds, runs_a_second, run_id = _number(late, "--late"), _number(pace, "--pace"), _id(run)

    async def work(connection: Any) -> Verified:
        from hai_flow.runtime.verifying import Verifying
        from hai_flow.runtime.world import bounds_of

        asked = Verifying(
            tenant=await _tenant(connection, tenant),
            run_id=run_id,
            late=None if seconds is None else timedelta(seconds=seconds),
            pace=runs_a_second,
            limits=None if no_decide else bounds_of(load_settings(data_dir=data_dir)),
        )
        return await _verified(connection, asked, as_json)

    found = over_database(data_dir, work)
    if run_id is not None and not found.runs and not found.unread:
        raise UsageError(f"there is no run {run_id}.")
    if as_json:
        print_json(_shown(found))
    else:
        _tell_end(found)
    if found.broken:
        raise typer.Exit(FAILED)


async def _verified(connection: Any, asked: Verifying, as_json: bool) -> Verified:
    """Tells each violation as soon as it is found."""
    from hai_flow.runtime.verifying import Verified
    from hai_flow.runtime.verifying import verify as verify_runs

    told, found, next_note = 0, Verified(), time.monotonic() + NOTE_SECONDS
    async for found in verify_runs(connection, asked):
        for violation in found.violations[told:] if not as_json else ():
            at = "" if violation.seq is None else f", event {violation.seq}"
            say(f"run {violation.run_id}{at}: {violation.rule}: {violation.message}.", "red")
        told = len(found.violations)
        if time.monotonic() > next_note:
            next_note = time.monotonic() + NOTE_SECONDS
            note(f"{plural(found.runs, 'run')} so far.")
    return found


def _shown(found: Verified) -> dict[str, Any]:
    return {
        "runs": found.runs,
        "events": found.events,
        "unread": found.unread,
        "undecided": found.undecided,
        "broken": found.broken,
        "violations": [{**each._asdict(), "run_id": str(each.run_id)} for each in found.violations],
        "reached": dict(sorted(found.reached.items())),
    }


def _tell_end(found: Verified) -> None:
    seen = f"{plural(found.runs, 'run')} with {plural(found.events, 'event')}"
    if found.broken:
        runs = len({each.run_id for each in found.violations})
        say(f"{seen}: {plural(found.broken, 'violation')} in {plural(runs, 'run')}.", "red")
    else:
        say(f"{seen}: everything holds.")
    if found.unread:
        say(f"{plural(found.unread, 'run')} of a newer release: not looked at.", "yellow")


async def _tenant(connection: Any, name: str | None) -> UUID | None:
    from hai_flow.store import tenants

    if name is None:
        return None
    found = await tenants.find_tenant(connection, name)
    if found is None:
        raise UsageError(f"there is no tenant {name!r}.")
    return found.id


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
