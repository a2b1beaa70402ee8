"""With configured identity: every caller proves their identity, by `Authorization: Bearer` with a key of this server, a
token that a key has signed, or a token of an issuer that is believed; on streams also by a ticket, and in browsers by a
session.

A refusal says whether the credential is missing, expired or wrong, and nothing that helps to forge one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec
from starlette.requests import HTTPConnection

from hai_flow.api import mcp_resource
from hai_flow.api.auth import frontend_tokens, tickets
from hai_flow.api.auth.directory.erased_people import ErasedPeople
from hai_flow.api.auth.directory.people import People
from hai_flow.api.auth.directory.row_cache import Book
from hai_flow.api.auth.frontend_tokens import FrontendTokens
from hai_flow.api.auth.impersonation import read_acting_header, reject_acting
from hai_flow.api.auth.issuers.jwt import Issuer, Tokens, read_thumbprint
from hai_flow.api.auth.keys import Keys
from hai_flow.api.auth.sessions import Limits, Sessions, read_session
from hai_flow.api.permissions.principals import Principal
from hai_flow.engine.pendings.selectors import AGENT, list_ids_between, name_holdings
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.people.delegates import list_held_by_other_keys, load_people_of_agents
from hai_flow.runtime.people.ids import NOBODY, Ids
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import proofs
from hai_flow.store.identity.keys import PREFIX

CREDENTIAL_CHARS_MAX: Final = 8192
PERSON: Final = "user:"
HOLDINGS_SECONDS: Final = 1.0  # a role of a key that was made or revoked elsewhere counts so much later
_OF_KEY: Final = "key:"
_WITHOUT_SIGN_IN: Final = frozenset(("link", "chat"))


class KnownIdentity:
    """Asks every caller for a credential. `limits`: those of sessions. `people`: whose ids are one person's."""

    def __init__(self, runtime: Runtime, limits: Limits, issuers: Sequence[Issuer] = (), people: Ids = NOBODY) -> None:
        self._runtime = runtime
        self._people = People(runtime, people)
        self.keys = Keys(runtime, self._people)
        forgotten = ErasedPeople(runtime)
        self._holdings: Book[tuple[str, ...]] = Book(self._find_holdings, HOLDINGS_SECONDS)
        self._people_of_agents: Book[tuple[str, ...]] = Book(self._find_people_of_agents, HOLDINGS_SECONDS)
        self._frontend = FrontendTokens(self.keys, forgotten, self._people)
        self.issuers = tuple(issuers)
        self.tokens = Tokens(runtime, forgotten, issuers, self._people)
        self.sessions = Sessions(runtime, self.tokens, self.issuers, limits)

    @property
    def issuer_names(self) -> tuple[str, ...]:
        """The issuers whose tokens are believed, exactly as they name themselves."""
        return tuple(each.issuer for each in self.issuers)

    async def principal(self, connection: HTTPConnection) -> Principal:
        """Raises Rejected 400, 401, 403, and 503 where an issuer's keys can't be had."""
        return await self.known(await self._authenticate(connection))

    async def _authenticate(self, connection: HTTPConnection) -> Principal:
        if read_acting_header(connection) is not None:
            raise reject_acting()
        audience = mcp_resource.find_audience(connection)
        if audience is not None:  # no page of a browser calls here
            return await self._authenticate_bearer(connection, audience)
        ticket = tickets.read_ticket(connection)
        if ticket is not None:
            return await tickets.principal_of(self._runtime, ticket)
        session = None if connection.headers.getlist("authorization") else read_session(connection)
        if session is not None:
            return await self._check_key(await self.sessions.principal(connection, session))
        return await self._authenticate_bearer(connection)

    async def _authenticate_bearer(
        self, connection: HTTPConnection, audience: Sequence[str] | None = None
    ) -> Principal:
        """The caller by their key or token. `audience`: the only one that tokens of issuers may be for, in place of
        their issuer's."""
        credential, header = bearer(connection), self._runtime.settings.client_certificate
        if audience is not None and header is not None and credential.startswith((frontend_tokens.PREFIX, PREFIX)):
            detail = "expected a token of an issuer that is bound to a client certificate: keys are not taken here."
            raise Rejected(401, "auth.invalid", detail)
        if credential.startswith(frontend_tokens.PREFIX):
            return await self._frontend.principal(credential, self._runtime.committer.now_ms())
        if credential.startswith(PREFIX):
            return await self.keys.principal(credential, self._runtime.committer.now_ms())
        return await self.tokens.principal(credential, audience, read_thumbprint(connection, header))

    async def begin_with_key(self, text: str, asked: Callable[[Principal], AuditActor]) -> tuple[str, int]:
        """Begin a session of the person whose API key this is. It ends with the key. Returns the
        session's text, and the seconds that it lasts. Raises Rejected 401, and 403 for the key of a program: a session
        does not hold for whom an agent acts."""
        caller = await self.known(await self.keys.principal(text, self._runtime.committer.now_ms()))
        if not caller.id.startswith(PERSON):
            message = f"this is the key of {caller.id}, a program; people sign in, each with a key of user:<name>."
            raise Rejected(403, "sign_in.program", message)
        principal = dataclasses.replace(caller, credential=f"{_OF_KEY}{caller.key}")
        return await self.sessions.begin(principal, asked(caller))

    async def _check_key(self, principal: Principal) -> Principal:
        """The principal of a session. One that was begun with a key is good as long as the key is."""
        credential = principal.credential or ""
        if not credential.startswith(_OF_KEY):
            return principal
        id = credential.removeprefix(_OF_KEY)
        key = await self.keys.find(id)
        if key is None or key.revoked_at is not None:
            raise Rejected(401, "auth.expired", "the key of this session was revoked; sign in again.")
        return dataclasses.replace(principal, key=id)

    async def known(self, principal: Principal) -> Principal:
        """The principal by the one id of their person, with all further ones, and with the roles and groups of all of
        their keys, which excluding selectors are compared with, whichever key or token it is that proves them now.
        Raises Rejected 401 for a link or a chat of somebody who was erased, or, where keys alone let people sign in,
        whose keys were revoked: that is how somebody is let go."""
        principal = await self._people.known(principal)
        who = principal.who
        if principal.way in _WITHOUT_SIGN_IN:
            pool, ids = self._runtime.database.api, (who.id, *who.aliases)
            holders = await proofs.find_key_holders(pool, principal.tenant, ids, by_keys=not self.issuers)
            if proofs.has_left(holders, ids):
                detail = f"the keys of {who.id} were revoked, or they were erased, so they decide no more; an admin "
                detail += "makes another key."
                raise Rejected(401, "auth.expired", detail)
        held = await self._holdings.get("\n".join((str(principal.tenant), who.id, *who.aliases)))
        all_ids = principal.people.all_of
        agents = [id for each in (who.id, *who.through) if each.startswith(AGENT) for id in all_ids(each)]
        people = await self._people_of_agents.get("\n".join((str(principal.tenant), *agents))) if agents else ()
        if held or who.through or agents:
            own = name_holdings(who.roles, who.groups)
            between = (id for each in (*list_ids_between(who.through), *people) for id in all_ids(each))
            through = dict.fromkeys((*between, *(each for each in held if each not in own)))
            issuer = who.issuer or next(iter(agents), None)
            who = msgspec.structs.replace(who, issuer=issuer, through=tuple(through))
            behind = dict.fromkeys((*principal.behind, *people))
            behind.pop(who.id, None)
            principal = dataclasses.replace(principal, who=who, behind=tuple(behind))
        return principal

    async def _find_holdings(self, name: str) -> tuple[str, ...]:
        tenant, *ids = name.split("\n")
        return await list_held_by_other_keys(self._runtime.database.api, UUID(tenant), ids)

    async def _find_people_of_agents(self, name: str) -> tuple[str, ...]:
        tenant, *agents = name.split("\n")
        return await load_people_of_agents(self._runtime.database.api, UUID(tenant), agents)

    def forget(self, credential: str) -> None:
        """Read the key anew the next time: it was changed by this process."""
        self.keys.forget(credential)


def bearer(connection: HTTPConnection) -> str:
    """The credential in `Authorization: Bearer`. Raises Rejected 400 and 401."""
    headers = connection.headers.getlist("authorization")
    if not headers:
        raise Rejected(401, "auth.missing", "expected a credential, as `Authorization: Bearer ...`.")
    if len(headers) > 1:
        raise Rejected(400, "header_twice", "expected at most one Authorization.")
    scheme, _, credential = headers[0].partition(" ")
    if scheme.lower() != "bearer" or not credential or len(credential) > CREDENTIAL_CHARS_MAX:
        raise Rejected(401, "auth.invalid", "expected `Authorization: Bearer ...` with one credential of this server.")
    return credential
