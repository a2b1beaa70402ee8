// Which runs are shown, as the address says it.

import type { Run } from "../../api/types.gen.ts";

export type Status = Run["status"];

export const PRESETS = {
  all: [],
  active: ["queued", "running", "waiting", "paused", "stopping", "needs_attention"],
  waiting: ["waiting"],
  failed: ["failed"],
  attention: ["needs_attention"],
} as const satisfies Record<string, readonly Status[]>;

export type Preset = keyof typeof PRESETS;

export interface RunsSearch {
  preset?: Preset | undefined;
  workflow?: string | undefined;
  thread?: string | undefined;
}

export function runsSearch(given: Record<string, unknown>): RunsSearch {
  const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);
  const preset = (Object.keys(PRESETS) as Preset[]).find((each) => each === given["preset"]);
  return { ...(preset && { preset }), workflow: text(given["workflow"]), thread: text(given["thread"]) };
}

/** The query of the API. */
export function runsQuery(search: RunsSearch, limit: number, cursor: string | null): string {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const status of PRESETS[search.preset ?? "all"]) query.append("status", status);
  if (search.workflow) query.set("workflow", search.workflow);
  if (search.thread) query.set("thread_id", search.thread);
  if (cursor) query.set("cursor", cursor);
  return query.toString();
}

export const TONES: Record<Status | "new", string> = {
  new: "",
  queued: "",
  running: "accent",
  waiting: "warn",
  paused: "warn",
  stopping: "warn",
  needs_attention: "bad",
  finished: "good",
  failed: "bad",
  stopped: "",
};
