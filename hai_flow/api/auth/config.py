"""Reads the identity file: the issuers whose tokens are believed, the meaning of their claims, and the people with
several ids.

hai: identity/v1
issuers:
  corp:
    issuer: https://login.example.com
    audience: hai-flow
    jwks: https://login.example.com/keys        # or jwks_file: keys.json
    claims: {id: sub, roles: realm_access.roles, groups: groups}
    roles: {hai-operators: operator}
    tenant: acme
people:
  acme:
    user:ann: [user:ann@corp.example, user:a.smith]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hai_flow.api.auth.issuers.jwt import ALGORITHMS, ClientRegistration, Issuer
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.keys import DURATION, LITERAL, Key, Shape, either, enum, list_of, map_of, shape_of
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.errors import DefinitionError
from hai_flow.primitives.hosts import is_loopback
from hai_flow.runtime.people.ids import FILE, Ids, read_people
from hai_flow.settings import variables
from hai_flow.store.identity import tenants
from hai_flow.values import Json

_TEXTS: Final = either(LITERAL, list_of(LITERAL, 1))
ISSUER: Final = Shape("issuer", "An issuer of tokens", (
    Key("issuer", LITERAL, "what its tokens say in `iss`", required=True, example="https://login.example.com"),
    Key("audience", _TEXTS, "what they say in `aud`: who they are for", required=True, example="hai-flow"),
    Key("jwks", LITERAL, "the address of its keys", example="https://login.example.com/keys"),
    Key("jwks_file", LITERAL, "the file of its keys", example="keys.json"),
    Key("algorithms", list_of(enum(*ALGORITHMS), 1), "those that it signs with", example="[RS256]"),
    Key("claims", shape_of("claims"), "what its claims mean", example="{id: sub}"),
    Key("roles", map_of(_TEXTS, keys="any"), "what its roles are called here", example="{hai-operators: operator}"),
    Key("tenant", LITERAL, "whose people they are", default="default", example="acme"),
    Key("prefix", LITERAL, "what stands before their ids", example="corp-"),
    Key("leeway", DURATION, "by how much its clock may be wrong", example="30s"),
    Key("client", shape_of("client"), "what this server is to it, for browsers that sign in", example="{id: hai-flow}"),
), exactly_one=(("jwks", "jwks_file"),))  # fmt: skip
CLIENT: Final = Shape("client", "What this server is to an issuer", (
    Key("id", LITERAL, "its `client_id`; one of the audiences", required=True, example="hai-flow"),
    Key("secret", LITERAL, "the variable of the environment with its secret", example="OIDC_SECRET"),
    Key("authorize", LITERAL, "where browsers are sent", required=True, example="https://login.example.com/authorize"),
    Key("token", LITERAL, "where codes are exchanged", required=True, example="https://login.example.com/token"),
    Key("scope", LITERAL, "what is asked for", default="openid", example="openid offline_access"),
    Key("userinfo", LITERAL, "where its people are described, in place of their id_tokens",
        example="https://login.example.com/userinfo"),
))  # fmt: skip
CLAIMS: Final = Shape("claims", "Claims of a token; a dot leads into an object", (
    Key("id", LITERAL, "who it is", default="sub", example="preferred_username"),
    Key("roles", LITERAL, "their roles", example="realm_access.roles"),
    Key("groups", LITERAL, "their groups", example="groups"),
    Key("tenant", LITERAL, "the name of their tenant", example="org"),
    Key("accounts", map_of(LITERAL, keys="any"), "by channel, their account in that chat", example="{slack: slack_id}"),
))  # fmt: skip


def read_identity(path: Path) -> tuple[tuple[Issuer, ...], Ids]:
    """The issuers of a file, and the one id of each further id of a person, by tenant. Raises DefinitionError with
    every mistake, and OSError."""
    reader = Reader(parse(path.read_bytes(), str(path)))
    fields = reader.fields(FILE, reader.document.value, (), "the identity file")
    raw_issuers: Mapping[str, Json] = fields.get("issuers", {})
    issuers = [_issuer(reader, path, name, each) for name, each in raw_issuers.items()]
    sound_issuers = tuple(issuer for issuer in issuers if issuer is not None)
    _keep_apart(reader, sound_issuers)
    people = read_people(reader, fields)
    if any(finding.severity == "error" for finding in reader.findings):
        raise DefinitionError(reader.findings)
    return sound_issuers, people


def _issuer(reader: Reader, path: Path, name: str, raw: Json) -> Issuer | None:
    at = ("issuers", name)
    fields: Mapping[str, Json] = reader.fields(ISSUER, raw, at, f"the issuer `{name}`")
    if "issuer" not in fields or "audience" not in fields:
        return None
    claims: Mapping[str, Any] = reader.fields(CLAIMS, fields.get("claims", {}), (*at, "claims"), "its claims")
    if "jwks" in fields and "jwks_file" in fields:
        reader.error((*at, "jwks_file"), "issuer.keys", "expected `jwks` or `jwks_file`, found both", key=True)
    elif "jwks" in fields and not _is_safe(fields["jwks"]):
        reader.error((*at, "jwks"), "issuer.jwks", "expected https://..., or http:// on this machine")
    elif "jwks" not in fields and "jwks_file" not in fields:
        reader.error(at, "issuer.keys", "expected its keys, in `jwks` or `jwks_file`", key=True)
    if "tenant" in fields and "tenant" in claims:
        reader.error(
            (*at, "tenant"), "issuer.tenant", "expected a tenant or a claim that names it, found both", key=True
        )
    if not tenants.NAME.fullmatch(tenant := fields.get("tenant", tenants.DEFAULT)):
        reader.error((*at, "tenant"), "issuer.tenant", f"expected a tenant's name, found {tenant!r:.80}")
    leeway = 0
    try:
        leeway = milliseconds(fields["leeway"]) if "leeway" in fields else 0
    except NotADuration as error:
        reader.error((*at, "leeway"), "duration.invalid", f"`leeway`: {error}")
    if leeway > 300_000:
        reader.error((*at, "leeway"), "issuer.leeway", "expected 5m or less: so long is a token good after its end")
    audience = fields["audience"]
    return Issuer(
        name=name,
        issuer=fields["issuer"],
        audience=(audience,) if isinstance(audience, str) else tuple(audience),
        jwks=fields.get("jwks"),
        jwks_file=path.parent / fields["jwks_file"] if "jwks_file" in fields else None,
        algorithms=tuple(fields.get("algorithms", ALGORITHMS)),
        id_claim=claims.get("id", "sub"),
        roles_claim=claims.get("roles"),
        groups_claim=claims.get("groups"),
        tenant_claim=claims.get("tenant"),
        tenant=tenant,
        roles={
            name: (each,) if isinstance(each, str) else tuple(each) for name, each in fields.get("roles", {}).items()
        }
        if "roles" in fields
        else None,
        prefix=fields.get("prefix", ""),
        accounts=claims.get("accounts", {}),
        leeway=leeway // 1000,
        client=_client(reader, (*at, "client"), fields) if "client" in fields else None,
    )


def _client(reader: Reader, at: tuple[str, ...], issuer: Mapping[str, Json]) -> ClientRegistration | None:
    fields: Mapping[str, Json] = reader.fields(CLIENT, issuer["client"], at, "its client")
    if not {"id", "authorize", "token"} <= fields.keys():
        return None
    for name in ("authorize", "token", "userinfo"):
        if name in fields and not _is_safe(fields[name]):
            reader.error((*at, name), "issuer.client", "expected https://..., or http:// on this machine")
    audience = issuer["audience"]
    if fields["id"] not in ([audience] if isinstance(audience, str) else audience):
        reader.error((*at, "id"), "issuer.client", "expected one of the audiences: id_tokens are for the client")
    secret = None
    if "secret" in fields:
        secret = variables([fields["secret"]]).get(fields["secret"])
        if secret is None:
            reader.error((*at, "secret"), "issuer.client", f"the variable {fields['secret']!r:.80} is not set")
    return ClientRegistration(
        id=fields["id"],
        secret=secret,
        authorize=fields["authorize"],
        token=fields["token"],
        scope=fields.get("scope", "openid"),
        userinfo=fields.get("userinfo"),
    )


def _is_safe(url: str) -> bool:
    """Whether an answer from there can't be forged on its way: it comes over TLS, or from this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _keep_apart(reader: Reader, issuers: tuple[Issuer, ...]) -> None:
    """Report issuers that can't be told apart: two with one name, or two that could give the same id (`ann`) to
    different people."""
    for number, issuer in enumerate(issuers):
        for other in issuers[:number]:
            if issuer.issuer == other.issuer:
                message = f"expected another issuer than `{other.name}`: tokens would be of both"
                reader.error(("issuers", issuer.name, "issuer"), "issuer.twice", message)
            elif issuer.prefix.startswith(other.prefix) or other.prefix.startswith(issuer.prefix):
                if issuer.tenant_claim is None and other.tenant_claim is None and issuer.tenant != other.tenant:
                    continue
                message = (
                    f"expected a `prefix` that keeps its ids apart from those of `{other.name}`: the same id of both "
                    "would be one person"
                )
                reader.error(("issuers", issuer.name), "issuer.prefix", message, key=True)
