// How wrong the clock of this device is, by what a server says of its own.

export const TOLERATED_MS = 60_000;

/** By how many ms this device is ahead of the server, whose answer of the time `date` (its header; null: it has none) was asked for at `sent` and came at
 * `now`. 0: by no more than a minute. null: it is not known. However long an answer takes, a slow line is no wrong clock. */
export function findAhead(date: string | null, sent: number, now: number): number | null {
  const at = Date.parse(date ?? "");
  if (Number.isNaN(at)) return null;
  if (sent - at > TOLERATED_MS) return sent - at;
  return at - now > TOLERATED_MS ? now - at : 0;
}
