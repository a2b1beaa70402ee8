"""A workflow and the documents that it uses: one source, findings at the right place, files of the project alone."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from hai_flow import shared
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.plan import PythonTool
from hai_flow.definition.yaml.include_keys import include_files, list_uses, read_texts, split_source
from hai_flow.graph import draw

FLOW = b"""hai: flow/v1
name: refund
version: 1
use: [../shared/tools.yaml, models.yaml]
steps:
  - call: shop.refund
  - approve: {title: Sure?, from: role:sre}
  - llm: {model: smart, prompt: Hello}
"""
TOOLS = b"hai: shared/v1\ntools: {shop: {python: acme.shop}}\nroles: {sre: [user:ann]}\n"
MODELS = b"hai: shared/v1\nmodels: {smart: {provider: openai, model: gpt-5.4}}\n"
FILES = {"../shared/tools.yaml": TOOLS, "models.yaml": MODELS}


def together(flow: bytes = FLOW, **changed: bytes) -> bytes:
    files = FILES | {"../shared/tools.yaml": changed.get("tools", TOOLS), "models.yaml": changed.get("models", MODELS)}
    return include_files(flow, files.__getitem__)


def found(source: bytes) -> list[str]:
    findings = check_workflow(source, "workflows/refund.flow.yaml")
    return [f"{each.file}:{each.line}:{each.column} {each.code} {each.message}" for each in findings]


def test_what_is_used_is_the_workflows() -> None:
    source = together()
    plan = compile_workflow(source, "workflows/refund.flow.yaml")
    assert isinstance(plan.tools["shop"], PythonTool)
    assert (plan.models["smart"].model, plan.roles) == ("gpt-5.4", {"sre": ("user:ann",)})
    assert (plan.source, plan.sha256) == (source, sha256(source).digest())
    assert [step.line for step in plan.steps.values()] == [6, 7, 8]


def test_another_file_is_another_workflow() -> None:
    assert together() != together(tools=TOOLS.replace(b"ann", b"bob"))


def test_what_is_whole_is_not_read_again_and_opens_as_what_it_was_made_of() -> None:
    source = together()
    assert include_files(source, {}.__getitem__) == source
    first, parts = split_source(source)
    assert (first, [part.text for part in parts]) == (FLOW, [TOOLS, MODELS])
    assert list_uses(source) == list(FILES)
    assert read_texts(source, "workflows/refund.flow.yaml") == {
        "workflows/refund.flow.yaml": FLOW.decode(),
        "shared/tools.yaml": TOOLS.decode(),
        "workflows/models.yaml": MODELS.decode(),
    }


@pytest.mark.parametrize("begin", [b"---\n", b"# a comment\n\n--- \n", b"\xef\xbb\xbf--- # first\n"])
def test_a_workflow_may_begin_with_a_line_of_hyphens(begin: bytes) -> None:
    assert compile_workflow(include_files(begin + FLOW, FILES.__getitem__)).name == "refund"


def test_a_long_comment_with_the_line_ends_of_windows_is_read_at_once() -> None:
    """Each of its lines could once be read in two ways, and all 2^n were tried: that ends never."""
    comment = b"# whose it is\r\n" * 10_000
    first, (part,) = split_source(comment + FLOW + b"---\r\n" + TOOLS)
    assert (first, part.text) == (comment + FLOW, TOOLS)
    assert split_source(comment + b"\r\n---\r\n" + FLOW) == (comment + b"\r\n---\r\n" + FLOW, [])


def test_a_workflow_with_files_is_drawn() -> None:
    assert "shop.refund" in draw(together(), "mermaid")


def test_a_mistake_is_told_of_the_file_that_has_it() -> None:
    tools = b"hai: shared/v1\ntools:\n  shop: {python: acme.shop, efect: read}\n  bad: {}\n"
    source = together(tools=tools, models=MODELS.replace(b"{p", b"{x: 1, p"))
    assert [line.partition(" ")[0] for line in found(source)] == [
        "shared/tools.yaml:3:29",
        "shared/tools.yaml:4:3",
        "workflows/models.yaml:2:18",
    ]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (b"hai: flow/v1\ntools: {shop: {python: a.b}}\n", "shared/tools.yaml:1:6 shape.value"),
        (b"hai: shared/v1\nsteps: []\n", "shared/tools.yaml:2:1 shape.unknown_key"),
        (b"hai: shared/v1\nuse: [more.yaml]\n", "shared/tools.yaml:2:1 shape.unknown_key"),
        (b"hai: shared/v1\ntools: {{\n", "shared/tools.yaml:2:"),
        (b"--- \n" + TOOLS, "workflows/refund.flow.yaml:4:7 use.missing a file that is used is one document"),
        (b"", "shared/tools.yaml:1:1 yaml.empty"),
        (
            b"roles: {}\n",
            "shared/tools.yaml:1:1 shape.missing_key `hai` is missing in a file that is used; add `hai: shared/v1`",
        ),
    ],
)
def test_what_is_no_shared_file_is_one_finding(tools: bytes, words: str) -> None:
    (only,) = found(together(tools=tools))
    assert only.startswith(words)


def test_a_name_may_stand_once() -> None:
    twice = b"hai: shared/v1\nmodels: {smart: {provider: openai, model: a}}\ntools: {shop: {python: a.b}}\n"
    (only,) = found(together(models=twice))
    assert only == (
        "workflows/models.yaml:3:9 use.twice `shop` of `tools` stands in shared/tools.yaml already; "
        "take one of them out"
    )
    (only,) = found(together(FLOW + b"tools: {shop: {python: acme.other}}\n"))
    assert only.startswith("workflows/refund.flow.yaml:9:9 use.twice `shop` of `tools` stands in shared/tools.yaml")


def test_an_argument_not_sent_along_is_missed_once_and_no_optional_one() -> None:
    assert [line.partition(" is not here")[0] for line in found(FLOW)] == [
        "workflows/refund.flow.yaml:4:7 use.missing ../shared/tools.yaml",
        "workflows/refund.flow.yaml:4:29 use.missing models.yaml",
    ]


def test_documents_that_nobody_uses_are_refused() -> None:
    (only,) = found(together() + b"---\nhai: shared/v1\n")
    assert "use.more" in only
    plain = b"hai: flow/v1\nname: a\nversion: 1\nsteps: [{say: hi}]\n"
    (only,) = found(plain + b"---\n" + TOOLS)
    assert "yaml.second_document" in only


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "workflows").mkdir(parents=True)
    (folder / "shared").mkdir()
    (folder / "shared" / "tools.yaml").write_bytes(TOOLS)
    (folder / "workflows" / "models.yaml").write_bytes(MODELS)
    (tmp_path / "outside.yaml").write_bytes(TOOLS)
    monkeypatch.chdir(folder)
    return folder


def test_files_are_read_as_they_lie_from_the_workflow(project: Path) -> None:
    path = project / "workflows" / "refund.flow.yaml"
    assert shared.with_uses(path, FLOW) == together()
    assert shared.used_files(path, FLOW) == [project / "shared/tools.yaml", project / "workflows/models.yaml"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../../outside.yaml", "leads out of the project"),
        ("link.yaml", "leads out of the project"),
        ("folder/outside.yaml", "leads out of the project"),
        ("/etc/hosts.yaml", "expected the way to a YAML file"),
        ("C:\\\\tools.yaml", "expected the way to a YAML file"),
        ("../shared/secret.txt", "expected the way to a YAML file"),
        ("nobody.yaml", "can't be read: no such file"),
        ("folder.yaml", "can't be read: is a directory"),
        ("round.yaml", "can't be"),
        ("large.yaml", "more than 256 KiB"),
        ("pipe.yaml", "it is a pipe"),
        ("hidden.yaml", "leads to .env, and that is no YAML file"),
        ("a" * 300 + ".yaml", "can't be read: file name too long"),
    ],
)
def test_what_a_workflow_must_not_read_is_a_finding(project: Path, name: str, words: str) -> None:
    flows = project / "workflows"
    (flows / "link.yaml").symlink_to(project.parent / "outside.yaml")
    (flows / "folder").symlink_to(project.parent)
    (flows / "round.yaml").symlink_to(flows / "round.yaml")
    (flows / "folder.yaml").mkdir()
    (project / ".env").write_text("KEY=user:ann")
    (flows / "hidden.yaml").symlink_to(project / ".env")
    os.mkfifo(flows / "pipe.yaml")
    (flows / "large.yaml").write_bytes(b"#" * 300_000)
    flow = FLOW.replace(b"../shared/tools.yaml", b'"' + name.encode() + b'"')
    (only,) = found(shared.with_uses(flows / "refund.flow.yaml", flow))
    assert only.startswith("workflows/refund.flow.yaml:4:7 use.missing")
    assert words in only
    assert "user:ann" not in shared.with_uses(flows / "refund.flow.yaml", flow).decode()


def test_a_link_inside_of_the_project_is_followed(project: Path) -> None:
    (project / "workflows" / "tools.yaml").symlink_to(project / "shared" / "tools.yaml")
    flow = FLOW.replace(b"../shared/tools.yaml", b"tools.yaml")
    assert found(shared.with_uses(project / "workflows" / "refund.flow.yaml", flow)) == []


def test_a_workflow_that_lies_elsewhere_has_its_own_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path = project / "workflows" / "refund.flow.yaml"
    assert shared.with_uses(path, FLOW) == together()
    monkeypatch.chdir(project / "shared")
    (first, second) = split_source(shared.with_uses(path, FLOW))[1]
    assert "leads out of the project" in first.fault
    assert second.text == MODELS
