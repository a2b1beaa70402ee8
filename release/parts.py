"""Builds the wheel, the sdist, the wheels of the plugins and the npm tarball.

The wheel is built from the sdist, to prove that the sdist lacks nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from console import building
from release.versions import PLUGINS, ROOT, ReleaseError


def run(*command: str | Path, folder: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """The command's output. Raises ReleaseError with its last words where it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        words = "\n".join(done.stdout.strip().splitlines()[-20:])
        raise ReleaseError(f"This failed: {' '.join(str(word) for word in command)}\n{words}")
    return done.stdout


def when() -> str:
    """The time of the commit, as SOURCE_DATE_EPOCH: the same sources make the same files."""
    try:
        return run("git", "log", "-1", "--format=%ct").strip()
    except (ReleaseError, OSError):
        return "1577836800"


def build(work: Path, dist: Path) -> list[Path]:
    """Build the files of the release into `dist`. `work` is an empty folder for the steps between."""
    tools = work / "tools"
    run(sys.executable, "-m", "venv", tools)
    lock = ROOT / "deploy" / "image" / "build.lock"
    run(tools / "bin" / "pip", "install", "-q", "--require-hashes", "-r", lock)
    backend = "import sys; sys.path.insert(0, 'console'); import console_backend as b; print(b.{}(sys.argv[1]))"
    at = {"SOURCE_DATE_EPOCH": when()}
    python = tools / "bin" / "python"
    sdist = dist / run(python, "-c", backend.format("build_sdist"), dist, env=at).split()[-1]
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "sdist", filter="data")
    (sources,) = (work / "sdist").iterdir()
    wheel = dist / run(python, "-c", backend.format("build_wheel"), dist, folder=sources, env=at).split()[-1]
    hatchling = f"from hatchling import build; print(build.build_wheel({str(dist)!r}))"
    plugins = [
        dist / run(python, "-c", hatchling, folder=ROOT / "plugins" / name, env=at).split()[-1] for name in PLUGINS
    ]
    return [wheel, sdist, *plugins, _npm(work, dist, at)]


def _npm(work: Path, dist: Path, at: Mapping[str, str]) -> Path:
    try:
        node, npm = building.find_node()
    except building.BuildError as error:
        raise ReleaseError(str(error)) from None
    client = work / "client"
    run("cp", "-r", ROOT / "clients" / "typescript", client)
    path = {**at, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    run(node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", folder=client, env=path)
    # As `prepack` does; npm would start another npm by its name, and the one of the wheel has none on PATH.
    run(node, "scripts/clean.mjs", folder=client, env=path)
    run(node, "node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json", folder=client, env=path)
    packing = ("pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", dist)
    return dist / run(node, npm, *packing, folder=client, env=path).split()[-1]
