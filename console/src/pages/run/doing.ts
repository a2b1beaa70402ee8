// Which steps of a run do something now: those inside of which no other one is open.

import type { RunStep } from "../../api/types.gen.ts";

/** The innermost open steps, the newest first. */
export function doingNow(open: readonly RunStep[]): RunStep[] {
  const paths = open.map((each) => each.path);
  const around = (outer: string): boolean => paths.some((each) => each.startsWith(`${outer}/`) || each.startsWith(`${outer}[`));
  return open.filter((each) => each.status === "running" && !around(each.path)).reverse();
}

/** How long a step has worked: its attempts, without the time between them. */
export function workedMs(step: RunStep, now: number): number {
  return step.attempts.reduce((sum, each) => sum + Math.max(0, (each.ended_at === null ? now : Date.parse(each.ended_at)) - Date.parse(each.started_at)), 0);
}
