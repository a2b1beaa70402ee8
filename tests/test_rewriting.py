"""`tests.support.rewriting`: pytest reads the bytecode of tests that was written before it began."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.support.rewriting import bytecode_of, write_rewritten


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
