"""The version of a release, and the places that have to say it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


PLUGINS: Final = ("anthropic", "chaos", "conformance")  # packages of Python below plugins/


class ReleaseError(Exception):
    """There can be no release. The message has the reason and the remedy."""


def version() -> str:
    """The version in `hai_flow/__init__.py`: the other places repeat it."""
    found = re.search(r'^__version__ = "([^"]+)"', (ROOT / "hai_flow" / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None, "the package says its version"
    return found[1]


def said() -> Iterator[tuple[str, str]]:
    """Every place that has a version, with the version there."""
    for name in (
        "pyproject.toml",
        "clients/python/pyproject.toml",
        *(f"plugins/{name}/pyproject.toml" for name in PLUGINS),
    ):
        yield name, tomllib.loads((ROOT / name).read_text())["project"]["version"]
    for name in ("clients/typescript/package.json", "console/package.json"):
        yield name, json.loads((ROOT / name).read_text())["version"]
    for name, pattern in (
        ("deploy/helm/hai-flow/Chart.yaml", r"^(?:version|appVersion): (\S+)$"),
        ("deploy/image/Dockerfile", r"hai-flow:(\d[\w.]*)"),
        ("deploy/compose/compose.yaml", r"hai-flow:(\d[\w.]*)"),
        ("docs/deploy.md", r"hai[-_]flow[:-](\d[\w.]*\d)"),
    ):
        found = re.findall(pattern, (ROOT / name).read_text(), re.MULTILINE)
        assert found, f"{name} says a version"
        for each in found:
            yield name, each


def demand_one_version() -> str:
    """The version. Raises ReleaseError where a place says another one."""
    wanted = version()
    others = [f"{name} says {found}" for name, found in said() if found != wanted]
    if others:
        raise ReleaseError(f"hai_flow/__init__.py says {wanted}, but {'; '.join(others)}.")
    return wanted


def notes(wanted: str) -> str:
    """The text on the version in CHANGELOG.md. Raises ReleaseError where there is none."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## \[{re.escape(wanted)}\] - (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise ReleaseError(
            f"CHANGELOG.md has no section `## [{wanted}] - YEAR-MONTH-DAY`: give Unreleased that heading, and begin a "
            "new one above it. (--rehearse does without.)"
        )
    if not re.search(r"^- ", found[2], re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md says nothing of {wanted}.")
    return found[2].strip()
