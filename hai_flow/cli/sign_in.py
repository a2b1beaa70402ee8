"""`hai-flow sign-in`: a link that signs a browser in, once. In the database itself, for people with access to it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from hai_flow.cli.admin.audit_record import record
from hai_flow.cli.admin.keys import DEFAULT_TENANT, TenantOption, find_tenant_and, names_of, roles_of
from hai_flow.cli.database import run_over_database
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.terminal import note, print_json, say
from hai_flow.store.postgres.connections import Connection

DECIDER: Final = "decider"


def sign_in(
    principal: Annotated[str, typer.Argument(metavar="WHO", help="The person who signs in: user:ann.")],
    role: Annotated[
        list[str] | None, typer.Option("--role", help="A role, or owner; may be repeated. Default: decider.")
    ] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="A group; may be repeated.")] = None,
    tenant: TenantOption = DEFAULT_TENANT,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a link that signs a browser in to the console: once, within ten minutes."""
    from hai_flow.api.auth.sessions import sign_link_token
    from hai_flow.store.identity import keys as store

    if not store.is_principal(principal) or not principal.startswith("user:"):
        raise UsageError(f"expected a person, like user:ann, found {principal!r}.")
    roles, groups = roles_of(role or [DECIDER]), names_of(group or [])
    settings = load_settings(data_dir=data_dir)

    async def make(connection: Connection, of: Any) -> str:
        async with connection.transaction():
            token = await sign_link_token(connection, of, principal, roles, groups)
            details = {"principal": principal, "given_roles": list(roles), "given_groups": list(groups)}
            await record(connection, of, "sign_in.linked", f"principal:{principal}", **details)
        return token

    token = run_over_database(data_dir, lambda connection: find_tenant_and(connection, tenant, make))
    page = f"{(settings.public_url or settings.url).rstrip('/')}/sign-in/link/{token}"
    if as_json:
        print_json({"principal": principal, "roles": list(roles), "groups": list(groups), "link": page})
        return
    note(f"Signs one browser in as {principal} ({', '.join(roles)}), once, within ten minutes:")
    say(page)
    if settings.identity is None:
        note("A server without identity asks nobody who they are: set HAI_FLOW_IDENTITY=keys for it.")
