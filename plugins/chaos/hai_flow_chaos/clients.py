"""People and programs that use the deployment, through proxies that are broken, and write down the answers they get.

A request of unknown outcome is sent again under its key, to any server, until a server answers it: the clients know
nothing else of faults. They note at once every broken promise that they can see themselves (an event twice, a run that
is gone).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hai_flow_client.sse import Parser

from hai_flow import values
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.values import Json
from hai_flow.wire import sse
from hai_flow.wire.dialects.agui import AGUI
from hai_flow.wire.dialects.dialect import CLOSING
from hai_flow.wire.dialects.hai import HAI
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.dialects.social import SOCIAL
from hai_flow.wire.sse import parse_cursor
from hai_flow_chaos import http
from hai_flow_chaos.history import Answered, Controlled, History, Started, Stream
from hai_flow_chaos.plan import Campaign
from hai_flow_chaos.stage import Stage

FLOWS: Final = Path(__file__).with_name("flows")
CHOSEN: Final = (
    "mixed", "approval", "approval", "form", "form", "timers", "parent", "parent", "retries", "undo", "signal",
    "signal", "queue", "talk", "once", "agent", "long", "stream", "stream", "late", "deaf",
)  # fmt: skip
WATCHED: Final = ("form", "long", "stream")  # each is followed: they are moved by a worker and by servers in turns
PAUSED: Final = ("long", "stream")
CROWD: Final = 3  # so many runs of a queue, or of a thread, are started at once
TICKS: Final = (1, 2, 3)
CALM_SECONDS: Final = 40.0
"""How long at most the runs have that are started before anything is broken, one of each workflow."""
LANES: Final = 3
TEXT: Final = "a page of a long run " * 130  # of which 48 make two snapshots
ANSWER_SECONDS: Final = 8.0
SILENCE_SECONDS: Final = 6.0  # of a stream, which says every two seconds that it lives
LOOK_SECONDS: Final = 1.0
NOBODYS: Final = "Nobody answers this"
FOLLOWED: Final = ((0.4, (LOG.name,)), (0.55, (AGUI.name, HAI.name)), (0.7, (AGUI.name, SOCIAL.name)))
"""In whose words runs are followed, each with the share up to which it is drawn. The others are asked for."""
QUIET_CONNECTIONS: Final = 3
"""A follower has seen all of a run that has ended when this many connections in a row bring nothing more."""

LEAVE_SHARE: Final = 0.3  # of the connections of followers, which they end themselves after some frames
LEAVE_FRAMES: Final = (1, 8)

STARTED_SHARE: Final = 0.9  # of the campaign's time, in which all runs are started
_ENDS: Final = ("run_finished", "run_failed", "run_stopped")
BUSY: Final = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server. `body` is its JSON."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""


class Caller:
    """Sends requests to any of the servers until one answers."""

    def __init__(self, stage: Stage, history: History, chance: random.Random) -> None:
        self._stage = stage
        self._history = history
        self._chance = chance

    def server(self) -> int:
        """The port of one of the servers, by way of its proxy."""
        return self._chance.choice(self._stage.servers).front.port

    def credential(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._stage.keys[who]}"}

    async def ask(
        self, who: str, method: str, path: str, body: Json = None, *, key: str | None = None, yaml: bytes | None = None
    ) -> Answer:
        """The first answer that is none of "not now"."""
        headers = self.credential(who)
        if key is not None:
            headers["Idempotency-Key"] = key
        content = b"" if yaml is None else yaml
        if yaml is not None:
            headers["Content-Type"] = "application/yaml"
        elif method == "POST":
            headers["Content-Type"] = "application/json"
            content = values.dumps({} if body is None else body)
        while True:
            port = self.server()
            try:
                sent = http.asked(port, method, path, headers, content=content, seconds=ANSWER_SECONDS)
                async with sent as found:
                    text = await found.body()
            except http.Lost:
                self._history.tallies["requests_lost"] += 1
                await asyncio.sleep(self._chance.uniform(0.1, 0.4))
                continue
            if found.status in BUSY:
                self._history.tallies["requests_put_off"] += 1
                await asyncio.sleep(self._chance.uniform(0.2, 0.6))
                continue
            if found.status >= 500:
                self._history.breaks("no fault is the server's", f"{method} {path}", f"{found.status}: {text[:300]!r}")
                await asyncio.sleep(0.5)
                continue
            try:
                return Answer(found.status, values.loads(text) if text else None)
            except ValueError:
                self._history.breaks("an answer is JSON", f"{method} {path}", f"found {text[:200]!r}")
                return Answer(found.status, None)


class Clients:
    """All of a campaign's clients. `world`: the address of the server that the workflows act on (`effects`)."""

    def __init__(self, campaign: Campaign, stage: Stage, history: History, world: str) -> None:
        self._campaign = campaign
        self._history = history
        self._world = world
        self._chance = random.Random(f"clients of {campaign.seed}")
        self._call = Caller(stage, history, self._chance)
        self._asked: set[str] = set()  # questions that somebody is answering
        self._numbers = itertools.count(campaign.runs)  # of the runs that come beside those of the campaign
        self.calmed = asyncio.Event()  # the runs that were started before the first fault are over
        self.started = asyncio.Event()  # every run has been acknowledged

    async def publish(self) -> None:
        """The workflows of `flows`."""
        for path in sorted(FLOWS.glob("*.flow.yaml"), key=lambda path: path.stem != "child.flow"):
            answer = await self._call.ask("operator", "POST", "/v1/workflows", yaml=path.read_bytes())
            if not answer.ok:
                raise RuntimeError(f"{path.name} can't be published: {answer.body}")

    async def work(self) -> None:
        """Start all runs, then follow them, answer their questions and signal them, until cancelled."""
        plan = random.Random(f"runs of {self._campaign.seed}")
        chosen = [(number, plan.choice(CHOSEN), plan.random()) for number in range(self._campaign.runs)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._people(group))
            group.create_task(self._operator())
            await self._calm(group)
            began, spread = self._history.now(), STARTED_SHARE * self._campaign.seconds
            waiting: list[asyncio.Event] = []
            for number, flow, draw in chosen:
                due = began + spread * number / self._campaign.runs
                await asyncio.sleep(max(0.0, due - self._history.now()))
                waiting.append(asyncio.Event())
                group.create_task(self._life(number, flow, draw, waiting[-1]))
            for acknowledged in waiting:
                await acknowledged.wait()
            self.started.set()

    async def _calm(self, group: asyncio.TaskGroup) -> None:
        """A run of each workflow, as long as nothing is broken: they have no excuse."""
        over: dict[asyncio.Task[None], int] = {}
        for flow in dict.fromkeys(CHOSEN):
            number = next(self._numbers)
            over[group.create_task(self._life(number, flow, 0.0, asyncio.Event()))] = number
        done, _ = await asyncio.wait(over, timeout=CALM_SECONDS)
        numbers = {over[task] for task in done}
        self._history.calm = {each.run_id for each in self._history.started if each.number in numbers}
        self.calmed.set()

    # --- one run ------------------------------------------------------------------------------------------------------

    async def _life(self, number: int, flow: str, draw: float, acknowledged: asyncio.Event) -> None:
        """Start a run and use it to its end. For the flows of queues and threads, several runs are started at once."""
        if flow not in ("queue", "talk"):
            await self._one(number, flow, draw, acknowledged)
            return
        lane = f"lane {number % LANES}" if flow == "queue" else f"thread {self._campaign.seed}-{number}"
        numbers = [number, *(next(self._numbers) for _ in range(CROWD - 1))]
        async with asyncio.TaskGroup() as group:
            for each in numbers:
                group.create_task(self._one(each, flow, draw, acknowledged, lane=lane))

    async def _one(
        self, number: int, flow: str, draw: float, acknowledged: asyncio.Event, *, lane: str | None = None
    ) -> None:
        given: dict[str, Json] = {"world": self._world, "n": number}
        if lane is not None:
            given["lane"] = lane
        elif flow == "long":
            given["text"] = TEXT
        body: dict[str, Json] = {"workflow": f"chaos_{flow}", "input": given}
        if flow == "talk":
            body["thread_id"] = lane
        answer = await self._start(number, body)
        acknowledged.set()
        if not answer.ok:
            self._history.breaks("a good request is taken", f"start-{number}", f"{answer.status}: {answer.body}")
            return
        run_id = str(answer.body["id"])
        self._history.started.append(Started(self._history.now(), number, flow, run_id, given))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(run_id, flow, draw))
            if number % 4 == 0:
                group.create_task(self._start_again(number, body, run_id))
            if flow in PAUSED:
                group.create_task(self._pause_often(run_id))
            if flow == "deaf":
                group.create_task(self._stop_in_the_middle(run_id))
            if flow == "signal":
                group.create_task(self._signal(number, run_id, to_all=draw >= 0.5))
            if flow == "timers" and draw < 0.5:
                group.create_task(self._pause(run_id) if draw < 0.35 else self._stop(run_id))

    async def _start(self, number: int, body: dict[str, Json]) -> Answer:
        """Start a run; behind the others of its thread, one of which is active at a time."""
        while True:
            answer = await self._call.ask("operator", "POST", "/v1/runs", body, key=f"start-{number}")
            if answer.code != "thread_busy":
                return answer
            self._history.tallies["starts_behind_others"] += 1
            await asyncio.sleep(self._chance.uniform(0.1, 0.3))

    async def _watch(self, run_id: str, flow: str, draw: float) -> None:
        """Follow it in some words, or ask for it again and again."""
        followed = next((dialects for below, dialects in FOLLOWED if draw < below), ())
        if flow in WATCHED:
            followed = (*followed, LOG.name)
        follows = [
            self._follow_log(run_id) if dialect == LOG.name else self._follow_dialect(run_id, dialect)
            for dialect in followed
        ]
        await asyncio.gather(*(follows or [self._look(run_id)]))

    async def _start_again(self, number: int, body: Mapping[str, Json], run_id: str) -> None:
        """Repeat a start under its key: every server has to answer with the same run."""
        answer = await self._call.ask("operator", "POST", "/v1/runs", dict(body), key=f"start-{number}")
        found = answer.body.get("id") if answer.ok else answer.body
        if found != run_id:
            self._history.breaks("a start that is repeated is the same run", run_id, f"found {found}")

    async def _look(self, run_id: str) -> None:
        """Read the run again and again until it has ended. It must not be gone, or at an earlier event than before."""
        seen = 0
        while True:
            answer = await self._call.ask("operator", "GET", f"/v1/runs/{run_id}")
            if not answer.ok:
                self._history.breaks("nothing acknowledged is lost", run_id, f"GET says {answer.status}")
                return
            if answer.body["seq"] < seen:
                message = f"it was at event {seen}, and is at {answer.body['seq']}"
                self._history.breaks("nothing that was seen disappears", run_id, message)
            seen = answer.body["seq"]
            if answer.body["status"] in TERMINAL_STATUSES:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _signal(self, number: int, run_id: str, *, to_all: bool) -> None:
        """Several events, each sent twice at once; and one to everybody, which is for none of them. `to_all`: the first
        of them is sent to everybody, too, until the run has heard it, which has to be listening then."""
        path = f"/v1/runs/{run_id}/signals"
        sending = [("tick", tick, number) for tick in TICKS]
        for what, value, again in ((("go", number, 0),) if not to_all else ()) + (("on", number, 0), *sending):
            sent = [self._tell(path, what, value, again=again) for _ in range(2)]
            for answer in await asyncio.gather(*sent):
                if answer.ok:
                    self._history.controlled.append(Controlled(self._history.now(), run_id, "signal", what))
                else:
                    message = f"{what}: {answer.status} {answer.code}"
                    self._history.breaks("a signal that is repeated is the same", run_id, message)
        await self._tell("/v1/signals", "go", -1, again=number)
        while to_all and await self._status(run_id, 0) not in TERMINAL_STATUSES:
            await self._tell("/v1/signals", "go", number, again=self._chance.randrange(10**9))
            await asyncio.sleep(LOOK_SECONDS)

    async def _tell(self, path: str, what: str, number: int, *, again: int = 0) -> Answer:
        body: dict[str, Json] = {"type": f"chaos.{what}", "data": {"n": number}, "id": f"{what}-{number}-{again}"}
        return await self._call.ask("operator", "POST", path, body)

    async def _pause(self, run_id: str) -> None:
        """Pause and resume; then the pause once more under its key, which is the same pause and no new one."""
        for what in ("pause", "resume", "pause"):
            answer = await self._call.ask("operator", "POST", f"/v1/runs/{run_id}/{what}", key=f"{what}-{run_id}")
            if answer.ok:
                self._history.controlled.append(Controlled(self._history.now(), run_id, what))
            elif what == "pause":
                return  # it had ended before
            await asyncio.sleep(LOOK_SECONDS)

    async def _pause_often(self, run_id: str) -> None:
        """Pause and resume it, whichever server hears of that, until it has ended. A run that is paused can be resumed,
        and one that can't be paused has ended."""
        for number in itertools.count():
            for what in ("pause", "resume"):
                await asyncio.sleep(self._chance.uniform(0.1, 0.4))
                path, key = f"/v1/runs/{run_id}/{what}", f"{what}-{number}-{run_id}"
                answer = await self._call.ask("operator", "POST", path, key=key)
                if answer.ok:
                    self._history.controlled.append(Controlled(self._history.now(), run_id, what))
                    continue
                if answer.code == "run_needs_attention":
                    break
                status = await self._status(run_id, 0)
                if what == "resume" or answer.code != "run_ended" or status not in TERMINAL_STATUSES:
                    message = f"{what} was refused: {answer.status} {answer.code}; it is {status}"
                    self._history.breaks("a refusal is true", run_id, message)
                return

    async def _stop_in_the_middle(self, run_id: str) -> None:
        """Stop it while an effect is under way."""
        await self._history.seen(run_id)
        await self._stop(run_id)

    async def _stop(self, run_id: str) -> None:
        self._history.stopping.add(run_id)
        answer = await self._call.ask("operator", "POST", f"/v1/runs/{run_id}/stop", key=f"stop-{run_id}")
        if answer.ok:
            self._history.controlled.append(Controlled(self._history.now(), run_id, "stop"))

    # --- following ----------------------------------------------------------------------------------------------------

    async def _follow_log(self, run_id: str) -> None:
        """The log's own words: each event once, in order, from the first to the last."""
        stream, after = Stream(run_id), 0
        self._history.streams.append(stream)
        while not stream.ended:
            async for frame in self._frames(run_id, stream, {"after": str(after)}, {}):
                if frame.name == "cursor_reset":
                    self._history.breaks("nothing that was seen disappears", run_id, f"cursor_reset behind {after}")
                    return
                event = values.loads(frame.data)
                if not isinstance(event, dict) or "seq" not in event:
                    continue
                if event["seq"] != after + 1:
                    message = f"event {event['seq']} was shown where {after + 1} comes"
                    self._history.breaks("a follower is shown each event once, in order", run_id, message)
                    return
                after += 1
                stream.frames[str(after)] = frame.data
                stream.ended = event["type"] in _ENDS
            if not stream.ended:
                await self._status(run_id, after)

    async def _follow_dialect(self, run_id: str, dialect: str) -> None:
        """A dialect's frames, each under its cursor, from which the next connection goes on. It has no frame for some
        events: all was shown if the run has ended and nothing more comes, again and again: a server that must break off
        a stream says so in some dialects, and in others it just ends."""
        stream, cursor, over, quiet = Stream(run_id, dialect), "", False, 0
        self._history.streams.append(stream)
        place = (0, 0)
        while not stream.ended:
            headers, before, lost = {"Last-Event-ID": cursor} if cursor else {}, cursor, stream.lost + stream.left
            known = ""  # frames behind this one with the same id come from no event
            async for frame in self._frames(run_id, stream, {"dialect": dialect}, headers):
                if b"hai.cursor_reset" in frame.data:
                    self._history.breaks("nothing that was seen disappears", run_id, f"cursor_reset behind {cursor}")
                    return
                if frame.id == known:
                    stream.lost += CLOSING.encode() in frame.data
                    continue
                known = frame.id
                found = parse_cursor(frame.id)
                if (found.seq, found.frame) <= place:
                    message = f"frame {frame.id} was shown behind {cursor}"
                    self._history.breaks("a follower is shown each frame once, in order", run_id, message)
                    return
                cursor, place = frame.id, (found.seq, found.frame)
                stream.frames[cursor] = frame.data
            quiet = quiet + 1 if over and cursor == before and lost == stream.lost + stream.left else 0
            stream.ended = quiet == QUIET_CONNECTIONS
            over = await self._status(run_id, place[0]) in TERMINAL_STATUSES
            await asyncio.sleep(0.2)

    async def _status(self, run_id: str, seen: int) -> str:
        """The run's status. It is where it was seen, or behind that."""
        answer = await self._call.ask("operator", "GET", f"/v1/runs/{run_id}")
        if not answer.ok:
            self._history.breaks("nothing acknowledged is lost", run_id, f"GET says {answer.status}")
            return "lost"
        if answer.body["seq"] < seen:
            message = f"event {seen} was shown, and it is at {answer.body['seq']}"
            self._history.breaks("nothing that was seen disappears", run_id, message)
        return str(answer.body["status"])

    async def _frames(self, run_id: str, stream: Stream, query: dict[str, str], headers: dict[str, str]) -> Any:
        """The frames of one connection, until it ends or breaks."""
        headers = {**self._call.credential("operator"), "Accept": sse.CONTENT_TYPE, **headers}
        path, port = f"/v1/runs/{run_id}/events", self._call.server()
        left = self._chance.randint(*LEAVE_FRAMES) if self._chance.random() < LEAVE_SHARE else None
        stream.opened += 1
        try:
            sent = http.asked(port, "GET", path, headers, query=query, seconds=SILENCE_SECONDS)
            async with sent as response:
                if response.status != 200:
                    if response.status not in BUSY:
                        text = (await response.body())[:300]
                        self._history.breaks("a follower may come back", run_id, f"{response.status}: {text!r}")
                    raise http.Lost("not now")
                parser = Parser()
                async for chunk in response.pieces():
                    for frame in parser.feed(chunk):
                        yield frame
                        left = None if left is None else left - 1
                        if left == 0:
                            stream.left += 1
                            return
        except http.Lost:
            stream.lost += 1
            await asyncio.sleep(self._chance.uniform(0.1, 0.4))

    # --- people -------------------------------------------------------------------------------------------------------

    async def _people(self, group: asyncio.TaskGroup) -> None:
        """Look for open questions again and again, and answer each."""
        while True:
            for pending in await self._all("/v1/pendings?limit=200"):
                if pending["id"] not in self._asked and pending["title"] != NOBODYS:
                    self._asked.add(pending["id"])
                    group.create_task(self._answer(pending))
            await asyncio.sleep(0.4)

    async def _all(self, path: str) -> list[Any]:
        found: list[Any] = []
        cursor = ""
        while True:
            answer = await self._call.ask("operator", "GET", f"{path}&cursor={cursor}" if cursor else path)
            if not answer.ok:
                self._history.breaks("a good request is taken", path, f"{answer.status}: {answer.body}")
                return found
            found += answer.body["items"]
            cursor = answer.body["next_cursor"]
            if not cursor:
                return found

    async def _answer(self, pending: Mapping[str, Any]) -> None:
        """Several people at once, each with an answer of their own."""
        said: Sequence[tuple[str, dict[str, Json]]]
        match pending["kind"]:
            case "gate" | "approve":
                said = [
                    (who, {"decision": "approve" if self._chance.random() < 0.6 else "reject"})
                    for who in ("ann", "bob", "cid")
                ]
            case "doubt":
                happened: dict[str, Json] = {"decision": "happened", "result": "somebody says so"}
                said = [("operator", happened if self._chance.random() < 0.5 else {"decision": "fail"})]
            case _:
                said = [(who, {"values": {"pick": who}}) for who in ("ann", "bob")]
        await asyncio.gather(*(self._say(pending["id"], who, answer) for who, answer in said))
        await asyncio.sleep(5.0)
        self._asked.discard(pending["id"])  # another person may answer it again if it is still open

    async def _say(self, pending_id: str, who: str, said: dict[str, Json]) -> None:
        path = f"/v1/pendings/{pending_id}/decide"
        answer = await self._call.ask(who, "POST", path, said, key=f"{who}-{pending_id}")
        if answer.status == 404:
            message = f"it was listed, and an answer is told: {answer.code}"
            self._history.breaks("nothing that was seen disappears", pending_id, message)
        already = bool(answer.ok and answer.body.get("already"))
        told = Answered(self._history.now(), pending_id, who, said, answer.status, already, answer.code)
        self._history.answered.append(told)

    async def _operator(self) -> None:
        """Retry runs that wait for an operator because their attempts were lost too often in a row."""
        while True:
            for run in await self._all("/v1/runs?status=needs_attention&limit=200"):
                self._history.tallies["runs_that_needed_attention"] += 1
                await self._call.ask("operator", "POST", f"/v1/runs/{run['id']}/retry")
            await asyncio.sleep(1.0)
