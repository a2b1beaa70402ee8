"""The console's sources: strict types, their own tests, texts in both languages, and a lock without addresses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from console import building
from tests.clients import rig

CONSOLE = building.HERE


def node(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [rig.node(), *command],
        cwd=CONSOLE,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@pytest.mark.costly
def test_the_types_are_strict(built: Path) -> None:
    checked = node("node_modules/typescript/bin/tsc", "-p", "tsconfig.json")
    assert checked.returncode == 0, checked.stdout[-6000:]


@pytest.mark.costly
@pytest.mark.timeout(320)
@pytest.mark.parametrize("options", ["", "--no-experimental-strip-types"], ids=["reads-types", "reads-none"])
def test_npm_test_runs_the_pages_own_tests_with_every_supported_node(built: Path, options: str) -> None:
    script = json.loads((CONSOLE / "package.json").read_text())["scripts"]["test"]
    played = node(*script.split()[1:], "--test-reporter=tap", NODE_OPTIONS=options)
    assert played.returncode == 0, played.stdout[-6000:] + played.stderr[-2000:]
    written = sum(path.read_text().count("\ntest(") for path in (CONSOLE / "src").rglob("*.test.ts"))
    assert f"# pass {written}\n" in played.stdout


@pytest.mark.costly
def test_a_text_that_one_language_lacks_does_not_compile(built: Path, tmp_path: Path) -> None:
    shutil.copytree(CONSOLE / "src", tmp_path / "src")
    shutil.copy(CONSOLE / "tsconfig.json", tmp_path / "tsconfig.json")
    (tmp_path / "node_modules").symlink_to(CONSOLE / "node_modules")
    chinese = tmp_path / "src" / "text" / "zh.ts"
    whole = chinese.read_text()
    chinese.write_text(whole.replace('    inbox: "待办",\n', "", 1))
    assert chinese.read_text() != whole
    checked = node("node_modules/typescript/bin/tsc", "-p", str(tmp_path / "tsconfig.json"))
    assert checked.returncode != 0
    assert "'inbox'" in checked.stdout


def test_locks_name_no_address_and_run_no_script() -> None:
    for folder in (CONSOLE, Path(__file__).parent):
        text = (folder / "package-lock.json").read_text()
        assert re.findall(r"\S*(?:://|\bwww\.|\bmailto:)\S*", text) == []
        lock = json.loads(text)
        for name, package in lock["packages"].items():
            assert "resolved" not in package, name
            assert not package.get("hasInstallScript") or package.get("optional"), name


def test_what_is_built_is_built_again_only_after_a_change(built: Path) -> None:
    assert building.is_built()
    before = (built / "stamp").stat().st_mtime_ns
    assert building.build() == built
    assert (built / "stamp").stat().st_mtime_ns == before
