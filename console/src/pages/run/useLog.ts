// All events of a run: those that are there, page by page, then each as it comes. What comes fast is shown in frames.

import { useEffect, useState } from "react";
import { type Connection, follow, get } from "../../api/client.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import type { EventsPage, Json } from "../../api/types.gen.ts";
import type { LogEvent } from "../../logic/log.ts";

export interface RunLog {
  events: readonly LogEvent[];
  /** The newest seq that is known. */
  head: number;
  loaded: boolean;
  connection: Connection;
  problem: Problem | null;
}

const PAGE = 1000;
const EVENTS_MAX = 200_000;
const ENDED = new Set(["run_finished", "run_failed", "run_stopped"]);
/** An event, with its time as a number. */
function eventOf(told: Record<string, Json>): LogEvent {
  return { ...told, at: Date.parse(String(told["at"])) } as unknown as LogEvent;
}

const NOTHING: RunLog = { events: [], head: 0, loaded: false, connection: "connecting", problem: null };

export function useLog(runId: string): RunLog {
  const [log, setLog] = useState<RunLog>(NOTHING);
  useEffect(() => {
    let events: LogEvent[] = [];
    let frame = 0;
    let stop = (): void => undefined;
    let gone = false;
    const show = (more: Partial<RunLog>): void => {
      if (!gone) setLog((before) => ({ ...before, ...more, events, head: Math.max(before.head, events.at(-1)?.seq ?? 0) }));
    };
    const add = (event: LogEvent): void => {
      if (event.seq <= (events.at(-1)?.seq ?? 0) || events.length >= EVENTS_MAX) return;
      events.push(event);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        events = events.slice(); // another list, so that what is shown sees that it has changed
        show({});
      });
    };
    async function load(): Promise<void> {
      const path = `/v1/runs/${encodeURIComponent(runId)}/events`;
      try {
        for (let cursor: string | null = "0"; cursor !== null && !gone && events.length < EVENTS_MAX; ) {
          const page: EventsPage = await get<EventsPage>(`${path}?limit=${PAGE}&after=${cursor}`);
          events = [...events, ...page.items.map(eventOf)];
          cursor = page.next_cursor;
          show({});
        }
        show({ loaded: true, problem: null });
      } catch (error) {
        show({ problem: asProblem(error), connection: "lost" });
        return;
      }
      if (gone) return;
      stop = follow(
        path,
        {
          onState: (connection, problem) => {
            const over = ENDED.has(events.at(-1)?.type ?? "");
            show({ connection: over ? "live" : connection, problem: problem ?? null });
          },
          onEvent: (name, data) => {
            if (name !== "cursor_reset") add(eventOf(data as Record<string, Json>));
          },
        },
        String(events.at(-1)?.seq ?? 0),
      );
    }
    setLog(NOTHING);
    void load();
    return () => {
      gone = true;
      cancelAnimationFrame(frame);
      stop();
    };
  }, [runId]);
  return log;
}
