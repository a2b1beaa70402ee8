"""OpenAPI's operation ids come from the names of functions, and generated clients call them: what is pinned here stays.

`python -m tests.api.test_operation_ids` writes the file anew, with the operations that have come since."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.rights_page import application

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
