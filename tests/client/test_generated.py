"""The files that `make generate` writes, which repeat a part of the server or of each other, are fresh."""

from __future__ import annotations

import pytest

from clients.generate import generated


@pytest.mark.slow
def test_the_generated_files_are_fresh() -> None:
    stale = [str(path) for path, text in generated().items() if path.read_text() != text]
    assert not stale, f"these files are not as they would be written now: {stale}; run `make generate`"
