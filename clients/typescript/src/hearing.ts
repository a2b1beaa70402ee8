/** Which callback hears of an event, and what it is told besides: buffers, documents, arguments as far as they go. */

import { DocumentReader, documentsOf } from "./documents.js";
import type { HaiEvent, RunFinishedEvent } from "./events.js";
import type { AgentStateMutation, Collaboration, Listener, Params } from "./listener.js";
import { parsePartialJson } from "./partial.js";
import { callOf, contentOf, pendingsOf, reduce, type ThreadView } from "./thread.js";

/** Tells one subscriber. */
export type Telling<Agent> = (
  subscriber: Listener<Agent>,
  params: Params<Agent>,
) => Promise<AgentStateMutation | void> | AgentStateMutation | void;

/** What is open on one stream. */
export class Hearing<Agent> {
  #documents = new Map<string, DocumentReader>();
  #collaborations = new Map<string, { from: string; to: string; text: string }>();

  /** How to tell of `event`, which comes next; `view` is the thread before it. To be called once for each event. */
  hear(event: HaiEvent, view: ThreadView): Telling<Agent> {
    switch (event.type) {
      case "RUN_STARTED":
        this.#documents.clear();
        this.#collaborations.clear();
        return (to, params) => to.onRunStartedEvent?.({ event, ...params });
      case "RUN_FINISHED": {
        const pendings = pendingsOf(reduce(view, event, () => true), false, new Set());
        const extra = { result: resultOf(event, view), pendings, pendingToolCallIds: pendings.map(({ id }) => id) };
        return (to, params) => to.onRunFinishedEvent?.({ event, ...extra, ...params });
      }
      case "RUN_ERROR":
        return (to, params) => to.onRunErrorEvent?.({ event, ...params });
      case "STEP_STARTED":
        return (to, params) => to.onStepStartedEvent?.({ event, ...params });
      case "STEP_FINISHED":
        return (to, params) => to.onStepFinishedEvent?.({ event, ...params });
      case "BUSINESS_DATA_START":
        this.#documents.set(event.messageId, new DocumentReader());
        return (to, params) => to.onBusinessDataStartEvent?.({ event, ...params });
      case "BUSINESS_DATA_CONTENT": {
        const textMessageBuffer = contentOf(view, event.messageId);
        const outputs = this.#reader(event.messageId).push(event.delta);
        return (to, params) => to.onBusinessDataContentEvent?.({ event, textMessageBuffer, outputs, ...params });
      }
      case "BUSINESS_DATA_END": {
        const textMessageBuffer = contentOf(view, event.messageId);
        const outputs = documentsOf(textMessageBuffer);
        this.#documents.delete(event.messageId);
        return (to, params) => to.onBusinessDataEndEvent?.({ event, textMessageBuffer, outputs, ...params });
      }
      case "AGENT_COLLABORATIVE_MESSAGE_START":
        this.#collaborations.set(event.messageId, { from: event.from, to: event.to, text: "" });
        return (to, params) => to.onAgentCollaborativeMessageStartEvent?.({ event, ...params });
      case "AGENT_COLLABORATIVE_MESSAGE_CONTENT": {
        const open = this.#collaborations.get(event.messageId);
        const textMessageBuffer = open?.text ?? "";
        if (open) open.text += event.delta;
        return (to, params) => to.onAgentCollaborativeMessageContentEvent?.({ event, textMessageBuffer, ...params });
      }
      case "AGENT_COLLABORATIVE_MESSAGE_END": {
        const { from, to: whom, text } = this.#collaborations.get(event.messageId) ?? { from: "", to: "", text: "" };
        this.#collaborations.delete(event.messageId);
        const extra = { textMessageBuffer: text, collaboration: { from, to: whom, task: taskIn(text) } };
        return (to, params) => to.onAgentCollaborativeMessageEndEvent?.({ event, ...extra, ...params });
      }
      case "TOOL_CALL_START":
        return (to, params) => to.onToolCallStartEvent?.({ event, ...params });
      case "TOOL_CALL_ARGS": {
        const { name, arguments: toolCallBuffer } = functionOf(view, event.toolCallId);
        const extra = {
          toolCallBuffer,
          toolCallName: name,
          partialToolCallArgs: record(parsePartialJson(toolCallBuffer + event.delta)),
        };
        return (to, params) => to.onToolCallArgsEvent?.({ event, ...extra, ...params });
      }
      case "TOOL_CALL_END": {
        const { name, arguments: text } = functionOf(view, event.toolCallId);
        const extra = { toolCallName: name, toolCallArgs: record(parsePartialJson(text)) };
        return (to, params) => to.onToolCallEndEvent?.({ event, ...extra, ...params });
      }
      case "TOOL_CALL_RESULT":
        return (to, params) => to.onToolCallResultEvent?.({ event, ...params });
      case "STATE_SNAPSHOT":
        return (to, params) => to.onStateSnapshotEvent?.({ event, ...params });
      case "STATE_DELTA":
        return (to, params) => to.onStateDeltaEvent?.({ event, ...params });
      case "MESSAGE_SNAPSHOT":
      case "MESSAGES_SNAPSHOT":
        return (to, params) => to.onMessageSnapshotEvent?.({ event, ...params });
      case "CUSTOM":
        return (to, params) => to.onCustomEvent?.({ event, ...params });
      case "RAW":
        return (to, params) => to.onRawEvent?.({ event, ...params });
    }
  }

  #reader(messageId: string): DocumentReader {
    const reader = this.#documents.get(messageId) ?? new DocumentReader();
    this.#documents.set(messageId, reader);
    return reader;
  }
}

/** What the run gave: HAI's RUN_FINISHED has no field for it, so HAI Flow says it before. */
export function resultOf(event: RunFinishedEvent, view: ThreadView): unknown {
  return event.result ?? view.output?.output;
}

function functionOf(view: ThreadView, callId: string): { name: string; arguments: string } {
  return callOf(view, callId)?.function ?? { name: "", arguments: "" };
}

function taskIn(text: string): Collaboration["task"] {
  const { task } = record(parsePartialJson(text));
  return task === undefined ? undefined : record(task);
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
