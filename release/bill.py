"""The dependencies of a release: a bill of materials (CycloneDX 1.6) and a list of licences.

For Python these are the packages in the image's lock, with its hashes; for JavaScript those that the console's pages
and the TypeScript client need to run. A licence that a user of Apache-2.0 software need not expect stops the release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

from release.versions import ROOT, ReleaseError

REFUSED: Final = re.compile(r"\bA?GPL|General Public License|SSPL|BUSL|Commons Clause", re.IGNORECASE)
LESSER: Final = re.compile(r"LGPL|Lesser General Public", re.IGNORECASE)
NAMESPACE: Final = UUID("5b0b2f8e-3f1c-5f0e-9f4e-6d1f0c3a9b11")
_TROVE: Final = "License :: OSI Approved :: "


@dataclass(frozen=True)
class Component:
    """A package: `kind` is pypi or npm, `licence` as it says itself, `hashes` are sha256 or sha512 of its files."""

    kind: str
    name: str
    version: str
    licence: str
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def purl(self) -> str:
        return f"pkg:{self.kind}/{self.name.replace('@', '%40')}@{self.version}"


def pinned() -> Iterator[tuple[str, str]]:
    """The packages of Python, with their versions."""
    lock = (ROOT / "deploy" / "image" / "requirements.lock").read_text()
    yield from re.findall(r"^([a-z0-9._-]+)==([^ \n]+)", lock, re.MULTILINE)


def of_python(installed: Path) -> list[Component]:
    """The packages of the lock that are installed in the folder, with their licences. The others are for other
    machines."""
    there = {_name(each): each for each in distributions(path=[str(installed)])}
    return [Component("pypi", name, version, licence_of(there[name])) for name, version in pinned() if name in there]


def _name(distribution: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()


def licence_of(distribution: Distribution) -> str:
    """The licence in the package's metadata: an expression, words, or a classifier."""
    said: Any = distribution.metadata
    expression = said.get("License-Expression") or ""
    words = (said.get("License") or "").strip()
    classes = [each.removeprefix(_TROVE) for each in said.get_all("Classifier") or () if each.startswith(_TROVE)]
    short = words if words and "\n" not in words and len(words) < 80 else ""
    return (
        expression or short or " OR ".join(classes) or words.splitlines()[0] if words or classes or expression else ""
    )


def of_javascript() -> list[Component]:
    """The packages that the built pages and the client need to run."""
    found: dict[str, Component] = {}
    for folder in ("console", "clients/typescript"):
        lock: dict[str, Any] = json.loads((ROOT / folder / "package-lock.json").read_text())
        for path, entry in lock["packages"].items():
            if not path or entry.get("dev") or entry.get("link"):
                continue
            name = path.rpartition("node_modules/")[2]
            algorithm, _, digest = entry.get("integrity", "").partition("-")
            hashes = {"SHA-512": _hex(digest)} if algorithm == "sha512" else {}
            each = Component("npm", name, entry["version"], entry.get("license", ""), hashes)
            found[each.purl] = each
    return [found[purl] for purl in sorted(found)]


def _hex(digest: str) -> str:
    import base64

    return base64.b64decode(digest).hex()


def demand_licences(components: list[Component]) -> None:
    """Raises ReleaseError for those that have none, or one that may not come along."""
    none = [each.name for each in components if not each.licence]
    if none:
        raise ReleaseError(f"These packages do not say their licence: {', '.join(none)}.")
    refused = [
        f"{each.name} ({each.licence})"
        for each in components
        if REFUSED.search(LESSER.sub("", each.licence)) and " OR " not in each.licence
    ]
    if refused:
        raise ReleaseError(f"These packages may not come along: {', '.join(refused)}.")


def listed(components: list[Component]) -> str:
    """The list of licences, for people."""
    width = max(len(f"{each.name} {each.version}") for each in components)
    return "".join(f"{f'{each.name} {each.version}':{width}}  {each.licence}\n" for each in components)


def bill(version: str, components: list[Component], made: int) -> dict[str, Any]:
    """The bill of materials. `made`: seconds since 1970."""
    from datetime import UTC, datetime

    own = f"pkg:pypi/hai-flow@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE, own + str(made))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "hai-flow",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [_shown(each) for each in components],
        "dependencies": [{"ref": own, "dependsOn": [each.purl for each in components]}],
    }


def _shown(component: Component) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "licenses": [{"license": {"name": component.licence}}],
    }
    if component.hashes:
        shown["hashes"] = [{"alg": name, "content": value} for name, value in component.hashes.items()]
    return shown
