"""`hai-flow keys`: API keys. In the database itself, for people with access to it: the first key of an admin has to
come from somewhere. With --server through a server, for admins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from hai_flow.cli.admin.audit_record import BY, record
from hai_flow.cli.client.rest import Server, ask
from hai_flow.cli.commands import app_of
from hai_flow.cli.console import Styled
from hai_flow.cli.database import run_over_database
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, ServerOption, load_settings, parse_duration
from hai_flow.cli.terminal import moment, note, print_items, print_json, print_result, say
from hai_flow.errors import HaiFlowError
from hai_flow.store.postgres.connections import Connection
from hai_flow.values import Json

Result = TypeVar("Result")

DEFAULT_TENANT: Final = "default"
OWNER: Final = ("admin", "operator", "decider", "publisher")

app = app_of(
    name="keys", lists="API keys, with which programs and people call a server; without a command, their list."
)

TenantOption = Annotated[str, typer.Option("--tenant", metavar="NAME", help="The tenant of the keys.")]


@app.command()
def create(
    principal: Annotated[str, typer.Argument(metavar="WHO", help="The principal of the key: user:ann, service:ci.")],
    role: Annotated[list[str] | None, typer.Option("--role", help="A role; may be repeated.")] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="A group; may be repeated.")] = None,
    speaks_for: Annotated[
        list[str] | None,
        typer.Option(
            "--speaks-for",
            metavar="WHO",
            help="People for whom the key's tokens may decide: user:ann, or user:shop-* for a prefix; may be repeated.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The purpose of the key.")] = "",
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="TIME", help="Lifetime of the key, such as 90d.")
    ] = None,
    tenant: TenantOption = DEFAULT_TENANT,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key. It is printed this once, and can't be read again. `--role owner` gives what a first administrator
    needs: admin, operator, decider and publisher."""
    from hai_flow.primitives.invisible_characters import compose, has_invisible
    from hai_flow.store.identity import keys as store
    from hai_flow.store.postgres.database import read_clock

    principal = compose(principal)
    if not store.is_principal(principal):
        raise UsageError(f"expected who calls with the key, like user:ann or service:ci, found {principal!r}.")
    roles, groups, lasts = roles_of(role or ()), names_of(group or ()), _lasts(expires_in)
    for each in speaks_for or ():
        if not store.PATTERN.fullmatch(each) or has_invisible(each):
            raise UsageError(f"--speaks-for: expected user:ann or user:shop-*, found {each!r}.")
    _doubt(roles)

    async def here(connection: Connection, of: Any) -> Json:
        expires_at = None if lasts is None else await read_clock(connection) + lasts
        async with connection.transaction():
            row, text = await store.create_key(
                connection,
                of,
                principal,
                name=name,
                roles=roles,
                groups=groups,
                created_by=BY,
                expires_at=expires_at,
                speaks_for=speaks_for,
            )
            details = {"principal": principal, "given_roles": list(roles), "speaks_for": row.speaks_for}
            await record(connection, of, "key.created", f"key:{row.id}", **details)
        return {**_view(row), "key": text}

    async def there(api: Server) -> Json:
        body: dict[str, Json] = {"principal": principal, "name": name, "roles": list(roles), "groups": list(groups)}
        body |= {"speaks_for": list(speaks_for)} if speaks_for else {}
        return await api.post("/v1/keys", body if lasts is None else {**body, "expires_in": int(lasts.total_seconds())})

    result = _run(server, tenant, data_dir, as_json, here, there)
    if as_json:
        print_json(result)
        return
    note(f"The key {result['id']} of {principal}; it is shown this once:")
    say(result["key"])


def names_of(names: Sequence[str]) -> tuple[str, ...]:
    """The roles or groups of these names. Raises UsageError for what can be none."""
    import re

    from hai_flow.primitives.invisible_characters import compose, has_invisible
    from hai_flow.store.identity import keys as store

    for each in names:
        if not re.fullmatch(store.NAMED, each) or has_invisible(each):
            raise UsageError(f"expected a role or a group without spaces and invisible characters, found {each!r}.")
    return tuple(map(compose, names))


def roles_of(names: Sequence[str]) -> tuple[str, ...]:
    """The roles of these names. `owner` stands for all roles of a first administrator: it is none itself, so
    it opens nothing to people whose workflows have a role of that name. Raises UsageError."""
    expanded = [role for each in names_of(names) for role in (OWNER if each == "owner" else (each,))]
    return tuple(dict.fromkeys(expanded))


def _doubt(roles: Sequence[str]) -> None:
    """Say which of `roles` may be meant to be built in, and are not. A workflow may ask for roles of any name."""
    import difflib

    from hai_flow.api.permissions.rights import ROLES

    for role in roles:
        near = difflib.get_close_matches(role.lower(), [*ROLES, "owner"], n=1, cutoff=0.8)
        if role not in ROLES and near:
            note(f"{role} is no built-in role, and opens nothing by itself; did you mean {near[0]}?")


@app.command("list")
def list_keys(
    tenant: TenantOption = DEFAULT_TENANT,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """All keys: the principal of each, when it expires, and when it was used last."""
    from hai_flow.store.identity import keys as store

    async def here(connection: Connection, of: Any) -> list[Json]:
        return [_view(each) for each in await store.list_keys(connection, of)]

    async def there(api: Server) -> list[Json]:
        return await api.items("/v1/keys", None)

    items = _run(server, tenant, data_dir, as_json, here, there)
    print_items(items, as_json, "No keys.", lambda each: {
        "key": each["id"], "who": each["principal"], "roles": " ".join(each["roles"]), "name": each["name"],
        "expires": Styled("revoked", "red") if each["revoked_at"] else moment(each["expires_at"]) or "never",
        "last used": moment(each["used_at"]),
    })  # fmt: skip


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id.")],
    tenant: TenantOption = DEFAULT_TENANT,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key: it is refused from now on, at the latest after a second."""
    from urllib.parse import quote

    from hai_flow.runtime.people.ids import NO_ALIASES, read_ids
    from hai_flow.store.identity import keys as store

    async def here(connection: Connection, of: Any) -> Json:
        all_ids = read_ids(load_settings()).get(tenant, NO_ALIASES).all_of
        async with connection.transaction():
            revoked = await store.revoke_key(connection, of, key, all_ids)
            if revoked is None:
                raise HaiFlowError(f"there is no key {key!r} of the tenant {tenant}.")
            await record(connection, of, "key.revoked", f"key:{key}", principal=revoked.principal)
        return _view(revoked)

    async def there(api: Server) -> Json:
        return await api.post(f"/v1/keys/{quote(key, safe='')}/revoke")

    done = _run(server, tenant, data_dir, as_json, here, there)
    print_result(done, as_json, f"The key {done['id']} of {done['principal']} is revoked.", "green")


@app.command("rotate-states")
def rotate_states(
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Invalidate everything that earlier keys have sealed, as after a leak.")
    ] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new key for the states that clients of `/mcp` carry. All processes seal with it within ten seconds."""
    from hai_flow.store.identity import state_keys

    async def rotate(connection: Connection, of: Any) -> Json:
        async with connection.transaction():
            await state_keys.rotate(connection, at_once=at_once)
            sealing, *older = await state_keys.read_ring(connection)
            await record(connection, of, "state_key.rotated", f"state_key:{sealing.id}", at_once=at_once)
        return {"id": sealing.id, "older": [{"id": key.id, "until": key.until_text} for key in older]}

    done = run_over_database(data_dir, lambda connection: find_tenant_and(connection, DEFAULT_TENANT, rotate))
    print_result(done, as_json, f"The key {done['id']} seals states at /mcp.", "green")


def _lasts(text: str | None) -> timedelta | None:
    if text is None:
        return None
    lasts = parse_duration(text, "--expires-in")
    if lasts < timedelta(seconds=1):
        raise UsageError(f"--expires-in: expected a second or more, found {text!r}.")
    return lasts


def _view(key: Any) -> dict[str, Json]:
    from hai_flow.api.requests.views import render_key

    return {**render_key(key)}


def _run(
    server: str | None,
    tenant: str,
    data_dir: Path | None,
    as_json: bool,
    here: Callable[[Connection, Any], Awaitable[Result]],
    there: Callable[[Server], Awaitable[Result]],
) -> Result:
    if server is None:
        return run_over_database(data_dir, lambda connection: find_tenant_and(connection, tenant, here))
    if tenant != DEFAULT_TENANT:
        raise UsageError("--tenant: a server serves the tenant of your key; leave it out with --server.")
    return ask(server, as_json, there)


async def find_tenant_and(
    connection: Connection, name: str, work: Callable[[Connection, Any], Awaitable[Result]]
) -> Result:
    from hai_flow.store.identity import tenants

    row = await tenants.find_tenant(connection, name)
    if row is None:
        raise HaiFlowError(f"there is no tenant {name!r}.")
    return await work(connection, row.id)
