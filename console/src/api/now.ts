// The time, told again often enough for what says "in 3 minutes": the server's, where the clock of this device is wrong.

import { useEffect, useState } from "react";
import { TOLERATED_MS, findAhead } from "../logic/clock.ts";

const told = new Set<() => void>();
let ahead = 0;

export const nowAtServer = (): number => Date.now() - ahead;

/** Take the time at which the server has answered (`Date`) what was sent at `sent`. */
export function compareClock(date: string | null, sent: number): void {
  const found = findAhead(date, sent, Date.now());
  if (found === null || Math.abs(found - ahead) <= TOLERATED_MS) return;
  ahead = found;
  for (const tell of told) tell();
}

export function useNow(everyMs = 10_000): number {
  const [now, setNow] = useState(nowAtServer);
  useEffect(() => {
    const tell = (): void => setNow(nowAtServer());
    const timer = setInterval(tell, everyMs);
    told.add(tell);
    return () => {
      clearInterval(timer);
      told.delete(tell);
    };
  }, [everyMs]);
  return now;
}
