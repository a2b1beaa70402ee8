"""`hai-flow chaos`: a deployment is made, broken on purpose, and held against its promises (docs/chaos.md)."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import JsonOption
from hai_flow.cli.terminal import note, plural, print_json, say
from hai_flow.settings import variable

if TYPE_CHECKING:
    from hai_flow_chaos.campaign import Outcome

TOLD_MAX: Final = 20
_OTHERS: Final = ("database_url", "database_direct_url")


def chaos(
    seed: Annotated[int | None, typer.Option("--seed", help="Draws the plan. Default: another one each time.")] = None,
    minutes: Annotated[str, typer.Option("--minutes", metavar="M", help="How long there are faults.")] = "1",
    servers: Annotated[int, typer.Option("--servers", metavar="N", help="How many processes serve.")] = 3,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="How many perform.")] = 4,
    runs: Annotated[int, typer.Option("--runs", metavar="N", help="How many runs are started.")] = 200,
    settle: Annotated[
        str, typer.Option("--settle", metavar="SECONDS", help="All is quiet so long after the last fault.")
    ] = "60",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Where the report and the logs go.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="End at the first violation that is seen.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the database, to look at it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Break a deployment on purpose, and see whether it keeps its promises. It makes one of its own, with a
    PostgreSQL of its own, and touches no other. Exits with 1 if a promise was broken; says how to repeat it.
    """
    from hai_flow_chaos.plan import Campaign

    _refuse_others()
    drawn = time.time_ns() % 1_000_000 if seed is None else seed
    campaign = Campaign(
        drawn, _number(minutes, "--minutes"), _check_count(servers, "--servers"), _check_count(workers, "--workers"),
        _check_count(runs, "--runs"), settle=_number(settle, "--settle"),
    )  # fmt: skip
    directory = _empty(report)
    outcome = _run(campaign, directory, keep=keep, first=first, quiet=as_json)
    if as_json:
        print_json(outcome.as_json())
    else:
        _tell(outcome, directory)
    if not outcome.holds:
        raise typer.Exit(FAILED)


def _run(campaign: Any, directory: Path, *, keep: bool, first: bool, quiet: bool) -> Outcome:
    import structlog

    from hai_flow_chaos import campaign as campaigns
    from hai_flow_chaos.plan import planned

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    note(f"Seed {campaign.seed}. Again: {campaign.command}")
    if not quiet:
        for fault in planned(campaign):
            say(str(fault), "dim")
    outcome = asyncio.run(campaigns.run(campaign, directory, keep=keep, first=first, tell=note))
    campaigns.written(outcome, directory)
    return outcome


def _tell(outcome: Outcome, directory: Path) -> None:
    for each in outcome.broken[:TOLD_MAX]:
        say(f"{each.rule}: {each.whom}: {each.message}.", "red")
    if len(outcome.broken) > TOLD_MAX:
        say(f"... and {len(outcome.broken) - TOLD_MAX} more.", "red")
    numbers = outcome.history.tallies
    done = (
        f"{numbers['processes_killed']} kills, {numbers['postgres_crashed']} crashes of PostgreSQL, "
        f"{numbers['connections_cut']} connections cut, {numbers['connections_silenced']} silenced, "
        f"{numbers['processes_stalled']} stalls, {numbers['seconds_without_hints']} s without hints"
    )
    rest = "it did not come to rest" if outcome.quiet_after is None else f"quiet after {outcome.quiet_after:.1f} s"
    say(f"{plural(outcome.verified.runs, 'run')}, {plural(outcome.verified.events, 'event')}; {done}; {rest}.")
    if outcome.holds:
        say("Every promise held.", "green")
    else:
        say(f"{plural(len(outcome.broken), 'violation')}.", "red")
    say(f"Seed {outcome.campaign.seed}. Again: {outcome.campaign.command}")
    say(f"The report: {directory / 'chaos.html'} (and chaos.json).")


def _refuse_others() -> None:
    """Raise UsageError if the environment names a database: only a database that this command makes is ever broken."""
    for name in _OTHERS:
        if os.environ.get(variable(name)):
            raise UsageError(
                f"chaos breaks a PostgreSQL that it makes for that, and no other; {variable(name)} names one. Unset it."
            )


def _empty(report: Path | None) -> Path:
    if report is None:
        return Path(tempfile.mkdtemp(prefix="hai-flow-chaos-report-"))
    if report.exists() and (not report.is_dir() or any(report.iterdir())):
        raise UsageError(f"expected a directory for the report that is empty or not there yet, found {report}.")
    try:
        report.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the directory {report} can't be made: {error.strerror}.") from None
    return report.absolute()


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 10_000:
        raise UsageError(f"expected a number above 0 for {option}, found {text!r}.")
    return number


def _check_count(number: int, option: str) -> int:
    if not 1 <= number <= 100_000:
        raise UsageError(f"expected a whole number from 1 to 100000 for {option}, found {number}.")
    return number
