import assert from "node:assert/strict";
import test from "node:test";
import { lineOf, mentions } from "./titles.ts";

test("a row has its arguments, else its evidence, in one line", () => {
  assert.equal(lineOf({ args: { order_id: "A\n1", sum: 2, deep: { x: 1 } } }), "Order ID: A 1 · Sum: 2");
  assert.equal(lineOf({ args: { none: {}, invoice: { to: { x: 1 }, sum: 2 }, other: { y: 3 } } }), "Sum: 2");
  assert.equal(lineOf({ args: null, evidence: { city: "Berlin" } }), "City: Berlin");
  assert.equal(lineOf({ args: null, evidence: "text" }), "");
});

test("a search finds what stands in arguments of any depth", () => {
  assert.equal(mentions({ a: [{ b: "Customer7@example.com" }] }, "customer7@"), true);
  assert.equal(mentions({ a: 12 }, "customer"), false);
});
