"""A real client of the language server: pygls' own, over the standard streams of a process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as t
from pygls.lsp.client import LanguageClient


class Editor:
    """An editor that has opened a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client = LanguageClient("editor", "1")
        self.diagnostics: dict[str, list[t.Diagnostic]] = {}
        self.logs: list[str] = []
        self._news = asyncio.Condition()
        self._versions: dict[str, int] = {}
        self._counts: dict[str, int] = {}

        @self.client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        async def publish(params: t.PublishDiagnosticsParams) -> None:
            async with self._news:
                self.diagnostics[params.uri] = list(params.diagnostics)
                self._counts[params.uri] = self._counts.get(params.uri, 0) + 1
                self._news.notify_all()

        @self.client.feature(t.WINDOW_LOG_MESSAGE)
        def log(params: t.LogMessageParams) -> None:
            self.logs.append(params.message)

    async def begin(self) -> None:
        await self.client.start_io(sys.executable, "-m", "hai_flow.cli", "lsp", cwd=self.root)
        await self.client.initialize_async(
            t.InitializeParams(t.ClientCapabilities(), root_uri=self.root.as_uri(), process_id=None)
        )
        self.client.initialized(t.InitializedParams())

    async def end(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    async def write(self, name: str, text: str) -> list[t.Diagnostic]:
        """Open the file, or change its text, and wait for its findings."""
        uri = self.uri(name)
        count = self._counts.get(uri, 0)
        version = self._versions[uri] = self._versions.get(uri, 0) + 1
        if version == 1:
            item = t.TextDocumentItem(uri, "yaml", version, text)
            self.client.text_document_did_open(t.DidOpenTextDocumentParams(item))
        else:
            self.client.text_document_did_change(
                t.DidChangeTextDocumentParams(
                    t.VersionedTextDocumentIdentifier(version, uri), [t.TextDocumentContentChangeWholeDocument(text)]
                )
            )
        async with self._news:
            await self._news.wait_for(lambda: self._counts.get(uri, 0) > count)
        return self.diagnostics[uri]

    def at(self, name: str, text: str, mark: str, behind: bool = True) -> dict[str, Any]:
        """The parameters of a request about the place behind the first `mark` of the text, or before it."""
        index = text.index(mark) + (len(mark) if behind else 0)
        line = text.count("\n", 0, index)
        column = index - (text.rfind("\n", 0, index) + 1)
        return {
            "text_document": t.TextDocumentIdentifier(self.uri(name)),
            "position": t.Position(line, len(text.split("\n")[line][:column].encode("utf-16-le")) // 2),
        }

    async def labels(self, name: str, text: str, mark: str) -> list[str]:
        """What is offered behind the mark, in the order in which editors show it."""
        await self.write(name, text)
        found = await self.client.text_document_completion_async(t.CompletionParams(**self.at(name, text, mark)))
        assert isinstance(found, t.CompletionList)
        return [each.label for each in sorted(found.items, key=lambda each: each.sort_text or each.label)]


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Editor]:
    editor = Editor(tmp_path)
    await editor.begin()
    yield editor
    await editor.end()
