"""The Python tools of the example workflows: small, harmless, and different in kind.

`answer` streams, `get_weather` and `deploy` are coroutines, `delete_files` is an ordinary function with a Context.
None of them touches anything outside the process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from hai_flow.steps.tools import Context

_WEATHER = {"北京": "晴天,25°C", "上海": "多云,22°C", "Berlin": "rain, 12°C"}


async def answer(message: str) -> AsyncIterator[str]:
    """Answer a message word by word, as a model would."""
    text = f"You said: {message}. " if message else "Hello! "
    text += "HAI Flow keeps this conversation in PostgreSQL, so it can wait for you as long as you like."
    for piece in re.findall(r"\S+\s*", text):
        yield piece
        await asyncio.sleep(0.02)


async def get_weather(city: str) -> str:
    """The weather of a few cities, always the same."""
    return _WEATHER.get(city, "晴天,20°C")


def delete_files(folder: str, count: int, context: Context) -> dict[str, object]:
    """Pretend to delete files. The receipt is the same for every attempt, as a careful service's would be."""
    return {"deleted": count, "folder": folder, "receipt": context.idempotency_key}


async def deploy(release: str) -> dict[str, str]:
    """Pretend to deploy a release."""
    return {"release": release, "url": f"https://example.com/{release}"}
