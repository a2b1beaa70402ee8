"""OpenAPI's operation ids come from the names of functions, and generated clients call them: what is pinned here stays.

`python -m tests.api.test_operation_ids` writes the file anew, with the operations that have come since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.rights_page import application
from hai_flow.api.base.id_patterns import EXPECTED

PINNED = Path(__file__).with_name("operation_ids.txt")


def operation_ids() -> dict[str, str]:
    """The id of each operation, by its method and path."""
    paths = application().openapi()["paths"]
    return {
        f"{method.upper()} {path}": operation["operationId"]
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


@pytest.mark.slow
def test_a_renamed_function_keeps_the_operation_id_of_its_route() -> None:
    pinned = dict(line.rsplit(" ", 1) for line in PINNED.read_text().splitlines())
    current = operation_ids()
    assert len(pinned) > 100
    assert {name: id for name, id in pinned.items() if current.get(name, id) != id} == {}


if __name__ == "__main__":
    PINNED.write_text("".join(f"{name} {id}\n" for name, id in sorted(operation_ids().items())))


@pytest.mark.slow
def test_every_pattern_of_a_request_has_words_for_its_refusal() -> None:
    document = application().openapi()
    assert set(list_patterns(document)) - EXPECTED.keys() == set()


def list_patterns(schema: Any) -> Iterator[str]:
    """The patterns anywhere in a document."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from list_patterns(each)
