"""Whatever refers to a document refers to one that is there, at a heading that is there: links and comments alike."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest
from hai_flow_conformance.catalogue import CATALOGUE

from tests.support.commands import ROOT
from tests.support.pages import anchors, links

# Written by programs, or by others.
FOREIGN = ("requirements.lock", "package-lock.json", "/recordings/", "tests/clients/flows/", "bench/latest")
REFERENCE = re.compile(r"\bdocs/(decisions/\d{4}(?![\w-])|[\w/-]+\.md(?:#[\w-]+)?)")


@functools.cache
def texts() -> dict[str, str]:
    """The project's own files, by their paths."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    found: dict[str, str] = {}
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and not any(each in f"/{name}" for each in FOREIGN):
            try:
                found[name] = path.read_text()
            except UnicodeDecodeError:
                continue
    return found


@functools.cache
def anchors_of(path: Path) -> list[str]:
    return anchors(path.read_text())


def pages() -> list[str]:
    return sorted(name for name in texts() if name.endswith(".md"))


DOCUMENTS = sorted(path for path in (ROOT / "docs").rglob("*.md"))


def fault_of(target: str, folder: Path, page: Path | None = None) -> str | None:
    """What is wrong with a reference, None if it leads somewhere."""
    name, _, anchor = target.partition("#")
    place = (folder / name).resolve() if name else page
    if place is None or not place.exists():
        return f"{target}: no such file"
    if anchor and anchor not in anchors_of(place):
        return f"{target}: no such heading; there are {', '.join(anchors_of(place))}"
    return None


def test_every_link_leads_somewhere() -> None:
    faults: list[str] = []
    for name in pages():
        page = ROOT / name
        local = [each for each in links(texts()[name]) if "://" not in each and not each.startswith("mailto:")]
        faults.extend(f"{name}: {fault}" for each in local if (fault := fault_of(each, page.parent, page)))
    assert faults == []


def test_every_document_that_is_named_is_there() -> None:
    faults: list[str] = []
    for name, text in texts().items():
        for target in REFERENCE.findall(re.sub(r"\n[#\s*/]*", " ", text) if name.endswith(".py") else text):
            if target == "decisions/index.md":  # the site's own
                continue
            if target.startswith("decisions/") and not target.endswith(".md") and "#" not in target:
                found = list((ROOT / "docs").glob(f"{target}-*.md"))
                fault = None if found else "no such decision"
            else:
                fault = fault_of(target, ROOT / "docs")
            if fault and not name.startswith("tests/test_references"):
                faults.append(f"{name}: {fault}")
    assert faults == []


def test_headings_of_a_page_are_told_apart() -> None:
    found = {page: anchors_of(page) for page in DOCUMENTS}
    faults = [(page, each) for page, all in found.items() for each in all if all.count(each) > 1 or "--" in each]
    assert faults == []


def test_every_document_is_linked_from_another() -> None:
    linked = {
        (ROOT / name).parent.joinpath(target.partition("#")[0]).resolve()
        for name in pages()
        for target in links(texts()[name])
        if "://" not in target
    }
    alone = [path for path in DOCUMENTS if path not in linked and path.parent.name != "decisions"]
    assert [str(path.relative_to(ROOT)) for path in alone] == []


PACKAGES = sorted(path.parent.name for path in (ROOT / "hai_flow").glob("*/__init__.py"))
MODULE = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:/[a-z0-9_]+)+)(?:\.py|/)?`")


def missing_modules(text: str) -> list[str]:
    """The modules and packages that a text names by their paths below `hai_flow`, and that are not there."""
    names = {match[1] for match in MODULE.finditer(re.sub(r"\s+", " ", text))}
    paths = [(name, ROOT / "hai_flow" / name) for name in sorted(names)]
    return [name for name, path in paths if not path.exists() and not path.with_suffix(".py").exists()]


def test_modules_that_code_and_its_map_name_are_there() -> None:
    read = [name for name in texts() if name == "docs/ARCHITECTURE.md" or re.fullmatch(r"hai_flow/.*\.py", name)]
    assert len(read) > 500
    assert {name: missing for name in read if (missing := missing_modules(texts()[name]))} == {}


def test_a_module_that_is_not_there_is_found() -> None:
    assert missing_modules("as `engine/decide` and `engine/verbs/` do, not `engine/undecided`") == ["engine/undecided"]


# Documents that were never in the repository, and their sections and rules by number.
ELSEWHERE = re.compile(
    r"\b(?:LANGUAGE|PROTOCOLS|STORE|DESIGN|PROMISES|STACK|STYLE)(?:\.md\b|,? (?:sections? )?[A-Z]?\d)"
    r"|\b(?:PROTOCOLS|PROMISES)\b"
    r"|\((?:[BHIP]\d{1,2})(?:[ ,)]| to)|#\s+[BHIP]\d{1,2}$",
    re.MULTILINE,
)


def test_nothing_refers_to_a_document_that_is_elsewhere() -> None:
    found = [
        f"{name}: {match[0]}"
        for name, text in texts().items()
        if name != "tests/test_references.py"
        for match in ELSEWHERE.finditer(re.sub(r"\n[ \t]*(?:# )?", " ", text) + "\n" + text)
    ]
    assert found == []


@pytest.mark.parametrize("reference", ["STORE B8", "LANGUAGE section 7", "PROTOCOLS 1.4", "PROMISES", "(H3 to H5)"])
def test_a_code_that_nobody_can_look_up_is_found(reference: str) -> None:
    assert ELSEWHERE.search(f"who holds it {reference}, always")


def test_each_check_of_the_kit_says_where_its_reason_stands() -> None:
    faults = [fault_of(check.source.removeprefix("docs/"), ROOT / "docs") for check in CATALOGUE.values()]
    assert len(faults) > 50
    assert list(filter(None, faults)) == []
