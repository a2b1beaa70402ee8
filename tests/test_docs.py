"""What the documents say is true: their examples compile, generated pages are current."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from docs import terminal
from docs.settings_page import page
from hai_flow.cli import app
from hai_flow.definition.compiler import check_workflow

ROOT = Path(__file__).resolve().parents[1]


READMES = {"README.md": "refund", "README.zh-CN.md": "cleanup"}


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.parametrize(("name", "workflow"), READMES.items())
def test_the_workflow_in_the_readme_is_the_one_that_comes_along(name: str, workflow: str) -> None:
    assert blocks(name, "yaml") == [(ROOT / "workflows" / f"{workflow}.flow.yaml").read_text()]


def test_a_readme_has_at_most_800_words() -> None:
    assert {name for name in READMES if len((ROOT / name).read_text().split()) > 800} == set()


def test_the_readmes_say_the_same_in_the_same_order() -> None:
    english, chinese = ((ROOT / name).read_text() for name in READMES)
    for told in (
        r"^##+ ",  # sections
        r"^\|",  # rows of tables
        r"^```",
        r"\]\(([^)#]+)\)",  # what is linked to
    ):
        found = [re.findall(told, text, re.MULTILINE) for text in (english, chinese)]
        own = {"README.md": "README.zh-CN.md", "workflows/cleanup.flow.yaml": "workflows/refund.flow.yaml"}
        assert found[0] == [own.get(each, each) for each in found[1]]
    pure = [[block for block in blocks(name, "sh") if "call_" not in block] for name in READMES]
    commands = [[re.sub(r" +#.*", "", block) for block in each] for each in pure]
    assert commands[0] == commands[1], "the same commands, whatever the comments beside them say"


def test_the_recorded_terminal_shows_real_commands_and_no_machine() -> None:
    picture = (ROOT / "docs" / "terminal.svg").read_text()
    ElementTree.fromstring(picture)
    typed = re.findall(r">\$ python3 cli\.py (\w+)", picture)
    assert typed == ["dev", "pendings", "decide", "show"]
    known = CliRunner().invoke(app, ["--help"]).stdout
    assert all(re.search(rf"\b{command}\b", known) for command in typed)
    assert "Pay 180 back for order A-1042?" in picture
    assert not re.search(r"/(work|tmp|home|root)/|script|https?://(?!127|www\.w3)", picture)


def test_a_recording_shortens_pauses_ids_and_lines_that_are_too_long() -> None:
    id = "01a20326-00d8-7d4c-921b-e6ef5cd12960"
    assert terminal.shown(f"run {id}, pending call_agragjgw4n3wrmc6mlmtj3vvt4_erqrnwlyqtpk7lznkyvlntvhwe.") == (
        "run 01a20326…, pending call_agragj…."
    )
    assert len(terminal.shown("x" * 200)) == terminal.COLUMNS
    picture = terminal.drawn([(0.0, "$ a"), (100.0, "<b>")])
    assert "&lt;b&gt;" in picture
    assert f"{terminal.PAUSE_MAX + terminal.STAYS:.1f}s" in picture


def test_the_mistakes_in_the_readme_are_answered_as_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = b"""hai: flow/v1
name: refund
version: 1
tools: {shop: {python: acme.shop}}
steps:
  - id: check
    call: shop.check
    with: {order: 1}
    retires: {max: 3}
  - if: steps.chek.output.ok
    say: refunded
"""
    shown = re.search(r"\$ hai-flow validate.*?\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    Path("refund.flow.yaml").write_bytes(wrong)
    assert CliRunner().invoke(app, ["validate", "refund.flow.yaml"]).stdout == shown[1]


@pytest.mark.parametrize("path", sorted((ROOT / "workflows").rglob("*.flow.yaml")), ids=lambda path: path.stem)
def test_every_example_workflow_is_without_findings(path: Path) -> None:
    assert check_workflow(path.read_bytes(), path.name) == []


def test_the_settings_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == page() + "\n"


def test_each_threat_is_tried_by_tests_that_there_are() -> None:
    """Names without a folder are in the folder of the one before."""
    rows = [line.split("|")[4] for line in (ROOT / "docs/design/threats.md").read_text().splitlines() if "|" in line]
    absent: list[str] = []
    for row in rows:
        folder = ""
        for name in re.findall(r"`((?:tests/)?[\w/*]*(?:test_[\w*]+\.py)|tests/\w+(?:/\w+)*)`", row):
            path = name if "/" in name else f"{folder}/{name}"
            folder = path.rpartition("/")[0]
            absent += [] if list(ROOT.glob(path)) else [path]
    assert len(rows) > 40
    assert absent == []
