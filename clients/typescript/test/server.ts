/** A server on a real socket whose answers a test scripts. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

import type { RunAgentInput } from "../dist/index.js";

export interface Request {
  method: string;
  /** The path with its query. */
  path: string;
  body: string;
  input: RunAgentInput;
  headers: IncomingMessage["headers"];
}

/** One answer: what to do with the response to one request. */
export type Answer = (response: ServerResponse, request: Request) => void | Promise<void>;

export const sse = (event: unknown): string => `data: ${JSON.stringify(event)}\n\n`;

/** Streams events and ends, complete or not. */
export function streams(...events: unknown[]): Answer {
  return (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
    response.end(events.map(sse).join(""));
  };
}

/** Streams events, then cuts the connection. */
export function breaksAfter(...events: unknown[]): Answer {
  return (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(events.map(sse).join(""), () => response.socket?.resetAndDestroy());
  };
}

export function refuses(status: number, problem: object, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { "Content-Type": "application/problem+json", ...headers });
    response.end(JSON.stringify({ status, ...problem }));
  };
}

/** A server that gives each request the next answer. What was asked is in `requests`. */
export async function serve(context: TestContext, ...answers: Answer[]): Promise<{ url: string; requests: Request[] }> {
  const requests: Request[] = [];
  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const { method = "", url = "" } = incoming;
    const request = { method, path: url, body, input: JSON.parse(body || "null") as RunAgentInput, headers: incoming.headers };
    requests.push(request);
    const answer = answers[requests.length - 1];
    if (answer) await answer(response, request);
    else response.writeHead(500).end("the test expected no more requests");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/awp`, requests };
}
