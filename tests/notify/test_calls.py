"""Genuine calls of platforms that hold anything in any place: each is read or is not proven, and none is an error."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from hai_flow.notify.chat import apps
from hai_flow.notify.chat.contract import (
    Card,
    ChatApp,
    ChatPlace,
    Dialog,
    DialogField,
    NotSent,
    PlatformCall,
    Press,
    PressOutcome,
    Response,
    UnprovenCall,
)
from tests.support.chats import Call, Platform, Shown, SlackPlatform, TeamsPlatform, WeComPlatform
from tests.support.chats.world import PLATFORMS

TOKEN: Final = "t" * 43
CARD: Final = Shown("C0ROOM:1|1", "C0ROOM", "", {"Approve": TOKEN}, None)
ANYTHING: Final = (None, 0, True, -1.5, "", "x", "\ud800", [], [1], [[{}]], {}, {"a": 1})
FIELDS: Final = (
    DialogField("f0", "Which", "choices", choices=(("0", "One"), ("1", "Two"))),
    DialogField("reason", "Reason", "lines"),
)


class Out:
    """The way to a platform in this process."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    async def ask(
        self, method: str, url: str, *, json: Any = None, form: Any = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        body = encode(json) if form is None else httpx2.QueryParams(form).__str__().encode()
        try:
            answer = self.platform.answer(method, urlsplit(url).path, {}, headers or {}, body)
        except Exception as error:  # a fake takes what its platform's documentation says, and fails for all else
            raise NotSent(repr(error)) from None
        return Response(answer.status, answer.body)


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


class Desk:
    """Answers each press with a dialog, and holds the presses to their types."""

    def __init__(self) -> None:
        self.presses: list[Press] = []

    async def press(self, press: Press) -> PressOutcome:
        assert type(press.token) is type(press.account) is str
        assert press.message is None or type(press.message) is str
        fields = {} if press.fields is None else press.fields
        assert all(type(name) is str and all(type(each) is str for each in texts) for name, texts in fields.items())
        self.presses.append(press)
        dialog = Dialog("Approve", TOKEN, FIELDS)
        return PressOutcome("", dialog=dialog) if press.fields is None else PressOutcome("Recorded", done=True)

    async def connect(self, account: str, text: str) -> PressOutcome:
        assert type(account) is type(text) is str
        return PressOutcome("How to connect")

    async def refuse(self, account: str, reason: str) -> PressOutcome:
        assert type(account) is str
        return PressOutcome(reason)


class Line:
    """A platform, and its app of this server."""

    def __init__(self, platform: Platform) -> None:
        settings = apps.complete_settings(platform.kind, platform.settings(), dict(platform.secrets))
        self.platform = platform
        self.app: ChatApp = apps.load_app(platform.kind)(settings, Out(platform))
        self.desk = Desk()

    async def receive(self, call: Call) -> str:
        """What the app answers; "": the call is not proven."""
        headers = {name.lower(): text for name, text in call.headers.items()}
        read = PlatformCall(call.method, headers, call.params, call.content, time.time())
        try:
            reply = await self.app.receive(read, self.desk)
        except UnprovenCall:
            return ""
        self.platform.read_answer(httpx2.Response(reply.status, content=reply.body))
        return reply.body.decode() or " "

    def list_calls(self, make: Callable[[], Call], patch: pytest.MonkeyPatch) -> Iterator[Call]:
        """The call with anything in each of its places."""
        content: list[Any] = []
        sign: Any = getattr(self.platform, "signed")  # noqa: B009 - each platform has its own parameters

        def sign_this(genuine: Any, *more: Any) -> Call:
            content.append(read_body(genuine))
            return sign(write_body(genuine, content[0]), *more)

        with patch.context() as context:
            context.setattr(self.platform, "signed", sign_this)
            make()
            genuine = json.dumps(content[0])
            for path in list_paths(json.loads(genuine)):
                for each in ANYTHING:
                    content[:] = [replace_at(json.loads(genuine), path, each)]
                    if (isinstance(content[0], dict) and "serviceUrl" in content[0]) or self.platform.kind != "teams":
                        yield make()


def read_body(body: Any) -> Any:
    """The JSON of what a platform signs: itself, or in the bytes of Slack, which are a form or JSON."""
    if not isinstance(body, bytes):
        return body
    return json.loads(parse_qs(body.decode())["payload"][0] if body.startswith(b"payload=") else body)


def write_body(genuine: Any, content: Any) -> Any:
    if not isinstance(genuine, bytes):
        return content
    text = json.dumps(content)
    return (urlencode({"payload": text}) if genuine.startswith(b"payload=") else text).encode()


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in pairs:
        yield from list_paths(member, (*path, key))


def replace_at(value: Any, path: tuple[Any, ...], member: Any) -> Any:
    if not path:
        return member
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = member
    return value


@pytest.fixture(params=[each for each in PLATFORMS if each is not WeComPlatform], ids=lambda each: each.kind)
def line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Line:
    if request.param.kind == "discord":
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "plugins" / "discord"))
        from hai_flow_discord import DiscordApp

        monkeypatch.setattr(apps, "load_app", lambda kind: DiscordApp)
    return Line(request.param())


@pytest.mark.slow
async def test_a_genuine_call_that_holds_anything_anywhere_is_read_or_not_proven(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = line.platform.ann
    makes: list[Callable[[], Call]] = [
        lambda: line.platform.press(CARD, "Approve", ann),
        *([] if line.platform.kind == "dingtalk" else [lambda: line.platform.say(ann, "hello")]),
    ]
    assert await line.receive(makes[0]())
    assert line.desk.presses[0].token == TOKEN
    if line.platform.takes_dialogs:
        makes.append(lambda: line.platform.submit(ann, {"Reason": "why"}))
        assert await line.receive(makes[-1]())
        assert line.desk.presses[1].fields is not None
        assert line.desk.presses[1].fields["reason"] == ["why"]
    for make in makes:
        for call in line.list_calls(make, monkeypatch):  # each is signed when it is its turn
            await line.receive(call)
            await asyncio.sleep(0)


async def test_a_card_whose_answer_was_lost_is_found_in_the_history_of_slack() -> None:
    line = Line(SlackPlatform())
    card = Card("card-1", "Approval", "Pay?")
    for place in (ChatPlace("C0ROOM"), ChatPlace("U0ANN", is_account=True)):
        first = await line.app.send(card, place, again=False)
        assert await line.app.send(card, place, again=True) == first
    assert len(line.platform.cards) == 2


async def test_a_room_of_teams_that_is_a_thread_names_its_cards_as_presses_do() -> None:
    line, card = Line(TeamsPlatform()), Card("card-1", "Approval", "Pay?")
    room = TeamsPlatform.room
    for place in (ChatPlace(room), ChatPlace(f"{room};messageid=17"), ChatPlace("aad-ann", is_account=True)):
        name = await line.app.send(card, place, again=False)
        assert await line.app.update(card, place, name) == name
        await line.receive(line.platform.press(Shown(name, "", "", {"Approve": TOKEN}, None), "Approve", "aad-ann"))
        assert line.desk.presses[-1].message == name
