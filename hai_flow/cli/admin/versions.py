"""Versions of workflows: publish files, list versions, compare and retire them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hai_flow.cli import completion
from hai_flow.cli.author.sources import list_workflow_files, read_whole
from hai_flow.cli.client.rest import ActingOptions, RemoteOptions, Server, ask
from hai_flow.cli.console import clean
from hai_flow.cli.errors import FAILED, Problem, UsageError, explain, print_definition_error
from hai_flow.cli.terminal import compact, moment, out, plural, print_items, print_json, program, say
from hai_flow.errors import DefinitionError, Finding
from hai_flow.primitives.versions import reference
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.checking.workflows import Workflows

_OF_FOLDER: Final = "run.unknown"  # a workflow that is not beside the file; the server knows whether it has it
_STYLES = {"added": "green", "removed": "red", "changed": "yellow", "moved": "cyan"}

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The workflow.", autocompletion=completion.workflows)]


# --- publishing -------------------------------------------------------------------------------------------------------


def publish(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Workflow files, or folders of them.")],
    remote: RemoteOptions,
    unrehearsed: Annotated[
        str | None,
        typer.Option("--unrehearsed", metavar="REASON", help="Publish without the required rehearsal; recorded."),
    ] = None,
) -> None:
    """Publish workflows under the name and version that they declare. A published version never changes: raise its
    number."""
    from hai_flow.checking.modules import ModuleFiles
    from hai_flow.checking.workflows import Workflows

    sources = {str(path): read_whole(path) for place in files for path in list_workflow_files(place)}
    workflows = Workflows(sources, ModuleFiles(sources))
    done: list[Json] = []
    refused: list[Json] = []

    async def work(api: Server) -> None:
        for name in _sort_by_children(workflows, sources):
            source, findings = sources[name], workflows.findings(name)
            if any(each.severity == "error" for each in findings):  # a server may not know the modules of its tools
                refused.append({"file": name, **_refuse(findings)})
                if not remote.as_json:
                    print_definition_error(findings, name, source)
                continue
            try:
                done.append({"file": name, **await api.post("/v1/workflows", content=source, unrehearsed=unrehearsed)})
            except Problem as problem:
                if (by_server := problem.body.get("findings")) is not None and problem.code == "definition.invalid":
                    in_file = [each for each in findings if each.code != _OF_FOLDER and each.file == name]
                    own = [{**each.as_dict(), "file": "<workflow>"} for each in in_file]  # as the server names it
                    problem.body["findings"] = own + [each for each in by_server if each not in own]
                refused.append({"file": name, **problem.body})
                if not remote.as_json:
                    _explain_refusal(name, source, problem)
            else:
                by_server = _findings(name, done[-1].get("warnings", []))
                own = [each for each in findings if each.code != _OF_FOLDER and each not in by_server]
                done[-1]["warnings"] = [each.as_dict() for each in own] + done[-1].get("warnings", [])
                if not remote.as_json:
                    say(f"{name}: {_reference(done[-1])} is published.", "green")
                    print_definition_error([*own, *by_server], name, source)

    remote.ask(work)
    if remote.as_json:
        print_json({"published": done, "refused": refused})
    if refused:
        raise typer.Exit(FAILED)


def _sort_by_children(workflows: Workflows, sources: Collection[str]) -> list[str]:
    """The files, those that others run before them."""
    ordered = dict.fromkeys(each for name in sources for each in (*workflows.children(name), name))
    return [each for each in ordered if each in sources]


def _refuse(findings: Sequence[Finding]) -> dict[str, Json]:
    """The refusal of a document for what `validate` finds wrong, in the form that a server gives it."""
    errors = sum(each.severity == "error" for each in findings)
    detail = f"the workflow has {plural(errors, 'mistake')}."
    code = "definition.invalid"
    problem = {"type": f"urn:hai-flow:problem:{code}", "title": "Unprocessable Content", "status": 422, "code": code}
    return {**problem, "detail": detail, "findings": [each.as_dict() for each in findings]}


def _explain_refusal(name: str, source: bytes, problem: Problem) -> None:
    if problem.code != "definition.invalid":
        explain(Problem({**problem.body, "detail": f"{name}: {problem}"}))
        return
    print_definition_error(_findings(name, problem.body.get("findings", [])), name, source)


def _findings(name: str, found: list[dict[str, Any]]) -> list[Finding]:
    """The findings of a server about the file of this name, which it does not know."""
    from hai_flow.definition.yaml.include_keys import label
    from hai_flow.errors import Edit

    names = {each.name for each in fields(Finding)}  # a newer server says more of a finding
    return [
        Finding(
            **{key: value for key, value in each.items() if key in names}
            | {"file": name if each["file"] == "<workflow>" else label(name, each["file"])}
            | {"fix": tuple(Edit(**edit) for edit in each.get("fix") or ())}
        )
        for each in found
    ]


# --- retiring ---------------------------------------------------------------------------------------------------------

RetiredArgument = Annotated[
    str, typer.Argument(metavar="NAME@VERSION", help="The version of a workflow.", autocompletion=completion.workflows)
]


def retire(version: RetiredArgument, remote: ActingOptions) -> None:
    """Take a version out of use: no run, child or fork begins with it any more. Runs that have begun continue."""
    _retire(version, "retire", "is retired: nothing begins with it any more", remote)


def unretire(version: RetiredArgument, remote: ActingOptions) -> None:
    """Take a retired version back into use."""
    _retire(version, "unretire", "is in use again", remote)


def _retire(version: str, act: str, done: str, remote: ActingOptions) -> None:
    if "@" not in version:
        raise UsageError(f"expected NAME@VERSION, found {version!r}: `{program()} versions {version}` lists them.")
    path = f"/v1/workflows/{version}/{act}"
    remote.ask_and_say(lambda api: api.post(path, None), lambda answer: f"{_reference(answer)} {done}.", "green")


# --- looking ----------------------------------------------------------------------------------------------------------


def versions(name: NameArgument, remote: RemoteOptions) -> None:
    """The versions of a workflow, the latest first."""

    answer = remote.ask(lambda api: api.get(f"/v1/workflows/{name}"))
    print_items(answer["versions"], remote.as_json, "", lambda each: {
        "version": _reference(each), "published": moment(each["created_at"]),
        "retired": moment(each.get("retired_at")), "title": each["title"] or "", "sha256": each["sha256"][:16],
    })  # fmt: skip


def _reference(version: Json) -> str:
    return reference(version["name"], version["version"], version["sha256"], dev=version["dev"])


def diff(
    remote: RemoteOptions,
    old: Annotated[
        str | None, typer.Argument(metavar="OLD", help="NAME@VERSION of a server, or a file; with --against a folder.")
    ] = None,
    new: Annotated[str | None, typer.Argument(metavar="NEW", help="The newer version, in the same form.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="GIT_REF", help="Compare with this Git commit, in Markdown.")
    ] = None,
) -> None:
    """The changes of a version: steps that were added, removed, moved or edited. Files are compared here.

    With --against, those of all workflows in a folder, for a pull request; --server: and the runs there that wait at a
    step that is gone."""
    if against is not None:
        _review([Path(each) for each in (old, new) if each is not None], against, remote.server)
        return
    if old is None or new is None:
        raise UsageError("expected OLD and NEW, two files or NAME@VERSION twice; or --against with a commit of Git.")
    difference = (
        _compute_diff_of_files(Path(old), Path(new)) if _is_pair_of_files(old, new) else _fetch_diff(old, new, remote)
    )
    if remote.as_json:
        print_json(difference)
        return
    if not difference["document"] and not difference["steps"]:
        say("No difference but in how they are written.")
    for part in difference["document"]:
        _print_part("", part)
    for change in difference["steps"]:
        was = f" (was {change['was']})" if change.get("was", change["path"]) != change["path"] else ""
        line = f"{change['kind']:8} {change['path']}{was}  {change['verb']}"
        out().print(clean(line), style=_STYLES[change["kind"]])
        for part in change["parts"]:
            _print_part("         ", part)


def _review(places: list[Path], ref: str, server: str | None) -> None:
    from hai_flow.cli import reviewing

    if not places:
        places = [Path("workflows") if Path("workflows").is_dir() else Path()]
    items = reviewing.reviews(places, ref)
    stranded: dict[str, list[Json]] | None = None
    if server is not None:

        async def work(api: Server) -> dict[str, list[Json]]:
            names = {each.old.name: each for each in items if each.old is not None}
            return {
                name: reviewing.find_stranded(review, await api.items("/v1/pendings", None, workflow=name))
                for name, review in names.items()
            }

        stranded = ask(server, False, work)
    sys.stdout.write(reviewing.as_markdown(items, ref, stranded))


def _is_pair_of_files(old: str, new: str) -> bool:
    """Whether both are files. Raises UsageError where only one is."""
    files = [Path(each).is_file() for each in (old, new)]
    if files[0] != files[1] or (not files[0] and not all("@" in each for each in (old, new))):
        raise UsageError(f"expected two files, or NAME@VERSION twice, found {old!r} and {new!r}.")
    return files[0]


def _compute_diff_of_files(old: Path, new: Path) -> Json:
    from hai_flow.definition.compiler import compile_workflow
    from hai_flow.definition.diff import diff

    plans = []
    for path in (old, new):
        source = read_whole(path)
        try:
            plans.append(compile_workflow(source, str(path)))
        except DefinitionError as error:
            print_definition_error(error.findings, str(path), source)
            raise typer.Exit(FAILED) from None
    return diff(*plans).as_dict()


def _fetch_diff(old: str, new: str, remote: RemoteOptions) -> Json:
    (name, _, before), (other, _, after) = old.partition("@"), new.partition("@")
    if name != other:
        raise UsageError(f"expected two versions of one workflow, found {name!r} and {other!r}.")
    return remote.ask(lambda api: api.get(f"/v1/workflows/{name}/diff", **{"from": before, "to": after}))


def _print_part(indent: str, part: Json) -> None:
    sides = ["not there" if part[side] is None else compact(part[side], 200) for side in ("from", "to")]
    say(f"{indent}{part['key']}: {sides[0]} -> {sides[1]}")
