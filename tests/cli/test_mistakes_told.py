"""What `validate` finds wrong in a workflow is told alike by `dev` and by `publish`, whatever it is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.authoring.test_further_mistakes import PROJECT, PYTHON, SOURCE, read_mistakes
from tests.cli.test_broken_inputs import WORKFLOWS
from tests.support.commands import run, started

NO_IMPORT: Final = (
    "modules that can't be imported"  # `dev` imports what a file calls only where the file has no mistake
)
HEAD: Final = "hai: flow/v1\nname: {name}\nversion: 1\n"
CHILD: Final = HEAD.format(name="kid") + "input: {type: object, properties: {n: {type: integer}}}\nsteps: [say: hi]\n"
PARENT: Final = HEAD.format(name="all") + "steps: [{run: kid, with: {n: 1}}]\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every wrong file of the tests, each in a folder of its own, below `workflows`."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT, root, dirs_exist_ok=True)
    mistakes = [*read_mistakes(SOURCE), *read_mistakes(PYTHON)]
    texts = [each.workflow.replace("name: a\n", f"name: w{number}\n", 1) for number, each in enumerate(mistakes)]
    texts += [path.read_text() for path in sorted((SOURCE.parent / "mistakes").glob("*.flow.yaml"))]
    sources = [*(text.encode() for text in texts), *(each for name, each in WORKFLOWS.items() if name != NO_IMPORT)]
    for number, source in enumerate(sources):
        file = root / "workflows" / f"w{number}" / "a.flow.yaml"
        file.parent.mkdir(parents=True)
        file.write_bytes(source)
    twins = root / "workflows" / "twins"
    twins.mkdir()
    (twins / "one.flow.yaml").write_text(HEAD.format(name="twin") + "steps: [say: hi]\n")
    (twins / "two.flow.yaml").write_text(HEAD.format(name="twin") + "steps: [say: hello]\n")
    family = root / "workflows" / "family"
    family.mkdir()
    (family / "a.flow.yaml").write_text(PARENT)
    (family / "b.flow.yaml").write_text(CHILD)
    return root


def format_finding(finding: dict[str, Any]) -> str:
    place = f"{finding['file']}:{finding['line']}:{finding['column']}" if finding["line"] else finding["file"]
    severity = "warning: " if finding["severity"] == "warning" else ""
    return f"{place}: {severity}{finding['message']} [{finding['code']}]"


def test_dev_and_publish_tell_each_mistake_as_validate_tells_it(
    project: Path, tmp_path: Path, database_url: str
) -> None:
    findings = json.loads(run("validate", "workflows", "--json", folder=project).stdout)["findings"]
    files = {each["file"] for each in findings}
    assert len(files) > 150
    settings = {"HAI_FLOW_DATABASE_URL": database_url}
    with started(tmp_path / "log", "dev", "--port", "0", "--no-open", folder=project, **settings) as dev:
        url = dev.wait_for(r"Serving (http://\S+)")[1]
        lines = {re.sub(r"\s+", " ", line) for line in dev.output.splitlines()}
        expected = [re.sub(r"\s+", " ", format_finding(each)) for each in findings]
        assert [each for each in expected if each not in lines] == []

        published = run("publish", "workflows", "--json", folder=project, HAI_FLOW_URL=url)
        assert "Traceback" not in published.stderr + dev.output
    answer = json.loads(published.stdout)
    told = {
        (each["file"], finding["line"], finding["column"], finding["code"], finding["message"])
        for each in (*answer["refused"], *answer["published"])
        for finding in each.get("findings", each.get("warnings", []))
    }
    keys = [(each["file"], each["line"], each["column"], each["code"], each["message"]) for each in findings]
    untold = [key for key in keys if key not in told and Path(key[0]).name == "a.flow.yaml" and key[3] != "run.unknown"]
    assert untold == []
    names = {each["name"] for each in answer["published"]}
    assert {"all", "kid"} <= names, "a child is published before its parent, whatever their files are called"
    assert "twin" not in names


def test_of_two_files_of_one_name_the_older_stays_and_both_are_named(tmp_path: Path, database_url: str) -> None:
    folder = tmp_path / "project" / "workflows"
    folder.mkdir(parents=True)
    (folder / "one.flow.yaml").write_text(HEAD.format(name="twin") + "steps: [say: hi]\n")
    settings = {"HAI_FLOW_DATABASE_URL": database_url}
    with started(tmp_path / "log", "dev", "--port", "0", "--no-open", folder=folder.parent, **settings) as dev:
        dev.wait_for(r"1 workflow from workflows: twin@1")
        (folder / "two.flow.yaml").write_text(HEAD.format(name="twin") + "steps: [say: hello]\n")
        dev.wait_for(
            r"two\.flow\.yaml is not loaded:\n.*two\.flow\.yaml:2:7: one\.flow\.yaml has the name `twin@1` too"
        )
        (folder / "one.flow.yaml").unlink()
        dev.wait_for(r"two\.flow\.yaml can be loaded now: published as twin@1")
