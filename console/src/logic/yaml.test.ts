import assert from "node:assert/strict";
import test from "node:test";
import { placeAt } from "./yaml.ts";

const TEXT = `hai: flow/v1
name: x
tools:
  shop:
    python: a.b
steps:
  - id: first
    call: shop.pay
    with:
      amount: 3
      
  - if: a
    then:
    - id: inner
      
    - say: hello
`.split("\n");

function at(row: number, column: number): string {
  const { path, key, written } = placeAt(TEXT, row, column);
  return `${path.map((each) => each ?? "-").join("/")} ${key ?? "?"} ${written}`;
}

test("a key stands in the mappings that are further out", () => {
  assert.equal(at(0, 2), " ? ha");
  assert.equal(at(4, 8), "tools/shop ? pyth");
  assert.equal(at(7, 8), "steps/- ? call");
  assert.equal(at(9, 10), "steps/-/with ? amou");
});

test("a value knows its key", () => {
  assert.equal(at(7, 14), "steps/- call shop");
  assert.equal(at(6, 14), "steps/- id first");
});

test("an empty line is where its spaces end", () => {
  assert.equal(at(10, 4), "steps/- ? ");
  assert.equal(at(10, 6), "steps/-/with ? ");
});

test("a list may stand as far out as its key", () => {
  assert.equal(at(14, 6), "steps/-/then/- ? ");
  assert.equal(at(15, 9), "steps/-/then/- ? say");
});
