import assert from "node:assert/strict";
import test from "node:test";
import { aboutKey, offersAt } from "./offers.ts";

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string", description: "Its name." },
    steps: { $ref: "#/$defs/steps" },
    kind: { enum: ["read", "write"] },
    tools: { type: "object", additionalProperties: { type: "object", properties: { python: { type: "string" } } } },
  },
  $defs: { steps: { type: "array", items: { $ref: "#/$defs/step" } }, step: { type: "object", properties: { call: { type: "string" } } } },
};

const labels = (path: (string | null)[], key: string | null = null): string[] =>
  offersAt(SCHEMA, { path, key, written: "" }).map((each) => each.label);

test("keys come from the mapping that one is in, through references and lists", () => {
  assert.deepEqual(labels([]), ["name", "steps", "kind", "tools"]);
  assert.deepEqual(labels(["steps", null]), ["call"]);
  assert.deepEqual(labels(["tools", "anything"]), ["python"]);
  assert.deepEqual(labels(["nowhere", null]), []);
});

test("values come from the key's own schema", () => {
  assert.deepEqual(labels([], "kind"), ["read", "write"]);
  assert.deepEqual(labels([], "name"), []);
});

test("a key says what it does", () => {
  assert.equal(aboutKey(SCHEMA, [], "name")?.about, "Its name.");
  assert.equal(aboutKey(SCHEMA, [], "steps")?.opens, "list");
  assert.equal(aboutKey(SCHEMA, [], "nome"), null);
});
