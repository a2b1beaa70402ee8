import assert from "node:assert/strict";
import test from "node:test";
import type { Json } from "../api/types.gen.ts";
import type { LogEvent } from "./event.ts";
import { Recorded } from "./record.ts";

const log = (...told: [string, Record<string, Json>][]): LogEvent[] =>
  told.map(([type, more], i) => ({ seq: i + 1, turn: 1, type, at: i, ...more }) as LogEvent);

const events = log(
  ["tool_call_started", { tool_call_id: "c", name: "pay", path: "pay", executor: "server" }],
  ["tool_call_args_chunk", { tool_call_id: "c", content: '{"n":' }],
  ["model_used", { path: "think", attempt: 2, use: { model: "big", input: 10, output: 5, cost: 0.5 } }],
  ["tool_call_args_chunk", { tool_call_id: "c", content: "1}" }],
  ["collaboration_started", { path: "below", from: "a", to: "b", run_id: "r" }],
  ["tool_call_resolved", { tool_call_id: "c", content: "done" }],
  ["model_used", { path: "think", attempt: 2, use: { model: "big", input: 1 } }],
  ["collaboration_ended", { path: "below", from: "a", to: "b", run_id: "r" }],
);

function recorded(): Recorded {
  const found = new Recorded();
  found.take(events);
  return found;
}

test("a call is at each moment what was known of it", () => {
  const at = (seq: number): unknown[] => recorded().callsAt(seq).map(({ args, result }) => [args, result]);
  assert.deepEqual([0, 1, 2, 5, 8].map(at), [[], [["", null]], [['{"n":', null]], [['{"n":1}', null]], [['{"n":1}', "done"]]]);
});

test("a handover lasts until its end", () => {
  const at = (seq: number): unknown[] => recorded().handoversAt(seq).map(({ to, runId, ended }) => [to, runId, ended]);
  assert.deepEqual([at(4), at(5), at(8)], [[], [["b", "r", false]], [["b", "r", true]]]);
});

test("what comes in pieces, and comes again, is as if it had come at once", () => {
  const piecewise = new Recorded();
  for (let i = 0; i < events.length; i++) piecewise.take(events.slice(Math.max(0, i - 2), i + 1));
  for (let seq = 0; seq <= events.length; seq++) {
    assert.deepEqual(piecewise.callsAt(seq), recorded().callsAt(seq));
    assert.deepEqual(piecewise.modelCallsAt(seq), recorded().modelCallsAt(seq));
    assert.deepEqual(piecewise.handoversAt(seq), recorded().handoversAt(seq));
  }
});

test("what was forgotten is as if it had never been read", () => {
  for (let first = 0; first <= events.length + 1; first++) {
    const [forgot, fresh] = [recorded(), new Recorded()];
    forgot.forget(first);
    fresh.take(events.filter((each) => each.seq >= first));
    for (let seq = 0; seq <= events.length; seq++) {
      assert.deepEqual(forgot.callsAt(seq), fresh.callsAt(seq));
      assert.deepEqual(forgot.handoversAt(seq), fresh.handoversAt(seq));
      assert.deepEqual(forgot.modelCallsAt(seq), fresh.modelCallsAt(seq));
    }
  }
});
