"""The faults of a plan, done to a stage at their time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow_chaos.clients import Caller
from hai_flow_chaos.history import FreezeDrill, History, Mark
from hai_flow_chaos.plan import OBEYED_SECONDS, Fault, Kind
from hai_flow_chaos.proxy import Direction, Line
from hai_flow_chaos.services import pick_program, signal_program
from hai_flow_chaos.stage import Stage

if TYPE_CHECKING:
    from asyncpg import Connection

SLOW_DISK: Final = ("ALTER SYSTEM SET commit_delay = 60000", "ALTER SYSTEM SET commit_siblings = 0")
RIGHT_DISK: Final = ("ALTER SYSTEM RESET commit_delay", "ALTER SYSTEM RESET commit_siblings")
CROWD_MAX: Final = 400
STALL_WAITS_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.2  # for connections that are new
LOOKS_MAX: Final = 15
_SWALLOWED: Final[tuple[tuple[Direction, ...], ...]] = ((), ("to server",), ("to client",))
_MIB: Final = 1024 * 1024
_NO_CONNECTION: Final = (*FAILURES, TimeoutError)


class Faults:
    """Performs the faults of a plan. Chance within a fault (which of the connections) is drawn from the seed, too."""

    def __init__(self, stage: Stage, history: History, seed: int) -> None:
        self._stage = stage
        self._history = history
        self._chance = random.Random(f"faults of {seed}")
        self._caller = Caller(stage, history, random.Random(f"freezes of {seed}"))

    async def do(self, plan: Sequence[Fault], began: float) -> None:
        """Perform all faults, each at its time in seconds after `began` by the campaign's clock. Returns after the
        last."""
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                await asyncio.sleep(max(0.0, began + fault.at - self._history.now()))
                group.create_task(self._one(fault))

    async def _one(self, fault: Fault) -> None:
        at = self._history.now()
        if fault.kind in self._stage.lacking:
            self._history.tallies[f"{fault.kind} left out"] += 1
            return
        note = await _DOINGS[fault.kind](self, fault)
        self._history.marks.append(Mark(at, self._history.now(), fault.kind, fault.whom, note))

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _kill(self, fault: Fault) -> str:
        if self._stage.seat(fault.whom).kill():
            self._history.tallies["processes_killed"] += 1
            return ""
        return "it was just beginning again"

    async def _stall(self, fault: Fault) -> str:
        seat = self._stage.seat(fault.whom)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(seat.ready.wait(), STALL_WAITS_SECONDS)  # it was killed a moment ago, perhaps
        if not seat.stop():
            return "there was nobody to stop"
        self._history.tallies["processes_stalled"] += 1
        await asyncio.sleep(fault.seconds)
        seat.go_on()
        return ""

    async def _kill_service(self, fault: Fault) -> str:
        if not self._stage.service.send(signal.SIGKILL):
            return "it was just beginning again"
        self._history.tallies["services_killed"] += 1
        return ""

    async def _stall_service(self, fault: Fault) -> str:
        if not self._stage.service.send(signal.SIGSTOP):
            return "there was nobody to stop"
        await asyncio.sleep(fault.seconds)
        self._stage.service.send(signal.SIGCONT)
        return ""

    async def _kill_program(self, fault: Fault) -> str:
        process = pick_program(self._stage.programs, self._chance)
        if process is None or not signal_program(process, signal.SIGKILL):
            return "there was none"
        self._history.tallies["services_killed"] += 1
        return ""

    async def _stall_program(self, fault: Fault) -> str:
        process = pick_program(self._stage.programs, self._chance)
        if process is None or not signal_program(process, signal.SIGSTOP):
            return "there was none"
        await asyncio.sleep(fault.seconds)
        signal_program(process, signal.SIGCONT)
        return ""

    async def _step_clock(self, fault: Fault) -> str:
        clock = self._stage.clock if fault.whom == "postgres" else self._stage.seat(fault.whom).clock
        assert clock is not None, "it is left out where there are none"
        clock.step(fault.amount)
        await asyncio.sleep(fault.seconds)
        clock.step(0)
        return f"by {fault.amount:+.1f} s"

    # --- lines --------------------------------------------------------------------------------------------------------

    def _some(self, lines: Sequence[Line], share: float) -> list[Line]:
        return self._chance.sample(lines, max(1, round(len(lines) * share))) if lines else []

    async def _cut(self, fault: Fault) -> str:
        seat = self._stage.seat(fault.whom)
        return self._cut_some([*seat.database.lines(), *seat.hints.lines()], fault.amount)

    async def _cut_clients(self, fault: Fault) -> str:
        return self._cut_some(self._stage.seat(fault.whom).front.lines(), fault.amount)

    def _cut_some(self, lines: Sequence[Line], share: float) -> str:
        chosen = self._some(lines, share)
        for line in chosen:
            line.cut(reset=self._chance.random() < 0.5)
        self._history.tallies["connections_cut"] += len(chosen)
        return f"{len(chosen)} connections"

    async def _silence(self, fault: Fault) -> str:
        seat = self._stage.seat(fault.whom)
        return self._silence_some([*seat.database.lines(), *seat.hints.lines()], fault.amount)

    async def _silence_clients(self, fault: Fault) -> str:
        return self._silence_some(self._stage.seat(fault.whom).front.lines(), fault.amount)

    def _silence_some(self, lines: Sequence[Line], share: float) -> str:
        chosen = self._some(lines, share)
        for line in chosen:
            line.swallow(*self._chance.choice(_SWALLOWED))
        self._history.tallies["connections_silenced"] += len(chosen)
        return f"{len(chosen)} connections"

    async def _lose_answers(self, fault: Fault) -> str:
        """For a while, cut some of the seat's connections to PostgreSQL when its answer comes: the statement was
        performed, and the seat does not learn it."""
        seat, end, lost = self._stage.seat(fault.whom), self._history.now() + fault.seconds, set[Line]()
        while self._history.now() < end:
            fresh = [line for line in seat.database.lines() if line not in lost]
            for line in fresh:
                lost.add(line)
                if self._chance.random() < fault.amount:
                    line.cut_at("to client")
                    self._history.tallies["answers_lost"] += 1
            await asyncio.sleep(LOOK_SECONDS)
        return f"of {len(lost)} connections"

    async def _deafen(self, fault: Fault) -> str:
        for seat in self._stage.seats:
            seat.hints.swallow()
        await asyncio.sleep(fault.seconds)
        for seat in self._stage.seats:
            seat.hints.speak(reset=True)
        self._history.tallies["seconds_without_hints"] += round(fault.seconds)
        return ""

    # --- PostgreSQL ---------------------------------------------------------------------------------------------------

    async def _crash(self, fault: Fault) -> str:
        self._stage.crash(fault.seconds)
        self._history.tallies["postgres_crashed"] += 1
        await self._stage.until_up()
        return ""

    async def _fill_disk(self, fault: Fault) -> str:
        try:
            filled = await asyncio.to_thread(self._fill)
            await asyncio.sleep(fault.seconds)
        finally:
            self._stage.ballast.unlink(missing_ok=True)
        return f"{filled // _MIB} MiB"

    def _fill(self) -> int:
        """Fill the disk until no room is left. Returns the number of bytes that took."""
        filled, piece = 0, 16 * _MIB
        with self._stage.ballast.open("wb") as file:
            while piece >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), filled, piece)
                    filled += piece
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2
        return filled

    async def _slow_disk(self, fault: Fault) -> str:
        slow = await self._set(SLOW_DISK)
        await asyncio.sleep(fault.seconds)
        while not await self._set(RIGHT_DISK):
            await self._stage.until_up()
            await asyncio.sleep(0.5)
        return "each commit takes 60 ms longer" if slow else "PostgreSQL could not be told"

    async def _set(self, statements: Sequence[str]) -> bool:
        return await self._execute(*statements, "SELECT pg_reload_conf()") is not None

    async def _forget(self, fault: Fault) -> str:
        done = await self._execute(f"DELETE FROM snapshots WHERE random() < {fault.amount}")
        gone = 0 if done is None else int(done.rpartition(" ")[2])
        self._history.tallies["snapshots_deleted"] += gone
        return f"{gone} snapshots"

    async def _freeze(self, fault: Fault) -> str:
        """Freeze the tenant over REST, and note where each run stands when nothing may begin any more."""
        reason, ask = f"a drill at {fault.at}", self._caller.ask
        await ask("operator", "POST", "/v1/freezes", {"scope": "tenant", "reason": reason})
        places: dict[str, int] | None = None
        try:
            await asyncio.sleep(OBEYED_SECONDS)
            places = await self._read_places()
            since = self._history.now()
            await asyncio.sleep(max(0.5, fault.seconds - OBEYED_SECONDS))
            if places is not None:
                self._history.drills.append(FreezeDrill(since, self._history.now(), places))
        finally:  # an answer may have been lost, so there may be two
            frozen = (await ask("operator", "GET", "/v1/freezes")).body["items"]
            for each in frozen:
                if each["reason"] == reason:
                    await ask("operator", "POST", f"/v1/freezes/{each['id']}/thaw")
        self._history.tallies["freezes"] += 1
        return "" if places is not None else "nobody could look"

    async def _read_places(self) -> dict[str, int] | None:
        """The number of events of each run; None: PostgreSQL was not there for some seconds."""
        for _ in range(LOOKS_MAX):
            try:
                connection = await self._stage.connect()
                try:
                    return {str(id): seq for id, seq in await connection.fetch("SELECT id, seq FROM runs")}
                finally:
                    await connection.close(timeout=2)
            except _NO_CONNECTION:
                await asyncio.sleep(LOOK_SECONDS)
        return None

    async def _execute(self, *statements: str) -> str | None:
        """The command tag of the last statement, like `DELETE 3`; None: PostgreSQL was not there for all of them."""
        done = ""
        try:
            connection = await self._stage.connect()
            try:
                for statement in statements:
                    done = await connection.execute(statement)
            finally:
                await connection.close(timeout=2)
        except _NO_CONNECTION:
            return None
        return done

    async def _crowd(self, fault: Fault) -> str:
        """Take every connection that is left, and cut those of one process, which then gets none."""
        taken: list[Connection[Any]] = []
        try:
            while len(taken) < CROWD_MAX:
                more = await asyncio.gather(*(self._stage.connect() for _ in range(20)), return_exceptions=True)
                taken += [each for each in more if not isinstance(each, BaseException)]
                if any(isinstance(each, _NO_CONNECTION) for each in more):
                    break
            seat = self._chance.choice(self._stage.seats)
            for line in seat.database.lines():
                line.cut(reset=True)
            await asyncio.sleep(fault.seconds)
        finally:
            for connection in taken:
                with contextlib.suppress(*_NO_CONNECTION):
                    connection.terminate()
        return f"{len(taken)} connections taken; {seat.name} lost its own"


_DOINGS: Final[dict[Kind, Callable[[Faults, Fault], Awaitable[str]]]] = {
    "kill_worker": Faults._kill,
    "kill_server": Faults._kill,
    "crash_postgres": Faults._crash,
    "cut": Faults._cut,
    "silence": Faults._silence,
    "lose_answers": Faults._lose_answers,
    "cut_clients": Faults._cut_clients,
    "silence_clients": Faults._silence_clients,
    "stall": Faults._stall,
    "deafen": Faults._deafen,
    "step_clock": Faults._step_clock,
    "fill_disk": Faults._fill_disk,
    "slow_disk": Faults._slow_disk,
    "crowd": Faults._crowd,
    "freeze": Faults._freeze,
    "forget": Faults._forget,
    "kill_service": Faults._kill_service,
    "stall_service": Faults._stall_service,
    "kill_program": Faults._kill_program,
    "stall_program": Faults._stall_program,
}
