import assert from "node:assert/strict";
import test from "node:test";
import { cellOf, columnsOf, sums } from "./table.ts";

test("a list of like objects with plain values is a table, any other is none", () => {
  assert.deepEqual(columnsOf([{ a: 1, b: "x" }, { a: 2, c: null }]), [["a"], ["b"], ["c"]]);
  assert.deepEqual(columnsOf([{ a: 1, b: { c: 2, d: { e: 3 } } }, { a: 1, b: { c: 4 } }]), [["a"], ["b", "c"], ["b", "d", "e"]]);
  for (const inner of [{}, { c: [1] }, { c: { d: { e: 1 } } }, { type: "file", file: "x" }]) {
    assert.equal(columnsOf([{ a: 1, b: inner }, { a: 1, b: inner }]), null, JSON.stringify(inner));
  }
  assert.equal(columnsOf([{ a: 1 }]), null);
  assert.equal(columnsOf([{ a: 1 }, { a: [1] }]), null);
  assert.equal(columnsOf([{ a: 1 }, 2]), null);
  assert.equal(columnsOf([{}, {}]), null);
  assert.equal(columnsOf([{ a: 1 }, { b: 1, c: 2, d: 3, e: 4 }]), null);
});

test("sums are of columns of numbers alone, and not of ids", () => {
  assert.deepEqual(sums([{ id: 1, eur: 0.1, note: "a" }, { id: 2, eur: 0.2, note: 3 }], [["id"], ["eur"], ["note"]]), [[["eur"], "0.3"]]);
  assert.deepEqual(sums([{ tax: { eur: 1 } }, { tax: { eur: 2 } }], [["tax", "eur"]]), [[["tax", "eur"], "3"]]);
  assert.deepEqual(sums([{ tax: { eur: 1 } }, { tax: null }], [["tax", "eur"]]), []);
  assert.equal(cellOf({ tax: "none" }, ["tax", "eur"]), null);
});
