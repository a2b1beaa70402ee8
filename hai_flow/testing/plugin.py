"""For pytest: every case of a `*.test.yaml` file is a test. Found by pytest where HAI Flow is installed.

`-p no:hai_flow.testing.plugin` turns it off. Workflows named by version are read from no server here: give files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hai_flow.testing.loading import DocumentLoader, LoadedDocument
    from hai_flow.testing.runner import Result
    from hai_flow.testing.suite import Case

_LOADER: pytest.StashKey[DocumentLoader] = pytest.StashKey()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """A test file is collected; nothing of HAI Flow is imported before there is one."""
    if not file_path.name.endswith((".test.yaml", ".test.yml")):
        return None
    return SuiteFile.from_parent(parent, path=file_path)


class Wrong(pytest.Collector.CollectError):
    """A test document with findings; pytest shows them."""


class CaseFailure(Exception):
    """A case that did not go as its document says."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.case.name)
        self.result = result


class SuiteFile(pytest.File):
    def collect(self) -> Iterator[CaseItem]:
        """Its cases. Raises `Wrong` with its findings if it can't be run."""
        from hai_flow.testing.loading import DocumentLoader

        loader = self.config.stash.setdefault(_LOADER, DocumentLoader())
        loaded = loader.load(self.path, os.path.relpath(self.path, self.config.invocation_params.dir))
        if loaded.findings:
            raise Wrong("\n".join(f"{finding} [{finding.code}]" for finding in loaded.findings))
        for case in loaded.cases:
            yield CaseItem.from_parent(self, name=case.name, loaded=loaded, case=case)


class CaseItem(pytest.Item):
    def __init__(self, *, loaded: LoadedDocument, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self._loaded = loaded
        self._case = case

    def runtest(self) -> None:
        """Play the case. Raises `CaseFailure`."""
        result = self._loaded.run(self._case)
        if not result.passed:
            raise CaseFailure(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure, as `hai-flow test` shows it; a traceback only for a fault of our own."""
        if not isinstance(excinfo.value, CaseFailure):
            return super().repr_failure(excinfo, style)
        from hai_flow.testing.report import describe

        return "\n".join(line.text for line in describe(excinfo.value.result))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the case begins (lines from 0), for editors."""
        suite = self._loaded.suite
        assert suite is not None
        return self.path, suite.line(self._case.at) - 1, self.name
