"""The report of `hai-flow doctor` on a deployment: for each thing that was looked at the finding, and a remedy. Pure.

`bad` may lose data, show it to others or let the wrong people in; `doubtful` works, but not as it should in production.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from hai_flow.definition.people.calendars import HORIZON
from hai_flow.primitives.hosts import is_loopback
from hai_flow.settings import KEYS, Settings, variable
from hai_flow.store.ops.health import AUDIT_TRIGGERS, MORE_SPACE, Facts
from hai_flow.store.ops.replicas import Standby

Verdict: TypeAlias = Literal["good", "doubtful", "bad"]

OLDEST: Final = 150000
CLOCK_MS_MAX: Final = 2000.0
UNSEALED_SECONDS_MAX: Final = 60.0
WIDEST: Final = 2**16  # addresses of a network that steps may reach
BESIDE_CONNECTIONS: Final = 512 + 32  # descriptors for everything but connections, as `serve` keeps them


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at. `remedy` is empty where there is nothing to do. `case` tells apart findings of one
    name and verdict; `params` are the particulars that the sentences name, for sentences in other languages."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""
    case: str = ""
    params: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """What was found, for programs: `doctor.database.fsync.bad`, `doctor.schema.empty`."""
        return f"doctor.{self.name}.{self.case or self.verdict}"


class DoctorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that are judged beside the database's own: `embedded` says that the database is one of our own;
    `schema` is its revision, `newest` that of this release, `known` whether this release knows it; `descriptors` how
    many files a process may open. `hints`: in how many seconds Redis answers, or why it does not; None: hints do not go
    by it. `pooler` and `direct_pooler`: whether a pooler was found at the address of the database, and at the direct
    one. `replica`: the findings at the address of the replica, or why it can't be reached; None: there is none.
    `holidays`: until which day those of each calendar are known, and in how many days that is. `key_fault`: why the
    file of the keys of receipts can't be used; `exposed`: which files of the settings others than their owner can read
    (keys) or write (the catalogue of MCP servers). `plain_servers`: hosts of that catalogue that are reached without
    TLS; `programs`: its servers that a worker starts."""

    embedded: bool
    schema: str | None
    newest: str
    known: bool
    descriptors: int
    hints: float | str | None = None
    pooler: bool = False
    direct_pooler: bool = False
    replica: Standby | str | None = None
    holidays: dict[str, tuple[str, int]] = {}
    key_fault: str | None = None
    exposed: tuple[str, ...] = ()
    plain_servers: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def examine(settings: Settings, facts: Facts, place: DoctorFacts) -> list[Check]:
    """All findings, in the order of the report."""
    return [
        *_check_durability(facts, place),
        *_versions(facts, place),
        *_role(facts, place),
        _clock(facts),
        *_hints(settings, place),
        *_people(settings, facts),
        *_check_stranded(facts),
        *_check_calendars(place),
        *_check_way_in(settings),
        *_check_assurance(settings, place),
        *_check_state_keys(facts),
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
    return Check("database", "bad", fault, remedy, params=(fault,))


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
            yield Check(f"database.{name}", "bad", f"{name} is off", remedy, params=(name,))
        elif name == "synchronous_commit" and value == "local":
            remedy = "a standby that takes over may lack the last commits; set it to on if there is one"
            yield Check("database.synchronous_commit", "doubtful", "synchronous_commit is local", remedy)
        else:
            yield Check(f"database.{name}", "good", f"{name} is {value}", params=(name, value))
    if facts.no_space is None:
        yield Check("database.space", "good", "the server stores what is written")
    elif facts.no_space:
        remedy = f"{MORE_SPACE}: until then nothing is stored, and requests are refused"
        yield Check("database.space", "bad", facts.no_space, remedy, params=(facts.no_space,))


def _versions(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    version = f"PostgreSQL {facts.settings.get('server_version', facts.version)}"
    if facts.version < OLDEST:
        remedy = "upgrade it: HAI Flow needs PostgreSQL 15 or newer"
        yield Check("database.version", "bad", version, remedy, params=(version,))
    else:
        yield Check("database.version", "good", version, params=(version,))
    migrate, revision = "run hai-flow migrate", str(place.schema)
    if place.schema == place.newest:
        yield Check("schema", "good", f"revision {revision}, that of this release", params=(revision,))
    elif place.schema is None:
        yield Check("schema", "bad", "the database is empty", migrate, case="empty")
    elif place.known:
        finding = f"revision {revision}, older than {place.newest}"
        yield Check("schema", "bad", finding, migrate, case="older", params=(revision, place.newest))
    else:
        remedy = "a newer release migrated it; this one works beside it, but replace it"
        finding = f"revision {revision}, which this release does not know"
        yield Check("schema", "doubtful", finding, remedy, params=(revision,))


def _role(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    powers = [name for name, has in (("SUPERUSER", facts.superuser), ("BYPASSRLS", facts.bypasses)) if has]
    if not powers:
        finding = f"{facts.role} is neither superuser nor above row security"
        yield Check("database.role", "good", finding, params=(facts.role,))
    else:
        finding = f"{facts.role} has {' and '.join(powers)}"
        remedy = "connect as a role without it: it can switch off every guard of the database"
        if place.embedded:
            remedy = "for production take a server of your own"
            yield Check("database.role", "doubtful", f"{finding} (embedded)", remedy, params=(facts.role, *powers))
        else:
            yield Check("database.role", "bad", finding, remedy, params=(facts.role, *powers))
    if place.schema is None:
        return  # there is nothing yet that a role could own or a wall could part
    if facts.no_role is not None:
        finding, remedy = f"processes work as {facts.works_as}", facts.no_role.rstrip(".")
        yield Check("database.works_as", "doubtful", finding, remedy, params=(facts.works_as, remedy))
    else:
        finding = f"processes work as {facts.works_as}, which owns no table"
        yield Check("database.works_as", "good", finding, params=(facts.works_as,))
    if facts.no_wall is not None:
        finding, remedy = "requests read without a second wall between tenants", facts.no_wall.rstrip(".")
        yield Check("database.row_security", "doubtful", finding, remedy, params=(remedy,))
    else:
        yield Check("database.row_security", "good", "requests read behind it")


def _clock(facts: Facts) -> Check:
    params = (f"{round(facts.ahead_ms):+d}", f"{facts.within_ms:.0f}")
    finding = f"this machine is {params[0]} ms from the database (give or take {params[1]})"
    if abs(facts.ahead_ms) - facts.within_ms > CLOCK_MS_MAX:
        remedy = "synchronise both clocks: deadlines, keys, sessions and tokens end by the database's"
        return Check("clock", "doubtful", finding, remedy, params=params)
    return Check("clock", "good", finding, params=params)


def _hints(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    if settings.hints is None or place.hints is None:
        return
    if isinstance(place.hints, str):
        remedy = f"see {variable('hints')}, or unset it; until then commits of other processes are found by polls alone"
        yield Check("hints", "doubtful", place.hints, remedy, params=(place.hints, variable("hints")))
    else:
        within = f"{place.hints * 1000:.0f}"
        yield Check("hints", "good", f"Redis answers within {within} ms", params=(within,))
    parts = urlsplit(settings.hints)
    if parts.scheme == "redis" and parts.password and not is_loopback(parts.hostname or ""):
        remedy = "give it an address with rediss://: its password is read on the way (hints themselves are sealed)"
        finding = f"Redis on {parts.hostname} is asked without TLS"
        yield Check("hints.tls", "doubtful", finding, remedy, params=(str(parts.hostname),))


def _people(settings: Settings, facts: Facts) -> Iterator[Check]:
    if settings.identity is None:
        verdict: Verdict = "doubtful" if is_loopback(settings.host) and not settings.allow_remote else "bad"
        remedy = f"set {variable('identity')}; until then everybody who reaches the port is user:local"
        finding = "nobody is asked who they are"
        yield Check("identity", verdict, finding, remedy, case="none", params=(variable("identity"),))
        return
    finding = f"{variable('identity')} is {settings.identity}"
    yield Check("identity", "good", finding, params=(variable("identity"), settings.identity))
    if settings.identity == "keys":
        if facts.keys:
            yield Check("identity.keys", "good", f"{facts.keys} that are not revoked", params=(str(facts.keys),))
        else:
            yield Check("identity.keys", "bad", "there is none: nobody can call", "hai-flow keys create PRINCIPAL")


def _check_stranded(facts: Facts) -> Iterator[Check]:
    if facts.stranded:
        remedy = "hai-flow pendings says why: give a key or a role, or end an absence"
        finding = f"{facts.stranded} can be decided by nobody"
        yield Check("questions", "bad", finding, remedy, params=(str(facts.stranded),))


def _check_calendars(place: DoctorFacts) -> Iterator[Check]:
    for name, (until, days) in place.holidays.items():
        if days > HORIZON.days:
            yield Check("calendars", "good", f"the holidays of {name} are known until {until}", params=(name, until))
        else:
            finding = f"the holidays of {name} are known until {until} only"
            remedy = "enter the next ones: deadlines behind that day take every holiday for a working day"
            yield Check("calendars", "doubtful", finding, remedy, params=(name, until))


def _check_way_in(settings: Settings) -> Iterator[Check]:
    if is_loopback(settings.host):
        finding = f"listens on {settings.host}, for this machine alone"
        yield Check("hosts", "good", finding, case="local", params=(settings.host,))
    else:
        finding = f"listens on {settings.host} as {', '.join(settings.allowed_hosts)}"
        yield Check("hosts", "good", finding, params=(settings.host, *settings.allowed_hosts))
    plain = [origin for origin in settings.allowed_origins if origin.startswith("http://")]
    if plain:
        remedy = f"take them out of {variable('allowed_origins')}: who is on the way can change such a page"
        finding = f"pages without TLS may call: {', '.join(plain)}"
        yield Check("origins", "doubtful", finding, remedy, params=(variable("allowed_origins"), *plain))
    if settings.public_url is not None and settings.public_url.startswith("http://"):
        remedy = "give it an address with https: what services call back with is read on the way"
        finding = f"{settings.public_url} has no TLS"
        yield Check("public_url", "doubtful", finding, remedy, params=(settings.public_url,))


def _check_assurance(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    """What rule books leave to the deployment (docs/assurance.md)."""
    key_file, catalogue, floods = variable("receipt_keys"), variable("mcp"), variable("tenant_runs_per_minute")
    if place.key_fault is not None:
        remedy = "mend the file, or make another one: hai-flow receipt key FILE"
        yield Check("receipts.keys", "bad", place.key_fault.rstrip("."), remedy, params=(place.key_fault,))
    elif key_file in place.exposed:
        remedy = "chmod 600 it, and let workers run as another user: who has the key can make receipts"
        finding = f"others than its owner can read the file that {key_file} names"
        yield Check("receipts.keys", "bad", finding, remedy, case="exposed", params=(key_file,))
    elif settings.receipt_keys is None and not place.embedded:
        remedy = f"hai-flow receipt key FILE, and name it in {key_file} for `serve` alone"
        finding = "no key signs receipts, nor what tools at /mcp answer"
        yield Check("receipts.keys", "doubtful", finding, remedy, params=(key_file,))
    else:
        yield Check("receipts.keys", "good", "receipts and what tools at /mcp answer are signed")
    if catalogue in place.exposed:
        remedy = "chmod 644 it: who writes there installs programs that workers start"
        finding = f"others than its owner can write the file that {catalogue} names"
        yield Check("mcp.catalogue", "bad", finding, remedy, params=(catalogue,))
    else:
        finding = f"workers start these programs: {', '.join(place.programs) or 'none'}"
        yield Check("mcp.catalogue", "good", finding, params=place.programs)
    if place.plain_servers:
        remedy = f"give them addresses with https in {catalogue}: what agents ask and hear is read on the way"
        finding = f"MCP servers are reached without TLS: {', '.join(place.plain_servers)}"
        yield Check("mcp.tls", "doubtful", finding, remedy, params=(catalogue, *place.plain_servers))
    else:
        yield Check("mcp.tls", "good", "no MCP server of the catalogue is reached without TLS")
    certificate = variable("client_certificate")
    if settings.client_certificate is not None:
        finding = f"/mcp takes tokens from the holder of their certificate alone ({settings.client_certificate})"
        yield Check("mcp.tokens", "good", finding, params=(settings.client_certificate,))
    elif settings.identity not in (None, KEYS):
        remedy = f"let a proxy ask for client certificates, and name its header in {certificate}"
        yield Check("mcp.tokens", "doubtful", "who steals a token can use it at /mcp", remedy, params=(certificate,))
    else:
        yield Check("mcp.tokens", "good", "no issuer's token is taken", case="none")
    wide = [each for each in settings.http_hosts if _is_wide(each)]
    if wide:
        remedy = f"name single hosts in {variable('http_hosts')}: else a step reaches what no gate is in front of"
        finding = f"steps may reach whole networks: {', '.join(wide)}"
        yield Check("http.hosts", "doubtful", finding, remedy, params=(variable("http_hosts"), *wide))
    else:
        finding = f"of hosts that are not public steps reach {', '.join(settings.http_hosts) or 'none'}"
        yield Check("http.hosts", "good", finding, params=settings.http_hosts)
    if settings.identity is not None and not (settings.tenant_runs_per_minute or settings.tenant_open_runs_max):
        remedy = f"set {floods} or {variable('tenant_open_runs_max')}: else one caller can bury those who decide"
        finding = "nothing bounds how many runs a tenant starts"
        yield Check("limits.runs", "doubtful", finding, remedy, params=(floods, variable("tenant_open_runs_max")))
    elif settings.identity is not None:
        yield Check("limits.runs", "good", "how many runs a tenant starts, or has open, is bounded")


def _check_state_keys(facts: Facts) -> Iterator[Check]:
    """Which keys open what clients of /mcp carry (docs/protocols/mcp.md#keys-of-states)."""
    if facts.state_keys:
        sealing, *older = facts.state_keys
        finding = f"the key {sealing} seals states at /mcp, and these open older ones: {', '.join(older) or 'none'}"
        yield Check("mcp.states", "good", finding, params=(sealing, *older))


def _is_wide(entry: str) -> bool:
    """Whether an entry of `http_hosts` is a network of more than 65,536 addresses, or every name."""
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False).num_addresses > WIDEST
    except ValueError:
        return entry in ("*", "*.")


def _check_pooler(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    pooled, direct = variable("database_pooled"), variable("database_direct_url")
    if place.pooler and not settings.database_pooled:
        remedy = f"set {pooled}=1 and {direct} (docs/pooler.md)"
        finding, params = "a pooler answers, whose sessions are nobody's own", (pooled, direct)
        yield Check("pooler", "bad", finding, remedy, params=params)
    elif settings.database_pooled and settings.database_direct_url is None:
        remedy = f"set {direct}: LISTEN does not get through a pooler"
        case, seconds = "polls", f"{settings.poll_seconds:g}"
        finding = f"behind a pooler, so news is found every {seconds} s"
        if settings.hints is not None:
            remedy = f"set {direct}: migrate, prune and their like need a session of their own"
            case, finding = "no_direct", "behind a pooler, without a direct way to the server"
        yield Check("pooler", "doubtful", finding, remedy, case=case, params=(direct, seconds))
    elif settings.database_pooled and not place.pooler:
        remedy = f"unset {pooled}: nothing is prepared for its sake"
        finding = "no pooler was found where there is said to be one"
        yield Check("pooler", "doubtful", finding, remedy, case="none", params=(pooled,))
    elif place.pooler:
        yield Check("pooler", "good", "one stands before the database, and a direct way leads past it")
    if place.direct_pooler:
        remedy = f"let {direct} lead to the server: LISTEN hears nothing through a pooler"
        yield Check("pooler.direct", "bad", "the direct way leads through a pooler, too", remedy, params=(direct,))


def _replica(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    replica, url = place.replica, variable("database_replica_url")
    if replica is None:
        return
    if isinstance(replica, str):
        remedy = f"see {url}, or unset it; until then the database answers for it"
        yield Check("replica", "doubtful", replica, remedy, case="away", params=(replica, url))
    elif not replica.same:
        remedy = f"let {url} lead to a streaming replica of {variable('database_url')}"
        finding = "what answers there is another server, or another database of it"
        yield Check("replica", "bad", finding, remedy, params=(url, variable("database_url")))
    elif not replica.follows:
        remedy = f"let {url} lead to a standby: this one answers for itself, and costs the database what it should save"
        finding = "it is no standby, or one that took over"
        yield Check("replica", "doubtful", finding, remedy, case="no_standby", params=(url,))
    elif replica.seconds is None:
        remedy = "see whether it is connected (pg_stat_replication) and whether its replay is paused"
        finding = "it did not get what the database has while it was waited for"
        yield Check("replica", "doubtful", finding, remedy, case="behind")
    else:
        seconds = f"{replica.seconds:.2f}"
        finding = f"a standby of this database, which had all of it within {seconds} s"
        yield Check("replica", "good", finding, params=(seconds,))


def _check_audit(facts: Facts, place: DoctorFacts) -> Iterator[Check]:
    if place.schema is None:
        return  # there are no records yet: nobody has taken away what keeps them
    missing = sorted(AUDIT_TRIGGERS - facts.audit_triggers)
    if missing:
        remedy = "somebody took away or disabled what keeps records: find out who, verify, and enable them again"
        finding = f"not there, or disabled: {', '.join(missing)}"
        yield Check("audit.triggers", "bad", finding, remedy, params=tuple(missing))
    else:
        yield Check("audit.triggers", "good", "records and seals can't be changed or deleted")
    if facts.may_change_audit:
        remedy = "REVOKE UPDATE, DELETE, TRUNCATE ON audit, audit_seals from it; let another role own the tables"
        finding = f"only triggers keep {facts.works_as} from changing the audit"
        yield Check("audit.grants", "doubtful", finding, remedy, params=(facts.works_as,))
    else:
        finding = f"{facts.works_as} may insert records, and nothing else"
        yield Check("audit.grants", "good", finding, params=(facts.works_as,))
    if facts.unsealed_seconds > UNSEALED_SECONDS_MAX:
        remedy = "start a worker: workers seal, and what is not sealed can still be changed unnoticed"
        seconds = f"{facts.unsealed_seconds:.0f}"
        yield Check("audit.seals", "bad", f"a record has waited {seconds} s for its seal", remedy, params=(seconds,))
    else:
        yield Check("audit.seals", "good", "no record waits for long")


def _files(settings: Settings, place: DoctorFacts) -> Iterator[Check]:
    needed = settings.connections_max + BESIDE_CONNECTIONS
    finding, params = f"a process may open {place.descriptors} files", (str(place.descriptors), str(needed))
    if place.descriptors < needed:
        remedy = f"ulimit -Hn {needed} (LimitNOFILE=), or lower {variable('connections_max')}"
        yield Check("limits.files", "doubtful", finding, remedy, params=(*params, variable("connections_max")))
    else:
        yield Check("limits.files", "good", finding, params=params)


def _limits(settings: Settings, facts: Facts) -> Iterator[Check]:
    most, each = int(facts.settings.get("max_connections", "0")), settings.lanes + 4 + 4 + 1
    finding = f"the database takes {most} connections, a process of ours up to {each + settings.tool_connections}"
    params = (str(most), str(each + settings.tool_connections))
    if most < 2 * (each + settings.tool_connections):
        remedy = "raise max_connections, or put a pooler in between"
        yield Check("limits.connections", "doubtful", finding, remedy, params=params)
    else:
        yield Check("limits.connections", "good", finding, params=params)
    if facts.workers:
        yield Check("workers", "good", f"{facts.workers} give signs of life", params=(str(facts.workers),))
    else:
        yield Check("workers", "doubtful", "no worker gives signs of life", "start one: hai-flow worker")
    if facts.workers and facts.unserved:
        finding = f"runs wait in queues that no worker serves: {', '.join(facts.unserved)}"
        remedy = f"start one that does: hai-flow worker --queue {facts.unserved[0]}"
        yield Check("workers.queues", "doubtful", finding, remedy, params=tuple(facts.unserved))
