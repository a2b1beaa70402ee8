import assert from "node:assert/strict";
import { test } from "node:test";

import { DocumentReader, documentsOf, textOf } from "../dist/documents.js";
import type { HaiDocument } from "../dist/events.js";
import { parsePartialJson } from "../dist/partial.js";

const text = (content: string): HaiDocument => ({ output: { type: "text", content } });
const read = (deltas: string[]): HaiDocument[] => {
  const reader = new DocumentReader();
  return [...deltas.flatMap((delta) => reader.push(delta)), ...reader.end()];
};

const DOCUMENTS: HaiDocument[] = [
  { ...text('x}{y "quoted\\" }{'), layout: {} },
  { output: { type: "icon", data: { icon: "plx-ico-report-16", color: "" } }, style: { background: true }, blockId: "block-1", layout: { x: 0 } },
  { output: { type: "fold", data: { title: "计划 😀", fold: true, position: "start" } } },
  { output: { type: "their own", anything: [{}] } },
];
const CONTENT = DOCUMENTS.map((document) => JSON.stringify(document)).join("");

test("a content is split where documents meet, not where text only looks like it", () => {
  assert.deepEqual(documentsOf(CONTENT), DOCUMENTS);
});

test("documents are the same wherever a delta is cut", () => {
  for (let cut = 0; cut <= CONTENT.length; cut++) {
    assert.deepEqual(read([CONTENT.slice(0, cut), CONTENT.slice(cut)]), DOCUMENTS, `cut at ${cut}`);
  }
  assert.deepEqual(read([...CONTENT]), DOCUMENTS);
});

test("a document is there with the delta that completes it", () => {
  const reader = new DocumentReader();
  assert.deepEqual(reader.push('{"output":{"type":"text",'), []);
  assert.deepEqual(reader.push('"content":"a"}}{"out'), [text("a")]);
  assert.deepEqual(reader.push('put":{"type":"text","content":"b"}}'), [text("b")]);
  assert.deepEqual(reader.end(), []);
});

test("documents may be indented and stand on lines of their own", () => {
  assert.deepEqual(documentsOf(`\n${JSON.stringify(text("a"), null, 2)}\n${JSON.stringify(text("b"))}\n`), [text("a"), text("b")]);
});

test("bare text is text as it comes, braces and all", () => {
  assert.deepEqual(read(["HAI", " is {", "} an event"]), [text("HAI"), text(" is {"), text("} an event")]);
  assert.deepEqual(documentsOf(" a }{ b "), [text(" a }{ b ")]);
  assert.deepEqual(documentsOf("  "), [text("  ")]);
});

test("text that only begins like a document is not lost", () => {
  assert.deepEqual(documentsOf("{hello"), [text("{hello")]);
  assert.deepEqual(documentsOf('{"a":1}'), [text('{"a":1}')]);
});

test("nothing is no document", () => {
  assert.deepEqual(documentsOf(""), []);
});

test("the words of a message are its text outputs, or what a person wrote", () => {
  assert.equal(textOf({ id: "1", role: "assistant", content: CONTENT }), 'x}{y "quoted\\" }{');
  assert.equal(textOf({ id: "2", role: "user", content: '{"output":1}' }), '{"output":1}');
  assert.equal(textOf({ id: "3", role: "user", content: [{ type: "text", text: "look: " }, { type: "image", source: { type: "url", value: "x" } }] }), "look: ");
  assert.equal(textOf({ id: "4", role: "assistant" }), "");
});

test("arguments are read as far as they have come", () => {
  const whole = { city: '北京 "x"', days: [1, -2.5e3, true, null], deep: { a: { b: "\u00e9" } } };
  const written = JSON.stringify(whole).replace("é", "\\u00e9");
  assert.deepEqual(parsePartialJson(written), whole);
  for (let cut = 1; cut < written.length; cut++) {
    const partial = parsePartialJson(written.slice(0, cut)) as Partial<typeof whole>;
    assert.ok(whole.city.startsWith(partial.city ?? ""), `cut at ${cut}`);
    assert.ok(Object.keys(partial).every((name) => name in whole));
  }
  assert.deepEqual(parsePartialJson('{"a":"x\\u00'), { a: "x" });
  assert.deepEqual(parsePartialJson('{"a":"x\\'), { a: "x" });
  assert.deepEqual(parsePartialJson('{"a":[1,tr'), { a: [1] });
  assert.deepEqual(parsePartialJson('{"a":1,"b'), { a: 1 });
  assert.deepEqual(parsePartialJson('{"a":1,"b":'), { a: 1 });
});

test("what cannot be read is nothing, and what follows a mistake is left out", () => {
  assert.equal(parsePartialJson(""), undefined);
  assert.equal(parsePartialJson("tru"), undefined);
  assert.deepEqual(parsePartialJson('{"a":1,b:2}'), { a: 1 });
});
