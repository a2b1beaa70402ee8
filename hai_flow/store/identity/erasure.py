"""Forgetting a person: wherever their id and words stand outside the chains, a pseudonym stands instead.

The log of a run stays as it is (docs/decisions, "Forgetting leaves the logs of runs"): its commits are chained, and
people's votes refer to its bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import ERASED_MAX, FORGOTTEN, Details, commitment, new_row
from hai_flow.store.identity import credential_checks, sessions
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import read_clock

# Of the details of the person's acts these stay: none of them says who it was, or is in their own words.
_KEPT: Final = frozenset(
    {"way", "via", "decision", "outcome", "answer", "edited_digest", "code", "times", "of", "to", "version", "ms"}
    | {"erased", "pseudonym", "limit", "chain_after"}
)


class Forgotten(NamedTuple):
    """The result: `records` of the audit, `opinions` (feedback), `keys`, and names of uploaded `files` were erased; the
    logs of `runs` still name the person."""

    pseudonym: str
    records: int
    opinions: int
    keys: int
    files: int
    runs: int


async def forget(connection: Connection, tenant: UUID, principal: str, *, by: str) -> Forgotten:
    """Replace the principal by a pseudonym that nothing leads back from. `by` asks for it. May be repeated: rows that
    came since then get another pseudonym. If it is cut off in the middle, a part is erased, together with the records
    of that."""
    pseudonym = f"person:{os.urandom(8).hex()}"
    records = 0
    while erased := await _erase_records(connection, tenant, principal, pseudonym, by):
        records += erased
    async with connection.transaction():
        await credential_checks.forget_person(connection, tenant, principal)
        opinions, keys, files = [
            await connection.fetchval(query, tenant, principal, pseudonym) for query in (_OPINIONS, _KEYS, _FILES)
        ]
        for query in _OF_INBOXES:
            await connection.execute(query, tenant, principal)
        await connection.execute(_TOLD, tenant, principal, pseudonym)
        await connection.execute(_OF_RULES, tenant, principal, pseudonym)
        await connection.execute(_ERASED_PEOPLE, tenant, os.urandom(16), principal)
        runs = await connection.fetchval(_RUNS, tenant, principal)
        if records == 0 and (opinions or keys or files):
            body = {"pseudonym": pseudonym, "erased": {}}
            await audit.write(connection, tenant, [new_row(FORGOTTEN, by, body)])
    return Forgotten(pseudonym, records, opinions, keys, files, runs)


_MATCHING: Final = f"""
SELECT id, principal, body FROM audit_details
WHERE tenant = $1 AND (principal = $2 OR position($3::bytea IN body) > 0)
ORDER BY id LIMIT {ERASED_MAX} FOR UPDATE
"""
_ERASE: Final = """
UPDATE audit_details d SET principal = e.principal, salt = e.salt, body = e.body,
  erased_at = to_timestamp(0) + e.erased_at * interval '1 microsecond'
FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::bytea[], $6::bigint[]) AS e(id, principal, salt, body, erased_at)
WHERE d.tenant = $1 AND d.id = e.id
"""
_OPINIONS: Final = """
WITH changed AS (
  UPDATE feedback SET principal = $3, comment = NULL, labels = '{}', rating = coalesce(rating, 'up')
  WHERE tenant = $1 AND principal = $2 AND rating IS NOT NULL RETURNING 1
), removed AS (
  DELETE FROM feedback WHERE tenant = $1 AND principal = $2 AND rating IS NULL RETURNING 1
)
SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM removed)
"""
_KEYS: Final = """
WITH changed AS (
  UPDATE keys SET principal = $3, name = '', revoked_at = coalesce(revoked_at, now())
  WHERE tenant = $1 AND principal = $2 RETURNING 1
)
SELECT count(*) FROM changed
"""
_FILES: Final = """
WITH changed AS (
  UPDATE uploads SET principal = $3, name = '' WHERE tenant = $1 AND principal = $2 RETURNING 1
)
SELECT count(*) FROM changed
"""
# All that lets them act, or others for them, and the links that were sent to them: none of it is left.
_OF_INBOXES: Final = (
    "DELETE FROM queued_messages WHERE tenant = $1 AND principal = $2",
    "DELETE FROM deposits WHERE tenant = $1 AND principal = $2",
    "DELETE FROM pushes WHERE tenant = $1 AND principal = $2",
    "DELETE FROM delegations WHERE tenant = $1 AND $2 IN (from_id, to_id)",
    "DELETE FROM absences WHERE tenant = $1 AND person = $2",
    "UPDATE absences SET delegate = NULL WHERE tenant = $1 AND delegate = $2",
    "UPDATE absences SET entered_by = 'person:forgotten' WHERE tenant = $1 AND entered_by = $2",
    "UPDATE rehearsals SET kept_by = 'person:forgotten' WHERE tenant = $1 AND kept_by = $2",
    "UPDATE canaries SET seeded_by = 'person:forgotten' WHERE tenant = $1 AND seeded_by = $2",
    "UPDATE canaries SET started_by = 'person:forgotten' WHERE tenant = $1 AND started_by = $2",
    "DELETE FROM openings WHERE tenant = $1 AND principal = $2",
    "DELETE FROM links WHERE tenant = $1 AND principal = $2",
    "DELETE FROM chat_accounts WHERE tenant = $1 AND principal = $2",
    "DELETE FROM chat_cards WHERE tenant = $1 AND person = $2",  # without it none of its buttons is good
    f"DELETE FROM tickets WHERE tenant = $1 AND {sessions.PRINCIPAL} #>> '{{who,id}}' = $2",
    f"DELETE FROM sessions WHERE tenant = $1 AND {sessions.PRINCIPAL} #>> '{{who,id}}' = $2",
    "DELETE FROM notifications WHERE tenant = $1 AND person = $2 AND ended_at IS NULL",
    "UPDATE pendings SET claimed_by = NULL, claimed_until = NULL WHERE tenant = $1 AND claimed_by = $2",
)
_OF_RULES: Final = """
UPDATE rules SET ended_at = coalesce(ended_at, now()), ended_why = coalesce(ended_why, 'somebody of it was erased'),
  ended_by = CASE WHEN ended_by = $2 THEN $3 ELSE coalesce(ended_by, 'system') END, voters = NULL,
  proposed_by = CASE WHEN proposed_by = $2 THEN $3 ELSE proposed_by END,
  proposer_ids = array_replace(proposer_ids, $2, $3), excluded_ids = array_replace(excluded_ids, $2, $3),
  people = array_replace(people, $2, $3)
WHERE tenant = $1 AND ($2 = ANY (proposer_ids) OR $2 = ANY (excluded_ids) OR $2 = ANY (people) OR ended_by = $2)
"""
_TOLD: Final = "UPDATE notifications SET person = $3, whom = '' WHERE tenant = $1 AND person = $2"
# For archives and files of channels, which may still name them. The salts of a tenant begin alike and go on with a
# digest of the person, so `proofs.find_key_holders` finds them by index. Salts of older rows have 16 bytes.
_ERASED_PEOPLE: Final = """
WITH begins AS (
  SELECT coalesce((
    SELECT substring(salt FOR 16) FROM erased_people WHERE tenant = $1 AND length(salt) = 32 LIMIT 1
  ), $2) AS salt
), salts AS (
  SELECT salt || substring(sha256(salt || convert_to($3, 'UTF8')) FOR 16) AS salt FROM begins
)
INSERT INTO erased_people (tenant, salt, sha256) SELECT $1, salt, sha256(salt || convert_to($3, 'UTF8')) FROM salts
ON CONFLICT (tenant, salt) DO UPDATE SET at = now()
"""
_RUNS: Final = """
SELECT count(*) FROM (
  SELECT id FROM runs WHERE tenant = $1 AND started_by = $2
  UNION SELECT run_id FROM votes WHERE tenant = $1 AND principal = $2
) named
"""


def _digest(salt: bytes, principal: str) -> bytes:
    return sha256(salt + principal.encode()).digest()


_NAMED: Final = """
SELECT tenant, principal FROM feedback WHERE run_id = ANY($1::uuid[])
UNION SELECT tenant, claimed_by FROM pendings WHERE run_id = ANY($1::uuid[]) AND claimed_by IS NOT NULL
"""
_OPINIONS_AGAIN: Final = """
WITH changed AS (
  UPDATE feedback SET principal = $4, comment = NULL, labels = '{}', rating = coalesce(rating, 'up')
  WHERE tenant = $1 AND principal = $2 AND run_id = ANY($3::uuid[]) AND rating IS NOT NULL AND updated_at < $5
)
DELETE FROM feedback
WHERE tenant = $1 AND principal = $2 AND run_id = ANY($3::uuid[]) AND rating IS NULL AND updated_at < $5
"""
_CLAIMS_AGAIN: Final = """
UPDATE pendings SET claimed_by = NULL, claimed_until = NULL
WHERE tenant = $1 AND claimed_by = $2 AND run_id = ANY($3::uuid[])
"""


async def forget_again(connection: Connection, run_ids: Sequence[UUID]) -> None:
    """Erase from runs that were just restored whom somebody has forgotten since they were archived. The archive itself
    is not written anew."""
    for tenant, principal in await connection.fetch(_NAMED, run_ids):
        query = "SELECT salt, sha256, at FROM erased_people WHERE tenant = $1 ORDER BY at"
        for salt, digest, at in await connection.fetch(query, tenant):
            if _digest(salt, principal) == digest:
                pseudonym = f"person:{os.urandom(8).hex()}"
                await connection.execute(_OPINIONS_AGAIN, tenant, principal, run_ids, pseudonym, at)
                await connection.execute(_CLAIMS_AGAIN, tenant, principal, run_ids)


async def _erase_records(connection: Connection, tenant: UUID, principal: str, pseudonym: str, by: str) -> int:
    """Erase the details of up to `ERASED_MAX` records, and record that, in one transaction. Returns how many."""
    async with connection.transaction():
        rows = await connection.fetch(_MATCHING, tenant, principal, values.dumps(principal))
        if not rows:
            return 0
        at = int((await read_clock(connection)).timestamp() * 1_000_000)
        changed: dict[UUID, Details] = {}
        for id, who, body in rows:
            own = who == principal
            text = _without(body, principal, pseudonym, own=own)
            changed[id] = Details(pseudonym if own else who, os.urandom(16), text, at)
        details = list(changed.values())
        await connection.execute(
            _ERASE,
            tenant,
            list(changed),
            [each.principal for each in details],
            [each.salt for each in details],
            [each.body for each in details],
            [each.erased_at for each in details],
        )
        listed = {str(id): commitment(each).hex() for id, each in changed.items()}
        who = pseudonym if by == principal else by
        await audit.write(connection, tenant, [new_row(FORGOTTEN, who, {"pseudonym": pseudonym, "erased": listed})])
        return len(rows)


def _without(body: bytes, principal: str, pseudonym: str, *, own: bool) -> bytes:
    """Details without the person: of their own acts only the fields of `_KEPT` are left, in those of others their id is
    replaced."""
    try:
        read = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return b"{}"
    if own and isinstance(read, Mapping):
        read = {name: value for name, value in read.items() if name in _KEPT}
    return values.dumps(_replace_principal(read, principal, pseudonym))


def _replace_principal(value: Any, principal: str, pseudonym: str) -> Any:
    if isinstance(value, str):
        return pseudonym if value == principal else value
    if isinstance(value, list):
        return [_replace_principal(each, principal, pseudonym) for each in value]
    if isinstance(value, dict):
        return {
            _replace_principal(name, principal, pseudonym): _replace_principal(each, principal, pseudonym)
            for name, each in value.items()
        }
    return value
