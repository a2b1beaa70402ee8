"""Commands for authors while they write: `new fmt graph schema grammar skill`. Only `graph NAME` asks a server."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import quote

import typer

from hai_flow.authoring.scaffold import DEFAULT, TemplateName
from hai_flow.cli import completion
from hai_flow.cli.author.sources import STDIN, FilesArgument, include_files_of, read, read_sources
from hai_flow.cli.client.rest import ask
from hai_flow.cli.errors import FAILED, UsageError, print_definition_error, print_findings
from hai_flow.cli.options import ServerOption
from hai_flow.cli.terminal import err, plural, print_json, program, say
from hai_flow.errors import DefinitionError, Finding

Format: TypeAlias = Literal["mermaid", "svg", "json"]  # hai_flow.graph's, which is imported only to draw
_SUFFIXES: Final[dict[str, Format]] = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".md": "mermaid"}

OutOption = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file instead of the terminal.")
]
TemplateOption = Annotated[
    TemplateName | None, typer.Option("--template", help=f"What to begin with, unless it is a recipe: {DEFAULT}.")
]
RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", metavar="[RECIPE]", help="Begin with a complete workflow; without a name, list them."),
]
FormatOption = Annotated[Format | None, typer.Option("--format", help="Default: by the ending of --out, else mermaid.")]


OWN_TOOLS: Final = (
    "Its `tools` name a module of examples. Yours are found below the folder in which `dev` and `run` are started: "
    "`python: shop` is shop.py, `python: shop.refunds` is shop/refunds.py."
)
LISTED: Final = ""  # of --recipe without a name
_PEOPLE: Final = re.compile(r"\b(?:role|user|group):[a-z][a-z0-9_-]*")
_COMMENT: Final = re.compile(r"\s#.*")
_SECRETS: Final = re.compile(r"\bsecrets\.([A-Z][A-Z0-9_]*)")


# --- new ----------------------------------------------------------------------------------------------------------


def new(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The workflow's name: a-z, 0-9, _ and -. Default with --recipe: the recipe's.",
            show_default=False,
        ),
    ] = None,
    template: TemplateOption = None,
    recipe: RecipeOption = None,
    folder: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The target folder.")] = Path("workflows"),
) -> None:
    """Begin a workflow: NAME.flow.yaml, and its tests beside it in NAME.test.yaml. It is valid as it is.

    Templates: minimal, a message and an output; approval, a call that people approve; form, a question; revise,
    rounds until somebody approves; loop, a list, several at once; schedule, by the clock, with retries; agent, a model
    with tools; event, a wait for an event; parallel, two gates at once; undo, taking back what was done."""
    from hai_flow.authoring import scaffold
    from hai_flow.definition.names.name_forms import check_name

    if recipe is not None and template is not None:
        raise UsageError("expected --template or --recipe, not both: a recipe is a whole workflow.")
    if recipe == LISTED:
        _list_recipes()
        return
    if recipe is not None:
        _check_recipe(recipe)
    name = name or recipe
    if name is None:
        raise UsageError(f"expected a NAME for the workflow, as in `{program()} new refund`; a recipe has one.")
    fault = check_name(name, "workflow")
    if fault:
        raise UsageError(f"{fault}.")
    texts = scaffold.recipe(recipe, name) if recipe else scaffold.template(template or DEFAULT, name)
    files = {folder / f"{name}.flow.yaml": texts.workflow, folder / f"{name}.test.yaml": texts.tests}
    for path in files:
        if path.exists():
            raise UsageError(f"{path} is there already; choose another name, or another folder with -o.")
    for (path, text), what in zip(files.items(), ("the workflow", "its tests"), strict=True):
        _write(path, text)
        say(f"{path}: {what}")
    flow = next(iter(files))
    say("It is valid as it is. Try:")
    for line in _to_try(texts.workflow, flow):
        say(f"  {program()} {line}")
    for line in _to_adapt(texts.workflow):
        say(line)


def _list_recipes() -> None:
    from hai_flow.authoring.scaffold import RECIPES

    width = max(map(len, RECIPES))
    for name, does in RECIPES.items():
        say(f"{name:{width}}  {does}")
    say(f"Write one with its tests: {program()} new --recipe NAME, or with a name of yours: new NAME --recipe RECIPE.")


def _check_recipe(recipe: str) -> None:
    """Raises UsageError for a recipe that is not there, with the one that was perhaps meant."""
    from hai_flow.authoring.scaffold import RECIPES
    from hai_flow.definition.names.wording import suggestion

    if recipe not in RECIPES:
        remedy = suggestion(recipe, RECIPES) or f"; there are {', '.join(RECIPES)}."
        raise UsageError(f"--recipe: there is no recipe `{recipe}`{remedy}")


def _to_adapt(source: str) -> Iterator[str]:
    """What in a new workflow is its author's to fill in."""
    if "{python:" in source:
        yield OWN_TOOLS
    people = sorted({*_PEOPLE.findall(_COMMENT.sub("", source))})
    if people:
        roles = any(each.startswith("role:") for each in people)
        where = (
            " Who has a role is said by `roles:` in the file, or by the deployment (docs/security.md)." if roles else ""
        )
        yield f"It asks {', '.join(people)}: put your own people there.{where}"
    secrets = sorted({*_SECRETS.findall(source)})
    if secrets:
        variables = ", ".join(f"HAI_FLOW_SECRET_{each}" for each in secrets)
        yield f"It takes its secrets from the environment of the worker: {variables}."
    if "example.com" in source:
        yield "Its addresses at example.com are nobody's: put your own there."


def _to_try(source: str, flow: Path) -> Iterator[str]:
    """Commands that work as they stand, to try the new workflow."""
    from hai_flow.cli.client.samples import as_options, generate_input
    from hai_flow.definition.compiler import compile_workflow

    place = shlex.quote(str(flow))
    yield f"test {shlex.quote(str(flow.parent))}"
    sample = generate_input(compile_workflow(source.encode(), str(flow)).input)
    if sample is not None:
        yield f"run {place}{as_options(sample)}"
    yield f"graph {place} -o {shlex.quote(flow.name.removesuffix('.flow.yaml'))}.svg"


def _write(path: Path, text: str) -> None:
    """Raises UsageError where the file can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: expected a file that can be written: {error.strerror}.") from None


# --- fmt ----------------------------------------------------------------------------------------------------------


def fmt(
    files: FilesArgument,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if a file would change.")] = False,
) -> None:
    """Format workflows: keys in order, bare expressions, quoted holes. Comments stay."""
    from hai_flow.authoring.formatting import format_source

    changed = 0
    unreadable: list[Finding] = []
    sources = dict(read_sources(files))
    for name, source in sources.items():
        try:
            text = format_source(source, name)
        except DefinitionError as error:
            unreadable += error.findings
            continue
        if name == "<stdin>" and not check:
            sys.stdout.write(text)
        elif text.encode() != source:
            changed += 1
            if not check:
                _write(Path(name), text)
            say(f"{name}: {'would be changed' if check else 'changed'}")
    print_findings(unreadable, {name: source.decode(errors="replace") for name, source in sources.items()}, err())
    if list(files) != [STDIN]:
        say(_format_summary(len(sources), changed, check))
    if unreadable or (check and changed):
        raise typer.Exit(FAILED)


def _format_summary(total: int, changed: int, check: bool) -> str:
    if not changed:
        return f"{plural(total, 'file')}: nothing to change."
    return f"{changed} of {plural(total, 'file')} {'would be changed' if check else 'changed'}."


# --- graph --------------------------------------------------------------------------------------------------------


def graph(
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME[@N]",
            help="A file, - for standard input, or a workflow of a server.",
            autocompletion=completion.workflows,
        ),
    ],
    form: FormatOption = None,
    out: OutOption = None,
    server: ServerOption = None,
) -> None:
    """Draw a workflow: text for Mermaid, or an SVG picture."""
    if form is None and out is not None and out.suffix not in _SUFFIXES:
        raise UsageError(f"-o: expected a file that ends with {', '.join(_SUFFIXES)}, or --format, found {str(out)!r}.")
    chosen = form or _SUFFIXES[out.suffix if out else ".mmd"]
    if workflow == STDIN or workflow.endswith((".yaml", ".yml")) or Path(workflow).exists():
        picture = _draw(workflow, chosen)
    else:
        path = f"/v1/workflows/{quote(workflow, safe='@+')}/graph"
        picture = ask(server, False, lambda api: api.text(path, format=chosen))
    if out and out.suffix == ".md":
        picture = f"```mermaid\n{picture}```\n"
    _emit(picture, out)


def _draw(name: str, form: Format) -> str:
    """The picture of a file. A file with errors shows them instead."""
    from hai_flow.definition.compiler import check_workflow
    from hai_flow.graph import draw

    path = "<stdin>" if name == STDIN else name
    source = include_files_of(path, sys.stdin.buffer.read() if name == STDIN else read(Path(name)))
    errors = [finding for finding in check_workflow(source, path) if finding.severity == "error"]
    if errors:
        print_definition_error(errors, path, source)
        raise typer.Exit(FAILED)
    return draw(source, form)


def _emit(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
    else:
        _write(out, text)
        say(str(out))


# --- the language -------------------------------------------------------------------------------------------------


def schema(
    tests: Annotated[bool, typer.Option("--tests", help="The schema of *.test.yaml instead.")] = False,
    out: OutOption = None,
) -> None:
    """The JSON Schema of workflows, for editors (`# yaml-language-server: $schema=FILE`)."""
    import json

    from hai_flow.authoring.json_schema import tests_schema, workflow_schema

    document = tests_schema() if tests else workflow_schema()
    if out is None:
        print_json(document)
    else:
        _emit(json.dumps(document, ensure_ascii=False, indent=2) + "\n", out)


def grammar(out: OutOption = None) -> None:
    """The whole language on one page, for language models."""
    from hai_flow.authoring.grammar import grammar as page

    _emit(page(), out)


# --- skill --------------------------------------------------------------------------------------------------------


def skill(
    folder: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The skill's folder; it is replaced.")],
) -> None:
    """Write the skill with which agents write workflows: a manual, the grammar, and patterns with tests."""
    from hai_flow.authoring.skill import skill_files

    files = skill_files()
    if (folder / "SKILL.md").is_file():  # patterns of another release
        for old in (folder / "patterns").glob("*.yaml"):
            old.unlink()
    elif folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"-o: expected a new folder, or one with a skill; {folder} has other files.")
    for path, text in files.items():
        _write(folder / path, text)
    say(f"{folder}: {plural(len(files), 'file')}. Agents find it where they look for skills, as .claude/skills.")
