"""A browser, the pages for it, and a server that lets them in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import rig
from tests.clients.conftest import agent, http, node_driver, publish_flows
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

__all__ = ["agent", "http", "node_driver"]

HERE = Path(__file__).resolve().parent


def chromium() -> str | None:
    """The browser: one of this machine or, as root on Debian, the package; None = Playwright's own, fetched by it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None and shutil.which("apt-get") and os.getuid() == 0:
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        found = shutil.which("chromium")
    return found


def playwrights_own(project: Path) -> None:
    """Fetch the browser that Playwright brings along."""
    command = [rig.node(), "node_modules/playwright-core/cli.js", "install", "chromium"]
    answer = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise rig.CannotInstall(
            "There is no browser: no chromium on PATH, none from apt-get (needs root and Debian), and Playwright could "
            f"not fetch its own. Install chromium, then run this again.\n{answer.stderr[-2000:]}"
        )


class Browser:
    """A real browser with the pages of this directory."""

    def __init__(self, driver: rig.Driver, executable: str | None) -> None:
        self.driver = driver
        self.origin = driver.ask("start", executable=executable, sandbox=os.getuid() != 0)["origin"]


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; each opens pages of its own."""
    project = rig.project_beside(rig.npm_packages(HERE), HERE, tmp_path_factory.mktemp("browsers"))
    executable = chromium()
    if executable is None:
        playwrights_own(project)
    with rig.driving([rig.node(), "driver.mjs"], project) as driver:
        yield Browser(driver, executable)


@pytest.fixture(scope="package")
def server(postgres_server: Server, browser: Browser) -> Iterator[ServerProcess]:
    """A server that allows the pages' origin, as an operator would."""
    allowed = {"HAI_FLOW_ALLOWED_ORIGINS": browser.origin}
    with postgres_server.database() as dsn, serving(dsn, environment=allowed) as process:
        publish_flows(process.url)
        yield process
