"""The TypeScript client, built apart from the checkout, the Node that runs it, and the backend of its example page."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

from clients.examples.backend import Backend
from tests.clients import rig
from tests.support.server import ROOT

PROJECT = ROOT / "clients" / "typescript"


def node(directory: Path, *command: str) -> str:
    """What the command wrote to standard output. It must succeed."""
    answer = subprocess.run([rig.node(), *command], cwd=directory, capture_output=True, encoding="utf-8", timeout=100)
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-6000:]
    return answer.stdout


def npm() -> str:
    """The program of the Node that is used, for that Node to run."""
    return str(Path(rig.node()).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def built(directory: Path) -> Path:
    """A copy of the package in `directory`, built. Its dependencies are those of its lock."""
    package = directory / "package"
    shutil.copytree(PROJECT, package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (package / "node_modules").symlink_to(rig.npm_packages(PROJECT) / "node_modules")
    node(package, "node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json")
    return package


@contextmanager
def running(backend: Backend) -> Iterator[Backend]:
    """The backend serves until the end."""
    with backend:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        yield backend
        backend.shutdown()


def page_address(origin: str, url: str, thread_id: str) -> str:
    """The example page on a thread of the agent at `url`, with tokens of the backend that serves the page."""
    return f"{origin}/example/index.html?{urlencode({'url': url, 'token': '/token'})}#{quote(thread_id)}"
