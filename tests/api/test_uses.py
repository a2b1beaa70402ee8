"""Workflows that use files, over REST and the command line: what is published holds them, and runs with them."""

from __future__ import annotations

from pathlib import Path

from tests.api.test_rest import Checked, http, start, wait_for_end
from tests.support.commands import run
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess

__all__ = ["http"]

TOOLS = "hai: shared/v1\ntools: {files: {python: hai_flow.examples, effect: write}}\n"
FLOW = (
    "hai: flow/v1\nname: %s\nversion: %d\nuse: [../shared/tools.yaml]\n"
    "steps:\n  - {id: delete, call: files.delete_files, with: {folder: attic, count: 2}}\n"
    "output: ${{ steps.delete.status }}\n"
)


def test_what_is_published_holds_what_it_uses(http: Checked) -> None:
    name = unique("uses").replace("-", "_")
    alone, whole = FLOW % (name, 1), FLOW % (name, 1) + "---\n" + TOOLS
    refused = http.post("/v1/workflows", content=alone, headers=YAML)
    assert refused.status_code == 422
    assert [(each["code"], each["line"]) for each in refused.json()["findings"]] == [("use.missing", 4)]
    assert http.post("/v1/workflows", content=whole, headers=YAML).status_code == 201
    assert http.get(f"/v1/workflows/{name}/source").text == whole
    assert "delete_files" in http.get(f"/v1/workflows/{name}/graph").text
    assert wait_for_end(http, start(http, name)["id"])["output"] == "finished"
    changed = http.post("/v1/workflows", content=whole.replace("write", "read"), headers=YAML)
    assert (changed.status_code, changed.json()["code"]) == (409, "workflow_exists")


def test_a_mistake_in_a_file_that_is_used_is_told_of_that_file(http: Checked) -> None:
    whole = FLOW % ("a", 1) + "---\n" + TOOLS.replace("effect", "efect")
    (finding,) = http.post("/v1/workflows/validate", content=whole, headers=YAML).json()["findings"]
    assert (finding["file"], finding["line"], finding["column"]) == ("../shared/tools.yaml", 2, 44)


def test_the_command_line_sends_the_files_along(server: ServerProcess, http: Checked, tmp_path: Path) -> None:
    name = unique("uses").replace("-", "_")
    for folder in ("workflows", "shared"):
        (tmp_path / folder).mkdir()
    (tmp_path / "shared" / "tools.yaml").write_text(TOOLS)
    flow = tmp_path / "workflows" / "a.flow.yaml"
    flow.write_text(FLOW % (name, 1))
    done = run("publish", "workflows", folder=tmp_path, HAI_FLOW_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert wait_for_end(http, start(http, name)["id"])["output"] == "finished"
    flow.write_text(FLOW % (name, 2))
    (tmp_path / "shared" / "tools.yaml").write_text(TOOLS.replace("files", "docs"))
    done = run("publish", "workflows", folder=tmp_path, HAI_FLOW_URL=server.url)
    assert done.returncode == 1
    assert "workflows/a.flow.yaml:6:24: there is no tool `files`" in done.stderr
    (tmp_path / "shared" / "tools.yaml").write_text(TOOLS.replace("python", "pyton"))
    done = run("publish", "workflows", folder=tmp_path, HAI_FLOW_URL=server.url)
    assert "shared/tools.yaml:2:17: " in done.stderr
    assert "    2 | tools: {files: {pyton" in done.stderr
