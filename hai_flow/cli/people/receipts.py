"""`hai-flow receipt`: receipts of decisions, fetched, verified, and the keys that sign them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hai_flow.cli.client.rest import Server, ask
from hai_flow.cli.commands import app_of
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import JsonOption, ServerOption
from hai_flow.cli.terminal import note, print_json, say

_BYTES_MAX: Final = 16 * 1024 * 1024

app = app_of(name="receipt", no_args_is_help=True, help="Signed receipts of decisions.")


@app.command()
def get(
    pending: Annotated[str, typer.Argument(metavar="PENDING", help="The question's id.")],
    to: Annotated[Path | None, typer.Option("-o", "--to", metavar="FILE", help="Write to this file.")] = None,
    server: ServerOption = None,
) -> None:
    """Fetch the receipt of a decision from a server, byte for byte."""

    async def work(api: Server) -> bytes:
        return await api.content(f"/v1/pendings/{pending}/receipt")

    receipt = ask(server, False, work)
    if to is None:
        say(receipt.decode())
    else:
        to.write_bytes(receipt)
        note(f"{to}: the receipt, {len(receipt)} bytes.")


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The receipt.")],
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="Public keys, from GET /.well-known/jwks.json.")],
    as_json: JsonOption = False,
) -> None:
    """Verify a receipt without a server. Exits with 1 and names the part that is wrong, if one is."""
    from hai_flow import signing
    from hai_flow.wire.receipt import UnprovenReceipt, check_payload, read_texts

    document, keys = _text(file), _text(key)
    try:
        public_keys = signing.keys_of(keys, str(key))
    except signing.BadKeys as error:
        raise UsageError(str(error)) from None
    try:
        token, texts = read_texts(document)
        content = check_payload(signing.verify(token, public_keys), texts)
    except (UnprovenReceipt, signing.NotVerified) as error:
        if as_json:
            print_json({"verified": False, "reason": str(error)})
        else:
            say(f"Not verified. {str(error)[:1].upper()}{str(error)[1:]}")
        raise typer.Exit(FAILED) from None
    if as_json:
        print_json({"verified": True, "content": content, "texts": texts})
        return
    _show(content, texts)


@app.command()
def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of HAI_FLOW_RECEIPT_KEYS.")]) -> None:
    """Make a key in front of those of the file, which are retired: what they signed can still be verified."""
    from hai_flow import signing
    from hai_flow.runtime.people.receipts import make_key

    try:
        new_key = make_key(file)
    except (signing.BadKeys, OSError) as error:
        raise UsageError(str(error)) from None
    note(f"{file}: {new_key.id} signs from now on. Copy the file to every process; it is read anew when it changes.")


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _BYTES_MAX:
            raise UsageError(f"{file}: expected at most {_BYTES_MAX} bytes, found more.")
        return file.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{file}: it can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: expected text in UTF-8, found something else.") from None


def _show(content: dict[str, Any], texts: dict[str, Any]) -> None:
    def text_of(digest: dict[str, str] | None) -> str:
        if digest is None:
            return "none"
        return texts[digest["sha256"]]["text"] if digest["sha256"] in texts else "(not told)"

    question, decision = content["question"], content["decision"]
    version = "{name}@{version}".format_map(question["workflow"])
    say(f"Verified. {question['kind']} {question['id']} of {version}, asked {question['at']}.")
    say(f"  {text_of(question['title'])}")
    if question["tool"] is not None:
        say(f"  {question['tool']} with {text_of(decision['arguments'])}")
    for vote in content["votes"]:
        of = "" if vote["on_behalf_of"] is None else f" for {text_of(vote['on_behalf_of'])}"
        way = f"rule {vote['rule']['id']}" if "rule" in vote else vote["via"]
        say(f"  {vote['at']} {text_of(vote['by'])}{of}: {vote['decision']} ({way})")
    say(f"  {decision['at']} decided: {decision['outcome']}")
    for each in content["executed"]:
        say(f"  {each['ended_at'] or each['began_at']} attempt {each['attempt']}: {each['outcome'] or 'began'}")
