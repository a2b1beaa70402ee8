// A conversation over AG-UI as its events tell it: what was said, which tools of the frontend were called, how it stands.

import type { Json } from "../api/types.gen.ts";
import { isObject } from "./json.ts";

export interface Said {
  kind: "user" | "assistant" | "thinking";
  id: string;
  text: string;
}

export interface Called {
  kind: "call";
  id: string;
  name: string;
  args: string;
  ended: boolean;
  result: string | null;
  /** The question that asks people about the call, where it has an id of its own: a call of an agent that waits for an approval. */
  question?: string;
}

export type Entry = Said | Called;

export interface Talk {
  entries: Entry[];
  state: Json;
  status: "new" | "running" | "waiting" | "ended" | "failed";
  error: string;
  /** Of the failure. */
  code: string;
}

export const SILENT: Talk = { entries: [], state: null, status: "new", error: "", code: "" };

type Event = Record<string, Json>;

const textOf = (value: Json | undefined): string => (typeof value === "string" ? value : "");

/** The conversation after a further event. Events that it does not know change nothing. */
export function told(talk: Talk, event: Event): Talk {
  const id = textOf(event["messageId"] ?? event["toolCallId"]);
  switch (event["type"]) {
    case "RUN_STARTED":
      return { ...talk, status: "running", error: "", code: "" };
    case "RUN_FINISHED": {
      const asked = interruptsOf(event["outcome"]).reduce(questioned, talk);
      return { ...asked, status: unanswered(asked).length > 0 ? "waiting" : "ended" };
    }
    case "RUN_ERROR":
      return { ...talk, status: "failed", error: textOf(event["message"]), code: textOf(event["code"]) };
    case "TEXT_MESSAGE_START":
      return put(talk, { kind: event["role"] === "user" ? "user" : "assistant", id, text: "" });
    case "TEXT_MESSAGE_CONTENT":
    case "TEXT_MESSAGE_CHUNK":
      return grown(put(talk, { kind: "assistant", id, text: "" }), id, textOf(event["delta"]));
    case "THINKING_TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return grown(put(talk, { kind: "thinking", id: `thinking ${id}`, text: "" }), `thinking ${id}`, textOf(event["delta"]));
    case "TOOL_CALL_START":
      return put(talk, { kind: "call", id, name: textOf(event["toolCallName"]), args: "", ended: false, result: null });
    case "TOOL_CALL_ARGS":
      return changed(talk, id, (each) => (each.kind === "call" ? { ...each, args: each.args + textOf(event["delta"]) } : each));
    case "TOOL_CALL_END":
      return changed(talk, id, (each) => (each.kind === "call" ? { ...each, ended: true } : each));
    case "TOOL_CALL_RESULT":
      return answered(talk, textOf(event["toolCallId"]), textOf(event["content"]));
    case "STATE_SNAPSHOT":
      return { ...talk, state: event["snapshot"] ?? null };
    case "MESSAGES_SNAPSHOT":
      return Array.isArray(event["messages"]) ? event["messages"].filter(isObject).reduce(remembered, talk) : talk;
    default:
      return talk;
  }
}

function interruptsOf(outcome: Json | undefined): Event[] {
  const interrupts = isObject(outcome) ? outcome["interrupts"] : null;
  return Array.isArray(interrupts) ? interrupts.filter(isObject) : [];
}

/** A question at which the run waits: about a call that was told, or one that nothing was told of. */
function questioned(talk: Talk, interrupt: Event): Talk {
  const question = textOf(interrupt["id"]);
  const id = textOf(interrupt["toolCallId"]) || question;
  if (question === "") return talk;
  const named: Called = { kind: "call", id, name: textOf(interrupt["message"]), args: "", ended: true, result: null };
  return changed(put(talk, named), id, (each) => (each.kind === "call" ? { ...each, ended: true, question } : each));
}

/** A message of an earlier turn. */
function remembered(talk: Talk, message: Event): Talk {
  const id = textOf(message["id"]);
  if (message["role"] === "tool") return answered(talk, textOf(message["toolCallId"]), textOf(message["content"]));
  const kind = message["role"] === "user" ? "user" : "assistant";
  const text = textOf(message["content"]);
  const said = text === "" ? talk : changed(put(talk, { kind, id, text }), id, (each) => ({ ...each, text }) as Entry);
  const calls = Array.isArray(message["toolCalls"]) ? message["toolCalls"].filter(isObject) : [];
  return calls.reduce((before, call) => {
    const called = isObject(call["function"]) ? call["function"] : {};
    const args = textOf(called["arguments"]);
    return put(before, { kind: "call", id: textOf(call["id"]), name: textOf(called["name"]), args, ended: true, result: null });
  }, said);
}

export function answered(talk: Talk, id: string, result: string): Talk {
  return changed(talk, id, (each) => (each.kind === "call" ? { ...each, ended: true, result } : each));
}

/** The calls that wait for an answer. */
export function unanswered(talk: Talk): Called[] {
  return talk.entries.filter((each): each is Called => each.kind === "call" && each.ended && each.result === null);
}

function put(talk: Talk, entry: Entry): Talk {
  return talk.entries.some((each) => each.id === entry.id) ? talk : { ...talk, entries: [...talk.entries, entry] };
}

function grown(talk: Talk, id: string, more: string): Talk {
  return changed(talk, id, (each) => (each.kind === "call" ? each : { ...each, text: each.text + more }));
}

function changed(talk: Talk, id: string, change: (entry: Entry) => Entry): Talk {
  return { ...talk, entries: talk.entries.map((each) => (each.id === id ? change(each) : each)) };
}
