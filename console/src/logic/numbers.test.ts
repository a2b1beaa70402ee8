import assert from "node:assert/strict";
import test from "node:test";
import { numberText, parseExactly, sumOf } from "./numbers.ts";

test("a sum of decimals is exact, whatever their signs and digits", () => {
  assert.equal(sumOf(["0.1", "0.2"]), "0.3");
  assert.equal(sumOf(["-1", "0.25"]), "-0.75");
  assert.equal(sumOf(["9007199254740993", "1"]), "9007199254740994");
  assert.equal(sumOf(["-0.05", "0.05"]), "0.00");
  assert.equal(sumOf(["1e3"]), null);
  assert.equal(sumOf([]), null);
});

test("a number is shown as it was written, where the browser says how that was", (t) => {
  const value = parseExactly('{"a": 99.00, "b": [1, 12345678901234567890], "c": 1.5}') as { a: number; b: number[]; c: number };
  if (numberText(value, "a", value.a) === "99") return t.skip("this Node does not say how a number was written");
  assert.equal(numberText(value, "a", value.a), "99.00");
  assert.equal(numberText(value.b, 1, value.b[1] ?? 0), "12345678901234567890");
  assert.equal(numberText(value, "c", value.c), "1.5");
});
