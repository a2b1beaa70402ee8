"""The forms of names, and the findings about others (docs/language.md#notation).

Two kinds. An *identifier* stands in expressions and paths: ids of steps, branches, options, loop variables, state. A
*handle* stands in addresses, on command lines and in files: workflows, tools, models, roles; it may have hyphens."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal, TypeAlias

from hai_flow.definition.names.known_types import ROOTS

LENGTH_MAX: Final = 63
SEEDED: Final = "oversight_canary"
"""The workflow that the server alone writes (`engine/canaries`): its steps have ids as paths have parts."""

IDENTIFIER: Final = "[a-z][a-z0-9_]{0,62}"
VARIABLE: Final = "[A-Za-z][A-Za-z0-9_]{0,62}"
WORKFLOW: Final = "[a-z][a-z0-9_-]{0,62}"
HANDLE: Final = "[A-Za-z][A-Za-z0-9_-]{0,62}"
WEBHOOK_PATH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
PATH_CHARS_MAX: Final = 200  # of a webhook

NameKind: TypeAlias = Literal["identifier", "variable", "workflow", "handle"]
"""`variable`: a state variable, which may have capitals. `workflow`: a handle without capitals."""

_PATTERNS: Final[dict[NameKind, re.Pattern[str]]] = {
    "identifier": re.compile(IDENTIFIER),
    "variable": re.compile(VARIABLE),
    "workflow": re.compile(WORKFLOW),
    "handle": re.compile(HANDLE),
}
_CAPITALS: Final = ("variable", "handle")
_HYPHENS: Final = ("workflow", "handle")
_CEL_WORDS: Final = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "namespace", "null", "package", "return", "true", "var", "void", "while")
)  # fmt: skip
_FOLDERS_AND_ENDING: Final = re.compile(r"^.*/|(\.flow)?\.ya?ml$")
_NAMED: Final = ROOTS - {"item"}  # which expressions name already
_ASCII: Final = {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae", "ø": "o"}


def check_name(name: str, kind: NameKind = "identifier") -> str | None:
    """Why `name` can't be a name of this kind, with one that can be; None if it can."""
    if _is_reserved(name, kind):
        what = (
            "is a word of CEL and can't be a name" if name in _CEL_WORDS else "already names something in expressions"
        )
        return f"`{name}` {what}; write another, such as `{suggest_name(name, kind)}`"
    if _PATTERNS[kind].fullmatch(name):
        return None
    letter = "a letter" if kind in _CAPITALS else "a lower-case letter"
    others = "letters, digits, _ or -" if kind in _HYPHENS else "letters, digits or _"
    return (
        f"expected {letter}, then {others} (at most {LENGTH_MAX}), found `{name}`; write `{suggest_name(name, kind)}`"
    )


def suggest_name(name: str, kind: NameKind = "identifier") -> str:
    """A name of this kind that is as near to `name` as can be: `My Flow` is `my-flow`, or `my_flow` as an id."""
    if _is_reserved(name, kind):
        return f"my_{name}"
    if kind == "workflow":  # the name of its file
        name = _FOLDERS_AND_ENDING.sub("", name) or name
    plain = "".join(_ASCII.get(character, character) for character in name)
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    joint = "-" if kind in _HYPHENS else "_"
    if kind not in _CAPITALS:
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", joint, plain).lower()
    forbidden = r"[^A-Za-z0-9_-]+" if kind in _HYPHENS else r"[^A-Za-z0-9_]+"
    near = re.sub(forbidden, joint, plain).strip("_-")[:LENGTH_MAX].rstrip("_-")
    if near and not near[0].isalpha():
        near = f"n{near}"[:LENGTH_MAX]
    if not near:
        return "name_1"
    return f"my_{near}" if _is_reserved(near, kind) else near


def _is_reserved(name: str, kind: NameKind) -> bool:
    """Whether expressions could not tell `name` from a word of theirs. State is only named behind `state.`."""
    if kind in _HYPHENS:
        return False
    return name in _CEL_WORDS or (kind == "identifier" and name in _NAMED)
