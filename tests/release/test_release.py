"""`make release`: one version everywhere, a bill of materials that is one, and licences that may come along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import hai_flow
from release import bill, trial, versions
from release.bill import Component
from release.versions import ReleaseError
from tests.clients import rig
from tests.support.commands import ROOT

TOOLS: Final = ROOT / "tests" / "deploy" / "tools"


def test_every_place_says_the_same_version() -> None:
    assert versions.demand_one_version() == hai_flow.__version__
    assert len(list(versions.said())) >= 10


def test_a_place_that_says_another_version_stops_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda: "9.9.9")
    with pytest.raises(ReleaseError, match=r"but pyproject\.toml says"):
        versions.demand_one_version()


def test_a_release_needs_its_section_of_the_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n- Later.\n")
    with pytest.raises(ReleaseError, match="has no section"):
        versions.notes("1.2.0")
    changelog.write_text(
        "## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n### Added\n\n- This.\n\n## [1.1.0] - 2026-11-01\n"
    )
    assert versions.notes("1.2.0") == "### Added\n\n- This."
    with pytest.raises(ReleaseError, match="says nothing"):
        versions.notes("1.1.0")


def test_the_bill_names_installed_packages_with_licences_and_page_sources() -> None:
    here = Path(hai_flow.__file__).parents[1] / ".venv"
    installed = next((here / "lib").glob("python*/site-packages")) if here.is_dir() else Path(sys.prefix)
    components = [*bill.of_python(installed), *bill.of_javascript()]
    found = {each.name: each for each in components}
    assert found["asyncpg"].licence == "Apache-2.0"
    assert "react-dom" in found or "preact" in found
    assert all(each.licence for each in components)
    bill.demand_licences(components)
    assert "asyncpg" in bill.listed(components)


def test_a_licence_that_may_not_come_along_stops_the_release() -> None:
    def of(licence: str) -> list[Component]:
        return [Component("pypi", "x", "1", licence)]

    for licence in ("MIT", "Apache-2.0", "LGPL-3.0-or-later", "MIT OR GPL-2.0", "MPL-2.0"):
        bill.demand_licences(of(licence))
    for licence in ("GPL-3.0-or-later", "AGPL-3.0", "GNU General Public License v3 (GPLv3)", ""):
        with pytest.raises(ReleaseError):
            bill.demand_licences(of(licence))


@pytest.mark.costly
@pytest.mark.timeout(600)  # the first time fetches the schema's package
def test_the_bill_is_one_of_cyclonedx() -> None:
    components = [Component("pypi", "a", "1.0", "MIT"), Component("npm", "@b/c", "2.0", "MIT", {"SHA-512": "0" * 128})]
    text = json.dumps(bill.bill("1.2.0", components, 1_790_000_000))
    python = rig.python_packages(TOOLS) / "bin" / "python"
    check = (
        "import sys; from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())\n"
        "sys.exit(None if fault is None else str(fault)[:2000])\n"
    )
    for given, code in ((text, 0), (text.replace('"library"', '"shelf"'), 1)):
        done = subprocess.run([str(python), "-c", check], input=given, capture_output=True, text=True)
        assert done.returncode == code, done.stderr


@pytest.mark.costly
def test_a_release_is_tried_with_each_python_here_this_one_included() -> None:
    assert sys.version_info[:2] in trial.pythons()
    assert set(trial.pythons()) <= set(trial.SUPPORTED)
