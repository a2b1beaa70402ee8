// Those of many events that are looked for, found piece by piece: to look through thousands at once would hold the page up.

import { useEffect, useRef, useState } from "react";
import type { LogEvent } from "../../logic/event.ts";

const SLICE_MS = 12;

interface Search {
  matches: (event: LogEvent) => boolean;
  first: number | undefined;
  looked: number;
  found: LogEvent[];
}

/** null: all of them. `matches` is another function where something else is looked for. */
export function useMatching(events: readonly LogEvent[], matches: ((event: LogEvent) => boolean) | null): readonly LogEvent[] {
  const search = useRef<Search | null>(null);
  const [found, setFound] = useState<readonly LogEvent[]>([]);
  useEffect(() => {
    if (matches === null) {
      search.current = null;
      return;
    }
    const before = search.current;
    // What was looked through stays so while the list only grows.
    const goesOn = before !== null && before.matches === matches && before.first === events[0]?.seq && before.looked <= events.length;
    const here: Search = goesOn ? before : { matches, first: events[0]?.seq, looked: 0, found: [] };
    search.current = here;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      const began = performance.now();
      while (here.looked < events.length && performance.now() - began < SLICE_MS) {
        for (const end = Math.min(events.length, here.looked + 50); here.looked < end; here.looked++) {
          const event = events[here.looked];
          if (event && matches(event)) here.found.push(event);
        }
      }
      setFound(here.found.slice());
      if (here.looked < events.length) timer = setTimeout(look, 0);
    };
    look();
    return () => clearTimeout(timer);
  }, [events, matches]);
  return matches === null ? events : found;
}
