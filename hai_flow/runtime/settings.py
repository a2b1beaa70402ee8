"""This deployment, as its settings describe it: its runners, queues, channels, bounds, cells and retention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hai_flow.definition.people.calendars import CalendarFile, read_calendars
from hai_flow.definition.plan import DEFAULT_QUEUE
from hai_flow.definition.tools.mcp_servers import read_mcp_catalogue
from hai_flow.engine.state.bounds import Bounds
from hai_flow.errors import Finding
from hai_flow.models.providers.catalogue import Catalogue, read_catalogue
from hai_flow.models.providers.endpoints import Providers
from hai_flow.models.providers.scripted import MODEL, StandIn
from hai_flow.notify.channels import NotifyFile, read_channels
from hai_flow.runtime.base.queue_selection import EVERY, QueueSelection, parse_queues
from hai_flow.runtime.catalog.publication_requirements import RehearsalDemand
from hai_flow.runtime.retention.policy import Retention, read_retention
from hai_flow.settings import Settings, SettingsError, variable, variables
from hai_flow.steps.a2a.runner import A2ARunner
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.runner import HttpRunner
from hai_flow.steps.http.tools import HttpToolRunner
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.llm import LlmRunner
from hai_flow.steps.mcp.runner import McpRunner
from hai_flow.steps.python.runner import PythonRunner
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.steps.runner import Registry, Runner
from hai_flow.steps.secrets import Secrets, hide_secrets, remember
from hai_flow.steps.secrets_file import read_secrets
from hai_flow.store.cells.cells import Cell, parse_addresses, read_cells

Read = TypeVar("Read")


def build_registry(settings: Settings, toolbox: Toolbox, *, stands_in: bool = False) -> Registry:
    """The runner of each kind of effect. `stands_in`: something answers workflows of this disk in place of a model that
    is not there. Raises SettingsError for a file of the settings with mistakes."""
    models = {} if settings.models is None else _read("models", settings.models, read_catalogue)
    sources = {} if settings.secrets_file is None else _read("secrets_file", settings.secrets_file, read_secrets)
    environment = variables(source.env for source in sources.values() if source.env)
    secrets = Secrets(settings.secrets, sources, environment, settings.secrets_command)
    servers = {} if settings.mcp is None else _read("mcp", settings.mcp, read_mcp_catalogue)
    providers = Providers()
    ca = None if settings.http_ca is None else str(settings.http_ca)
    config = HttpConfig(settings.http_bytes_max, settings.http_proxy, ca, settings.public_url is not None)
    http = HttpRunner(EgressGuard(settings.http_hosts), secrets, config)
    runners: dict[str, Runner] = {
        "python": PythonRunner(toolbox, secrets=secrets),
        "llm": LlmRunner(Catalogue(models, providers.offered), providers, secrets, _stand_in() if stands_in else None),
        "http": http,
        "http_tool": HttpToolRunner(http),
        "a2a": A2ARunner(http),
        "mcp": McpRunner(servers, secrets, settings.http_hosts, config, settings.mcp_version_min),
    }
    return Registry(runners, hide_secrets)


def queues_of(settings: Settings, *, every: bool = False) -> QueueSelection:
    """The queues that the worker of this process serves. `every`: all, where the settings name none. Raises
    SettingsError."""
    try:
        return parse_queues(settings.queues or ((EVERY,) if every else (DEFAULT_QUEUE,)))
    except ValueError as error:
        raise SettingsError([f"{variable('queues')}: {error}."]) from None


def channels_of(settings: Settings) -> NotifyFile | None:
    """The channels over which people are notified of open questions. Raises SettingsError for a file with mistakes."""
    return None if settings.notify is None else _read("notify", settings.notify, read_channels)


def bounds_of(settings: Settings) -> Bounds:
    return Bounds(
        turn_linger=int(settings.turn_linger_seconds * 1000),
        stop_grace=int(settings.stop_grace_seconds * 1000),
        waits=settings.run_waits_max,
        run_events=settings.run_events_max,
        run_bytes=settings.run_bytes_max,
        calendars=calendars_of(settings).calendars,
    )


def rehearsal_demand_of(settings: Settings) -> RehearsalDemand | None:
    """What publications demand; None: nothing."""
    if not settings.rehearsal_hours:
        return None
    everywhere = settings.cells is not None
    return RehearsalDemand(
        settings.rehearsal_hours, settings.rehearsal_differences, settings.rehearsal_days, everywhere
    )


def calendars_of(settings: Settings) -> CalendarFile:
    """The calendars of working days. Raises SettingsError for a file with mistakes."""
    return CalendarFile() if settings.calendars is None else _read("calendars", settings.calendars, read_calendars)


def retention_of(settings: Settings) -> Retention | None:
    """How long ended runs are kept; None: for ever. Raises SettingsError for a file with mistakes."""
    return None if settings.retention is None else _read("retention", settings.retention, read_retention)


def cells_of(settings: Settings) -> tuple[Cell, ...]:
    """The cells beside home. Raises SettingsError for a file with mistakes."""
    if settings.cells is None:
        return ()
    file = _read("cells", settings.cells, read_cells)
    cells, faults = parse_addresses(
        file, settings, variables(each.url_from for each in file.cells.values() if each.url_from)
    )
    if faults:
        raise SettingsError([f"{settings.cells}: {fault}" for fault in faults])
    return cells


def _stand_in() -> StandIn:
    environment = variables(("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"))
    remember(environment.get("OPENAI_API_KEY", ""))
    return StandIn(
        environment.get("OPENAI_API_KEY"), environment.get("OPENAI_BASE_URL"), environment.get("OPENAI_MODEL", MODEL)
    )


def _read(name: str, path: Path, read: Callable[[bytes, str], tuple[Read, list[Finding]]]) -> Read:
    try:
        source = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingsError([f"{variable(name)}: {path} can't be read: {reason}."]) from None
    content, findings = read(source, str(path))
    problems = [str(finding) for finding in findings if finding.severity == "error"]
    if problems:
        raise SettingsError(problems)
    return content
