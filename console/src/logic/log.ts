// What a run's log says beyond its snapshot: how long steps worked and waited, and which calls of tools there were.

import type { RunStep, Version } from "../api/types.gen.ts";
import type { LogEvent } from "./event.ts";
import { after } from "./record.ts";

export interface Interval {
  from: number;
  to: number;
}

export interface StepSpan {
  path: string;
  planPath: string;
  verb: string;
  title: string;
  from: number;
  /** When it ended; while it has not, the moment that is looked at. */
  to: number;
  status: RunStep["status"];
  attempts: number;
  waits: Interval[];
  /** Whether other steps are inside it: then they do the work. */
  holds: boolean;
  seq: number;
}

/** The server's steps, as of `now`, with their times as numbers. */
export function spansOf(steps: readonly RunStep[], now: number): StepSpan[] {
  const held = new Set<string>();
  for (const step of steps) for (const parent of parents(step.path)) held.add(parent);
  const time = (at: string | null): number => (at === null ? now : Math.min(now, Date.parse(at)));
  return steps.map((step) => ({
    path: step.path,
    planPath: step.plan_path,
    verb: step.verb,
    title: step.title ?? "",
    from: time(step.started_at),
    to: time(step.ended_at),
    status: step.status,
    attempts: step.attempts.length,
    waits: step.waits.map((wait) => ({ from: time(wait.since), to: time(wait.until) })).filter((wait) => wait.to > wait.from),
    holds: held.has(step.path),
    seq: step.first_seq,
  }));
}

/** The steps around a step: `each[1]/say` is inside the iteration `each[1]` and the loop `each`. */
function parents(path: string): string[] {
  const found: string[] = [];
  for (let i = path.lastIndexOf("/"); i > 0; i = path.lastIndexOf("/", i - 1)) found.push(path.slice(0, i));
  return [...found, path].flatMap((each) => {
    const loop = each.endsWith("]") ? each.slice(0, each.lastIndexOf("[")) : null;
    return each === path ? (loop === null ? [] : [loop]) : loop === null ? [each] : [each, loop];
  });
}

/** The time in which a step worked: all but its waits. */
export function workOf(span: StepSpan): Interval[] {
  const work: Interval[] = [];
  let from = span.from;
  for (const wait of [...span.waits].sort((a, b) => a.from - b.from)) {
    if (wait.from > from) work.push({ from, to: wait.from });
    from = Math.max(from, wait.to);
  }
  if (span.to > from || work.length === 0) work.push({ from, to: Math.max(from, span.to) });
  return work;
}

export function lengthOf(intervals: readonly Interval[]): number {
  return intervals.reduce((sum, each) => sum + each.to - each.from, 0);
}

export interface Axis {
  /** Where a moment stands, from 0 to 1. */
  x(at: number): number;
  /** The stretches without work that are drawn short: where, and how long they really were. */
  folds: { x: number; ms: number }[];
}

const FOLD_SHARE = 0.04;

/** An axis on which a long time without any work takes little room, so that the work can be seen. */
export function axisOf(spans: readonly StepSpan[]): Axis {
  const leaves = spans.filter((span) => !span.holds);
  const busy = merged(leaves.flatMap(workOf));
  const first = Math.min(...spans.map((span) => span.from));
  const last = Math.max(...spans.map((span) => span.to));
  if (!Number.isFinite(first) || last <= first) return { x: () => 0, folds: [] };
  const worked = lengthOf(busy);
  const gaps = busy.slice(1).map((each, i) => ({ from: busy[i]?.to ?? first, to: each.from }));
  const edges = [
    { from: first, to: busy[0]?.from ?? last },
    ...gaps,
    { from: busy.at(-1)?.to ?? last, to: last },
  ];
  const most = Math.max(1000, worked * 0.5);
  const folded = edges.filter((gap) => gap.to - gap.from > most);
  const shown = last - first - lengthOf(folded);
  const width = Math.min(FOLD_SHARE, 0.5 / Math.max(1, folded.length));
  const scale = (1 - width * folded.length) / Math.max(1, shown);
  const x = (at: number): number => {
    let place = (Math.min(Math.max(at, first), last) - first) * scale;
    for (const fold of folded) {
      const inside = Math.min(Math.max(at - fold.from, 0), fold.to - fold.from);
      place += (inside / (fold.to - fold.from)) * width - inside * scale;
    }
    return Math.min(1, Math.max(0, place));
  };
  return { x, folds: folded.map((fold) => ({ x: x((fold.from + fold.to) / 2), ms: fold.to - fold.from })) };
}

function merged(intervals: Interval[]): Interval[] {
  const result: Interval[] = [];
  for (const each of [...intervals].sort((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last && each.from <= last.to) last.to = Math.max(last.to, each.to);
    else result.push({ ...each });
  }
  return result;
}

/** The events up to `seq`: they count from 1 without a gap, but one may not see all of them. */
export function upTo(events: readonly LogEvent[], seq: number): readonly LogEvent[] {
  const end = after(events, seq);
  return end === events.length ? events : events.slice(0, end);
}

/** When the run had come to `seq`; undefined: no event that is kept says it. */
export function timeAt(events: readonly LogEvent[], seq: number): number | undefined {
  return events[after(events, seq) - 1]?.at;
}

/** The version under which a run stood after an event, of those that gave it one; null: none of them had yet. */
export function versionAt(changes: readonly LogEvent[], seq: number): Version | null {
  const last = changes.findLast((each) => each.seq <= seq) ?? changes[0];
  if (!last || typeof last["version"] !== "number" || typeof last["sha256"] !== "string") return null;
  return { version: last["version"], sha256: last["sha256"], dev: last["dev"] === true };
}

/** What a plan's step has come to, of all passages through it. */
export interface Passed {
  /** What the newest passage has come to; `waiting` while it waits. */
  tone: RunStep["status"] | "waiting";
  count: number;
  counts: Partial<Record<RunStep["status"], number>>;
  newest: RunStep;
}

/** The steps of the plan through which the run has passed. */
export function passedOf(steps: readonly RunStep[]): Map<string, Passed> {
  const found = new Map<string, Passed>();
  for (const step of steps) {
    if (step.verb === "iteration") continue;
    const waits = step.status === "running" && step.waits.some((wait) => wait.until === null);
    const before = found.get(step.plan_path);
    const counts: Passed["counts"] = { ...before?.counts };
    const passages = Object.entries(step.passages ?? { [step.status]: 1 }) as [RunStep["status"], number][];
    for (const [status, n] of passages) counts[status] = (counts[status] ?? 0) + n;
    const count = passages.reduce((sum, [, n]) => sum + n, before?.count ?? 0);
    const tone = waits ? "waiting" : step.status;
    // One that is still going on says more than one that has ended beside it.
    const stays = before !== undefined && ["running", "waiting"].includes(before.tone) && tone !== "running" && tone !== "waiting";
    found.set(step.plan_path, { tone: stays ? before.tone : tone, count, counts, newest: stays ? before.newest : step });
  }
  return found;
}
