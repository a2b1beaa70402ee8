"""Whatever a file holds, the commands of authors answer with sentences: no traceback, in every form of output."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app

HEAD: Final = b"hai: flow/v1\nname: a\nversion: 1\n"
WORKFLOWS: Final = {
    "nothing": b"",
    "a NUL": b"hai: flow/v1\0\nname: a\n",
    "Latin-1": "hai: flow/v1\nname: ä\n".encode("latin-1"),
    "UTF-16": (HEAD + b"steps: [{say: x}]\n").decode().encode("utf-16"),
    "a list": b"- a\n- b\n",
    "a text": b"hello\n",
    "null": b"~\n",
    "steps that are nothing": HEAD + b"steps:\n",
    "5,000 brackets": HEAD + b"steps: " + b"[" * 5000 + b"]" * 5000,
    "aliases that grow": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(8)),
    "a step that holds itself": HEAD + b"steps: &s [{try: *s}]\n",
    "6 MB": HEAD + b"steps:\n" + b"  - say: x\n" * 600_000,
    "a tab": b"hai: flow/v1\n\tname: a\n",
    "two documents": HEAD + b"steps: [{say: x}]\n---\nhai: flow/v1\n",
    "keys that are no text": b"? [a, b]\n: 1\n? {x: y}\n: 2\n1: 2\n",
    "half a character": HEAD.replace(b"a\n", b'"\\uD800"\n', 1) + b'steps: [{say: "\\uD800"}]\n',
    "5,000 digits": HEAD.replace(b"1\n", b"9" * 5000 + b"\n", 1) + b"steps: [{say: x}]\n",
    "files that are not there": HEAD + b"use: [../../../etc/passwd, none.yaml, ./a.flow.yaml]\nsteps: [{say: x}]\n",
    "a service without its document": HEAD + b"tools: {s: {http: ./none.json}}\nsteps: [{call: s.x}]\n",
    "modules that can't be imported": HEAD
    + b"tools: {s: {python: broken}, t: {python: leaves}}\nsteps: [{call: s.x}, {call: t.x}]\n",
    "everything of another type": b"hai: [1]\nname: {a: b}\nversion: [x]\ninput: 3\nstate: [a]\ntools: x\nmodels: 1\n"
    b"roles: 2\ntriggers: {a: b}\nlimits: []\ndefaults: x\nconcurrency: 3\ncatch: 4\nfinally: 5\nuse: 7\n"
    b'output: {a: ["${{ x"]}\nsteps: {a: b}\n',
    "steps of other types": HEAD + b"steps: [1, null, [x], {}, {id: 3}, {call: [x], with: 3}, {llm: 3}, {agent: [1]}, "
    b"{ask: x}, {approve: 4}, {for_each: 3}, {repeat: []}, {parallel: 3}, {switch: 4}, {set: 3}, {let: 3}, {wait: 3}, "
    b"{wait_for: 3}, {http: 3}, {run: []}, {try: 3}, {emit: 3}, {fail: []}, {say: [1], continue_on_error: x, retry: 3, "
    b"catch: 3, undo: 4, finally: 5, approval: 6}]\n",
    "parts of steps of other types": HEAD
    + b"tools: {s: {python: a.b}}\nmodels: {m: {provider: openai, model: x}}\nsteps: [{call: s.x, with: {a: {b: [1]}}, "
    b"catch: [3], approval: {from: {a: b}, edit: {a: b}, options: 3}}, {llm: {model: m, messages: [1, {role: [x]}]}}, "
    b"{agent: {model: m, prompt: x, tools: [3, s.x], approvals: {s.x: [1]}}}, {approve: {title: [x], from: [[1]], "
    b"quorum: {a: b}, form: [1]}}, {set: {a: b}}, {switch: [1, {when: [x]}]}, {parallel: {a: 3, b: {steps: 4}}}]\n",
}
TESTS: Final = {
    "nothing": b"",
    "a NUL": b"\0",
    "other types": b"hai: test/v1\nworkflow: [x]\npeople: 3\nmock: 4\ncases: {a: b}\n",
    "cases of other types": b"hai: test/v1\nworkflow: good.flow.yaml\n"
    b"cases: [1, null, {name: [x], input: 3, script: {a: b}, expect: 4}]\n",
    "steps of other types": b"hai: test/v1\nworkflow: good.flow.yaml\nmock: {a: [3], b: {output: 1, error: 2}}\n"
    b"cases: [{name: a, start: 3, script: [1, {decide: 3}, {expect: [1]}, {advance: [x]}, {signal: 4}]}]\n",
    "no workflow": b"hai: test/v1\nworkflow: none.flow.yaml\ncases: [{name: a}]\n",
    "a broken workflow": b"hai: test/v1\nworkflow: broken.flow.yaml\ncases: [{name: a}]\n",
}
OF_WORKFLOWS: Final = (
    ("validate",), ("validate", "--json"), ("validate", "--no-import"), ("validate", "--fix"), ("fmt",), ("graph",),
    ("graph", "-o", "a.svg"),
)  # fmt: skip
OF_TESTS: Final = (("test",), ("test", "--json"), ("test", "-v"), ("test", "--coverage"))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("def x(:\n")
    Path("leaves.py").write_text("globals()['x'] = 1\nraise SystemExit(3)\n")
    Path("good.flow.yaml").write_bytes(HEAD + b"steps: [{say: x}]\n")
    Path("broken.flow.yaml").write_bytes(b"hai: [")


def answers(arguments: tuple[str, ...], name: str) -> None:
    """The command ends by its own word, with something said; what is JSON is one document of it."""
    result = CliRunner().invoke(app, [*arguments, name])
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
    assert result.exit_code in (0, 1, 2), (arguments, result.output)
    assert "Traceback" not in result.output
    if "--json" in arguments and (result.exit_code != 2 or result.stdout):  # 2: the command was used wrongly
        json.loads(result.stdout)


@pytest.mark.parametrize("broken", WORKFLOWS)
def test_a_broken_workflow_is_answered_in_sentences(broken: str) -> None:
    for arguments in OF_WORKFLOWS:
        Path("a.flow.yaml").write_bytes(WORKFLOWS[broken])
        answers(arguments, "a.flow.yaml")


@pytest.mark.parametrize("broken", TESTS)
def test_a_broken_test_is_answered_in_sentences(broken: str) -> None:
    Path("a.test.yaml").write_bytes(TESTS[broken])
    for arguments in OF_TESTS:
        answers(arguments, "a.test.yaml")


@pytest.mark.parametrize(
    "place", ["none.flow.yaml", "folder", "folder/deep.flow.yaml", "circle.flow.yaml", "locked.flow.yaml"]
)
def test_a_place_where_no_file_can_be_read_is_answered_in_sentences(place: str) -> None:
    Path("folder/deep.flow.yaml").mkdir(parents=True)
    Path("circle.flow.yaml").symlink_to("circle.flow.yaml")
    Path("locked.flow.yaml").touch(mode=0)
    if os.access(place, os.R_OK) and place == "locked.flow.yaml":
        pytest.skip("who runs this may read everything")
    for arguments in (*OF_WORKFLOWS, *OF_TESTS):
        answers(arguments, place)
