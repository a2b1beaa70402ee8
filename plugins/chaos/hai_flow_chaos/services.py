"""The services of others: a model and a server of MCP in one process, and a program that speaks MCP, which the workers
start. They are killed and stopped like our own processes.

    python -m hai_flow_chaos.services serve PORT
    python -m hai_flow_chaos.services program DIRECTORY       (it writes a file there that is named after its process)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

from hai_flow_chaos.effects import World
from hai_flow_chaos.history import History
from hai_flow_chaos.mcp_answers import answer

AGAIN_SECONDS: Final = 0.3


class Service:
    """The process of the model and of the server of MCP, which is begun again whenever it ends, at the same address."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def live(self) -> None:
        """Begin the process again and again, until cancelled."""
        with self._log.open("ab") as log:
            while True:
                self._process = process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "hai_flow_chaos.services", "serve", str(self._port), stdout=log, stderr=log
                )
                try:
                    await process.wait()
                finally:
                    self.send(signal.SIGKILL)
                await asyncio.sleep(AGAIN_SECONDS)

    async def wait_ready(self) -> None:
        """Wait until somebody answers at the address."""
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                return
            await asyncio.sleep(0.05)

    def send(self, number: signal.Signals) -> bool:
        """Send the process a signal. Whether there was one."""
        if self._process is None or self._process.returncode is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        return True


def pick_program(directory: Path, chance: random.Random) -> int | None:
    """The process of one of the programs that live; None: none does."""
    for file in chance.sample(files := sorted(directory.iterdir()), len(files)):
        if signal_program(int(file.name)):
            return int(file.name)
        file.unlink(missing_ok=True)
    return None


def signal_program(process: int, number: int = 0) -> bool:
    """Send a program a signal. Whether it lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
        return True
    return False


async def _serve(port: int) -> None:
    async with World(History(), port):
        await asyncio.Event().wait()


def _speak(directory: Path) -> None:
    (directory / str(os.getpid())).touch()
    for line in sys.stdin:
        message: Any = answer(json.loads(line))
        if message is not None:
            print(json.dumps(message), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(_serve(int(sys.argv[2])))
    else:
        _speak(Path(sys.argv[2]))
