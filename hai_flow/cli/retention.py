"""`hai-flow archive`, `restore`, `prune`: what ended long ago goes into files, comes back, and leaves the database."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from hai_flow.cli.operate import JsonOption
from hai_flow.cli.processes import DataDirOption, load_settings, over_database
from hai_flow.cli.terminal import FAILED, UsageError, note, plural, print_json, say

if TYPE_CHECKING:
    from hai_flow.runtime.pruning import Pruned
    from hai_flow.runtime.retention import Retention

NOTE_SECONDS: Final = 5.0
BY: Final = "service:cli"

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant. Default: all.")]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--retention", metavar="FILE", help="How long what is kept. Default: HAI_FLOW_RETENTION."),
]
ArchiveOption = Annotated[
    str | None, typer.Option("--archive", metavar="URL", help="Where archives are. Default: as the file says.")
]


def archive(
    dry_run: DryRunOption = False,
    tenant: TenantOption = None,
    retention: PolicyOption = None,
    to: ArchiveOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the threads that are due for removal into the archive. Nothing is removed."""
    _prune(retention, to, tenant, data_dir, as_json, dry_run=dry_run, archives_only=True)


def prune(
    dry_run: DryRunOption = False,
    tenant: TenantOption = None,
    retention: PolicyOption = None,
    to: ArchiveOption = None,
    rest: Annotated[
        str, typer.Option("--rest", metavar="SHARE", help="Rest so long after each batch, in shares of its time.")
    ] = "1",
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge the logs of ended runs, archive and remove threads that ended long enough ago, as the file of retention
    says. Never a run that has not ended, nor what a later turn, a run above or the audit refers to.

    It may be repeated, and stopped at any time: what is left is done the next time. Run it by a timer.
    """
    _prune(retention, to, tenant, data_dir, as_json, dry_run=dry_run, rest=_share(rest))


def restore(
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[ARCHIVE]...", help="As they are listed. Default: list them.")
    ] = None,
    dry_run: DryRunOption = False,
    retention: PolicyOption = None,
    to: ArchiveOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring archived threads back, as they were. An archive that is damaged, of a newer release, or of which a run is
    there already, is refused whole, with the place. Without an archive: list them."""
    from hai_flow.runtime import archives

    url = to or _policy(retention).archive
    if url is None:
        raise UsageError("expected --archive URL, or an `archive` in the file of retention.")
    archive = archives.Archive(url)
    if not places:
        found = archive.places()
        if as_json:
            print_json({"archives": found})
        else:
            say("\n".join(found) or "There is no archive.")
        return

    async def work(connection: Any) -> list[tuple[str, archives.Restored | str]]:
        done: list[tuple[str, archives.Restored | str]] = []
        for place in places or ():
            try:
                done.append((place, await archives.restore(connection, archive, place, BY, store=not dry_run)))
            except archives.Damaged as damaged:
                done.append((place, str(damaged)))
        return done

    done = over_database(data_dir, work)
    refused = [each for _, each in done if isinstance(each, str)]
    if as_json:
        shown = [{"archive": place, **_restored(each)} for place, each in done]
        print_json({"restored": [] if dry_run else shown, "tried": shown if dry_run else []})
    for place, each in done if not as_json else ():
        if isinstance(each, str):
            say(each, "red")
        else:
            verb = "could be restored" if dry_run else "restored"
            say(f"{place}: {plural(each.runs, 'run')} with {plural(each.events, 'event')} {verb}.")
    if refused:
        raise typer.Exit(FAILED)


def _restored(each: Any) -> dict[str, Any]:
    return {"refused": each} if isinstance(each, str) else {"runs": each.runs, "events": each.events}


def _prune(
    file: Path | None,
    to: str | None,
    tenant: str | None,
    data_dir: Path | None,
    as_json: bool,
    *,
    dry_run: bool,
    archives_only: bool = False,
    rest: float = 1.0,
) -> None:
    from hai_flow.runtime import archives
    from hai_flow.runtime.pruning import Pruned, Pruning
    from hai_flow.store import retiring

    policy = _policy(file)
    url = to or policy.archive
    if archives_only and url is None:
        raise UsageError("expected --archive URL, or an `archive` in the file of retention.")

    async def work(connection: Any) -> Pruned:
        if not await retiring.alone(connection):
            raise UsageError("another process archives or removes at this moment; wait for it.")
        named = await _tenants(connection)
        pruning = Pruning(
            retention=policy,
            tenants=named,
            archive=None if url is None else archives.Archive(url),
            by=BY,
            tenant=_tenant(named, tenant),
            do=not dry_run,
            archives_only=archives_only,
            rest=rest,
        )
        done, next_note = Pruned(), time.monotonic() + NOTE_SECONDS
        async for done in pruning.run(connection):
            if time.monotonic() > next_note:
                next_note = time.monotonic() + NOTE_SECONDS
                note(f"{plural(done.threads, 'thread')} so far, {plural(done.rows, 'row')} removed.")
        return done

    _tell(over_database(data_dir, work), as_json, dry_run)


def _tell(done: Pruned, as_json: bool, dry_run: bool) -> None:
    if as_json:
        names = ("threads", "archived", "removed", "runs", "merged", "rows", "kept")
        print_json({"dry_run": dry_run, **{name: getattr(done, name) for name in names}})
        return
    will = "would be " if dry_run else ""
    say(
        f"{plural(done.threads, 'thread')} looked at: {done.archived} {will}archived, {done.removed} with "
        f"{plural(done.runs, 'run')} {will}removed."
    )
    if not dry_run and (done.rows or done.merged):
        say(f"{plural(done.rows, 'row')} of removed runs are gone, {plural(done.merged, 'row')} of logs were merged.")
    for reason, count in done.kept.items():
        say(f"{plural(count, 'thread')} kept: {reason}.", "yellow")


def _policy(file: Path | None) -> Retention:
    """The file of retention. Raises SettingsError for mistakes, UsageError where there is none."""
    from hai_flow.runtime.world import retention_of

    found = retention_of(load_settings(retention=file))
    if found is None:
        raise UsageError("expected --retention FILE, or HAI_FLOW_RETENTION (docs/retention.md).")
    return found


async def _tenants(connection: Any) -> dict[UUID, str]:
    from hai_flow.store import tenants

    return {each.id: each.name for each in await tenants.list_tenants(connection)}


def _tenant(named: dict[UUID, str], name: str | None) -> UUID | None:
    if name is None:
        return None
    found = next((id for id, each in named.items() if each == name), None)
    if found is None:
        raise UsageError(f"there is no tenant {name!r}.")
    return found


def _share(text: str) -> float:
    try:
        share = float(text)
        if 0 <= share <= 1000:
            return share
    except ValueError:
        pass
    raise UsageError(f"expected a number from 0 to 1000 for --rest, found {text!r}.")
