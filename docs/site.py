"""The documentation as a searchable site: `make site` writes `site/`.

The pages are staged as the repository has them, README in front, so that every link works as it stands; a link to
source code becomes text. Then zensical builds, in an environment of its own (docs/requirements.lock), and its pages are
checked: every link must lead somewhere, and nothing may be loaded from elsewhere. Each page forbids that itself, too.
`llms.txt` lists the pages for models, which read their text beside the HTML.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import cli

DOCS: Final = cli.ROOT / "docs"
LOCK: Final = DOCS / "requirements.lock"
IN_FRONT: Final = {
    "README.md": "index.md",
    **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")},
}
DECISIONS: Final = "docs/decisions/index.md"
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "worker-src 'self' blob:"
)
_LINK: Final = re.compile(r"\[([^\[\]]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
_LOADS: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_FETCHED: Final = frozenset({"stylesheet", "icon", "preload", "prefetch", "modulepreload", "manifest"})


def main() -> None:
    """Build the site into `site/`. Ends with a sentence if something is wrong with it."""
    target = cli.ROOT / "site"
    with tempfile.TemporaryDirectory(prefix="hai-flow-site-") as directory:
        stage(Path(directory))
        html = build(Path(directory))
        write_for_models(Path(directory), html)
        faults = list(faults_of(html))
        if faults:
            sys.exit("\n".join([*faults, f"{len(faults)} faults in the site; see docs/site.py."]))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(html, target)
    cli.say(f"{len(list(target.rglob('*.html')))} pages in {target}: python3 -m http.server --directory {target}")


# --- the sources --------------------------------------------------------------------------------------------------


def stage(directory: Path) -> None:
    """Write the input of zensical into `directory`: its settings, and `pages`."""
    pages = directory / "pages"
    shutil.copytree(DOCS, pages / "docs", ignore=shutil.ignore_patterns("*.py", "*.toml", "*.in", "*.lock", "__*"))
    for name, there in IN_FRONT.items():
        shutil.copy(cli.ROOT / name, pages / there)
    (pages / DECISIONS).write_text(decisions())
    for page in pages.rglob("*.md"):
        page.write_text(
            _unsearched(page, pages) + _LINK.sub(lambda link, page=page: _staged(link, page, pages), page.read_text())
        )
    shutil.copy(DOCS / "site.toml", directory / "zensical.toml")


def write_for_models(staged: Path, html: Path) -> None:
    """Write `llms.txt` (llmstxt.org) into the built site, and each page as text beside its HTML."""
    project = tomllib.loads((DOCS / "site.toml").read_text())["project"]
    pages = staged / "pages"
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    for entry in project["nav"]:
        for section, value in entry.items():
            listed = value if isinstance(value, list) else [{section: value}]
            lines += [f"## {section}", ""]
            lines += [f"- [{title}]({page})" for each in listed for title, page in each.items()]
            lines.append("")
    for page in pages.rglob("*.md"):
        there = html / page.relative_to(pages)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(page.read_text().removeprefix(UNSEARCHED))
    (html / "llms.txt").write_text("\n".join(lines))


UNSEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n\n"
"""In front of a page that the search leaves out."""


def _unsearched(page: Path, pages: Path) -> str:
    """Decisions and changes speak of everything, so their pages would stand before those that answer."""
    name = page.relative_to(pages).as_posix()
    return UNSEARCHED if name == "CHANGELOG.md" or name.startswith("docs/decisions/") else ""


def decisions() -> str:
    """The list of decisions, which a folder has by itself and a site has not."""
    found = sorted(DOCS.glob("decisions/0*.md"))
    lines = [f"- [{path.read_text().partition(chr(10))[0].removeprefix('# ')}]({path.name})" for path in found]
    return "\n".join(["# Decisions", "", "What was decided, why, and what was rejected.", "", *lines, ""])


def _staged(link: re.Match[str], page: Path, pages: Path) -> str:
    """The link as the site has it. A link that leads to no page of the site becomes plain text."""
    text, target, anchor = link[1], link[2], link[3] or ""
    if "://" in target:
        return link[0]
    place = (page.parent / target).resolve()
    inside = place.is_relative_to(pages.resolve())
    name = place.relative_to(pages.resolve()).as_posix() if inside else ""
    if name in IN_FRONT:
        place = pages.resolve() / IN_FRONT[name]
    elif inside and place.is_dir():
        place = place / "index.md"
    elif not place.exists():
        return text
    else:
        return link[0]
    up = "../" * len(page.relative_to(pages).parent.parts)
    return f"[{text}]({up}{place.relative_to(pages.resolve()).as_posix()}{anchor})"


# --- the built site -----------------------------------------------------------------------------------------------


def build(directory: Path) -> Path:
    """Let zensical build the staged pages. Returns the directory of the built ones."""
    answer = subprocess.run(
        [str(environment() / "bin" / "zensical"), "build", "--strict"],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if answer.returncode != 0:
        sys.exit(f"zensical did not build the site:\n{answer.stdout}")
    html = directory / "html"
    for page in html.rglob("*.html"):
        page.write_text(guarded(page.read_text()))
    return html


def guarded(page: str) -> str:
    """The page with a policy that lets it load from its own place alone."""
    return page.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{POLICY}">', 1)


def environment() -> Path:
    """The environment with zensical, made unless it is there for exactly this lock."""
    try:
        return cli.separate_environment(cli.ROOT / ".venv-site", LOCK)
    except cli.InstallError as error:
        sys.exit(f"zensical could not be installed.\n{error}")


class Page(HTMLParser):
    """The references of a page: `links` that a reader follows, `loads` that a browser fetches, and its own
    `anchors`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        fetched = tag != "link" or not _FETCHED.isdisjoint(given.get("rel", "").split())
        if tag in _LOADS and _LOADS[tag] in given and fetched:
            self.loads.append(given[_LOADS[tag]])


def faults_of(html: Path) -> Iterator[str]:
    """The faults of the pages of a built site, a sentence each."""

    @cache
    def read(path: Path) -> Page:
        return Page(path.read_text())

    for path in sorted(html.rglob("*.html")):
        name, page = path.relative_to(html), read(path)
        text = path.read_text()
        if POLICY not in text:
            yield f"{name}: has no policy."
        if lost := re.search(r"^- .{,60}", re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL), re.MULTILINE):
            yield f"{name}: {lost[0]!r} was not taken for a list; what belongs to an item is indented by four."
        for target in page.loads:
            if urlsplit(target).scheme not in ("", "data") or target.startswith("//"):
                yield f"{name}: loads {target} from elsewhere."
        for target in (*page.links, *page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or name.name == "404.html":
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            if not place.exists():
                yield f"{name}: {target} leads nowhere."
            elif parts.fragment and place.suffix == ".html" and unquote(parts.fragment) not in read(place).anchors:
                yield f"{name}: {target} has no such heading."


if __name__ == "__main__":
    main()
