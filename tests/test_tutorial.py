"""docs/tutorial.md, done as it says: every file written, every command typed, every page opened, in a fresh folder.

What a block shows after a command must come in that order; `...` stands for anything. Where the reader copies an id
(`call_a...`), so does the test. Two things are stood in for: pip, which would fetch what the tests have installed
already, and the browser, by a small one in Node."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hai_flow.definition.compiler import check_workflow
from tests.clients import rig
from tests.support.commands import ROOT, SECONDS_MAX, environment
from tests.support.pages import Block, blocks

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
READER = ROOT / "tests" / "support" / "reading.mjs"
ENDED = "the command has ended with"
COPIED = re.compile(r"\bcall_a\.\.\.")

# Puts the installed packages and the checkout within reach of the environment that the reader has made.
# That has no pip of its own, which takes longer to install than all the rest.
PIP = """
python3() {{
    [ "$2" = venv ] && set -- "$@" --without-pip
    command python3 "$@"
}}
pip() {{
    [ "$1 $2" = "install ../hai-flow" ] && grep -q '^name = "hai-flow"' "$2/pyproject.toml" || return 1
    site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\\n' {packages} {root} {root}/clients/python > "$site/hai-flow.pth"
    printf '#!%s\\nfrom hai_flow.cli import main\\nmain()\\n' "$VIRTUAL_ENV/bin/python" > "$VIRTUAL_ENV/bin/hai-flow"
    chmod +x "$VIRTUAL_ENV/bin/hai-flow"
}}
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def shown(line: str) -> re.Pattern[str]:
    """What a line of the page may look like in earnest."""
    parts = (re.escape(" ".join(part.split())) for part in line.split("..."))
    return re.compile(r"^\s*" + r".*?".join(parts) + r"\s*$")


class Talk:
    """A process that is told things, line by line; what it says is read as it comes."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )
        self.seen: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """The next line that it says."""
        try:
            self.seen.append(self._lines.get(timeout=SECONDS_MAX))
        except queue.Empty:
            raise AssertionError("nothing more came of:\n" + "\n".join(self.seen)) from None
        return self.seen[-1]

    def close(self) -> None:
        """End it and all that it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            self._listening.join(SECONDS_MAX)
        with self.process:
            pass


class Shell(Talk):
    """One terminal."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(["bash", "--norc", "--noprofile"], cwd=folder, env={**environment(), **variables})
        self.type("trap : INT")  # as a terminal's shell, it stays when Ctrl-C ends the command

    def until(self, expected: list[str]) -> None:
        """Wait for the lines that the page shows, in their order."""
        begun = len(self.seen)
        for each in expected:
            pattern = shown(each)
            while not pattern.match(" ".join(self.line().split())):
                assert ENDED not in self.seen[-1], f"no {each!r} in:\n" + "\n".join(self.seen[begun:])

    def interrupt(self) -> None:
        """Ctrl-C, and wait until that has ended the command."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.until([f"{ENDED} 0"])


class Tab(Talk):
    """A page in the browser that stands in for one."""

    def __init__(self, url: str) -> None:
        super().__init__([rig.node(), "--experimental-eventsource", "--no-warnings", str(READER), url])
        self.lines: list[str] = []

    def until(self, line: str) -> None:
        while line not in self.lines:
            self.lines = json.loads(self.line())

    def press(self, button: str, typed: str | None) -> None:
        self.type(json.dumps({"press": button, "typed": typed}))


class Reader:
    """Somebody who does what the page says, in a folder where nothing is but the checkout."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home
        self.copied = ""
        self._ports = {"8000": str(free_port()), "3000": str(free_port())}
        (home / "hai-flow").symlink_to(ROOT)
        (home / "bin").mkdir()
        (home / "bin" / "python3").symlink_to(sys.executable)
        self._variables = {
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "HAI_FLOW_PORT": self._ports["8000"],
            "HAI_FLOW_URL": f"http://127.0.0.1:{self._ports['8000']}",
        }
        self._shells: dict[str | None, Shell] = {}
        self.tabs: dict[str, Tab] = {}

    def close(self) -> None:
        for each in (*self.tabs.values(), *reversed(self._shells.values())):
            each.close()

    def shell(self, name: str | None) -> Shell:
        if name not in self._shells:
            shell = self._shells[name] = Shell(self.folder, self._variables)
            if name is None:
                packages = sysconfig.get_path("purelib")
                shell.type(PIP.format(packages=shlex.quote(packages), root=shlex.quote(str(ROOT))))
            else:
                shell.type(". .venv/bin/activate")
        return self._shells[name]

    def here(self, text: str) -> str:
        """What the page says, with the ports and the id of this time."""
        for theirs, ours in self._ports.items():
            text = re.sub(rf"\b{theirs}\b", ours, text)
        return COPIED.sub(self.copied, text) if self.copied else text

    def do(self, block: Block) -> None:
        if block.language == "console":
            self.work(block)
        elif block.title is not None and block.title.startswith("http"):
            self.look(block)
        else:
            assert block.title is not None, f"a block that is neither a file nor commands:\n{block.text}"
            (self.folder / block.title).write_text(self.here(block.text))

    def work(self, block: Block) -> None:
        """Type the commands of a block; each must show what the page shows."""
        shell = self.shell(block.title)
        commands = re.split(r"^(?=\$ |\^C$)", block.text, flags=re.MULTILINE)[1:]
        for command, *expected in (each.splitlines() for each in commands):
            if command == "^C":
                shell.interrupt()
                continue
            shell.type(f"{self.here(command[2:])}; code=$?; echo; echo {ENDED} $code")
            if command.endswith("cd orders"):
                self.folder = self.home / "orders"
            shell.until([self.here(each) for each in expected if each != "..."])
            if block.title is None:
                refused = any(each.startswith(("hai-flow:", "failed:")) for each in expected)
                shell.until([f"{ENDED} ..."])
                assert shell.seen[-1].endswith(" 0") != refused, "\n".join(shell.seen)
                self.copy(shell)

    def copy(self, shell: Shell) -> None:
        found = re.findall(r"decide (call_\w+)", "\n".join(shell.seen))
        self.copied = found[0] if found else ""

    def look(self, block: Block) -> None:
        """Open the page of a block unless it is open, see the lines, and press what is to be pressed then."""
        url = self.here(block.title or "")
        if url not in self.tabs:
            self.answers(url.partition("/page")[0])
            self.tabs[url] = Tab(url)
        for line in block.text.splitlines():
            self.tabs[url].until(line)
        if pressed := re.search(r"Press \*\*(\w+)\*\*(?: and type `([^`]+)`)?", block.behind):
            self.tabs[url].press(pressed[1], pressed[2])

    def answers(self, origin: str) -> None:
        """Wait until pages are served there, and see that the server lets them call."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            with contextlib.suppress(httpx2.TransportError):
                assert httpx2.get(f"{origin}/page.html").status_code == 200
                break
            assert time.monotonic() < deadline
        server = self._variables["HAI_FLOW_URL"]
        answer = httpx2.get(f"{server}/v1/runs", headers={"Origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin
        wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,hai-act-as"}
        answer = httpx2.options(f"{server}/v1/pendings/any/decide", headers={"Origin": origin, **wanted})
        assert answer.headers["access-control-allow-headers"] == "content-type,hai-act-as"


@pytest.fixture
def reader() -> Iterator[Reader]:
    with tempfile.TemporaryDirectory(prefix="hai-", ignore_cleanup_errors=True) as directory:
        reader = Reader(Path(directory).resolve())
        try:
            yield reader
        finally:
            reader.close()


@pytest.mark.timeout(600)
def test_what_the_tutorial_says_works_from_the_first_line_to_the_last(reader: Reader) -> None:
    found = blocks(PAGE)
    assert len(found) == PAGE.count("```") // 2
    for block in found:
        reader.do(block)
    assert reader.copied
    assert [tab.lines[-1] for tab in reader.tabs.values()][-1].endswith("Main Street 1.")


def test_its_workflows_are_without_findings() -> None:
    written = [block for block in blocks(PAGE) if (block.title or "").endswith(".flow.yaml")]
    assert len(written) == 2
    for block in written:
        assert check_workflow(block.text.encode(), str(block.title)) == []
