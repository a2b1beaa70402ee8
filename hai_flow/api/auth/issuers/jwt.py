"""Tokens of issuers (JWT): checked with the issuer's own keys, by asymmetric algorithms only, and read by the claims
that the identity file names.

A token's header is text of its sender, so it is not trusted. It may only choose among the keys of the one issuer that
the token names: no key, address or algorithm of its own is looked at."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from uuid import UUID

import msgspec
from starlette.requests import HTTPConnection

from hai_flow import values
from hai_flow.api.auth.directory.erased_people import ErasedPeople
from hai_flow.api.auth.directory.people import People, TenantIds
from hai_flow.api.auth.issuers.jwks import KeySet
from hai_flow.api.permissions.principals import Principal, Unproven, demand_own_name, reject_credential
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.primitives.invisible_characters import has_invisible
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import variable
from hai_flow.signing import decode, encode
from hai_flow.store.identity import keys
from hai_flow.values import Json, NotJson
from hai_flow.wire.posted_json import build_object

if TYPE_CHECKING:
    import jwt


ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
TYPES: Final = frozenset(("jwt", "at+jwt", "application/jwt", "application/at+jwt"))
NAMES_MAX: Final = 500  # roles, or groups, that one token may have
ACCOUNT_CHARS_MAX: Final = 200
CLOCK_LAG: Final = 1  # seconds by which the database's clock, as it is known here, may be behind
NUMBER_MAX: Final = 2**40  # seconds since 1970 that a claim may name
_NAMED: Final = re.compile(keys.NAMED)
# Header parameters that would bring a key along, or ask for rules that we don't know.
_NEVER: Final = frozenset(("crit", "jku", "jwk", "x5u", "x5c", "b64"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRegistration:
    """This server's registration with an issuer, for browsers that sign in there."""

    id: str
    secret: str | None = field(default=None, repr=False)
    authorize: str = ""
    token: str = ""
    scope: str = "openid"
    userinfo: str | None = None


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """An issuer whose tokens are believed, as the identity file describes it. `roles` maps its roles to ours, and no
    others count; None: its roles have the same names here. `accounts`: by channel, the claim with the person's account
    in that chat."""

    name: str
    issuer: str
    audience: tuple[str, ...]
    jwks: str | None = None
    jwks_file: Path | None = None
    algorithms: tuple[str, ...] = ALGORITHMS
    id_claim: str = "sub"
    roles_claim: str | None = None
    groups_claim: str | None = None
    tenant_claim: str | None = None
    tenant: str = "default"
    roles: Mapping[str, tuple[str, ...]] | None = None
    prefix: str = ""
    leeway: int = 0
    accounts: Mapping[str, str] = msgspec.field(default_factory=dict)
    client: ClientRegistration | None = None


class Tokens:
    """The tokens of all issuers. `people`: whose ids are one person's."""

    def __init__(self, runtime: Runtime, forgotten: ErasedPeople, issuers: Sequence[Issuer], people: People) -> None:
        self._tenants = TenantIds(runtime)
        self._forgotten = forgotten
        self._issuers = {issuer.issuer: (issuer, KeySet(issuer.jwks, issuer.jwks_file)) for issuer in issuers}
        self._people = people
        self._runtime = runtime
        self._binds = runtime.settings.client_certificate is not None

    def now_ms(self) -> int:
        """The database's time, as this process knows it."""
        return self._runtime.committer.now_ms()

    async def principal(
        self, token: str, audience: Sequence[str] | None = None, thumbprint: str | None = None
    ) -> Principal:
        """The caller with this token. `audience`: the only one that it may be for, in place of its issuer's.
        `thumbprint`: that of the client's certificate. Raises Rejected 401, and 503 where the issuer's keys can't be
        had."""
        issuer, claims = await self.claims(token, audience)
        demand_holder(claims, thumbprint, required=audience is not None and self._binds)
        return await self.person(issuer, claims)

    async def claims(self, token: str, audience: Sequence[str] | None = None) -> tuple[Issuer, Mapping[str, Json]]:
        """The issuer of a token that it has signed for us, and its claims. Raises Rejected 401 and 503."""
        header, unproven = _parts(token)
        entry = self._issuers.get(_text(unproven.get("iss")) or "")
        if entry is None:
            raise reject_credential()
        issuer, keys_of_issuer = entry
        algorithm = header.get("alg")
        if algorithm not in issuer.algorithms:
            raise reject_credential()
        key = await keys_of_issuer.key(header.get("kid"), algorithm)
        if key is None:
            raise reject_credential()
        try:
            audience = issuer.audience if audience is None else audience
            return issuer, _verify_token(token, key, issuer, algorithm, audience, self.now_ms() // 1000)
        except Unproven as refusal:
            raise refusal.of(await self.tenant_of(issuer), issuer.name) from None

    async def tenant_of(self, issuer: Issuer) -> UUID | None:
        """The tenant of all of an issuer's people; None: each token names its tenant."""
        return None if issuer.tenant_claim is not None else await self._tenants.id_of(issuer.tenant)

    async def person(self, issuer: Issuer, claims: Mapping[str, Json]) -> Principal:
        """The caller that the claims describe. Raises Rejected 401 where they describe no person of a tenant here."""
        name = _text(_claim(claims, issuer.id_claim))
        if issuer.id_claim == "email" and claims.get("email_verified") is not True:
            raise reject_credential()
        id = f"user:{issuer.prefix}{name}"
        if not name or not keys.is_principal(id):
            raise reject_credential()
        tenant_name = issuer.tenant if issuer.tenant_claim is None else _text(_claim(claims, issuer.tenant_claim))
        tenant = await self._tenants.id_of(tenant_name or "")
        if tenant is None:
            raise reject_credential()
        who = c.Principal(
            await self._people.one(tenant, id),
            tuple(_roles(issuer, claims)),
            tuple(_names(claims, issuer.groups_claim)),
        )
        demand_own_name(who.id)
        await self._forgotten.refuse(tenant, who.id, float(claims.get("iat", 0)) * 1000)
        token_id = _text(claims.get("jti")) or _text(claims.get("sid")) or ""
        return Principal(
            who,
            tenant,
            way="jwt",
            credential=f"{issuer.name}:{token_id[:100]}" if token_id.isprintable() else issuer.name,
            expires_at=(int(claims["exp"]) + issuer.leeway) * 1000,
            accounts=tuple(_accounts(issuer, claims)),
        )


def _verify_token(
    token: str, key: jwt.PyJWK, issuer: Issuer, algorithm: str, audience: Sequence[str], now: int
) -> Mapping[str, Json]:
    """The claims of the token, which its issuer has signed. `now`: the database's time, in seconds, by which other
    credentials end, too; it may be a moment behind."""
    import jwt  # loads all of `cryptography`, which most servers never need

    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=list(audience),
            issuer=issuer.issuer,
            options={  # its times are judged below, by another clock than that of this machine
                "require": ["exp", "aud", "iss", "sub"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except jwt.InvalidAudienceError:
        raise Unproven(401, "auth.audience", "this token is for somebody else than this server.") from None
    except (jwt.PyJWTError, ValueError, TypeError):
        raise reject_credential() from None
    if int(claims["exp"]) <= now - issuer.leeway:
        raise Unproven(401, "auth.expired", "this token has expired; sign in again.")
    if max(claims.get("nbf", 0), claims.get("iat", 0)) > now + issuer.leeway + CLOCK_LAG:
        raise reject_credential()
    return claims


def _parts(token: str) -> tuple[Mapping[str, Json], Mapping[str, Json]]:
    """The header and the claims of a token as they stand in it, unproven. Raises Rejected 401."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise reject_credential()
    try:
        head, body, _ = map(decode, parts)  # the one text of each, of the signature too
    except ValueError:
        raise reject_credential() from None
    header, claims = _object(head), _object(body)
    kind = header.get("typ", "JWT")
    if not _NEVER.isdisjoint(header) or not isinstance(kind, str) or kind.lower() not in TYPES:
        raise reject_credential()
    if not isinstance(header.get("kid"), str | None) or not isinstance(header.get("alg"), str):
        raise reject_credential()
    for name in ("exp", "nbf", "iat"):
        number = claims.get(name, 0)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= NUMBER_MAX:
            raise reject_credential()
    return header, claims


def _object(text: bytes) -> dict[str, Json]:
    """A part of a token. What stands twice in an object is refused: another reader might believe the other one."""
    try:
        record = values.loads(text)
        json.loads(text.decode(), object_pairs_hook=build_object)
    except (ValueError, NotJson, RecursionError):
        raise reject_credential() from None
    if not isinstance(record, dict):
        raise reject_credential()
    return record


def _claim(claims: Mapping[str, Json], path: str) -> Json:
    """The claim of this name. If there is none, a name with dots is a path into nested claims."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _accounts(issuer: Issuer, claims: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The person's accounts in chats, each behind its channel."""
    for channel, path in issuer.accounts.items():
        account = _text(_claim(claims, path))
        if account and len(account) <= ACCOUNT_CHARS_MAX and account.isprintable():
            yield channel, account


def _roles(issuer: Issuer, claims: Mapping[str, Json]) -> Iterator[str]:
    names = _names(claims, issuer.roles_claim)
    if issuer.roles is None:
        return iter(names)
    return iter(dict.fromkeys(role for name in names for role in issuer.roles.get(name, ())))


def _names(claims: Mapping[str, Json], path: str | None) -> list[str]:
    """The names in a claim: a list of texts, or one text with spaces. Those that can be no name are left out."""
    claim = None if path is None else _claim(claims, path)
    raw_names = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    sound = [each for each in raw_names if isinstance(each, str) and _is_named(each)]
    return list(dict.fromkeys(sound))[:NAMES_MAX]


def _is_named(name: str) -> bool:
    return len(name) <= 200 and _NAMED.fullmatch(name) is not None and not has_invisible(name)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


METHOD: Final = "x5t#S256"
_PEM: Final = re.compile(r"-----(?:BEGIN|END) CERTIFICATE-----|\s")


def read_thumbprint(connection: HTTPConnection, header: str | None) -> str | None:
    """The thumbprint of the client's certificate, as `cnf` has it; None where the proxy has handed on none, or
    something else. Raises Rejected 400 for a header that comes twice."""
    values = connection.headers.getlist(header) if header else []
    if not values:
        return None
    if len(values) > 1:
        raise Rejected(400, "header_twice", f"expected at most one {header}.")
    text = _PEM.sub("", unquote(values[0])).strip(":")  # in PEM with escapes, or in Base64 between colons
    try:
        certificate = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return encode(sha256(certificate).digest())


def demand_holder(claims: Mapping[str, Json], thumbprint: str | None, *, required: bool) -> None:
    """Raises Rejected 401 where the token is bound to another sender than this one, in a way that can't be checked
    here, or (`required`) to none."""
    if "cnf" not in claims and not required:
        return
    bound = claims.get("cnf")
    if thumbprint is not None and isinstance(bound, Mapping) and dict(bound) == {METHOD: thumbprint}:
        return
    detail = (
        f"expected a token that is bound to the certificate of this connection (`cnf` with `{METHOD}`, RFC 8705), "
        f"which the proxy hands on in the header that {variable('client_certificate')} names."
    )
    raise Rejected(401, "auth.invalid", detail)
