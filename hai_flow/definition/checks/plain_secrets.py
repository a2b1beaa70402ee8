"""Secrets that are written out in a document, which many people may read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.values import Json

_HEADER: Final = re.compile(
    r"(?i)^(proxy-)?authorization$|^cookie$|(api|access|auth|private|secret)[-_]?(key|token)|^x-.*(token|secret|key)$"
)
_VARIABLE: Final = re.compile(r"(?i)(^|_)(key|token|secret|password|passwd|pwd)$")
_IN_ADDRESS: Final = re.compile(
    r"(?i)[?&](?:api_?key|access_?token|token|secret|password)=([^&#]{8,})|^https?://[^/@\s:]+:([^/@\s]{3,})@"
)
_SCHEME: Final = re.compile(r"(?i)^(bearer|basic|token|apikey|key)\s+")
_CHARS_MIN: Final = 8
_METHODS: Final = ("get", "post", "put", "patch", "delete", "head")
_KEY: Final = re.compile(r"\b(?:headers|env|auth|get|post|put|patch|delete|head|include)\b")
"""A word without which no place has a secret, where no escape hides a word, and no other file has it."""
_TELLING: Final = frozenset(("auth", *_METHODS))
"""Keys of which a text may be a secret."""


def check_secrets(reader: Reader, fields: Mapping[str, Json]) -> None:
    """Report literal texts where a secret goes: headers, `auth`, variables of servers, addresses."""
    text = reader.document.text
    if "\\" not in text and _KEY.search(text) is None:
        return
    for at in _places(fields, ()):
        message = (
            "a secret is written out here, for everybody who reads the workflow; keep it in the deployment, as "
            "HAI_FLOW_SECRET_NAME, and write `${{ secrets.NAME }}`"
        )
        reader.warning(at, "secret.written", message)


def _places(value: Any, at: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            if type(each) is dict or type(each) is list:
                yield from _places(each, (*at, index))
    if not isinstance(value, dict):
        return
    for key, each in value.items():
        if type(each) is not dict and type(each) is not list and key not in _TELLING:
            continue
        here = (*at, key)
        match key:
            case "headers" if isinstance(each, Mapping):
                yield from (
                    (*here, name) for name, text in each.items() if _HEADER.search(str(name)) and _is_secret(text)
                )
            case "env" if isinstance(each, Mapping):
                yield from (
                    (*here, name) for name, text in each.items() if _VARIABLE.search(str(name)) and _is_secret(text)
                )
            case "auth":
                yield from _iter_auth_paths(each, here)
            case "input" | "state" | "form" | "parameters" | "with" | "value":
                continue  # schemas and values of the author's own
            case _ if key in _METHODS and isinstance(each, str) and "${{" not in each and _IN_ADDRESS.search(each):
                yield here
            case _:
                yield from _places(each, here)


def _iter_auth_paths(value: Json, at: Path) -> Iterator[Path]:
    if isinstance(value, str) and _is_secret(value):
        yield at
    for key, each in value.items() if isinstance(value, Mapping) else ():
        if key == "bearer" and _is_secret(each):
            yield (*at, key)
        elif key == "basic" and isinstance(each, Mapping) and _is_secret(each.get("password"), least=1):
            yield (*at, key, "password")
        elif key == "header" and isinstance(each, Mapping) and _is_secret(each.get("value")):
            yield (*at, key, "value")


def _is_secret(text: Json, least: int = _CHARS_MIN) -> bool:
    if not isinstance(text, str) or "${{" in text:
        return False
    bare = _SCHEME.sub("", text.strip())
    return len(bare) >= least and " " not in bare
