"""The process that servers and workers are forked from: it has imported their modules, so that they start at once.

    python -m hai_flow_chaos.nursery

Takes lines of JSON on stdin: `{"name", "words", "environment", "home", "log", "clock"}` forks `hai-flow WORDS` with
that environment, and `{"name", "signal"}` sends it a signal. Writes `{"name", "pid"}` and `{"name", "ended"}` to
stdout. Without the imports beforehand, a campaign with a hundred kills would spend most of its time on starting.

It has one thread, never holds a lock when it forks, and opens nothing that a process would inherit but its log. When
stdin ends, it kills all of its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
from typing import Any, Final

PRELOADED: Final = (
    "alembic.command", "hai_flow.api.app", "hai_flow.api.http.server", "hai_flow_chaos.tools",
    "hai_flow.cli.serve.processes",
    "hai_flow.models.chat",
    "hai_flow.runtime.runtime", "hai_flow.steps.http.runner", "hai_flow.telemetry.watching", "mcp",
    "structlog", "uvloop",
)  # fmt: skip
_DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


class Nursery:
    """Its children, by their pids."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def serve(self) -> None:
        """Obey commands on stdin until that ends."""
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        text = b""
        while True:
            ready, _, _ = select.select([0, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                self._bury()
            if 0 not in ready:
                continue
            data = os.read(0, 65536)
            if not data:
                break
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))
        for pid in self._names:
            _send(pid, signal.SIGKILL)

    def _obey(self, asked: dict[str, Any]) -> None:
        if "signal" in asked:
            for pid in [pid for pid, name in self._names.items() if name == asked["name"]]:
                _send(pid, asked["signal"])
            return
        pid = os.fork()
        if pid == 0:
            _become(asked)
        self._names[pid] = asked["name"]
        _say(name=asked["name"], pid=pid)

    def _bury(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _say(name=self._names.pop(pid), ended=os.waitstatus_to_exitcode(status))


def _become(asked: dict[str, Any]) -> None:
    """In the new process: be `hai-flow`, and nothing else. Does not return."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        libc = ctypes.CDLL(None)
        if sys.platform == "linux":
            libc.prctl(_DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        log, nothing = (
            os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644),
            os.open(os.devnull, os.O_RDONLY),
        )
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, 64)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["home"])
        if asked["clock"] is not None:
            libc.skewed_by(asked["clock"].encode())
        sys.argv = ["hai-flow", *asked["words"]]
        asyncio.set_event_loop_policy(None)
        gc.unfreeze()
        runpy.run_module("hai_flow.cli", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _say(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the campaign, which then ends us
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _say(name="", pid=os.getpid())
    Nursery().serve()
