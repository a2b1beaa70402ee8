"""The TypeScript client's modules import each other in one direction."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

from tests.clients.typescript import PROJECT


def test_no_module_imports_one_that_imports_it() -> None:
    modules = {
        path.stem: re.findall(r'from "\./(\w+)\.js"', path.read_text()) for path in (PROJECT / "src").glob("*.ts")
    }
    order = list(TopologicalSorter(modules).static_order())
    assert order[-1] == "index"
