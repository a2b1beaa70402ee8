import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";

import { ConnectionLost, HaiError, HttpAgent, HttpProblem, ProtocolError } from "../dist/index.js";

interface Asked {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingMessage["headers"];
  body: Buffer;
}

/** A server that answers every request alike; its agent, and what it was asked. */
async function serve(
  context: TestContext,
  answer: (response: ServerResponse) => void,
  path = "/workflows/release/awp",
): Promise<{ agent: HttpAgent; asked: Asked[] }> {
  const asked: Asked[] = [];
  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    asked.push({ method: incoming.method, url: incoming.url, headers: incoming.headers, body: Buffer.concat(chunks) });
    answer(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`;
  return { agent: new HttpAgent({ url, key: "k", headers: { "X-Team": "a" } }), asked };
}

const PART = { type: "image", source: { type: "file", value: "file_1", mimeType: "image/png" } };
const stored = (response: ServerResponse): void => {
  response.writeHead(201, { "Content-Type": "application/json" });
  response.end(JSON.stringify({ id: "file_1", sha256: "1", size: 3, name: "a b.png", media_type: "image/png", part: PART }));
};

test("a file goes up as it is, under its name, with its type and its digest", async (context) => {
  const { agent, asked } = await serve(context, stored);
  const bytes = new Uint8Array([0, 255, 10]);
  const file = await agent.uploadFile(new File([bytes], "a b.png", { type: "image/png" }));
  assert.deepEqual(file, { id: "file_1", sha256: "1", size: 3, name: "a b.png", mediaType: "image/png", part: PART });
  const [request] = asked;
  assert.equal(request?.method, "POST");
  assert.equal(request.url, "/v1/files?name=a%20b.png");
  assert.deepEqual([...request.body], [...bytes]);
  assert.equal(request.headers["content-type"], "image/png");
  assert.equal(request.headers["content-digest"], `sha-256=:${createHash("sha256").update(bytes).digest("base64")}:`);
  assert.equal(request.headers.authorization, "Bearer k");
  assert.equal(request.headers["x-team"], "a");
});

test("bytes and text are files without a name, unless one is given", async (context) => {
  const { agent, asked } = await serve(context, stored, "/awp");
  await agent.uploadFile(new Uint8Array([1]));
  await agent.uploadFile("grün", { name: "a.txt", mediaType: "text/plain" });
  assert.deepEqual(
    asked.map(({ url, headers, body }) => [url, headers["content-type"], body.toString()]),
    [
      ["/v1/files", "application/octet-stream", "\u0001"],
      ["/v1/files?name=a.txt", "text/plain", "grün"],
    ],
  );
});

test("a file comes down as it was", async (context) => {
  const { agent, asked } = await serve(context, (response) => {
    response.writeHead(200, { "Content-Type": "image/png" });
    response.end(Buffer.from([0, 255, 10]));
  });
  const found = await agent.downloadFile("file_1");
  assert.deepEqual([found.type, [...new Uint8Array(await found.arrayBuffer())]], ["image/png", [0, 255, 10]]);
  assert.deepEqual([asked[0]?.method, asked[0]?.url], ["GET", "/v1/files/file_1"]);
});

test("a refusal is a problem, what is no file is told, and a connection that breaks is lost", async (context) => {
  const refusing = await serve(context, (response) => {
    response.writeHead(413, { "Content-Type": "application/problem+json" });
    response.end(JSON.stringify({ code: "file.too_large", detail: "a file has at most 9 bytes." }));
  });
  await assert.rejects(refusing.agent.uploadFile("x"), (error) => error instanceof HttpProblem && error.code === "file.too_large");
  await assert.rejects(refusing.agent.downloadFile("file_1"), HttpProblem);
  const strange = await serve(context, (response) => response.end("<html>"));
  await assert.rejects(strange.agent.uploadFile("x"), ProtocolError);
  const cutting = await serve(context, (response) => {
    response.writeHead(200, { "Content-Length": "100" });
    response.write("half", () => response.socket?.resetAndDestroy());
  });
  await assert.rejects(cutting.agent.downloadFile("file_1"), ConnectionLost);
  await assert.rejects(cutting.agent.uploadFile("x", { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("where the files are is told where the address of the agent does not say it", async (context) => {
  const { agent, asked } = await serve(context, stored, "/chat");
  await assert.rejects(agent.uploadFile("x"), (error) => error instanceof HaiError && error.message.includes("filesUrl"));
  const other = new HttpAgent({ url: agent.url, filesUrl: agent.url.replace("/chat", "/store") });
  await other.uploadFile("x");
  assert.equal(asked[0]?.url, "/store");
});
