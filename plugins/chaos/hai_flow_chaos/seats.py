"""A seat: the place of one process, which is begun again whenever it ends, as an init system would.

Each has proxies of its own, so that a fault meets one process and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from hai_flow.errors import StoreError
from hai_flow_chaos.history import History, Mark
from hai_flow_chaos.proxy import Address, Line, Proxy

Role: TypeAlias = Literal["serve", "worker"]

AGAIN_SECONDS: Final = 0.3  # until a process that has ended is begun again
LOOK_SECONDS: Final = 0.1
_READY: Final = re.compile(rb"Serving http://127\.0\.0\.1:(\d+)|Worker \S+ performs")


class Clock:
    """The offset of a process's wall clock, in a file that the preloaded library reads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(bytes(8))
        file.chmod(0o644)

    def step(self, seconds: float) -> None:
        """From now on it is wrong by so much; 0: it is right again."""
        with self.file.open("r+b", buffering=0) as file:
            file.write(int(seconds * 1_000_000).to_bytes(8, "little", signed=True))


class Nursery:
    """The process that all others are forked from (`nursery`). `environment` is its own."""

    def __init__(self, environment: Mapping[str, str], home: Path) -> None:
        self._environment = environment
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._ends: dict[str, asyncio.Future[int]] = {}
        self.ready = asyncio.Event()

    async def live(self) -> None:
        """Start the process, and read its reports, until cancelled. Raises StoreError where it ends by itself."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hai_flow_chaos.nursery",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=self._environment, cwd=self._home,
        )  # fmt: skip
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                told = json.loads(line)
                if told["name"] == "":
                    self.ready.set()
                elif "ended" in told:
                    self._ends.pop(told["name"]).set_result(told["ended"])
            raise StoreError("The campaign's processes can't be begun; what was wrong stands above.")
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # and everybody with it
            await self._process.wait()

    def begin(self, name: str, **asked: Any) -> asyncio.Future[int]:
        """Begin `name`, which has ended, or was never begun; its exit code, as soon as it has ended."""
        ended = self._ends[name] = asyncio.get_running_loop().create_future()
        self._tell(name=name, **asked)
        return ended

    def send(self, name: str, number: int) -> None:
        """Send a signal."""
        self._tell(name=name, signal=number)

    def _tell(self, **what: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")


class Seat:
    """The place of one process. `environment` is given to it; `postgres` says where its database is now."""

    def __init__(
        self,
        name: str,
        role: Role,
        nursery: Nursery,
        clock: Clock | None,
        environment: Mapping[str, str],
        postgres: Callable[[], Address | None],
        history: History,
        log: Path,
        home: Path,
    ) -> None:
        self.name, self.role, self.clock = name, role, clock
        self.database, self.hints = Proxy(postgres, Line), Proxy(postgres, Line)
        self.front = Proxy(lambda: self._address, Line)
        self.ready = asyncio.Event()
        self.closing = False
        self._nursery, self._environment = nursery, environment
        self._history, self._log, self._home = history, log, home
        self._address: Address | None = None
        self._ended: asyncio.Future[int] | None = None
        self._expected = False  # its end, because we have killed it
        self._stopped = False

    async def live(self) -> None:
        """Begin the process again and again, until cancelled."""
        await self._nursery.ready.wait()
        async with self.database, self.hints, self.front:
            while not self.closing:
                await self._one_life()
                await asyncio.sleep(AGAIN_SECONDS)

    async def _one_life(self) -> None:
        began, self._expected, self._stopped = self._history.now(), False, False
        self._log.touch()
        told = self._log.stat().st_size
        self._ended = self._nursery.begin(
            self.name,
            words=["worker"] if self.role == "worker" else ["serve", "--host", "127.0.0.1", "--port", "0"],
            environment=self._whole_environment(),
            home=str(self._home),
            log=str(self._log),
            clock=None if self.clock is None else str(self.clock.file),
        )
        while not self._ended.done():
            if not self.ready.is_set():
                self._look(told)
            await asyncio.wait({self._ended}, timeout=None if self.ready.is_set() else LOOK_SECONDS)
        code, was_ready, self._address = self._ended.result(), self.ready.is_set(), None
        self.ready.clear()
        self._history.marks.append(Mark(began, self._history.now(), "life", self.name, f"ended with {code}"))
        if was_ready and not self._expected and not self.closing:
            self._history.breaks("no process ends by itself", self.name, f"it ended with {code}; see {self._log}")

    def _whole_environment(self) -> dict[str, str]:
        way = "postgresql://postgres@127.0.0.1:{port}/chaos?sslmode=disable"
        return {
            **self._environment,
            "HAI_FLOW_DATABASE_URL": way.format(port=self.database.port),
            "HAI_FLOW_DATABASE_DIRECT_URL": way.format(port=self.hints.port),
        }

    def _look(self, start: int) -> None:
        """Look for the line of readiness in its log behind `start`; note the address in it."""
        with self._log.open("rb") as log:
            log.seek(start)
            found = _READY.search(log.read(65536))
        if found is not None:
            self._address = None if found[1] is None else ("127.0.0.1", int(found[1]))
            self.ready.set()

    @property
    def lives(self) -> bool:
        """Whether the process is running."""
        return self._ended is not None and not self._ended.done()

    async def ended(self) -> None:
        """Wait until the process has ended."""
        if self._ended is not None:
            await asyncio.wait({self._ended})

    def kill(self) -> bool:
        """kill -9. Returns whether there was a process."""
        if not self.lives:
            return False
        self._expected = True
        self._nursery.send(self.name, signal.SIGKILL)
        return True

    def stop(self) -> bool:
        """SIGSTOP. Whether there was a process that went on until now."""
        if not self.lives or self._stopped:
            return False
        self._stopped = True
        self._nursery.send(self.name, signal.SIGSTOP)
        return True

    def go_on(self) -> None:
        """SIGCONT."""
        self._stopped = False
        if self.lives:
            self._nursery.send(self.name, signal.SIGCONT)


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without any setting of ours, and with `extra`."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HAI_FLOW_", "PG", "LD_PRELOAD"))}
    return {**kept, **extra}
