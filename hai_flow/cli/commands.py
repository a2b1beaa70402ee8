"""How commands are found: each module is imported when its command is wanted, so that none waits for the others.

A command that sends one request spends most of its time on starting. So two libraries that typer would load are
avoided, too: rich for the help, and pydantic to read a text or a number."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from hai_flow.cli.errors import EPILOG, Problem, UsageError, exit_code_of, explain
from hai_flow.cli.examples import EXAMPLES
from hai_flow.cli.sentences import MEANT, SENTENCES
from hai_flow.errors import HaiFlowError

Function = TypeVar("Function", bound=Callable[..., Any])

ENTRY_POINTS: Final = "hai_flow.commands"  # a function for typer, or a Typer, each
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
_HELP_COLUMNS: Final = 15  # the widest name of a command, and a gap
HELP: Final = "help"  # `help` and `help COMMAND`: what --help shows
_EVERYTHING: Final = "commands"  # `help commands`: each with its sentence
SENTENCE_CHARS: Final = 200  # the longest sentence of a command in a list of commands
_TYPE: Final = re.compile(r"<(?:list\[)?(\w+)(?: range)?\]?>")  # how typer's help shows the type of a value
_VALUE_OPTIONAL: Final = frozenset({"--recipe"})  # without a value: what there is
_LIKENESS: Final = 0.76  # below it, the nearest command is none that was meant: `pendings` for `settings`
_PLACED: Final = {"run": "--input", "dev": "--workflows", "serve": "--port", "worker": "--queue"}
"""The option of a command to which words belong that it does not expect."""
_WORDS: Final = {"str": "TEXT", "path": "PATH", "Path": "PATH", "int": "N"}


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: where the function is that performs it, or a group of commands, and the panel it stands in."""

    name: str
    place: str  # module:attribute, or the distribution whose entry point it is
    panel: str

    def load(self) -> Any:
        """The command as typer makes it of the function. Raises UsageError if its distribution is not installed."""
        name, _, attribute = (self.place if ":" in self.place else self._entry_point()).partition(":")
        module = importlib.import_module(name)
        target = getattr(module, attribute)
        if isinstance(target, typer.Typer):
            return typer.main.get_command(target)
        app = app_of()
        app.command(self.name, epilog=getattr(module, "EPILOG", EPILOG))(target)
        return typer.main.get_command(app)

    def _entry_point(self) -> str:
        place = add_ons().get(self.name)
        if place is None:
            raise UsageError(f"`{self.name}` is in a package of its own: pip install {self.place}.")
        return place


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as typer reads it: a parameter whose type is a dataclass stands for its fields, those of its base
    last: an option each, behind the function's other options."""
    hints = get_type_hints(function, include_extras=True)
    owners = [(name, kind) for name, kind in hints.items() if is_dataclass(kind)]
    if not owners:
        return function
    [(owner, kind)] = owners
    types, defaults = get_type_hints(kind, include_extras=True), {each.name: each.default for each in fields(kind)}
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name])
        for name in sorted(types, key=lambda name: name not in kind.__annotations__)
    ]

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        own = {each.name: arguments.pop(each.name) for each in options}
        return function(**arguments, **{owner: kind(**own)})

    parameters = inspect.signature(function).parameters.values()
    own_parameters = [each.replace(annotation=hints[each.name]) for each in parameters if each.name != owner]
    run.__signature__ = inspect.Signature([*own_parameters, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own_parameters, *options)}
    return run


class CommandApp(typer.Typer):
    """A typer application whose commands are `CliCommand`s, with parameters as `spread` reads them."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:  # type: ignore[override]
        register = super().command(name, **dict[str, Any](cls=CliCommand, epilog=EPILOG) | settings)

        def enter(function: Function) -> Function:
            register(spread(function))
            return function

        return enter

    def callback(self, **settings: Any) -> Callable[[Function], Function]:  # type: ignore[override]
        register = super().callback(**settings)

        def enter(function: Function) -> Function:
            register(spread(function))
            return function

        return enter


def app_of(*, cls: type[TyperGroup] | None = None, lists: str = "", **settings: Any) -> CommandApp:
    """A typer application as all of ours are: plain help, no completion of its own, no tracebacks in boxes.

    `lists`: the help of a group that without a command does what its command `list` does."""
    app = CommandApp(
        cls=cls or Group,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        epilog=EPILOG,
        **settings,
    )
    if lists:
        app.callback(invoke_without_command=True, help=lists)(_list_without_command)
    return app


def _list_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        command: Any = context.command.get_command(context, "list")  # type: ignore[attr-defined]
        command.invoke(command.make_context("list", [], parent=context))


def add_ons() -> dict[str, str]:
    """The commands of installed distributions, each with its module:attribute (entry points `hai_flow.commands`)."""
    from hai_flow.plugins import list_offers

    return {each.name: each.value for each in list_offers(ENTRY_POINTS)}


def _write_examples(ctx: Any, formatter: Any) -> None:
    """The examples of the command, in front of its exit codes."""
    from hai_flow.cli.terminal import program

    words = ctx.command_path.removeprefix(ctx.find_root().command_path).strip()
    examples = EXAMPLES.get(words, ())
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':{formatter.current_indent}}{program()} {example}\n")


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Arguments by their names, options with a word for their value."""
    records = [(parameter.param_type_name, parameter.get_help_record(ctx)) for parameter in command.get_params(ctx)]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = [record for of, record in records if of == kind and record is not None]
        if rows:
            with formatter.section(title):
                formatter.write_dl([(_display_name(name, kind), text) for name, text in rows])


@contextmanager
def _naming_options(command: Any) -> Iterator[None]:
    """A refusal of a parameter by the server is told by the name of the option."""
    try:
        yield
    except Problem as problem:
        options = [name for each in command.params for name in each.opts if name.startswith("--")]
        problem.options = {each[2:].replace("-", "_"): each for each in options} | dict(problem.options)
        raise


class Group(TyperGroup):
    """Commands below a command, each with the whole of its sentence in the help."""

    def invoke(self, ctx: Any) -> Any:
        with _naming_options(self):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command; where there is none of this word, the refusal names those that there are, or the nearest."""
        word, names = args[0] if args else "", self.list_commands(ctx)
        if self.get_command(ctx, word) is None and not word.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{word}'.{self.suggest(ctx, word, names)}")
        return super().resolve_command(ctx, args)

    def suggest(self, ctx: Any, word: str, names: Sequence[str]) -> str:
        one = " One run: `show RUN`." if ctx.info_name == "runs" else ""
        return f" `{ctx.info_name}` has {', '.join(sorted(names))}.{one}"

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(SENTENCE_CHARS)) for name, command in commands if command]
            )

    def get_params(self, ctx: Any) -> Any:
        return _read_here(super().get_params(ctx))


class LazyGroup(Group):
    """Commands that are imported when they are used. `entries` lists all commands, in the order of the help.

    Every error that HAI Flow raises on purpose is a sentence and an exit code, never a traceback."""

    entries: tuple[CommandEntry, ...] = ()

    def respell(self, args: list[str]) -> tuple[str, list[str]] | None:
        """The command that replaces an older spelling in `args`, and the arguments for it; None: they are current."""
        return None

    def list_commands(self, ctx: Any) -> list[str]:
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = next((each for each in self.entries if each.name == cmd_name), None)
        if entry is None and cmd_name in add_ons():
            entry = CommandEntry(cmd_name, add_ons()[cmd_name], "")
        if entry is not None and cmd_name not in self.commands:
            self.commands[cmd_name] = entry.load()
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HaiFlowError as error:
            explain(error)
            raise typer.Exit(exit_code_of(error)) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == [HELP]:
            if args[1:] == [_EVERYTHING]:
                self._write_sentences(ctx)
                ctx.exit(0)
            args = [*args[1:], "--help"]
            if len(args) == 1:
                typer.echo(ctx.get_help())
                ctx.exit(0)
        replacement = self.respell(args)
        if replacement is not None:
            command, rest = replacement
            if not ctx.resilient_parsing:
                typer.echo(f"`{args[0]}` is an old spelling, for this release alone: {command}", err=True)
            args = [*command.split(), *rest]
        return super().resolve_command(ctx, args)

    def suggest(self, ctx: Any, word: str, names: Sequence[str]) -> str:
        near = [MEANT[word]] if word in MEANT else difflib.get_close_matches(word, names, n=1, cutoff=_LIKENESS)
        return f" Did you mean '{near[0]}'?" if near else f" `{ctx.info_name} {HELP} {_EVERYTHING}` lists them all."

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The first group with a sentence for each of its commands, of the others their names: so they fit a screen."""
        first, *others = self._groups().items()
        self._write_group(ctx, formatter, *first)
        with formatter.section("All commands"):
            formatter.write_dl([(f"{panel:{_HELP_COLUMNS}}", ", ".join(names)) for panel, names in others])
        name = ctx.find_root().info_name
        formatter.write(f"\n  {name} {HELP} {_EVERYTHING}: what each is for\n  {name} {HELP} COMMAND: how it is used\n")

    def _write_sentences(self, ctx: Any) -> None:
        formatter = ctx.make_formatter()
        for panel, names in self._groups().items():
            self._write_group(ctx, formatter, panel, names)
        typer.echo(formatter.getvalue().strip("\n"))

    def _write_group(self, ctx: Any, formatter: Any, panel: str, names: Sequence[str]) -> None:
        with formatter.section(panel):
            formatter.write_dl([(f"{name:{_HELP_COLUMNS}}", self._sentence(ctx, name)) for name in names])

    def _groups(self) -> dict[str, list[str]]:
        """The names of the commands by their panel."""
        panels = dict.fromkeys(entry.panel for entry in self.entries)
        return {panel: [entry.name for entry in self.entries if entry.panel == panel] for panel in panels}

    def _sentence(self, ctx: Any, name: str) -> str:
        """The sentence of a command; one that the table lacks is imported for it."""
        return SENTENCES.get(name) or self.get_command(ctx, name).get_short_help_str(SENTENCE_CHARS)


class CliCommand(TyperCommand):
    """A command whose texts, numbers and paths are read without pydantic, which takes longer to load than everything
    else."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        with _naming_options(self):
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        own = _VALUE_OPTIONAL & {option for each in self.params for option in each.opts}
        ctx.allow_extra_args = True  # so that those which are left can be told in words of ours
        rest = super().parse_args(ctx, [_complete(args, at, own) for at in range(len(args))])
        if ctx.args and not ctx.resilient_parsing:
            option = _PLACED.get(ctx.command_path.removeprefix(f"{ctx.find_root().command_path} "))
            hint = f" Did you mean {option} {ctx.args[0]}?" if option else ""
            ctx.fail(f"Got unexpected extra argument(s) ({' '.join(ctx.args)}).{hint}")
        return rest

    def get_params(self, ctx: Any) -> Any:
        return _read_here(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"\{(.*?)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)


def _read_here(parameters: list[Any]) -> list[Any]:
    """The parameters, with a reader of ours where there is one."""
    for parameter in parameters:
        read = _reader(getattr(parameter, "type_descriptor", None))
        if read is not None:
            parameter.get_runtime_param = _Reading(read).itself
    return parameters


def _complete(args: list[str], at: int, options: frozenset[str]) -> str:
    """An argument; one of `options` that no value follows has an empty one, which typer has no word for."""
    return f"{args[at]}=" if args[at] in options and (args[at + 1 :] or ["-"])[0].startswith("-") else args[at]


def _display_name(name: str, kind: str) -> str:
    return _TYPE.sub(lambda found: "" if kind == "argument" else _WORDS.get(found[1], found[1]), name).rstrip()


class _Reading:
    """The object that typer calls to read a parameter's value."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def itself(self) -> _Reading:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a text, or the list of values where there may be several. Raises BadParameter."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self._read(each) for each in value] if several else self._read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def _reader(described: Any) -> Callable[[Any], Any] | None:
    """The function that reads a value of the type; None: typer's own reads it."""
    kind = getattr(described, "annotation", None)
    info = getattr(described, "parameter_info", None)
    if info is None or info.parser is not None:
        return None
    if kind is bool:  # a flag
        return bool
    if kind in (str, list[str]):
        return str
    if kind in (Path, list[Path]) and not (info.exists or info.resolve_path or info.readable is False):
        return Path
    if kind in (int, float) and not info.clamp:
        return lambda text: _parse_number(text, kind, info.min, info.max)
    if get_origin(kind) is Literal:
        return lambda text: _parse_choice(text, get_args(kind))
    return None


def _parse_number(text: str | float, kind: type[float], low: float | None, high: float | None) -> float:
    bounds = "" if low is None else f" from {low} up" if high is None else f" from {low} to {high}"
    try:
        number = kind(text)
        if (low is None or low <= number) and (high is None or number <= high):
            return number
    except ValueError:
        pass
    raise ValueError(f"expected a {'whole ' if kind is int else ''}number{bounds}, found {text!r}.")


def _parse_choice(text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"expected {' or '.join((', '.join(choices[:-1]), choices[-1]))}, found {text!r}.")
    return text


def entries(panels: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> tuple[CommandEntry, ...]:
    """The entries of panels with their commands, each a name and a place below `hai_flow.cli`, or a distribution."""
    return tuple(
        CommandEntry(name, f"hai_flow.cli.{place}" if ":" in place else place, panel)
        for panel, commands in panels
        for name, place in commands
    )
