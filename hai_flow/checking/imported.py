"""The functions of a Python module, found by importing it in a process of its own.

An import runs whatever the module says. So the process has limits: of time, of memory, and of the bytes that it may
answer with; it has no input, its output goes nowhere, and all that it started ends with it. It works as a script, too:
`python -m hai_flow.checking.imported ROOT MODULE` writes a line of JSON to the file descriptor 3."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from hai_flow.definition.schemas.python_modules import FunctionSource, PythonModule

SECONDS_MAX: Final = 10.0
MEMORY_BYTES_MAX: Final = 4 << 30  # of addresses, of which libraries for numbers reserve many
ANSWER_BYTES_MAX: Final = 4 << 20
_ANSWER: Final = 3  # the file descriptor


class NotImported(Exception):
    """The module can't be imported. `certain`: not here alone, where a package may be missing that others have."""

    def __init__(self, reason: str, *, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


def import_module(name: str, root: Path, seconds: float = SECONDS_MAX) -> PythonModule:
    """The functions of the module, which lies below `root` or is installed. Raises NotImported."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", __name__, str(root), name]
    path = os.pathsep.join(each for each in sys.path if each)
    try:
        with subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(writing,), start_new_session=True,
            env={**os.environ, "HAI_FLOW_ANSWER_FD": str(writing), "PYTHONPATH": path},
        ) as process:  # fmt: skip
            os.close(writing)
            writing = -1
            try:
                answer = _read(reading, time.monotonic() + seconds)
            finally:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    if answer is None:
        raise NotImported(f"importing {name} did not end within {seconds:g} s; keep the work of a module in functions")
    try:
        report = json.loads(answer)
    except ValueError:
        raise NotImported(f"importing {name} ended the process (exit code {process.returncode})") from None
    if "fault" in report:
        raise NotImported(report["fault"], certain=report["certain"])
    functions = {
        key: FunctionSource(
            tuple(each["parameters"]), frozenset(each["required"]), each["any"], each["types"], False, each["result"]
        )
        for key, each in report["functions"].items()
    }
    return PythonModule(functions, frozenset(report["registered"]), frozenset(), False)


def _read(pipe: int, until: float) -> bytes | None:
    """All that is written to the pipe; None where that does not end in time, or is too much."""
    answer = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(answer) <= ANSWER_BYTES_MAX:
            if not selector.select(max(0.0, until - time.monotonic())):
                return None
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return bytes(answer)
            answer += piece
            if answer.endswith(b"\n"):
                return bytes(answer)
    return None


# --- in the process that imports --------------------------------------------------------------------------------------


def _main(root: str, name: str) -> None:
    answer = int(os.environ.pop("HAI_FLOW_ANSWER_FD"))
    _limit_memory()
    sys.path.append(root)
    try:
        report = _functions(name, root)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        certain = missing is None or any(Path(root).glob(f"{missing.partition('.')[0]}*"))
        report = {"fault": _reason(error, root, name), "certain": certain}
    os.write(answer, json.dumps(report).encode() + b"\n")
    os._exit(0)  # threads of the module, and what it wants to do at its end, are not waited for


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _functions(name: str, root: str) -> dict[str, Any]:
    from hai_flow.errors import StepError
    from hai_flow.steps.python.toolbox import Toolbox
    from hai_flow.steps.tools import registered

    toolbox = Toolbox([name], project=Path(root))
    by_name: dict[str, Any] = {}
    try:
        functions = toolbox.functions(name, name.rpartition(".")[2], from_disk=True)
    except StepError as error:
        raise error.__cause__ or error from None
    for attribute, value in vars(sys.modules[name]).items():
        if isinstance(value, partial):
            with suppress(StepError):
                functions.setdefault(attribute, toolbox.find(name, attribute, "", from_disk=True))
    for key, function in functions.items():
        schema = function.signature.parameters
        properties = schema.get("properties", {})
        definitions = {word: schema[word] for word in ("$defs",) if word in schema}
        by_name[key] = {
            "parameters": list(properties),
            "required": schema.get("required", []),
            "any": bool(schema.get("additionalProperties")),
            "types": {each: {**described, **definitions} for each, described in properties.items()},
            "result": None if "stream" in function.kind else function.signature.result,
        }
    names = set(registered.of(name))
    for alias, function in registered.of(name).items():
        by_name.setdefault(alias, by_name.get(function.function.__name__))
    marked = names | {each.function.__name__ for each in registered.of(name).values()}
    return {"functions": {key: each for key, each in by_name.items() if each is not None}, "registered": sorted(marked)}


def _reason(error: BaseException, root: str, name: str) -> str:
    """The error, with its last place below `root`."""
    import traceback

    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_relative(error.filename, root)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    reason = f"{reason}, which ends the process that imports it" if isinstance(error, SystemExit) else reason
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(os.path.join(root, "")):
            return f"{_relative(frame.filename, root)}:{frame.lineno}: {reason}"
    return f"importing {name}: {reason}"


def _relative(file: str, root: str) -> str:
    return os.path.relpath(file, root) if file.startswith(os.path.join(root, "")) else file


if __name__ == "__main__":
    _main(*sys.argv[1:])
