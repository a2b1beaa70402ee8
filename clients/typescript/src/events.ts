/**
 * What goes over the wire: HAI's events, outputs and messages.
 *
 * Where HAI is AG-UI, the types are those of `@ag-ui/core`. Only types are taken from there: nothing of it runs.
 */

import type * as agui from "@ag-ui/core";

/** An AG-UI type with its discriminator as plain text, as it stands in JSON. */
type OnWire<Event extends { type: agui.EventType }> = Omit<Event, "type"> & { type: `${Event["type"]}` };

interface Timed {
  /** Milliseconds since 1970. */
  timestamp?: number;
}

/** One operation of a JSON Patch (RFC 6902). */
export interface PatchOperation {
  op: "add" | "remove" | "replace" | "move" | "copy" | "test";
  path: string;
  value?: unknown;
  /** Read by `move` and `copy` only: HAI writes `""` for all others. */
  from?: string;
}

// --- messages -------------------------------------------------------------------------------------------------------

/** A message: AG-UI's, with the two fields that HAI adds. */
export type HaiMessage = agui.Message & {
  timestamp?: number;
  extra?: Record<string, unknown>;
};

export type RunAgentInput = Omit<agui.RunAgentInput, "messages"> & { messages: HaiMessage[] };

export type { ContentPart, Context, State, Tool, ToolCall, ToolMessage, UserMessage } from "@ag-ui/core";

// --- outputs --------------------------------------------------------------------------------------------------------

export interface TextOutput {
  type: "text";
  content: string;
}

export interface ThinkingOutput {
  type: "thinking";
  data: { content: string; elapsed?: number; thinking?: boolean; collapse?: boolean };
}

export interface FoldOutput {
  type: "fold";
  data: { title: string; fold?: boolean; position: "start" | "end" };
}

export interface ButtonOutput {
  type: "button";
  data: { name: string };
}

export interface IconOutput {
  type: "icon";
  data: { icon: string; color?: string };
}

export interface ToolCallShowOutput {
  type: "toolCallShow";
  id?: string;
  data: {
    title: string;
    icon?: string;
    tools: { id: string; name: string; description?: string; progress?: unknown }[];
  };
}

/** An output of an agent's own kind. */
export interface OtherOutput {
  type: string;
  [name: string]: unknown;
}

export type KnownOutput =
  | TextOutput
  | ThinkingOutput
  | FoldOutput
  | ButtonOutput
  | IconOutput
  | ToolCallShowOutput;

/** `isKnownOutput` narrows it. */
export type HaiOutput = KnownOutput | OtherOutput;

const KNOWN_OUTPUTS: { readonly [Type in KnownOutput["type"]]: "content" | "data" } = {
  text: "content",
  thinking: "data",
  fold: "data",
  button: "data",
  icon: "data",
  toolCallShow: "data",
};

/** Whether the output is of a kind that HAI describes, and has what that kind has. */
export function isKnownOutput(output: HaiOutput): output is KnownOutput {
  if (!Object.hasOwn(KNOWN_OUTPUTS, output.type)) return false;
  const field = KNOWN_OUTPUTS[output.type as KnownOutput["type"]];
  const value = (output as OtherOutput)[field];
  return field === "content" ? typeof value === "string" : typeof value === "object" && value !== null;
}

/** One document of a message. */
export interface HaiDocument {
  output: HaiOutput;
  layout?: { x?: number; y?: number; [name: string]: unknown };
  blockId?: string;
  style?: Record<string, unknown>;
}

// --- events ---------------------------------------------------------------------------------------------------------

export interface RunStartedEvent extends Timed {
  type: "RUN_STARTED";
  threadId?: string;
  runId?: string;
  messageId?: string;
  role?: string;
}

export interface RunFinishedEvent extends Timed {
  type: "RUN_FINISHED";
  threadId?: string;
  runId?: string;
  messageId?: string;
  role?: string;
  result?: unknown;
}

export type RunErrorEvent = OnWire<agui.RunErrorEvent>;
export type StepStartedEvent = OnWire<agui.StepStartedEvent>;
export type StepFinishedEvent = OnWire<agui.StepFinishedEvent>;

export interface BusinessDataStartEvent extends Timed {
  type: "BUSINESS_DATA_START";
  messageId: string;
  role?: string;
}

export interface BusinessDataContentEvent extends Timed {
  type: "BUSINESS_DATA_CONTENT";
  messageId: string;
  /** JSON text of one `HaiDocument`, a part of it, or bare text. */
  delta: string;
  blockId?: string;
  style?: Record<string, unknown>;
}

export interface BusinessDataEndEvent extends Timed {
  type: "BUSINESS_DATA_END";
  messageId: string;
  role?: string;
}

export interface AgentCollaborativeMessageStartEvent extends Timed {
  type: "AGENT_COLLABORATIVE_MESSAGE_START";
  from: string;
  to: string;
  messageId: string;
}

export interface AgentCollaborativeMessageContentEvent extends Timed {
  type: "AGENT_COLLABORATIVE_MESSAGE_CONTENT";
  messageId: string;
  /** JSON text: `{"task": {"id", "name"}}`. */
  delta: string;
}

export interface AgentCollaborativeMessageEndEvent extends Timed {
  type: "AGENT_COLLABORATIVE_MESSAGE_END";
  messageId: string;
}

export type ToolCallStartEvent = OnWire<agui.ToolCallStartEvent>;
export type ToolCallArgsEvent = OnWire<agui.ToolCallArgsEvent>;
export type ToolCallEndEvent = OnWire<agui.ToolCallEndEvent>;
export type ToolCallResultEvent = OnWire<agui.ToolCallResultEvent> & { error?: string };
export type StateSnapshotEvent = OnWire<agui.StateSnapshotEvent>;

export interface StateDeltaEvent extends Timed {
  type: "STATE_DELTA";
  delta: PatchOperation[];
}

export interface MessageSnapshotEvent extends Timed {
  /** HAI writes the first name in two places and the second in two others. */
  type: "MESSAGE_SNAPSHOT" | "MESSAGES_SNAPSHOT";
  messages: HaiMessage[];
}

export type CustomEvent = OnWire<agui.CustomEvent>;
export type RawEvent = OnWire<agui.RawEvent>;

export type HaiEvent =
  | RunStartedEvent
  | RunFinishedEvent
  | RunErrorEvent
  | StepStartedEvent
  | StepFinishedEvent
  | BusinessDataStartEvent
  | BusinessDataContentEvent
  | BusinessDataEndEvent
  | AgentCollaborativeMessageStartEvent
  | AgentCollaborativeMessageContentEvent
  | AgentCollaborativeMessageEndEvent
  | ToolCallStartEvent
  | ToolCallArgsEvent
  | ToolCallEndEvent
  | ToolCallResultEvent
  | StateSnapshotEvent
  | StateDeltaEvent
  | MessageSnapshotEvent
  | CustomEvent
  | RawEvent;

export type HaiEventType = HaiEvent["type"];

/** An event of any type, as it came. */
export interface AnyEvent {
  type: string;
  [name: string]: unknown;
}

// --- what HAI Flow says in CUSTOM events ----------------------------------------------------------------------------

/** CUSTOM `hai.pending`: a question to a person, for a client that advertised no tool for it. */
export interface PendingValue {
  id: string;
  kind: "approve" | "gate" | "ask" | "doubt";
  title?: string;
  message?: string;
  tool?: string;
  arguments?: unknown;
  /** What is to be judged, and what binds an answer to it: only for who may answer. */
  evidence?: unknown;
  digest?: string;
  form?: Record<string, unknown>;
  options?: string[];
  deadline?: string | number;
}

/** CUSTOM `hai.output`: what the run gave, before its RUN_FINISHED. */
export interface OutputValue {
  output: unknown;
}

/** CUSTOM `hai.status`: what RUN_FINISHED alone does not say. */
export interface StatusValue {
  status: "queued" | "paused" | "stopping" | "stopped" | "needs_attention";
  reason?: string;
}

// --- checking -------------------------------------------------------------------------------------------------------

type Check = "text" | "list" | "any";

/** What an event of each type must have, so that no callback finds it missing. Everything else is optional. */
const REQUIRED: { readonly [Type in HaiEventType]: Readonly<Record<string, Check>> } = {
  RUN_STARTED: {},
  RUN_FINISHED: {},
  RUN_ERROR: { message: "text" },
  STEP_STARTED: { stepName: "text" },
  STEP_FINISHED: { stepName: "text" },
  BUSINESS_DATA_START: { messageId: "text" },
  BUSINESS_DATA_CONTENT: { messageId: "text", delta: "text" },
  BUSINESS_DATA_END: { messageId: "text" },
  AGENT_COLLABORATIVE_MESSAGE_START: { from: "text", to: "text", messageId: "text" },
  AGENT_COLLABORATIVE_MESSAGE_CONTENT: { messageId: "text", delta: "text" },
  AGENT_COLLABORATIVE_MESSAGE_END: { messageId: "text" },
  TOOL_CALL_START: { toolCallId: "text", toolCallName: "text" },
  TOOL_CALL_ARGS: { toolCallId: "text", delta: "text" },
  TOOL_CALL_END: { toolCallId: "text" },
  TOOL_CALL_RESULT: { messageId: "text", toolCallId: "text", content: "any" },
  STATE_SNAPSHOT: { snapshot: "any" },
  STATE_DELTA: { delta: "list" },
  MESSAGE_SNAPSHOT: { messages: "list" },
  MESSAGES_SNAPSHOT: { messages: "list" },
  CUSTOM: { name: "text", value: "any" },
  RAW: { event: "any" },
};

/** The event, if this client knows its type; `undefined` for another type. A malformed one is described in `faults`. */
export function readEvent(event: AnyEvent): { event: HaiEvent | undefined; faults: string[] } {
  if (!Object.hasOwn(REQUIRED, event.type)) return { event: undefined, faults: [] };
  const read = withTextDelta(event);
  const faults = Object.entries(REQUIRED[event.type as HaiEventType])
    .filter(([name, check]) => !passes(read[name], check))
    .map(([name, check]) => `${event.type}: expected ${name} (${check}), found ${JSON.stringify(read[name])}`);
  return { event: read as unknown as HaiEvent, faults };
}

/** HAI's own builders show objects where its streams have their JSON text. */
function withTextDelta(event: AnyEvent): AnyEvent {
  const { delta } = event;
  const isObject = typeof delta === "object" && delta !== null && !Array.isArray(delta);
  return isObject ? { ...event, delta: JSON.stringify(delta) } : event;
}

function passes(value: unknown, check: Check): boolean {
  if (check === "text") return typeof value === "string";
  return check === "list" ? Array.isArray(value) : value !== undefined;
}
