"""Tools that say a secret wherever a tool can say anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

from hai_flow.steps.tools import Context, tool


async def _secret(context: Context) -> str:
    return await context.secrets.get("TOKEN")


@tool
async def told(context: Context) -> dict[str, str]:
    """Puts the secret into the output, a key of it, progress and a line of the log; plainly, and as in an address."""
    secret = await _secret(context)
    context.progress(f"with {secret}")
    context.log.warning("using", secret=secret)
    return {"plain": f"it is {secret}", secret: "a key", "address": f"https://x.example/?key={quote(secret, safe='')}"}


@tool
async def drawn(context: Context, like: str) -> dict[str, object]:
    """A file made of another one, under a name and a type that no header takes."""
    found = await context.files.get(like)
    return await context.files.put(found.body.upper(), "text/plain\r\nX-Evil: 1", f"{found.name}\n2")


@tool
def drawn_in_a_thread(context: Context, like: str) -> str:
    """A file made of another one, in a thread."""
    part = context.files.write(context.files.read(like).body[::-1], "text/plain; charset=utf-8", "back.txt")
    return part["source"]["value"]


@tool
async def streamed(context: Context) -> AsyncIterator[str]:
    """Puts the secret into a piece of a stream."""
    yield "it is "
    yield await _secret(context)


@tool
async def raised(context: Context) -> None:
    """Puts the secret into an error, and into its traceback."""
    raise ValueError(f"refused: {await _secret(context)}")
