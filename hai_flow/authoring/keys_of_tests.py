"""The table of keys of test documents (`hai: test/v1`, docs/testing.md). The editor's schema is made from it
(`json_schema`), and the tests are read by it (`testing.documents.reader`). Pure data."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.yaml.keys import (
    ANY,
    BOOLEAN,
    MAPPING,
    TEXT,
    Key,
    Shape,
    either,
    enum,
    integer,
    list_of,
    map_of,
    shape_of,
)  # fmt: skip

VERSION: Final = "test/v1"
CONTROLS: Final = ("pause", "resume", "stop", "restart")
NOTICES: Final = ("opened", "escalated", "reminded")
ENDS: Final = ("finished", "failed", "stopped")
_TEXTS: Final = list_of(TEXT)
_COUNTS: Final = map_of(integer(0), "any")
_MOCKS: Final = map_of(either(shape_of("reply"), list_of(shape_of("reply"))), "any")
_BY: Final = Key("by", TEXT, "the person, one of `people`")
_REFUSED: Final = Key("refused", integer(), "the status with which it must be refused", example="403")

DOCUMENT: Final = Shape("document", "the tests", (
    Key("hai", enum(VERSION), "the language of the file", required=True),
    Key("workflow", TEXT, "a path from this file, or a published name@version", required=True,
        example="expense.flow.yaml"),
    Key("now", TEXT, "the virtual clock at the start; 2026-01-01T00:00:00Z if it is missing"),
    Key("people", map_of(either(TEXT, _TEXTS), "any"), "who there is, with the selectors that they match",
        example="{ann: [role:controller], eve: []}"),
    Key("mock", _MOCKS, "what effects do, by tool (`erp.book`) or by step path; a list = successive calls",
        example="{erp.book: [{error: {code: tool.unavailable}}, {output: {booking: B1}}]}"),
    Key("cases", list_of(shape_of("case"), 1), "runs, each of its own", required=True),
    Key("calendars", MAPPING, "calendars of working days, as in the file of a deployment",
        example='{germany: {zone: Europe/Berlin, holidays: {"2026-12-25": Christmas Day}}}'),
))  # fmt: skip
CASE: Final = Shape("case", "a case", (
    Key("name", TEXT, "what must be so", required=True),
    Key("requester", TEXT, "who starts the run, one of `people`"),
    Key("input", MAPPING, "the input of the run"),
    Key("state", MAPPING, "the state at the start"),
    Key("mock", _MOCKS, "what effects do in this case; it stands over that of the document"),
    Key("script", list_of(either(enum(*CONTROLS), shape_of("line"))), "what happens, in order"),
    Key("expect", shape_of("expect"), "what must be so in the end"),
    Key("events", _TEXTS, "types of events that the run must have, in their order"),
    Key("start", shape_of("start"), "the trigger that starts the run, in place of `input`"),
))  # fmt: skip
EXPECT: Final = Shape("expect", "`expect`", (
    Key("status", TEXT, "the status of the run"),
    Key("pending", _TEXTS, "all open questions, by id or path"),
    Key("output", ANY, "the output of the run; maps are compared as subsets, lists exactly"),
    Key("state", MAPPING, "variables of the run"),
    Key("error", ANY, "the error of the run; null for none"),
    Key("calls", _COUNTS, "how often effects were called"),
    Key("not_called", _TEXTS, "effects that were never called"),
    Key("escalated", _COUNTS, "how often questions were escalated"),
    Key("steps", MAPPING, "the statuses of steps"),
    Key("called", map_of(list_of(either(MAPPING, TEXT)), "any"),
        "what effects were called with, in order; `*` is anything, `...` any number of calls",
        example="{claims.pay: [{amount: 600}]}"),
    Key("said", _TEXTS, "the messages, in order; `*` is anything, `...` any number of them"),
    Key("notified", list_of(either(TEXT, shape_of("notice"))),
        "the notifications that were due, in order: channels, or with the question"),
    Key("started", BOOLEAN, "whether the trigger of `start` has started a run"),
    Key("dedupe", ANY, "the key of `dedupe`: events with the same one start one run"),
))  # fmt: skip
DECIDE: Final = Shape("decide", "`decide`", (
    Key("pending", TEXT, "the question, by id or path", required=True),
    _BY,
    Key("decision", TEXT, "what they decide", required=True),
    Key("reason", TEXT, "their reason"),
    Key("values", ANY, "what they fill in"),
    Key("edits", MAPPING, "the arguments that they change"),
    _REFUSED,
))  # fmt: skip
ANSWER: Final = Shape("answer", "`answer`", (
    Key("pending", TEXT, "the form or the call of a frontend tool, by id or path", required=True),
    Key("value", ANY, "the answer"),
    Key("error", TEXT, "what the frontend reports in place of an answer"),
    _BY,
    _REFUSED,
))  # fmt: skip
SIGNAL: Final = Shape("signal", "`signal`", (
    Key("type", TEXT, "the type of the event", required=True),
    Key("data", ANY, "what it says"),
))  # fmt: skip
LINE: Final = Shape("line", "an entry of the script", (
    Key("expect", shape_of("expect"), "what must be so now"),
    Key("decide", shape_of("decide"), "somebody decides"),
    Key("answer", shape_of("answer"), "a form or a frontend tool is answered"),
    Key("signal", shape_of("signal"), "an event from outside"),
    Key("advance", TEXT, "the clock moves on", example="2d"),
    *(Key(word, ANY, f"an operator's {word}" if word != "restart" else "the process ends, and another goes on")
      for word in CONTROLS),
), exactly_one=(("expect", "decide", "answer", "signal", "advance", *CONTROLS),))  # fmt: skip
STARTS: Final = {
    "webhook": Shape("webhook", "`start: webhook`", (
        Key("path", TEXT, "the path of its trigger"),
        Key("data", ANY, "its body"),
        Key("headers", MAPPING, "its headers"),
        Key("id", TEXT, "the id of its delivery"),
    )),
    "event": Shape("event", "`start: event`", (
        Key("type", TEXT, "its type"),
        Key("data", ANY, "what it says"),
        Key("id", TEXT, "its id"),
        Key("by", TEXT, "who sends it, one of `people`"),
    )),
    "schedule": Shape("schedule", "`start: schedule`", (
        Key("at", TEXT, "the instant"),
        Key("cron", TEXT, "the schedule, of several"),
    )),
    "run": Shape("run", "`start: run`", (
        Key("workflow", TEXT, "of the run that ended"),
        Key("status", enum(*ENDS), "how it ended"),
        Key("input", ANY, "its input"),
        Key("output", ANY, "its output"),
        Key("error", ANY, "its error"),
        Key("requester", TEXT, "who started it"),
        Key("version", integer(), "its version"),
    )),
}  # fmt: skip
START: Final = Shape("start", "`start`", (
    Key("webhook", shape_of("webhook"), "a request"),
    Key("event", shape_of("event"), "an event"),
    Key("schedule", shape_of("schedule"), "an instant of the clock"),
    Key("run", shape_of("run"), "the end of another run"),
))  # fmt: skip
NOTICE: Final = Shape("notice", "a notification", (
    Key("pending", TEXT, "the question, by id or path"),
    Key("channel", TEXT, "the channel"),
    Key("because", enum(*NOTICES), "why it was due"),
))  # fmt: skip
REPLY: Final = Shape("reply", "what one call does", (
    Key("output", ANY, "what it gives"),
    Key("error", shape_of("error"), "how it fails"),
    Key("text", TEXT, "what a model says"),
    Key("tool_calls", list_of(either(TEXT, shape_of("tool_call"))), "the tools that a model calls"),
))  # fmt: skip
ERROR: Final = Shape("error", "the error of a call", (
    Key("code", TEXT, "its code"),
    Key("message", TEXT, "its sentence"),
    Key("retriable", BOOLEAN, "whether it is tried again"),
    Key("data", ANY, "its data"),
    Key("retry_after", TEXT, "how long it asks to wait"),
))  # fmt: skip
TOOL_CALL: Final = Shape("tool_call", "a call of a tool", (
    Key("call", TEXT, "the tool", required=True),
    Key("with", MAPPING, "its arguments"),
))  # fmt: skip
SHAPES: Final = (
    DOCUMENT, CASE, EXPECT, DECIDE, ANSWER, SIGNAL, LINE, START, *STARTS.values(), NOTICE, REPLY, ERROR, TOOL_CALL,
)  # fmt: skip
