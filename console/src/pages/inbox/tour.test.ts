import assert from "node:assert/strict";
import test from "node:test";
import type { InboxItem, Run } from "../../api/types.gen.ts";
import { isFirstDay, runOfTour, stageOf } from "./tour.ts";

const run = (id: string, workflow: string): Run => ({ id, workflow }) as Run;
const question = { id: "pnd_1", run_id: "run_1" } as InboxItem;
const fresh = { over: false, run: null };

test("it is the first day until something else than the demo was started", () => {
  assert.equal(isFirstDay(fresh, []), true);
  assert.equal(isFirstDay(fresh, [run("run_1", "refund")]), true);
  assert.equal(isFirstDay(fresh, [run("run_1", "release")]), false);
  assert.equal(isFirstDay(fresh, [run("run_2", "refund"), run("run_1", "refund")]), false);
  assert.equal(isFirstDay({ over: true, run: null }, []), false);
});

test("who is on their way stays on it, whatever else is started", () => {
  const kept = { over: false, run: "run_1" };
  assert.equal(isFirstDay(kept, [run("run_9", "release"), run("run_8", "release")]), true);
  assert.equal(runOfTour(kept, [run("run_9", "release")]), "run_1");
});

test("the next step follows from what is there", () => {
  assert.equal(stageOf(null, undefined, null, false), "start");
  assert.equal(stageOf("run_1", undefined, null, false), "coming");
  assert.equal(stageOf("run_1", question, null, false), "open");
  assert.equal(stageOf("run_1", question, "pnd_other", false), "open");
  assert.equal(stageOf("run_1", question, "pnd_1", false), "decide");
  assert.equal(stageOf("run_1", undefined, "pnd_1", true), "see");
});
