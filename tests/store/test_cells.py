"""The file of cells: what it says, and what it must not say."""

from __future__ import annotations

import pytest

from hai_flow.settings import Settings
from hai_flow.store.cells.cells import parse_addresses, read_cells, within

HOME = "postgresql://flow:secret@db/flow"
SETTINGS = Settings(database_url=HOME)
HEAD = b"hai: cells/v1\ncells:\n"


def faults_of(body: bytes, settings: Settings = SETTINGS, found: dict[str, str] | None = None) -> list[str]:
    file, findings = read_cells(HEAD + body, "cells.yaml")
    return [finding.message for finding in findings] or parse_addresses(file, settings, found or {})[1]


def test_a_cell_is_a_schema_of_home_or_has_a_place_of_its_own() -> None:
    body = (
        b"  north: {number: 1, schema: cell_1}\n"
        b"  south: {number: 2, url_from: SOUTH}\n"
        b'  large: {number: 3, url: "postgresql://db3/flow?sslmode=require", schema: cell_3}\n'
    )
    file, findings = read_cells(HEAD + body, "cells.yaml")
    assert findings == []
    cells, faults = parse_addresses(file, SETTINGS, {"SOUTH": "postgresql://db2/flow"})
    assert faults == []
    assert [(cell.number, cell.name, cell.dsn) for cell in cells] == [
        (1, "north", f"{HOME}?options=-csearch_path%3Dcell_1"),
        (2, "south", "postgresql://db2/flow"),
        (3, "large", "postgresql://db3/flow?sslmode=require&options=-csearch_path%3Dcell_3"),
    ]
    assert "secret" not in "".join(cell.shown for cell in cells)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"  home: {number: 1, schema: s}\n", "not `home`"),
        (b"  a: {number: 0, schema: s}\n", "from 1 to 1023"),
        (b"  a: {number: 1024, schema: s}\n", "from 1 to 1023"),
        (b"  a: {number: 1, schema: s}\n  b: {number: 1, schema: t}\n", "ids of runs could not say which"),
        (b"  a: {number: 1, schema: s}\n  b: {number: 2, schema: s}\n", "are at one place"),
        (b"  a: {number: 1}\n", "expected `schema`, `url` or `url_from`"),
        (b"  a: {number: 1, schema: 'x; drop'}\n", "expected a schema"),
        (b"  a: {number: 1, url_from: NOWHERE}\n", "NOWHERE is not set"),
        (b"  a: {number: 1, url: 'mysql://x'}\n", "expected postgresql://"),
        (b"  a: {number: 1, schema: s, surprise: 1}\n", "unknown field"),
        (b"  a: {number: 1, url: 'postgresql://flow:secret@db/flow'}\n", "are at one place"),
    ],
)
def test_what_is_wrong_is_a_sentence(body: bytes, said: str) -> None:
    (fault,) = faults_of(body)
    assert said in fault
    assert "secret" not in fault


def test_a_pooler_does_not_pass_a_schema_on() -> None:
    pooled = Settings(database_url=HOME, database_pooled=True)
    (fault,) = faults_of(b"  a: {number: 1, schema: s}\n", pooled)
    assert "search_path" in fault


def test_the_embedded_postgresql_has_no_cells() -> None:
    (fault,) = faults_of(b"  a: {number: 1, schema: s}\n", Settings())
    assert "embedded" in fault


def test_a_place_without_a_schema_is_the_url() -> None:
    assert within(HOME, None) == HOME
