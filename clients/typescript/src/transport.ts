/** From a response to its events: Server-Sent Events or frames of MessagePack, whichever the server chose. */

import { HaiError, HttpProblem, ProtocolError, type Problem } from "./errors.js";
import type { AnyEvent } from "./events.js";
import { FrameParser } from "./frames.js";
import { decodeMsgpack } from "./msgpack.js";
import { SseParser, type SseEvent } from "./sse.js";

export const SSE = "text/event-stream";
export const BINARY = "application/vnd.hai.event+msgpack";

/** The connection broke. The run goes on, and the client may come back to it. */
export class ConnectionBroken extends HaiError {
  override name = "ConnectionBroken";
  /** How long the server asks to be left alone, if it does. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, options: { cause?: unknown; retryAfterMs?: number | undefined } = {}) {
    super(message, { cause: options.cause });
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Refusals that say nothing about the request, only about this moment. */
const TRANSIENT = new Set([429, 502, 503, 504]);

/**
 * The response to a request, once the server has accepted it. Throws `HttpProblem` for a refusal, `ConnectionBroken` where
 * trying again may help, also after `idleMs` without an answer.
 */
export async function accepted(fetching: () => Promise<Response>, signal: AbortSignal, idleMs: number): Promise<Response> {
  let response: Response;
  try {
    response = await within(idleMs, fetching());
  } catch (error) {
    if (signal.aborted || error instanceof ConnectionBroken) throw error;
    throw new ConnectionBroken(`the server could not be reached: ${describe(error)}`, { cause: error });
  }
  if (!response.ok) {
    const problem = await problemOf(response);
    if (!TRANSIENT.has(response.status)) throw new HttpProblem(problem);
    const seconds = Number(response.headers.get("Retry-After") ?? NaN);
    throw new ConnectionBroken(`the server is not available now (HTTP ${response.status})`, {
      cause: new HttpProblem(problem),
      retryAfterMs: seconds >= 0 ? seconds * 1000 : undefined,
    });
  }
  return response;
}

/** The response to a request for events: as `accepted`, and a `ProtocolError` for a content type that is none of ours. */
export async function send(fetching: () => Promise<Response>, signal: AbortSignal, idleMs: number): Promise<Response> {
  const response = await accepted(fetching, signal, idleMs);
  if (mediaType(response) in DECODERS) return opened(response, mediaType(response));
  return opened(response, `${SSE} or ${BINARY}`);
}

/** The response if its type is `expected` and it has a body. Throws `ProtocolError`. */
async function opened(response: Response, expected: string): Promise<Response> {
  if (mediaType(response) === expected && response.body !== null) return response;
  await response.body?.cancel();
  throw new ProtocolError(`expected ${expected}, found ${mediaType(response) || "a response without a type"}`);
}

/** The response to a request for Server-Sent Events of any kind: see `sseOf`. */
export async function sendForSse(fetching: () => Promise<Response>, signal: AbortSignal, idleMs: number): Promise<Response> {
  return opened(await accepted(fetching, signal, idleMs), SSE);
}

/**
 * The events of an accepted response. Throws `ConnectionBroken` if it breaks, or if not a byte comes for `idleMs`
 * (0: however long it takes). Ends where the response ends, complete or not: who reads must see whether its run ended.
 */
export function eventsOf(response: Response, signal: AbortSignal, idleMs: number): AsyncGenerator<AnyEvent> {
  return decoded(response, DECODERS[mediaType(response) as keyof typeof DECODERS](), signal, idleMs);
}

/** The same of Server-Sent Events as they are. One that was cut off is none. */
export function sseOf(response: Response, signal: AbortSignal, idleMs: number): AsyncGenerator<SseEvent> {
  const parser = new SseParser();
  return decoded(response, { push: (chunk) => parser.push(chunk), end: () => [] }, signal, idleMs);
}

async function* decoded<T>(
  response: Response,
  decoder: Decoder<T>,
  signal: AbortSignal,
  idleMs: number,
): AsyncGenerator<T> {
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  // Not awaited: a connection that no longer answers must not hold back who leaves it.
  const leave = (): void => void reader.cancel().catch(() => {});
  signal.addEventListener("abort", leave);
  try {
    for (;;) {
      const { done, value } = await readOrBreak(reader, signal, idleMs);
      yield* done ? decoder.end() : decoder.push(value);
      if (done) return;
    }
  } finally {
    signal.removeEventListener("abort", leave);
    leave();
  }
}

async function readOrBreak(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  signal: AbortSignal,
  idleMs: number,
): Promise<ReadableStreamReadResult<Uint8Array>> {
  try {
    return await within(idleMs, reader.read());
  } catch (error) {
    if (signal.aborted || error instanceof ConnectionBroken) throw error;
    throw new ConnectionBroken(`the connection broke: ${describe(error)}`, { cause: error });
  }
}

/** The value that is waited for, if it comes within `idleMs` (0: whenever it comes). */
async function within<T>(idleMs: number, coming: Promise<T>): Promise<T> {
  if (idleMs <= 0) return coming;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new ConnectionBroken(`nothing came for ${idleMs} ms`)), idleMs);
  });
  try {
    return await Promise.race([coming, silence]);
  } finally {
    clearTimeout(timer);
  }
}

interface Decoder<T> {
  push(chunk: Uint8Array): T[];
  /** The rest at the end of the response, as far as it can be read. */
  end(): T[];
}

const DECODERS = {
  [SSE](): Decoder<AnyEvent> {
    const parser = new SseParser();
    const wanted = ({ data }: SseEvent): boolean => data !== "";
    return {
      push: (chunk) => parser.push(chunk).filter(wanted).map((event) => eventIn(json(event.data))),
      end: () =>
        parser
          .end()
          .filter((event) => wanted(event) && isJson(event.data))
          .map((event) => eventIn(json(event.data))),
    };
  },
  [BINARY](): Decoder<AnyEvent> {
    const parser = new FrameParser();
    return {
      push: (chunk) => parser.push(chunk).map((frame) => eventIn(decodeMsgpack(frame))),
      end: () => [], // half a frame is no event
    };
  },
};

function eventIn(value: unknown): AnyEvent {
  if (typeof value === "object" && value !== null && typeof (value as { type?: unknown }).type === "string") {
    return value as AnyEvent;
  }
  throw new ProtocolError(`expected an event with a type, found ${excerpt(JSON.stringify(value))}`);
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ProtocolError(`expected an event as JSON, found ${excerpt(text)}`);
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text().catch(() => "");
  try {
    const document: unknown = JSON.parse(text);
    if (typeof document === "object" && document !== null) return { ...document, status: response.status };
  } catch {
    // not a problem document: its text is all there is
  }
  return { status: response.status, title: response.statusText, ...(text !== "" && { detail: excerpt(text) }) };
}

function mediaType(response: Response): string {
  return (response.headers.get("Content-Type") ?? "").split(";", 1).join("").trim().toLowerCase();
}

export function describe(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof Error) return cause.message || String((cause as { code?: unknown }).code ?? cause.name);
  return error instanceof Error ? error.message : String(error);
}

function excerpt(text: string | undefined): string {
  return text === undefined ? "nothing" : text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
