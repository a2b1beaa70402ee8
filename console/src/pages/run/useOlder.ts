// Events from before those that are kept: a stretch of the log at a time, in whose place the next one comes.

import { useCallback, useEffect, useState } from "react";
import type { Problem } from "../../api/problems.ts";
import type { LogEvent } from "../../logic/event.ts";
import { useSending } from "../../parts/useSending.ts";
import { readBack } from "./useLog.ts";

const STRETCH = 2_000;

export interface Older {
  /** null: the newest are shown. */
  events: readonly LogEvent[] | null;
  busy: boolean;
  problem: Problem | null;
  /** Shows the stretch that ends before this event. */
  read(before: number): void;
  /** Shows the newest again. */
  leave(): void;
}

/**
 * `first`: the first event that is kept; it moves on while the run does. `at`: the moment that is looked at, null: now. A moment
 * before `first` has its stretch read by itself, and another one ends what was read for the one before.
 */
export function useOlder(runId: string, first: number, at: number | null): Older {
  const [events, setEvents] = useState<readonly LogEvent[] | null>(null);
  const { busy, problem, send, stop, say } = useSending();
  const leave = useCallback((): void => {
    stop();
    say(null);
    setEvents(null);
  }, [stop, say]);
  const read = useCallback(
    (before: number): void => {
      stop();
      void send(async (signal) => {
        const found = await stretch(runId, before, signal);
        if (!signal.aborted) setEvents(found);
      });
    },
    [runId, send, stop],
  );
  const before = at !== null && at < first;
  useEffect(() => {
    if (!before) return leave();
    const timer = setTimeout(() => read(at + 1), 150); // a slider passes many places
    return () => clearTimeout(timer);
  }, [at, before, read, leave]);
  return { events, busy, problem, read, leave };
}

async function stretch(runId: string, before: number, signal: AbortSignal): Promise<LogEvent[]> {
  let found: LogEvent[] = [];
  for (let next: string | null = String(Math.max(1, before)); next !== null && found.length < STRETCH; ) {
    const page = await readBack(runId, next, signal);
    found = [...page.events, ...found];
    next = page.next;
  }
  return found;
}
