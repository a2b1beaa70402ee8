"""The services that a Compose file would start: each with its command and environment, variables filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class Service:
    """`secrets` are the names of those that it sees below /run/secrets."""

    name: str
    command: list[str]
    environment: dict[str, str]
    secrets: list[str]


def read(path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The document, with `variables` in place of `${NAME}` and `${NAME:-default}`."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: variables.get(found[1]) or found[2] or "", value)
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        return [filled(each) for each in value] if isinstance(value, list) else value

    document: dict[str, Any] = filled(yaml.safe_load(path.read_text()))
    return document


def service(document: Mapping[str, Any], name: str) -> Service:
    found = document["services"][name]
    environment = {key: str(value) for key, value in found.get("environment", {}).items()}
    return Service(name, list(found.get("command", [])), environment, list(found.get("secrets", [])))
