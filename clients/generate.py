"""Generates the code of the clients that repeats definitions of the server: `make generate`. A test fails where it is
stale.

The Python client imports nothing of the server, so it repeats the vocabulary of the log and the shapes of answers
(`models`); and it is there twice, for asyncio and for threads. The TypeScript client repeats the records of the Python
client. This module is beside the clients and not in the package, since users of the package don't need it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from clients import openapi
from clients.docstrings import retold
from clients.models import models
from hai_flow.primitives import invisible_characters

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "hai_flow"
CLIENT: Final = PACKAGE.parent / "clients" / "python" / "hai_flow_client"
TYPESCRIPT: Final = ROOT / "clients" / "typescript" / "src"
CONSOLE: Final = ROOT / "console" / "src"
_SHARED: Final = ("primitives/hosts", "values", "primitives/versions")
_NOTE: Final = "# Written by `make generate` from {source}: change that, or clients/generate.py.\n"


def generated() -> dict[Path, str]:
    """The text of each file that is written, formatted."""
    log = (PACKAGE / "engine" / "events.py").read_text()
    awaiting = (CLIENT / "awaiting.py").read_text()
    told = events(log)
    answers = models(_NOTE.format(source="api/requests/schemas.py"))
    files = {
        CLIENT / "events.py": told,
        CLIENT / "models.py": answers,
        CLIENT / "blocking.py": blocking(awaiting),
        **{CLIENT / f"{Path(name).name}.py": copied(name) for name in _SHARED},
    }
    written = {
        TYPESCRIPT / "records.ts": records(answers, told),
        CONSOLE / "api" / "types.gen.ts": openapi.types(),
        CONSOLE / "logic" / "signs.gen.ts": listed_signs(),
        TYPESCRIPT / "elements_types.ts": (
            "// Written by `make generate` from console/src/elements/types.ts: change that.\n"
            + (CONSOLE / "elements" / "types.ts").read_text()
        ),
    }
    return {path: _formatted(text) for path, text in files.items()} | written


def copied(name: str) -> str:
    """The text of a module of the package that the client needs, too: it imports nothing of the server."""
    doc, rest = (PACKAGE / f"{name}.py").read_text().split("from __future__", 1)
    return f"{doc}{_NOTE.format(source=f'hai_flow/{name}.py')}\nfrom __future__{rest}"


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


# --- signs that are shown as codes ------------------------------------------------------------------------------


def listed_signs() -> str:
    """The list of `hai_flow/signs`, as classes of regular expressions."""
    kinds = {"ODD": _class_of(invisible_characters.RANGES), "JOINED": _class_of(invisible_characters.JOINED)}
    kinds["ALIKE"] = "".join(f"\\u{{{ord(each):x}}}" for each in invisible_characters.ALIKE)
    lines = [
        "// Written by `make generate` from hai_flow/primitives/invisible_characters.py: change that, not this.",
        "",
    ]
    lines += [f"export const {name} = String.raw`{text}`;" for name, text in kinds.items()]
    return "\n".join([*lines, ""])


def _class_of(ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(f"\\u{{{low:x}}}-\\u{{{high:x}}}" for low, high in ranges)


# --- the events ---------------------------------------------------------------------------------------------------

_HEAD: Final = '''\
"""The events of a run as the server sends them: `{seq, type, at, turn, path?, ...}`, one record for each type.

The vocabulary of the log. Times are aware datetimes; texts that hold JSON there (`args`, `evidence`) are the values
that they hold. An event that this release does not know, or that a newer server sends in another form, becomes an
`UnknownEvent`: pass over it and read on. Words of a closed list are `str` here, because a newer server may know more
of them. Durations are in milliseconds.

Rules that every reader may rely on: `seq` counts from 1 without a gap; `at` never decreases; whatever is started
(message, tool call) is ended before its turn ends; a terminal event (`run_finished`, `run_failed`, `run_stopped`) is
last unless `run_retried` follows it. `ready` lists the paths that may begin because of the event ("" is the end).
"""

@@NOTE@@
from __future__ import annotations

import re
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from hai_flow_client.values import Json


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


'''
_EVENT: Final = '''\
class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=_snake):
    """The fields that every event has. `turn` is 0 before the first turn opens."""

    seq: int
    at: datetime
    turn: int = 0

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that this release of the client does not know: `fields` has all of its other fields."""

    seq: int
    type: str
    at: datetime
    turn: int = 0
    fields: dict[str, Json] = {}
'''
_TAIL: Final = '''
EVENT_TYPES: Final[dict[str, type[Event]]] = {
    _snake(kind.__name__): kind for kind in Event.__subclasses__() if kind.__module__ == __name__
}
TERMINAL: Final = (@@TERMINAL@@)


def read_event(shown: dict[str, Json]) -> AnyEvent:
    """The event that REST shows as `shown`. Raises `msgspec.ValidationError` if it is no event at all."""
    name = shown.get("type")
    kind = EVENT_TYPES.get(name) if isinstance(name, str) else None
    if kind is not None:
        try:
            return msgspec.convert(shown, kind)  # type: ignore[return-value]
        except msgspec.ValidationError:
            pass  # a newer server means something else by it
    common = ("seq", "type", "at", "turn")
    fields = {name: value for name, value in shown.items() if name not in common}
    return msgspec.convert({**{name: shown[name] for name in common if name in shown}, "fields": fields}, UnknownEvent)
'''
_TIMES: Final = frozenset(("at", "due", "deadline", "since"))
_JSON_TEXTS: Final = frozenset(("args", "evidence"))
_LOG_ALONE: Final = frozenset(("Heard",))  # how a run remembers signals is nothing to follow
# Phrases in the docstrings of the log's records that don't hold for REST, each with its replacement.
_PHRASES: Final = (
    (
        "`args` is the JSON text of the rendered arguments: the very text that is hashed, shown and executed.",
        "`args` are the rendered arguments, as they are hashed, shown and executed.",
    ),
    (" (ms since 1970)", ""),
    (" `due` is in ms since 1970.", ""),
)


def events(log: str) -> str:
    """`client/events.py` from the text of `engine/events.py`."""
    for phrase, _ in _PHRASES:
        assert phrase in re.sub(r"\s+", " ", log), f"`{phrase}` is said no more: take it out of _PHRASES"
    tree = ast.parse(log)
    note = _NOTE.format(source="engine/events.py")
    return _HEAD.replace("@@NOTE@@", note) + "\n\n".join(_records(tree, log)) + _tail(tree)


def _records(tree: ast.Module, log: str) -> Iterator[str]:
    """Each class, behind the headings that stand before it."""
    lines = log.splitlines()
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    words = dict(_closed_lists(tree))
    kinds = {each.name for each in classes if any(ast.unparse(base) == "Event" for base in each.bases)}
    before = 0
    for node in classes:
        headings = [line for line in lines[before : node.lineno] if line.startswith("# --- ")]
        before = node.end_lineno or node.lineno
        text = "\n\n\n".join([*headings, _EVENT if node.name == "Event" else _record(node, words, kinds)])
        if node.name not in _LOG_ALONE:
            yield text


def _closed_lists(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names of `X: TypeAlias = Literal[...]`, with their values as source text."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.value).startswith("Literal["):
            yield ast.unparse(node.target), ast.unparse(node.value)


def _record(node: ast.ClassDef, words: dict[str, str], kinds: set[str]) -> str:
    dropped = ("gc", "forbid_unknown_fields")
    given = [f"{each.arg}={ast.unparse(each.value)}" for each in node.keywords if each.arg not in dropped]
    head = f"class {node.name}({', '.join([*map(ast.unparse, node.bases), *given])}):"
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    written = {ast.unparse(each.target): words.get(ast.unparse(each.annotation)) or ast.unparse(each.annotation)
               for each in fields}  # fmt: skip
    closed = {name: ast.literal_eval(annotation.removeprefix("Literal"))
              for name, annotation in written.items() if annotation.startswith("Literal[")}  # fmt: skip
    lines = [_field(each, written[ast.unparse(each.target)], kinds) for each in fields]
    about = retold(ast.get_docstring(node) or "", closed, _PHRASES)
    body = "\n".join([*([f'"""{about}"""', ""] if about else []), *lines])
    return head + "\n" + textwrap.indent(body, "    ") + "\n"


def _field(field: ast.AnnAssign, annotation: str, kinds: set[str]) -> str:
    name, default = ast.unparse(field.target), "" if field.value is None else f" = {ast.unparse(field.value)}"
    if annotation.startswith("Literal["):
        annotation = "str"
    elif name in _TIMES and annotation == "int" and default:  # 0 is no time
        annotation, default = "datetime | None", " = None"
    elif name in _TIMES:
        annotation = annotation.replace("int", "datetime")
    elif name in _JSON_TEXTS or annotation.split(" | ")[0] in _LOG_ALONE:
        annotation = "Json"
    for kind in kinds:
        annotation = re.sub(rf"\b{kind}\b", "dict[str, Json]", annotation)
    return f"{name}: {annotation}{default}"


def _tail(tree: ast.Module) -> str:
    (union,) = (node.value for node in tree.body if isinstance(node, ast.AnnAssign) and _is(node.target, "AnyEvent"))
    (terminal,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and _is(node.targets[0], "TERMINAL")
    )
    assert union is not None
    names = [*ast.unparse(union).split(" | "), "UnknownEvent"]
    listed = textwrap.fill(" | ".join(names), 114, initial_indent="    ", subsequent_indent="    ")
    listed = re.sub(r" \|\n    ", "\n    | ", listed)
    assert isinstance(terminal, ast.Tuple)
    ends = ", ".join(f'"{_snake(ast.unparse(each))}"' for each in terminal.elts)
    return f"\n\nAnyEvent: TypeAlias = (\n{listed}\n)  # fmt: skip\n" + _TAIL.replace("@@TERMINAL@@", ends)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


# --- the client for threads ---------------------------------------------------------------------------------------

# Texts of `awaiting.py`, each with its replacement for threads. Each is there; they are replaced in this order.
_FOR_THREADS: Final = (
    ("performed in an event loop", "performed by a thread that waits"),
    ('"""`AsyncClient`:', '"""`Client`:'),
    ("for asyncio. `Client` is the same for threads.", "for threads. `AsyncClient` is the same for asyncio."),
    (
        "Its methods are those of `Client`, to be awaited, or\n    iterated over with `async for`.",
        "May be shared by threads; an iterator may not.",
    ),
    ("import asyncio\nimport inspect\n", ""),
    ("key = await credential if inspect.isawaitable(credential) else credential", "key = credential"),
    ("AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping", "Callable, Iterator, Mapping"),
    ("Callable[P, Coroutine[Any, Any, T]]", "Callable[P, T]"),
    (
        "        self.schedules = AsyncSchedules(self)\n",
        "        self.schedules = Schedules(self)\n        _ = self.http  # made before threads could make one each\n",
    ),
    ("AsyncGenerator[bytes] | None = None", "Iterator[bytes] | None = None"),
    (
        "        if self._chunks is not None:\n"
        "            await self._chunks.aclose()  # left to the garbage, it would end in a loop that may be gone\n"
        "            self._chunks = None\n",
        "        self._chunks = None\n",
    ),
    ("            await self.aclose()\n            raise StopAsyncIteration from None\n", ""),
    ("        except StopIteration:\n        except BaseException:", "        except BaseException:"),
    ("asyncio.sleep", "time.sleep"),
    ("httpx2.AsyncClient", "httpx2.Client"),
)
_WORDS: Final = (
    (r"\bawait ", ""),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(__)a(enter|exit|next|iter)__", r"\1\2__"),
    (r"\ba(close|next|read)\b", r"\1"),
    (r"\baiter_bytes\b", "iter_bytes"),
)


def blocking(awaiting: str) -> str:
    """`client/blocking.py` from the text of `client/awaiting.py`."""
    head, _, rest = awaiting.partition("from __future__")
    for there, here in _FOR_THREADS:
        assert there in head + rest, f"`{there}` is in awaiting.py no more"
        head, rest = head.replace(there, here), rest.replace(there, here)
    doc = "for threads. `AsyncClient` is the same for asyncio."
    first, second = rest.split(doc)
    for pattern, word in _WORDS:
        first, second = re.sub(pattern, word, first), re.sub(pattern, word, second)
    return f"{head}{_NOTE.format(source='client/awaiting.py')}\nfrom __future__{first}{doc}{second}"


# --- the records of the TypeScript client ------------------------------------------------------------------------

_RECORDS: Final = (
    "WhyNot",
    "InboxItem",
    "InboxCounts",
    "Decided",
    "Delegation",
    "Absence",
    "Decision",
    "Approval",
    "ConsumedApproval",
    "BulkOutcome",
    "Key",
    "NewKey",
    "Limits",
    "TenantCell",
    "Tenant",
    "Token",
    "Ticket",
    "Session",
    "Version",
    "RunParent",
    "SlotHolder",
    "QueuedFor",
    "Pause",
    "Holder",
    "Error",
    "Run",
    "RunCounts",
    "Origin",
    "Turn",
    "StepState",
    "Pending",
    "Message",
    "Timer",
    "ModelUsage",
    "Snapshot",
    "Left",
    "Rehearsal",
)
"""Which of the Python client's records it has."""
_SPARSE: Final = frozenset(
    ("Error", "InboxCounts", "Run", "RunCounts", "Tenant", "Origin", "StepState", "Pending", "Snapshot")
)
"""In these records a server may leave out a field with a default."""
_TS_HEAD: Final = """\
/** The answers of a HAI Flow server, as records. Times are texts as in RFC 3339. */

// Written by `make generate` from hai_flow/api/requests/schemas.py: change that, or clients/generate.py.

import type { Problem } from "./errors.js";
"""
_TS_TYPES: Final = {
    "str": "string",
    "datetime": "string",
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "Json": "unknown",
    "dict[str, Json]": "Record<string, unknown>",
    "dict[str, int]": "Record<string, number>",
    "list[str]": "string[]",
    "Error": "RunError",
    "Message": "RunMessage",
    "Pending": "Question",
    "dict[str, StepState]": "Record<string, StepState>",
    "list[Pending]": "Question[]",
    "list[Message]": "RunMessage[]",
    "list[Timer]": "Timer[]",
    "list[ModelUsage]": "ModelUsage[]",
    "list[TenantCell]": "TenantCell[]",
    "list[SlotHolder]": "SlotHolder[]",
}


def records(*sources: str) -> str:
    """`records.ts` from the texts of `client/models.py` and of the parts that it takes from `client/events.py`."""
    bodies = (node for text in sources for node in ast.parse(text).body)
    classes = {each.name: each for each in bodies if isinstance(each, ast.ClassDef)}
    return _TS_HEAD + "".join(_interface(classes, name) for name in _RECORDS)


def _interface(classes: dict[str, ast.ClassDef], name: str) -> str:
    fields = list(_fields(classes, classes[name]))
    about = _described(ast.get_docstring(classes[name]) or "", {_wire_name(each) for each in fields})
    lines = [
        f"  {_camel(_wire_name(each))}{'?' * (name in _SPARSE and each.value is not None)}: {_ts_type(name, each)};"
        for each in fields
    ]
    return "\n".join(["", *about, f"export interface {_TS_TYPES.get(name, name)} {{", *lines, "}", ""])


def _fields(classes: dict[str, ast.ClassDef], node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    """Its fields, those of its base first."""
    for base in map(ast.unparse, node.bases):
        if base in classes:
            yield from _fields(classes, classes[base])
    yield from (each for each in node.body if isinstance(each, ast.AnnAssign))


def _wire_name(field: ast.AnnAssign) -> str:
    renamed = re.search(r"name='(\w+)'", ast.unparse(field.value)) if field.value is not None else None
    return ast.unparse(field.target) if renamed is None else renamed[1]


def _ts_type(name: str, field: ast.AnnAssign) -> str:
    if (name, ast.unparse(field.target)) == ("BulkOutcome", "problem"):
        return "Problem | null"
    said = ast.unparse(field.annotation).split(" | ")
    assert all(each in _TS_TYPES or each in _RECORDS for each in said), f"what is {said} in TypeScript?"
    return " | ".join(_TS_TYPES.get(each, each) for each in said)


def _described(docstring: str, names: set[str]) -> list[str]:
    """The docstring as a comment, with the names of fields as they are there."""
    text = re.sub(r"\s+", " ", docstring)
    text = re.sub(
        r"`(\w+)`", lambda found: f"`{_camel(name) if (name := found[1].rstrip('_')) in names else found[1]}`", text
    )
    if not text:
        return []
    lines = textwrap.wrap(text, 115)
    return [f"/** {text} */"] if len(lines) == 1 else ["/**", *(f" * {line}" for line in lines), " */"]


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
