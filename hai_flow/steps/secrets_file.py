"""Reads the file that gives the source and the uses of each secret (`steps/secrets`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.keys import DURATION, LITERAL, Key, Shape, enum, list_of, map_of, shape_of
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.errors import Finding
from hai_flow.steps.secrets import DEFAULT, Source
from hai_flow.values import Json

FILE: Final = Shape("secrets", "The file of secrets", (
    Key("hai", enum("secrets/v1"), "the language", required=True, example="secrets/v1"),
    Key("secrets", map_of(shape_of("secret")), "the secrets, by name", required=True, example="{SHOP: {env: TOKEN}}"),
))  # fmt: skip
SECRET: Final = Shape("secret", "A secret", (
    Key("env", LITERAL, "the variable that holds it", example="SHOP_TOKEN"),
    Key("file", LITERAL, "the file that holds it", example="/run/secrets/shop"),
    Key("command", list_of(LITERAL, 1), "a program that writes it", example="[vault, read, shop]"),
    Key("every", DURATION, "for how long what the program said is kept", example="5m"),
    Key("hosts", list_of(LITERAL), "where it may be sent", example="[api.shop.example]"),
    Key("workflows", list_of(LITERAL), "whose steps may send it", example="[refund]"),
    Key("tenants", list_of(LITERAL), "of which tenants these are: `default` without it, `*` of all", example="[acme]"),
    Key("tools", list_of(LITERAL), "which functions may have it, or modules", example="[acme.shop]"),
))  # fmt: skip


def read_secrets(source: bytes, file: str) -> tuple[dict[str, Source], list[Finding]]:
    reader = Reader(parse(source, file))
    entries = reader.fields(FILE, reader.document.value, (), "the file of secrets").get("secrets", {})
    return {name: _source(reader, name, each) for name, each in entries.items()}, reader.findings


def _source(reader: Reader, name: str, raw: Json) -> Source:
    at = ("secrets", name)
    fields: Mapping[str, Json] = reader.fields(SECRET, raw, at, f"the secret `{name}`")
    ways = [way for way in ("env", "file", "command") if way in fields]
    if len(ways) > 1:
        actual = " and ".join(f"`{way}`" for way in ways)
        reader.error((*at, ways[1]), "secret.source", f"a secret comes from one place, found {actual}", key=True)
    every = 300_000
    if "every" in fields:
        try:
            every = milliseconds(fields["every"])
        except NotADuration as error:
            reader.error((*at, "every"), "duration.invalid", f"`every`: {error}")
    return Source(
        env=fields.get("env"),
        file=Path(fields["file"]) if "file" in fields else None,
        command=tuple(fields.get("command", ())),
        every=every / 1000,
        hosts=tuple(fields["hosts"]) if "hosts" in fields else None,
        workflows=tuple(fields["workflows"]) if "workflows" in fields else None,
        tools=tuple(fields["tools"]) if "tools" in fields else None,
        tenants=tuple(fields["tenants"]) if "tenants" in fields else (DEFAULT,),
    )
