"""`make release`, or `python -m release [--rehearse] [--python 3.11]...`."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from release import bill, parts, trial, versions
from release.versions import ROOT, ReleaseError

DIST = ROOT / "dist"


def main() -> int:
    """Exit code 0: all of it is in `dist`, and was tried."""
    parser = argparse.ArgumentParser(prog="make release", description="Build and try a release.")
    parser.add_argument("--rehearse", action="store_true", help="do without a section of CHANGELOG.md")
    parser.add_argument("--python", action="append", metavar="3.N", help="try it with this one only; may be repeated")
    given = parser.parse_args()
    try:
        _release(rehearse=given.rehearse, only=given.python)
    except ReleaseError as error:
        print(f"No release: {error}", file=sys.stderr)
        return 1
    return 0


def _release(*, rehearse: bool, only: list[str] | None) -> None:
    version = versions.demand_one_version()
    notes = "" if rehearse else versions.notes(version)
    with tempfile.TemporaryDirectory(prefix="hai-flow-release-") as folder:
        work, made = Path(folder), Path(folder) / "dist"
        made.mkdir()
        _say(f"Building {version}.")
        wheel, *_ = parts.build(work, made)
        found = {key: path for key, path in trial.pythons().items() if only is None or f"{key[0]}.{key[1]}" in only}
        if not found:
            raise ReleaseError("there is no Python here that it could be tried with.")
        installed = work
        for (major, minor), python in found.items():
            _say(f"Trying it with Python {major}.{minor}.")
            installed = trial.tried(python, wheel, work / f"trial-{major}.{minor}")
        lacking = [f"{major}.{minor}" for major, minor in trial.SUPPORTED if (major, minor) not in found]
        components = [*bill.of_python(installed), *bill.of_javascript()]
        bill.demand_licences(components)
        name = f"hai-flow-{version}"
        shown = bill.bill(version, components, int(parts.when()))
        (made / f"{name}.cdx.json").write_text(json.dumps(shown, indent=1) + "\n")
        (made / f"{name}.licences.txt").write_text(bill.listed(components))
        if notes:
            (made / f"{name}.notes.md").write_text(notes + "\n")
        files = sorted(made.iterdir())
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        (made / "SHA256SUMS").write_text("".join(sums))
        DIST.mkdir(exist_ok=True)
        for path in sorted(made.iterdir()):
            shutil.move(path, DIST / path.name)
            _say(f"dist/{path.name}")
    if lacking:
        _say(f"Not tried with Python {', '.join(lacking)}.")


def _say(text: str) -> None:
    print(text, flush=True)


sys.exit(main())
