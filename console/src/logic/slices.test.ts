import assert from "node:assert/strict";
import test from "node:test";
import type { LogEvent } from "./event.ts";
import { Recorded } from "./record.ts";
import { SLICE, inSlices } from "./slices.ts";

const many = Array.from({ length: 20_000 }, (_, i) => i);

test("20,000 items are taken in their order, and never more than a slice at a time", async () => {
  const sizes: number[] = [];
  const taken: number[] = [];
  const whole = await inSlices(
    many,
    (slice) => {
      sizes.push(slice.length);
      taken.push(...slice);
    },
    () => false,
  );
  assert.equal(whole, true);
  assert.deepEqual(taken, many);
  assert.equal(Math.max(...sizes), SLICE);
});

test("other tasks come between any two slices", async () => {
  let ticks = 0;
  let slices = 0;
  const beat = setInterval(() => (ticks += 1), 0);
  await inSlices(many, () => (slices += 1), () => false);
  clearInterval(beat);
  assert.equal(slices, many.length / SLICE);
  assert.ok(ticks > 0, `${ticks} ticks between ${slices} slices`);
});

test("work for which nobody waits any more ends with the slice", async () => {
  let taken = 0;
  const whole = await inSlices(many, (slice) => (taken += slice.length), () => taken >= 2 * SLICE);
  assert.equal(whole, false);
  assert.equal(taken, 2 * SLICE);
});

test("a log taken in slices says what it says when it is taken at once", async () => {
  const events = many.slice(0, 3 * SLICE + 7).map(
    (i) => ({ seq: i + 1, turn: 1, at: i, type: i % 2 ? "tool_call_resolved" : "tool_call_started", tool_call_id: `${i >> 1}`, name: "n", content: "" }) as LogEvent,
  );
  const [once, sliced] = [new Recorded(), new Recorded()];
  once.take(events);
  await inSlices(events, (slice) => sliced.take(slice), () => false);
  assert.deepEqual(sliced.callsAt(Infinity), once.callsAt(Infinity));
});
