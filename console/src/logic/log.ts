// What a run's log says beyond its snapshot: how long steps worked and waited, and which calls of tools there were.

import type { Json } from "../api/types.gen.ts";

export interface LogEvent {
  seq: number;
  type: string;
  at: number;
  turn: number;
  path?: string;
  [key: string]: Json | undefined;
}

export interface Interval {
  from: number;
  to: number;
}

export type StepEnd = "finished" | "failed" | "skipped" | "stopped" | null;

export interface StepSpan {
  path: string;
  verb: string;
  title: string;
  from: number;
  /** When it ended; while it has not, the moment that is looked at. */
  to: number;
  end: StepEnd;
  attempts: number;
  waits: Interval[];
  /** Whether other steps are inside it: then they do the work. */
  holds: boolean;
  seq: number;
}

const ENDS: Record<string, StepEnd> = {
  step_finished: "finished",
  step_failed: "failed",
  step_skipped: "skipped",
  step_stopped: "stopped",
};

/** The steps as of `now`, in the order in which they began. */
export function spansOf(events: readonly LogEvent[], now: number): StepSpan[] {
  const spans = new Map<string, StepSpan>();
  const waiting = new Map<string, { path: string; from: number }>();
  const held = new Set<string>();
  const close = (key: string, at: number): void => {
    const wait = waiting.get(key);
    if (wait === undefined) return;
    waiting.delete(key);
    if (at > wait.from) spans.get(wait.path)?.waits.push({ from: wait.from, to: at });
  };
  for (const event of events) {
    const path = event.path ?? "";
    if (event.type === "step_started" && path !== "") {
      for (const parent of parents(path)) held.add(parent);
      const before = spans.get(path);
      if (before) Object.assign(before, { end: null, attempts: before.attempts + 1 });
      else {
        spans.set(path, {
          path,
          verb: String(event["verb"] ?? ""),
          title: String(event["title"] ?? ""),
          from: event.at,
          to: now,
          end: null,
          attempts: 1,
          waits: [],
          holds: false,
          seq: event.seq,
        });
      }
    } else if (event.type === "attempt_started") {
      close(`retry ${path}`, event.at);
      const span = spans.get(path);
      if (span) span.attempts = Math.max(span.attempts, Number(event["attempt"] ?? 1));
    } else if (event.type === "pending_opened") waiting.set(`pending ${String(event["id"])}`, { path, from: event.at });
    else if (event.type === "pending_decided" || event.type === "pending_voided") close(`pending ${String(event["id"])}`, event.at);
    else if (event.type === "step_retried") waiting.set(`retry ${path}`, { path, from: event.at });
    else if (event.type === "timer_set" && event["kind"] === "wait") waiting.set(`wait ${path}`, { path, from: event.at });
    else if (event.type === "timer_fired" && event["kind"] === "wait") close(`wait ${path}`, event.at);
    else if (event.type === "signals_awaited") waiting.set(`signal ${path}`, { path, from: event.at });
    else if (event.type === "signal_received") close(`signal ${path}`, event.at);
    const end = ENDS[event.type];
    const span = end === undefined ? undefined : spans.get(path);
    if (span && end !== undefined) {
      for (const key of [...waiting.keys()]) if (waiting.get(key)?.path === path) close(key, event.at);
      Object.assign(span, { end, to: event.at });
    }
  }
  for (const key of [...waiting.keys()]) close(key, now);
  for (const span of spans.values()) span.holds = held.has(span.path);
  return [...spans.values()];
}

function parents(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(0, -1).flatMap((part, i) => {
    const upTo = parts.slice(0, i + 1).join("/");
    const bare = part.indexOf("[");
    return bare < 0 ? [upTo] : [upTo, [...parts.slice(0, i), part.slice(0, bare)].join("/")];
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

export interface ToolCall {
  id: string;
  name: string;
  path: string;
  at: number;
  args: string;
  result: string | null;
  error: string | null;
}

export function callsOf(events: readonly LogEvent[]): ToolCall[] {
  const calls = new Map<string, ToolCall>();
  for (const event of events) {
    const id = String(event["tool_call_id"] ?? "");
    if (event.type === "tool_call_started") {
      calls.set(id, { id, name: String(event["name"]), path: event.path ?? "", at: event.at, args: "", result: null, error: null });
    }
    const call = calls.get(id);
    if (call === undefined) continue;
    if (event.type === "tool_call_args_chunk") call.args += String(event["content"] ?? "");
    if (event.type === "tool_call_resolved") {
      call.result = String(event["content"] ?? "");
      call.error = typeof event["error"] === "string" ? event["error"] : null;
    }
  }
  return [...calls.values()];
}

export interface Used {
  calls: number;
  tokens: number;
  /** null: of some the cost is not known. */
  cost: number | null;
}

export function usedOf(events: readonly LogEvent[]): Used {
  const used: Used = { calls: 0, tokens: 0, cost: 0 };
  for (const event of events) {
    if (event.type !== "model_used") continue;
    const use = event["use"] as Record<string, Json>;
    used.calls += Number(use["calls"] ?? 1);
    used.tokens += Number(use["input"] ?? 0) + Number(use["output"] ?? 0);
    used.cost = used.cost === null || typeof use["cost"] !== "number" ? null : used.cost + use["cost"];
  }
  return used;
}

/** The events up to `seq`: they count from 1 without a gap, but one may not see all of them. */
export function upTo(events: readonly LogEvent[], seq: number): readonly LogEvent[] {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((events[middle]?.seq ?? 0) <= seq) low = middle + 1;
    else high = middle;
  }
  return low === events.length ? events : events.slice(0, low);
}
