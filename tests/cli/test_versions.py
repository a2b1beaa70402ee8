"""Versions from the command line, and people who only say who they are."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from tests.support.commands import run, started

FLOW = """\
hai: flow/v1
name: moving
version: {version}
steps:
  - {{id: fine, approve: {{title: "{title}", from: role:lead}}}}
  - {{id: done, say: done}}
output: from version {version}
"""


def write(folder: Path, version: int, title: str = "Fine?", name: str | None = None) -> Path:
    path = folder / (name or f"moving{version}.flow.yaml")
    path.write_text(FLOW.format(version=version, title=title))
    return path


def test_two_files_are_compared_without_a_server(tmp_path: Path) -> None:
    old, new = write(tmp_path, 1), write(tmp_path, 2, "Really fine?")
    shown = run("diff", str(old), str(new), HAI_FLOW_URL="http://127.0.0.1:9")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == (
        'output: "from version 1" -> "from version 2"\n'
        "changed  fine  approve\n"
        '         title: "Fine?" -> "Really fine?"\n'
    )
    found = json.loads(run("diff", str(old), str(new), "--json").stdout)
    assert [(step["kind"], step["path"]) for step in found["steps"]] == [("changed", "fine")]
    assert "No difference" in run("diff", str(old), str(old)).stdout
    assert run("diff", str(old), "moving@2").returncode == 2


def test_who_names_nobody_is_wrong_usage() -> None:
    for command in (["decide", "call_x", "approve"], ["stop", "x"], ["run", "workflows/cleanup.flow.yaml"]):
        wrong = run(*command, "--as", "ann", HAI_FLOW_URL="http://127.0.0.1:9")
        assert wrong.returncode == 2
        assert "--as: expected user:, role:, group:" in wrong.stderr


def test_migrate_without_both_versions_is_wrong_usage() -> None:
    for arguments in (["moving", "--from", "1"], ["--to", "2"], ["moving", "--from", "1", "--to", "2", "--map", "a"]):
        wrong = run("runs", "migrate", *arguments, HAI_FLOW_URL="http://127.0.0.1:9")
        assert wrong.returncode == 2, wrong.stderr


def test_versions_are_published_and_runs_move_between_them(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    write(folder, 7, name="edited.flow.yaml")
    log, settings = tmp_path / "log", {"HAI_FLOW_DATABASE_URL": database_url}
    with started(log, "dev", "--port", "0", "--workflows", str(folder), "--no-open", **settings) as dev:
        url = dev.wait_for(r"Serving (http://\S+)")[1]

        def ask(*arguments: str, code: int = 0) -> Any:
            answer = run(*arguments, "--json", HAI_FLOW_URL=url)
            assert answer.returncode == code, answer.stderr + answer.stdout
            return json.loads(answer.stdout)

        # A file that is saved is a dev copy of its own, and the server says which.
        assert re.search(r"1 workflow from .*: moving@7\+[0-9a-f]{8}\n", dev.output)
        write(folder, 7, "Edited?", name="edited.flow.yaml")
        saved = dev.wait_for(r"edited\.flow\.yaml is saved and published as moving@7\+([0-9a-f]{8})\n")[1]
        copies = ask("versions", "moving")["items"]
        assert [copy["sha256"][:8] == saved for copy in copies] == [True, False], "the last one saved is the latest"

        files = [str(write(tmp_path, version)) for version in (1, 2)]
        assert len(ask("publish", *files)["published"]) == 2
        write(tmp_path, 2, "Other?")
        again = ask("publish", *files, code=1)
        assert [each["code"] for each in again["refused"]] == ["workflow_exists"]
        (tmp_path / "wrong.yaml").write_text("hai: flow/v1\nname: wrong\nversion: 1\nsteps: [{sya: x}]\n")
        wrong = run("publish", str(tmp_path / "wrong.yaml"), HAI_FLOW_URL=url)
        assert wrong.returncode == 1
        assert re.search(r"wrong\.yaml:4:\d+: .*sya.*\n +4 \| steps", wrong.stderr), wrong.stderr
        listed = run("versions", "moving", HAI_FLOW_URL=url).stdout
        assert re.findall(r"moving@\S+", listed)[:2] == ["moving@2", "moving@1"]
        assert ask("diff", "moving@1", "moving@2")["document"][0]["key"] == "output"

        runs = [ask("run", f, "--server", url, "--as", "user:eve", code=3)["run_id"] for f in (files[0], files[0])]
        assert ask("show", runs[0])["started_by"] == "user:eve"
        move = ("runs", "migrate", "moving", "--from", "1", "--to", "2")
        assert [each["moved"] for each in ask(*move, "--dry-run")["runs"]] == [False, False]
        assert [each["moved"] for each in ask(*move, "--run", runs[0], "--as", "user:ops")["runs"]] == [True]
        moved = run(*move, HAI_FLOW_URL=url)
        assert moved.returncode == 0, moved.stderr
        assert moved.stdout.endswith("1 of 1 run moved to moving@2.\n")
        stays = run("runs", "migrate", "moving", "--from", "2", "--to", f"7+{saved}", HAI_FLOW_URL=url)
        assert stays.returncode == 1
        assert "fine would show people something else than they were shown: title." in stays.stdout

        (pending,) = [each for each in ask("pendings")["items"] if each["run_id"] == runs[0]]
        assert ask("decide", pending["id"], "approve", "--as", "user:eve,role:lead", code=1)["status"] == 403
        decided = ask("decide", pending["id"], "approve", "--as", "user:lea,role:lead")
        assert decided["value"]["votes"][0]["via"] == "rest (act as)"
        shown = ask("show", runs[0])
        assert (shown["output"], shown["version"]["version"]) == ("from version 2", 2)
        assert dev.end(signal.SIGINT) == 0
        assert "Traceback" not in dev.output
