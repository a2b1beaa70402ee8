"""README's way to production, typed as it stands there: from an empty PostgreSQL to a question that is decided."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.support.commands import ROOT, environment
from tests.support.postgres import Server

pytestmark = pytest.mark.costly

SECONDS_MAX = 120.0
END = "echo the-end-of-a-block"


def typed(name: str) -> list[str]:
    """The blocks of commands of the section about production."""
    section = re.split(r"^## ", (ROOT / name).read_text(), flags=re.MULTILINE)
    (found,) = (each for each in section if "keys create" in each)
    return re.findall(r"```sh\n(.*?)```", found, re.DOTALL)


class Shell:
    """A shell that is typed into, and what it has said."""

    def __init__(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        self._process, self._said = process, said

    def text(self) -> str:
        self._said.seek(0)
        return self._said.read()

    def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def wait_for(self, pattern: str, again: str = "") -> re.Match[str]:
        """The first place where it has said so; until then `again` is typed once more each second."""
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            if (found := re.search(pattern, self.text())) is not None:
                return found
            assert self._process.poll() is None, self.text()
            time.sleep(0.1 if not again else 1)
            self.type(again)
        raise AssertionError(f"it never said {pattern}:\n{self.text()}")


@contextmanager
def shell(folder: Path, **settings: str) -> Iterator[Shell]:
    """A shell in the checkout. With it end the processes that were started in it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    file = folder / "said"
    with file.open("w") as out:
        process = subprocess.Popen(
            ["bash", "-s"], stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=ROOT, text=True,
            env={**environment(**settings), "PATH": path}, start_new_session=True,
        )  # fmt: skip
    try:
        with file.open() as said:
            yield Shell(process, said)
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(30)
        finally:
            if process.stdin is not None:
                process.stdin.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_readmes_way_to_production_ends_with_a_decided_question(
    name: str, postgres_server: Server, tmp_path: Path
) -> None:
    first, then = typed(name)
    before, decide, after = re.split(r"^(hai-flow decide call_\.\.\. .*\n)", then, flags=re.MULTILINE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = {"HAI_FLOW_PORT": str(port), "HAI_FLOW_URL": f"http://127.0.0.1:{port}"}
    with postgres_server.database(migrated=False) as dsn, shell(tmp_path, **here) as person:
        person.type(first.replace("postgresql://user@host/hai_flow", f"'{dsn}'"))
        person.wait_for(r"Serving http://\S+")
        person.type(before)
        question = person.wait_for(r"\bcall_\w+", again="hai-flow inbox\n")[0]
        person.type(decide.replace("call_...", question))
        person.wait_for(r"pay: approve")
        person.type(after)
        person.wait_for(r"http://\S+/sign-in/link/\S+")
        person.type(f"hai-flow runs --json; {END}\n")
        person.wait_for("the-end-of-a-block")
        person.type(f"hai-flow runs --json > '{tmp_path}/runs'; {END}\n")
        while "finished" not in _status(tmp_path / "runs"):
            person.type(f"hai-flow runs --json > '{tmp_path}/next' && mv '{tmp_path}/next' '{tmp_path}/runs'\n")
            time.sleep(1)
        assert "Error" not in person.text(), person.text()


def _status(file: Path) -> list[str]:
    try:
        return [each["status"] for each in json.loads(file.read_text())["items"]]
    except (OSError, ValueError):
        return []
