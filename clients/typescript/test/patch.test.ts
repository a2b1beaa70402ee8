import assert from "node:assert/strict";
import { test } from "node:test";

import { PatchError } from "../dist/errors.js";
import type { PatchOperation } from "../dist/events.js";
import { applyPatch } from "../dist/patch.js";

const freeze = <T>(value: T): T => {
  if (typeof value === "object" && value !== null) Object.values(Object.freeze(value)).forEach(freeze);
  return value;
};

// The examples of RFC 6902, appendix A, and of what else it demands.
const APPLIES: [string, unknown, PatchOperation[], unknown][] = [
  ["adds a member", { foo: "bar" }, [{ op: "add", path: "/baz", value: "qux" }], { foo: "bar", baz: "qux" }],
  ["adds an element", { foo: ["a", "c"] }, [{ op: "add", path: "/foo/1", value: "b" }], { foo: ["a", "b", "c"] }],
  ["adds at the end", { foo: ["a"] }, [{ op: "add", path: "/foo/-", value: ["b"] }], { foo: ["a", ["b"]] }],
  ["adds at the place after the last", { foo: ["a"] }, [{ op: "add", path: "/foo/1", value: "b" }], { foo: ["a", "b"] }],
  ["adds over what is there", { foo: 1 }, [{ op: "add", path: "/foo", value: null }], { foo: null }],
  ["removes a member", { foo: 1, bar: 2 }, [{ op: "remove", path: "/foo" }], { bar: 2 }],
  ["removes an element", ["a", "b", "c"], [{ op: "remove", path: "/1" }], ["a", "c"]],
  ["replaces a value", { foo: 1 }, [{ op: "replace", path: "/foo", value: { a: 1 } }], { foo: { a: 1 } }],
  ["replaces the whole", { foo: 1 }, [{ op: "replace", path: "", value: [1] }], [1]],
  ["replaces the whole from nothing", undefined, [{ op: "add", path: "", value: {} }], {}],
  ["moves a value", { a: { x: 1 }, b: {} }, [{ op: "move", from: "/a/x", path: "/b/y" }], { a: {}, b: { y: 1 } }],
  ["moves an element", ["a", "b", "c"], [{ op: "move", from: "/0", path: "/2" }], ["b", "c", "a"]],
  ["copies a value", { a: [1] }, [{ op: "copy", from: "/a", path: "/b" }], { a: [1], b: [1] }],
  ["tests a value", { a: { b: [1, null], c: "x" } }, [{ op: "test", path: "/a", value: { c: "x", b: [1, null] } }], { a: { b: [1, null], c: "x" } }],
  ["unescapes ~1 and then ~0", { "/": 1, "~1": 2 }, [{ op: "test", path: "/~01", value: 2 }, { op: "remove", path: "/~1" }], { "~1": 2 }],
  ["reads the empty key", { "": 1 }, [{ op: "replace", path: "/", value: 2 }], { "": 2 }],
  ["ignores HAI's empty from", [{ status: "pending" }], [{ op: "replace", path: "/0/status", value: "done", from: "" }], [{ status: "done" }]],
];

for (const [name, document, operations, expected] of APPLIES) {
  test(`a patch ${name} and leaves its document alone`, () => {
    assert.deepEqual(applyPatch(freeze(document), operations), expected);
  });
}

const REFUSED: [string, unknown, PatchOperation][] = [
  ["a base that is missing", {}, { op: "add", path: "/workflowItems/0/status", value: "running", from: "" }],
  ["a member that is missing", {}, { op: "remove", path: "/a" }],
  ["a replacement of what is missing", {}, { op: "replace", path: "/a", value: 1 }],
  ["a place beyond a list", [], { op: "add", path: "/1", value: 1 }],
  ["a place with a leading zero", [1, 2], { op: "replace", path: "/01", value: 1 }],
  ["the end of a list as something to remove", [1], { op: "remove", path: "/-" }],
  ["a name as a place in a list", [1], { op: "add", path: "/length", value: 0 }],
  ["a test that fails", { a: [1] }, { op: "test", path: "/a", value: { 0: 1 } }],
  ["a way into text", { a: "text" }, { op: "add", path: "/a/b", value: 1 }],
  ["what is only inherited", {}, { op: "add", path: "/__proto__/admin", value: true }],
  ["a move into itself", { a: { b: {} } }, { op: "move", from: "/a", path: "/a/b/c" }],
  ["a path that is no pointer", {}, { op: "add", path: "a", value: 1 }],
  ["another operation", {}, { op: "merge", path: "" } as unknown as PatchOperation],
];

for (const [name, document, operation] of REFUSED) {
  test(`${name} is refused`, () => {
    assert.throws(() => applyPatch(freeze(document), [operation]), PatchError);
  });
}

test("what a patch does not change is shared, so a view can compare by identity", () => {
  const before = { left: { a: 1 }, right: [{ b: 1 }] };
  const after = applyPatch(before, [{ op: "replace", path: "/right/0/b", value: 2 }]) as typeof before;
  assert.equal(after.left, before.left);
  assert.notEqual(after.right, before.right);
});

test("a key called __proto__ is set on the object, not on its prototype", () => {
  const after = applyPatch({}, [{ op: "add", path: "/__proto__", value: { admin: true } }]) as { admin?: boolean };
  assert.equal(after.admin, undefined);
  assert.deepEqual(Object.keys(after), ["__proto__"]);
});
