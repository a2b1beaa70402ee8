"""`lsp`: the language server, for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.errors import UsageError


def lsp(
    no_import: Annotated[bool, typer.Option("--no-import", help="Run no project code; only read its source.")] = False,
) -> None:
    """The language server for editors, over standard input and output (docs/editors.md)."""
    try:
        from hai_flow.lsp.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        raise UsageError("the language server needs a package more: pip install 'hai-flow[lsp]'.") from None
    make_server(imports=not no_import).start_io()
