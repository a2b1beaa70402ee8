// A run at one moment, as the server says it: its snapshot and its steps. What has happened does not change, so each moment
// is asked for once.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../api/client.ts";
import type { EventsPage, Graph, Run, RunStep, StepPage, Version, Workflow } from "../../api/types.gen.ts";
import type { LogEvent } from "../../logic/event.ts";
import { versionAt } from "../../logic/log.ts";
import { referenceOf } from "../../logic/versions.ts";
import { runPath, snapshotQuery } from "./early.ts";

const PAGE = 500; // read in pieces that a browser takes in at once
const STEPS_MAX = 20_000;

export function useSnapshot(id: string, seq: number, enabled: boolean) {
  const found = useQuery({ ...snapshotQuery(id, seq), enabled, placeholderData: keepPreviousData });
  return { ...found, data: found.data?.snapshot, took: found.data?.took ?? 0 };
}

/**
 * Up to 20,000 passages through steps, the oldest first; of a long run those that are read, until all are (`whole`).
 * `newest`: of each step of the plan only its newest passage, and how many there were.
 */
export function useSteps(id: string, seq: number, newest: boolean, enabled: boolean) {
  const [part, setPart] = useState<{ seq: number; steps: RunStep[] } | null>(null);
  const found = useQuery({
    queryKey: ["steps", id, seq, newest],
    queryFn: async ({ signal }) => {
      const steps: RunStep[] = [];
      for (let cursor: string | null = "0"; cursor !== null && steps.length < STEPS_MAX; ) {
        const page: StepPage = await get<StepPage>(`${runPath(id)}/steps?at=${seq}&limit=${PAGE}&after=${cursor}${newest ? "&newest=true" : ""}`, signal);
        for (const step of page.items) steps.push(step);
        cursor = page.next_cursor;
        if (cursor !== null) setPart({ seq, steps: [...steps] });
      }
      return steps;
    },
    enabled,
    staleTime: Infinity,
    gcTime: 20_000,
    placeholderData: keepPreviousData,
  });
  return { ...found, data: found.data ?? (part?.seq === seq ? part.steps : undefined), whole: found.data !== undefined };
}

/** The version under which the run stood after an event (null: now): a migration gave it another. undefined: not known yet. */
export function useVersion(id: string, run: Run | undefined, seq: number | null, enabled: boolean): Version | undefined {
  const now = run && referenceOf(run.workflow, run.version);
  const found = useQuery({
    queryKey: ["versions", id, now],
    queryFn: async ({ signal }) => {
      const changes: LogEvent[] = [];
      for (let after: string | null = "0"; after !== null; ) {
        const page: EventsPage = await get<EventsPage>(`${runPath(id)}/events?type=run_started&type=migrated&limit=1000&after=${after}`, signal);
        changes.push(...(page.items as unknown as LogEvent[]));
        after = page.next_cursor;
      }
      return changes;
    },
    enabled: enabled && run !== undefined && seq !== null,
  });
  if (run === undefined || seq === null || found.error) return run?.version;
  return found.data && (versionAt(found.data, seq) ?? run.version);
}

const workflowPath = (reference: string): string => `/v1/workflows/${encodeURIComponent(reference)}`;

export function useGraph(reference: string, enabled: boolean) {
  return useQuery({
    queryKey: ["graph", reference],
    queryFn: ({ signal }) => get<Graph>(`${workflowPath(reference)}/graph?format=json`, signal),
    enabled,
    staleTime: Infinity,
  });
}

export function useWorkflow(reference: string, enabled: boolean) {
  return useQuery({
    queryKey: ["workflow", reference],
    queryFn: ({ signal }) => get<Workflow>(workflowPath(reference), signal),
    enabled,
    staleTime: 60_000,
  });
}

/** The path in the plan of a step that stands at `path` in a run. */
export function planPathOf(path: string): string {
  return path.replaceAll(/\[[^\]]*\]/g, "[]");
}
