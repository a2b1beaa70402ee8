"""`hai-flow backtest`: decides the recorded runs of a workflow again under another text. It changes nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hai_flow.cli import completion
from hai_flow.cli.admin.audit_record import BY
from hai_flow.cli.admin.each_cell import CellDatabase, CellOption, cells_view, follow, tell_faults, visit
from hai_flow.cli.author.sources import read_whole
from hai_flow.cli.errors import FAILED, UsageError, print_definition_error
from hai_flow.cli.options import DataDirOption, JsonOption, parse_duration
from hai_flow.cli.terminal import plural, print_json, say
from hai_flow.errors import DefinitionError
from hai_flow.store.postgres.connections import Connection

if TYPE_CHECKING:
    from hai_flow.definition.plan import Plan
    from hai_flow.runtime.ops.backtest import Backtest, Backtesting

_WORDS: Final = {
    "same": "would go the same way",
    "path": "would take another path",
    "people": "would ask more or fewer people",
    "fails": "would fail",
    "unknown": "can't be told: an effect, or an answer, is not recorded as it would be",
}


def backtest(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The workflow file by which runs are decided again.")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="NAME",
            help="The workflow of the recorded runs. Default: the name in FILE.",
            autocompletion=completion.workflows,
        ),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Only runs that began within this time: 12h, 30d.")
    ] = "30d",
    keep: Annotated[
        bool, typer.Option("--keep", help="Store the counts, as the rehearsal that a publication of FILE requires.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, max=10_000, help="Maximum number of runs to show for each result.")
    ] = 20,
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="The tenant of these runs.")] = "default",
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide the recorded runs of a workflow again under another text, and report the differences. Inputs, answers and
    results are the recorded ones. Nothing is performed, and no row is written except the counts of --keep. Exits with 1
    if a run would differ, or a waiting one could not migrate."""
    plan, age = _compile(file), parse_duration(since, "--since")
    name = against or plan.name
    if keep and (name != plan.name or cell is not None):
        raise UsageError(f"--keep: expected the runs of {plan.name} in all cells, found --against or --cell.")
    bases: dict[str, bytes] = {}

    async def work(place: CellDatabase, connection: Connection) -> Backtest | None:
        from hai_flow.runtime.ops.backtest import Backtesting
        from hai_flow.runtime.settings import bounds_of
        from hai_flow.store.catalog.workflows import find_latest_workflow
        from hai_flow.store.identity.tenants import find_tenant

        row = await find_tenant(connection, tenant)
        latest = None if row is None else await find_latest_workflow(connection, row.id, name)
        if row is None or latest is None:
            return None
        bases[place.name] = latest.sha256
        limits = bounds_of(place.settings)
        return await _backtest_cell(connection, Backtesting(row.id, name, plan, age, limits, limit))

    visits = visit(data_dir, cell, work)
    results = [each.result for each in visits if each.result is not None]
    away = any(each.fault is not None for each in visits)
    if not results and not away:
        raise UsageError(f"tenant {tenant!r} has no workflow {name!r}: --against takes the name of a published one.")
    total = _join(results)
    if keep:
        _keep(total, plan, age, tenant, bases, data_dir, complete=not away)
    if as_json:
        from hai_flow.runtime.ops.backtest import render_backtest

        print_json({"workflow": name, "since": since, **render_backtest(total), **cells_view(visits, render_backtest)})
    else:
        tell_faults(visits)
        _tell(total, name, since, limit)
    if total.differs or away:
        raise typer.Exit(FAILED)


def _compile(file: Path) -> Plan:
    from hai_flow.definition.compiler import compile_workflow

    source = read_whole(file)
    try:
        return compile_workflow(source, str(file))
    except DefinitionError as error:
        print_definition_error(error.findings, str(file), source)
        raise typer.Exit(FAILED) from None


async def _backtest_cell(connection: Connection, request: Backtesting) -> Backtest:
    from hai_flow.runtime.ops.backtest import Backtest
    from hai_flow.runtime.ops.backtest import backtest as decide_runs

    return await follow(
        decide_runs(connection, request), Backtest(), lambda result: f"{plural(result.runs, 'run')} so far."
    )


def _keep(
    total: Backtest,
    plan: Plan,
    age: timedelta,
    tenant: str,
    bases: dict[str, bytes],
    data_dir: Path | None,
    *,
    complete: bool,
) -> None:
    """Keep the counts of all cells in each of them: that in which the tenant's workflows are published looks there."""

    async def work(place: CellDatabase, connection: Connection) -> None:
        from hai_flow.runtime.ops.backtest import build_kept_rehearsal
        from hai_flow.store.catalog.rehearsals import keep_rehearsal
        from hai_flow.store.identity.tenants import find_tenant

        row = await find_tenant(connection, tenant)
        if row is None or place.name not in bases:
            return
        rehearsal = build_kept_rehearsal(total, plan, bases[place.name], age, BY, complete=complete)
        async with connection.transaction():
            await keep_rehearsal(connection, row.id, rehearsal)

    visit(data_dir, None, work)


def _join(results: list[Backtest]) -> Backtest:
    from hai_flow.runtime.ops.backtest import Backtest

    total = Backtest()
    for each in results:
        total.join(each)
    return total


# --- what is shown ----------------------------------------------------------------------------------------------------


def _tell(result: Backtest, name: str, since: str, limit: int) -> None:
    from hai_flow.engine.runs.backtest import KINDS
    from hai_flow.runtime.ops.backtest import REASONS

    say(f"{plural(result.runs, 'run')} of {name} that began within {since}:")
    for kind in KINDS:
        count = result.verdicts[kind]
        if count or kind == "same":
            say(f"  {count} {_WORDS[kind]}.", "green" if kind == "same" else "yellow")
    for reason, count in sorted(result.unreadable.items()):
        say(f"  {count} could not be decided again: {REASONS[reason]}.", "yellow")
    for title, questions in (("asked besides", result.more), ("asked no more", result.fewer)):
        for question, count in sorted(questions.items()):
            people = ", ".join(question.from_) or "people"
            quorum = "" if question.quorum == "1" else f" (quorum {question.quorum})"
            say(f"{title}: {question.path} from {people}{quorum}, {plural(count, 'time')}.")
    for run_id, verdict in result.examples[: limit * len(KINDS)]:
        place = verdict.step or "the run"
        why = f" ({verdict.reason})" if verdict.reason else ""
        say(f"run {run_id}: {place}: recorded: {verdict.recorded}; now: {verdict.now}{why}.")
    for unread in result.unread_examples:
        say(f"run {unread.run_id}: {unread.detail}.")
    if result.waiting:
        stuck = sum(result.stuck.values())
        say(f"{plural(result.waiting, 'run')} waiting: {stuck} could not migrate.", "yellow" if stuck else "green")
    for run_id, obstacles in result.stuck_examples:
        for obstacle in obstacles:
            say(f"run {run_id}: {obstacle.message}")
