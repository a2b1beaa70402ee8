"""The deployment that is broken: its directory, its PostgreSQL, its processes. Made anew for each campaign."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hai_flow.embedded import PORT
from hai_flow.errors import StoreError
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow_chaos.history import History
from hai_flow_chaos.keeper import DATABASE
from hai_flow_chaos.plan import Campaign, names
from hai_flow_chaos.proxy import Address
from hai_flow_chaos.seats import Clock, Nursery, Role, Seat, clean_environment
from hai_flow_chaos.services import Service
from hai_flow_chaos.tools import PAYMENTS

if TYPE_CHECKING:
    from asyncpg import Connection

DISK_MIB: Final = 800
START_SECONDS: Final = 300.0
PEOPLE: Final = {
    "operator": ("service:operator", ("operator", "publisher", "viewer")),
    "ann": ("user:ann", ("decider", "requester")),
    "bob": ("user:bob", ("decider", "requester")),
    "cid": ("user:cid", ("decider", "requester")),
}
"""The callers by a short name: the principal and the roles of each."""

_TUNING: Final = ("ALTER SYSTEM SET max_wal_size = '160MB'", "ALTER SYSTEM SET min_wal_size = '64MB'")


@dataclass(slots=True)
class Stage:
    """The deployment of a campaign. `lacking`: the kinds of fault that this machine does not allow, with the reason.
    `keys`: the API keys of `PEOPLE`. `settings`: the environment that all its processes have in common. `library`: the
    shared library that makes clocks wrong; None: there is none, and clocks stay right. `service`: the model and the
    server of MCP."""

    directory: Path
    disk: Path
    history: History
    lacking: dict[str, str]
    clock: Clock | None
    library: Path | None
    service: Service
    seats: list[Seat] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    socket: str | None = None
    _keeper: asyncio.subprocess.Process | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def servers(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.role == "serve"]

    @property
    def workers(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.role == "worker"]

    def seat(self, name: str) -> Seat:
        """The seat of this name."""
        return next(seat for seat in self.seats if seat.name == name)

    def postgres(self) -> Address | None:
        """The address of PostgreSQL; None: it has not been up yet."""
        return self.socket

    @property
    def cluster(self) -> Path:
        """The directory of PostgreSQL."""
        return self.disk / "postgres"

    @property
    def programs(self) -> Path:
        """The directory in which each program that speaks MCP has a file."""
        return self.directory / "programs"

    @property
    def ballast(self) -> Path:
        """The file that fills the disk."""
        return self.disk / "ballast"

    def preloaded(self, clock: Clock | None) -> dict[str, str]:
        """The environment variables with which a process lives by `clock`, which can be stepped."""
        by = {} if clock is None else {"SKEWED_BY": str(clock.file)}
        return {} if self.library is None else {"LD_PRELOAD": str(self.library), **by}

    def crash(self, seconds: float) -> None:
        """Kill PostgreSQL; it comes back after so long."""
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        self._up.clear()
        self._keeper.stdin.write(f"crash {seconds}\n".encode())

    async def until_up(self) -> None:
        """Wait until PostgreSQL runs (again)."""
        await self._up.wait()

    async def end(self) -> None:
        """End all servers and workers, so that the database is not changed while it is judged."""
        for seat in self.seats:
            seat.closing = True
            seat.kill()
        for seat in self.seats:
            await seat.ended()

    async def connect(self) -> Connection[Any]:
        """A connection of our own, past all proxies."""
        import asyncpg

        assert self.socket is not None
        where = str(Path(self.socket).parent)
        return await asyncpg.connect(user="postgres", database=DATABASE, host=where, port=PORT, timeout=10)

    async def keep_postgres(self) -> None:
        """Start the keeper, and read its reports, until cancelled."""
        self._keeper = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hai_flow_chaos.keeper", str(self.cluster),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=clean_environment(self.preloaded(self.clock)),
        )  # fmt: skip
        assert self._keeper.stdout is not None
        assert self._keeper.stdin is not None
        try:
            while line := await self._keeper.stdout.readline():
                self.socket = line.decode().split(maxsplit=1)[1].strip()
                self._up.set()
            raise StoreError("The campaign's PostgreSQL can't be kept; what was wrong stands above.")
        finally:
            self._keeper.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._keeper.wait()), 60)


@contextlib.asynccontextmanager
async def staged(
    campaign: Campaign,
    history: History,
    report: Path,
    extra: Mapping[str, str],
    *,
    keep: bool,
    cluster: Path | None = None,
) -> AsyncIterator[Stage]:
    """A deployment whose processes are ready; it ends with the context. `extra`: variables of the environment for its
    processes. `keep`: leave its directory. `cluster`: begin with a copy of this PostgreSQL (`cluster_in`)."""
    with _directory(keep) as directory, _disk(directory) as (disk, no_disk):
        library, no_clock = _library(directory)
        lacking = {kind: why for kind, why in (("fill_disk", no_disk), ("step_clock", no_clock)) if why}
        clock = None if library is None else Clock(directory / "postgres.clock")
        stage = Stage(directory, disk, history, lacking, clock, library, Service(report / "services.log"))
        stage.settings = _settings(campaign, stage, extra)
        if cluster is not None:
            await asyncio.to_thread(subprocess.run, ["cp", "-a", cluster, stage.cluster], check=True)
        nursery = Nursery({**stage.settings, **stage.preloaded(None)}, directory)
        async with _beside(stage.keep_postgres(), nursery.live(), stage.service.live()):
            async with asyncio.timeout(START_SECONDS):
                await stage.until_up()
                await stage.service.wait_ready()
            if cluster is None:
                await _made(stage)
            await _let_in(stage)
            _seat(campaign, stage, nursery, report)
            async with _beside(*(seat.live() for seat in stage.seats)):
                try:
                    async with asyncio.timeout(START_SECONDS):
                        await asyncio.gather(*(seat.ready.wait() for seat in stage.seats))
                except TimeoutError:
                    late = ", ".join(seat.name for seat in stage.seats if not seat.ready.is_set())
                    raise StoreError(f"Not ready within {START_SECONDS:.0f} s: {late}. See {report}.") from None
                yield stage


async def cluster_in(directory: Path) -> Path:
    """The directory of a stopped PostgreSQL with the schema of a campaign. Many campaigns can begin with a copy of
    it."""
    stage = Stage(directory, directory, History(), {}, None, None, Service(directory / "services.log"))
    async with _beside(stage.keep_postgres()):
        async with asyncio.timeout(START_SECONDS):
            await stage.until_up()
        await _made(stage)
    return stage.cluster


def _seat(campaign: Campaign, stage: Stage, nursery: Nursery, report: Path) -> None:
    servers, workers = names(campaign)
    for name in (*servers, *workers):
        role: Role = "serve" if name in servers else "worker"
        slug = name.replace(" ", "-")
        clock = None if stage.library is None else Clock(stage.directory / f"{slug}.clock")
        log, home = report / f"{slug}.log", stage.directory
        seat = Seat(name, role, nursery, clock, stage.settings, stage.postgres, stage.history, log, home)
        stage.seats.append(seat)


@contextlib.asynccontextmanager
async def _beside(*works: Any) -> AsyncIterator[None]:
    """`works` beside the block, ended with it. One that fails ends the block with its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _made(stage: Stage) -> None:
    """The schema, and the table of payments."""
    from hai_flow.store.postgres import migrations

    assert stage.socket is not None
    host = Path(stage.socket).parent
    await migrations.upgrade(f"postgresql://postgres@/{DATABASE}?host={host}&port={PORT}")
    connection = await stage.connect()
    try:
        for statement in (*PAYMENTS, *_TUNING):
            await connection.execute(statement)
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


async def _let_in(stage: Stage) -> None:
    """Create an API key for each of `PEOPLE`."""
    from hai_flow.store.identity import keys

    connection = await stage.connect()
    try:
        for name, (principal, roles) in PEOPLE.items():
            made = await keys.create_key(
                connection, LOCAL_TENANT, principal, name="chaos", roles=roles, created_by="service:cli"
            )
            stage.keys[name] = made[1]
    finally:
        await connection.close()


def _settings(campaign: Campaign, stage: Stage, extra: Mapping[str, str]) -> dict[str, str]:
    models, servers = stage.directory / "models.yaml", stage.directory / "mcp.yaml"
    stage.programs.mkdir()
    program = json.dumps([sys.executable, "-m", "hai_flow_chaos.services", "program", str(stage.programs)])
    servers.write_text(
        f"hai: mcp/v1\nservers:\n  far: {{url: {stage.service.url}/mcp}}\n  near: {{command: {program}}}\n"
    )
    models.write_text(
        "hai: models/v1\nmodels:\n  chaos: {provider: vllm, base_url: " + stage.service.url + "/v1, model: chaos, "
        "timeout: {total: 20s, idle: 10s}}\n"
    )
    return clean_environment({
        "HAI_FLOW_IDENTITY": "keys",
        "HAI_FLOW_TOOLS": "hai_flow_chaos.tools",
        "HAI_FLOW_HTTP_HOSTS": "127.0.0.1",
        "HAI_FLOW_MODELS": str(models),
        "HAI_FLOW_MCP": str(servers),
        "HAI_FLOW_PUBLISH": "1",
        "HAI_FLOW_LEASE_SECONDS": f"{campaign.lease:g}",
        "HAI_FLOW_HEARTBEAT_SECONDS": f"{campaign.lease / 10:g}",
        "HAI_FLOW_POLL_SECONDS": "0.5",
        "HAI_FLOW_KEEPALIVE_SECONDS": "2",
        "HAI_FLOW_DECISIONS_MAX": "1000000",
        "HAI_FLOW_SHUTDOWN_SECONDS": "2",
        "HAI_FLOW_STOP_GRACE_SECONDS": "2",
        "HAI_FLOW_LOGS": "json",
        "PYTHONUNBUFFERED": "1",
        **extra,
    })  # fmt: skip


@contextlib.contextmanager
def _directory(keep: bool) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="hai-flow-chaos-"))
    made.chmod(0o755)  # a PostgreSQL that root starts belongs to somebody else
    try:
        yield made
    finally:
        if not keep:
            shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _disk(directory: Path) -> Iterator[tuple[Path, str]]:
    """The directory for PostgreSQL's files: a small file system, which a fault can fill. With it comes the reason why
    it can't be filled, or ""."""
    disk = directory / "disk"
    disk.mkdir(mode=0o755)
    if os.getuid() != 0 or sys.platform != "linux":
        yield disk, "only root can mount a small file system"
        return
    size = f"size={DISK_MIB}m,mode=755"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "hai-flow-chaos", disk], capture_output=True, text=True)
    if made.returncode:
        yield disk, f"a small file system can't be mounted: {made.stderr.strip()}"
        return
    try:
        yield disk, ""
    finally:
        subprocess.run(["umount", "-l", disk], capture_output=True)


def _library(directory: Path) -> tuple[Path | None, str]:
    """The library that makes clocks wrong; or None, and why."""
    if sys.platform != "linux":
        return None, "clocks can be stepped on Linux only"
    compiler = shutil.which("cc")
    if compiler is None:
        return None, "there is no C compiler (cc) for the library that makes clocks wrong"
    library = directory / "skewed.so"
    source = Path(__file__).with_name("skewed.c")
    made = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], capture_output=True, text=True)
    return (None, f"skewed.c can't be compiled: {made.stderr[:200]}") if made.returncode else (library, "")
