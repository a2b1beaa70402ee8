/**
 * The callbacks of a subscriber. The shape is that of `@ag-ui/client`: every callback gets the thread as it was before
 * its event, and may return a mutation; with `stopPropagation` the event is not applied. `Agent` is the type that a callback gets as
 * `agent`: nothing here needs to know it (subscriber.ts does).
 */

import type {
  AgentCollaborativeMessageContentEvent,
  AgentCollaborativeMessageEndEvent,
  AgentCollaborativeMessageStartEvent,
  AnyEvent,
  BusinessDataContentEvent,
  BusinessDataEndEvent,
  BusinessDataStartEvent,
  CustomEvent,
  HaiDocument,
  HaiMessage,
  MessageSnapshotEvent,
  RawEvent,
  RunAgentInput,
  RunErrorEvent,
  RunFinishedEvent,
  RunStartedEvent,
  State,
  StateDeltaEvent,
  StateSnapshotEvent,
  StepFinishedEvent,
  StepStartedEvent,
  ToolCall,
  ToolCallArgsEvent,
  ToolCallEndEvent,
  ToolCallResultEvent,
  ToolCallStartEvent,
} from "./events.js";
import type { Pending } from "./pendings.js";

/** The changes that a callback asks for. `undefined` fields stay as they are. */
export interface AgentStateMutation {
  messages?: HaiMessage[];
  state?: State;
  /** No later subscriber hears of the event, and it is not applied. */
  stopPropagation?: boolean;
}

export interface Params<Agent> {
  messages: readonly Readonly<HaiMessage>[];
  state: Readonly<State>;
  agent: Agent;
  input: RunAgentInput;
}

/** Outside of a run there is no input. */
export type ParamsOfChange<Agent> = Omit<Params<Agent>, "input"> & { input?: RunAgentInput };

export interface Collaboration {
  from: string;
  to: string;
  /** The task that is handed over: the message's one JSON document, if it can be read. */
  task: { id?: string; name?: string; [name: string]: unknown } | undefined;
}

type MaybePromise<T> = T | Promise<T>;
type Callback<Agent, Extra = unknown> = (params: Extra & Params<Agent>) => MaybePromise<AgentStateMutation | void>;
type Hears<Agent, Event, Extra = unknown> = Callback<Agent, { event: Event } & Extra>;

export interface Listener<Agent> {
  // --- the run as a whole
  onRunInitialized?: Callback<Agent>;
  /** The run could not be started or followed to its end: `HttpProblem`, `ConnectionLost`, `ProtocolError`. */
  onRunFailed?: Callback<Agent, { error: Error }>;
  /** Last, whatever happened. */
  onRunFinalized?: Callback<Agent>;
  /** The connection broke; in `delayMs` the client comes back. The thread then comes anew, from RUN_STARTED on. */
  onReconnecting?: Callback<Agent, { attempt: number; delayMs: number; reason: Error }>;

  // --- events
  /** Every event, also of types that this client does not know. */
  onEvent?: Hears<Agent, AnyEvent>;
  onRunStartedEvent?: Hears<Agent, RunStartedEvent>;
  onRunFinishedEvent?: Hears<Agent, RunFinishedEvent, { result?: unknown; pendings: Pending[]; pendingToolCallIds: string[] }>;
  onRunErrorEvent?: Hears<Agent, RunErrorEvent>;
  onStepStartedEvent?: Hears<Agent, StepStartedEvent>;
  onStepFinishedEvent?: Hears<Agent, StepFinishedEvent>;

  onBusinessDataStartEvent?: Hears<Agent, BusinessDataStartEvent>;
  /** `textMessageBuffer`: the message before this delta. `outputs`: the documents that this delta completes. */
  onBusinessDataContentEvent?: Hears<Agent, BusinessDataContentEvent, { textMessageBuffer: string; outputs: HaiDocument[] }>;
  /** `outputs`: all documents of the message. */
  onBusinessDataEndEvent?: Hears<Agent, BusinessDataEndEvent, { textMessageBuffer: string; outputs: HaiDocument[] }>;

  onAgentCollaborativeMessageStartEvent?: Hears<Agent, AgentCollaborativeMessageStartEvent>;
  onAgentCollaborativeMessageContentEvent?: Hears<Agent, AgentCollaborativeMessageContentEvent, { textMessageBuffer: string }>;
  onAgentCollaborativeMessageEndEvent?: Hears<
    Agent,
    AgentCollaborativeMessageEndEvent,
    { textMessageBuffer: string; collaboration: Collaboration }
  >;

  onToolCallStartEvent?: Hears<Agent, ToolCallStartEvent>;
  /** `toolCallBuffer`: the arguments before this delta. `partialToolCallArgs`: as far as they can be read, with it. */
  onToolCallArgsEvent?: Hears<
    Agent,
    ToolCallArgsEvent,
    { toolCallBuffer: string; toolCallName: string; partialToolCallArgs: Record<string, unknown> }
  >;
  onToolCallEndEvent?: Hears<Agent, ToolCallEndEvent, { toolCallName: string; toolCallArgs: Record<string, unknown> }>;
  onToolCallResultEvent?: Hears<Agent, ToolCallResultEvent>;

  onStateSnapshotEvent?: Hears<Agent, StateSnapshotEvent>;
  onStateDeltaEvent?: Hears<Agent, StateDeltaEvent>;
  /** MESSAGE_SNAPSHOT and MESSAGES_SNAPSHOT. */
  onMessageSnapshotEvent?: Hears<Agent, MessageSnapshotEvent>;
  onCustomEvent?: Hears<Agent, CustomEvent>;
  onRawEvent?: Hears<Agent, RawEvent>;

  // --- their results
  onMessagesChanged?: (params: ParamsOfChange<Agent>) => MaybePromise<void>;
  onStateChanged?: (params: ParamsOfChange<Agent>) => MaybePromise<void>;
  /** A message is complete, or was added. */
  onNewMessage?: (params: ParamsOfChange<Agent> & { message: HaiMessage }) => MaybePromise<void>;
  /** A call's arguments are complete. */
  onNewToolCall?: (params: ParamsOfChange<Agent> & { toolCall: ToolCall }) => MaybePromise<void>;
}
