import assert from "node:assert/strict";
import test from "node:test";
import type { RunStep } from "../../api/types.gen.ts";
import { doingNow, workedMs } from "./doing.ts";

const step = (path: string, more: Partial<RunStep> = {}): RunStep => ({ path, status: "running", attempts: [], ...more }) as RunStep;
const attempt = (from: string, to: string | null) => ({ n: 1, started_at: from, ended_at: to, lost: false, error: null });

test("what is inside says what happens, not what is around it", () => {
  const open = [step("loop"), step("loop[0]"), step("loop[0]/pay"), step("loopy")];
  assert.deepEqual(doingNow(open).map((each) => each.path), ["loopy", "loop[0]/pay"]);
});

test("a step that was tried again has worked for its attempts alone", () => {
  const tried = [attempt("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"), attempt("2026-01-01T01:00:00Z", null)];
  assert.equal(workedMs(step("a", { attempts: tried }), Date.parse("2026-01-01T01:00:02Z")), 3000);
});
