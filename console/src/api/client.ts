// The public API, as this page calls it. Who calls is the session's cookie or, in development, whom one acts as; of an
// element in another page, its token.

import { host } from "../host.ts";
import { holdsUnread } from "../logic/json.ts";
import { parseExactly } from "../logic/numbers.ts";
import { straight } from "../logic/signs.ts";
import { compareClock } from "./now.ts";
import { Problem, asProblem, problemOf } from "./problems.ts";
import type { Session } from "./types.gen.ts";

const ACT_AS = "hai.act-as";
let csrf: string | null = null;

export function actAs(): string {
  return sessionStorage.getItem(ACT_AS) ?? "";
}

export function setActAs(who: string): void {
  if (who) sessionStorage.setItem(ACT_AS, who);
  else sessionStorage.removeItem(ACT_AS);
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** The same key again changes nothing: what was sent twice happens once. */
  key?: string | undefined;
  /** It is sent even though the page is being left. */
  last?: boolean | undefined;
}

/** The response to a request of who reads here; one that is refused for its credentials is sent again with new ones. */
export async function fetchAs(path: string, init: RequestInit & { headers?: Record<string, string> } = {}): Promise<Response> {
  const ready = host.begin(path);
  for (let again = true; ; again = false) {
    if (ready !== undefined) await ready();
    const headers = new Headers({ ...init.headers, ...(csrf ? { "HAI-CSRF": csrf } : {}), ...host.credentials() });
    const sent = Date.now();
    const response = await host.fetch(path, { ...init, headers });
    compareClock(response.headers.get("date"), sent);
    if (response.status !== 401 || !again || !(await host.renew(headers))) return response;
  }
}

/** The answer to a call. Throws a Problem. */
export async function call<T>(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<T> {
  return sent<T>(method, path, body === undefined ? undefined : written(body), "application/json", options);
}

/** A body as it is sent. Throws a Problem where something in it is no JSON yet: it is the reader's to mend. */
function written(body: unknown): string {
  if (holdsUnread(body)) throw new Problem(0, "draft.unread", "");
  return JSON.stringify(body);
}

/** The answer to a document of YAML. Throws a Problem. */
export function callWithText<T>(path: string, source: string, options: CallOptions = {}): Promise<T> {
  return sent<T>("POST", path, source, "application/yaml", options);
}

/** The id of the file, which is stored as one of the caller's. Throws a Problem. */
export async function upload(file: File): Promise<string> {
  const path = `/v1/files?name=${encodeURIComponent(straight(file.name))}`;
  return (await sent<{ id: string }>("POST", path, file, file.type || "application/octet-stream", {})).id;
}

async function sent<T>(method: string, path: string, body: string | Blob | undefined, type: string, options: CallOptions): Promise<T> {
  const given: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) given["Content-Type"] = type;
  if (options.key) given["Idempotency-Key"] = options.key;
  const request: RequestInit & { headers: Record<string, string> } = { method, headers: given };
  if (body !== undefined) request.body = body;
  if (options.signal) request.signal = options.signal;
  if (options.last) request.keepalive = true;
  let response: Response;
  try {
    response = await fetchAs(path, request);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw asProblem(error);
  }
  if (!response.ok) throw noticed(await problemOf(response));
  if (response.status === 204) return undefined as T;
  // Of a question each number is shown as it was written: people approve exactly these.
  return (/^\/v1\/(pendings|inbox)\b/.test(path) ? parseExactly(await response.text()) : await response.json()) as T;
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => call<T>("GET", path, undefined, { signal });

/** Who one is here. Throws a Problem 401 where one has to sign in first. */
export async function whoAmI(): Promise<Session> {
  const session = await get<Session>("/v1/session");
  csrf = session.csrf;
  return session;
}

const listeners = new Set<() => void>();

/** Called when the server no longer knows who calls. */
export function onSignedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function noticed(problem: Problem): Problem {
  if (problem.status === 401) for (const each of listeners) each();
  return problem;
}

export type Connection = "connecting" | "live" | "lost";

export interface Follower {
  onEvent(name: string, data: unknown, id: string): void;
  onState(state: Connection, problem?: Problem): void;
}

// A server that has stopped, or a line that is gone, often ends no connection: it says nothing any more.
const SLOW_MS = 10_000; // without an answer the connection counts as lost, though it may still come
const GIVEN_UP_MS = 60_000;
const QUIET_MS = 25_000; // of a stream: by default the server says something after 15 s

/**
 * Follow a stream of server-sent events until the returned function is called.
 *
 * `fetch` and not EventSource, because that sends no header. A page that nobody sees holds no connection: a browser
 * opens six to one HTTP/1.1 server, so tabs in the background would keep the visible one from it. It goes on from the
 * last event when it is seen again, and so it does on a new connection where the one that it has says nothing.
 */
export function follow(path: string, follower: Follower, from = ""): () => void {
  let last = from;
  let stopped = false;
  let ended = false;
  let tries = 0;
  let abort = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let watch: ReturnType<typeof setTimeout> | undefined;

  function expect(ms: number): void {
    clearTimeout(watch);
    watch = setTimeout(anew, ms);
  }

  async function connect(): Promise<void> {
    if (stopped || ended || document.visibilityState === "hidden") return;
    abort = new AbortController();
    const here = abort;
    follower.onState("connecting");
    const slow = setTimeout(() => follower.onState("lost"), SLOW_MS);
    expect(GIVEN_UP_MS);
    try {
      const given: Record<string, string> = { Accept: "text/event-stream" };
      if (last) given["Last-Event-ID"] = last;
      const response = await fetchAs(path, { headers: given, signal: here.signal });
      if (!response.ok || response.body === null) throw noticed(await problemOf(response));
      clearTimeout(slow);
      follower.onState("live");
      const began = Date.now();
      await read(response.body);
      if (Date.now() - began > 5_000) tries = 0; // one that ends at once is not asked for again without a pause
      if (here.signal.aborted) return;
      follower.onState("lost");
    } catch (error) {
      if (here.signal.aborted) return;
      const problem = asProblem(error);
      follower.onState("lost", problem);
      if ([401, 403, 404].includes(problem.status)) {
        ended = true;
        return;
      }
    } finally {
      clearTimeout(slow);
      if (here === abort) clearTimeout(watch);
    }
    if (stopped || here.signal.aborted) return;
    tries += 1;
    timer = setTimeout(() => void connect(), Math.min(8_000, 500 * 2 ** Math.min(tries, 5)) * (0.5 + Math.random()));
  }

  async function read(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
    const parser = new SseParser((name, data, id) => {
      if (id) last = id;
      try {
        follower.onEvent(name, JSON.parse(data), id);
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
      }
    });
    for (;;) {
      expect(QUIET_MS);
      const { done, value } = await reader.read();
      if (done) return;
      parser.push(value);
    }
  }

  function anew(): void {
    clearTimeout(timer);
    clearTimeout(watch);
    abort.abort();
    if (document.visibilityState === "visible") void connect();
  }

  document.addEventListener("visibilitychange", anew);
  window.addEventListener("online", anew);
  window.addEventListener("offline", anew); // a connection that is gone may not say so for minutes
  void connect();
  return () => {
    stopped = true;
    clearTimeout(timer);
    clearTimeout(watch);
    abort.abort();
    document.removeEventListener("visibilitychange", anew);
    window.removeEventListener("online", anew);
    window.removeEventListener("offline", anew);
  };
}

/** The events of the stream that a POST is answered with, in their order. Throws a Problem. */
export async function converse(path: string, body: unknown, onEvent: (data: unknown) => void, signal: AbortSignal): Promise<void> {
  const given = { Accept: "text/event-stream", "Content-Type": "application/json" };
  try {
    const response = await fetchAs(path, { method: "POST", headers: given, body: written(body), signal });
    if (!response.ok || response.body === null) throw noticed(await problemOf(response));
    const reader = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
    const parser = new SseParser((_name, data) => onEvent(JSON.parse(data)));
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.push(value);
    }
  } catch (error) {
    if (signal.aborted) return;
    throw asProblem(error);
  }
}

/** Reads `text/event-stream` in whatever pieces it comes. */
export class SseParser {
  #rest = "";
  #name = "";
  #id = "";
  #data: string[] = [];
  #dispatch: (name: string, data: string, id: string) => void;

  constructor(dispatch: (name: string, data: string, id: string) => void) {
    this.#dispatch = dispatch;
  }

  push(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  #line(line: string): void {
    if (line === "") {
      if (this.#data.length > 0) this.#dispatch(this.#name || "message", this.#data.join("\n"), this.#id);
      this.#name = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
  }
}
