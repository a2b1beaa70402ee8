"""The language server driven by Microsoft's libraries, and the extension for Visual Studio Code."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.clients import rig
from tests.lsp.test_server import broken_files

pytestmark = pytest.mark.costly

HERE: Final = Path(__file__).resolve().parent / "vscode"
EXTENSION: Final = Path(__file__).resolve().parents[2] / "plugins" / "vscode"
TEXT: Final = (
    "hai: flow/v1\nname: a\nversion: 1\nsteps:\n  - id: pay\n    say: ${{ input.x }}\n  - if: steps.\n    say: hi\n"
)


def test_the_libraries_of_vs_code_get_findings_completion_and_shutdown(tmp_path: Path) -> None:
    program = rig.project_beside(rig.npm_packages(HERE), HERE, tmp_path) / "client.mjs"
    asked = {"uri": (tmp_path / "a.flow.yaml").as_uri(), "text": TEXT, "line": 6, "character": 14}
    asked |= {"root": tmp_path.as_uri(), "cwd": str(tmp_path)}
    command = [rig.node(), str(program), sys.executable, "-m", "hai_flow.cli", "lsp"]
    answer = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert {"completionProvider", "hoverProvider", "renameProvider", "codeActionProvider"} <= set(found["capabilities"])
    assert "expression.unknown_input" in {each["code"] for each in found["diagnostics"]} or found["diagnostics"]
    assert found["labels"] == ["pay"]
    assert found["code"] == 0


def test_two_hundred_broken_files_have_validates_findings_in_vs_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = rig.project_beside(rig.npm_packages(HERE), HERE, tmp_path) / "client.mjs"
    texts = broken_files(200)
    asked = {"uri": (tmp_path / "a.flow.yaml").as_uri(), "text": TEXT, "line": 6, "character": 14, "texts": texts}
    asked |= {"root": tmp_path.as_uri(), "cwd": str(tmp_path)}
    command = [rig.node(), str(program), sys.executable, "-m", "hai_flow.cli", "lsp"]
    answer = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    for text, told in zip(texts, json.loads(answer.stdout)["texts"], strict=True):
        Path("a.flow.yaml").write_text(text)
        printed = json.loads(CliRunner().invoke(app, ["validate", "--json", "a.flow.yaml"]).stdout)["findings"]
        assert told == printed


def test_the_extension_is_packaged_with_manifest_and_valid_javascript(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("package", EXTENSION / "package.py")
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    target = tmp_path / "hai-flow.vsix"
    package.pack(target)
    with zipfile.ZipFile(target) as archive:
        names = set(archive.namelist())
        described = json.loads(archive.read("extension/package.json"))
        manifest = ElementTree.fromstring(archive.read("extension.vsixmanifest"))
    assert {"[Content_Types].xml", f"extension/{described['main'].removeprefix('./')}"} <= names
    identity = next(each for each in manifest.iter() if each.tag.endswith("Identity"))
    assert (identity.get("Id"), identity.get("Version")) == (described["name"], described["version"])
    checked = subprocess.run([rig.node(), "--check", str(EXTENSION / "extension.js")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
