// The first day: how far somebody who has never seen this has come with the demo. Told by what is there, not by clicks.

import type { InboxItem, Run } from "../../api/types.gen.ts";

export const DEMO = "refund";
const KEPT = "hai.tour";
const OVER = "over";

/** What this browser remembers: the run that the tour follows; that it is over; or nothing yet. */
export interface Kept {
  over: boolean;
  run: string | null;
}

export function keptTour(): Kept {
  const kept = localStorage.getItem(KEPT);
  return { over: kept === OVER, run: kept === OVER ? null : kept };
}

export function keepTour(run: string | null): void {
  localStorage.setItem(KEPT, run ?? OVER);
}

/** The run to follow: the one that is remembered, else the demo's, where it is the only run that was ever started. */
export function runOfTour(kept: Kept, newest: readonly Run[]): string | null {
  if (kept.run !== null) return kept.run;
  const [only, more] = newest;
  return only?.workflow === DEMO && more === undefined ? only.id : null;
}

/** Whether there is a tour for the reader: nobody has started anything but the demo, or they are on their way. */
export function isFirstDay(kept: Kept, newest: readonly Run[]): boolean {
  return !kept.over && (newest.length === 0 || runOfTour(kept, newest) !== null);
}

export type Stage = "start" | "coming" | "open" | "decide" | "see";

/** What comes next. `chosen`: the question that is open on the page; `decided`: the run asks nothing any more. */
export function stageOf(run: string | null, question: InboxItem | undefined, chosen: string | null, decided: boolean): Stage {
  if (run === null) return "start";
  if (question !== undefined) return question.id === chosen ? "decide" : "open";
  return decided ? "see" : "coming";
}
