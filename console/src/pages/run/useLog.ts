// The events of a run: the newest first, then those before, page by page, and each to come. Pages are small, and what they
// hold is taken in slices, so that no task is long; what comes fast is shown a few times in a second.

import { useEffect, useState } from "react";
import { type Connection, follow, get } from "../../api/client.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import type { EventsPage, Json } from "../../api/types.gen.ts";
import type { LogEvent } from "../../logic/event.ts";
import { Recorded } from "../../logic/record.ts";
import { inSlices } from "../../logic/slices.ts";

export interface RunLog {
  events: readonly LogEvent[];
  /** What else they say: until all are read, the newest of them. */
  recorded: Recorded;
  /** The newest seq that is known; 0 until the first page is there. */
  head: number;
  /** How many events have been read: they are shown when all are there. */
  read: number;
  /** Whether the newest events are there. */
  ready: boolean;
  /** Whether all of them are, or as many as are kept. */
  loaded: boolean;
  connection: Connection;
  problem: Problem | null;
}

const PAGE = 500;
const SHOWN_MS = 100;
const EVENTS_MAX = 50_000;
const EVENTS_MIN = 1_000;
const FINISHED = "run_finished"; // nothing comes behind it; one that failed or was stopped may be retried
const ENDED = new Set([FINISHED, "run_failed", "run_stopped"]);

/** How many of a log's events are kept, the newest: 50,000, or what this browser's storage says for a small machine. */
export function eventsKept(): number {
  const given = Number(localStorage.getItem("hai.events-kept") ?? EVENTS_MAX);
  return Number.isFinite(given) ? Math.min(EVENTS_MAX, Math.max(EVENTS_MIN, Math.round(given))) : EVENTS_MAX;
}

/** An event, with its time as a number. */
function eventOf(told: Record<string, Json>): LogEvent {
  told["at"] = Date.parse(String(told["at"]));
  return told as unknown as LogEvent;
}

/** The page of the log before an event, the oldest first; null: the newest page. */
export async function readBack(runId: string, before: number | string | null, signal?: AbortSignal): Promise<{ events: LogEvent[]; next: string | null }> {
  const found = await get<EventsPage>(`${eventsPath(runId)}?order=desc&limit=${PAGE}${before === null ? "" : `&before=${before}`}`, signal);
  return { events: found.items.map(eventOf).reverse(), next: found.next_cursor };
}

const eventsPath = (runId: string): string => `/v1/runs/${encodeURIComponent(runId)}/events`;

const NOTHING: Omit<RunLog, "recorded"> = { events: [], head: 0, read: 0, ready: false, loaded: false, connection: "connecting", problem: null };

/** `begins`: whether it is time to read them. */
export function useLog(runId: string, begins: boolean): RunLog {
  const [log, setLog] = useState<RunLog>(() => ({ ...NOTHING, recorded: new Recorded() }));
  useEffect(() => {
    const most = eventsKept();
    let events: LogEvent[] = [];
    let news: LogEvent[] = [];
    let head = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let stop = (): void => undefined;
    let gone = false;
    let recorded = new Recorded();
    const show = (more: Partial<RunLog>): void => {
      if (!gone) setLog((before) => ({ ...before, recorded, ...more, events, head }));
    };
    const add = (event: LogEvent): void => {
      if (event.seq <= head) return;
      head = event.seq;
      news.push(event);
      timer ??= setTimeout(() => {
        timer = undefined;
        events = kept([...events, ...news], most); // another list, so that what is shown sees that it has changed
        recorded.take(news);
        recorded.forget(events[0]?.seq ?? 0);
        news = [];
        show({});
      }, SHOWN_MS);
    };
    async function load(): Promise<void> {
      try {
        const newest = await readBack(runId, null);
        if (gone) return;
        events = newest.events;
        head = events.at(-1)?.seq ?? 0;
        recorded.take(events);
        begin();
        show({ ready: true, read: events.length, problem: null });
        // What came before is joined once: a list that grew with each page would be looked through as often.
        const pages: LogEvent[][] = [];
        let read = events.length;
        let held = 0;
        for (let next = newest.next; next !== null && held + events.length < most; ) {
          const page = await readBack(runId, next);
          if (gone) return;
          pages.push(page.events);
          held += page.events.length;
          read += page.events.length;
          next = page.next;
          show({ read });
        }
        const before = pages.reverse().flat();
        const since = events;
        const whole = new Recorded();
        if (!(await inSlices(before, (slice) => whole.take(slice), () => gone))) return;
        if (!(await inSlices(since, (slice) => whole.take(slice), () => gone))) return;
        whole.take(events); // what has come meanwhile; the others are passed over
        recorded = whole;
        // Where so many have come meanwhile that some of those are left out, what was before is left out as well.
        if (events[0]?.seq === newest.events[0]?.seq) events = kept([...before, ...events], most);
        recorded.forget(events[0]?.seq ?? 0);
        show({ ready: true, loaded: true, read, problem: null });
      } catch (error) {
        show({ problem: asProblem(error), connection: "lost" });
      }
    }
    const last = (): string => (news.at(-1) ?? events.at(-1))?.type ?? "";
    function begin(): void {
      if (last() === FINISHED) return show({ connection: "live" });
      stop = follow(
        eventsPath(runId),
        {
          onState: (connection, problem) => {
            show({ connection: ENDED.has(last()) ? "live" : connection, problem: problem ?? null });
            if (last() === FINISHED) stop();
          },
          onEvent: (name, data) => {
            if (name !== "cursor_reset") add(eventOf(data as Record<string, Json>));
          },
        },
        String(head),
      );
    }
    setLog({ ...NOTHING, recorded });
    if (begins) void load();
    return () => {
      gone = true;
      clearTimeout(timer);
      stop();
    };
  }, [runId, begins]);
  return log;
}

function kept(events: LogEvent[], most: number): LogEvent[] {
  return events.length > most ? events.slice(events.length - most) : events;
}
