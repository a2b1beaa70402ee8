"""Tools, models, roles and variables that a workflow declares and nothing of it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from hai_flow.definition.names.secret_names import list_texts
from hai_flow.definition.yaml.document import Path, parse
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.values import Json

_WHOLE_STATE: Final = re.compile(r"\bstate\b(?!\s*(?:\.|\?|\[|_))")
_READ: Final = re.compile(r"\bstate\s*(?:\.\??\s*([A-Za-z_][A-Za-z0-9_]*)|\[\??\s*[\"']([^\"']+)[\"'])")
_COMPUTED: Final = re.compile(r"\bstate\s*\[\s*[^\"'\s?]")


class Unused(NamedTuple):
    """What is declared at `at` and used nowhere: a sentence about it."""

    at: Path
    message: str


def list_notes(source: bytes) -> list[tuple[int, int, str]]:
    """(line, column, sentence) of all that a workflow without errors declares and does not use. It may be a draft, or
    kept for later: so it is told, and is no finding."""
    document = parse(first_of(source))
    fields = document.value
    if not isinstance(fields, Mapping) or document.findings:
        return []
    return [(*document.position(each.at, key=True)[:2], each.message) for each in _unused(fields)]


def _unused(fields: Mapping[str, Json]) -> Iterator[Unused]:
    rest = {key: value for key, value in fields.items() if key not in ("name", "title", "description", "hai")}
    for section, what in (("tools", "calls"), ("models", "asks")):
        declared = fields.get(section)
        for name in declared if isinstance(declared, Mapping) else ():
            if not any(_names(text, name) for text in list_texts(rest, (section, name))):
                yield Unused((section, name), f"nothing {what} `{name}`; take it out of `{section}`, or use it")
    yield from _roles(fields, rest)
    yield from _variables(fields, rest)


def _names(text: str, name: str) -> bool:
    return text == name or text.startswith(f"{name}.")


def _roles(fields: Mapping[str, Json], rest: Mapping[str, Json]) -> Iterator[Unused]:
    declared = fields.get("roles")
    texts = list(list_texts(rest, ("roles",)))
    if not isinstance(declared, Mapping) or any("role:${{" in text for text in texts):
        return
    if any(text.strip().startswith("${{") for text in _selectors(rest)):
        return
    for name in declared:
        if not any(re.search(rf"role:{re.escape(name)}(?![\w-])", text) for text in texts):
            message = f"nobody is asked as `role:{name}`, and nothing is shown to it; take it out of `roles`, or use it"
            yield Unused(("roles", name), message)


def _selectors(value: Any) -> Iterator[str]:
    """The texts under keys that say who: `from`, `exclude`, `veto`, `quorum`."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key in ("from", "exclude", "veto"):
                yield from list_texts(each)
            else:
                yield from _selectors(each)
    elif isinstance(value, list):
        for each in value:
            yield from _selectors(each)


def _variables(fields: Mapping[str, Json], rest: Mapping[str, Json]) -> Iterator[Unused]:
    declared = fields.get("state")
    texts = [text for text in list_texts(rest, ("state",)) if "state" in text]
    if not isinstance(declared, Mapping) or any(_WHOLE_STATE.search(each) or _COMPUTED.search(each) for each in texts):
        return
    used = {one or other for text in texts for one, other in _READ.findall(text)}
    used |= set(list_written_names(rest)) | set(_iter_predicted(rest))
    for name, variable in declared.items():
        shared = isinstance(variable, Mapping) and any(word in variable for word in ("client", "keep", "show"))
        if name not in used and not shared:
            message = f"nothing sets or reads `{name}`: it keeps its default; take it out of `state`, or use it"
            yield Unused(("state", name), message)


def list_written_names(value: Any) -> Iterator[str]:
    """The names of variables that a `set` anywhere in the value writes."""
    if isinstance(value, Mapping):
        assignments = value.get("set")
        if isinstance(assignments, Mapping):
            for key in assignments:
                yield str(key).removeprefix("/").split("/")[0]
        for operation in assignments if isinstance(assignments, list) else ():
            for word in ("path", "from"):
                if isinstance(operation, Mapping) and isinstance(operation.get(word), str):
                    yield operation[word].removeprefix("/").split("/")[0]
        for each in value.values():
            yield from list_written_names(each)
    elif isinstance(value, list):
        for each in value:
            yield from list_written_names(each)


def _iter_predicted(value: Any) -> Iterator[str]:
    """The variables that arguments of frontend tools predict."""
    tools = value.get("tools")
    for tool in tools.values() if isinstance(tools, Mapping) else ():
        frontend = tool.get("frontend") if isinstance(tool, Mapping) else None
        predict = frontend.get("predict") if isinstance(frontend, Mapping) else None
        for name in predict.values() if isinstance(predict, Mapping) else ():
            yield str(name)
