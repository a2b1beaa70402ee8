"""The protocol of editors (LSP 3.17, over standard input and output), by pygls.

A text is analysed in a thread beside the loop, a moment after its last change; a newer text takes the place of one that
waits. Nothing of a document ends the server: a text that can't be read has a finding, and the one before it is kept."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from lsprotocol import types as t
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

import hai_flow
from hai_flow.authoring.formatting import format_source
from hai_flow.definition.yaml.fixes import apply_fixes
from hai_flow.errors import DefinitionError, Edit, Finding
from hai_flow.graph import draw
from hai_flow.lsp import features
from hai_flow.lsp.analysis import Analysis, Analyst
from hai_flow.lsp.features import NotRenamed, Offer, Symbol, Target, edits_in_test, workflow_of

T = TypeVar("T")

DEBOUNCE_SECONDS: Final = 0.005
IDLE_SECONDS: Final = 0.5
UNCOLLECTED_MAX: Final = 500
"""Analyses without a pause after which reference cycles are looked for all the same: each leaves a few."""
BESIDE_MAX: Final = 2000
GRAPH: Final = "haiFlow/graph"
_SUFFIXES: Final = (".flow.yaml", ".flow.yml")
_KINDS: Final = {
    "verb": t.CompletionItemKind.Keyword,
    "key": t.CompletionItemKind.Property,
    "value": t.CompletionItemKind.EnumMember,
    "step": t.CompletionItemKind.Variable,
    "field": t.CompletionItemKind.Field,
    "tool": t.CompletionItemKind.Function,
    "workflow": t.CompletionItemKind.Module,
}


class FlowServer(LanguageServer):
    """The state of one editor's session."""

    def __init__(self, *, imports: bool) -> None:
        super().__init__("hai-flow", hai_flow.__version__)
        self.analyst = Analyst(imports=imports)
        self.analyses: dict[str, Analysis] = {}  # by URI
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="analysis")
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self.shown: dict[str, set[str]] = {}  # URI -> those to which its findings went
        self._uncollected = 0
        self._pause: asyncio.TimerHandle | None = None

    # --- texts ----------------------------------------------------------------------------------------------------

    def schedule_analysis(self, uri: str) -> None:
        """Analyse a text, a moment from now."""
        if not uri.endswith(_SUFFIXES):
            return
        task = self.waiting.pop(uri, None)
        if task is not None:
            task.cancel()
        self.waiting[uri] = asyncio.get_running_loop().create_task(self._look_later(uri))

    async def _look_later(self, uri: str) -> None:
        await asyncio.sleep(DEBOUNCE_SECONDS)
        await self.current(uri)

    async def current(self, uri: str) -> Analysis | None:
        """The analysis of the text as it is now; the last one where it can't be made; None for other files."""
        if not uri.endswith(_SUFFIXES):
            return None
        before = self.analyses.get(uri)
        document = self.workspace.get_text_document(uri)
        text = unify_line_ends(document.source)
        if before is not None and before.text == text:
            return before
        beside = {
            file_of(each): unify_line_ends(other.source)
            for each, other in self.workspace.text_documents.items()
            if each != uri and each.endswith(_SUFFIXES)
        }
        work = partial(self.analyst.analyse, file_of(uri), text, beside, before)
        try:
            analysis = await asyncio.get_running_loop().run_in_executor(self.pool, work)
        except Exception as error:  # a fault of ours must not end the session
            self.log(f"{file_of(uri)} could not be analysed: {type(error).__name__}: {error}")
            return before
        if uri not in self.workspace.text_documents:
            return analysis
        newest = self.analyses.get(uri)
        if newest is None or newest is before:
            self.analyses[uri] = analysis
            self.tell(uri, analysis)
            self.collect_later()
        return analysis

    def collect_later(self) -> None:
        """Look for reference cycles once nothing is typed: for a long document it takes as long as an analysis."""
        self._uncollected += 1
        if self._pause is not None:
            self._pause.cancel()
        seconds = 0.0 if self._uncollected > UNCOLLECTED_MAX else IDLE_SECONDS
        self._pause = asyncio.get_running_loop().call_later(seconds, self._collect)

    def _collect(self) -> None:
        self._uncollected, self._pause = 0, None
        gc.collect()

    def close_text(self, uri: str) -> None:
        """Forget a text, and take its findings back."""
        if (task := self.waiting.pop(uri, None)) is not None:
            task.cancel()
        self.analyses.pop(uri, None)
        for each in self.shown.pop(uri, {uri}):
            self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=each, diagnostics=[]))

    def tell(self, uri: str, analysis: Analysis) -> None:
        """Send the findings: those about files that the workflow uses go to these."""
        by_file: dict[str, list[t.Diagnostic]] = {uri: []}
        for finding in analysis.findings:
            place = uri if finding.file == analysis.file else uri_of(finding.file)
            text = analysis.text if place == uri else _read(finding.file)
            by_file.setdefault(place, []).append(self.diagnostic(finding, text))
        for each in self.shown.get(uri, set()) - by_file.keys():
            by_file[each] = []
        self.shown[uri] = set(by_file)
        for place, diagnostics in by_file.items():
            self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=place, diagnostics=diagnostics))

    def log(self, message: str) -> None:
        self.window_log_message(t.LogMessageParams(type=t.MessageType.Error, message=message))

    # --- places ---------------------------------------------------------------------------------------------------

    def diagnostic(self, finding: Finding, text: str) -> t.Diagnostic:
        """A finding as editors have them; its `data` is the finding as `validate --json` prints it."""
        record = finding.as_dict()
        span = self.range_of(text, finding.line, finding.column, record["end_line"], record["end_column"])
        severity = t.DiagnosticSeverity.Error if finding.severity == "error" else t.DiagnosticSeverity.Warning
        return t.Diagnostic(span, finding.message, severity=severity, code=finding.code, source="hai-flow", data=record)

    def range_of(self, text: str, line: int, column: int, end_line: int, end_column: int) -> t.Range:
        lines = _split_lines(text)
        return t.Range(self._position(lines, line, column), self._position(lines, end_line, end_column))

    def _position(self, lines: Sequence[str], line: int, column: int) -> t.Position:
        place = t.Position(max(0, line - 1), max(0, column - 1))
        own = lines[place.line] if place.line < len(lines) else ""
        units = self.workspace.position_codec.client_num_units(own[: place.character])
        return t.Position(place.line, units)

    def place_in(self, text: str, position: t.Position) -> tuple[int, int]:
        """The line and the character of a position, from 0."""
        lines = _split_lines(text)
        own = lines[position.line] if position.line < len(lines) else ""
        codec = self.workspace.position_codec
        column, units = 0, 0
        while column < len(own) and units < position.character:
            units += codec.client_num_units(own[column])
            column += 1
        return position.line, column

    def edit(self, text: str, edit: Edit) -> t.TextEdit:
        return t.TextEdit(self.range_of(text, edit.line, edit.column, edit.end_line, edit.end_column), edit.text)

    def end_lines_as(self, uri: str, text: str) -> str:
        """`text` with the line ends of the document that it is written into."""
        is_crlf = "\r\n" in self.workspace.get_text_document(uri).source
        return text.replace("\n", "\r\n") if is_crlf else text

    def renames_in_tests(self, file: str, old: str | None, new: str) -> dict[str, list[t.TextEdit]]:
        """The edits of a renaming in the tests of a workflow that lie beside it, by their URIs."""
        changes: dict[str, list[t.TextEdit]] = {}
        for path in sorted(Path(file).parent.glob("*.test.y*ml"))[:BESIDE_MAX] if old else ():
            uri = uri_of(str(path))
            document = self.workspace.text_documents.get(uri)
            text = _read(str(path)) if document is None else unify_line_ends(document.source)
            with suppress(DefinitionError, UnicodeError):
                if (path.parent / workflow_of(text)).resolve() == Path(file).resolve():
                    edits = [self.edit(text, each) for each in edits_in_test(text, str(old), new)]
                    changes |= {uri: edits} if edits else {}
        return changes

    def workflows_beside(self, file: str) -> dict[str, str]:
        """The names of the workflows in the folder of a file, each with its file."""
        files: dict[str, str] = {}
        with suppress(OSError):
            for path in sorted(Path(file).parent.glob("*.flow.y*ml"))[:BESIDE_MAX]:
                with suppress(OSError, IndexError):
                    head = path.open("rb").read(4096).decode(errors="replace")
                    line = next((each for each in head.split("\n") if each.startswith("name:")), "")
                    name = line.removeprefix("name:").split("#")[0].strip().strip("\"'")
                    files.setdefault(name or path.name.split(".")[0], str(path))
        return files


@lru_cache(maxsize=4)
def _split_lines(text: str) -> Sequence[str]:
    """The lines of a text; each of its findings asks for them."""
    return text.split("\n")


def unify_line_ends(text: str) -> str:
    """The text as its document has it, so that indexes in both mean the same; no line or column moves."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def file_of(uri: str) -> str:
    """How findings call the file of a URI: relative to the working directory, if it is below."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if os.name == "nt" and path[:1] == "/":
        path = path[1:]
    with suppress(ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def uri_of(file: str) -> str:
    return Path(file).resolve().as_uri() if not Path(file).is_absolute() else Path(file).as_uri()


def _read(file: str) -> str:
    with suppress(OSError):
        return Path(file).read_text(encoding="utf-8", errors="replace")
    return ""


# --- the questions ----------------------------------------------------------------------------------------------------


def make_server(*, imports: bool = False) -> FlowServer:
    """A server for one session. `imports`: see `ModuleFiles`."""
    server = FlowServer(imports=imports)

    async def ask(uri: str, position: t.Position, question: Callable[..., T], *more: Any) -> tuple[Analysis, T] | None:
        """The answer of a feature for a place; None for other files, or where it fails."""
        analysis = await server.current(uri)
        if analysis is None:
            return None
        work = partial(question, analysis, *server.place_in(analysis.text, position), *more)
        try:
            return analysis, await asyncio.get_running_loop().run_in_executor(server.pool, work)
        except NotRenamed:
            raise
        except Exception as error:  # the same
            server.log(f"{question.__name__} failed: {type(error).__name__}: {error}")
            return None

    @server.feature(t.INITIALIZED)
    def initialized(params: t.InitializedParams) -> None:
        if server.workspace.root_path:
            with suppress(OSError):
                os.chdir(server.workspace.root_path)
        gc.freeze()
        gc.disable()  # not within the work of a key: see `collect_later`

    @server.feature(t.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: t.DidOpenTextDocumentParams) -> None:
        server.schedule_analysis(params.text_document.uri)

    @server.feature(t.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: t.DidChangeTextDocumentParams) -> None:
        server.schedule_analysis(params.text_document.uri)

    @server.feature(t.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: t.DidSaveTextDocumentParams) -> None:
        for uri in list(server.analyses):  # a Python module, or a file that workflows use, may be another now
            server.analyses[uri] = _stale(server.analyses[uri])
            server.schedule_analysis(uri)

    @server.feature(t.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: t.DidCloseTextDocumentParams) -> None:
        server.close_text(params.text_document.uri)

    @server.feature(t.TEXT_DOCUMENT_COMPLETION, t.CompletionOptions(trigger_characters=[".", ":", " "]))
    async def complete(params: t.CompletionParams) -> t.CompletionList | None:
        beside = server.workflows_beside(file_of(params.text_document.uri))
        answer = await ask(params.text_document.uri, params.position, features.complete, beside)
        if answer is None:
            return None
        analysis, offers = answer
        return t.CompletionList(False, [_item(server, analysis, params, each) for each in offers])

    @server.feature(t.TEXT_DOCUMENT_HOVER)
    async def hover(params: t.HoverParams) -> t.Hover | None:
        beside = server.workflows_beside(file_of(params.text_document.uri))
        answer = await ask(params.text_document.uri, params.position, features.hover, beside)
        if answer is None or not answer[1]:
            return None
        return t.Hover(t.MarkupContent(t.MarkupKind.Markdown, answer[1]))

    @server.feature(t.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: t.DefinitionParams) -> t.Location | None:
        beside = server.workflows_beside(file_of(params.text_document.uri))
        answer = await ask(params.text_document.uri, params.position, features.definition, beside)
        target: Target | None = None if answer is None else answer[1]
        if answer is None or target is None:
            return None
        is_own = target.file == answer[0].file
        text = answer[0].text if is_own else _read(target.file)
        span = server.range_of(text, target.line, target.column, target.line, target.column)
        return t.Location(params.text_document.uri if is_own else uri_of(target.file), span)

    @server.feature(t.TEXT_DOCUMENT_RENAME)
    async def rename(params: t.RenameParams) -> t.WorkspaceEdit | None:
        try:
            answer = await ask(params.text_document.uri, params.position, features.rename, params.new_name)
        except NotRenamed as error:
            raise JsonRpcInvalidParams(str(error)) from None
        if answer is None:
            return None
        analysis, own = answer
        changes = {params.text_document.uri: [server.edit(analysis.text, each) for each in own]}
        old = features.step_at(analysis, *server.place_in(analysis.text, params.position))
        loop = asyncio.get_running_loop()
        of_tests = await loop.run_in_executor(server.pool, server.renames_in_tests, analysis.file, old, params.new_name)
        return t.WorkspaceEdit(changes=changes | of_tests)

    @server.feature(t.TEXT_DOCUMENT_FORMATTING)
    async def formatting(params: t.DocumentFormattingParams) -> list[t.TextEdit] | None:
        uri = params.text_document.uri
        text = unify_line_ends(server.workspace.get_text_document(uri).source)
        loop = asyncio.get_running_loop()
        try:
            new = await loop.run_in_executor(server.pool, format_source, text.encode("utf-8", "replace"), file_of(uri))
        except DefinitionError:
            return None
        lines = text.split("\n")
        document_range = server.range_of(text, 1, 1, len(lines), len(lines[-1]) + 1)
        return [] if new == text else [t.TextEdit(document_range, server.end_lines_as(uri, new))]

    @server.feature(t.TEXT_DOCUMENT_CODE_ACTION)
    async def actions(params: t.CodeActionParams) -> list[t.CodeAction] | None:
        uri = params.text_document.uri
        analysis = await server.current(uri)
        if analysis is None:
            return None
        own = [each for each in analysis.findings if each.fix and each.file == analysis.file]
        first, last = params.range.start.line + 1, params.range.end.line + 1
        code_actions = [
            t.CodeAction(
                f"Write `{' '.join(edit.text for edit in each.fix)[:60]}`",
                kind=t.CodeActionKind.QuickFix,
                diagnostics=[server.diagnostic(each, analysis.text)],
                edit=t.WorkspaceEdit(changes={uri: [server.edit(analysis.text, edit) for edit in each.fix]}),
                is_preferred=True,
            )
            for each in own
            if first <= each.line <= last
        ]
        if len(own) > 1:
            lines = analysis.text.split("\n")
            document_range = server.range_of(analysis.text, 1, 1, len(lines), len(lines[-1]) + 1)
            change = t.TextEdit(document_range, server.end_lines_as(uri, apply_fixes(analysis.text, own)))
            everything = t.WorkspaceEdit(changes={uri: [change]})
            code_actions.append(
                t.CodeAction("Mend all that is only misspelt", kind="source.fixAll.hai-flow", edit=everything)
            )
        return code_actions

    @server.feature(t.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def outline(params: t.DocumentSymbolParams) -> list[t.DocumentSymbol] | None:
        analysis = await server.current(params.text_document.uri)
        return None if analysis is None else [_symbol(server, analysis, each) for each in features.symbols(analysis)]

    @server.feature(GRAPH)
    async def graph(params: Any) -> dict[str, Any]:
        """The picture of a workflow: {uri, format} -> {picture, current}; `current` false: it is of the last text
        without an error."""
        uri = str(getattr(params, "uri", ""))
        form = getattr(params, "format", "svg")
        if form not in ("svg", "mermaid", "json"):
            raise JsonRpcInvalidParams(f"expected the format svg, mermaid or json, found {form!r}")
        analysis = await server.current(uri)
        if analysis is None or analysis.valid is None:
            return {"picture": None, "current": False}
        loop = asyncio.get_running_loop()
        picture = await loop.run_in_executor(server.pool, draw, analysis.valid.encode(), form)
        return {"picture": picture, "current": analysis.valid == analysis.text}

    return server


def _stale(analysis: Analysis) -> Analysis:
    return Analysis(
        analysis.file, f"{analysis.text}\0", analysis.findings, analysis.names, analysis.valid, analysis.modules
    )


def _item(server: FlowServer, analysis: Analysis, params: t.CompletionParams, offer: Offer) -> t.CompletionItem:
    _, column = server.place_in(analysis.text, params.position)
    line = params.position.line + 1
    span = server.range_of(analysis.text, line, offer.start + 1, line, column + 1)
    return t.CompletionItem(
        label=offer.label,
        kind=_KINDS[offer.kind],
        detail=offer.detail or None,
        documentation=t.MarkupContent(t.MarkupKind.Markdown, offer.help) if offer.help else None,
        sort_text=f"{offer.rank:04}{offer.label}",
        text_edit=t.TextEdit(span, server.end_lines_as(params.text_document.uri, offer.insert)),
        insert_text_mode=t.InsertTextMode.AsIs,
    )


def _symbol(server: FlowServer, analysis: Analysis, symbol: Symbol) -> t.DocumentSymbol:
    text = analysis.names.text if analysis.names is not None else analysis.text
    lines = _split_lines(text)
    own = lines[symbol.line - 1] if symbol.line <= len(lines) else ""
    span = server.range_of(text, symbol.line, symbol.column, symbol.line, len(own) + 1)
    inside = [_symbol(server, analysis, each) for each in symbol.inside]
    return t.DocumentSymbol(symbol.name, t.SymbolKind.Function, span, span, symbol.detail, children=inside)
