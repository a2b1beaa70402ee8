"""The caller of a request, and the right that its route demands.

The identity (`api/auth`) finds the caller: it is one object, made from the settings. Nothing else reads a
credential."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar
from uuid import UUID

from fastapi import Depends
from fastapi.dependencies.models import Dependant
from starlette.requests import HTTPConnection

from hai_flow.api.permissions import limited_credentials
from hai_flow.api.permissions.rights import ROLES, SCOPED, Right, rights_of
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import WORK_FOR
from hai_flow.runtime.catalog.built_in import RULE_APPROVAL
from hai_flow.runtime.people.ids import NO_ALIASES, Aliases
from hai_flow.runtime.runtime import LOCAL_TENANT

_Dependency = TypeVar("_Dependency", bound=Callable[..., Any])
Way: TypeAlias = Literal["local", "act_as", "nobody", "key", "jwt", "token", "session", "ticket", "link", "chat"]
_UNRESTRICTED: Final = frozenset({"local", "act_as"})


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request.

    `way`: how they proved their identity. `local` and `act_as` exist without configured identity only, where everybody
    may do everything; `nobody` is the caller of a route that asks for no credential. `credential` is the id of the key
    or token that proved it, never a secret. `expires_at` (ms since 1970) is when the proof ends, and a stream with it.
    `threads` and `workflows`: the only ones that the credential is for; None: no limit. The proof rests on the API key
    `key` (its id), or on the browser's session `session` (its digest), if on either. It ends when that key or session
    does, or when the roles of the session's person change (`session_version` counts these changes). `keep` is called
    now and then while a stream of theirs is open. `people`: whose ids are one person's in their tenant.
    `behind`: the people for whom an agent acts, who are behind the runs that it starts; `speaks_for`: the patterns of
    those whom it may name. `accounts`: by channel, the accounts in chats that their issuer names."""

    who: c.Principal
    tenant: UUID
    way: Way = "local"
    credential: str | None = None
    expires_at: int | None = None
    threads: frozenset[str] | None = None
    workflows: frozenset[str] | None = None
    key: str | None = None
    session: bytes | None = None
    session_version: int = 0
    keep: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    people: Aliases = field(default=NO_ALIASES, compare=False, repr=False)
    behind: tuple[str, ...] = ()
    accounts: tuple[tuple[str, str], ...] = ()
    speaks_for: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.who.id

    def may(self, right: Right) -> bool:
        """Whether their built-in roles have the right, and the credential is not limited to less."""
        if self.way in _UNRESTRICTED:
            return True
        if self.is_limited and right not in SCOPED:
            return False
        return self.way != "nobody" and right in rights_of(self.who.roles)

    @property
    def is_limited(self) -> bool:
        """Whether the credential is for some threads or workflows only."""
        return self.threads is not None or self.workflows is not None

    @property
    def is_anybody(self) -> bool:
        """Whether the server asked for no credential: then everybody may see and do everything."""
        return self.way in _UNRESTRICTED

    @property
    def sees_all(self) -> bool:
        """Whether they may see every run of their tenant."""
        return self.may(Right.SEE_RUNS)

    def is_for(self, thread_id: str, workflow: str) -> bool:
        """Whether the credential is for the thread, and for the workflow. One that is limited never approves a standing
        rule, whose reach has no such limit."""
        threads, workflows = self.threads, self.workflows
        if self.is_limited and workflow == RULE_APPROVAL:
            return False
        return (threads is None or thread_id in threads) and (workflows is None or workflow in workflows)

    def seconds_left(self, now_ms: int) -> float | None:
        """For how many seconds the proof of their identity is good; None: for ever. `now_ms` is the database's time,
        by which all credentials end in all processes."""
        return None if self.expires_at is None else max(0.0, (self.expires_at - now_ms) / 1000)

    @property
    def is_lent(self) -> bool:
        """Whether the credential only lends what its person has, who is not signed in by it themselves."""
        return self.way in ("token", "link", "ticket", "chat")

    def via(self, way: str) -> str:
        """The way that an answer came, as it is recorded."""
        return f"{way} (act as)" if self.way == "act_as" else way


_ACTING: Final = (
    "development only: `user:ann,role:controller,group:finance`, `for=user:bob` for a delegate, "
    "`tenant=acme` for another tenant"
)
ACT_AS_PARAMETER: Final[dict[str, Any]] = {
    "name": "HAI-Act-As",
    "in": "header",
    "required": False,
    "schema": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": _ACTING, "title": "Hai-Act-As"},
    "description": _ACTING,
}
"""The header in OpenAPI. It belongs to every operation that asks for its caller: as a parameter of `get_principal` it
would be made twice for each route, which took a tenth of a server's start."""

NOBODY: Final = Principal(c.Principal("service:nobody"), LOCAL_TENANT, way="nobody")
"""The caller of a route that asks for no credential."""


class Unproven(Rejected):
    """A credential that was refused. `tenant` and `credential` (its id) are those that it was meant for, if they are
    known: for the audit, never for the caller."""

    tenant: UUID | None = None
    credential: str | None = None

    def of(self, tenant: UUID | None, credential: str | None = None) -> Unproven:
        """Set the tenant and the credential that it was meant for."""
        self.tenant, self.credential = tenant, credential
        return self


def reject_credential() -> Unproven:
    """The refusal of every wrong credential, whatever is wrong with it: so it gives a forger no hint."""
    return Unproven(401, "auth.invalid", "this credential is none of this server's, or was revoked.")


def demand_own_name(id: str) -> None:
    """Raise Rejected 401 for the id that stands for everybody where no identity is configured: all runs from that time
    are its own, and it settles lost outcomes. Somebody whom an issuer calls by this name is not that; an admin may
    make a key for it, and `dev` signs its own person in by it."""
    if id == c.LOCAL_PRINCIPAL.id:
        detail = f"`{id}` stands for everybody on a server without identity, and can't call this one; use another name."
        raise Unproven(401, "auth.invalid", detail)


def find_caller(connection: HTTPConnection) -> Principal | None:
    """The caller of the request; None: the identity was not asked for them."""
    return connection.scope.get(_CALLER)


class Identity(Protocol):
    """Finds the caller of a request. There is one for all requests of an application (`app.state.identity`)."""

    @property
    def issuer_names(self) -> tuple[str, ...]:
        """The issuers whose tokens are believed, exactly as they name themselves."""
        ...

    async def principal(self, connection: HTTPConnection) -> Principal:
        """Raises Rejected 400, 401, 403 and 422."""
        ...

    async def known(self, principal: Principal) -> Principal:
        """The principal by the one id of their person, with all further ones."""
        ...

    def forget(self, credential: str) -> None:
        """Look the credential of this id up anew the next time: it was changed by this process."""
        ...


def read_once(dependency: _Dependency) -> _Dependency:
    """A dependency of many routes: its annotations are evaluated here, not by FastAPI for each of the routes."""
    dependency.__signature__ = inspect.signature(dependency, eval_str=True)  # type: ignore[attr-defined]
    return dependency


def look_at_connection(dependency: _Dependency) -> _Dependency:
    """A dependency, as `read_once` has it, that needs nothing but the connection. A route calls it by itself: FastAPI
    would search each part of the request for parameters that it does not have."""
    setattr(dependency, _LOOKS, True)
    return read_once(dependency)


def looks_at_connection(dependency: Callable[..., Any] | None) -> bool:
    """Whether it is a `look_at_connection`."""
    return hasattr(dependency, _LOOKS)


@read_once
async def get_principal(connection: HTTPConnection) -> Principal:
    """The caller. The identity finds them once for each request; it reads HAI-Act-As, too (`ACT_AS_PARAMETER`). Raises
    Rejected 400, 401, 403, 422, and 429 for too many wrong credentials of one address."""
    cached: Principal | None = connection.scope.get(_CALLER)
    if cached is None:
        state = connection.app.state
        try:
            cached = connection.scope[_CALLER] = await state.identity.principal(connection)
        except Rejected as refusal:
            raise await state.sign_ins.record_refusal(connection, refusal) from None
    WORK_FOR.set(cached.tenant)
    return cached


_CALLER: Final = "hai_flow.caller"  # the key of a request's scope that holds the principal
_LOOKS: Final = "looks_at_connection"
RIGHTS: Final = "needed_rights"  # the attribute of a route's dependency that holds them


def requires(*rights: Right, like: tuple[str, str] | None = None) -> Any:
    """The dependency of a route whose caller needs at least one of `rights`. `like`: the method and path of the route
    that it is another name of."""

    @look_at_connection
    async def check(connection: HTTPConnection) -> None:
        principal = await get_principal(connection)
        if not any(principal.may(right) for right in rights):
            raise reject_missing_right(rights)
        if principal.is_limited and not limited_credentials.opens(*(like or _find_route(connection))):
            raise Rejected(
                403,
                "credential_limited",
                "your credential is for some threads or workflows, and this is about all that is yours; a credential "
                "without such limits opens it.",
            )

    return Depends(_mark_rights(check, rights))


def _find_route(connection: HTTPConnection) -> tuple[str, str]:
    """The method and the path of a request's route, as `limited.ROUTES` has them."""
    route = connection.scope["route"]
    if connection.scope["type"] == "websocket":
        return "WS", str(route.path)
    return str(connection.scope["method"]), str(route.path)


def open_to_everybody() -> Any:
    """The dependency of a route that asks for no credential."""

    async def check() -> None:
        pass

    return Depends(_mark_rights(check, ()))


class MissingRight(Rejected):
    """The refusal of a caller that has none of `rights`."""

    rights: tuple[Right, ...] = ()


def reject_missing_right(rights: tuple[Right, ...]) -> MissingRight:
    """The refusal of a caller that has none of `rights`."""
    roles = [role for role, held in ROLES.items() if held.intersection(rights)]
    who = f"the role {roles[0]} does" if len(roles) == 1 else f"the roles {', '.join(roles)} do"
    refusal = MissingRight(
        403, "right_missing", f"this takes the right {' or '.join(rights)}, which your roles do not have; {who}."
    )
    refusal.rights = rights
    return refusal


def rights_for(dependant: Dependant) -> tuple[Right, ...] | None:
    """The rights of which a route with these dependencies demands one. Empty: it asks for no credential. None: it
    declares nothing, which is a mistake."""
    waiting = [dependant]
    while waiting:
        each = waiting.pop()
        rights: tuple[Right, ...] | None = getattr(each.call, RIGHTS, None)
        if rights is not None:
            return rights
        waiting.extend(each.dependencies)
    return None


def _mark_rights(check: Callable[..., Any], rights: tuple[Right, ...]) -> Callable[..., Any]:
    setattr(check, RIGHTS, rights)
    return check
