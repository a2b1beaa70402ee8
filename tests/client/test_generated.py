"""What the client repeats of the server, and for threads of itself, is as `make generate` writes it."""

from __future__ import annotations

import pytest

from clients.generate import ROOT, generated

GENERATED = {str(path.relative_to(ROOT)): text for path, text in generated().items()}


@pytest.mark.parametrize("file", GENERATED)
def test_a_generated_file_is_fresh(file: str) -> None:
    assert (ROOT / file).read_text() == GENERATED[file], f"{file} is not what it is made from says: run `make generate`"
