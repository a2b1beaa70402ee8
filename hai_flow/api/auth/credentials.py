"""The identity of a request's caller.

Without configured identity there is one person, `user:local`, and the server listens on loopback only (`local`). With
`HAI_FLOW_IDENTITY` every request has a credential, or it is refused (`known`); there is no identity to fall back to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import HTTPConnection

from hai_flow.api.auth.authenticate import KnownIdentity
from hai_flow.api.auth.config import read_identity
from hai_flow.api.auth.directory.people import TenantIds
from hai_flow.api.auth.impersonation import ACT_AS, read_acting_header, reject_acting
from hai_flow.api.auth.sessions import Limits
from hai_flow.api.permissions.principals import Identity, Principal
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import NotASelector, acting_as
from hai_flow.errors import Rejected
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import KEYS, Settings


def identity_of(settings: Settings, runtime: Runtime, *, development: bool) -> Identity:
    """The identity that the settings describe. `development`: HAI-Act-As is believed where no identity is configured.
    Raises DefinitionError for mistakes in the identity file."""
    if settings.identity is None:
        return LocalIdentity(runtime, development=development)
    if settings.identity == KEYS:
        return KnownIdentity(runtime, Limits.of(settings))
    issuers, people = read_identity(Path(settings.identity))
    runtime.issuer_roles = {
        role for issuer in issuers for roles in (issuer.roles or {}).values() for role in roles
    }  # of which publishing speaks
    return KnownIdentity(runtime, Limits.of(settings), issuers, people)


_TENANT: Final = "tenant="
_LOCAL: Final = Principal(c.LOCAL_PRINCIPAL, LOCAL_TENANT)


class LocalIdentity:
    """Asks for no credential. `development`: HAI-Act-As names the caller."""

    def __init__(self, runtime: Runtime, *, development: bool) -> None:
        self._tenants = TenantIds(runtime)
        self._development = development

    @property
    def issuer_names(self) -> tuple[str, ...]:
        """None: no credential is asked for."""
        return ()

    async def principal(self, connection: HTTPConnection) -> Principal:
        """Raises Rejected 400, 403 and 422."""
        header = read_acting_header(connection)
        if header is None:
            return _LOCAL
        if not self._development:
            raise reject_acting()
        people = [part for part in header.split(",") if not part.strip().startswith(_TENANT)]
        tenants = [part.strip().removeprefix(_TENANT) for part in header.split(",") if part.strip().startswith(_TENANT)]
        if len(tenants) > 1:
            raise Rejected(422, "act_as.invalid", f"{ACT_AS}: expected at most one {_TENANT}, found {len(tenants)}.")
        try:
            who = acting_as(",".join(people))
        except NotASelector as error:
            raise Rejected(422, "act_as.invalid", f"{ACT_AS}: {error}.") from None
        tenant = await self._tenants.id_of(tenants[0]) if tenants else LOCAL_TENANT
        if tenant is None:
            raise Rejected(422, "act_as.invalid", f"{ACT_AS}: there is no tenant {tenants[0]!r:.80}.")
        return Principal(who, tenant, way="act_as")

    async def known(self, principal: Principal) -> Principal:
        """The principal itself: without configured identity each person has one id."""
        return principal

    def forget(self, credential: str) -> None:
        """There is nothing to forget."""
