/** Requests to a HAI Flow server: repeated where that helps, each command under a key of its own so that it happens once. */

import { AUTH_EXPIRED, keyOfEnvironment, signed, type Credential } from "./credentials.js";
import { ConnectionLost, HttpProblem, ProtocolError } from "./errors.js";
import { newId } from "./ids.js";
import { RECONNECT, delayOf, sleep, type ReconnectOptions } from "./reconnect.js";
import type { SseEvent } from "./sse.js";
import { ConnectionBroken, SSE, accepted, sendForSse, sseOf } from "./transport.js";

export interface RestConfig {
  /** The server's address, such as `https://flow.example.com`. */
  url: string;
  /** Proves who calls: an API key or a token. A function is asked before each request. Default, in Node: HAI_FLOW_KEY. */
  key?: Credential;
  /** Sent with every request. */
  headers?: Record<string, string>;
  fetch?: (url: string, requestInit: RequestInit) => Promise<Response>;
  /** How often and when to try again. `false`: never. */
  reconnect?: Partial<ReconnectOptions> | false;
  /** After how much silence a connection counts as broken (default 60 000; keep-alives count as sound). 0: never. */
  idleTimeoutMs?: number;
}

/** The parameters of a request; what is undefined is left out, and a list is sent one by one. */
export type Query = Record<string, string | number | readonly string[] | undefined>;

export interface Abortable {
  signal?: AbortSignal | undefined;
}

export class Rest {
  readonly #config: RestConfig;
  readonly #key: Credential | undefined;
  readonly #reconnect: ReconnectOptions;
  readonly #idleMs: number;

  constructor(config: RestConfig) {
    this.#config = { ...config, url: config.url.replace(/\/+$/, "") };
    this.#key = config.key ?? keyOfEnvironment();
    this.#reconnect = config.reconnect === false ? { ...RECONNECT, attemptsMax: 0 } : { ...RECONNECT, ...config.reconnect };
    this.#idleMs = config.idleTimeoutMs ?? 60_000;
  }

  /** What the server answers, as JSON. Throws `HttpProblem`, `ConnectionLost`, or what an abort gives. */
  async get(path: string, query: Query = {}, { signal }: Abortable = {}): Promise<unknown> {
    return this.#asked(path, query, { method: "GET" }, signal);
  }

  /** What the server answers, byte for byte as text. Throws as `get` does. */
  async text(path: string, { signal }: Abortable = {}): Promise<string> {
    return (await this.#asked(path, {}, { method: "GET" }, signal, this.#reconnect.attemptsMax, textOf)) as string;
  }

  /** The answer to a command. However often it is sent, it happens once; with a `key`, over several calls, too. */
  async post(path: string, body: unknown = undefined, { signal, key }: Abortable & { key?: string } = {}): Promise<unknown> {
    const headers = { "Idempotency-Key": key ?? newId("key") };
    if (body === undefined) return this.#asked(path, {}, { method: "POST", headers }, signal);
    const content = { headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
    return this.#asked(path, {}, { method: "POST", ...content }, signal);
  }

  /** What may not happen twice, and bears no key: it is sent once. */
  async postOnce(path: string, body: unknown, { signal }: Abortable = {}): Promise<unknown> {
    const content = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    return this.#asked(path, {}, { method: "POST", ...content }, signal, 0);
  }

  async patch(path: string, body: unknown, { signal }: Abortable = {}): Promise<unknown> {
    const content = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    return this.#asked(path, {}, { method: "PATCH", ...content }, signal);
  }

  async delete(path: string, { signal }: Abortable = {}): Promise<void> {
    await this.#asked(path, {}, { method: "DELETE" }, signal);
  }

  /**
   * The events of a stream that has no end, over as many connections as it takes, until `signal` is aborted. `cameFrom`
   * is asked for Last-Event-ID each time. A stream that ends because the credential has is opened again with the next.
   */
  async *events(path: string, query: Query, cameFrom: () => string | undefined, { signal }: Abortable = {}): AsyncGenerator<SseEvent> {
    const leave = signal ?? new AbortController().signal;
    let failures = 0;
    while (!leave.aborted) {
      const connection = new Connection(leave);
      try {
        const id = cameFrom();
        const headers = { Accept: SSE, ...(id !== undefined && { "Last-Event-ID": id }) };
        const fetching = (): Promise<Response> => this.#fetched(path, query, { method: "GET", headers }, connection.signal);
        const response = await sendForSse(fetching, connection.signal, this.#idleMs);
        for await (const event of sseOf(response, connection.signal, this.#idleMs)) {
          failures = 0;
          if (event.event === AUTH_EXPIRED) throw new ConnectionBroken("the credential has expired");
          yield event;
        }
        throw new ConnectionBroken("the stream ended");
      } catch (error) {
        if (leave.aborted) return;
        await this.#pause(error, (failures += 1), leave);
      } finally {
        connection.close();
      }
    }
  }

  async #asked(
    path: string,
    query: Query,
    init: RequestInit,
    signal = new AbortController().signal,
    again = this.#reconnect.attemptsMax,
    read: (response: Response) => Promise<unknown> = contentOf,
  ): Promise<unknown> {
    for (let failures = 0; ; ) {
      const connection = new Connection(signal);
      try {
        const fetching = (): Promise<Response> => this.#fetched(path, query, init, connection.signal);
        return await read(await accepted(fetching, connection.signal, this.#idleMs));
      } catch (error) {
        if (signal.aborted) throw error;
        await this.#pause(error, (failures += 1), signal, again);
        signal.throwIfAborted();
      } finally {
        connection.close();
      }
    }
  }

  async #fetched(path: string, query: Query, init: RequestInit, signal: AbortSignal): Promise<Response> {
    const given = Object.entries(query).flatMap(([name, value]) =>
      (Array.isArray(value) ? value : value === undefined ? [] : [value]).map((each) => [name, String(each)]),
    );
    const url = `${this.#config.url}${path}${given.length > 0 ? `?${new URLSearchParams(given)}` : ""}`;
    const headers = { ...this.#config.headers, ...(init.headers as Record<string, string> | undefined) };
    const request = await signed({ ...init, headers, signal }, this.#key);
    // A browser's fetch insists on being called as the window's own.
    return this.#config.fetch ? this.#config.fetch(url, request) : fetch(url, request);
  }

  /** Waits before the next attempt. Throws what can't be helped by one, or has failed as often as it may. */
  async #pause(error: unknown, failures: number, signal: AbortSignal, again = this.#reconnect.attemptsMax): Promise<void> {
    if (!(error instanceof ConnectionBroken)) throw error;
    if (failures > again) {
      if (error.cause instanceof HttpProblem) throw error.cause;
      throw new ConnectionLost(`${error.message}; is ${this.#config.url} the address of the server?`, { cause: error });
    }
    await sleep(delayOf(this.#reconnect, failures, error.retryAfterMs), signal);
  }
}

/** What one request may use until it is closed, or `leave` is aborted. */
class Connection {
  readonly #controller = new AbortController();
  readonly #leave: AbortSignal;
  readonly #left = (): void => this.#controller.abort(this.#leave.reason);

  constructor(leave: AbortSignal) {
    this.#leave = leave;
    leave.addEventListener("abort", this.#left);
    if (leave.aborted) this.#left();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  close(): void {
    this.#leave.removeEventListener("abort", this.#left);
    this.#controller.abort();
  }
}

async function textOf(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    throw new ConnectionBroken("the connection broke in the middle of an answer", { cause: error });
  }
}

async function contentOf(response: Response): Promise<unknown> {
  const text = await textOf(response);
  if (response.status === 204) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new ProtocolError(`expected an answer in JSON from ${response.url}: is it the address of a HAI Flow server?`);
  }
}
