"""REST from the outside: the one way in which commands reach a server (DESIGN section 11, CLI)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias
from urllib.parse import urlsplit

from hai_flow.cli.terminal import Problem, Unreachable, note, program
from hai_flow.settings import Settings, is_loopback

if TYPE_CHECKING:
    import httpx2

Json: TypeAlias = Any

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0  # also the longest silence of a stream, which sends keep-alives
RECONNECT_SECONDS_MAX: Final = 30.0
PAGE: Final = 200
_FULL_ID_CHARS: Final = 36
_TERMINAL: Final = ("run_finished", "run_failed", "run_stopped")


class Server:
    """A HAI Flow server at `url` (default: HAI_FLOW_URL). Used inside `async with`.

    Raises Problem for what the server refuses and Unreachable where none answers.
    """

    def __init__(self, url: str | None = None, *, act_as: str | None = None) -> None:
        self.act_as = act_as
        self.url = (url or Settings.from_environment().url).rstrip("/")
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        import httpx2

        try:
            self._client = httpx2.AsyncClient(
                base_url=self.url,
                headers={} if self.act_as is None else {"HAI-Act-As": self.act_as},
                timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                # A proxy of the environment cannot know what runs on this machine.
                trust_env=not is_loopback(urlsplit(self.url).hostname or ""),
            )
        except httpx2.InvalidURL as error:
            raise self._unreachable(str(error)) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.aclose()

    async def get(self, path: str, **parameters: Json) -> Json:
        given = {name: value for name, value in parameters.items() if value is not None}
        return await self._request("GET", path, params=given)

    async def text(self, path: str, **parameters: Json) -> str:
        """What is not JSON: a picture, a source."""
        return (await self._response("GET", path, params=parameters)).text

    async def post(self, path: str, body: Json = None, *, content: bytes | None = None, **parameters: Json) -> Json:
        given: dict[str, Json] = {"params": parameters}
        if content is not None:
            given |= {"content": content, "headers": {"Content-Type": "application/yaml"}}
        elif body is not None:
            given["json"] = body
        return await self._request("POST", path, **given)

    async def items(self, path: str, limit: int | None, **parameters: Json) -> list[Json]:
        """The newest `limit` items of a list (None: all), page by page."""
        items: list[Json] = []
        cursor = None
        while True:
            size = PAGE if limit is None else min(PAGE, limit - len(items))
            page = await self.get(path, limit=size, cursor=cursor, **parameters)
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None or (limit is not None and len(items) >= limit):
                return items

    async def run_id(self, text: str) -> str:
        """The id that `text` is, or is an unambiguous beginning of (among the newest runs)."""
        if len(text) >= _FULL_ID_CHARS:
            return text
        newest = await self.items("/v1/runs", PAGE)
        matches = [run["id"] for run in newest if run["id"].startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise Problem({"code": "run_unknown", "detail": f"there is no run {text!r} among the newest {PAGE}."})
        some = ", ".join(matches[:5]) + (", …" if len(matches) > 5 else "")
        raise Problem({"code": "run_ambiguous", "detail": f"{text!r} begins {len(matches)} runs: {some}"})

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        """The run's events after a seq as they happen, until its terminal one. A lost connection is made anew."""
        import httpx2

        lost_at: float | None = None
        while True:
            try:
                async for event in self._stream(run_id, after):
                    after, lost_at = event["seq"], None
                    yield event
                    if event["type"] in _TERMINAL:
                        return
                error = Unreachable("the stream ended")  # the server closes; another one may take its place
            except (httpx2.TransportError, Unreachable) as failure:
                error = failure
            now = time.monotonic()
            if lost_at is None:
                lost_at = now
                note(f"The connection to {self.url} is lost; connecting again.")
            elif now - lost_at > RECONNECT_SECONDS_MAX:
                raise self._unreachable(str(error))
            await asyncio.sleep(0.5)

    async def _stream(self, run_id: str, after: int) -> AsyncGenerator[dict[str, Json], None]:
        import httpx2

        assert self._client is not None
        headers = {"Accept": "text/event-stream"}
        path = f"/v1/runs/{run_id}/events"
        async with self._client.stream("GET", path, params={"after": after}, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
                self._refuse(response)
            async for frame in httpx2.EventSource(response, max_event_size=None):
                event = frame.json()
                assert isinstance(event, dict)
                yield event

    async def _request(self, method: str, path: str, **given: Json) -> Json:
        return (await self._response(method, path, **given)).json()

    async def _response(self, method: str, path: str, **given: Json) -> httpx2.Response:
        import httpx2

        assert self._client is not None
        try:
            response = await self._client.request(method, path, **given)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise self._unreachable(str(error)) from None
        return response if response.is_success else self._refuse(response)

    def _refuse(self, response: httpx2.Response) -> NoReturn:
        if response.headers.get("content-type", "").startswith("application/problem+json"):
            raise Problem(response.json())
        raise Unreachable(
            f"{self.url} answered {response.status_code}, but not as HAI Flow does. Is HAI_FLOW_URL the right address?"
        )

    def _unreachable(self, reason: str) -> Unreachable:
        why = f" ({reason})" if reason else ""
        return Unreachable(
            f"No server answers at {self.url}{why}. Start one with `{program()} dev`, "
            f"or say where it is in HAI_FLOW_URL."
        )
