"""The two servers of the fan-out bench, each in a process of its own: `python -m bench.fanout_servers ours|starlette`.

*ours* is the product as it is served: the application, its uvicorn configuration, a worker in the same process. Its
argument is a migrated database. *starlette* is the first solution that comes to mind for the same task: a
StreamingResponse over one `asyncio.Queue` per client, into which a publisher puts every frame; under uvicorn as it
comes, with the same loop and HTTP parser. One frame is one item of the queue and one `yield`: that is how bytes are
published there, and a publisher that knew how to gather them for each client would be another program. With a queue for
each client, as with our server, a client that stalls does not hold up the others.

Both print their URL once they listen, and end with their standard input.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

# Nothing but the measured events is sent, each in a commit of its own.
SETTINGS: Final = {
    "HAI_FLOW_PORT": "0",
    "HAI_FLOW_CHUNK_FLUSH_SECONDS": "0.01",
    "HAI_FLOW_KEEPALIVE_SECONDS": "300",
    "HAI_FLOW_STREAMS_MAX": "100000",
    "HAI_FLOW_STREAMS_PEER_MAX": "100000",
}


async def ours(dsn: str) -> None:
    from bench.tools import TOOLS
    from bench.workflows import audience
    from hai_flow.api.app import create_app
    from hai_flow.api.http.server import serve
    from hai_flow.runtime.ops.gc import relax_collector
    from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
    from hai_flow.settings import Settings

    settings = replace(Settings.from_environment(dev=True), tools=TOOLS)
    relax_collector()
    runtime = Runtime(dsn, settings, performs=True)
    async with runtime.lifespan():
        await runtime.catalog.publish(LOCAL_TENANT, audience())
        await serve(create_app(settings, runtime), runtime, settings, started=_print)


async def starlette() -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    queues: set[asyncio.Queue[bytes]] = set()

    async def follow(request: Request) -> Response:
        return StreamingResponse(frames(), media_type="text/event-stream")

    async def frames() -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            queues.discard(queue)

    async def publish(request: Request) -> Response:
        """Groups of frames, each at its time."""
        told: dict[str, Any] = await request.json()
        for group in told["groups"]:
            await asyncio.sleep(told["seconds"])
            for frame in group:
                data = frame.encode()
                for queue in queues:
                    queue.put_nowait(data)
        return JSONResponse({})

    app = Starlette(routes=[Route("/follow", follow), Route("/publish", publish, methods=["POST"])])
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            host, port = self.servers[0].sockets[0].getsockname()
            _print(f"http://{host}:{port}")

    await Server(config).serve()


def _print(url: str) -> None:
    print(url, flush=True)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    import uvloop

    threading.Thread(target=_end_with_parent, daemon=True).start()
    uvloop.run(ours(sys.argv[2]) if sys.argv[1] == "ours" else starlette())
