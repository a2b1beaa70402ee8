import assert from "node:assert/strict";
import { test } from "node:test";

import { SseParser, type SseEvent } from "../dist/sse.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** The events of `stream`, fed in pieces that end at `cuts`. */
function parse(stream: Uint8Array, cuts: number[] = []): SseEvent[] {
  const parser = new SseParser();
  const edges = [0, ...cuts, stream.length];
  const events = edges.slice(1).flatMap((end, index) => parser.push(stream.subarray(edges[index], end)));
  return [...events, ...parser.end()];
}

const STREAM = [
  ": keep-alive",
  "",
  "id: run.hai-1.3.0",
  'data: {"delta":"找到了 😀"}',
  "",
  "event: note",
  "data:no space",
  "data:  two spaces",
  ": a comment inside",
  "retry: 100",
  "",
  "",
  "data",
  "",
];
const EXPECTED = [
  { id: "run.hai-1.3.0", data: '{"delta":"找到了 😀"}' },
  { id: "run.hai-1.3.0", event: "note", data: "no space\n two spaces" },
  { id: "run.hai-1.3.0", data: "" },
];

for (const [name, lineEnd] of [["LF", "\n"], ["CRLF", "\r\n"], ["CR", "\r"]] as const) {
  const stream = bytes(STREAM.map((line) => line + lineEnd).join(""));

  test(`a stream with ${name} is read alike wherever it is cut`, () => {
    for (let cut = 0; cut <= stream.length; cut++) assert.deepEqual(parse(stream, [cut]), EXPECTED, `cut at ${cut}`);
  });

  test(`a stream with ${name} is read byte by byte`, () => {
    assert.deepEqual(parse(stream, Array.from(stream.keys())), EXPECTED);
  });
}

test("an event is there as soon as its blank line is, also if a CR may be half of a CRLF", () => {
  assert.deepEqual(new SseParser().push(bytes("data: a\r\r")), [{ data: "a" }]);
});

test("the LF after such a CR ends no second line", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push(bytes("data: a\r")), []);
  assert.deepEqual(parser.push(bytes("\ndata: b\r")), []);
  assert.deepEqual(parser.push(bytes("\n\r\n")), [{ data: "a\nb" }]);
});

test("a byte order mark is not part of the first line", () => {
  assert.deepEqual(parse(Uint8Array.from([0xef, 0xbb, 0xbf, ...bytes("data: a\n\n")])), [{ data: "a" }]);
});

test("an event without its blank line comes at the end", () => {
  assert.deepEqual(parse(bytes("data: a\n\ndata: b")), [{ data: "a" }, { data: "b" }]);
});

test("an id with a NUL is ignored, an id without data is no event", () => {
  assert.deepEqual(parse(bytes("id: 1\n\nid: 2\0\ndata: a\n\n")), [{ id: "1", data: "a" }]);
});
