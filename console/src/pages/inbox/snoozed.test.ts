import assert from "node:assert/strict";
import test from "node:test";
import { canWait, isSnoozed, tomorrow } from "./snoozed.ts";

const now = new Date(2026, 10, 27, 23, 30).getTime();

test("tomorrow is the next day of the calendar at nine, however late it is", () => {
  assert.equal(tomorrow(now), new Date(2026, 10, 28, 9, 0).getTime());
});

test("a question is not put off past its deadline", () => {
  assert.equal(canWait({ deadline: null }, now), true);
  assert.equal(canWait({ deadline: new Date(2026, 10, 28, 9, 30).toISOString() }, now), false);
  assert.equal(canWait({ deadline: new Date(2026, 10, 28, 12, 0).toISOString() }, now), true);
});

test("it comes back in time, also where its deadline has come nearer", () => {
  const until = tomorrow(now);
  assert.equal(isSnoozed({ a: until }, { id: "a", deadline: null }, now), true);
  assert.equal(isSnoozed({ a: until }, { id: "a", deadline: null }, until), false);
  assert.equal(isSnoozed({ a: until }, { id: "b", deadline: null }, now), false);
  assert.equal(isSnoozed({ a: until }, { id: "a", deadline: new Date(now + 1_000_000).toISOString() }, now), false);
});
