"""`hai-flow audit`: the recorded acts of people and credentials, and the proof that the records were not changed later.

`list` asks a server, as an auditor. `verify`, `anchor` and `export` read the database itself, because the answer of a
server that was changed, too, would prove nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from hai_flow.cli import completion
from hai_flow.cli.admin.audit_record import BY
from hai_flow.cli.client.rest import RemoteOptions, Server
from hai_flow.cli.commands import app_of
from hai_flow.cli.database import run_over_database
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, LimitOption
from hai_flow.cli.terminal import moment, plural, print_items, print_json, say

if TYPE_CHECKING:
    from hai_flow.store.audit.audit import Verified
    from hai_flow.store.audit.audit_chain import Anchor, ChainLink

T = TypeVar("T")

app = app_of(name="audit", no_args_is_help=True, help="Who did what, and the proof that nobody changed it.")

TenantOption = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant. Default: all.")]
_READ_AT_ONCE: Final = 1000


# --- looking ------------------------------------------------------------------------------------------------------


@app.command("list")
def list_records(
    remote: RemoteOptions,
    by: Annotated[str | None, typer.Option("--by", metavar="WHO", help="Only acts of this principal.")] = None,
    act: Annotated[str | None, typer.Option("--act", help="Only this act: run.started, pending.answered, ...")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only for this run.", autocompletion=completion.runs)] = None,
    limit: LimitOption = 50,
) -> None:
    """The recorded acts with their principals, newest first, as a server shows them to an auditor."""

    async def work(api: Server) -> list[Any]:
        run_id = None if run is None else await api.run_id(run)
        return await api.items("/v1/audit", limit, principal=by, act=act, run_id=run_id)

    items = remote.ask(work)
    print_items(items, remote.as_json, "Nothing is recorded.", lambda each: {
        "when": moment(each["at"]), "who": each["by"] or "?", "what": each["act"], "to what": each["subject"] or "",
        "run": each["run_id"] or "",
    })  # fmt: skip


# --- proving ------------------------------------------------------------------------------------------------------


@app.command()
def verify(
    anchors: Annotated[
        list[Path] | None, typer.Option("--anchors", metavar="FILE", help="A file with the output of `audit anchor`.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Check this export instead of the database.")
    ] = None,
    logs: Annotated[bool, typer.Option("--logs", help="Check the logs of all runs as well.")] = False,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the chain of every tenant, and name the records that were changed, removed or swapped. Exits with 1 if any
    were.

    An end that was cut off, or a chain that was made anew, shows only against an anchor that was kept elsewhere."""
    anchors_read = list(_read_anchors(anchors or []))
    if file is not None and logs:
        raise UsageError("expected --logs without --file: an export has no logs.")
    if file is not None:
        results = _verify_file(file, anchors_read)
    else:
        results = run_over_database(
            data_dir, lambda connection: _verify_database(connection, tenant, anchors_read, logs=logs)
        )
    for name, verified in results:
        _tell(name, verified, as_json)
    if not results and not as_json:
        say("Nothing is recorded.")
    if any(verified.faults for _, verified in results):
        raise typer.Exit(FAILED)


@app.command()
def anchor(
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Append to this file instead of printing.")
    ] = None,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """The ends of the chains now, a line of JSON for each tenant. Keep them in a place that can't be changed together
    with the database: a log of another system, paper."""
    from hai_flow import values
    from hai_flow.store.audit import audit

    async def work(connection: Any) -> list[bytes]:
        names = await _names(connection, tenant)
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return [
            values.dumps({"at": at, "name": names[end.tenant], "tenant": str(end.tenant), "n": end.n, "hash": end.hash})
            for end in await audit.anchors(connection, sorted(names))
        ]

    lines = run_over_database(data_dir, work)
    text = "".join(line.decode() + "\n" for line in lines)
    if to is None:
        typer.echo(text, nl=False)
    else:
        with to.open("a") as file:
            file.write(text)
        say(f"{plural(len(lines), 'anchor')} added to {to}.")


@app.command()
def export(tenant: TenantOption = None, data_dir: DataDirOption = None) -> None:
    """The sealed records in the order of their chain, a line of JSON each, with all that `verify --file` needs."""
    from hai_flow.store.audit import audit
    from hai_flow.store.audit.audit_chain import encode_line
    from hai_flow.store.runs.run_bundle import snapshot

    async def work(connection: Any) -> None:
        for each in sorted(await _names(connection, tenant)):
            after = 0
            async with snapshot(connection):  # so that whoever is forgotten meanwhile is there, or is not
                while page := await audit.links(connection, each, after=after, limit=_READ_AT_ONCE):
                    for link in page:
                        typer.echo(encode_line(each, link))
                    after = page[-1].seal.n

    run_over_database(data_dir, work)


def forget(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The person to erase: user:ann.")],
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="The person's tenant.")] = "default",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase a person: a pseudonym replaces their id, and their texts outside of chains are removed. The audit stays
    verifiable. The logs of runs are not changed."""
    from hai_flow.primitives.invisible_characters import list_spellings
    from hai_flow.store.identity import erasure, keys

    if keys.PRINCIPAL.fullmatch(principal) is None:
        raise UsageError(f"expected a person, like user:ann, found {principal!r}.")
    principal, *stored = list_spellings(principal)  # rows of earlier releases have the id as it was written
    if not yes:
        typer.confirm(f"Nobody can undo this. Forget {principal} of the tenant {tenant}?", abort=True)

    async def work(connection: Any) -> erasure.Forgotten:
        (tenant_id,) = await _names(connection, tenant)
        for spelling in stored:
            await erasure.forget(connection, tenant_id, spelling, by=BY)
        return await erasure.forget(connection, tenant_id, principal, by=BY)

    done = run_over_database(data_dir, work)
    if as_json:
        print_json(done._asdict())
        return
    erased = ", ".join(
        (
            plural(done.records, "record"),
            plural(done.opinions, "opinion"),
            plural(done.keys, "key"),
            plural(done.files, "name") + " of files",
        )
    )
    say(f"{principal} is {done.pseudonym} now: {erased}.")
    if done.runs:
        say(
            f"The logs of {plural(done.runs, 'run')} still name them; they are chained, and stay as they are.", "yellow"
        )


def _tell(name: str, verified: Verified, as_json: bool) -> None:
    end = verified.end
    if as_json:
        faults = [{"n": fault.n, "code": fault.code, "message": fault.message} for fault in verified.faults]
        summary = {"name": name, "tenant": str(end.tenant), "n": end.n, "hash": end.hash, "waiting": verified.waiting}
        print_json({**summary, "faults": faults})
        return
    waits = f"; {plural(verified.waiting, 'record')} behind it not sealed yet" if verified.waiting else ""
    say(f"{name}: {plural(end.n, 'record')}, the chain ends with {end.hash[:16]}{waits}.")
    for fault in verified.faults:
        say(f"  {fault.code}: {fault.message}", "red")


async def _verify_database(
    connection: Any, tenant: str | None, known: list[Anchor], *, logs: bool
) -> list[tuple[str, Verified]]:
    from hai_flow.store.audit import audit, log_chain

    names = await _names(connection, tenant)
    if tenant is None:
        names |= {each.tenant: str(each.tenant) for each in known if each.tenant not in names}
    results = [(names[each], await audit.verify(connection, each, known)) for each in sorted(names)]
    if not logs:
        return results
    checked = [(await log_chain.verify_logs(connection, each)).faults for each in sorted(names)]
    return [
        (name, verified._replace(faults=[*verified.faults, *more]))
        for (name, verified), more in zip(results, checked, strict=True)
    ]


def _verify_file(file: Path, known: list[Anchor]) -> list[tuple[str, Verified]]:
    from hai_flow.store.audit.audit import Verified
    from hai_flow.store.audit.audit_chain import FORGOTTEN, Anchor, Fault, Verifier, read_erased_commitments

    erasings: dict[UUID, list[Any]] = {}
    for tenant, link in _iter_links(file):
        erasings.setdefault(tenant, [])
        if link.record is not None and link.record.act == FORGOTTEN:
            erasings[tenant].insert(0, (link.record, link.details))  # the newest first
    for anchor in known:
        erasings.setdefault(anchor.tenant, [])
    verifiers = {
        tenant: Verifier(tenant, read_erased_commitments(details), known) for tenant, details in erasings.items()
    }
    faults: dict[UUID, list[Fault]] = {tenant: [] for tenant in verifiers}
    for tenant, link in _iter_links(file):
        faults[tenant] += verifiers[tenant].check(link)
    return [
        (
            str(tenant),
            Verified(
                faults=[*faults[tenant], *verifier.finish()],
                end=Anchor(tenant, verifier.n, verifier.hash.hex()),
                waiting=0,
            ),
        )
        for tenant, verifier in verifiers.items()
    ]


def _iter_links(file: Path) -> Iterator[tuple[UUID, ChainLink]]:
    from hai_flow.store.audit.audit_chain import read_line

    with _open(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield read_line(line)
            except ValueError as error:
                raise UsageError(f"{file}:{number}: {error}") from None


def _read_anchors(files: Iterable[Path]) -> Iterator[Anchor]:
    import msgspec

    from hai_flow.store.audit.audit_chain import Anchor

    for file in files:
        with _open(file) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield msgspec.json.decode(line, type=Anchor)
                except msgspec.DecodeError as error:
                    raise UsageError(f"{file}:{number}: expected a line that `audit anchor` printed: {error}") from None


def _open(file: Path) -> Any:
    try:
        return file.open()
    except OSError as error:
        raise UsageError(f"expected a file that can be read, found {file}: {error.strerror}") from None


# --- the database -------------------------------------------------------------------------------------------------


async def _names(connection: Any, tenant: str | None) -> dict[UUID, str]:
    """The tenants that are meant, with their names. Raises UsageError."""
    from hai_flow.store.audit import audit
    from hai_flow.store.identity import tenants

    if tenant is not None:
        row = await tenants.find_tenant(connection, tenant)
        if row is None:
            raise UsageError(f"there is no tenant {tenant!r}.")
        return {row.id: row.name}
    named = {each.id: each.name for each in await tenants.list_tenants(connection)}
    return {each: named.get(each, str(each)) for each in await audit.tenants(connection)}
