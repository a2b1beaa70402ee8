"""`hai-flow archive`, `restore`, `prune`: old threads that have ended are written to files, removed from the database,
and brought back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from hai_flow.cells import HOME
from hai_flow.cli.admin.audit_record import BY
from hai_flow.cli.admin.each_cell import CellDatabase, CellOption, Visit, cells_view, follow, tell_faults, visit
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.terminal import plural, print_json, print_result, say
from hai_flow.settings import variable
from hai_flow.store.postgres.connections import Connection

if TYPE_CHECKING:
    from hai_flow.runtime.retention.archive import Archive, Restored
    from hai_flow.runtime.retention.policy import Retention
    from hai_flow.runtime.retention.prune import Pruned

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant. Default: all.")]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--retention", metavar="FILE", help="The file with the periods. Default: HAI_FLOW_RETENTION."),
]
ArchiveOption = Annotated[
    str | None, typer.Option("--archive", metavar="URL", help="The place of archives. Default: that in the file.")
]


def archive(
    dry_run: DryRunOption = False,
    tenant: TenantOption = None,
    retention: PolicyOption = None,
    to: ArchiveOption = None,
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the threads that are due for removal into the archive, those of every cell. Nothing is removed."""
    _prune(retention, to, tenant, cell, data_dir, as_json, dry_run=dry_run, archives_only=True)


def prune(
    dry_run: DryRunOption = False,
    tenant: TenantOption = None,
    retention: PolicyOption = None,
    to: ArchiveOption = None,
    rest: Annotated[
        str, typer.Option("--rest", metavar="SHARE", help="Pause after each batch, in multiples of its duration.")
    ] = "1",
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge the logs of ended runs, and archive and remove threads that ended long enough ago, by the file of
    retention. Runs that have not ended stay, and so does everything that a later turn, a run above or the audit refers
    to.

    It goes through all cells, and exits with 1 where one could not be looked at. It may be repeated, and stopped at any
    time: the rest is done the next time. Run it by a timer."""
    _prune(retention, to, tenant, cell, data_dir, as_json, dry_run=dry_run, rest=_share(rest))


def restore(
    places: Annotated[
        list[str] | None, typer.Argument(metavar="ARCHIVE", help="Archives, as listed. Default: list them.")
    ] = None,
    dry_run: DryRunOption = False,
    retention: PolicyOption = None,
    to: ArchiveOption = None,
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring archived threads back, as they were. An archive is refused as a whole, with the place, if it is damaged,
    comes from a newer release, or has a run that exists already. Each goes into the cell that the ids of its runs name.
    Without an archive, list them."""
    from hai_flow.runtime.retention import archive as archives

    url = to or _policy(retention).archive
    if url is None:
        raise UsageError("expected --archive URL, or an `archive` in the file of retention.")
    archive = archives.Archive(url)
    if not places:
        listed = archive.places()
        print_result({"archives": listed}, as_json, "\n".join(listed) or "There is no archive.")
        return

    chosen = list(dict.fromkeys(places))
    goes: dict[str, str | int] = {place: _find_cell_in_archive(archive, place) for place in chosen}

    def reached(found: Sequence[CellDatabase]) -> Sequence[CellDatabase]:
        numbers = {each.number for each in found}
        why = "--cell leaves out" if cell is not None else f"{variable('cells')} does not name"
        for place, number in goes.items():
            if isinstance(number, int) and number not in numbers:
                goes[place] = f"{place}: its runs live in the cell {number}, which {why}; nothing was restored."
        return [each for each in found if each.number in goes.values()]

    async def work(here: CellDatabase, connection: Connection) -> dict[str, Restored | str]:
        mine = [place for place, number in goes.items() if number == here.number]
        return {place: await _restore_archive(connection, archive, place, store=not dry_run) for place in mine}

    visits = visit(data_dir, cell, work, chosen=reached)
    listed = {place: each for visited in visits for place, each in (visited.result or {}).items()}
    refusals = {place: reason for place, reason in goes.items() if isinstance(reason, str)}
    done = [(place, {**refusals, **listed}[place]) for place in chosen if place in refusals or place in listed]
    if as_json:
        results = [{"archive": place, **_restore_view(each)} for place, each in done]
        print_json({"restored": [] if dry_run else results, "tried": results if dry_run else [], **_away(visits)})
    else:
        _tell_restored(done, dry_run)
        tell_faults(visits)
    if any(isinstance(each, str) for _, each in done) or len(done) < len(chosen):
        raise typer.Exit(FAILED)


def _find_cell_in_archive(archive: Archive, place: str) -> str | int:
    """The cell whose runs the archive has, or the reason why it can't be found. A damaged archive counts as one of
    home: restoring it there reports the damage."""
    from hai_flow.runtime.retention.archive import Damaged

    try:
        cell = archive.cell(place)
    except Damaged as damaged:
        return str(damaged)
    return HOME if cell is None else cell


async def _restore_archive(connection: Connection, archive: Archive, place: str, *, store: bool) -> Restored | str:
    from hai_flow.runtime.retention import archive as archives

    try:
        return await archives.restore(connection, archive, place, BY, store=store)
    except archives.Damaged as damaged:
        return str(damaged)


def _tell_restored(done: Sequence[tuple[str, Restored | str]], dry_run: bool) -> None:
    for place, each in done:
        if isinstance(each, str):
            say(each, "red")
        else:
            verb = "could be restored" if dry_run else "restored"
            say(f"{place}: {plural(each.runs, 'run')} with {plural(each.events, 'event')} {verb}.")


def _restore_view(each: Restored | str) -> dict[str, Any]:
    return {"refused": each} if isinstance(each, str) else {"runs": each.runs, "events": each.events}


def _away(visits: Sequence[Visit[Any]]) -> dict[str, Any]:
    faults = {each.cell: each.fault for each in visits if each.fault is not None}
    return {"away": faults} if faults else {}


def _prune(
    file: Path | None,
    to: str | None,
    tenant: str | None,
    cell: str | None,
    data_dir: Path | None,
    as_json: bool,
    *,
    dry_run: bool,
    archives_only: bool = False,
    rest: float = 1.0,
) -> None:
    from hai_flow.runtime.retention import archive as archives
    from hai_flow.runtime.retention.prune import Pruned, Pruning
    from hai_flow.store.ops import retention as retiring

    policy = _policy(file)
    url = to or policy.archive
    if archives_only and url is None:
        raise UsageError("expected --archive URL, or an `archive` in the file of retention.")

    async def work(place: CellDatabase, connection: Connection) -> Pruned | None:
        named = await _tenants(connection)
        one = next((id for id, each in named.items() if each == tenant), None)
        if tenant is not None and one is None:
            return None
        if not await retiring.alone(connection):
            raise UsageError("another process archives or removes at this moment; wait for it.")
        pruning = Pruning(
            retention=policy,
            tenants=named,
            archive=None if url is None else archives.Archive(url),
            by=BY,
            tenant=one,
            do=not dry_run,
            archives_only=archives_only,
            rest=rest,
        )
        return await follow(
            pruning.run(connection),
            Pruned(),
            lambda done: f"{plural(done.threads, 'thread')} so far, {plural(done.rows, 'row')} removed.",
        )

    visits = visit(data_dir, cell, work)
    results = [each.result for each in visits if each.result is not None]
    away = any(each.fault is not None for each in visits)
    if not results and not away:
        raise UsageError(f"there is no tenant {tenant!r}.")
    _tell(visits, results, as_json, dry_run)
    if away:
        raise typer.Exit(FAILED)


def _tell(visits: Sequence[Visit[Pruned | None]], there: Sequence[Pruned], as_json: bool, dry_run: bool) -> None:
    from hai_flow.runtime.retention.prune import Pruned

    total = Pruned()
    for each in there:
        total.join(each)
    if as_json:
        print_json({"dry_run": dry_run, **_numbers(total), **cells_view(visits, _numbers)})
        return
    for visited in visits:
        if visited.result is not None:
            _tell_pruned(visited.result, dry_run, f"cell {visited.cell}: " if len(visits) > 1 else "")
    tell_faults(visits)


def _numbers(done: Pruned | None) -> dict[str, Any]:
    return {name: getattr(done, name) for name in ("threads", "archived", "removed", "runs", "merged", "rows", "kept")}


def _tell_pruned(done: Pruned, dry_run: bool, of: str) -> None:
    will = "would be " if dry_run else ""
    say(
        f"{of}{plural(done.threads, 'thread')} looked at: {done.archived} {will}archived, {done.removed} with "
        f"{plural(done.runs, 'run')} {will}removed."
    )
    if not dry_run and (done.rows or done.merged):
        gone = f"{plural(done.rows, 'row')} of removed runs are gone"
        say(f"{of}{gone}, {plural(done.merged, 'row')} of logs were merged.")
    for reason, count in done.kept.items():
        say(f"{of}{plural(count, 'thread')} kept: {reason}.", "yellow")


def _policy(file: Path | None) -> Retention:
    """The file of retention. Raises SettingsError for mistakes, UsageError where there is none."""
    from hai_flow.runtime.settings import retention_of

    retention = retention_of(load_settings(retention=file))
    if retention is None:
        raise UsageError("expected --retention FILE, or HAI_FLOW_RETENTION (docs/retention.md).")
    return retention


async def _tenants(connection: Any) -> dict[UUID, str]:
    from hai_flow.store.identity import tenants

    return {each.id: each.name for each in await tenants.list_tenants(connection)}


def _share(text: str) -> float:
    try:
        share = float(text)
        if 0 <= share <= 1000:
            return share
    except ValueError:
        pass
    raise UsageError(f"expected a number from 0 to 1000 for --rest, found {text!r}.")
