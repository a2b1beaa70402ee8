import assert from "node:assert/strict";
import test from "node:test";
import { type LogEvent, axisOf, lengthOf, spansOf, upTo, workOf } from "./log.ts";

const DAY = 86_400_000;

function log(...told: [string, number, Partial<LogEvent>?][]): LogEvent[] {
  return told.map(([type, at, more], i) => ({ seq: i + 1, turn: 1, type, at, ...more }) as LogEvent);
}

const waited = log(
  ["step_started", 0, { path: "pay", verb: "call" }],
  ["pending_opened", 10, { path: "pay", id: "q" }],
  ["pending_decided", 10 + 2 * DAY, { id: "q" }],
  ["attempt_started", 10 + 2 * DAY, { path: "pay", attempt: 1 }],
  ["step_finished", 1010 + 2 * DAY, { path: "pay" }],
);

test("the time for which a step waits for people is no work", () => {
  const [pay] = spansOf(waited, 0);
  assert.ok(pay);
  assert.equal(lengthOf(pay.waits), 2 * DAY);
  assert.equal(lengthOf(workOf(pay)), 1010);
  assert.equal(pay.end, "finished");
});

test("a step that still waits, waits until the moment that is looked at", () => {
  const [pay] = spansOf(waited.slice(0, 2), DAY);
  assert.deepEqual([pay?.end, pay?.to, lengthOf(pay?.waits ?? [])], [null, DAY, DAY - 10]);
});

test("two days without work take little room, and moments keep their order", () => {
  const axis = axisOf(spansOf(waited, 0));
  assert.equal(axis.folds.length, 1);
  assert.equal(axis.folds[0]?.ms, 2 * DAY);
  const moments = [0, 5, 10, 10 + DAY, 10 + 2 * DAY, 500 + 2 * DAY, 1010 + 2 * DAY].map(axis.x);
  assert.deepEqual(moments, [...moments].sort((a, b) => a - b));
  assert.ok((moments.at(-1) ?? 0) > 0.999);
  assert.ok((moments[4] ?? 1) - (moments[2] ?? 0) < 0.05);
});

test("a step with others inside does no work of its own", () => {
  const spans = spansOf(
    log(
      ["step_started", 0, { path: "each", verb: "for_each" }],
      ["step_started", 1, { path: "each[0]/do", verb: "call" }],
      ["step_finished", 2, { path: "each[0]/do" }],
    ),
    3,
  );
  assert.deepEqual(spans.map((span) => [span.path, span.holds]), [["each", true], ["each[0]/do", false]]);
});

test("the events up to a seq are found though some of them can't be seen", () => {
  const events = log(["a", 0], ["b", 0], ["c", 0], ["d", 0]).filter((each) => each.seq !== 2);
  assert.deepEqual(upTo(events, 0), []);
  assert.deepEqual(upTo(events, 2).map((each) => each.seq), [1]);
  assert.deepEqual(upTo(events, 3).map((each) => each.seq), [1, 3]);
  assert.equal(upTo(events, 9), events);
});
