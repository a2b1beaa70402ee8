import assert from "node:assert/strict";
import test from "node:test";
import type { SetupCheck } from "../../api/types.gen.ts";
import { standingOf } from "./standing.ts";

const check = (verdict: SetupCheck["verdict"]) => ({ verdict }) as SetupCheck;

test("a cell whose set-up has to be fixed does not run normally, though nothing is at fault", () => {
  assert.equal(standingOf({ faults: [], checks: [check("good"), check("doubtful")] }), "well");
  assert.equal(standingOf({ faults: [], checks: [check("good"), check("bad")] }), "unfit");
  assert.equal(standingOf({ faults: ["a worker is dead"], checks: [check("good")] }), "faulty");
});
