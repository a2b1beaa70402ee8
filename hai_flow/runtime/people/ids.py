"""The people of each tenant that have several ids: `people` of the identity file (docs/security.md#authentication).

All processes read it: a server compares callers by it, and a worker picks, counts and notifies people by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.keys import LITERAL, Key, Shape, either, enum, list_of, map_of, shape_of
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.engine.commands import LOCAL_PRINCIPAL
from hai_flow.errors import DefinitionError
from hai_flow.primitives.invisible_characters import compose, list_spellings
from hai_flow.settings import KEYS, Settings
from hai_flow.store.identity import keys, tenants
from hai_flow.values import Json

Ids: TypeAlias = Mapping[str, Mapping[str, str]]
"""The one id of each further id of a person, by the name of their tenant."""

NOBODY: Final[Ids] = {}
FILE: Final = Shape("identity", "The identity file", (
    Key("hai", enum("identity/v1"), "the language", required=True, example="identity/v1"),
    Key("issuers", map_of(shape_of("issuer")), "whose tokens are believed", example="{corp: {...}}"),
    Key("people", map_of(either(list_of(LITERAL, 1), map_of(list_of(LITERAL, 1), keys="any")), keys="any"),
        "further ids of people, by tenant", example="{acme: {user:ann: [user:ann@corp.example]}}"),
))  # fmt: skip


class Aliases:
    """The people of one tenant that have several ids. `one`: the one id of each further id."""

    def __init__(self, one: Mapping[str, str]) -> None:
        self._one = one
        self._further: dict[str, tuple[str, ...]] = {}
        for further, id in one.items():
            self._further[id] = (*self._further.get(id, ()), further)

    def one(self, id: str) -> str:
        id = compose(id)
        return self._one.get(id, id)

    def further(self, id: str) -> tuple[str, ...]:
        """The further ids of the person whose one id this is, and other spellings of all."""
        further = self._further.get(id, ())
        return tuple(each for name in (id, *further) for each in list_spellings(name) if each != id)

    def all_of(self, id: str) -> tuple[str, ...]:
        one = self.one(id)
        return (one, *self.further(one))


NO_ALIASES: Final = Aliases({})
NO_IDS: Final[Mapping[str, Aliases]] = {}


def read_ids(settings: Settings) -> Mapping[str, Aliases]:
    """The people of each tenant that have several ids. Raises DefinitionError for mistakes in the identity file, and
    OSError."""
    if settings.identity in (None, KEYS):
        return NO_IDS
    path = Path(settings.identity)
    reader = Reader(parse(path.read_bytes(), str(path)))
    ids = read_people(reader, reader.fields(FILE, reader.document.value, (), "the identity file"))
    if any(finding.severity == "error" for finding in reader.findings):
        raise DefinitionError(reader.findings)
    return {name: Aliases(one) for name, one in ids.items() if one}


def signs_in_by_keys(settings: Settings) -> bool:
    """Whether keys alone let people sign in: the identity file, if it is one, names no issuers. Raises DefinitionError,
    and OSError."""
    if settings.identity in (None, KEYS):
        return settings.identity == KEYS
    path = Path(settings.identity)
    document = parse(path.read_bytes(), str(path)).value
    return not (isinstance(document, Mapping) and document.get("issuers"))


def read_people(reader: Reader, fields: Mapping[str, Json]) -> Ids:
    """The people of each tenant that `people` in the fields of an identity file names. Those that stand there without
    a tenant are of the one whose people all issuers of the file are, else of `default`."""
    plain: dict[str, Json] = {}
    by_tenant: dict[str, Mapping[str, Json]] = {}
    people: Mapping[str, Json] = fields.get("people", {})  # type: ignore[assignment]
    for name, each in people.items():
        if isinstance(each, Mapping):
            if not tenants.NAME.fullmatch(name):
                message = f"expected a tenant's name, or an id with a list of further ids, found {name!r:.80}"
                reader.error(("people", name), "people.tenant", message, key=True)
            by_tenant[name] = each
        else:
            plain[name] = each
    issuers: Mapping[str, Json] = fields.get("issuers", {})  # type: ignore[assignment]
    named = set(map(_read_tenant, issuers.values()))
    own = (named.pop() if len(named) == 1 else None) or tenants.DEFAULT
    if plain and own in by_tenant:
        message = f"expected the people of {own!r} in one place: under its name"
        reader.error(("people", own), "people.twice", message, key=True)
    return {
        **{name: _people(reader, ("people", name), each) for name, each in by_tenant.items()},
        **({own: _people(reader, ("people",), plain)} if plain and own not in by_tenant else {}),
    }


def _read_tenant(issuer: Json) -> str | None:
    """Whose people an issuer's are; None: its tokens say it."""
    claims = issuer.get("claims") if isinstance(issuer, Mapping) else None
    if not isinstance(issuer, Mapping) or (isinstance(claims, Mapping) and "tenant" in claims):
        return None
    return str(issuer.get("tenant", tenants.DEFAULT))


def _people(reader: Reader, at: tuple[str, ...], given: Mapping[str, Json]) -> Mapping[str, str]:
    one: dict[str, str] = {}
    for id, others in ((compose(id), [compose(each) for each in others]) for id, others in given.items()):
        for each in (id, *others):
            if not keys.is_principal(each):
                reader.error((*at, id), "people.id", f"expected ids like user:ann, found {each!r:.80}", key=True)
        if id == LOCAL_PRINCIPAL.id:
            message = f"expected a name of their own: `{id}` stands for everybody on a server without identity"
            reader.error((*at, id), "people.id", message, key=True)
        for each in others:
            if each in one or each in given:
                message = f"expected {each!r:.80} once: it is an id of {one.get(each, each)!r} too"
                reader.error((*at, id), "people.twice", message, key=True)
            one[each] = id
    return one
