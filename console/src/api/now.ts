// The time, told again often enough for what says "in 3 minutes": the server's, where the clock of this device is wrong.

import { useEffect, useState } from "react";

const TOLERATED_MS = 60_000;
const told = new Set<() => void>();
let ahead = 0;

const nowAtServer = (): number => Date.now() - ahead;

/** Take the time at which the server has answered (`Date`; null: it does not say). A slow line is no wrong clock. */
export function compareClock(date: string | null): void {
  const off = Date.now() - Date.parse(date ?? "");
  const found = Math.abs(off) > TOLERATED_MS ? off : 0;
  if (Number.isNaN(off) || Math.abs(found - ahead) <= TOLERATED_MS) return;
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
