"""The workflow files of `dev`, as they are loaded into a runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hai_flow.cli.serve import watch as shelves
from hai_flow.cli.serve.backend import Local
from hai_flow.cli.serve.watch import Shelf
from hai_flow.definition import compiler
from hai_flow.definition.plan import Plan
from hai_flow.runtime.catalog import catalog
from tests.runtime.conftest import ASKING, Make


async def test_each_file_is_compiled_once_when_dev_loads_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        text = f"hai: flow/v1\nname: {name}\nversion: 1\n{ASKING}"
        (tmp_path / f"{name}.flow.yaml").write_text(text)
    compiled: Counter[bytes] = Counter()

    def counted(source: bytes, *further: object, **more: object) -> Plan:
        compiled[source] += 1
        return compiler.compile_workflow(source, *further, **more)  # type: ignore[arg-type]

    for module in (shelves, catalog):
        monkeypatch.setattr(module, "compile_workflow", counted)
    runtime = await make()
    shelf = Shelf(Local(runtime), [tmp_path], None)
    await shelf.load()
    assert sorted(shelf.names) == ["one", "three", "two"]
    assert list(compiled.values()) == [1, 1, 1]
