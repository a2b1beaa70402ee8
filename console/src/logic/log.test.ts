import assert from "node:assert/strict";
import test from "node:test";
import type { RunStep } from "../api/types.gen.ts";
import type { LogEvent } from "./event.ts";
import { axisOf, lengthOf, passedOf, spansOf, upTo, versionAt, workOf } from "./log.ts";

const DAY = 86_400_000;
const iso = (at: number): string => new Date(at).toISOString();

function step(path: string, from: number, to: number | null, more: Partial<RunStep> = {}): RunStep {
  return {
    path,
    plan_path: path.replaceAll(/\[[^\]]*\]/g, "[]"),
    verb: "call",
    title: null,
    status: to === null ? "running" : "finished",
    started_at: iso(from),
    ended_at: to === null ? null : iso(to),
    first_seq: 1,
    last_seq: 2,
    args: null,
    error: null,
    attempts: [],
    waits: [],
    children: [],
    notes: [],
    usage: {},
    ...more,
  };
}

const wait = (from: number, to: number | null): RunStep["waits"][number] => ({
  for: "people",
  since: iso(from),
  until: to === null ? null : iso(to),
  due: null,
  pending_id: "q",
});

const waited = [step("pay", 0, 1010 + 2 * DAY, { waits: [wait(10, 10 + 2 * DAY)] })];

test("the time for which a step waits for people is no work", () => {
  const [pay] = spansOf(waited, 3 * DAY);
  assert.ok(pay);
  assert.equal(lengthOf(pay.waits), 2 * DAY);
  assert.equal(lengthOf(workOf(pay)), 1010);
});

test("a step that still waits, waits until the moment that is looked at", () => {
  const [pay] = spansOf([step("pay", 0, null, { waits: [wait(10, null)] })], DAY);
  assert.deepEqual([pay?.status, pay?.to, lengthOf(pay?.waits ?? [])], ["running", DAY, DAY - 10]);
});

test("two days without work take little room, and moments keep their order", () => {
  const axis = axisOf(spansOf(waited, 3 * DAY));
  assert.equal(axis.folds.length, 1);
  assert.equal(axis.folds[0]?.ms, 2 * DAY);
  const moments = [0, 5, 10, 10 + DAY, 10 + 2 * DAY, 500 + 2 * DAY, 1010 + 2 * DAY].map(axis.x);
  assert.deepEqual(moments, [...moments].sort((a, b) => a - b));
  assert.ok((moments.at(-1) ?? 0) > 0.999);
  assert.ok((moments[4] ?? 1) - (moments[2] ?? 0) < 0.05);
});

test("a step with others inside does no work of its own", () => {
  const spans = spansOf([step("each", 0, null), step("each[0]", 1, null), step("each[0]/do/ask", 1, 2), step("a", 3, null)], 3);
  assert.deepEqual(spans.map((span) => [span.path, span.holds]), [["each", true], ["each[0]", true], ["each[0]/do/ask", false], ["a", false]]);
});

test("an axis of thousands of steps is made at once", () => {
  const many = Array.from({ length: 20_000 }, (_, i) => step(`each[${i}]/do`, i * 10, i * 10 + 5, { first_seq: i }));
  const axis = axisOf(spansOf(many, 10 * DAY));
  assert.equal(axis.x(0), 0);
  assert.ok(axis.x(200_000) > 0.99);
});

test("of many passages through a step the newest counts, and one that goes on before those that have ended", () => {
  const passed = passedOf([
    step("each[0]/do", 0, 1, { status: "failed" }),
    step("each[1]/do", 0, null, { waits: [wait(0, null)] }),
    step("each[2]/do", 0, 2),
    step("each[2]", 0, 2, { verb: "iteration" }),
  ]);
  assert.deepEqual([...passed.keys()], ["each[]/do"]);
  const { tone, count, counts, newest } = passed.get("each[]/do") ?? assert.fail();
  assert.deepEqual([tone, count, counts, newest.path], ["waiting", 3, { failed: 1, running: 1, finished: 1 }, "each[1]/do"]);
});

test("a newest passage counts with all that came before it", () => {
  const passed = passedOf([step("each[9]/do", 0, 2, { passages: { finished: 9, failed: 1 } }), step("each[9]", 0, 2, { verb: "iteration" })]);
  const { tone, count, counts } = passed.get("each[]/do") ?? assert.fail();
  assert.deepEqual([tone, count, counts], ["finished", 10, { finished: 9, failed: 1 }]);
});

test("the events up to a seq are found though some of them can't be seen", () => {
  const events = ["a", "b", "c", "d"].map((type, i) => ({ seq: i + 1, turn: 1, type, at: 0 }) as LogEvent).filter((each) => each.seq !== 2);
  assert.deepEqual(upTo(events, 0), []);
  assert.deepEqual(upTo(events, 2).map((each) => each.seq), [1]);
  assert.deepEqual(upTo(events, 3).map((each) => each.seq), [1, 3]);
  assert.equal(upTo(events, 9), events);
});

test("a run stands under the version that the newest migration before the moment gave it", () => {
  const change = (seq: number, type: string, version: number): LogEvent => ({ seq, type, turn: 1, at: 0, version, sha256: `${version}` });
  const changes = [change(1, "run_started", 1), change(7, "migrated", 2), change(9, "migrated", 5)];
  assert.deepEqual([0, 1, 6, 7, 8, 9, 90].map((seq) => versionAt(changes, seq)?.version), [1, 1, 1, 2, 2, 5, 5]);
  assert.equal(versionAt([], 3), null);
});
