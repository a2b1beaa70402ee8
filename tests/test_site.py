"""The documentation as a site, without the program that builds it: what goes in, and what is looked for in what comes
out. `make site` builds it and looks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.site import DOCS, POLICY, faults_of, guarded, stage, write_for_models
from tests.support.pages import anchors, links


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    stage(directory)
    return directory


def test_a_link_to_source_code_is_its_text(staged: Path) -> None:
    assert "A test runs everything" in (staged / "pages/docs/tutorial.md").read_text()


def leaves(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            yield from leaves(value) if isinstance(value, list) else [value]


def test_every_link_of_a_staged_page_leads_to_a_staged_page(staged: Path) -> None:
    pages = (staged / "pages").resolve()
    faults: list[str] = []
    for page in sorted(pages.rglob("*.md")):
        for target in links(page.read_text()):
            name, _, anchor = target.partition("#")
            place = (page.parent / name).resolve() if name else page
            if "://" in target:
                continue
            if not place.is_file() or (anchor and anchor not in anchors(place.read_text())):
                faults.append(f"{page.relative_to(pages)}: {target}")
    assert faults == []


def test_every_page_is_in_the_menu_but_single_decisions(staged: Path) -> None:
    listed = sorted(leaves(tomllib.loads((DOCS / "site.toml").read_text())["project"]["nav"]))
    pages = staged / "pages"
    there = (path.relative_to(pages).as_posix() for path in pages.rglob("*.md"))
    assert listed == sorted(name for name in there if not name.startswith("docs/decisions/0"))


def test_the_list_for_models_names_every_menu_page_and_each_has_text(staged: Path, tmp_path: Path) -> None:
    write_for_models(staged, tmp_path)
    text = (tmp_path / "llms.txt").read_text()
    nav = tomllib.loads((DOCS / "site.toml").read_text())["project"]["nav"]
    assert links(text) == list(leaves(nav))
    assert all((tmp_path / page).read_text().startswith(("#", "<", "[", "!")) for page in links(text))


def built(directory: Path, body: str, **others: str) -> list[str]:
    """The faults of a site of one page with this body, and others."""
    for name, text in {"index": body, **others}.items():
        page = f"<html><head></head><body>{text}</body></html>"
        (directory / f"{name}.html").write_text(guarded(page))
    return list(faults_of(directory))


def test_a_site_whose_links_lead_somewhere_is_without_fault(tmp_path: Path) -> None:
    body = '<h1 id="top"></h1><a href="#top"></a><a href="other.html#here"></a><a href="https://cel.dev"></a>'
    assert built(tmp_path, body, other='<h2 id="here"></h2>') == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html"></a>', "index.html: gone.html leads nowhere."),
        ('<a href="#gone"></a>', "index.html: #gone has no such heading."),
        ('<script src="https://unpkg.com/x.js"></script>', "index.html: loads https://unpkg.com/x.js from elsewhere."),
        ('<link rel="stylesheet" href="//x.org/a.css">', "index.html: loads //x.org/a.css from elsewhere."),
        (
            "<p>words\n- one</p>",
            "index.html: '- one</p></body></html>' was not taken for a list; "
            "what belongs to an item is indented by four.",
        ),
        ('<img src="https://x.org/a.png">', "index.html: loads https://x.org/a.png from elsewhere."),
    ],
)
def test_what_is_wrong_with_a_site_is_found(tmp_path: Path, body: str, fault: str) -> None:
    assert built(tmp_path, body) == [fault]


def test_a_page_without_a_policy_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<html><head></head></html>")
    assert list(faults_of(tmp_path)) == ["index.html: has no policy."]
    assert "default-src 'self'" in POLICY
