// Which runs are shown, as the address says it.

import type { Run, RunCounts, Where } from "../../api/types.gen.ts";

export type Status = Run["status"];

const ALL = ["queued", "running", "waiting", "paused", "stopping", "needs_attention", "finished", "failed", "stopped"] as const;

export const PRESETS = {
  all: [],
  active: ["queued", "running", "waiting", "paused", "stopping", "needs_attention"],
  waiting: ["waiting"],
  failed: ["failed"],
  attention: ["needs_attention"],
  finished: ["finished"],
} as const satisfies Record<string, readonly Status[]>;

export type Preset = keyof typeof PRESETS;

export interface RunsSearch {
  preset?: Preset | undefined;
  /** The workflow's whole name, as links have it; `name` is a part of its name or title, as people type it. */
  workflow?: string | undefined;
  name?: string | undefined;
  version?: number | undefined;
  thread?: string | undefined;
  by?: string | undefined;
  error?: string | undefined;
  /** Created then or later, and before: times with their zone. */
  from?: string | undefined;
  until?: string | undefined;
}

export function runsSearch(given: Record<string, unknown>): RunsSearch {
  const text = (value: unknown): string | undefined => {
    const written = typeof value === "number" ? String(value) : value; // the address may hold a name of digits
    return typeof written === "string" && written !== "" ? written.slice(0, 300) : undefined;
  };
  const time = (value: unknown): string | undefined => (typeof value === "string" && !Number.isNaN(Date.parse(value)) ? new Date(value).toISOString() : undefined);
  const preset = (Object.keys(PRESETS) as Preset[]).find((each) => each === given["preset"]);
  const version = Number(given["version"]);
  const error = text(given["error"]);
  return {
    ...(preset && preset !== "all" && { preset }),
    workflow: text(given["workflow"]),
    name: text(given["name"])?.slice(0, 200),
    version: Number.isSafeInteger(version) && version >= 1 && version <= 999_999_999 ? version : undefined,
    thread: text(given["thread"]),
    by: text(given["by"]),
    error: error !== undefined && /^[a-zA-Z0-9_.-]{1,200}$/.test(error) ? error : undefined,
    from: time(given["from"]),
    until: time(given["until"]),
  };
}

/** The filter as the API takes it in a body. */
export function whereOf(search: RunsSearch): Where {
  const statuses = PRESETS[search.preset ?? "all"];
  return {
    ...(statuses.length > 0 && { status: [...statuses] }),
    ...(search.workflow && { workflow: search.workflow }),
    ...(search.name && { workflow_like: search.name }),
    ...(search.version && { version: search.version }),
    ...(search.thread && { thread_id: search.thread }),
    ...(search.by && { started_by: search.by.includes(":") ? search.by : `user:${search.by}` }),
    ...(search.error && { error: search.error }),
    ...(search.from && { created_after: search.from }),
    ...(search.until && { created_before: search.until }),
  };
}

/** The same as the parameters of a query; `without` some of them. */
export function whereQuery(search: RunsSearch, without: readonly (keyof Where)[] = []): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(whereOf(search))) {
    if (without.includes(name as keyof Where)) continue;
    for (const each of Array.isArray(value) ? value : [value]) query.append(name, String(each));
  }
  return query;
}

/** The query of a page of the list. */
export function runsQuery(search: RunsSearch, limit: number, cursor: string | null): string {
  const query = whereQuery(search);
  query.set("limit", String(limit));
  if (cursor) query.set("cursor", cursor);
  return query.toString();
}

/** How many runs each preset has; `max` or more is `max`. */
export function countOf(preset: Preset, { counts, max }: RunCounts): number {
  const statuses: readonly string[] = PRESETS[preset].length > 0 ? PRESETS[preset] : ALL;
  const numbers = statuses.map((status) => counts[status] ?? 0);
  return numbers.some((each) => each >= max) ? max : Math.min(max, numbers.reduce((sum, each) => sum + each, 0));
}

/** Whether nothing but the preset narrows the list. */
export function isPlain(search: RunsSearch): boolean {
  return Object.entries(search).every(([name, value]) => name === "preset" || value === undefined);
}

export const TONES: Record<Status | "new" | "skipped" | "undone", string> = {
  new: "",
  skipped: "",
  undone: "warn",
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
