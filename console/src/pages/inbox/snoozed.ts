// Questions that the reader has put off until tomorrow: this browser remembers them, nobody else is told.

import type { InboxItem } from "../../api/types.gen.ts";

const KEPT = "hai.snoozed";
const HOUR_MS = 3_600_000;

export type Snoozed = Readonly<Record<string, number>>;

/** Tomorrow at nine, by the reader's clock. */
export function tomorrow(now: number): number {
  const at = new Date(now);
  at.setDate(at.getDate() + 1);
  at.setHours(9, 0, 0, 0);
  return at.getTime();
}

/** Whether it may be put off: not where it would come back with less than an hour left. */
export function canWait(item: Pick<InboxItem, "deadline">, now: number): boolean {
  return item.deadline === null || new Date(item.deadline).getTime() - HOUR_MS > tomorrow(now);
}

/** Whether it is out of sight now. */
export function isSnoozed(snoozed: Snoozed, item: Pick<InboxItem, "id" | "deadline">, now: number): boolean {
  const until = snoozed[item.id];
  if (until === undefined || until <= now) return false;
  return item.deadline === null || new Date(item.deadline).getTime() - HOUR_MS > now; // it went to another stage since
}

export function readSnoozed(): Snoozed {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return typeof found === "object" && found !== null ? (found as Snoozed) : {};
  } catch {
    return {};
  }
}

/** Puts a question off, or brings it back; what came back by itself is forgotten. */
export function snooze(id: string, until: number | null, now: number): Snoozed {
  const left = Object.entries(readSnoozed()).filter(([each, at]) => each !== id && at > now);
  const all = Object.fromEntries(until === null ? left : [...left, [id, until]]);
  localStorage.setItem(KEPT, JSON.stringify(all));
  return all;
}
