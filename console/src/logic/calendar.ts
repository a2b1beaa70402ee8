// How far off a moment is, as people count: below half a day in hours and minutes, beyond it in days of the calendar.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

export interface Distance {
  unit: "day" | "hour" | "minute" | "second";
  /** Negative: it is over. */
  n: number;
}

/** From `now` to `at`, both ms since 1970; days are those of this machine's zone. */
export function distance(at: number, now: number): Distance {
  const ms = at - now;
  const off = Math.abs(ms);
  if (off < MINUTE - 500) return { unit: "second", n: Math.round(ms / 1000) };
  if (off < HOUR - MINUTE / 2) return { unit: "minute", n: Math.round(ms / MINUTE) };
  const days = dayOf(at) - dayOf(now);
  if (off < 12 * HOUR || days === 0) return { unit: "hour", n: Math.round(ms / HOUR) };
  return { unit: "day", n: days };
}

function dayOf(at: number): number {
  const date = new Date(at);
  return Math.round(Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / 86_400_000);
}
