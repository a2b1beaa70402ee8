"""The imperative shell: the only place where engine, store and steps meet. Makes and starts every service of a process;
the attributes of `Runtime` say which."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import structlog

from hai_flow.cells import HOME
from hai_flow.notify.channels import NotifyFile, Person
from hai_flow.runtime.base.pulse import Pulse
from hai_flow.runtime.base.queue_selection import QueueSelection
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.sweep_isolation import Rows
from hai_flow.runtime.base.trace_parent import TraceParent
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.catalog.pii_catalog import Personals
from hai_flow.runtime.catalog.pins import PinBook
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.freeze_cache import Freezes
from hai_flow.runtime.commit.hints import Carrier, HintLetter, Notify
from hai_flow.runtime.files.blobs import RemoteContents
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.messaging.callbacks import Callbacks
from hai_flow.runtime.messaging.deposits import Deposits
from hai_flow.runtime.messaging.inbound_webhooks import Webhooks
from hai_flow.runtime.messaging.outbox import Delivery
from hai_flow.runtime.messaging.pushes import Pushes
from hai_flow.runtime.messaging.triggers import Triggers, TriggersConfig, Watched
from hai_flow.runtime.ops.audit_seal import Sealer
from hai_flow.runtime.ops.external_heartbeat import Witness
from hai_flow.runtime.ops.readiness import Refusals
from hai_flow.runtime.ops.replicas import Replicas
from hai_flow.runtime.ops.rollback_guard import Continuity, WentBack
from hai_flow.runtime.people.absence_notices import Reseating
from hai_flow.runtime.people.chat_cards import ChatCards, Chats
from hai_flow.runtime.people.ids import read_ids, signs_in_by_keys
from hai_flow.runtime.people.inbox import Inbox
from hai_flow.runtime.people.notifier import Notifier, NotifierConfig, Queueing
from hai_flow.runtime.people.picks import Picks
from hai_flow.runtime.people.receipts import ReceiptKeys
from hai_flow.runtime.people.roster import Rosters
from hai_flow.runtime.people.standing_rules import StandingRules
from hai_flow.runtime.people.undecidable import Stranded
from hai_flow.runtime.runs.branches import Branches
from hai_flow.runtime.runs.concurrency_slots import Slots
from hai_flow.runtime.runs.message_queue import MessageQueue
from hai_flow.runtime.runs.moments import Moments
from hai_flow.runtime.runs.starts import Starts
from hai_flow.runtime.runs.step_times import StepTimesCache
from hai_flow.runtime.runs.thread_state import ThreadState
from hai_flow.runtime.settings import (
    bounds_of,
    build_registry,
    calendars_of,
    channels_of,
    queues_of,
    rehearsal_demand_of,
)
from hai_flow.runtime.streams.fanout import Fanout, FanoutConfig
from hai_flow.runtime.streams.thread_feed import Threads
from hai_flow.runtime.tenancy.quotas import Quotas
from hai_flow.runtime.tenancy.tenants import Tenants, limits_of
from hai_flow.runtime.worker.registry import Presence
from hai_flow.runtime.worker.remote_tasks import RemoteTasks
from hai_flow.runtime.worker.sweeper import Sweeper, SweeperConfig
from hai_flow.runtime.worker.thaws import Thaws
from hai_flow.runtime.worker.worker import Worker, WorkerConfig
from hai_flow.settings import Settings
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.store.identity import keys
from hai_flow.store.messaging import hints
from hai_flow.store.ops.replicas import Replica
from hai_flow.store.postgres.database import EVERYTHING, Database, Deadlines

log = structlog.get_logger(__name__)

STUCK_SECONDS: Final = 10.0  # in a healthy process no submission waits longer for the committer
LOCAL_TENANT = UUID("00000000-0000-4000-8000-000000000001")


class Answered(NamedTuple):
    """A request whose response has begun: its status and headers are known. `route` is as the API declares it; times
    are monotonic."""

    method: str
    route: str
    status: int
    began: float
    ended: float
    asker: TraceParent


OnRequest: TypeAlias = Callable[[Answered], None]


class Observer(Protocol):
    """Something that watches a runtime: metrics, traces."""

    def attach(self, runtime: Runtime) -> Sequence[Service]:
        """Listen to the runtime, whose services are made and not yet started. Returns services that start behind
        them."""
        ...


class Others(Protocol):
    """The cells of a process, for a runtime that is one of several."""

    def at(self, number: int) -> Runtime:
        """The runtime over a cell. Raises Rejected 503 where it is away."""
        ...

    async def databases(self, but: int, tenant: UUID) -> Sequence[Database]:
        """The databases of those cells of the tenant that can be reached, without the cell `but`."""
        ...


class Runtime(Service):
    """Everything of one process over one cell. `performs`: whether it also performs effects (a worker). `observers`
    watch, and change nothing. `beside`: the runtime of home, for one of another `cell`: all cells share the tools of
    the process, and only home knows the tenants (`runtime/cells`).

    `project`: whether workflows that this process reads from disk may call the functions of modules in the current
    directory (`dev` and `run`; see `steps/python/toolbox`). `went_back` is called when the database turns out to have
    gone back in time; `restoring`: that is known already, and a person looks after it (`runtime/restore`).
    """

    database: Database
    carrier: Carrier
    replica: Replica | None
    tenants: Tenants
    committer: Committer
    catalog: Catalog
    files: Files
    inbox: Inbox
    personals: Personals
    delivery: Delivery
    slots: Slots
    keeping: ThreadState
    starts: Starts
    triggers: Triggers
    webhooks: Webhooks
    callbacks: Callbacks
    rules: StandingRules
    fanout: Fanout
    threads: Threads
    branches: Branches
    worker: Worker | None

    def __init__(
        self,
        dsn: str,
        settings: Settings,
        *,
        performs: bool,
        project: bool = False,
        deadlines: Deadlines | None = None,
        observers: Sequence[Observer] = (),
        cell: int = HOME,
        beside: Runtime | None = None,
        restoring: bool = False,
    ) -> None:
        super().__init__()
        self.went_back: list[Callable[[WentBack], None]] = []
        self._restoring = restoring
        self.others: Others | None = None
        self.cell = cell
        self._beside = beside
        self._observers = observers
        self.requests: list[OnRequest] = []  # called with each request that was answered
        self.hint_listeners: list[Callable[[str], None]] = []  # called with each payload
        self._closing = False
        self.dsn = dsn
        self.settings = settings
        self.performs = performs
        self.deadlines = deadlines or Deadlines()
        if beside is None:
            self.toolbox = Toolbox.of(settings.tools, Path.cwd(), project=project)
            self.registry = build_registry(settings, self.toolbox, stands_in=project)
        else:
            self.toolbox, self.registry = beside.toolbox, beside.registry
        self.served = queues_of(settings, every=project)
        self.rows = Rows()
        self.refusals = Refusals()
        self.receipt_keys = ReceiptKeys(settings)
        self._channels = channels_of(settings)
        self.ids = read_ids(settings) if beside is None else beside.ids
        self._by_keys = signs_in_by_keys(settings) if beside is None else beside._by_keys
        self.issuer_roles: Collection[str] = ()  # which the file of issuers names; the API knows it
        self.chats: Chats | None = None
        if self._channels is not None:
            self.chats = Chats(self._channels, settings.secrets, self._build_http_config())
        self._contents = None if settings.files is None else RemoteContents(settings.files)
        self._witness = None if settings.witness is None else Witness(settings.witness)

    async def _start(self) -> None:
        settings = self.settings
        self._closing = False
        if self._beside is None:
            self.toolbox.load()
        self.database = await Database.open(
            self.dsn,
            engine_connections=settings.lanes + 4,  # loads, claims, a run loaded apart, one taken alone
            listen_dsn=settings.database_direct_url,
            behind_pooler=settings.database_pooled,
            deadlines=self.deadlines,
            tool_connections=settings.tool_connections,
        )
        try:
            self.carrier = await self._build_carrier()
            try:
                await self._start_services(settings)
            except BaseException:
                await self.carrier.close()
                raise
        except BaseException:
            await self.database.close()
            raise

    async def _build_carrier(self) -> Carrier:
        """How this process and the others tell each other of commits."""
        if self.settings.hints is None:
            return Notify(self.database)
        from hai_flow.runtime.streams.redis_hints import RedisHints  # only where it is asked for

        async with self.database.engine.acquire() as connection:
            seal = await hints.seal_of(connection)
        return RedisHints(self.settings.hints, seal)

    async def _start_services(self, settings: Settings) -> None:
        self.tenants = Tenants(self.database, limits_of(settings)) if self._beside is None else self._beside.tenants
        self.pins = PinBook(self.database)
        self.catalog = Catalog(self.database, self.registry, self.pins, self.tenants)
        self.catalog.channels = self._list_channels
        self.catalog.roles = self._list_roles
        self.catalog.calendars = calendars_of(settings).calendars
        self.catalog.demand = rehearsal_demand_of(settings)
        self.files = Files(
            self.database,
            self._contents,
            bytes_max=settings.file_bytes_max,
            kept_for=timedelta(seconds=settings.files_keep_seconds),
        )
        self.inbox = Inbox(
            self.database, self.catalog, self.rows, None if self._beside is None else self._beside.database
        )
        self.personals = Personals(self.catalog)
        watched = Watched(self.database)
        self.freezes = Freezes(self.database)
        self.committer = Committer(
            self.database,
            find_plan=self.catalog.plan,
            recall_plan=self.catalog.recall_plan,
            wants_ends=watched.wants,
            lanes=settings.lanes,
            entries_max=settings.batch_entries_max,
            bytes_max=settings.batch_bytes_max,
            cache_bytes_max=settings.cache_bytes_max,
            limits=bounds_of(settings),
            carrier=self.carrier,
            freezes=self.freezes,
            sources=self.registry.source_of,
            schemas=self.registry.find_schema,
        )
        self.committer.listeners.refused.append(self.refusals.note)
        self.fanout = Fanout(self.database, self.committer, FanoutConfig())
        self.threads = Threads(self.database, settings.poll_seconds)
        self.moments = Moments(self.database, self.catalog)
        self.step_times = StepTimesCache()
        self.slots = Slots(self.database, self.committer, self.rows)
        self.keeping = ThreadState(self.database)
        quotas = Quotas(self.database, self.tenants)
        if self.others is not None:
            quotas.others = partial(self.others.databases, self.cell)
        self.starts = Starts(
            self.committer,
            self.slots,
            self.keeping,
            self.catalog.pins,
            self.catalog.retirement,
            quotas,
            self.tenants,
            self.cell,
        )
        self.branches = Branches(
            self.database, self.committer, self.catalog, self.threads, self.moments, self.starts, self.slots
        )
        self.messages = MessageQueue(
            self.database, self.catalog, self.starts, settings.poll_seconds, sweeps=self.performs, rows=self.rows
        )
        queueing = Queueing(self.database).handlers
        home = None if self._beside is None else self._beside.database
        rosters = Rosters(self.tenants, self._channels, home, by_keys=self._by_keys, ids=self.ids)
        self.rules = StandingRules(
            self.database, self.committer, self.catalog, self.pins, rosters, settings.rule_approvals
        )
        self.picks = Picks(self.database, self.committer, self.catalog, rosters, self.rows, sweeps=self.performs)
        remote_tasks = RemoteTasks(
            self.database, self.committer, self.catalog, self.registry, self.tenants, performs=self.performs
        )
        services = self.slots, self.messages, self.rules, self.picks, remote_tasks
        handlers = {kind: take for each in services for kind, take in each.handlers.items()} | queueing
        self.delivery = Delivery(
            self.database, self.committer, self.catalog, self.starts, handlers=handlers, rows=self.rows
        )
        ticking = TriggersConfig(ticks=self.performs, poll_seconds=settings.poll_seconds)
        self.triggers = Triggers(
            self.database,
            self.committer,
            self.catalog,
            self.delivery,
            self.starts,
            self.slots,
            watched,
            ticking,
            self.rows,
        )
        if (others := self.others) is not None:
            self.triggers.of_cell = lambda cell: others.at(cell).triggers
        self.webhooks = Webhooks(self.triggers, settings.secrets)
        self.callbacks = Callbacks(self.database, self.fanout, self.catalog, self.delivery, self.files)
        self.continuity = Continuity(self.database, self._witness, self.went_back)
        first = [] if self._restoring else [self.continuity]
        self._services: list[Service] = [
            *first,
            self.freezes,
            self.committer,
            self.fanout,
            self.threads,
            self.messages,
            self.rules,
            self.picks,
            self.delivery,
            self.triggers,
        ]
        pulse = Pulse(self.database, self.served if self.performs else None, settings.poll_seconds)
        pulse.looks += [self.committer.look, self.freezes.look, self.delivery.look, self.triggers.look]
        self.replica = None
        if settings.database_replica_url is not None:
            self.replica = Replica(settings.database_replica_url, self.database, lag_max=settings.replica_lag_seconds)
            self._services.append(Replicas(self.replica))
        self.worker = None
        if self.performs:
            config = _build_worker_config(settings, self.served)
            book = self.files, self.pins, self.tenants
            self.worker = Worker(self.database, self.committer, self.registry, config, *book)
            self.worker.allowed = self.continuity.demand
            sweeping = SweeperConfig(poll_seconds=settings.poll_seconds)
            clearing = self.files, self.inbox, self.rows
            self._sweeper = Sweeper(self.database, self.committer, self.worker, sweeping, *clearing)
            sealer = Sealer(self.database)
            thaws = Thaws(self.database, self.freezes, self.committer)
            self._deposits = Deposits(
                self.database, self.catalog, self.files, self.starts, self.delivery, self.triggers
            )
            guard, credentials = EgressGuard(settings.http_hosts), (home or self.database).api
            http, now_ms = self._build_http_config(), self.committer.now_ms
            pushes = Pushes(self.database, credentials, self.inbox, guard, http, self.rows, now_ms)
            if settings.identity is not None:
                self._services.append(Stranded(self.database, self.catalog, rosters, self.rows))
            reseating = Reseating(self.database, self.hint_lists, self.rows)
            performers = (self._sweeper, sealer, thaws, self._deposits, pushes, reseating)
            pulse.looks += [each.look for each in performers]
            self._services += [self.worker, *performers]
            if self._channels is not None:
                cards = self._build_cards(self._channels, rosters)
                pulse.looks.append(cards.look)
                self._services += [cards, self._build_notifier(self._channels, rosters, cards)]
        elif self._beside is None and not self._restoring:
            self._services.append(Presence(self.database, self.refusals.note))
        self._services.append(pulse)  # behind those that it wakes
        for observer in self._observers:
            self._services += observer.attach(self)
        started: list[Service] = []
        try:
            for service in self._services:
                await service.start()
                started.append(service)
            await self.carrier.listen(self._hear)
        except BaseException:
            await _stop_all(started)
            raise

    def _list_channels(self, tenant: str) -> Collection[str] | None:
        """The names of a tenant's channels; None: the deployment has no file of them."""
        return None if self._channels is None else tuple(self._channels.place(tenant).channels)

    async def _list_roles(self, tenant: UUID) -> Collection[str]:
        """The roles that people of the tenant have by keys, by the file of channels, or by an issuer of tokens."""
        home = self._beside or self
        people = await self.load_people_of_channels(tenant) or {}
        of_channels = {role for person in people.values() for role in person.roles}
        return {*home.issuer_roles, *of_channels, *await keys.list_roles(home.database.api, tenant)}

    async def load_people_of_channels(self, tenant: UUID) -> Mapping[str, Person] | None:
        """The tenant's people whom channels reach, by id; None: this process has no file of them."""
        return None if self._channels is None else self._channels.place(await self.tenants.name(tenant)).people

    def _build_cards(self, file: NotifyFile, rosters: Rosters) -> ChatCards:
        assert self.chats is not None, "there is a file of channels"
        link_base = file.url or self.settings.public_url
        return ChatCards(self.database, self.inbox, self.chats, self.tenants, rosters, link_base, self.rows)

    def _build_notifier(self, file: NotifyFile, rosters: Rosters, cards: ChatCards) -> Notifier:
        settings, now = self.settings, self.committer.now
        config = NotifierConfig(poll_seconds=settings.poll_seconds, link_base=file.url or settings.public_url)
        http = self._build_http_config()
        return Notifier(self.database, self.inbox, rosters, file, settings.secrets, http, now, config, self.rows, cards)

    def _build_http_config(self) -> HttpConfig:
        settings = self.settings
        ca = None if settings.http_ca is None else str(settings.http_ca)
        return HttpConfig(settings.http_bytes_max, settings.http_proxy, ca)

    async def _stop(self) -> None:
        self._closing = True
        try:
            await _stop_all(self._services)
        finally:
            await self.carrier.close()
            if self.chats is not None:
                await self.chats.out.close()
            if self._beside is None:
                await self.registry.close()
            await self.database.close()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Do the work in a task that ends with the runtime. If it fails, that is logged."""
        return self._spawn(work, name)

    @property
    def closing(self) -> bool:
        """Whether it is about to stop, or does."""
        return self._closing or self.fanout.closing.is_set()

    def faults(self) -> list[str]:
        """The parts of this process that do not work just now, each in a few words; empty: it can serve."""
        parts = [name for service in self._services for name in service.ailing]
        if self.continuity.fault is not None:
            parts.append("what the database holds, which went back in time")
        if time.monotonic() - self.committer.last_progress() > STUCK_SECONDS:
            parts.append("commits and loads")
        return parts

    def hint_lists(self, tenant: UUID) -> None:
        """Call this after a change of something that lists of the tenant show, and that is no commit of a run: a
        claim, a delegation, a workflow, a schedule. Open lists of every process are read anew."""
        for word in hints.build_tenant_payloads([tenant]):
            self.inbox.hint(word)
        self.committer.hints.add_tenant(tenant)

    def _hear(self, letter: HintLetter) -> None:
        """Hints of commits have come, from another process or from this one."""
        for word in letter.words:
            self._hint(word)
        if letter.news and EVERYTHING not in letter.words:
            for news in letter.news:
                self.fanout.hear(news)
            self.threads.hint("")
            if not any(map(hints.parse_tenants, letter.words)):  # of a release before, which names no tenants
                self.inbox.hint(EVERYTHING)

    def _hint(self, payload: str) -> None:
        self.fanout.hint(payload)
        self.threads.hint(payload)
        self.inbox.hint(payload)
        for listener in self.hint_listeners:
            listener(payload)
        if self.performs:
            self._sweeper.hint(payload)
            self._deposits.hint(payload)


async def _stop_all(services: Sequence[Service]) -> None:
    """Last started first. One that can't stop in order must not keep the others from it."""
    for service in reversed(services):
        try:
            await service.stop()
        except Exception as error:
            log.error("stop_failed", service=type(service).__name__, exc_info=error)


def _build_worker_config(settings: Settings, served: QueueSelection) -> WorkerConfig:
    return WorkerConfig(
        served=served,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        attempts_max=settings.concurrency,
        chunk_seconds=settings.chunk_flush_seconds,
        shutdown_seconds=settings.shutdown_seconds,
        public_url=settings.public_url,
    )
