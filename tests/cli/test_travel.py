"""Going back from the command line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from hai_flow.cli.runs.time_travel import explain_obstacle
from tests.support.commands import run
from tests.support.server import serving

FLOW = """\
hai: flow/v1
name: going_back
version: 1
input: {type: object, properties: {n: {type: integer, default: 1}}}
state: {seen: {type: integer, default: 0}}
steps:
  - {id: note, set: {seen: "${{ input.n }}"}}
  - {id: words, say: "It is ${{ input.n }}."}
  - {id: sure, ask: {title: "Sure of ${{ input.n }}?", from: anyone, form: {type: object, properties: {}}}}
output: "${{ state.seen }}"
"""


@pytest.mark.parametrize(
    ("detail", "forkable", "said"),
    [
        (None, True, ""),
        ("run r was performing pay at its event 9: nobody knows how far.", False,
         "; no fork here: it was performing pay at its event 9: nobody knows how far."),
        ("run r: pay was approved and not finished.", False, "; no fork here: pay was approved and not finished."),
        ("run r was approved at ok.", True, "; only as it was, with nothing edited: it was approved at ok."),
    ],
)  # fmt: skip
def test_a_mark_says_in_a_sentence_why_the_run_cannot_be_forked_there(
    detail: str | None, forkable: bool, said: str
) -> None:
    why = None if detail is None else {"code": "fork_somehow", "detail": detail}
    assert explain_obstacle({"forkable": forkable, "why_not": why}, "r") == said


def test_a_run_is_looked_back_at_forked_and_a_step_of_it_skipped(database_url: str, tmp_path: Any) -> None:
    (tmp_path / "going_back.flow.yaml").write_text(FLOW)
    with serving(database_url) as server:

        def ask(*arguments: str, code: int = 0) -> str:
            answered = run(*arguments, HAI_FLOW_URL=server.url)
            assert answered.returncode == code, answered.stderr + answered.stdout
            return answered.stdout + answered.stderr

        ask("publish", str(tmp_path / "going_back.flow.yaml"))
        first = json.loads(run("run", str(tmp_path / "going_back.flow.yaml"), "--server", server.url, "--json").stdout)[
            "run_id"
        ]
        assert "It is 1." in ask("replay", first, "--speed", "1000", "--gap", "0")
        assert "Sure of 1?" not in ask("replay", first, "--to", "step:words", "--gap", "0")
        marks = ask("marks", first)
        assert re.search(r"^ +\d+  \S+ \S+Z  in front of words$", marks, re.MULTILINE)
        assert f"fork {first} --at N --dry-run" in marks
        told = ask("changes", first, "--from", "2")
        assert "state/seen: replace = 1" in told
        assert "step sure: not begun -> waiting" in told
        assert "question Sure of 1?: not asked -> open" in told
        rehearsed = ask("rerun", first, "note", "--input", '{"n": 5}', "--dry-run")
        assert "Begins: note" in rehearsed
        assert f"Stops {first} (waiting)" in rehearsed
        wrong = ask("fork", first, "--at", "1", code=1)
        assert "The nearest moments:" in wrong
        assert ask("fork", first, code=2)
        fork = json.loads(ask("rerun", first, "note", "--input", '{"n": 5}', "--json"))["id"]
        assert "It is 5." in ask("replay", fork, "--gap", "0")
        assert "goes on behind sure" in ask("skip", fork, "sure", "--reason", "nobody is there")
        shown = json.loads(ask("show", fork, "--json"))
        assert (shown["status"], shown["output"]) == ("finished", 5)


def test_many_runs_are_stopped_at_once_if_they_are_as_many_as_expected(database_url: str, tmp_path: Any) -> None:
    (tmp_path / "going_back.flow.yaml").write_text(FLOW)
    with serving(database_url) as server:
        for _ in range(2):
            run("run", str(tmp_path / "going_back.flow.yaml"), "--server", server.url)
        listed = run("bulk", "stop", "--workflow", "going_back", HAI_FLOW_URL=server.url)
        assert "2 runs; to stop them, say --expect 2." in listed.stdout
        wrong = run("bulk", "stop", "--workflow", "going_back", "--expect", "3", HAI_FLOW_URL=server.url)
        assert (wrong.returncode, "expected 3 runs, found 2" in wrong.stderr) == (1, True)
        done = run("bulk", "stop", "--workflow", "going_back", "--expect", "2", HAI_FLOW_URL=server.url)
        assert "stop: 2 of 2 runs, 0 refused." in done.stdout, done.stderr
        refused = run("bulk", "pause", "--workflow", "going_back", "--expect", "2", HAI_FLOW_URL=server.url)
        assert (refused.returncode, "run_ended" in refused.stdout) == (1, True)
        assert run("bulk", "stop", HAI_FLOW_URL=server.url).returncode == 2
