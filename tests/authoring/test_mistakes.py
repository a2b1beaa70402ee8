"""Mistakes that authors make, each found at its line with the words that help; and right files, without a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from hai_flow.checking.modules import ModuleFiles
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.schemas.python_modules import python_module

HERE: Final = Path(__file__).resolve().parent
RIGHT: Final = sorted((HERE / "right").glob("*.flow.yaml"))
MISTAKES: Final = {
    "03-deadline-over-limit": (10, "duration"),
    "07-feb-30": (5, "February"),
    "12-python-argument-misspelt": (10, "amount"),
    "21-parallel-counter-lost": (16, "last one wins"),
    "24-agent-without-tools": (10, "llm"),
    "26-for-each-constant-key": (9, "key"),
    "30-default-does-not-fit-form": (9, "integer"),
    "31-wait-for-default-shape": (8, "data"),
    "37-schema-bad-pattern": (7, "pattern"),
    "40-compare-text-with-number": (6, "int("),
    "44-catch-shadowed": (12, "never"),
    "47-remind-after-deadline": (9, "deadline"),
    "50-append-a-list": (6, "append"),
    "57-if-with-hole-text": (6, "quotes"),
    "59-provider-unknown": (4, "anthropic"),
    "60-notify-url": (9, "channel"),
    "68-reject-when-too-many": (10, "3"),
    "70-every-over-max-delay": (8, "max_delay"),
    "73-java-date-format": (5, "%Y"),
    "74-bad-timestamp-literal": (5, "timestamp"),
    "76-http-relative": (5, "https://"),
    "82-join-any-two-approvals": (9, "join"),
}
"""The line, and a word of the message."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_where_it_stands_in_words_that_help(mistake: str) -> None:
    file = HERE / "mistakes" / f"{mistake}.flow.yaml"
    line, word = MISTAKES[mistake]
    findings = check_workflow(file.read_bytes(), file.name, modules=ModuleFiles([str(file)]).find)
    assert any(each.line == line and word in each.message for each in findings), findings


@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.name)
def test_a_right_file_has_no_finding(file: Path) -> None:
    assert check_workflow(file.read_bytes(), file.name, modules=ModuleFiles([str(file)]).find) == []


MODULE: Final = """
from elsewhere import tool, helper
import os as system

LIMIT = 5
alias = helper

@tool
def plain(a, b=1, *, c: int, d: str = ""): ...

@tool("shop.named")
async def named(context: Context, items: list[str], **more): ...

@cached
@tool
def wrapped(a): ...

def own(a: "float"): ...

if system.name == "nt":
    def maybe(a): ...
"""


def test_a_module_is_read_without_running_it() -> None:
    module = python_module(MODULE.encode())
    assert {"plain", "named", "shop.named", "wrapped", "own", "maybe"} == module.functions.keys()
    assert module.registered == {"plain", "named", "shop.named", "wrapped"}
    assert {"tool", "helper", "system", "LIMIT", "alias"} == module.others
    assert not module.unsure
    plain = module.functions["plain"]
    assert (plain.parameters, plain.required, plain.takes_any) == (("a", "b", "c", "d"), {"a", "c"}, False)
    assert plain.types == {"c": {"type": "integer"}, "d": {"type": "string"}}
    named = module.functions["named"]
    assert (named.parameters, named.takes_any, named.types) == (
        ("items",),
        True,
        {"items": {"type": "array", "items": {"type": "string"}}},
    )
    assert module.functions["wrapped"].unsure
    assert module.functions["maybe"].unsure


@pytest.mark.parametrize(
    "source",
    ["from x import *", "def __getattr__(name): ...", "for each in x: tool(each)", "tool('a')(make())", "f = tool(g)"],
)
def test_a_module_that_may_have_more_functions_is_not_judged(source: str) -> None:
    assert python_module(source.encode()).unsure


@pytest.mark.parametrize("source", ["def (", "\0", "(" * 5000, "\xff"])
def test_what_is_no_python_is_a_syntax_error(source: str) -> None:
    with pytest.raises(SyntaxError):
        python_module(source.encode("latin-1"))


HEAD: Final = "hai: flow/v1\nname: a\nversion: 1\n"


@pytest.mark.parametrize(
    ("tool", "call", "code", "word"),
    [
        ("hospital.ehr", "ehr.read_chrt, with: {patient: p}", "tool.no_function", "read_chart"),
        ("hospital.ehr", "ehr.read_chart, with: {patien: p}", "call.unknown_argument", "patient"),
        ("hospital.ehr", "ehr.read_chart", "call.missing_argument", "patient"),
        ("hospital.ehr", "ehr.read_chart, with: {patient: 5}", "call.argument", "string"),
        ("hospital.ehrr", "ehr.read_chart, with: {patient: p}", "tool.no_module", "hospital.ehrr"),
        ("hospital.broken", "ehr.read_chart, with: {patient: p}", "tool.no_module", "broken.py:1"),
        ("hospital.ehr:read_chrt", "ehr, with: {patient: p}", "tool.no_function", "read_chart"),
    ],
)
def test_a_call_of_a_function_that_is_not_so_is_a_finding(
    tmp_path: Path, tool: str, call: str, code: str, word: str
) -> None:
    (tmp_path / "hospital").mkdir()
    (tmp_path / "hospital" / "ehr.py").write_text("def read_chart(patient: str, since: int = 0): ...\n")
    (tmp_path / "hospital" / "broken.py").write_text("def (\n")
    file = tmp_path / "a.flow.yaml"
    source = f"{HEAD}tools: {{ehr: {{python: '{tool}'}}}}\nsteps: [{{call: {call}}}]\n"
    (finding,) = check_workflow(source.encode(), str(file), modules=ModuleFiles([str(file)]).find)
    is_at_tool = code == "tool.no_module" or ":" in tool  # the finding stands where the wrong name is typed
    assert (finding.code, finding.severity, finding.line) == (code, "error", 4 if is_at_tool else 5)
    assert word in finding.message


def test_a_module_that_is_not_there_is_one_finding_for_all_its_calls(tmp_path: Path) -> None:
    (tmp_path / "hospital").mkdir()
    (tmp_path / "hospital" / "ehr.py").write_text("def read_chart(): ...\n")
    file = tmp_path / "a.flow.yaml"
    source = f"{HEAD}tools: {{ehr: {{python: hospital.ehrr}}}}\nsteps: [call: ehr.read, call: ehr.write]\n"
    (finding,) = check_workflow(source.encode(), str(file), modules=ModuleFiles([str(file)]).find)
    assert (finding.line, finding.column) == (4, 23)


def test_a_module_that_is_not_here_is_named_and_not_judged(tmp_path: Path) -> None:
    modules = ModuleFiles([str(tmp_path / "a.flow.yaml")])
    source = f"{HEAD}tools: {{far: {{python: acme.far}}}}\nsteps: [call: far.x]\n"
    assert check_workflow(source.encode(), modules=modules.find) == []
    assert modules.unread == {"acme.far": "validate where it lies, or is installed"}
