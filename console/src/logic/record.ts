// What a log says beyond snapshots, kept as it comes: calls of tools and models, and work handed to others. Each event is
// looked at once; how it stood at an earlier moment is read from the same lists.

import type { Json } from "../api/types.gen.ts";
import { isObject } from "./json.ts";
import type { LogEvent } from "./event.ts";

export interface ToolCall {
  id: string;
  name: string;
  path: string;
  executor: string;
  seq: number;
  at: number;
  args: string;
  result: string | null;
  error: string | null;
}

export interface ModelCall {
  seq: number;
  at: number;
  path: string;
  attempt: number;
  model: string;
  served: string;
  provider: string;
  input: number;
  output: number;
  cached: number;
  reasoning: number;
  /** In US dollars; null: not known. */
  cost: number | null;
  calls: number;
  estimated: boolean;
  repair: boolean;
}

export interface Handover {
  seq: number;
  at: number;
  path: string;
  from: string;
  to: string;
  task: Json;
  runId: string | null;
  ended: boolean;
}

interface CallRecord extends Omit<ToolCall, "args" | "result" | "error"> {
  pieces: { seq: number; text: string }[];
  resolved: { seq: number; result: string; error: string | null } | null;
}

interface HandoverRecord extends Omit<Handover, "ended"> {
  endedSeq: number;
}

export class Recorded {
  #calls = new Map<string, CallRecord>();
  #handovers: HandoverRecord[] = [];
  #uses: ModelCall[] = [];
  #last = 0;

  /** The next events, in their order. Those that were there before are passed over. */
  take(events: readonly LogEvent[]): void {
    for (let i = after(events, this.#last); i < events.length; i++) {
      const event = events[i];
      if (event) this.#one(event);
    }
    this.#last = Math.max(this.#last, events.at(-1)?.seq ?? 0);
  }

  /** What began before this event is told of no more: memory holds no more than the events that are kept say. */
  forget(first: number): void {
    for (const [id, call] of this.#calls) {
      if (call.seq >= first) break; // they are in the order in which they began
      this.#calls.delete(id);
    }
    this.#handovers = this.#handovers.slice(after(this.#handovers, first - 1));
    this.#uses = this.#uses.slice(after(this.#uses, first - 1));
  }

  #one(event: LogEvent): void {
    switch (event.type) {
      case "tool_call_started": {
        const id = text(event["tool_call_id"]);
        const path = event.path ?? "";
        this.#calls.set(id, { id, name: text(event["name"]), path, executor: text(event["executor"]), seq: event.seq, at: event.at, pieces: [], resolved: null });
        break;
      }
      case "tool_call_args_chunk":
        this.#calls.get(text(event["tool_call_id"]))?.pieces.push({ seq: event.seq, text: text(event["content"]) });
        break;
      case "tool_call_resolved": {
        const call = this.#calls.get(text(event["tool_call_id"]));
        const error = event["error"];
        if (call) call.resolved = { seq: event.seq, result: text(event["content"]), error: typeof error === "string" ? error : null };
        break;
      }
      case "model_used":
        if (isObject(event["use"])) this.#uses.push(modelCall(event, event["use"]));
        break;
      case "collaboration_started": {
        const { path = "", at, seq } = event;
        const runId = typeof event["run_id"] === "string" ? event["run_id"] : null;
        this.#handovers.push({ seq, at, path, from: text(event["from"]), to: text(event["to"]), task: event["task"] ?? null, runId, endedSeq: Infinity });
        break;
      }
      case "collaboration_ended": {
        const open = this.#handovers.findLast((each) => each.path === event.path && each.to === event["to"] && each.endedSeq === Infinity);
        if (open) open.endedSeq = event.seq;
      }
    }
  }

  callsAt(seq: number): ToolCall[] {
    const found: ToolCall[] = [];
    for (const { pieces, resolved, ...call } of this.#calls.values()) {
      if (call.seq > seq) break; // they are in the order in which they began
      const done = resolved !== null && resolved.seq <= seq ? resolved : null;
      const args = pieces.filter((each) => each.seq <= seq).map((each) => each.text).join("");
      found.push({ ...call, args, result: done?.result ?? null, error: done?.error ?? null });
    }
    return found;
  }

  handoversAt(seq: number): Handover[] {
    return this.#handovers.filter((each) => each.seq <= seq).map(({ endedSeq, ...each }) => ({ ...each, ended: endedSeq <= seq }));
  }

  modelCallsAt(seq: number): ModelCall[] {
    return this.#uses.filter((each) => each.seq <= seq);
  }
}

function modelCall(event: LogEvent, use: Record<string, Json>): ModelCall {
  const number = (name: string): number => (typeof use[name] === "number" ? use[name] : 0);
  return {
    seq: event.seq,
    at: event.at,
    path: event.path ?? "",
    attempt: Number(event["attempt"] ?? 1),
    model: text(use["model"]),
    served: text(use["served"]),
    provider: text(use["provider"]),
    input: number("input"),
    output: number("output"),
    cached: number("cached"),
    reasoning: number("reasoning"),
    cost: typeof use["cost"] === "number" ? use["cost"] : null,
    calls: typeof use["calls"] === "number" ? use["calls"] : 1,
    estimated: use["estimated"] === true,
    repair: use["repair"] === true,
  };
}

/** The place of the first event after `seq`, or of the first of what events have told. */
export function after(events: readonly { seq: number }[], seq: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((events[middle]?.seq ?? 0) <= seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value);
}
