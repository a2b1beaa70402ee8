/** The agent: one thread of one server, over HTTP. It sends, follows, comes back, and keeps the thread as it is now. */

import { AUTH_EXPIRED, keyOfEnvironment, signed, type Credential } from "./credentials.js";
import { ConnectionLost, HaiError, HttpProblem, PatchError, ProtocolError } from "./errors.js";
import {
  readEvent,
  type AnyEvent,
  type Context,
  type HaiEvent,
  type HaiMessage,
  type RunAgentInput,
  type RunErrorEvent,
  type State,
  type StatusValue,
  type Tool,
  type ToolMessage,
} from "./events.js";
import { downloadFile, filesUrlOf, uploadFile, type FileContent, type UploadOptions, type UploadedFile } from "./files.js";
import { Hearing, resultOf, type Telling } from "./hearing.js";
import { newId } from "./ids.js";
import type { Listener, ParamsOfChange } from "./listener.js";
import type { Pending } from "./pendings.js";
import { RECONNECT, STABLE_MS, delayOf, sleep, type ReconnectOptions } from "./reconnect.js";
import { SERVER_CLOSING, callOf, emptyThread, pendingsOf, reduce, type ThreadView } from "./thread.js";
import { BINARY, ConnectionBroken, SSE, eventsOf, send } from "./transport.js";

type AgentSubscriber = Listener<HttpAgent>;
export type HttpAgentFetchFn = (url: string, requestInit: RequestInit) => Promise<Response>;

export interface HttpAgentConfig {
  url: string;
  /** Where files go up and come down. Default: `/v1/files` beside `url`. */
  filesUrl?: string;
  /** Without one, a new thread. */
  threadId?: string;
  initialMessages?: HaiMessage[];
  initialState?: State;
  /** Proves the caller's identity: an API key or another token, sent as `Authorization: Bearer`. A function is asked before each
   * request, also after a cut, and when the server ends a stream because its token has: the run is followed on with the
   * next one. Default, in Node: the variable HAI_FLOW_KEY. */
  key?: Credential;
  /** Sent with every request. `agent.headers` may be changed at any time, for instance when a token is renewed. */
  headers?: Record<string, string>;
  fetch?: HttpAgentFetchFn;
  /** The encoding to ask the server for. It answers as it can, and the answer's Content-Type decides. */
  transport?: "sse" | "binary";
  /** `full` (default): all messages with every request, as HAI describes. `new`: only those the server can't know yet. */
  history?: "full" | "new";
  /** `false`: never come back by oneself. */
  reconnect?: Partial<ReconnectOptions> | false;
  /** After how much silence a connection counts as broken (default 60 000; keep-alives count as sound). 0: never. */
  idleTimeoutMs?: number;
  /** Hears of odd but harmless things. Default: `console.warn`. */
  warn?: (message: string) => void;
}

export interface RunAgentParameters {
  /** Repeating a runId with the same messages repeats the answer; otherwise it must be new. */
  runId?: string;
  /** The tools that this page can run, and `confirmAction` and `requestInput` if it can put those questions to a person. */
  tools?: Tool[];
  context?: Context[];
  forwardedProps?: Record<string, unknown>;
  abortController?: AbortController;
}

export interface RunAgentResult {
  runId: string;
  /** The output of a run that is over, if it has one: `result` of RUN_FINISHED, or CUSTOM `hai.output`. */
  result: unknown;
  newMessages: HaiMessage[];
  /** The open pendings. */
  pendings: Pending[];
  /** Set if the run failed. */
  error?: RunErrorEvent;
  /** Set if the run was stopped, paused, ... */
  status?: StatusValue;
  /** The client stopped following; the run goes on. */
  aborted: boolean;
}

interface ActiveRun {
  input: RunAgentInput;
  subscriber: AgentSubscriber | undefined;
  hearing: Hearing<HttpAgent>;
  /** The server has taken the request. */
  accepted: boolean;
  /** Since when the present connection stands. */
  connectedAt: number | undefined;
  result: unknown;
  error: RunErrorEvent | undefined;
}

/** Refusals of a request's content, not of its sender or its time. */
const REFUSALS = new Set([400, 404, 409, 410, 413, 422]);

export class HttpAgent {
  url: string;
  threadId: string;
  headers: Record<string, string>;
  key: Credential | undefined;
  fetch: HttpAgentFetchFn;
  abortController = new AbortController();
  readonly transport: "sse" | "binary";
  readonly history: "full" | "new";
  readonly reconnect: ReconnectOptions;
  readonly idleTimeoutMs: number;

  #view: ThreadView;
  #subscribers: AgentSubscriber[] = [];
  #run: ActiveRun | undefined;
  #frontendTools: ReadonlySet<string> = new Set();
  #known = new Set<string>(); // ids of messages that the server has
  #announced = new Set<string>(); // ids that onNewMessage has named
  readonly #warn: (message: string) => void;
  readonly #filesUrl: string | undefined;

  constructor(config: HttpAgentConfig) {
    this.url = config.url;
    this.threadId = config.threadId ?? newId("thread");
    this.headers = { ...config.headers };
    this.key = config.key ?? keyOfEnvironment();
    // A browser's fetch insists on being called as the window's own.
    this.fetch = config.fetch ?? ((url, requestInit) => fetch(url, requestInit));
    this.transport = config.transport ?? "sse";
    this.history = config.history ?? "full";
    this.reconnect = config.reconnect === false ? { ...RECONNECT, attemptsMax: 0 } : { ...RECONNECT, ...config.reconnect };
    this.idleTimeoutMs = config.idleTimeoutMs ?? 60_000;
    this.#filesUrl = config.filesUrl;
    this.#warn = config.warn ?? ((message) => console.warn(message));
    this.#view = emptyThread([...(config.initialMessages ?? [])], config.initialState ?? {});
  }

  // --- what the thread is now ---------------------------------------------------------------------------------------

  get messages(): readonly HaiMessage[] {
    return this.#view.messages;
  }

  get state(): State {
    return this.#view.state;
  }

  /** The steps that are under way. */
  get steps(): readonly string[] {
    return this.#view.steps;
  }

  /** The open pendings: see `addToolResult`, `approve`, `reject`. */
  get pendings(): Pending[] {
    return pendingsOf(this.#view, this.isRunning, this.#frontendTools);
  }

  get isRunning(): boolean {
    return this.#run !== undefined;
  }

  // --- what may be changed ------------------------------------------------------------------------------------------

  subscribe(subscriber: AgentSubscriber): { unsubscribe: () => void } {
    this.#subscribers.push(subscriber);
    return { unsubscribe: () => void (this.#subscribers = this.#subscribers.filter((each) => each !== subscriber)) };
  }

  /** Adds a message; `runAgent` sends it. */
  addMessage(message: HaiMessage): void {
    this.addMessages([message]);
  }

  addMessages(messages: readonly HaiMessage[]): void {
    const changed = this.#change({ ...this.#view, messages: [...this.#view.messages, ...messages] });
    void changed.then(() => this.#announce(messages));
  }

  setMessages(messages: readonly HaiMessage[]): void {
    void this.#change({ ...this.#view, messages: [...messages] });
  }

  setState(state: State): void {
    void this.#change({ ...this.#view, state });
  }

  /** Answers a pending; `runAgent` sends it. A result that is not text is sent as JSON. `error` says that the tool failed. */
  addToolResult(toolCallId: string, content: unknown, options: { error?: string } = {}): ToolMessage {
    const message: ToolMessage = {
      id: newId("msg"),
      role: "tool",
      toolCallId,
      content: typeof content === "string" ? content : JSON.stringify(content ?? null),
      ...options,
    };
    this.addMessage(message);
    return message;
  }

  /** Says yes to a question; `runAgent` sends it. */
  approve(pendingId: string, more: { reason?: string; values?: unknown; edits?: unknown } = {}): ToolMessage {
    return this.addToolResult(pendingId, { approved: true, ...more });
  }

  /** Says no to a question; `runAgent` sends it. */
  reject(pendingId: string, more: { reason?: string; values?: unknown } = {}): ToolMessage {
    return this.addToolResult(pendingId, { approved: false, ...more });
  }

  /** Chooses one of a question's `options`; `runAgent` sends it. */
  decide(pendingId: string, decision: string, more: { reason?: string; values?: unknown } = {}): ToolMessage {
    return this.addToolResult(pendingId, { decision, ...more });
  }

  // --- files --------------------------------------------------------------------------------------------------------

  /** Stores the content as a file of the caller's. Its `part` goes into a message, its `id` into any value. */
  async uploadFile(content: FileContent, options: UploadOptions = {}): Promise<UploadedFile> {
    return uploadFile((url, init) => this.#asked(url, init), this.#files, content, options);
  }

  /** The content of the file, for people that may see a run which refers to it. */
  async downloadFile(id: string, options: { signal?: AbortSignal } = {}): Promise<Blob> {
    return downloadFile((url, init) => this.#asked(url, init), this.#files, id, options.signal);
  }

  get #files(): string {
    return this.#filesUrl ?? filesUrlOf(this.url);
  }

  async #asked(url: string, init: RequestInit): Promise<Response> {
    return this.fetch(url, await signed({ ...init, headers: { ...this.headers, ...(init.headers as Record<string, string>) } }, this.key));
  }

  // --- runs ---------------------------------------------------------------------------------------------------------

  /**
   * Sends the new messages and answers, and follows the turn that they open to its end, over as many connections as it takes. With nothing
   * new it attaches to the thread as it is. Resolves also when the run fails (`error`) or is aborted here (`aborted`);
   * rejects where it could not be sent or followed.
   */
  async runAgent(parameters: RunAgentParameters = {}, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    return this.#perform(parameters, subscriber, () => {
      const { messages } = this.#view;
      return this.history === "full" ? messages : messages.filter((message) => this.#isUnsent(message));
    });
  }

  /** Attaches to the thread: it comes as it is now, then live for as long as a turn is open. Sends no message. */
  async connectAgent(parameters: RunAgentParameters = {}, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    return this.#perform(parameters, subscriber, () => []);
  }

  /** Stops following. The run goes on; `connectAgent` comes back to it. */
  abortRun(): void {
    this.abortController.abort();
  }

  /** How a request is made, but for its signal. Override it to change that. */
  protected requestInit(input: RunAgentInput): RequestInit {
    return {
      method: "POST",
      headers: {
        ...this.headers,
        "Content-Type": "application/json",
        Accept: this.transport === "binary" ? `${BINARY}, ${SSE};q=0.5` : SSE,
      },
      body: JSON.stringify(input),
    };
  }

  async #perform(
    parameters: RunAgentParameters,
    subscriber: AgentSubscriber | undefined,
    messages: () => readonly HaiMessage[],
  ): Promise<RunAgentResult> {
    if (this.#run) throw new HaiError("expected an agent that is idle, found a run under way: wait for it, or abort it");
    const tools = parameters.tools ?? [];
    const input: RunAgentInput = {
      threadId: this.threadId,
      runId: parameters.runId ?? newId("run"),
      messages: [],
      tools,
      context: parameters.context ?? [],
      forwardedProps: parameters.forwardedProps ?? {},
    };
    const run: ActiveRun = {
      input,
      subscriber,
      hearing: new Hearing<HttpAgent>(),
      accepted: false,
      connectedAt: undefined,
      result: undefined,
      error: undefined,
    };
    this.#run = run;
    this.#frontendTools = new Set(tools.map(({ name }) => name));
    this.abortController = parameters.abortController ?? new AbortController();
    const { signal } = this.abortController;
    const before = new Set(this.#view.messages.map(({ id }) => id));
    try {
      await this.#tell(run, (to, params) => to.onRunInitialized?.(params));
      Object.assign(input, { messages: [...messages()], state: this.#view.state });
      await this.#follow(run, signal);
    } catch (error) {
      if (!signal.aborted) {
        await this.#fail(run, error instanceof Error ? error : new HaiError(String(error)));
        throw error;
      }
    } finally {
      this.#run = undefined;
      await this.#tell(run, (to, params) => to.onRunFinalized?.(params));
    }
    return {
      runId: input.runId,
      result: run.result,
      newMessages: this.#view.messages.filter(({ id }) => !before.has(id)),
      pendings: this.pendings,
      ...(run.error && { error: run.error }),
      ...(this.#view.status && { status: this.#view.status }),
      aborted: signal.aborted,
    };
  }

  /** Sends and hears until the run ends or is aborted. */
  async #follow(run: ActiveRun, signal: AbortSignal): Promise<void> {
    let attempt = 0;
    // Until it has been accepted the same request is sent again, to the byte: the server takes it once. Then it attaches.
    for (let input = run.input; ; input = run.accepted ? attaching(run.input) : run.input) {
      run.connectedAt = undefined;
      const reason = await this.#connection(run, input, signal);
      if (reason === undefined || signal.aborted) return;
      const lasted = run.connectedAt === undefined ? 0 : Date.now() - run.connectedAt;
      attempt = lasted < STABLE_MS ? attempt + 1 : 1;
      if (attempt > this.reconnect.attemptsMax) throw lost(reason, run.accepted);
      const delayMs = delayOf(this.reconnect, attempt, reason.retryAfterMs);
      await this.#tell(run, (to, params) => to.onReconnecting?.({ attempt, delayMs, reason, ...params }));
      await sleep(delayMs, signal);
      if (signal.aborted) return;
    }
  }

  /** One connection. The reason why it ended too early, or nothing if the run ended. It is closed in any case. */
  async #connection(run: ActiveRun, input: RunAgentInput, signal: AbortSignal): Promise<ConnectionBroken | undefined> {
    const connection = new AbortController();
    const leave = (): void => connection.abort(signal.reason);
    signal.addEventListener("abort", leave);
    if (signal.aborted) leave();
    try {
      return await this.#stream(run, input, connection.signal);
    } catch (error) {
      if (error instanceof ConnectionBroken) return error;
      throw error;
    } finally {
      signal.removeEventListener("abort", leave);
      connection.abort();
    }
  }

  async #stream(run: ActiveRun, input: RunAgentInput, signal: AbortSignal): Promise<ConnectionBroken | undefined> {
    const request = await signed({ ...this.requestInit(input), signal }, this.key);
    const response = await send(() => this.fetch(this.url, request), signal, this.idleTimeoutMs);
    this.#accept(run);
    for await (const event of eventsOf(response, signal, this.idleTimeoutMs)) {
      const heard = await this.#hear(run, event);
      if (heard === "ended" || signal.aborted) return undefined;
      if (heard === "closing") return new ConnectionBroken("the server is closing");
      if (heard === "expired") return new ConnectionBroken("the credential has expired");
    }
    return new ConnectionBroken("the stream ended before its run did");
  }

  #accept(run: ActiveRun): void {
    run.accepted = true;
    run.connectedAt = Date.now();
    for (const { id } of run.input.messages) this.#known.add(id);
  }

  #isUnsent(message: HaiMessage): boolean {
    return (message.role === "user" || message.role === "tool") && !this.#known.has(message.id);
  }

  // --- events -------------------------------------------------------------------------------------------------------

  async #hear(run: ActiveRun, received: AnyEvent): Promise<"ended" | "closing" | "expired" | "goes on"> {
    if (await this.#tell(run, (to, params) => to.onEvent?.({ event: received, ...params }))) return "goes on";
    const { event, faults } = readEvent(received);
    if (event === undefined) return "goes on"; // of a type that only onEvent can hear
    if (faults.length > 0) throw new ProtocolError(faults.join("; "));
    if (event.type === "RUN_ERROR" && event.code === SERVER_CLOSING) return "closing";
    if (event.type === "RUN_ERROR" && event.code === AUTH_EXPIRED && typeof this.key === "function") return "expired";
    const telling = run.hearing.hear(event, this.#view);
    if (!(await this.#tell(run, telling))) await this.#apply(run, event);
    return event.type === "RUN_FINISHED" || event.type === "RUN_ERROR" ? "ended" : "goes on";
  }

  async #apply(run: ActiveRun, event: HaiEvent): Promise<void> {
    if (event.type === "RUN_FINISHED") run.result = resultOf(event, this.#view);
    if (event.type === "RUN_ERROR") run.error = event;
    if ("messageId" in event && event.messageId !== undefined) this.#known.add(event.messageId);
    try {
      await this.#change(reduce(this.#view, event, (message) => this.#isUnsent(message)));
    } catch (error) {
      if (!(error instanceof PatchError)) throw error;
      this.#warn(`STATE_DELTA does not apply, the state stays as it was: ${error.message}`);
    }
    await this.#announceComing(event);
  }

  async #announceComing(event: HaiEvent): Promise<void> {
    switch (event.type) {
      case "MESSAGE_SNAPSHOT":
      case "MESSAGES_SNAPSHOT":
        for (const { id } of event.messages) this.#known.add(id);
        return;
      case "BUSINESS_DATA_END":
      case "TOOL_CALL_RESULT": {
        const message = this.#view.messages.find(({ id }) => id === event.messageId);
        if (message && !this.#announced.has(message.id)) await this.#announce([message]);
        return;
      }
      case "TOOL_CALL_END": {
        const toolCall = callOf(this.#view, event.toolCallId);
        if (toolCall) await this.#each((to, params) => to.onNewToolCall?.({ toolCall, ...params }));
        return;
      }
      default:
    }
  }

  // --- subscribers --------------------------------------------------------------------------------------------------

  /** Tells all subscribers, one after the other, and does what they return. True: one of them stopped it. */
  async #tell(run: ActiveRun, telling: Telling<HttpAgent>): Promise<boolean> {
    for (const subscriber of this.#listening(run)) {
      const { messages, state } = this.#view;
      const mutation = await guarded(() => telling(subscriber, { messages, state, agent: this, input: run.input }));
      if (!mutation) continue;
      await this.#change({
        ...this.#view,
        ...(mutation.messages !== undefined && { messages: mutation.messages }),
        ...(mutation.state !== undefined && { state: mutation.state }),
      });
      if (mutation.stopPropagation === true) return true;
    }
    return false;
  }

  async #change(view: ThreadView): Promise<void> {
    const before = this.#view;
    this.#view = view;
    if (view.messages !== before.messages) await this.#each((to, params) => to.onMessagesChanged?.(params));
    if (view.state !== before.state) await this.#each((to, params) => to.onStateChanged?.(params));
  }

  async #announce(messages: readonly HaiMessage[]): Promise<void> {
    for (const message of messages) {
      this.#announced.add(message.id);
      await this.#each((to, params) => to.onNewMessage?.({ message, ...params }));
    }
  }

  async #each(telling: (to: AgentSubscriber, params: ParamsOfChange<HttpAgent>) => unknown): Promise<void> {
    for (const subscriber of this.#listening(this.#run)) {
      const { messages, state } = this.#view;
      const input = this.#run && { input: this.#run.input };
      await guarded(() => telling(subscriber, { messages, state, agent: this, ...input }));
    }
  }

  #listening(run: ActiveRun | undefined): AgentSubscriber[] {
    return run?.subscriber ? [...this.#subscribers, run.subscriber] : [...this.#subscribers];
  }

  /** A refused message is taken back: sent again it would be refused again, and the question that it answered is still open. */
  async #fail(run: ActiveRun, error: Error): Promise<void> {
    if (error instanceof HttpProblem && REFUSALS.has(error.status) && !run.accepted) {
      const refused = new Set(run.input.messages.filter((message) => this.#isUnsent(message)).map(({ id }) => id));
      error.takenBack = this.#view.messages.filter(({ id }) => refused.has(id));
      await this.#change({ ...this.#view, messages: this.#view.messages.filter(({ id }) => !refused.has(id)) });
    }
    await this.#tell(run, (to, params) => to.onRunFailed?.({ error, ...params }));
  }
}

/** The same run, with nothing new: the server sends the thread as it is now and goes on live. */
function attaching(input: RunAgentInput): RunAgentInput {
  const { threadId, tools, forwardedProps } = input;
  return { threadId, runId: newId("run"), messages: [], tools, context: [], forwardedProps };
}

function lost(reason: ConnectionBroken, accepted: boolean): Error {
  if (reason.cause instanceof HttpProblem) return reason.cause;
  const remedy = accepted
    ? "the run goes on, connectAgent() comes back to it"
    : "whether the request has arrived is not known; runAgent() sends the same messages again, which are taken once";
  return new ConnectionLost(`${reason.message}; ${remedy}`, { cause: reason });
}

/** A subscriber that fails harms neither the others nor the run. */
async function guarded<T>(call: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    console.error("A subscriber failed:", error);
    return undefined;
  }
}
