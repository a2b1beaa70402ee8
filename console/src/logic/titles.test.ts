import assert from "node:assert/strict";
import test from "node:test";
import { lineOf, mentions, titleOf } from "./titles.ts";

test("a call without a title is named by its tool and its first arguments", () => {
  const args = { to: "customer7@example.com", subject: "Your order A-7", body: "x".repeat(100), n: 3 };
  assert.equal(titleOf({ title: "acts.mail?", tool: "acts.mail", args: { to: args.to, subject: args.subject } }), "Mail: customer7@example.com, Your order A-7?");
  assert.equal(titleOf({ title: "Send it?", tool: "acts.mail", args }), "Send it?");
  assert.equal(titleOf({ title: "send_mail?", tool: "send_mail", args: null }), "Send mail?");
  assert.equal(titleOf({ title: "POST https://a.example/pay?", tool: "POST https://a.example/pay", args: { method: "post" } }), "POST https://a.example/pay?");
  assert.equal(titleOf({ title: null, tool: null, args: null }), null);
});

test("a row has its arguments, else its evidence, in one line", () => {
  assert.equal(lineOf({ title: null, tool: "t", args: { order_id: "A\n1", sum: 2, deep: { x: 1 } } }), "Order ID: A 1 · Sum: 2");
  assert.equal(lineOf({ title: null, tool: null, args: null, evidence: { city: "Berlin" } }), "City: Berlin");
  assert.equal(lineOf({ title: null, tool: null, args: null, evidence: "text" }), "");
});

test("a search finds what stands in arguments of any depth", () => {
  assert.equal(mentions({ a: [{ b: "Customer7@example.com" }] }, "customer7@"), true);
  assert.equal(mentions({ a: 12 }, "customer"), false);
});
