"""One server for the client's tests, and both clients behind one face: every test of the surface runs with each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import pytest
from hai_flow_client import AsyncClient, AsyncItems, Client, Patience

from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

Opened: TypeAlias = Callable[..., AbstractContextManager[Client]]

# No pauses to speak of: what is tested is that it comes back, not how politely.
EAGER = Patience(pause_first=0.01, pause_max=0.1, jitter=lambda: 0.0)


@pytest.fixture(scope="package")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    """A server that no test harms. It must not have had a fault when they are done."""
    with postgres_server.database() as dsn, serving(dsn) as process:
        yield process
        assert process.process.poll() is None


class Awaited:
    """`AsyncClient` (or a part of it) as if it were `Client`: each call runs the loop until its answer is there."""

    def __init__(self, part: Any, runner: asyncio.Runner) -> None:
        self._part = part
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if not callable(value):
            return Awaited(value, self._runner)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            if inspect.iscoroutine(result):
                return self._runner.run(result)
            return AwaitedItems(result, self._runner) if isinstance(result, AsyncItems) else result

        return call


class AwaitedItems:
    """`AsyncItems` as if they were `Items`."""

    def __init__(self, items: AsyncItems[Any], runner: asyncio.Runner) -> None:
        self._items = items
        self._runner = runner

    def __iter__(self) -> AwaitedItems:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            return await anext(self._items)

        try:
            return self._runner.run(following())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> AwaitedItems:
        return self

    def __exit__(self, *exception: object) -> None:
        self._runner.run(self._items.aclose())


@contextmanager
def awaited(*args: Any, **kwargs: Any) -> Iterator[Any]:
    """An `AsyncClient` in a loop of its own, driven by the test."""
    with asyncio.Runner() as runner:
        client = AsyncClient(*args, **kwargs)
        try:
            yield Awaited(client, runner)
        finally:
            runner.run(client.aclose())


@pytest.fixture(params=[Client, awaited], ids=["blocking", "async"])
def opened(request: pytest.FixtureRequest) -> Opened:
    """How a test opens a client: each of both kinds."""
    return request.param


@pytest.fixture
def flow(opened: Opened, server: ServerProcess) -> Iterator[Client]:
    with opened(server.url, patience=EAGER) as client:
        yield client
