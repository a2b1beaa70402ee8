"""`tests.support.rewriting`: pytest reads bytecode, and hypothesis constants, that were written before they began."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion import rewrite
from hypothesis.configuration import StorageDirectory
from hypothesis.internal import constants_ast

from tests.support.rewriting import bytecode_of, write_constants, write_rewritten


def test_pytest_reads_what_was_written_before(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "test_one.py"
    module.write_text("def test_one(value):\n    assert value == 2\n")
    assert write_rewritten(module)
    monkeypatch.setattr(rewrite, "_rewrite_test", None)
    hook = request.config.pluginmanager.rewrite_hook
    spec = importlib.util.spec_from_file_location("test_one", module, loader=hook)  # type: ignore[arg-type]
    assert spec is not None
    assert spec.loader is not None
    namespace = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(namespace)
    with pytest.raises(AssertionError, match="assert 1 == 2"):
        namespace.test_one(1)


def test_existing_compiled_modules_stay_and_a_changed_one_is_rewritten(tmp_path: Path) -> None:
    module = tmp_path / "test_one.py"
    module.write_text("one = 1\n")
    assert write_rewritten(module)
    assert not write_rewritten(module)
    module.write_text("one = 2\n")
    assert write_rewritten(module)
    assert [each.name for each in bytecode_of(module).parent.iterdir()] == [bytecode_of(module).name]


def test_hypothesis_reads_the_constants_that_were_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        constants_ast, "storage_directory", lambda name: StorageDirectory(tmp_path / name, home_directory=tmp_path)
    )
    module = tmp_path / "one.py"
    module.write_text("def one() -> int:\n    return 1729\n")
    write_constants(module)
    (kept,) = (tmp_path / "constants").iterdir()
    kept.write_text(kept.read_text().replace("1729", "1730"))
    namespace = ModuleType("one")
    namespace.__file__ = str(module)
    assert 1730 in constants_ast.constants_from_module(namespace)
