"""The report of `hai-flow doctor` on a deployment: for each thing that was looked at the finding, and a remedy. Pure.

`bad` may lose data, show it to others or let the wrong people in; `doubtful` works, but not as it should in production.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from hai_flow.primitives.hosts import is_loopback
from hai_flow.settings import Settings, variable
from hai_flow.store.ops.health import AUDIT_TRIGGERS, Facts
from hai_flow.store.ops.replicas import Standby

Verdict: TypeAlias = Literal["good", "doubtful", "bad"]

OLDEST: Final = 150000
CLOCK_MS_MAX: Final = 2000.0
UNSEALED_SECONDS_MAX: Final = 60.0
BESIDE_CONNECTIONS: Final = 512 + 32  # descriptors for everything but connections, as `serve` keeps them


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at. `remedy` is empty where there is nothing to do."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


class DoctorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that are judged beside the database's own: `embedded` says that the database is one of our own;
    `schema` is its revision, `newest` that of this release, `known` whether this release knows it; `descriptors` how
    many files a process may open. `hints`: in how many seconds Redis answers, or why it does not; None: hints do not go
    by it. `pooler` and `direct_pooler`: whether a pooler was found at the address of the database, and at the direct
    one. `replica`: the findings at the address of the replica, or why it can't be reached; None: there is none."""

    embedded: bool
    schema: str | None
    newest: str
    known: bool
    descriptors: int
    hints: float | str | None = None
    pooler: bool = False
    direct_pooler: bool = False
    replica: Standby | str | None = None


def examine(settings: Settings, facts: Facts, place: DoctorFacts) -> list[Check]:
    """All findings, in the order of the report."""
    return [
        *_check_durability(facts, place),
        *_versions(facts, place),
        *_role(facts, place),
        _clock(facts),
        *_hints(settings, place),
        *_people(settings, facts),
        *_check_way_in(settings),
        *_check_pooler(settings, place),
        *_replica(settings, place),
        *_check_audit(facts, place),
        *_files(settings, place),
        *_limits(settings, facts),
    ]


def check_cell(settings: Settings, facts: Facts, place: DoctorFacts) -> list[Check]:
    """The findings of a cell beside home: those of its database. `settings`: of a process over it."""
    return [
        *_check_durability(facts, place),
        *_versions(facts, place),
        *_role(facts, place),
        _clock(facts),
        *_check_pooler(settings, place),
        *_check_audit(facts, place),
        *_limits(settings, facts),
    ]


def away(fault: str) -> Check:
    """The finding for a cell that can't be reached."""
    remedy = "until it answers, what lives there answers 503; the other cells go on"
    return Check("database", "bad", fault, remedy)


def _check_durability(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    why = {
        "fsync": "a power cut can destroy the whole database",
        "synchronous_commit": "what was answered as done can be lost",
        "full_page_writes": "a power cut can leave torn pages",
    }
    for name, harm in why.items():
        value = facts.settings.get(name, "?")
        if value == "off":
            remedy = f"set {name} = on in the server's configuration: {harm}"
            yield Check(f"database.{name}", "bad", f"{name} is off", remedy)
        elif name == "synchronous_commit" and value == "local":
            remedy = "a standby that takes over may lack the last commits; set it to on if there is one"
            yield Check(f"database.{name}", "doubtful", "synchronous_commit is local", remedy)
        else:
            yield Check(f"database.{name}", "good", f"{name} is {value}")


def _versions(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    version = f"PostgreSQL {facts.settings.get('server_version', facts.version)}"
    if facts.version < OLDEST:
        yield Check("database.version", "bad", version, "upgrade it: HAI Flow needs PostgreSQL 15 or newer")
    else:
        yield Check("database.version", "good", version)
    if place.schema == place.newest:
        yield Check("schema", "good", f"revision {place.schema}, that of this release")
    elif place.schema is None:
        yield Check("schema", "bad", "the database is empty", "run hai-flow migrate")
    elif place.known:
        yield Check("schema", "bad", f"revision {place.schema}, older than {place.newest}", "run hai-flow migrate")
    else:
        remedy = "a newer release migrated it; this one works beside it, but replace it"
        yield Check("schema", "doubtful", f"revision {place.schema}, which this release does not know", remedy)


def _role(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    powers = [name for name, has in (("SUPERUSER", facts.superuser), ("BYPASSRLS", facts.bypasses)) if has]
    if not powers:
        yield Check("database.role", "good", f"{facts.role} is neither superuser nor above row security")
    else:
        finding = f"{facts.role} has {' and '.join(powers)}"
        remedy = "connect as a role without it: it can switch off every guard of the database"
        if place.embedded:
            yield Check(
                "database.role", "doubtful", f"{finding} (embedded)", "for production take a server of your own"
            )
        else:
            yield Check("database.role", "bad", finding, remedy)
    if place.schema is None:
        return  # there is nothing yet that a role could own or a wall could part
    if facts.no_role is not None:
        yield Check("database.works_as", "doubtful", f"processes work as {facts.works_as}", facts.no_role.rstrip("."))
    else:
        yield Check("database.works_as", "good", f"processes work as {facts.works_as}, which owns no table")
    if facts.no_wall is not None:
        finding = "requests read without a second wall between tenants"
        yield Check("database.row_security", "doubtful", finding, facts.no_wall.rstrip("."))
    else:
        yield Check("database.row_security", "good", "requests read behind it")


def _clock(facts: Facts) -> Check:
    finding = f"this machine is {facts.ahead_ms:+.0f} ms from the database (give or take {facts.within_ms:.0f})"
    if abs(facts.ahead_ms) - facts.within_ms > CLOCK_MS_MAX:
        return Check("clock", "doubtful", finding, "synchronise both clocks: keys and tokens end by this machine's")
    return Check("clock", "good", finding)


def _hints(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    if settings.hints is None or place.hints is None:
        return
    if isinstance(place.hints, str):
        remedy = f"see {variable('hints')}, or unset it; until then commits of other processes are found by polls alone"
        yield Check("hints", "doubtful", place.hints, remedy)
    else:
        yield Check("hints", "good", f"Redis answers within {place.hints * 1000:.0f} ms")
    parts = urlsplit(settings.hints)
    if parts.scheme == "redis" and parts.password and not is_loopback(parts.hostname or ""):
        remedy = "give it an address with rediss://: its password is read on the way (hints themselves are sealed)"
        yield Check("hints.tls", "doubtful", f"Redis on {parts.hostname} is asked without TLS", remedy)


def _people(settings: Settings, facts: Facts) -> Iterator[Check]:
    if settings.identity is None:
        verdict: Verdict = "doubtful" if is_loopback(settings.host) and not settings.allow_remote else "bad"
        remedy = f"set {variable('identity')}; until then everybody who reaches the port is user:local"
        yield Check("identity", verdict, "nobody is asked who they are", remedy)
        return
    yield Check("identity", "good", f"{variable('identity')} is {settings.identity}")
    if settings.identity == "keys":
        if facts.keys:
            yield Check("identity.keys", "good", f"{facts.keys} that are not revoked")
        else:
            yield Check("identity.keys", "bad", "there is none: nobody can call", "hai-flow keys create PRINCIPAL")


def _check_way_in(settings: Settings) -> Iterator[Check]:
    if is_loopback(settings.host):
        yield Check("hosts", "good", f"listens on {settings.host}, for this machine alone")
    else:
        yield Check("hosts", "good", f"listens on {settings.host} as {', '.join(settings.allowed_hosts)}")
    plain = [origin for origin in settings.allowed_origins if origin.startswith("http://")]
    if plain:
        remedy = f"take them out of {variable('allowed_origins')}: who is on the way can change such a page"
        yield Check("origins", "doubtful", f"pages without TLS may call: {', '.join(plain)}", remedy)
    if settings.public_url is not None and settings.public_url.startswith("http://"):
        remedy = "give it an address with https: what services call back with is read on the way"
        yield Check("public_url", "doubtful", f"{settings.public_url} has no TLS", remedy)


def _check_pooler(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    if place.pooler and not settings.database_pooled:
        remedy = f"set {variable('database_pooled')}=1 and {variable('database_direct_url')} (docs/pooler.md)"
        yield Check("pooler", "bad", "a pooler answers, whose sessions are nobody's own", remedy)
    elif settings.database_pooled and settings.database_direct_url is None:
        remedy = f"set {variable('database_direct_url')}: LISTEN does not get through a pooler"
        finding = f"behind a pooler, so news is found every {settings.poll_seconds:g} s"
        if settings.hints is not None:
            remedy = f"set {variable('database_direct_url')}: migrate, prune and their like need a session of their own"
            finding = "behind a pooler, without a direct way to the server"
        yield Check("pooler", "doubtful", finding, remedy)
    elif settings.database_pooled and not place.pooler:
        remedy = f"unset {variable('database_pooled')}: nothing is prepared for its sake"
        yield Check("pooler", "doubtful", "no pooler was found where there is said to be one", remedy)
    elif place.pooler:
        yield Check("pooler", "good", "one stands before the database, and a direct way leads past it")
    if place.direct_pooler:
        remedy = f"let {variable('database_direct_url')} lead to the server: LISTEN hears nothing through a pooler"
        yield Check("pooler.direct", "bad", "the direct way leads through a pooler, too", remedy)


def _replica(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    replica, url = place.replica, variable("database_replica_url")
    if replica is None:
        return
    if isinstance(replica, str):
        yield Check("replica", "doubtful", replica, f"see {url}, or unset it; until then the database answers for it")
    elif not replica.same:
        remedy = f"let {url} lead to a streaming replica of {variable('database_url')}"
        yield Check("replica", "bad", "what answers there is another server, or another database of it", remedy)
    elif not replica.follows:
        remedy = f"let {url} lead to a standby: this one answers for itself, and costs the database what it should save"
        yield Check("replica", "doubtful", "it is no standby, or one that took over", remedy)
    elif replica.seconds is None:
        remedy = "see whether it is connected (pg_stat_replication) and whether its replay is paused"
        yield Check("replica", "doubtful", "it did not get what the database has while it was waited for", remedy)
    else:
        yield Check(
            "replica", "good", f"a standby of this database, which had all of it within {replica.seconds:.2f} s"
        )


def _check_audit(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    if place.schema is None:
        return  # there are no records yet: nobody has taken away what keeps them
    missing = sorted(AUDIT_TRIGGERS - facts.audit_triggers)
    if missing:
        remedy = "somebody took away or disabled what keeps records: find out who, verify, and enable them again"
        yield Check("audit.triggers", "bad", f"not there, or disabled: {', '.join(missing)}", remedy)
    else:
        yield Check("audit.triggers", "good", "records and seals can't be changed or deleted")
    if facts.may_change_audit:
        remedy = "REVOKE UPDATE, DELETE, TRUNCATE ON audit, audit_seals from it; let another role own the tables"
        yield Check("audit.grants", "doubtful", f"only triggers keep {facts.works_as} from changing the audit", remedy)
    else:
        yield Check("audit.grants", "good", f"{facts.works_as} may insert records, and nothing else")
    if facts.unsealed_seconds > UNSEALED_SECONDS_MAX:
        remedy = "start a worker: workers seal, and what is not sealed can still be changed unnoticed"
        yield Check("audit.seals", "bad", f"a record has waited {facts.unsealed_seconds:.0f} s for its seal", remedy)
    else:
        yield Check("audit.seals", "good", "no record waits for long")


def _files(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    needed = settings.connections_max + BESIDE_CONNECTIONS
    if place.descriptors < needed:
        remedy = f"ulimit -Hn {needed} (LimitNOFILE=), or lower {variable('connections_max')}"
        yield Check("limits.files", "doubtful", f"a process may open {place.descriptors} files", remedy)
    else:
        yield Check("limits.files", "good", f"a process may open {place.descriptors} files")


def _limits(settings: Settings, facts: Facts) -> Iterator[Check]:
    most, each = int(facts.settings.get("max_connections", "0")), settings.lanes + 4 + 4 + 1
    finding = f"the database takes {most} connections, a process of ours up to {each + settings.tool_connections}"
    if most < 2 * (each + settings.tool_connections):
        yield Check("limits.connections", "doubtful", finding, "raise max_connections, or put a pooler in between")
    else:
        yield Check("limits.connections", "good", finding)
    if facts.workers:
        yield Check("workers", "good", f"{facts.workers} give signs of life")
    else:
        yield Check("workers", "doubtful", "no worker gives signs of life", "start one: hai-flow worker")
    if facts.workers and facts.unserved:
        finding = f"runs wait in queues that no worker serves: {', '.join(facts.unserved)}"
        remedy = f"start one that does: hai-flow worker --queue {facts.unserved[0]}"
        yield Check("workers.queues", "doubtful", finding, remedy)
