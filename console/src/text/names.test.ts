import assert from "node:assert/strict";
import test from "node:test";
import { humanised } from "./names.ts";

test("a name without a title is read as words", () => {
  assert.equal(humanised("value_eur"), "Value EUR");
  assert.equal(humanised("askLegal"), "Ask legal");
  assert.equal(humanised("customer-id"), "Customer ID");
  assert.equal(humanised("IBAN"), "IBAN");
  assert.equal(humanised("a.b"), "a.b");
  assert.equal(humanised("__x"), "__x");
});
