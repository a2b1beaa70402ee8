"""The bytecode of the tests, and the constants of our modules that hypothesis draws from, written before the processes
of pytest begin.

pytest rewrites the assertions of every module, and hypothesis reads ours, in each process: 20 s and 3 s of a processor.
"""

from __future__ import annotations

import compileall
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Final

from _pytest.assertion import rewrite
from hypothesis.internal.constants_ast import constants_from_module

TESTS: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = TESTS.parent / "hai_flow"
CHUNK: Final = 16  # modules that a process takes at a time


def bytecode_of(module: Path) -> Path:
    """Where pytest looks for the bytecode of a test module."""
    return rewrite.get_cache_dir(module) / f"{module.stem}{rewrite.PYC_TAIL}"


def write_rewritten(module: Path) -> bool:
    """Write the bytecode of a module of tests unless it is there already, and return whether it was written."""
    bytecode = bytecode_of(module)
    if rewrite._read_pyc(module, bytecode) is not None:
        return False
    source_hash, code = rewrite._rewrite_test(module, None)  # type: ignore[arg-type]  # its settings concern a hook of plugins
    bytecode.parent.mkdir(parents=True, exist_ok=True)
    unfinished = bytecode.with_name(f"{bytecode.name}.rewriting")
    with unfinished.open("wb") as file:
        rewrite._write_pyc_fp(file, source_hash, code)
    unfinished.replace(bytecode)
    return True


def is_rewritten(module: Path) -> bool:
    """Whether pytest rewrites the module: those of tests, and what it reads for their sake."""
    return module.name.startswith("test_") or module.name == "conftest.py"


def write_constants(module: Path) -> None:
    """Keep the constants of a module of ours where hypothesis looks for them."""
    namespace = ModuleType(module.stem)
    namespace.__file__ = str(module)
    constants_from_module(namespace)


def main(directory: Path) -> None:
    """Write the bytecode of all modules in `directory` with all cores."""
    modules = [each for each in directory.rglob("*.py") if "node_modules" not in each.parts]
    with ProcessPoolExecutor() as processes:
        rewritten = processes.map(write_rewritten, filter(is_rewritten, modules), chunksize=CHUNK)
        for module in modules:
            if not is_rewritten(module):
                compileall.compile_file(module, quiet=1)
        sum(rewritten)
        list(processes.map(write_constants, PACKAGE.rglob("*.py"), chunksize=CHUNK))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TESTS)
