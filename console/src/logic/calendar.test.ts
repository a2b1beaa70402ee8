import assert from "node:assert/strict";
import test from "node:test";
import { distance } from "./calendar.ts";

const at = (day: number, hour: number, minute = 0): number => new Date(2026, 10, day, hour, minute).getTime();

test("two days from now is the day after tomorrow, and not tomorrow", () => {
  assert.deepEqual(distance(at(29, 12), at(27, 12, 1)), { unit: "day", n: 2 });
  assert.deepEqual(distance(at(28, 0, 40), at(27, 10)), { unit: "day", n: 1 });
  assert.deepEqual(distance(at(25, 23), at(27, 1)), { unit: "day", n: -2 });
});

test("below half a day it is rounded", () => {
  assert.deepEqual(distance(at(27, 13, 59), at(27, 12)), { unit: "hour", n: 2 });
  assert.deepEqual(distance(at(27, 12, 59) + 40_000, at(27, 12)), { unit: "hour", n: 1 });
  assert.deepEqual(distance(at(27, 12, 19), at(27, 12)), { unit: "minute", n: 19 });
  assert.deepEqual(distance(at(28, 3), at(27, 23)), { unit: "hour", n: 4 });
  assert.deepEqual(distance(at(27, 12) - 20_000, at(27, 12)), { unit: "second", n: -20 });
});
