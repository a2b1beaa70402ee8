/**
 * A thread as a fold of its events. Pure: `reduce` returns a new view and changes nothing, so the holder of a view may
 * keep it.
 */

import type {
  HaiEvent,
  HaiMessage,
  MessageSnapshotEvent,
  OutputValue,
  PendingValue,
  State,
  StatusValue,
  ToolCall,
  ToolCallResultEvent,
  ToolCallStartEvent,
} from "./events.js";
import { applyPatch } from "./patch.js";
import { answeredIds, asksPerson, pendingOfCall, pendingOfValue, unansweredCalls, type Pending } from "./pendings.js";

export interface ThreadView {
  readonly messages: readonly HaiMessage[];
  readonly state: State;
  /** The steps that are under way, in the order in which they began. */
  readonly steps: readonly string[];
  /** The state in which the last turn ended: `stopped`, `paused`, ... */
  readonly status: StatusValue | undefined;
  /** The run's output (CUSTOM `hai.output`), once it has one. */
  readonly output: OutputValue | undefined;
  /** Questions that came without a call (CUSTOM `hai.pending`). */
  readonly asked: readonly PendingValue[];
  /** Calls whose arguments still stream. */
  readonly streaming: ReadonlySet<string>;
  /** Calls without an answer whose run is over: no answer is waited for any more. */
  readonly abandoned: ReadonlySet<string>;
}

export function emptyThread(messages: readonly HaiMessage[], state: State): ThreadView {
  const nothing = { steps: [], status: undefined, output: undefined, asked: [] };
  return { messages, state, ...nothing, streaming: new Set(), abandoned: new Set() };
}

/** The error code of a stream that ends because its server must, while the run goes on. */
export const SERVER_CLOSING = "server_closing";

/**
 * The thread after `event`. `isUnsent` tells which messages the server can't know yet: a snapshot keeps those. Throws
 * `PatchError` for a STATE_DELTA that does not apply.
 */
export function reduce(view: ThreadView, event: HaiEvent, isUnsent: (message: HaiMessage) => boolean): ThreadView {
  switch (event.type) {
    case "RUN_STARTED":
      return { ...view, steps: [], status: undefined, output: undefined, streaming: new Set() };
    case "RUN_FINISHED":
      return view.output || view.status?.status === "stopped" ? abandon(view) : { ...view, steps: [] };
    case "RUN_ERROR":
      return event.code === SERVER_CLOSING ? view : abandon(view);
    case "STEP_STARTED":
      return { ...view, steps: [...view.steps, event.stepName] };
    case "STEP_FINISHED":
      return { ...view, steps: view.steps.filter((step) => step !== event.stepName) };
    case "BUSINESS_DATA_START":
      return withMessage(view, event.messageId, event.role, event.timestamp, (message) => message);
    case "BUSINESS_DATA_CONTENT":
      return withMessage(view, event.messageId, undefined, event.timestamp, (message) => appended(message, event.delta));
    case "TOOL_CALL_START":
      return { ...withCall(view, event), streaming: new Set([...view.streaming, event.toolCallId]) };
    case "TOOL_CALL_ARGS":
      return changeCall(view, event.toolCallId, (call) => withArguments(call, call.function.arguments + event.delta));
    case "TOOL_CALL_END":
      return { ...view, streaming: new Set([...view.streaming].filter((id) => id !== event.toolCallId)) };
    case "TOOL_CALL_RESULT":
      return withResult(view, event);
    case "STATE_SNAPSHOT":
      return { ...view, state: event.snapshot };
    case "STATE_DELTA":
      return { ...view, state: applyPatch(view.state, event.delta) };
    case "MESSAGE_SNAPSHOT":
    case "MESSAGES_SNAPSHOT":
      return restated(view, event, isUnsent);
    case "CUSTOM":
      return custom(view, event.name, event.value);
    default: // business data that ends, collaboration, RAW: nothing to remember
      return view;
  }
}

/** The open pendings. While the run goes on, a call that has no answer may be one the server performs. */
export function pendingsOf(view: ThreadView, running: boolean, frontendTools: ReadonlySet<string>): Pending[] {
  const answered = answeredIds(view.messages);
  const calls = unansweredCalls(view.messages)
    .filter(({ id }) => !view.streaming.has(id) && !view.abandoned.has(id))
    .filter(({ function: { name } }) => !running || frontendTools.has(name) || asksPerson(name))
    .map(pendingOfCall);
  return [...calls, ...view.asked.filter(({ id }) => !answered.has(id)).map(pendingOfValue)];
}

/** The call of this id, wherever it hangs. */
export function callOf(view: ThreadView, id: string): ToolCall | undefined {
  return view.messages
    .flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))
    .find((call) => call.id === id);
}

/** The text of a message so far. */
export function contentOf(view: ThreadView, messageId: string): string {
  const content = view.messages.find(({ id }) => id === messageId)?.content;
  return typeof content === "string" ? content : "";
}

// --- messages -------------------------------------------------------------------------------------------------------

function withMessage(
  view: ThreadView,
  id: string,
  role: string | undefined,
  timestamp: number | undefined,
  alter: (message: HaiMessage) => HaiMessage,
): ThreadView {
  if (view.messages.some((message) => message.id === id)) {
    return { ...view, messages: view.messages.map((message) => (message.id === id ? alter(message) : message)) };
  }
  const message = { id, role: role ?? "assistant", content: "", ...(timestamp !== undefined && { timestamp }) };
  return { ...view, messages: [...view.messages, alter(message as HaiMessage)] };
}

function appended(message: HaiMessage, delta: string): HaiMessage {
  const content = typeof message.content === "string" ? message.content : "";
  return { ...message, content: content + delta } as HaiMessage;
}

/** The server's messages, then those that are not sent to it yet. */
function restated(
  view: ThreadView,
  event: MessageSnapshotEvent,
  isUnsent: (message: HaiMessage) => boolean,
): ThreadView {
  const ids = new Set(event.messages.map(({ id }) => id));
  const answered = answeredIds(event.messages);
  const unsent = view.messages
    .filter((message) => !ids.has(message.id) && isUnsent(message))
    .filter((message) => message.role !== "tool" || !answered.has(message.toolCallId));
  // Open questions without a call come again after the snapshot; a question that does not come again is decided.
  return { ...view, messages: [...event.messages, ...unsent], asked: [], streaming: new Set(), abandoned: new Set() };
}

// --- calls ----------------------------------------------------------------------------------------------------------

/** The call hangs on its parent message, else on one of its own with the call's id. */
function withCall(view: ThreadView, event: ToolCallStartEvent): ThreadView {
  if (callOf(view, event.toolCallId)) {
    return changeCall(view, event.toolCallId, (call) => withArguments(call, "")); // it is told anew
  }
  const call: ToolCall = { id: event.toolCallId, type: "function", function: { name: event.toolCallName, arguments: "" } };
  const parent = view.messages.find(({ id }) => id === event.parentMessageId);
  if (parent?.role === "assistant") {
    const holder: HaiMessage = { ...parent, toolCalls: [...(parent.toolCalls ?? []), call] };
    return { ...view, messages: view.messages.map((message) => (message === parent ? holder : message)) };
  }
  const id = parent === undefined ? (event.parentMessageId ?? call.id) : call.id;
  const timestamp = event.timestamp !== undefined && { timestamp: event.timestamp };
  return { ...view, messages: [...view.messages, { id, role: "assistant", toolCalls: [call], ...timestamp }] };
}

function changeCall(view: ThreadView, id: string, alter: (call: ToolCall) => ToolCall): ThreadView {
  const messages = view.messages.map((message) =>
    message.role === "assistant" && message.toolCalls?.some((call) => call.id === id)
      ? { ...message, toolCalls: message.toolCalls.map((call) => (call.id === id ? alter(call) : call)) }
      : message,
  );
  return { ...view, messages };
}

function withArguments(call: ToolCall, text: string): ToolCall {
  return { ...call, function: { ...call.function, arguments: text } };
}

/**
 * A result stands right after the message of its call, and after the results that stand there already. One that repeats
 * our own answer is not told twice.
 */
function withResult(view: ThreadView, event: ToolCallResultEvent): ThreadView {
  const { messageId: id, toolCallId, content, error, timestamp } = event;
  if (answeredIds(view.messages).has(toolCallId)) return view;
  const result: HaiMessage = {
    id,
    role: "tool",
    toolCallId,
    content,
    ...(error !== undefined && { error }),
    ...(timestamp !== undefined && { timestamp }),
  };
  const caller = view.messages.findIndex(
    (message) => message.role === "assistant" && message.toolCalls?.some((call) => call.id === toolCallId),
  );
  let at = caller < 0 ? view.messages.length : caller + 1;
  while (view.messages[at]?.role === "tool") at++;
  return { ...view, messages: [...view.messages.slice(0, at), result, ...view.messages.slice(at)] };
}

function abandon(view: ThreadView): ThreadView {
  const ids = unansweredCalls(view.messages).map(({ id }) => id);
  return { ...view, steps: [], asked: [], streaming: new Set(), abandoned: new Set([...view.abandoned, ...ids]) };
}

// --- CUSTOM events of HAI Flow --------------------------------------------------------------------------------------

function custom(view: ThreadView, name: string, value: unknown): ThreadView {
  if (typeof value !== "object" || value === null) return view;
  if (name === "hai.pending" && typeof (value as PendingValue).id === "string") {
    const asked = value as PendingValue;
    return { ...view, asked: [...view.asked.filter(({ id }) => id !== asked.id), asked] };
  }
  if (name === "hai.output") return { ...view, output: value as OutputValue };
  return name === "hai.status" ? { ...view, status: value as StatusValue } : view;
}
