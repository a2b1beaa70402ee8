/**
 * What a subscriber may listen to. The shape is that of `@ag-ui/client`: every callback gets the thread as it was before
 * its event, and may return a mutation; with `stopPropagation` the event is not applied.
 */

import type { HttpAgent } from "./agent.js";
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

/** What a callback wants changed. `undefined` fields stay as they are. */
export interface AgentStateMutation {
  messages?: HaiMessage[];
  state?: State;
  /** No later subscriber hears of the event, and it is not applied. */
  stopPropagation?: boolean;
}

export interface AgentSubscriberParams {
  messages: readonly Readonly<HaiMessage>[];
  state: Readonly<State>;
  agent: HttpAgent;
  input: RunAgentInput;
}

/** Outside of a run there is no input. */
export type ChangeParams = Omit<AgentSubscriberParams, "input"> & { input?: RunAgentInput };

export interface Collaboration {
  from: string;
  to: string;
  /** The task that is handed over: what the message's one JSON document says, if it can be read. */
  task: { id?: string; name?: string; [name: string]: unknown } | undefined;
}

type MaybePromise<T> = T | Promise<T>;
type Callback<Extra = unknown> = (params: Extra & AgentSubscriberParams) => MaybePromise<AgentStateMutation | void>;
type Hears<Event, Extra = unknown> = Callback<{ event: Event } & Extra>;

export interface AgentSubscriber {
  // --- the run as a whole
  onRunInitialized?: Callback;
  /** The run could not be started or followed to its end: `HttpProblem`, `ConnectionLost`, `ProtocolError`. */
  onRunFailed?: Callback<{ error: Error }>;
  /** Last, whatever happened. */
  onRunFinalized?: Callback;
  /** The connection broke; in `delayMs` the client comes back. The thread is then told anew, from RUN_STARTED on. */
  onReconnecting?: Callback<{ attempt: number; delayMs: number; reason: Error }>;

  // --- events
  /** Every event, also of types that this client does not know. */
  onEvent?: Hears<AnyEvent>;
  onRunStartedEvent?: Hears<RunStartedEvent>;
  onRunFinishedEvent?: Hears<RunFinishedEvent, { result?: unknown; pendings: Pending[]; pendingToolCallIds: string[] }>;
  onRunErrorEvent?: Hears<RunErrorEvent>;
  onStepStartedEvent?: Hears<StepStartedEvent>;
  onStepFinishedEvent?: Hears<StepFinishedEvent>;

  onBusinessDataStartEvent?: Hears<BusinessDataStartEvent>;
  /** `textMessageBuffer`: the message before this delta. `outputs`: the documents that this delta completes. */
  onBusinessDataContentEvent?: Hears<BusinessDataContentEvent, { textMessageBuffer: string; outputs: HaiDocument[] }>;
  /** `outputs`: all documents of the message. */
  onBusinessDataEndEvent?: Hears<BusinessDataEndEvent, { textMessageBuffer: string; outputs: HaiDocument[] }>;

  onAgentCollaborativeMessageStartEvent?: Hears<AgentCollaborativeMessageStartEvent>;
  onAgentCollaborativeMessageContentEvent?: Hears<AgentCollaborativeMessageContentEvent, { textMessageBuffer: string }>;
  onAgentCollaborativeMessageEndEvent?: Hears<
    AgentCollaborativeMessageEndEvent,
    { textMessageBuffer: string; collaboration: Collaboration }
  >;

  onToolCallStartEvent?: Hears<ToolCallStartEvent>;
  /** `toolCallBuffer`: the arguments before this delta. `partialToolCallArgs`: as far as they can be read, with it. */
  onToolCallArgsEvent?: Hears<
    ToolCallArgsEvent,
    { toolCallBuffer: string; toolCallName: string; partialToolCallArgs: Record<string, unknown> }
  >;
  onToolCallEndEvent?: Hears<ToolCallEndEvent, { toolCallName: string; toolCallArgs: Record<string, unknown> }>;
  onToolCallResultEvent?: Hears<ToolCallResultEvent>;

  onStateSnapshotEvent?: Hears<StateSnapshotEvent>;
  onStateDeltaEvent?: Hears<StateDeltaEvent>;
  /** MESSAGE_SNAPSHOT and MESSAGES_SNAPSHOT. */
  onMessageSnapshotEvent?: Hears<MessageSnapshotEvent>;
  onCustomEvent?: Hears<CustomEvent>;
  onRawEvent?: Hears<RawEvent>;

  // --- what came of them
  onMessagesChanged?: (params: ChangeParams) => MaybePromise<void>;
  onStateChanged?: (params: ChangeParams) => MaybePromise<void>;
  /** A message is complete, or was added. */
  onNewMessage?: (params: ChangeParams & { message: HaiMessage }) => MaybePromise<void>;
  /** A call's arguments are complete. */
  onNewToolCall?: (params: ChangeParams & { toolCall: ToolCall }) => MaybePromise<void>;
}
