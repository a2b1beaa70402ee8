import assert from "node:assert/strict";
import test from "node:test";
import { lapsing, type Needed, tableOf } from "./seats.ts";

const nobody: Needed = {
  from: ["role:finance"],
  exclude: [],
  reasons: [],
  people: null,
  votes: [],
  missing: { people: 2, seats: {}, names: [] },
};
const vote = (by: string, decision: string, counts = true) => ({
  by, decision, counts, on_behalf_of: null, roles: [], reason: null, at: "2026-01-01T00:00:00Z",
});

test("a quorum of two with one approval has one seat taken and one open", () => {
  const table = tableOf({ ...nobody, votes: [vote("user:ann", "approve")], missing: { people: 1, seats: {}, names: [] } });
  assert.deepEqual(table.seats.map((seat) => [seat.state, seat.who]), [["for", "user:ann"], ["open", ""]]);
  assert.deepEqual([table.filled, table.of], [1, 2]);
});

test("seats of roles are named once each, though the number of people counts them too", () => {
  const table = tableOf({ ...nobody, missing: { people: 3, seats: { "role:legal": 1, "role:finance": 2 }, names: [] } });
  assert.deepEqual(table.seats.map((seat) => seat.who), ["role:legal", "role:finance", "role:finance"]);
});

test("a vote that counts no more fills no seat and does not lapse again", () => {
  const needed = { ...nobody, votes: [vote("user:ann", "approve", false), vote("user:bob", "approve")] };
  assert.equal(tableOf(needed).seats[0]?.state, "lapsed");
  assert.equal(tableOf(needed).filled, 1);
  assert.equal(lapsing(needed), 1);
});
