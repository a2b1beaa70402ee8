import assert from "node:assert/strict";
import test from "node:test";
import { findAhead } from "./clock.ts";

const DATE = "Sun, 29 Nov 2026 12:00:00 GMT";
const AT = Date.parse(DATE);
const DAY_MS = 86_400_000;

test("a clock that is days off is found, and one that is less than a minute off is right", () => {
  assert.equal(findAhead(DATE, AT + 2 * DAY_MS, AT + 2 * DAY_MS + 300), 2 * DAY_MS);
  assert.equal(findAhead(DATE, AT - 2 * DAY_MS - 300, AT - 2 * DAY_MS), -2 * DAY_MS);
  assert.equal(findAhead(DATE, AT + 50_000, AT + 50_300), 0);
  assert.equal(findAhead(DATE, AT - 50_000, AT - 49_700), 0);
});

test("an upload over a slow line, and a phone that slept before the answer came, have no wrong clock", () => {
  assert.equal(findAhead(DATE, AT - 200, AT + 5 * 60_000), 0);
  assert.equal(findAhead(DATE, AT - 5 * 60_000, AT + 200), 0);
  assert.equal(findAhead(DATE, AT - 200, AT + DAY_MS), 0);
});

test("a server that does not say what time it is proves nothing", () => {
  assert.equal(findAhead(null, AT, AT), null);
  assert.equal(findAhead("yesterday", AT, AT), null);
});
