"""Workflow files that are checked together, and the Python modules of their tools, also those that have to be
imported."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hai_flow.checking import imported
from hai_flow.checking.imported import NotImported, import_module
from hai_flow.checking.modules import ModuleFiles
from hai_flow.checking.workflows import Workflows
from hai_flow.definition import compiler
from hai_flow.errors import Finding

CALL = """hai: flow/v1
name: {name}
version: 1
tools: {{t: {{python: {module}}}}}
steps:
  - call: t.pay
    with: {{amont: 1}}
"""


def check(root: Path, *, imports: bool = True) -> tuple[dict[str, list[Finding]], ModuleFiles]:
    """The findings of all workflow files of the folder, which is the working directory."""
    sources = {path.name: path.read_bytes() for path in sorted(root.glob("*.flow.yaml"))}
    modules = ModuleFiles(sources, imports=imports)
    workflows = Workflows(sources, modules)
    return {name: workflows.findings(name) for name in sources}, modules


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


DYNAMIC = "import functools\ndef _pay(amount: int): ...\nglobals()['pay'] = functools.partial(_pay)\nexec('1')\n"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (DYNAMIC, "no argument `amont`; did you mean `amount`?"),
        ("for n in (1,):\n    1 / 0\n", "shop.py:2: ZeroDivisionError"),
        ("import sys\nfor n in (1,):\n    sys.exit(3)\n", "which ends the process"),
        ("import os\nfor n in (1,):\n    os._exit(3)\n", "exit code 3"),
        ("for n in (1,):\n    exec(f'def pay_{n}(): ...')\n", "no function `pay`; did you mean `pay_1`?"),
        ("for n in (1,):\n    x = bytearray(8 << 30)\n", "MemoryError"),
    ],
)
def test_a_module_that_hides_a_function_is_imported_and_its_faults_shown(here: Path, module: str, words: str) -> None:
    (here / "shop.py").write_text(module)
    (here / "a.flow.yaml").write_text(CALL.format(name="a", module="shop"))
    found, modules = check(here)
    assert [words in each.message for each in found["a.flow.yaml"]] == [True]
    assert modules.unread == {}


def test_a_module_that_hangs_is_given_up_after_the_limit(here: Path) -> None:
    (here / "shop.py").write_text("import time\nfor n in (1,):\n    time.sleep(600)\n")
    began = time.monotonic()
    with pytest.raises(NotImported, match=r"did not end within 0\.5 s"):
        import_module("shop", here, seconds=0.5)
    assert time.monotonic() - began < 20


def test_a_module_that_needs_a_package_that_is_not_here_was_not_looked_at(here: Path) -> None:
    (here / "shop.py").write_text("import not_installed_anywhere\nfor n in (1,):\n    pass\n")
    (here / "a.flow.yaml").write_text(CALL.format(name="a", module="shop"))
    found, modules = check(here)
    assert found == {"a.flow.yaml": []}
    assert "ModuleNotFoundError" in modules.unread["shop"]


def test_no_code_of_the_project_runs_where_imports_are_off(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported.subprocess, "Popen", lambda *args, **more: pytest.fail("something was run"))
    (here / "shop.py").write_text(DYNAMIC)
    (here / "a.flow.yaml").write_text(CALL.format(name="a", module="shop"))
    found, modules = check(here, imports=False)
    assert found == {"a.flow.yaml": []}
    assert list(modules.unread) == ["shop"]


def test_a_tool_registered_in_the_folder_is_known_another_is_not_looked_at(here: Path) -> None:
    (here / "tools").mkdir()
    (here / "tools" / "till.py").write_text("from hai_flow import tool\n@tool('t.pay')\ndef pay(amount: int): ...\n")
    (here / "a.flow.yaml").write_text(CALL.format(name="a", module="registered"))
    found, modules = check(here)
    assert "no argument `amont`" in found["a.flow.yaml"][0].message
    (here / "a.flow.yaml").write_text(CALL.format(name="a", module="registered").replace("t.pay", "t.refund"))
    found, modules = check(here)
    assert found == {"a.flow.yaml": []}
    assert list(modules.unread) == ["t.refund"]


PARENT = """hai: flow/v1
name: {name}
version: 1
steps:
  - id: a
    run: {child}
  - say: ${{{{ steps.a.output.x }}}}
"""


def test_each_file_is_compiled_once_also_in_a_circle_of_workflows(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"w{number}" for number in range(40)]
    for name, child in zip(names, [*names[1:], names[0]], strict=True):
        (here / f"{name}.flow.yaml").write_text(PARENT.format(name=name, child=child))
    compiled: list[str] = []
    original = compiler.read_workflow

    def count(source: bytes, file: str = "", **more: object) -> object:
        compiled.append(file)
        return original(source, file, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("hai_flow.checking.workflows.read_workflow", count)
    found, _ = check(here)
    assert not any(found.values())
    assert len(compiled) <= 40 + 40 // 10  # where a chain is deep, or closes, one is read once more


def test_a_child_named_nearly_like_a_file_beside_it_is_a_warning(here: Path) -> None:
    (here / "kid.flow.yaml").write_text("hai: flow/v1\nname: collect\nversion: 1\nsteps:\n  - say: hi\n")
    (here / "dad.flow.yaml").write_text(PARENT.format(name="dad", child="colect"))
    found, _ = check(here)
    assert [(each.line, each.column, each.code) for each in found["dad.flow.yaml"]] == [(6, 10, "run.unknown")]
    assert "did you mean `collect`?" in found["dad.flow.yaml"][0].message
    (here / "dad.flow.yaml").write_text(PARENT.format(name="dad", child="elsewhere"))
    assert check(here)[0]["dad.flow.yaml"] == []


WAITING = "hai: flow/v1\nname: {name}\nversion: 1\nsteps:\n  - wait_for: {{event: {event}}}\n"


@pytest.mark.parametrize(
    ("event", "hint"),
    [("order.piad", "did you mean `order.paid`?"), ("order.sent", ""), ("order.paid", ""), ("order.paid2", "")],
)
def test_an_event_named_nearly_like_one_of_a_file_beside_it_is_a_warning(here: Path, event: str, hint: str) -> None:
    trigger = "triggers: [{event: {type: order.paid}}]\nsteps: [{say: hi}]\n"
    (here / "start.flow.yaml").write_text(f"hai: flow/v1\nname: start\nversion: 1\n{trigger}")
    (here / "wait.flow.yaml").write_text(WAITING.format(name="wait", event=event))
    findings = check(here)[0]["wait.flow.yaml"]
    assert [(each.line, each.code) for each in findings] == ([(5, "event.unknown")] if hint else [])
    assert all(hint in each.message for each in findings)


@pytest.mark.parametrize("alone", [True, False])
def test_two_files_of_one_name_are_a_finding_also_when_one_is_checked(here: Path, alone: bool) -> None:
    text = "hai: flow/v1\nname: a\nversion: 1\nsteps:\n  - say: hi\n"
    for file in ("a.flow.yaml", "b.flow.yaml"):
        (here / file).write_text(text)
    sources = {"a.flow.yaml": text.encode()} | ({} if alone else {"b.flow.yaml": text.encode()})
    workflows = Workflows(sources, ModuleFiles(sources))
    for file in sources:
        assert [(each.line, each.code) for each in workflows.findings(file)] == [(2, "file.double")]


def test_a_folder_of_thousands_is_looked_at_up_to_a_number_and_told(here: Path) -> None:
    for number in range(2105):
        (here / f"f{number}.flow.yaml").write_text(f"hai: flow/v1\nname: n{number}\nversion: 1\nsteps: [say: hi]\n")
    text = PARENT.format(name="dad", child="n7").encode()
    workflows = Workflows({"dad.flow.yaml": text}, ModuleFiles([]))
    began = time.monotonic()
    workflows.findings("dad.flow.yaml")
    assert workflows.count_unread() == 105
    assert time.monotonic() - began < 10
