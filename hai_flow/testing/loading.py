"""Test documents found, read, and held against the workflows that they name. The room that reads files.

Compiled plans are kept by the bytes they come from, so a thousand tests of one workflow compile it once."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.names import name_forms
from hai_flow.definition.plan import Plan
from hai_flow.definition.schemas.python_modules import Modules, unread
from hai_flow.definition.yaml.include_keys import read_texts
from hai_flow.engine.commands import Principal
from hai_flow.errors import DefinitionError, Finding, HaiFlowError
from hai_flow.shared import with_uses
from hai_flow.testing.cassettes import Cassette, CassetteError, Performer, cassette_of, read_cassette
from hai_flow.testing.coverage import Coverage
from hai_flow.testing.documents.binding import check_suite
from hai_flow.testing.documents.reader import read_suite
from hai_flow.testing.runner import Result, run_case
from hai_flow.testing.suite import Case, Suite

SUFFIXES: Final = (".test.yaml", ".test.yml")
PLANS_MAX: Final = 256

Published: TypeAlias = Callable[[str], bytes]
"""The bytes of a published workflow by `name@version`. Raises `HaiFlowError` where there is none."""

_ENDINGS: Final = (".flow.yaml", ".flow.yml", ".yaml", ".yml")
_REFERENCE = re.compile(rf"{name_forms.WORKFLOW}@[0-9]{{1,9}}(\+[0-9a-f]{{8}})?")
_SKIPPED: Final = frozenset(("node_modules", "__pycache__", "site-packages"))


class LoadedDocument(msgspec.Struct, frozen=True):
    """A test document as it was read, and the cassette beside it. With findings there is nothing to run; `sources`
    holds the texts they are about."""

    file: str
    suite: Suite | None
    plan: Plan | None
    findings: tuple[Finding, ...]
    sources: dict[str, str]
    cassette: Cassette | None = None
    workflow: str = ""  # its file, or `name@version`

    @property
    def cases(self) -> tuple[Case, ...]:
        return () if self.suite is None or self.plan is None else self.suite.cases

    def run(self, case: Case, coverage: Coverage | None = None) -> Result:
        """Perform one of its cases. `coverage` takes in what its run did."""
        assert self.suite is not None
        assert self.plan is not None
        return run_case(self.suite, case, self.plan, self.cassette, coverage)


def find_suites(place: Path) -> Iterator[Path]:
    """The test files at `place`: itself, or those in the folder and below; not in hidden folders, nor behind links.

    Raises `OSError` for a folder that can't be read."""
    if not place.is_dir():
        yield place
        return
    for each in sorted(place.iterdir()):
        if each.is_dir():
            if not each.name.startswith(".") and each.name not in _SKIPPED and not each.is_symlink():
                yield from find_suites(each)
        elif each.name.endswith(SUFFIXES):
            yield each


def find_files(folder: Path, suffixes: tuple[str, ...], files_max: int) -> Iterator[Path]:
    """The files in the folder and below whose names end so, at most `files_max`; not in hidden folders, nor behind
    links, nor in folders that can't be read."""
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _SKIPPED)
        for name in sorted(files):
            if name.endswith(suffixes):
                yield Path(place, name)
                count += 1
                if count == files_max:
                    return


class DocumentLoader:
    """Reads test documents. `published` finds the workflows that they name by version; None: there is no server.
    `performer`: their cassettes are recorded with it; None: they are played."""

    def __init__(
        self, published: Published | None = None, performer: Performer | None = None, modules: Modules = unread
    ) -> None:
        self._published = published
        self._modules = modules
        self._performer = performer
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()

    def load(self, path: Path, shown: str | None = None) -> LoadedDocument:
        """The test document at `path`, called `shown` in findings. Raises `OSError` if it can't be read."""
        file = shown or str(path)
        source = path.read_bytes()
        sources = {file: source.decode(errors="replace")}
        suite, findings = read_suite(source, file)
        if suite is None:
            return LoadedDocument(file, None, None, tuple(findings), sources)
        plan, faults = self._plan(suite, path, sources)
        if plan is not None:
            suite, roleless = with_roles_of(suite, plan)
            faults = [*roleless, *check_suite(suite, plan)]
        cassette = Cassette(cassette_of(path), self._performer)
        try:
            cassette.exchanges = read_cassette(cassette.path)
        except CassetteError as error:
            faults = [*faults, _workflow_finding(suite, str(error))]
        return LoadedDocument(
            file, suite, None if faults else plan, tuple(faults), sources, cassette, self._place(suite, path)
        )

    def _plan(self, suite: Suite, path: Path, sources: dict[str, str]) -> tuple[Plan | None, Sequence[Finding]]:
        """The plan of the workflow that a suite names, or findings that say why there is none."""
        name = suite.workflow
        try:
            if _REFERENCE.fullmatch(name):
                file, source = name, self._fetch_published(name)
            else:
                place = path.parent / name
                file, source = str(place), with_uses(place, place.read_bytes())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            near = next((f"{name}{end}" for end in _ENDINGS if (path.parent / f"{name}{end}").is_file()), None)
            hint = f"did you mean `{near}`?" if near else "give its path, or name@version"
            message = f"expected a workflow at `{name}`, beside this file: {reason}; {hint}"
            return None, [_workflow_finding(suite, message)]
        except HaiFlowError as error:
            return None, [_workflow_finding(suite, str(error))]
        try:
            return self._compile(source, file), ()
        except DefinitionError as error:
            sources.update(read_texts(source, file))
            errors = sum(finding.severity == "error" for finding in error.findings)
            mistakes = "a mistake" if errors == 1 else f"{errors} mistakes"
            return None, [
                _workflow_finding(suite, f"the workflow `{name}` has {mistakes}; correct it first"),
                *error.findings,
            ]

    @staticmethod
    def _place(suite: Suite, path: Path) -> str:
        return suite.workflow if _REFERENCE.fullmatch(suite.workflow) else str(path.parent / suite.workflow)

    def _fetch_published(self, reference: str) -> bytes:
        if self._published is None:
            raise HaiFlowError(
                f"`{reference}` is a published version, and no server was named; add --server URL or --database DSN, "
                f"or give the path of the workflow's file"
            )
        return self._published(reference)

    def _compile(self, source: bytes, file: str) -> Plan:
        digest = sha256(source).digest()
        plan = self._plans.get(digest)
        if plan is None:
            plan = self._plans[digest] = compile_workflow(source, file, modules=self._modules)
            while len(self._plans) > PLANS_MAX:
                self._plans.popitem(last=False)
        return plan


def _workflow_finding(suite: Suite, message: str) -> Finding:
    line, column = suite.document.position(("workflow",))
    return Finding(suite.file, line, column, "error", "test.workflow", message)


def with_roles_of(suite: Suite, plan: Plan) -> tuple[Suite, list[Finding]]:
    """The suite, whose people have what the workflow's `roles` ask for: `role:nurse` makes a member of the group that
    has the role. A role that the workflow gives to persons alone can't be had by others: a finding."""
    people: dict[str, Principal] = {}
    findings: list[Finding] = []
    for name, person in suite.people.items():
        groups = list(person.groups)
        for role in person.roles:
            members = plan.roles.get(role)
            if members is None or person.id in members or any(f"group:{group}" in members for group in groups):
                continue
            group = next((member for member in members if member.startswith("group:")), None)
            if group is None:
                line, column = suite.document.position(("people", name))
                listed = ", ".join(f"`{member.removeprefix('user:')}`" for member in members)
                message = f"the workflow's `roles` give `role:{role}` to {listed} alone; call the person so"
                findings.append(Finding(suite.file, line, column, "error", "test.person", message))
            else:
                groups.append(group.removeprefix("group:"))
        people[name] = replace(person, groups=tuple(groups))
    return replace(suite, people=people), findings
