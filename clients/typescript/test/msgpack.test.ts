import assert from "node:assert/strict";
import { test } from "node:test";

import { ProtocolError } from "../dist/errors.js";
import { FRAME_BYTES_MAX, FrameParser } from "../dist/frames.js";
import { decodeMsgpack } from "../dist/msgpack.js";
import { framed, hex, pack } from "./msgpack_writer.ts";

// As msgspec 0.22, with which HAI Flow encodes, writes them.
const VECTORS: [string, string, unknown][] = JSON.parse(
  await (await import("node:fs/promises")).readFile(new URL("msgpack_vectors.json", import.meta.url), "utf8"),
);

for (const [name, written, value] of VECTORS) {
  test(`${name} is read as the server's library writes it`, () => {
    assert.deepEqual(decodeMsgpack(hex(written)), value);
  });
}

test("what other writers choose for the same values is read too", () => {
  const variants: [string, unknown][] = [
    ["cd0001", 1],
    ["ce00000001", 1],
    ["cf0000000000000001", 1],
    ["cfffffffffffffffff", 2 ** 64],
    ["d1ffff", -1],
    ["d2ffffffff", -1],
    ["d3ffffffffffffffff", -1],
    ["ca3fc00000", 1.5],
    ["d90161", "a"],
    ["da000161", "a"],
    ["db0000000161", "a"],
    ["dc000101", [1]],
    ["dd0000000101", [1]],
    ["de0001a16101", { a: 1 }],
    ["df00000001a16101", { a: 1 }],
    ["c403010203", Uint8Array.of(1, 2, 3)],
    ["c5000101", Uint8Array.of(1)],
    ["c60000000101", Uint8Array.of(1)],
  ];
  for (const [written, value] of variants) assert.deepEqual(decodeMsgpack(hex(written)), value, written);
});

test("a key called __proto__ is a key like any other", () => {
  const value = decodeMsgpack(pack({ ["__proto__"]: { admin: true } })) as { admin?: boolean };
  assert.equal(value.admin, undefined);
  assert.deepEqual(Object.keys(value), ["__proto__"]);
});

for (const [name, written] of [
  ["a value that is cut", "a26"],
  ["a second value", "0101"],
  ["an extension type", "d40100"],
  ["a number as a key", "810101"],
  ["a list that promises more than it holds", "ddffffffff01"],
  ["nothing", ""],
  ["bytes that are no UTF-8 in a string", "a1ff"],
  ["too many levels", "91".repeat(300) + "01"],
] as const) {
  test(`${name} is refused`, () => {
    assert.throws(() => decodeMsgpack(hex(written)), ProtocolError);
  });
}

test("frames are found wherever the stream is cut", () => {
  const events = [{ type: "RUN_STARTED" }, { type: "RAW", event: "找到了".repeat(100) }, { type: "RUN_FINISHED" }];
  const stream = framed(events.map(pack));
  for (let cut = 0; cut <= stream.length; cut++) {
    const parser = new FrameParser();
    const frames = [...parser.push(stream.subarray(0, cut)), ...parser.push(stream.subarray(cut))];
    assert.deepEqual(frames.map(decodeMsgpack), events);
    assert.equal(parser.rest, 0);
  }
  const parser = new FrameParser();
  const frames = Array.from(stream, (byte) => parser.push(Uint8Array.of(byte))).flat();
  assert.deepEqual(frames.map(decodeMsgpack), events);
});

test("an empty frame keeps the connection alive and is no event", () => {
  assert.deepEqual(new FrameParser().push(framed([new Uint8Array(0), Uint8Array.of(1)])), [Uint8Array.of(1)]);
});

test("a frame that claims to be enormous is refused before its bytes come", () => {
  const header = new Uint8Array(4);
  new DataView(header.buffer).setUint32(0, FRAME_BYTES_MAX + 1);
  assert.throws(() => new FrameParser().push(header), ProtocolError);
});
