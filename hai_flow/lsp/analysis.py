"""The analysis of a text that is being edited: its findings, which are those of `validate`, and its steps and names.

While it is typed a text is often no document at all. So the last one that could be read is kept beside it, for
completion, outlines and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hai_flow.checking.modules import ModuleFiles
from hai_flow.checking.workflows import Workflows
from hai_flow.definition.compiler import Earlier
from hai_flow.definition.names.known_names import Types
from hai_flow.definition.plan import Plan
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import BYTES_MAX, Document
from hai_flow.errors import Finding
from hai_flow.shared import with_uses


class DocumentNames(msgspec.Struct, frozen=True):
    """A text that could be read: its document, its steps and declarations, and the types of its names."""

    text: str
    document: Document
    context: StepContext
    types: Types


class Analysis(msgspec.Struct, frozen=True):
    """`file` is how findings call the text. `names`: of the text, or of the last one before it that could be read;
    `valid`: the last text without an error."""

    file: str
    text: str
    findings: tuple[Finding, ...]
    names: DocumentNames | None
    valid: str | None
    modules: ModuleFiles


class Analyst:
    """Analyses texts, one after the other. `imports`: whether Python modules may be imported, which runs their code."""

    def __init__(self, *, imports: bool = False) -> None:
        self._imports = imports
        self._cache: dict[tuple[str, bytes], Plan | None] = {}

    def analyse(
        self, file: str, text: str, beside: Mapping[str, str] | None = None, before: Analysis | None = None
    ) -> Analysis:
        """The analysis of a text. `beside`: other texts that are being edited, by their files; `before`: the last
        analysis of this one."""
        texts = {**(beside or {}), file: text}
        sources = {
            name: with_uses(Path(name), each.encode("utf-8", "surrogatepass"))
            if len(each) <= BYTES_MAX
            else each.encode("utf-8", "surrogatepass")
            for name, each in texts.items()
        }
        modules = ModuleFiles(texts, imports=self._imports)
        if len(self._cache) > 1000:
            self._cache.clear()
        last = None if before is None else before.names
        earlier: Earlier = () if last is None else (last.context, last.types)
        workflows = Workflows(sources, modules, cache=self._cache, before={file: earlier})
        findings = tuple(workflows.findings(file))
        names = _take_names(workflows, file, text) or (before.names if before is not None else None)
        is_valid = not any(each.severity == "error" for each in findings)
        valid = text if is_valid else before.valid if before is not None else None
        return Analysis(file, text, findings, names, valid, modules)


def _take_names(workflows: Workflows, file: str, text: str) -> DocumentNames | None:
    names = workflows.names.pop(file, None)  # it has these objects: a circle would live until the collector looks
    if names is None or not names[0].outline.steps:
        return None
    return DocumentNames(text, names[0].reader.document, *names)
