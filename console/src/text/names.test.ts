import assert from "node:assert/strict";
import test from "node:test";
import { capitalised, humanised } from "./names.ts";

test("a name without a title is read as words", () => {
  assert.equal(humanised("value_eur"), "Value EUR");
  assert.equal(humanised("askLegal"), "Ask legal");
  assert.equal(humanised("customer-id"), "Customer ID");
  assert.equal(humanised("IBAN"), "IBAN");
  assert.equal(humanised("a.b"), "a.b");
  assert.equal(humanised("__x"), "__x");
});

test("a sentence gets a capital letter, a command keeps its spelling", () => {
  assert.equal(capitalised("run hai-flow migrate"), "Run hai-flow migrate");
  assert.equal(capitalised("hai-flow pendings says why: give a key"), "hai-flow pendings says why: give a key");
  assert.equal(capitalised("chmod 600 it"), "chmod 600 it");
  assert.equal(capitalised("ulimit -Hn 4096"), "ulimit -Hn 4096");
  assert.equal(capitalised("max_connections is 10"), "max_connections is 10");
});
