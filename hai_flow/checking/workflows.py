"""The findings of workflow files, each compiled once, and held against the workflows beside it in its folder.

A file may run a workflow beside it (a child), and two files of a folder must not have one name and version, or one path
of a webhook. The files beside are looked at when they may matter, by what their text begins with, so that one file in a
folder of thousands is checked as quickly as alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from hai_flow.checking.modules import ModuleFiles
from hai_flow.definition.child_interface import Child, child_of
from hai_flow.definition.compiler import Earlier, read_workflow
from hai_flow.definition.names.known_names import Types
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.plan import Plan, Run, WebhookTrigger
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import BYTES_MAX, Document, parse_once
from hai_flow.definition.yaml.document import Path as Place
from hai_flow.definition.yaml.fixes import complete_findings
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.errors import Finding
from hai_flow.shared import with_uses
from hai_flow.values import Json

BESIDE_MAX: Final = 2000
"""Files of one folder that are looked at beside the one that is checked."""
_DEPTH_MAX: Final = 12  # of children that are compiled for their parents' sake
_NAME: Final = re.compile(rb"""^["']?name["']?[ \t]*:[ \t]*["']?([a-z][\w-]*)["']?[ \t\r]*(?:#.*)?$""", re.M)
_EVENT: Final = re.compile(
    rb"""\bevent["']?[ \t]*:[ \t]*(?:\{?[ \t\r\n]*type[ \t]*:[ \t]*)?["']?([A-Za-z][\w.:/-]{3,199})"""
)
STDIN: Final = "<stdin>"

Entry: TypeAlias = tuple[Plan | None, list[Finding]]


@dataclass(slots=True)
class _Folder:
    """The workflow files of a folder, by the names of their workflows; "" has those whose name is not seen at once.
    `events`: the types of events, and the files that seem to name each. `left_out`: how many files were not looked
    at."""

    files: dict[str, list[str]] = field(default_factory=dict)
    webhooks: list[str] = field(default_factory=list)
    events: dict[str, set[str]] = field(default_factory=dict)
    left_out: int = 0


class Workflows:
    """Workflow files that are checked together. `sources` are their texts with the files that they use, by the names
    that findings give them; the files beside them are read when they are wanted. `cache` keeps what is known of files
    from one of these objects to the next, by their texts."""

    def __init__(
        self,
        sources: Mapping[str, bytes],
        modules: ModuleFiles,
        *,
        cache: dict[tuple[str, bytes], Plan | None] | None = None,
        before: Mapping[str, Earlier] | None = None,
    ) -> None:
        self._sources = dict(sources)
        self._modules = modules
        self._entries: dict[str, Entry] = {}
        self._under_way: list[str] = []
        self._folders: dict[Path, _Folder] = {}
        self._interfaces: dict[tuple[str, bytes], Plan | None] = {} if cache is None else cache
        self._before = dict(before or {})  # earlier texts, until they are used: each would keep the one before it
        self.names: dict[str, tuple[StepContext, Types]] = {}
        """The steps and declarations of the files that were compiled, and the types of what expressions may name."""

    def findings(self, file: str) -> list[Finding]:
        """Every finding of one of the files, in document order; those about other files of its folder come last."""
        plan, findings = self._entry(file)
        return [*findings, *self._check_folder(file, plan)]

    def plan(self, file: str) -> Plan | None:
        """Its plan; None where it has an error."""
        return self._entry(file)[0]

    def children(self, file: str) -> list[str]:
        """The files of the workflows that one of the files runs, and of those that these run, children before their
        parents. One with an error is among them; for a workflow that is not beside the file there is none."""
        ordered: dict[str, None] = {}
        visited = {file}

        def visit(parent: str) -> None:
            plan = self._interface(parent)
            verbs = () if plan is None else (step.verb for step in plan.steps.values())
            runs = {(verb.workflow, verb.version) for verb in verbs if isinstance(verb, Run)}
            for name, version in sorted(runs, key=str):
                child = self._file_of(parent, name, version)
                if child is not None and child not in visited:
                    visited.add(child)
                    visit(child)
                    ordered[child] = None

        visit(file)
        return list(ordered)

    def _file_of(self, parent: str, name: str, version: int | None) -> str | None:
        """The file beside `parent` of the workflow with this name and version, or of the highest; else one that seems
        to be meant and has an error."""
        files = [each for each in self._files_of_name(Path(parent).parent, name) if each != parent]
        plans = [(plan, each) for each in files if (plan := self._interface(each)) is not None]
        fitting = [
            (plan.version, each) for plan, each in plans if plan.name == name and version in (None, plan.version)
        ]
        if fitting:
            return max(fitting)[1]
        named = self._folder(Path(parent).parent).files.get(name, ())
        return next((each for each in named if each != parent and self._interface(each) is None), None)

    def source(self, file: str) -> bytes:
        """The text of a file with the files that it uses. Raises OSError."""
        return self._source(file)

    def count_unread(self) -> int:
        """How many files beside those that are checked were not looked at."""
        return sum(folder.left_out for folder in self._folders.values())

    def _entry(self, file: str) -> Entry:
        if file not in self._entries:
            self._under_way.append(file)
            folder = Path(file).parent

            def child(name: str, version: int | None) -> Child | None:
                return self._child(folder, name, version)

            def note(context: StepContext, types: Types) -> None:
                self.names[file] = context, types

            try:
                self._entries[file] = read_workflow(
                    self._sources[file],
                    file,
                    children=child,
                    modules=self._modules.find,
                    note=note,
                    before=self._before.pop(file, None),
                )
            finally:
                self._under_way.pop()
        return self._entries[file]

    def _child(self, folder: Path, name: str, version: int | None) -> Child | None:
        """The workflow of that name and version, or of the highest, among the files of the folder and those that are
        checked together with them."""
        folders = {folder, *(Path(file).parent for file in self._sources if file != STDIN)}
        files = [each for place in sorted(folders) for each in self._files_of_name(place, name)]
        plans = [plan for each in dict.fromkeys(files) if (plan := self._interface(each)) is not None]
        candidates = [plan for plan in plans if plan.name == name and version in (None, plan.version)]
        return child_of(max(candidates, key=lambda plan: plan.version)) if candidates else None

    def _files_of_name(self, place: Path, name: str) -> list[str]:
        files = self._folder(place).files
        return [*files.get(name, ()), *files.get("", ())]

    def _interface(self, file: str) -> Plan | None:
        """The plan of a file as others see it, for its name, input and outputs; those that it runs need not fit."""
        if file in self._sources and file not in self._under_way and len(self._under_way) < _DEPTH_MAX:
            plan = self._entry(file)[0]
            if plan is not None:
                return plan
        elif file in self._entries and self._entries[file][0] is not None:
            return self._entries[file][0]
        source = self._source(file)
        if (file, source) not in self._interfaces:
            self._interfaces[file, source] = read_workflow(source, file)[0]
        return self._interfaces[file, source]

    def _source(self, file: str) -> bytes:
        if file not in self._sources:
            path = Path(file)
            with path.open("rb") as opened:
                text = opened.read(BYTES_MAX + 1)
            return with_uses(path, text)
        return self._sources[file]

    def _folder(self, place: Path) -> _Folder:
        if place not in self._folders:
            self._folders[place] = self._look_at(place)
        return self._folders[place]

    def _look_at(self, place: Path) -> _Folder:
        own = [file for file in self._sources if Path(file).parent == place]
        beside = [
            str(place / path.name)
            for path in sorted(Path(place).glob("*.flow.y*ml"))
            if path.is_file() and path.name.endswith((".flow.yaml", ".flow.yml"))
        ] if own != [STDIN] else []  # fmt: skip
        others = [file for file in beside if file not in self._sources]
        folder = _Folder(left_out=max(0, len(others) - BESIDE_MAX))
        for file in (*own, *others[:BESIDE_MAX]):
            try:
                text = self._sources[file] if file in self._sources else _beginning(Path(file))
            except OSError:
                continue
            names = _NAME.findall(text)
            name = names[0].decode() if len(names) == 1 else ""
            folder.files.setdefault(name, []).append(file)
            if b"webhook" in text:
                folder.webhooks.append(file)
            for event in _EVENT.findall(text):
                folder.events.setdefault(event.decode(), set()).add(file)
        return folder

    # --- findings about several files ---------------------------------------------------------------------------------

    def _check_folder(self, file: str, plan: Plan | None) -> Iterator[Finding]:
        if plan is None or file == STDIN:
            return
        document = parse_once(first_of(self._sources[file]), file)
        findings = [
            *self._doubles(file, plan, document),
            *self._strangers(file, plan, document),
            *self._check_events(file, document),
        ]
        yield from complete_findings(document, findings)

    def _doubles(self, file: str, plan: Plan, document: Document) -> Iterator[Finding]:
        """A finding if another file of the folder has the name and version, or a path of a webhook: only one of them
        can be published."""
        place = Path(file).parent
        same = [
            other
            for other in self._files_of_name(place, plan.name)
            if other != file and Path(other).parent == place and self._is(other, plan.name, plan.version)
        ]
        if same:
            yield _double(document, ("name",), same, f"the name `{plan.name}@{plan.version}`")
        for index, trigger in enumerate(plan.triggers):
            if isinstance(trigger, WebhookTrigger) and (sharing := self._with_webhook(file, trigger.path)):
                at = ("triggers", index, "webhook", "path")
                yield _double(document, at, sharing, f"the webhook path `{trigger.path}`")

    def _is(self, file: str, name: str, version: int) -> bool:
        plan = self._interface(file)
        return plan is not None and (plan.name, plan.version) == (name, version)

    def _with_webhook(self, file: str, path: str) -> list[str]:
        others = [other for other in self._folder(Path(file).parent).webhooks if other != file]
        return [
            other
            for other in others
            if (plan := self._interface(other)) is not None
            and any(isinstance(each, WebhookTrigger) and each.path == path for each in plan.triggers)
        ]

    def _strangers(self, file: str, plan: Plan, document: Document) -> Iterator[Finding]:
        """A finding for a workflow that this one runs, or whose end starts it, and that is not in the folder, while
        another is there whose name is nearly the same."""
        folder = self._folder(Path(file).parent)
        if folder.files.get("") or folder.left_out:
            return
        for at, name in _runs(document.value, ()):
            if name in folder.files or name == plan.name:
                continue
            if hint := suggestion(name, list(folder.files), likeness=0.8):
                message = f"there is no workflow `{name}` beside this file{hint} A server may have it"
                yield Finding(file, *document.position(at), "warning", "run.unknown", message)

    def _check_events(self, file: str, document: Document) -> Iterator[Finding]:
        """A finding for an event that nothing else here names, while another one has nearly its name: one of them is
        what is sent."""
        events = list(_iter_events(document.value))
        own = [name for _, name in events]
        others = {
            name for name, files in self._folder(Path(file).parent).events.items() if files - {file} or name in own
        }
        for at, name in events:
            files = self._folder(Path(file).parent).events.get(name, set())
            if files - {file} or own.count(name) > 1:
                continue
            near = [each for each in others - {name} if _DIGITS.sub("", each) != _DIGITS.sub("", name)]
            if hint := suggestion(name, near, likeness=0.88):
                message = f"nothing else here names the event `{name}`{hint} It is spelt as it is sent"
                yield Finding(file, *document.position(at), "warning", "event.unknown", message)


_DIGITS: Final = re.compile(r"\d+")


def _iter_events(value: Json) -> Iterator[tuple[Place, str]]:
    """The types of events that a document waits for, or that start it, with their places."""
    triggers = value.get("triggers") if isinstance(value, dict) else None
    for index, trigger in enumerate(triggers if isinstance(triggers, list) else ()):
        event = trigger.get("event") if isinstance(trigger, dict) else None
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            yield ("triggers", index, "event", "type"), event["type"]
    yield from _iter_awaited_events(value, ())


def _iter_awaited_events(value: Json, at: Place) -> Iterator[tuple[Place, str]]:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if not isinstance(each, dict | list):
            continue
        place = (*at, key)
        if key in ("wait_for", "withdraw_when") and isinstance(each, dict):
            entries = [(place, each)]
            for word in ("any", "all"):
                listed = each.get(word)
                rows = enumerate(listed if isinstance(listed, list) else ())
                entries += [((*place, word, index), row) for index, row in rows if isinstance(row, dict)]
            yield from (((*here, "event"), row["event"]) for here, row in entries if isinstance(row.get("event"), str))
        elif key not in ("input", "with", "emit", "form"):
            yield from _iter_awaited_events(each, place)


def _runs(value: Json, at: Place) -> Iterator[tuple[Place, str]]:
    """The names of workflows that a document runs, or whose end starts it, with their places."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        named = each.get("workflow") if key == "run" and isinstance(each, dict) else each if key == "run" else None
        if isinstance(named, str) and "${{" not in named:
            yield (*at, key) if named is each else (*at, key, "workflow"), named.partition("@")[0]
        else:
            yield from _runs(each, (*at, key))


def _beginning(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(BYTES_MAX + 1)


def _double(document: Document, at: Place, others: list[str], what: str) -> Finding:
    names = ", ".join(Path(other).name for other in others)
    line, column = document.position(at)
    message = f"{names} has {what} too: only one of them can be published; change it in one of them"
    return Finding(document.file, line, column, "error", "file.double", message)
