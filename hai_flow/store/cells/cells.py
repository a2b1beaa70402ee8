"""The file of cells (`HAI_FLOW_CELLS`): where each cell is that is not home. Pure.

    hai: cells/v1
    cells:
      north: {number: 1, schema: cell_1}                              # a schema of the database of home
      south: {number: 2, url_from: SOUTH_URL}                         # a database of its own, by a variable
      large: {number: 3, url: "postgresql://flow@db3/flow", schema: cell_3}

A cell's number is in the ids of its runs, so it stays. Its place may change, together with all that it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from hai_flow.cells import CELLS_MAX
from hai_flow.definition.yaml.document import parse
from hai_flow.errors import Finding
from hai_flow.primitives.hosts import place_fault
from hai_flow.settings import Settings, variable

HOME_NAME: Final = "home"
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}", re.ASCII)


class CellEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One cell as it is written. Without `url` and `url_from` it is a schema of home's database."""

    number: int
    schema: str | None = None
    url: str | None = None
    url_from: str | None = None  # the variable that holds the URL, which may hold a password
    direct_url: str | None = None
    pooled: bool = False


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hai: Literal["cells/v1"]
    cells: Mapping[str, CellEntry] = {}


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Where one cell is. `direct`: a way past a pooler. `shown`: its place without user and password."""

    number: int
    name: str
    dsn: str
    direct: str | None
    pooled: bool
    schema: str | None

    @property
    def shown(self) -> str:
        parts = urlsplit(self.dsn)
        place = f"{parts.netloc.rpartition('@')[2] or 'localhost'}{parts.path}"
        return place if self.schema is None else f"{place}, schema {self.schema}"


def read_cells(source: bytes, file: str) -> tuple[File, list[Finding]]:
    document = parse(source, file)
    errors = [finding for finding in document.findings if finding.severity == "error"]
    if errors:
        return File(hai="cells/v1"), errors
    try:
        cells_file = msgspec.convert(document.value, File)
    except msgspec.ValidationError as error:
        return File(hai="cells/v1"), [_finding(file, str(error))]
    return cells_file, [_finding(file, fault) for fault in _faults(cells_file)]


def _finding(file: str, message: str) -> Finding:
    return Finding(file, 0, 0, "error", "cells.invalid", message)


def _faults(file: File) -> Iterator[str]:
    numbers: dict[int, str] = {}
    for name, entry in file.cells.items():
        if name == HOME_NAME or not NAME.fullmatch(name):
            yield f"{name!r}: expected a name of a-z, 0-9, - and _, and not `{HOME_NAME}`, which is {_URL}"
        if not 1 <= entry.number <= CELLS_MAX:
            yield f"{name}: expected a number from 1 to {CELLS_MAX}, found {entry.number}"
        if entry.number in numbers:
            yield f"{name} and {numbers[entry.number]} have the number {entry.number}: ids of runs could not say which"
        numbers[entry.number] = name
        if entry.schema is not None and not SCHEMA.fullmatch(entry.schema):
            yield f"{name}: expected a schema of a-z, 0-9 and _, found {entry.schema!r:.60}"
        if entry.url is not None and entry.url_from is not None:
            yield f"{name}: expected one of `url` and `url_from`"
        if entry.pooled and entry.schema is not None:
            yield f"{name}: {_POOLED}"


_URL: Final = variable("database_url")
_POOLED: Final = (
    "a pooler does not pass the schema on: give the cell a role whose search_path is its schema (ALTER ROLE ... SET "
    "search_path), name that in `url`, and leave `schema` away"
)


def parse_addresses(file: File, settings: Settings, found: Mapping[str, str]) -> tuple[tuple[Cell, ...], list[str]]:
    """The addresses of the cells, by number, and the faults. `found`: the values of the environment variables that the
    file names."""
    cells: list[Cell] = []
    faults: list[str] = []
    for name, entry in file.cells.items():
        own = entry.url if entry.url_from is None else found.get(entry.url_from)
        if entry.url_from is not None and own is None:
            faults.append(f"{name}: the variable {entry.url_from} is not set")
            continue
        if own is None and settings.database_url is None:
            faults.append(f"{name}: expected {_URL} as well; the embedded PostgreSQL has no cells beside home")
            continue
        if own is None and (entry.schema is None or settings.database_pooled):
            faults.append(f"{name}: {_POOLED if entry.schema else 'expected `schema`, `url` or `url_from`'}")
            continue
        if own is not None and (fault := _check_url(own)):
            faults.append(f"{name}: {fault}")
            continue
        dsn = own or settings.database_url
        direct = entry.direct_url if own is not None else settings.database_direct_url
        assert dsn is not None, "one of both is there"
        cells.append(
            Cell(
                number=entry.number,
                name=name,
                dsn=within(dsn, entry.schema),
                direct=None if direct is None else within(direct, entry.schema),
                pooled=entry.pooled,
                schema=entry.schema,
            )
        )
    names_by_dsn: dict[str | None, str] = {settings.database_url: HOME_NAME}
    for cell in cells:
        if cell.dsn in names_by_dsn:
            faults.append(f"{cell.name} and {names_by_dsn[cell.dsn]} are at one place: {cell.shown}")
        names_by_dsn[cell.dsn] = cell.name
    return tuple(sorted(cells, key=lambda cell: cell.number)), faults


def _check_url(url: str) -> str | None:  # it may hold a password: it is not repeated
    if not url.startswith(("postgresql://", "postgres://")):
        return "expected postgresql://user@host/database"
    return place_fault(url)


def within(dsn: str, schema: str | None) -> str:
    """The URL whose sessions find the tables of the schema, and no others. libpq's `options`, so that psql and pg_dump
    take it, too."""
    if schema is None:
        return dsn
    begin = "&" if urlsplit(dsn).query else "?"
    return f"{dsn}{begin}options={quote(f'-csearch_path={schema}', safe='')}"
