"""Threads that have ended as files: gzip JSON Lines, in a directory or any store that fsspec knows. The first line
gives the kind and the columns, then each row as PostgreSQL writes it as JSON, and the last line counts and digests all
before it: a file proves that it is whole. It is written beside its place, read again, and only then put there. A file
with a column that this database does not know is refused."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from hai_flow.cells import cell_of
from hai_flow.errors import HaiFlowError
from hai_flow.runtime.files.blobs import open_file_system
from hai_flow.runtime.ops.verify import Plans, fold_and_check
from hai_flow.store.identity import erasure
from hai_flow.store.ops import retention
from hai_flow.store.ops.retention import Archived, Member
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.runs import run_bundle

FORMAT: Final = 1
_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = 500


class Damaged(HaiFlowError):
    """An archive that can't be restored. Its text says where it is wrong, and nothing of it was stored."""


class Archive:
    """The place where archives are."""

    def __init__(self, url: str) -> None:
        """`url`: a directory, or a URL that fsspec knows. Raises SettingsError where that can't be used."""
        self._system, self._root = open_file_system(url, f"archive {url}")

    def places(self) -> list[str]:
        """All archives, in the order of their names."""
        paths = self._system.find(self._root) if self._system.exists(self._root) else []
        return sorted(each[len(self._root) + 1 :] for each in paths if each.endswith(".jsonl.gz"))

    def put(self, file: Path, place: str) -> None:
        """Put a file there, whole or not at all."""
        path = f"{self._root}/{place}"
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._system.put_file(str(file), f"{path}.part")
        self._system.mv(f"{path}.part", path)

    def get(self, place: str, file: Path) -> None:
        """Fetch a file. Raises Damaged where there is none."""
        try:
            self._system.get_file(f"{self._root}/{place}", str(file))
        except FileNotFoundError:
            raise Damaged(f"{place}: there is no such archive.") from None

    def cell(self, place: str) -> int | None:
        """The cell in the ids of the archive's runs. None: the file does not begin as an archive does (`restore` raises
        Damaged for it). Raises Damaged where the file is missing."""
        try:
            with self._system.open(f"{self._root}/{place}", "rb") as file, gzip.open(file, "rb") as lines:
                return cell_of(UUID(next(iter(json.loads(lines.readline())["runs"]))))
        except FileNotFoundError:
            raise Damaged(f"{place}: there is no such archive.") from None
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, StopIteration):
            return None


# --- writing ----------------------------------------------------------------------------------------------------------


def place_of(unit: Sequence[Member]) -> str:
    """Where the archive of these runs, as they are now, stands: by tenant and month of their end."""
    ended = max(each.ended_at for each in unit if each.ended_at is not None)
    heads = hashlib.sha256(b"".join(each.head + each.opinions for each in unit)).hexdigest()
    return f"{unit[0].tenant}/{ended:%Y-%m}/{unit[0].id}-{heads[:16]}.jsonl.gz"


async def write(connection: Connection, archive: Archive, unit: Sequence[Member]) -> Archived | None:
    """Write the unit into the archive, read it again, and note it. Nothing is removed. None, and nothing is written:
    one of its runs went on since the unit was read."""
    place = place_of(unit)
    with tempfile.TemporaryDirectory(prefix="hai-flow-archive-") as directory:
        file, back = Path(directory) / "out", Path(directory) / "back"
        async with run_bundle.snapshot(connection):
            if await retention.members(connection, [each.id for each in unit]) != list(unit):
                return None
            digest = await _write(connection, file, unit)
        await asyncio.to_thread(archive.put, file, place)
        await asyncio.to_thread(archive.get, place, back)
        for _ in _lines(back, place):  # the stored file is the one that was written
            pass
        if _digest_of(back) != digest:
            raise Damaged(f"{place}: what was stored is not what was written.")
    archived = Archived(place, digest)
    await retention.record_archive(connection, unit, archived)
    return archived


async def _write(connection: Connection, file: Path, unit: Sequence[Member]) -> bytes:
    ids = [each.id for each in unit]
    names = await retention.columns(connection)
    head = {
        "hai_flow_archive": FORMAT,
        "tenant": str(unit[0].tenant),
        "thread": unit[0].thread_id,
        "runs": {str(each.id): each.seq for each in unit},
        "columns": names,
    }
    with file.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as out:
        writer = _ArchiveWriter(out)
        writer.line(json.dumps(head))
        for table in retention.ARCHIVED:
            async for row in retention.read_rows(connection, table, ids):
                writer.line(f'{{"table":"{table}","row":{row}}}')
        return writer.end()


class _ArchiveWriter:
    def __init__(self, out: Any) -> None:
        self._out = out
        self._sha = hashlib.sha256()
        self._count = 0

    def line(self, text: str) -> None:
        data = text.encode() + b"\n"
        self._sha.update(data)
        self._count += 1
        self._out.write(data)

    def end(self) -> bytes:
        """The last line; returns the digest of all before it."""
        digest = self._sha.digest()
        self._out.write(json.dumps({"lines": self._count, "sha256": digest.hex()}).encode() + b"\n")
        return digest


# --- reading ----------------------------------------------------------------------------------------------------------


class _ArchiveLine(NamedTuple):
    number: int
    value: Any
    text: str


def _lines(file: Path, place: str) -> Iterator[_ArchiveLine]:
    """All lines but the last one, whose count and digest they are checked against. Raises Damaged, at the end at the
    latest."""
    sha, held, number = hashlib.sha256(), b"", 0
    try:
        with gzip.open(file, "rb") as lines:
            for line in lines:
                if held:
                    number += 1
                    sha.update(held)
                    yield _ArchiveLine(number, _decode_line(held, place, number), held.decode(errors="replace"))
                held = line
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(f"{place}, behind line {number}: it is cut off or damaged: {error}.") from None
    end = _decode_line(held, place, number + 1) if held else None
    if not isinstance(end, dict) or end != {"lines": number, "sha256": sha.hexdigest()}:
        raise Damaged(
            f"{place}, line {number + 1}: expected the digest of the {number} lines before, found another end."
        )


def _decode_line(line: bytes, place: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise Damaged(f"{place}, line {number}: expected JSON: {error}.") from None


def _digest_of(file: Path) -> bytes:
    with gzip.open(file, "rb") as lines:
        last = b""
        for line in lines:
            last = line
    return bytes.fromhex(json.loads(last)["sha256"])


class Restored(NamedTuple):
    """The runs that are back, and how many events they have."""

    runs: int
    events: int


async def restore(connection: Connection, archive: Archive, place: str, by: str, *, store: bool = True) -> Restored:
    """Bring the runs of one archive back, whole, or raise Damaged and change nothing. They have the status that they
    had: a failed one may be retried. Without `store` it is only tried."""
    with tempfile.TemporaryDirectory(prefix="hai-flow-archive-") as directory:
        file = Path(directory) / "in"
        await asyncio.to_thread(archive.get, place, file)
        ids, columns = await _judge(connection, file, place)
        transaction = connection.transaction()
        await transaction.start()
        try:
            await _store(connection, file, place, columns)
            await erasure.forget_again(connection, ids)
            unit = await _check(connection, ids, place)
            await retention.record_restored(connection, unit, place, by)
        except BaseException:
            await transaction.rollback()
            raise
        if store:
            await transaction.commit()
        else:
            await transaction.rollback()
    return Restored(len(unit), sum(each.seq for each in unit))


async def _judge(connection: Connection, file: Path, place: str) -> tuple[list[UUID], dict[str, list[str]]]:
    """The runs of the file, and the columns of its tables, after all of it was read once."""
    lines = _lines(file, place)
    head = next(lines, None)
    if head is None or not isinstance(head.value, dict) or head.value.get("hai_flow_archive") != FORMAT:
        raise Damaged(f"{place}, line 1: expected an archive of form {FORMAT}, found something else.")
    try:
        ids = [UUID(each) for each in head.value["runs"]]
        columns: dict[str, list[str]] = head.value["columns"]
    except (KeyError, ValueError, TypeError, AttributeError):
        raise Damaged(f"{place}, line 1: expected the runs and columns of the archive.") from None
    here = await retention.columns(connection)
    for table, names in columns.items():
        if strange := sorted(set(names) - set(here.get(table, ()))):
            raise Damaged(
                f"{place}, line 1: {table} has {', '.join(strange)}, which this database does not have: a newer "
                "release wrote it, so restore it with that one."
            )
    documents, used = {}, set[Any]()
    for line in lines:
        value = line.value
        rows = isinstance(value, dict) and value.get("table") in columns and isinstance(value.get("row"), dict)
        if not rows or set(value["row"]) != set(columns[value["table"]]):
            raise Damaged(f"{place}, line {line.number}: expected a row of {', '.join(columns)} with all its columns.")
        table, row = value["table"], value["row"]
        if table == "workflows":
            documents[row["tenant"], row["sha256"]] = line.number
            continue
        of_run = row["id" if table == "runs" else "run_id"]
        if of_run not in head.value["runs"]:
            raise Damaged(f"{place}, line {line.number}: expected a row of a run that line 1 names, found {of_run}.")
        if table == "runs":
            used.add((row["tenant"], row["workflow"]))
    if strange := sorted(number for key, number in documents.items() if key not in used):
        raise Damaged(f"{place}, line {strange[0]}: expected a workflow of these runs, found another one.")
    if existing := await retention.filter_existing_runs(connection, ids):
        raise Damaged(f"{place}: the run {existing[0]} is there already; nothing was restored.")
    if rest := await retention.filter_uncleared(connection, ids):
        raise Damaged(f"{place}: the run {rest[0]} is being removed; let prune end first.")
    return ids, columns


async def _store(connection: Connection, file: Path, place: str, known: dict[str, list[str]]) -> None:
    table, rows, size, first = "", list[str](), 0, 0
    for line in _lines(file, place):
        if line.number == 1:
            continue
        name = line.value["table"]
        if rows and (name != table or size > _BATCH_BYTES or len(rows) >= _BATCH_ROWS):
            await _store_rows(connection, table, known[table], rows, f"{place}, lines {first} to {line.number - 1}")
            rows, size = [], 0
        if not rows:
            first = line.number
        text = line.text.rstrip("\n")
        rows.append(text[text.index('"row":') + 6 : -1])  # as PostgreSQL wrote it: not read and written again
        table, size = name, size + len(text)
    if rows:
        await _store_rows(connection, table, known[table], rows, f"{place}, from line {first} on")


async def _store_rows(connection: Connection, table: str, names: list[str], rows: list[str], where: str) -> None:
    try:
        async with connection.transaction():
            await retention.write_rows(connection, table, names, rows)
    except asyncpg.PostgresError as error:
        if error.sqlstate[:2] not in ("21", "22", "23", "54"):  # of the data; else the database's own trouble
            raise
        raise Damaged(f"{where}: the database refuses what stands there: {error}.") from None


async def _check(connection: Connection, ids: list[UUID], place: str) -> list[Member]:
    """Check the logs of the runs that were brought back, as `verify` does. Raises Damaged for the first fault."""
    unit, plans = await retention.members(connection, ids), Plans(connection)
    if len(unit) != len(ids):
        raise Damaged(f"{place}: expected {len(ids)} runs, found {len(unit)}.")
    if (fault := await _fault(connection, ids, plans)) is not None:
        raise Damaged(f"{place}: {fault}.")
    return unit


async def _fault(connection: Connection, ids: list[UUID], plans: Plans) -> str | None:
    for evidence in await run_bundle.evidence_of(connection, ids):
        violations = (await fold_and_check(connection, evidence, plans)).end()
        if violations:
            first = violations[0]
            return f"run {first.run_id}, event {first.seq}: {first.rule}: {first.message}"
    return None


async def refusal(connection: Connection, unit: Sequence[Member]) -> str | None:
    """Why `restore` would not take these runs back, by its own rules; None: it would. An archive has their rows byte
    for byte, so what is wrong with them is found here, while they are still there."""
    async with run_bundle.snapshot(connection):
        return await _fault(connection, [each.id for each in unit], Plans(connection))
