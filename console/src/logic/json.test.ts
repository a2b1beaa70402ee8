import assert from "node:assert/strict";
import test from "node:test";
import { brief, changes, edits, holdsUnread, same, unread, unreadText } from "./json.ts";
import { beginning, fieldOf, joined, schemaOfArgs, variantOf } from "./schema.ts";

test("the order of keys is no difference, the order of a list is one", () => {
  assert.ok(same({ a: 1, b: [1, 2] }, { b: [1, 2], a: 1 }));
  assert.ok(!same([1, 2], [2, 1]));
  assert.ok(!same({ a: null }, {}));
});

test("changes name the deepest places, escaped as pointers", () => {
  assert.deepEqual(changes({ a: { "x/y": 1, z: 2 } }, { a: { "x/y": 3, z: 2 }, b: 4 }), [
    { path: "/a/x~1y", before: 1, after: 3 },
    { path: "/b", before: undefined, after: 4 },
  ]);
});

test("edits are whole arguments, those that differ alone", () => {
  assert.deepEqual(edits({ amount: 180, to: { iban: "x" } }, { amount: 90, to: { iban: "x" } }), { amount: 90 });
});

test("what is no JSON yet is kept as it is written, and found wherever it stands", () => {
  const draft = JSON.parse(JSON.stringify({ amount: 1, lines: [{ of: unread('{"a": ') }] }));
  assert.equal(unreadText(draft.lines[0].of), '{"a": ');
  assert.equal(brief(draft.lines[0].of), '{"a": ');
  assert.ok(holdsUnread({ input: draft }));
  assert.ok(!holdsUnread({ input: { amount: 1, lines: [{ of: { a: null } }] } }));
  assert.equal(unreadText({ a: 1 }), null);
});

test("a form begins with the defaults of its schema, and what it can't draw is JSON", () => {
  const schema = { type: "object", properties: { n: { type: "integer", default: 3 }, t: { type: "string" } } };
  assert.deepEqual(beginning(schema), { n: 3 });
  assert.equal(fieldOf({ anyOf: [{ type: "string" }, { type: "number" }] }).kind, "variants");
  assert.equal(fieldOf({ type: ["string", "null"] }).kind, "text");
  assert.equal(fieldOf({ enum: ["a", 1] }).kind, "choice");
  assert.equal(fieldOf(joined({ anyOf: [{ type: "string", format: "date" }, { type: "null" }] }, {}).schema).kind, "text");
  assert.equal(fieldOf({ const: true }).kind, "yesno");
  assert.equal(fieldOf({ type: "object", additionalProperties: { type: "number" } }).kind, "map");
});

test("a form of arguments is the function's, and goes by the values where it has none", () => {
  const parameters = { properties: { n: { type: "integer", minimum: 1 }, kind: { $ref: "#/$defs/kind" } }, required: ["n", "kind"], $defs: { kind: { enum: ["a"] } } };
  const schema = schemaOfArgs({ n: 3, other: "x" }, ["n", "kind", "other"], parameters);
  assert.deepEqual(schema, {
    type: "object",
    properties: { n: { type: "integer", minimum: 1 }, kind: { $ref: "#/$defs/kind" }, other: { type: "string" } },
    required: ["n", "kind"],
    $defs: { kind: { enum: ["a"] } },
  });
  assert.equal(fieldOf(joined({ $ref: "#/$defs/kind" }, schema).schema).kind, "choice");
  assert.deepEqual(schemaOfArgs({ n: 3 }, ["n"], null), { type: "object", properties: { n: { type: "number" } }, required: [] });
});

test("a reference is what it names, and one that leads back into itself ends", () => {
  const root = { $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" }, n: { type: "number" } } } }, $ref: "#/$defs/node" };
  const whole = joined(root, root);
  assert.equal(fieldOf(whole.schema).kind, "object");
  assert.equal(fieldOf(joined({ $ref: "#/$defs/node" }, root, whole.within).schema).kind, "json");
  assert.equal(fieldOf(joined({ $ref: "#" }, root, ["#"]).schema).kind, "json");
  assert.deepEqual(beginning(root), {});
});

test("the parts of allOf are one form", () => {
  const schema = { allOf: [{ properties: { a: { type: "string" } }, required: ["a"] }, { properties: { b: { type: "number" } }, required: ["b"] }] };
  const field = fieldOf(joined(schema, schema).schema);
  assert.deepEqual(field.kind === "object" && [field.properties.map(([name]) => name), [...field.required]], [["a", "b"], ["a", "b"]]);
});

test("a value is of the alternative whose fixed parts it has", () => {
  const card = { type: "object", required: ["kind"], properties: { kind: { const: "card" }, number: { type: "string" } } };
  const bank = { type: "object", required: ["kind"], properties: { kind: { const: "bank" }, iban: { type: "string" } } };
  const field = fieldOf({ oneOf: [card, bank] });
  assert.equal(field.kind, "variants");
  if (field.kind !== "variants") return;
  assert.deepEqual(field.variants.map((each) => each.label), ["Card", "Bank"]);
  assert.equal(variantOf(field.variants, { kind: "bank" }), 1);
  assert.equal(variantOf(field.variants, { kind: "cash" }), -1);
  assert.deepEqual(beginning(bank), { kind: "bank" });
});
