"""The scenarios: conversations that a real client holds, and some forged ones that the endpoint must refuse."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable
from typing import Final

from hai_flow.values import Json
from hai_flow_conformance.catalogue import CATALOGUE
from hai_flow_conformance.peer import Exchange, Peer, Plan, Thread, fresh, tool_message, user
from hai_flow_conformance.report import Check, Report, Result, Verdict
from hai_flow_conformance.rules import SNAPSHOTS, Dialect, judge
from hai_flow_conformance.streams import AGUI_BINARY, EVENT_STREAM, HAI_BINARY, Event, Fault

_DIFFERENT: Final = "conformance: a different answer"
_HAI_ONLY: Final = ("BUSINESS_DATA_", "AGENT_COLLABORATIVE_", "MESSAGE_SNAPSHOT")


def conform(plan: Plan) -> Report:
    """Drive the endpoint through every scenario. Starts about ten runs there. Raises Unreachable."""
    with Peer(plan) as peer:
        return _Drive(peer, plan).report()


def dialect_of(events: Iterable[Event]) -> Dialect:
    """The dialect of a stream: HAI's has its own events, or a messageId on its run."""
    for event in events:
        if event.type.startswith(_HAI_ONLY) or (event.type == "RUN_STARTED" and "messageId" in event.value):
            return Dialect.HAI
    return Dialect.AGUI


def _no_turn(chat: Exchange) -> str:
    """Why the other scenarios are not tried; "" if the endpoint answered. One that answers no message would fail all of
    them, or pass by accident."""
    if chat.failure:
        hint = "If it only needs longer, give --timeout." if chat.timed_out else "Its log should say why."
        return f"It answered no whole stream: {chat.failure}. {hint}"
    if chat.streamed and not chat.events:
        return "Its stream held no event."
    if chat.streamed:
        errors = [] if chat.done() else chat.all("RUN_ERROR")
        return f"Its turn failed: {errors[0].value.get('message')}. Its log should say why." if errors else ""
    match chat.status:
        case 401 | 403 | 407:
            hint = "Give what it asks for, as --header 'Authorization: Bearer ...'."
        case 200 | 404 | 405 | 501:
            hint = "Is it what clients post to, such as .../awp or .../ag-ui?"
        case status if status >= 500:
            hint = "Its log should say why."
        case _:
            hint = "It may lack something: --workflow, --message, --protocol and --header say more."
    return f"It answered no stream but {chat.status} {chat.content_type}".rstrip() + f". {hint}"


class _Drive:
    def __init__(self, peer: Peer, plan: Plan) -> None:
        self._peer = peer
        self._plan = plan
        self._dialect = plan.dialect or Dialect.AGUI
        self._verdicts: dict[str, Verdict] = {}

    def report(self) -> Report:
        thread, body, chat = self._first()
        self._chat(thread, body, chat)
        stopped = _no_turn(chat)
        if not stopped:
            self._scenarios(thread, body, chat)
        self._streams()
        why = "the first message got no turn" if stopped else "the scenarios did not get so far"
        verdicts = [self._verdicts.get(id) or self._untried(check, why) for id, check in CATALOGUE.items()]
        return Report(self._plan.url, self._dialect, verdicts, stopped)

    def _scenarios(self, thread: Thread, body: dict[str, Json], chat: Exchange) -> None:
        self._repeat(thread, body, chat)
        self._reload(thread, chat)
        self._forged(chat)
        self._frontend_tool(thread, chat)
        self._interrupt(thread, chat)
        self._disconnect(thread)
        self._accept()
        self._old_peer()
        self._malformed()
        self._preflight()

    def _untried(self, check: Check, why: str) -> Verdict:
        if self._dialect not in check.dialects:
            return Verdict(check, Result.NOT_APPLICABLE, f"not of {self._dialect}")
        return Verdict(check, Result.SKIPPED, why)

    # --- noting

    def _note(self, id: str, passed: bool, found: Exchange | str = "", shown: bytes = b"") -> bool:
        """Record the verdict of a check. If it is tried several times, its first failure stays. A check that does not
        apply to the dialect never fails."""
        check = CATALOGUE[id]
        if self._dialect not in check.dialects:
            return passed
        before = self._verdicts.get(id)
        if before is None or (before.result is not Result.FAIL):
            told = found.told() if isinstance(found, Exchange) else found
            told = told.encode("utf-8", "backslashreplace").decode()  # JSON may hold half a character
            bytes_ = found.shown if isinstance(found, Exchange) else shown
            verdict = Verdict(check, Result.PASS) if passed else Verdict(check, Result.FAIL, told, shown or bytes_)
            self._verdicts[id] = verdict
        return passed

    def _leave_out(self, result: Result, why: str, *ids: str) -> None:
        for id in ids:
            if self._dialect in CATALOGUE[id].dialects:
                self._verdicts.setdefault(id, Verdict(CATALOGUE[id], result, why))

    def _nothing_new(self, id: str, exchange: Exchange, known: Iterable[tuple[str, str]] = ()) -> bool:
        """Check a POST that must do nothing: it is refused, or its stream has only things that were `known` before."""
        new = exchange.done() - set(known)
        passed = exchange.refused or (exchange.streamed and not new and "RUN_ERROR" not in exchange.types)
        found = f"{exchange.what}: new {', '.join(f'{kind} {name}' for kind, name in sorted(new))}"
        return self._note(id, passed, found if new else exchange, _shown_of(exchange, new))

    # --- one turn

    def _first(self) -> tuple[Thread, dict[str, Json], Exchange]:
        """The first chat, which also shows the dialect."""
        thread = Thread(self._peer, self._dialect)
        body, chat = thread.say("a new thread")
        if self._plan.dialect is None:
            self._dialect = thread.dialect = chat.dialect = dialect_of(chat.events)
        return thread, body, chat

    def _chat(self, thread: Thread, body: dict[str, Json], chat: Exchange) -> None:
        if not self._note("chat.status", chat.status == 200, chat):
            return
        if not self._note("chat.content-type", chat.streamed, chat):
            return
        if started := chat.all("RUN_STARTED"):
            self._ids(thread, body, chat)
            stated = isinstance(started[0].value.get("protocolVersion"), str)
            self._note("chat.version", stated, "RUN_STARTED without protocolVersion", _raw(started))
        else:
            self._leave_out(Result.SKIPPED, "no RUN_STARTED came", "chat.ids", "chat.hai-ids", "chat.version")
        answered = bool(chat.done() or chat.interrupts() or chat.all("CUSTOM") or "RUN_ERROR" in chat.types)
        self._note("chat.answers", answered, chat)

    def _ids(self, thread: Thread, body: dict[str, Json], chat: Exchange) -> None:
        posted = (thread.id, body["runId"])
        for event in chat.all("RUN_STARTED", "RUN_FINISHED"):
            named = (event.value.get("threadId"), event.value.get("runId"))
            found = f"{event.type} names {named[0]!r} and {named[1]!r}, posted were {posted[0]!r} and {posted[1]!r}"
            self._note("chat.ids", named == posted, found, event.raw)
            if event.type == "RUN_STARTED":
                self._note("chat.hai-ids", named == posted, found, event.raw)

    # --- the same again

    def _repeat(self, thread: Thread, body: dict[str, Json], chat: Exchange) -> None:
        again = thread.post("the same POST again", body)
        self._nothing_new("repeat.same", again, chat.done())
        other = copy.deepcopy(body)
        other["messages"] = [user("another message")]
        self._note("repeat.other-body", (refused := thread.post("another body", other)).refused, refused)

    # --- reload

    def _reload(self, thread: Thread, chat: Exchange) -> None:
        body = thread.body()
        reload = thread.post("nothing new", body)
        types = reload.types
        attached = types[:1] == ["RUN_STARTED"] and types[-1:] == ["RUN_FINISHED"]
        for id in ("reload.attach", "reload.agui"):
            self._note(id, attached and reload.snapshot() is not None, reload)
        started = reload.all("RUN_STARTED")
        if started and "runId" in started[0].value:
            named = started[0].value["runId"]
            self._note(
                "reload.run-id", named == body["runId"], f"runId {named!r}, posted {body['runId']!r}", _raw(started)
            )
        else:
            self._leave_out(Result.NOT_APPLICABLE, "RUN_STARTED names no runId", "reload.run-id")
        again = set(chat.ids("toolCallId", "TOOL_CALL_START")) & set(reload.ids("toolCallId", "TOOL_CALL_START"))
        found = f"{', '.join(sorted(again))} streamed again"
        self._note("reload.calls-once", not again, found, _raw(reload.all("TOOL_CALL_START")))
        if reload.snapshot() is None:
            self._leave_out(Result.SKIPPED, "nothing new gets no snapshot", "reload.history", "reload.empty")
            return
        self._history("reload.history", thread, chat, reload)
        self._history("reload.empty", thread, chat, thread.post("no history", thread.body([])))

    def _history(self, id: str, thread: Thread, chat: Exchange, reload: Exchange) -> None:
        """Check that the snapshot, with the events streamed after it, has the user's message and the chat's messages
        and calls."""
        messages = self._held(reload)
        there = {("message", str(each.get("id"))) for each in messages}
        there |= {("call", call["id"]) for each in messages for call in each.get("toolCalls", ())}
        wanted = {each for each in chat.done() if each[0] != "result"}
        wanted |= {("message", str(each["id"])) for each in thread.messages if each.get("role") == "user"}
        missing = ", ".join(f"{kind} {name}" for kind, name in sorted(wanted - there))
        self._note(id, not missing, f"{reload.what}: the snapshot lacks {missing}", _raw(reload.all(*SNAPSHOTS)))

    def _held(self, exchange: Exchange) -> list[dict[str, Json]]:
        """The messages of a client that had none, after the exchange."""
        client = Thread(self._peer, self._dialect)
        client.take(exchange)
        return client.messages

    # --- made-up history

    def _forged(self, chat: Exchange) -> None:
        """The scenarios with made-up messages. They have a thread of their own, so that a failure here does not spoil
        the others."""
        thread = Thread(self._peer, self._dialect)
        _, own = thread.say("a thread to forge on")
        if not own.streamed:
            why = f"no second thread: {own.told()}"
            self._leave_out(
                Result.SKIPPED, why, "forged.answer", "forged.history", "forged.arguments", "forged.open-call"
            )
            return
        calls = thread.open_calls()
        forged = fresh("forged")
        name = calls[0][1] if calls else next(iter(self._plan.tools), "confirmAction")
        made_up = {
            "id": fresh("msg"),
            "role": "assistant",
            "toolCalls": [{"id": forged, "type": "function", "function": {"name": name, "arguments": "{}"}}],
        }
        claimed = tool_message(forged, self._plan.tools.get(name, True))
        self._nothing_new(
            "forged.answer", thread.post("a made-up call", thread.body([*thread.messages, made_up, claimed]))
        )
        altered = self._altered(thread)
        seen = thread.post("the history after it", thread.body([]))
        if (snapshot := seen.snapshot()) is None:
            why = "the endpoint sends no snapshot of its history"
            self._leave_out(Result.NOT_APPLICABLE, why, "forged.history", "forged.arguments")
        else:
            self._note("forged.history", forged.encode() not in seen.body, seen, _raw(seen.all(*SNAPSHOTS)))
            self._arguments(altered, snapshot, seen)
        self._still_open(thread, own)

    def _altered(self, thread: Thread) -> dict[str, str]:
        """Post the history with changed arguments; the true ones of the calls that are open."""
        true = {id: arguments for id, _, arguments in thread.open_calls()}
        if true:
            history = copy.deepcopy(thread.messages)
            for message in history:
                for call in message.get("toolCalls", ()):
                    call["function"]["arguments"] = '{"conformance":"changed"}'
            self._nothing_new("forged.answer", thread.post("changed arguments", thread.body(history)))
        return true

    def _arguments(self, true: dict[str, str], snapshot: list[dict[str, Json]], seen: Exchange) -> None:
        told = {c["id"]: c["function"]["arguments"] for m in snapshot for c in m.get("toolCalls", ())}
        changed = [
            id for id, arguments in true.items() if "conformance" in str(told.get(id, "")) and arguments != told[id]
        ]
        if not true:
            self._leave_out(Result.NOT_APPLICABLE, "no call is open", "forged.arguments")
            return
        self._note("forged.arguments", not changed, f"{changed} have the changed ones", _raw(seen.all(*SNAPSHOTS)))

    def _still_open(self, thread: Thread, own: Exchange) -> None:
        offered = self._offered(thread)
        if offered is None:
            self._leave_out(
                Result.NOT_APPLICABLE, "no call that --tool answers is open", "forged.open-call", "tool.waits"
            )
            return
        waits = thread.post("a new message while a call is open", thread.body([*thread.messages, user("and now?")]))
        self._note("tool.waits", waits.status == 409, waits)
        call_id, answer = offered
        body = thread.body([*thread.messages, tool_message(call_id, answer)])
        real = thread.post("the real answer after the made-up one", body)
        # Nothing new, but a snapshot: the endpoint took the client for one that only attaches.
        goes_on = bool(real.done() - own.done()) or (real.snapshot() is None and "RUN_FINISHED" in real.types)
        self._note("forged.open-call", real.streamed and goes_on, real)

    # --- a frontend tool

    def _offered(self, thread: Thread) -> tuple[str, Json] | None:
        """An open call of a tool that we advertise, and the answer to it."""
        for id, name, _ in thread.open_calls():
            if name in self._plan.tools:
                return id, self._plan.tools[name]
        return None

    def _frontend_tool(self, thread: Thread, chat: Exchange) -> None:
        ids = [id for id in CATALOGUE if id.startswith(("tool.", "answer."))]
        offered = self._offered(thread)
        if offered is None:
            called = sorted({name for _, name, _ in thread.open_calls()})
            why = (
                f"give --tool {called[0]}=JSON, the answer to what it calls"
                if called
                else "no call of the client is open"
            )
            self._leave_out(Result.SKIPPED if called else Result.NOT_APPLICABLE, why, *ids)
            return
        call_id, answer = offered
        self._note("tool.called", True)
        resulted = call_id in chat.ids("toolCallId", "TOOL_CALL_RESULT")
        finish = chat.all("RUN_FINISHED")[-1:]
        about = any(call_id == each.get("toolCallId") for each in chat.interrupts())
        self._note("tool.ends", bool(finish) and not resulted and not about, chat, _raw(finish))
        outcome = finish[0].value.get("outcome") if finish else None
        self._note("tool.no-outcome", outcome is None, f"the outcome is {outcome}", _raw(finish))
        self._answer(thread, chat, call_id, answer)

    def _answer(self, thread: Thread, chat: Exchange, call_id: str, answer: Json) -> None:
        history = [*thread.messages, tool_message(call_id, answer)]
        body = thread.body(history)
        first = thread.post("the answer", body)
        started = first.all("RUN_STARTED")
        named = started[0].value.get("runId", body["runId"]) if started else None
        if not self._note("answer.continues", first.streamed and named == body["runId"], first):
            ids = [id for id in CATALOGUE if id.startswith("answer.")]
            self._leave_out(Result.SKIPPED, "the answer was not served", *ids)
            return
        again = call_id in first.ids("toolCallId", "TOOL_CALL_START")
        self._note("answer.calls-once", not again, f"{call_id} again", _raw(first.all("TOOL_CALL_START")))
        reused = set(chat.ids("messageId", *_STARTS)) & set(first.ids("messageId", *_STARTS))
        reused |= set(chat.ids("messageId", *_STARTS)) & set(first.ids("parentMessageId", "TOOL_CALL_START"))
        self._note("answer.new-ids", not reused, f"{', '.join(sorted(reused))} again", _raw(first.all(*_STARTS)))
        resulted = call_id in first.ids("toolCallId", "TOOL_CALL_RESULT")
        self._note("answer.no-result", not resulted, f"of {call_id}", _raw(first.all("TOOL_CALL_RESULT")))
        known = chat.done() | first.done()
        self._nothing_new("answer.repeat", thread.post("the answer's POST again", body), known)
        duplicate = thread.body([*thread.messages, tool_message(call_id, answer)])
        self._nothing_new("answer.duplicate", thread.post("the same answer in a new run", duplicate), known)
        different = thread.body([*thread.messages, tool_message(call_id, _DIFFERENT)])
        self._nothing_new("answer.different", thread.post("another answer", different), known)

    # --- interrupts

    def _interrupt(self, thread: Thread, chat: Exchange) -> None:
        ids = [id for id in CATALOGUE if id.startswith("interrupt.")]
        interrupts = [each["id"] for each in chat.interrupts()]
        if not interrupts:
            return self._leave_out(Result.NOT_APPLICABLE, "the run was not interrupted", *ids)
        known = chat.done()
        self._nothing_new("interrupt.waits", thread.post("a run without resume", thread.body()), known)
        unknown = [{"interruptId": fresh("unknown"), "status": "resolved", "payload": {"approved": True}}]
        posted = thread.post("an unknown interrupt", thread.body(resume=unknown))
        self._nothing_new("interrupt.unknown", posted, known)
        if not self._plan.resume:
            return self._leave_out(
                Result.SKIPPED, "give --resume JSON, the payload", "interrupt.resume", "interrupt.once"
            )
        resume = [{"interruptId": id, "status": "resolved", "payload": self._plan.resume[0]} for id in interrupts]
        body = thread.body(resume=resume)
        resumed = thread.post("resume", body)
        started = resumed.all("RUN_STARTED")
        named = bool(started) and started[0].value.get("runId") == body["runId"]
        goes_on = named and not any(each["id"] in interrupts for each in resumed.interrupts())
        if self._note("interrupt.resume", resumed.streamed and goes_on, resumed):
            again = thread.post("the same resume in a new run", thread.body(resume=resume))
            self._nothing_new("interrupt.once", again, known | resumed.done())
        else:
            self._leave_out(Result.SKIPPED, "nothing was resumed", "interrupt.once")
        return None

    # --- transport

    def _disconnect(self, reference: Thread) -> None:
        thread = Thread(self._peer, self._dialect)
        thread.messages.append(user(self._plan.message))
        body = thread.body()
        left = thread.post("a client that goes away", body, leave=True)
        if not left.streamed:
            self._note("disconnect.goes-on", False, left)
            return
        followed = thread.post("coming back", thread.body())
        seen = thread.post("looking again", thread.body([]))
        if seen.snapshot() is None:
            why = "the endpoint sends no snapshot of its history"
            self._leave_out(Result.NOT_APPLICABLE, why, "disconnect.goes-on")
            return
        spoken = {str(each.get("role")) for each in self._held(seen)}
        wanted = {str(each.get("role")) for each in reference.messages}
        ended = "RUN_FINISHED" in followed.types and "RUN_ERROR" not in followed.types
        found = followed if not ended else f"afterwards the history has only {', '.join(sorted(spoken)) or 'nothing'}"
        self._note("disconnect.goes-on", ended and wanted <= spoken, found, seen.shown)

    def _accept(self) -> None:
        anything = self._ask("Accept: */*", "*/*")
        self._note("accept.any", anything.streamed, anything)
        wanted = HAI_BINARY if self._dialect is Dialect.HAI else AGUI_BINARY
        ids = [id for id in CATALOGUE if id.startswith("accept.binary")]
        if self._dialect is Dialect.AGUI_0:
            return self._leave_out(Result.NOT_APPLICABLE, "0.x reads no binary form", *ids)
        binary = self._ask(f"Accept: {wanted}", f"{wanted}, {EVENT_STREAM}")
        if binary.binary != wanted:
            return self._leave_out(Result.NOT_APPLICABLE, f"answered {binary.content_type or binary.status}", *ids)
        self._note("accept.binary", True)
        self._note("accept.binary-type", binary.content_type == wanted, binary.content_type)
        faults = [] if binary.faults else judge(binary.events, self._dialect, whole=binary.ended)
        wrong = "; ".join(f"{fault.rule}: {fault.found}" for fault in (*binary.faults, *faults)[:3])
        self._note("accept.binary-frames", not wrong, wrong, binary.shown)
        return self._same_in_binary(wanted)

    def _same_in_binary(self, wanted: str) -> None:
        """Check that the binary form has the same events as text: for the same POST again, else for a POST with nothing
        new."""
        thread = Thread(self._peer, self._dialect)
        body, first = thread.say("a thread to read twice")
        again = thread.post("the same POST again as text", body)
        if not first.streamed or _told(again) != _told(first):
            body = thread.body()
            first = thread.post("nothing new as text", body)
            again = thread.post("nothing new as text again", thread.body())
        if not first.streamed or _told(again) != _told(first):
            why = "the endpoint says nothing twice, so there is nothing to compare"
            return self._leave_out(Result.SKIPPED, why, "accept.binary-same")
        binary = thread.post(f"{first.what}, then as {wanted}", body, accept=f"{wanted}, {EVENT_STREAM}")
        found = _difference(first, binary) if binary.binary else binary.told()
        self._note("accept.binary-same", not found, found, binary.shown)
        return None

    def _ask(self, what: str, accept: str, dialect: Dialect | None = None) -> Exchange:
        """A first message on a new thread."""
        thread = Thread(self._peer, dialect or self._dialect)
        return thread.post(what, thread.body([user(self._plan.message)]), accept=accept)

    def _old_peer(self) -> None:
        if self._dialect is Dialect.HAI:
            return
        old = self._ask("a peer without protocolVersion", EVENT_STREAM, Dialect.AGUI_0)
        self._note("old.chat", old.streamed, old)
        binary = self._ask("protobuf without protocolVersion", f"{AGUI_BINARY}, {EVENT_STREAM}", Dialect.AGUI_0)
        self._note("old.no-protobuf", not binary.binary, binary)

    # --- malformed requests

    def _malformed(self) -> None:
        thread = Thread(self._peer, self._dialect)
        good = thread.body([user(self._plan.message)])
        bodies: dict[str, Json] = {
            "not-json": b'{"threadId": ',
            "empty": b"",
            "list": [good],
            "no-thread": {name: value for name, value in good.items() if name != "threadId"},
            "no-run": {name: value for name, value in good.items() if name != "runId"},
            "thread-type": good | {"threadId": 7},
            "messages-type": good | {"messages": "hello"},
            "message": good | {"messages": [{"id": fresh("msg"), "content": "hello"}]},
        }
        for name, body in bodies.items():
            exchange = thread.post(CATALOGUE[f"malformed.{name}"].expected.partition(" is answered")[0], body)
            self._note(f"malformed.{name}", exchange.refused, exchange)

    def _preflight(self) -> None:
        status, headers = self._peer.preflight()
        allowed = headers.get("access-control-allow-origin", "")
        found = f"{status}, access-control-allow-origin {allowed or 'absent'}"
        self._note("cors.preflight", status in (200, 204) and bool(allowed), found)

    # --- every stream that was seen

    def _streams(self) -> None:
        for exchange in self._peer.exchanges:
            self._note("status.no-5xx", exchange.status < 500, exchange)
            readable = exchange.streamed or bool(exchange.binary)
            self._note("stream.content-type", exchange.status != 200 or readable, exchange)
            if not exchange.streamed:
                continue
            whole = exchange.ended or bool(exchange.failure)
            for fault in (*exchange.faults, *judge(exchange.events, exchange.dialect, whole=whole)):
                self._fault(exchange, fault)
        if any(exchange.streamed and exchange.events for exchange in self._peer.exchanges):
            untold = [id for id in CATALOGUE if id.startswith(("stream.", "hai."))]
            if any(each.streamed and each.dialect is Dialect.AGUI_0 for each in self._peer.exchanges):
                untold += ["old.types", "old.outcome", "old.expiry", "old.deltas"]
            self._leave_out(Result.PASS, "", *untold)

    def _fault(self, exchange: Exchange, fault: Fault) -> None:
        if exchange.ended or fault.rule != "stream.last-blank":
            why = f" ({exchange.failure})" if exchange.failure and fault.rule == "stream.terminal" else ""
            self._note(fault.rule, False, f"{exchange.what}: {fault.found}{why}", fault.shown)


_STARTS: Final = ("BUSINESS_DATA_START", "TEXT_MESSAGE_START")


# Fields that the binary form leaves out when they are empty.
_LOST_IF_EMPTY: Final = ("toolCalls", "usage", "pendingToolCallIds", "interruptIds", "result")


def _told(exchange: Exchange) -> list[Json]:
    """The events without times and the posted runId, which differ from one telling to the next."""
    left_out = ("timestamp", "runId")
    told = [{name: field for name, field in event.value.items() if name not in left_out} for event in exchange.events]
    return [_plainly(event) for event in told]


def _plainly(value: Json) -> Json:
    if isinstance(value, list):
        return [_plainly(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _plainly(each) for name, each in value.items() if each not in ([], None) or name not in _LOST_IF_EMPTY
    }


def _difference(text: Exchange, binary: Exchange) -> str:
    """Where the two part, or ""."""
    if binary.faults:
        return f"{binary.what}: {binary.faults[0].found}"
    for number, (expected, found) in enumerate(itertools.zip_longest(_told(text), _told(binary))):
        if expected != found:
            return f"{binary.what}: event {number} is {_in_short(found)}, as text it was {_in_short(expected)}"
    return ""


def _in_short(event: Json) -> str:
    return "missing" if event is None else json.dumps(event, ensure_ascii=False)[:300]


def _raw(events: Iterable[Event]) -> bytes:
    return b"\n\n".join(event.raw for event in events)


def _shown_of(exchange: Exchange, new: set[tuple[str, str]]) -> bytes:
    """The events of new things."""
    names = {name for _, name in new}
    told = ("messageId", "toolCallId")
    return _raw(event for event in exchange.events if {str(event.value.get(name)) for name in told} & names)
