// What a run's page asks for first. It belongs to the console's first script: the page's own comes meanwhile.

import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { get } from "../../api/client.ts";
import type { Run, Snapshot } from "../../api/types.gen.ts";

export const runPath = (id: string): string => `/v1/runs/${encodeURIComponent(id)}`;

/** The run itself, as of its event `head` or later. */
export const runQuery = (id: string, head: number) =>
  queryOptions({ queryKey: ["run", id, head], queryFn: ({ signal }) => get<Run>(runPath(id), signal) });

/** The snapshot, and how many milliseconds the server took for it. */
export const snapshotQuery = (id: string, seq: number) =>
  queryOptions({
    queryKey: ["snapshot", id, seq],
    queryFn: async ({ signal }) => {
      const began = performance.now();
      const snapshot = await get<Snapshot>(`${runPath(id)}/snapshot?at=${seq}`, signal);
      return { snapshot, took: performance.now() - began };
    },
    staleTime: Infinity,
    gcTime: 20_000, // a slider leaves hundreds behind
  });

/** Asks for the run and its newest snapshot, before it is known who reads, and before the page itself is here. */
export async function askEarly(queries: QueryClient, id: string): Promise<void> {
  await queries.prefetchQuery(runQuery(id, 0));
  const run = queries.getQueryData(runQuery(id, 0).queryKey);
  if (run !== undefined) await queries.prefetchQuery(snapshotQuery(id, run.seq));
}

/** Asks for what the page at this address shows, if it is a run's. */
export function askAtOnce(queries: QueryClient): void {
  const id = /^\/console\/runs\/([0-9a-f-]{36})$/.exec(location.pathname)?.[1];
  if (id !== undefined) void askEarly(queries, id);
}
