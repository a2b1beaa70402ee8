"""REST from the outside: the one way in which commands reach a server (docs/cli.md).

The Python client, adapted to commands: JSON is as the server wrote it, each request is sent once, and errors name the
command to type next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from hai_flow import addresses
from hai_flow.cli.errors import Problem, Unreachable, UsageError
from hai_flow.cli.options import ActAsOption, JsonOption, ServerOption
from hai_flow.cli.terminal import note, print_json, print_result, program
from hai_flow.settings import Settings
from hai_flow.values import Json, NotJson

if TYPE_CHECKING:
    from hai_flow_client import AsyncClient, HaiFlowError

Result = TypeVar("Result")

RECONNECTS_MAX: Final = 60
RECONNECT_SECONDS: Final = 0.5
PAGE: Final = 200
_EVENTS_PAGE: Final = 1000
_FULL_ID_CHARS: Final = 36


def server_url(address: str | None) -> str:
    """The server that a command means: `--server`, else HAI_FLOW_URL. A host without a scheme is one of HTTP."""
    if address and "://" not in address:
        address = f"http://{address}"
    return (address or Settings.from_environment().url).rstrip("/")


def refuse_link(error: ValueError) -> UsageError:
    """What `Link.to` refuses, by the name under which whoever typed the command has given it."""
    where, _, rest = str(error).rstrip(".").partition(": ")
    names = {"url": "--server", "key": "HAI_FLOW_KEY or HAI_FLOW_KEY_FILE"}
    return UsageError(f"{names.get(where, where)}: {rest}.")


class Server:
    """A HAI Flow server at `url` (default: HAI_FLOW_URL). Used inside `async with`.

    Raises Problem if the server refuses a request, and Unreachable if no server answers."""

    def __init__(self, url: str | None = None, *, act_as: str | None = None) -> None:
        self.act_as = act_as
        self.url = server_url(url)
        self._client: AsyncClient | None = None

    async def __aenter__(self) -> Self:
        from hai_flow_client import AsyncClient, Patience
        from hai_flow_client.link import Link

        from hai_flow.cli.client.loopback_http import LocalClient, is_local

        patience = Patience(
            repeats=0,
            reconnects=RECONNECTS_MAX,
            pause_first=RECONNECT_SECONDS,
            pause_max=RECONNECT_SECONDS,
            tell=self._record_loss,
        )
        try:
            link = Link.to(self.url, act_as=None, headers=None, patience=None)
            kind = LocalClient if is_local(link) else AsyncClient
            self._client = kind(self.url, act_as=self.act_as, patience=patience)
        except ValueError as error:
            raise refuse_link(error) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    @property
    def _opened(self) -> AsyncClient:
        assert self._client is not None
        return self._client

    async def get(self, path: str, **parameters: Json) -> Json:
        with self._convert_errors():
            return (await self._opened.request("GET", path, query=parameters)).read()

    async def text(self, path: str, **parameters: Json) -> str:
        """The text of a response that is not JSON: a picture, a source."""
        with self._convert_errors():
            return (await self._opened.request("GET", path, query=parameters)).body.decode()

    async def content(self, path: str) -> bytes:
        """The bytes of a response that is neither JSON nor text."""
        with self._convert_errors():
            return (await self._opened.request("GET", path)).body

    async def post(
        self,
        path: str,
        body: Json = None,
        *,
        content: bytes | None = None,
        media_type: str = "application/yaml",
        key: str | None = None,
        **parameters: Json,
    ) -> Json:
        """`content` is sent as it is, declared as `media_type`; else `body` as JSON. `key`: its Idempotency-Key."""
        options: dict[str, Json] = {"query": parameters}
        if key is not None:
            options["headers"] = {"Idempotency-Key": key}
        if content is not None:
            options |= {"content": content, "headers": {"Content-Type": media_type}}
        elif body is not None:
            options["json"] = body
        with self._convert_errors():
            return (await self._opened.request("POST", path, **options)).read()

    async def patch(self, path: str, body: Json) -> Json:
        with self._convert_errors():
            return (await self._opened.request("PATCH", path, json=body)).read()

    async def delete(self, path: str) -> None:
        with self._convert_errors():
            await self._opened.request("DELETE", path)

    async def items(self, path: str, limit: int | None, **parameters: Json) -> list[Json]:
        """The newest `limit` items of a list (None: all), page by page."""
        with self._convert_errors():
            return [item async for item in self._opened.items(path, query=parameters, limit=limit)]

    async def run_id(self, text: str) -> str:
        """The run's id: `text` is the whole id, or an unambiguous beginning of one (among the newest runs)."""
        if len(text) >= _FULL_ID_CHARS:
            return text
        newest = await self.items("/v1/runs", PAGE)
        matches = [run["id"] for run in newest if run["id"].startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            detail = f"there is no run {text!r} among the newest {PAGE}. `{program()} runs` lists runs."
            raise Problem({"code": "run_unknown", "detail": detail})
        some = ", ".join(matches[:5]) + (", …" if len(matches) > 5 else "")
        raise Problem({"code": "run_ambiguous", "detail": f"{text!r} begins {len(matches)} runs: {some}"})

    async def log(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        """The events that the run has after a seq, page by page."""
        place: int | str | None = after
        while place is not None:
            page = await self.get(f"/v1/runs/{run_id}/events", after=place, limit=_EVENTS_PAGE)
            for event in page["items"]:
                yield event
            place = page["next_cursor"]

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        """The run's events after a seq as they happen, until its terminal one. A lost connection is made anew."""
        with self._convert_errors():
            async with self._opened.runs.follow_json(run_id, after=after) as events:
                async for event in events:
                    yield event

    def _record_loss(self, error: HaiFlowError, failures: int) -> None:
        if failures == 1:
            note(f"The connection to {self.url} is lost; connecting again.")

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Turn the client's errors into those of commands."""
        from hai_flow_client import HaiFlowError

        try:
            yield
        except NotJson as error:
            raise UsageError(f"{error}.") from None
        except HaiFlowError as error:
            if error.problem.type:
                body = msgspec.to_builtins(error.problem)
                see = str(body.get("see") or addresses.helping(str(body["code"])))
                raise Problem(body, f"{self.url}{see}" if see.startswith(addresses.CONSOLE) else "") from None
            if error.code == "unreachable":
                raise self._unreachable(error.problem.title) from None
            raise Unreachable(str(error)) from None

    def _unreachable(self, reason: str) -> Unreachable:
        why = f" ({reason})" if reason else ""
        return Unreachable(
            f"No server answers at {self.url}{why}. Start one with `{program()} dev`, "
            f"or say where it is in HAI_FLOW_URL."
        )


def ask(
    server: str | None, as_json: bool, work: Callable[[Server], Awaitable[Result]], *, act_as: str | None = None
) -> Result:
    """The result of `work` with the server. With --json a refusal is also printed as the server's problem document."""

    async def asked() -> Result:
        async with Server(server, act_as=act_as) as opened:
            return await work(opened)

    try:
        return asyncio.run(asked())
    except Problem as problem:
        if as_json:
            print_json(problem.body)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """The options of a command that asks a server."""

    server: ServerOption = None
    as_json: JsonOption = False

    def ask(self, work: Callable[[Server], Awaitable[Result]]) -> Result:
        return ask(self.server, self.as_json, work, act_as=getattr(self, "act_as", None))

    def ask_and_print(self, work: Callable[[Server], Awaitable[Result]]) -> Result:
        """The same; with --json it is also printed."""
        result = self.ask(work)
        if self.as_json:
            print_json(result)
        return result

    def ask_and_say(
        self, work: Callable[[Server], Awaitable[Json]], text: Callable[[Json], str], style: str | None = None
    ) -> None:
        """Say the `text` of the result; with --json print the result instead."""
        result = self.ask(work)
        print_result(result, self.as_json, "" if self.as_json else text(result), style)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingOptions(RemoteOptions):
    """The options of a command that asks a server, and may do so as somebody else."""

    act_as: ActAsOption = None
