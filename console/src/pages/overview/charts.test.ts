import assert from "node:assert/strict";
import test from "node:test";
import { bars, path } from "./charts.ts";

test("a column that is not nothing is seen beside the largest", () => {
  assert.deepEqual(bars([0, 1, 10_000]), [0, 1, 24]);
  assert.deepEqual(bars([0, 0]), [0, 0]);
});

test("a line goes from the left to the right, the largest at the top", () => {
  assert.equal(path([0, 2]), "M0 23L100 1");
  assert.equal(path([0]), "M0 23");
});
