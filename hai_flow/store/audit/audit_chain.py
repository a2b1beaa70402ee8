"""The records of the audit as bytes, and the chain over the records of a tenant. Pure.

A record names an act and its subject, and holds a *commitment* to its details: the digest of the person's id, their
address and their words, together with a salt. The chain goes over records, and details are beside it. So they can be
erased without breaking it, and once the salt is gone nobody can guess them by trying.

A *seal* gives a record its place `n` in the chain of its tenant:

    hash(n) = sha256(SEAL || hash(n - 1) || n || record's bytes)        hash(0) = sha256(CHAIN || tenant)

Every field stands with its length before it, so that no two records have the same bytes, and the names of the three
forms have a version. Numbers are eight bytes, the most significant first; times are microseconds since 1970.

Erasing writes a record, too: its details list the erased ones, each with the digest of the details that stand there
instead. So details that differ from their commitment are either accounted for by a record of the chain, or they were
changed. An *anchor* is a copy of the end of a chain, kept where it can't be changed together with the database: without
one, an attacker that can rewrite the tables can rewrite the whole chain, or cut off its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.primitives import uuids
from hai_flow.store.commit.entries import AuditRow

_RECORD: Final = b"hai.audit.record.v1\x00"
_DETAILS: Final = b"hai.audit.details.v1\x00"
_SEAL: Final = b"hai.audit.seal.v1\x00"
_CHAIN: Final = b"hai.audit.chain.v1\x00"
_ABSENT: Final = b"\xff\xff\xff\xff"

FORGOTTEN: Final = "person.forgotten"
"""The act of erasing."""
ERASED_MAX: Final = 1000
"""How many erased details one record of erasing lists at most."""


class ChainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is stored, `at` in microseconds since 1970. `run_id`, `seq` and `head`: the run that the act was
    done to, how many events it had after that, and its log's own chain up to there. `digest`: of the content that the
    person saw or gave."""

    tenant: UUID
    id: UUID
    at: int
    act: str
    run_id: UUID | None = None
    seq: int | None = None
    head: bytes | None = None
    subject: str | None = None
    digest: bytes | None = None
    commitment: bytes = b""


class Details(msgspec.Struct, frozen=True):
    """The details of a record: `body` is the JSON text of an object. `erased_at`: when they were erased, in
    microseconds since 1970; None: they were not."""

    principal: str
    salt: bytes
    body: bytes
    erased_at: int | None = None


class Seal(msgspec.Struct, frozen=True):
    """The place of the record `id` in its tenant's chain, and the chain's hash there."""

    n: int
    id: UUID
    hash: bytes


class ChainLink(msgspec.Struct, frozen=True):
    """A seal, with its record and the details; None: the row is missing."""

    seal: Seal
    record: ChainRecord | None
    details: Details | None


class Anchor(msgspec.Struct, frozen=True):
    """The end of a tenant's chain at some time; `hash` is in hex."""

    tenant: UUID
    n: int
    hash: str


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with a chain. `n` is its place there, None where it has none."""

    tenant: UUID
    n: int | None
    code: str
    message: str


def new_row(
    act: str, principal: str, body: Mapping[str, Any], *, subject: str | None = None, digest: bytes | None = None
) -> AuditRow:
    """A new record of the act of `principal`, with these details."""
    salt, text = os.urandom(16), values.dumps({name: value for name, value in body.items() if value is not None})
    details = Details(principal, salt, text)
    ms, ns = divmod(time.time_ns(), 1_000_000)
    part = ns * 4096 // 1_000_000  # of the millisecond, so that records of one commit are in their order
    id = uuids.uuid7(ms, part << 64 | int.from_bytes(os.urandom(8)))
    return AuditRow(id, act, subject, digest, commitment(details), principal, salt, text)


def commitment(details: Details) -> bytes:
    """The digest of details, which their record holds."""
    erased_at = None if details.erased_at is None else _number(details.erased_at)
    fields = _fields(details.salt, details.principal.encode(), details.body, erased_at)
    return sha256(_DETAILS + fields).digest()


def genesis(tenant: UUID) -> bytes:
    """The hash before the first record of a tenant."""
    return sha256(_CHAIN + tenant.bytes).digest()


def hash_seal(before: bytes, n: int, record: ChainRecord) -> bytes:
    """The hash of the record as the `n`-th of its chain; `before` is that of the one before it."""
    return sha256(_SEAL + _fields(before, _number(n)) + _encode_record(record)).digest()


def _encode_record(record: ChainRecord) -> bytes:
    return _RECORD + _fields(
        record.tenant.bytes,
        record.id.bytes,
        _number(record.at),
        record.act.encode(),
        None if record.run_id is None else record.run_id.bytes,
        None if record.seq is None else _number(record.seq),
        record.head,
        None if record.subject is None else record.subject.encode(),
        record.digest,
        record.commitment,
    )


def _fields(*fields: bytes | None) -> bytes:
    return b"".join(_ABSENT if field is None else len(field).to_bytes(4, "big") + field for field in fields)


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


# --- as lines of text ---------------------------------------------------------------------------------------------


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link as a line of an export. Digests are in hex, times in microseconds since 1970, `body` is JSON text."""

    tenant: UUID
    n: int
    id: UUID
    hash: str
    record: dict[str, Any] | None
    details: dict[str, Any] | None


def encode_line(tenant: UUID, link: ChainLink) -> bytes:
    """The link as a line of JSON, without its end."""
    record, details = link.record, link.details
    return values.dumps(
        {
            "tenant": str(tenant),
            "n": link.seal.n,
            "id": str(link.seal.id),
            "hash": link.seal.hash.hex(),
            "record": None if record is None else {name: _as_text(getattr(record, name)) for name in _RECORD_FIELDS},
            "details": None
            if details is None
            else {
                "principal": details.principal,
                "salt": details.salt.hex(),
                "body": details.body.decode(errors="replace"),
                "erased_at": details.erased_at,
            },
        }
    )


def read_line(line: bytes | str) -> tuple[UUID, ChainLink]:
    """The tenant and the link of a line. Raises ValueError."""
    try:
        read = msgspec.json.decode(line, type=_Line)
        record = None if read.record is None else _read_record(read.record)
        details = (
            None
            if read.details is None
            else Details(
                read.details["principal"],
                bytes.fromhex(read.details["salt"]),
                read.details["body"].encode(),
                read.details["erased_at"],
            )
        )
        return read.tenant, ChainLink(Seal(read.n, read.id, bytes.fromhex(read.hash)), record, details)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"expected a line of an export of the audit: {error}") from None


def _read_record(shown: Mapping[str, Any]) -> ChainRecord:
    fields: dict[str, Any] = {
        name: None if value is None else _READ.get(name, _same)(value) for name, value in shown.items()
    }
    return ChainRecord(**fields)


_RECORD_FIELDS: Final = ChainRecord.__struct_fields__
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("tenant", "id", "run_id"), UUID),
    **dict.fromkeys(("head", "digest", "commitment"), bytes.fromhex),
}


def _same(value: Any) -> Any:
    return value


def _as_text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value) if isinstance(value, UUID) else value


# --- erased details -----------------------------------------------------------------------------------------------


def read_erased_commitments(erasings: Iterable[tuple[ChainRecord, Details | None]]) -> dict[UUID, bytes]:
    """The details that may differ from their record's commitment, as the records of erasing say: by the record's id the
    commitment to the details that stand there now. `erasings` are all records of this act, the newest first: a later
    one vouches for an earlier one whose own details were erased in part."""
    commitments: dict[UUID, bytes] = {}
    for record, details in erasings:
        if details is None or commitment(details) != commitments.get(record.id, record.commitment):
            continue  # changed itself: it vouches for nothing
        for id, now in _list_commitments(details).items():
            commitments.setdefault(id, now)
    return commitments


def _list_commitments(details: Details) -> dict[UUID, bytes]:
    try:
        listed = msgspec.json.decode(details.body)["erased"]
        return {UUID(id): bytes.fromhex(now) for id, now in listed.items()}
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return {}


# --- verifying ----------------------------------------------------------------------------------------------------


class Verifier:
    """Checks the chain of one tenant, link by link in the order of `n`. Each fault is found where it is: after one, the
    chain is taken up again from the hash that is stored there.

    `erased` as `read_erased_commitments` gives it; `anchors` are those of this tenant."""

    def __init__(self, tenant: UUID, erased: Mapping[UUID, bytes], anchors: Iterable[Anchor] = ()) -> None:
        self.tenant = tenant
        self.n = 0
        self.hash = genesis(tenant)
        self._erased = erased
        self._anchors = sorted((each for each in anchors if each.tenant == tenant), key=lambda each: each.n)
        self._next_anchor = 0
        self._held: ChainLink | None = None  # its hash is wrong, and the next one may be the other half of a swap

    def check(self, link: ChainLink) -> Iterator[Fault]:
        """The faults of the next link, as far as they are known by now."""
        seal, record = link.seal, link.record
        if self._held is not None:
            held, self._held = self._held, None
            if self._is_swapped(held, link):
                yield self._fault(held.seal.n, "reordered", f"the records {held.seal.n} and {seal.n} are swapped")
                yield from self._take_up(held)
                yield from self._take_up(link)
                return
            yield self._describe_change(held)
            yield from self._take_up(held)
        if seal.n != self.n + 1:
            gone = f"{self.n + 1}" if seal.n == self.n + 2 else f"{self.n + 1} to {seal.n - 1}"
            yield self._fault(self.n + 1, "removed", f"of {gone} the seal is gone; the next one is {seal.n}")
            yield from self._take_up(link)  # whether its hash is right can't be known
            return
        if record is None:
            yield self._fault(seal.n, "removed", f"the record {seal.n} ({seal.id}) is gone; its seal is there")
        elif hash_seal(self.hash, seal.n, record) != seal.hash:
            self._held = link
            return
        yield from self._take_up(link)

    def finish(self) -> Iterator[Fault]:
        """The faults that show when there is no further link."""
        if self._held is not None:
            held, self._held = self._held, None
            yield self._describe_change(held)
            yield from self._take_up(held)
        for anchor in self._anchors[self._next_anchor :]:
            cut = f"an anchor knows {anchor.n} records, and the chain ends with {self.n}: its end was cut off"
            yield self._fault(self.n, "cut_off", cut)

    def _is_swapped(self, held: ChainLink, link: ChainLink) -> bool:
        first, second = held.record, link.record
        if first is None or second is None or link.seal.n != held.seal.n + 1:
            return False
        here = hash_seal(self.hash, held.seal.n, second)
        return here == held.seal.hash and hash_seal(here, link.seal.n, first) == link.seal.hash

    def _take_up(self, link: ChainLink) -> Iterator[Fault]:
        """Go on behind a link whose hash is dealt with: its details, and the anchors up to here."""
        self.n, self.hash = link.seal.n, link.seal.hash
        if link.record is not None:
            yield from self._details(link.seal.n, link.record, link.details)
        while self._next_anchor < len(self._anchors) and self._anchors[self._next_anchor].n <= self.n:
            anchor = self._anchors[self._next_anchor]
            self._next_anchor += 1
            if anchor.n == self.n and anchor.hash != self.hash.hex():
                was = f"the chain has another hash at {anchor.n} than its anchor: it was rewritten up to there"
                yield self._fault(anchor.n, "rewritten", was)

    def _details(self, n: int, record: ChainRecord, details: Details | None) -> Iterator[Fault]:
        if details is None:
            yield self._fault(n, "details_removed", f"the details of the record {n} ({record.id}) are gone")
            return
        expected = self._erased.get(record.id, record.commitment)
        if commitment(details) != expected or (details.erased_at is not None) != (record.id in self._erased):
            what = "were changed" if details.erased_at is None else "are erased, and no record of erasing says so"
            yield self._fault(n, "details_changed", f"the details of the record {n} ({record.id}) {what}")

    def _describe_change(self, link: ChainLink) -> Fault:
        n = link.seal.n
        return self._fault(n, "changed", f"the record {n} ({link.seal.id}), or its seal, was changed")

    def _fault(self, n: int | None, code: str, message: str) -> Fault:
        return Fault(self.tenant, n, code, message)
