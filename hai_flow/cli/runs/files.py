"""`hai-flow files`: upload a file, and get one back, over REST."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions, Server, ask
from hai_flow.cli.client.uploads import upload
from hai_flow.cli.commands import app_of
from hai_flow.cli.console import clean
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import ActAsOption, ServerOption
from hai_flow.cli.terminal import note, say
from hai_flow.values import Json

app = app_of(name="files", no_args_is_help=True)


@app.callback()
def files() -> None:
    """Upload and download files, which input and answers refer to."""


@app.command()
def put(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to upload.")],
    remote: ActingOptions,
    media_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The media type. Default: by the file's name.")
    ] = None,
) -> None:
    """Upload a file; print the id by which input, answers and messages refer to it."""

    async def work(api: Server) -> dict[str, Json]:
        return await upload(api, file, media_type)

    stored = remote.ask_and_print(work)
    if not remote.as_json:
        note(clean(f"{stored['name']}: {stored['size']} bytes, {stored['media_type']}"))
        say(str(stored["id"]))


@app.command()
def get(
    id: Annotated[str, typer.Argument(metavar="ID", help="The file's id, or its sha256.")],
    to: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file. Default: standard output.")
    ] = None,
    act_as: ActAsOption = None,
    server: ServerOption = None,
) -> None:
    """Download the content of a file."""
    if to is None and sys.stdout.isatty():
        raise UsageError("a terminal is no place for a file: name one with --out.")

    async def work(api: Server) -> bytes:
        return await api.content(f"/v1/files/{id}")

    body = ask(server, False, work, act_as=act_as)
    if to is None:
        sys.stdout.buffer.write(body)
        return
    try:
        to.write_bytes(body)
    except OSError as error:
        raise UsageError(f"{to}: can't be written: {error.strerror}.") from None
    note(f"{len(body)} bytes in {to}")
