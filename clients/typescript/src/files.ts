/** Files of a server: bytes go up as they are and come back as they were. Messages hold their ids. */

import { ConnectionLost, HaiError, HttpProblem, ProtocolError } from "./errors.js";
import type { ContentPart } from "./events.js";
import { describe, problemOf } from "./transport.js";

/** A file as the server knows it: by its content. The same bytes are the same file. */
export interface UploadedFile {
  id: string;
  /** Of its bytes, in hexadecimal. */
  sha256: string;
  /** In bytes. */
  size: number;
  name: string;
  mediaType: string;
  /** The part of a message that refers to the file. */
  part: ContentPart;
}

export interface UploadOptions {
  /** The name that its owner gives it; of a `File` its own name. */
  name?: string;
  /** Default: that of the `Blob`, else `application/octet-stream`. */
  mediaType?: string;
  signal?: AbortSignal;
}

export type FileContent = Blob | ArrayBuffer | Uint8Array | string;
type Request = (url: string, init: RequestInit) => Promise<Response>;

/** Where the files of the server are whose agent is at `url`, such as `/awp` or `/workflows/release/awp`. */
export function filesUrlOf(url: string): string {
  const found = /^(.*?)(?:\/workflows\/[^/?#]+)?\/awp\/?(?:[?#].*)?$/.exec(url);
  if (found === null) {
    throw new HaiError(`expected a url that ends in /awp, found ${url}: say where the files are (\`filesUrl\`)`);
  }
  return `${found[1]}/v1/files`;
}

/** Stores the content as a file of the caller's: whole, or not at all. */
export async function uploadFile(
  request: Request,
  filesUrl: string,
  content: FileContent,
  options: UploadOptions,
): Promise<UploadedFile> {
  const body = new Blob([content as BlobPart]);
  const name = options.name ?? (content as { name?: unknown }).name;
  const query = typeof name === "string" && name !== "" ? `?name=${encodeURIComponent(name)}` : "";
  const mediaType = options.mediaType || (content instanceof Blob && content.type) || "application/octet-stream";
  const headers: Record<string, string> = { "Content-Type": mediaType, ...(await digestOf(body)) };
  const response = await accepted(request, `${filesUrl}${query}`, { method: "POST", headers, body }, options.signal);
  const file = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  if (typeof file["id"] !== "string" || typeof file["part"] !== "object" || file["part"] === null) {
    throw new ProtocolError("expected a file with an id and a part as the answer to an upload");
  }
  const { media_type, ...known } = file;
  return { ...known, mediaType: media_type } as unknown as UploadedFile;
}

/** The content of the file. */
export async function downloadFile(request: Request, filesUrl: string, id: string, signal?: AbortSignal): Promise<Blob> {
  const response = await accepted(request, `${filesUrl}/${encodeURIComponent(id)}`, { method: "GET", headers: {} }, signal);
  try {
    return await response.blob();
  } catch (error) {
    throw lost(error, signal);
  }
}

async function accepted(request: Request, url: string, init: RequestInit, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await request(url, { ...init, ...(signal && { signal }) });
  } catch (error) {
    throw lost(error, signal);
  }
  if (!response.ok) throw new HttpProblem(await problemOf(response));
  return response;
}

/** An abort is passed on; any other error is a connection that broke. */
function lost(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted || error instanceof HaiError) return error;
  return new ConnectionLost(`the file did not come through: ${describe(error)}`, { cause: error });
}

/** The digest of the content that must arrive (RFC 9530). A page that is not secure can't compute it. */
async function digestOf(body: Blob): Promise<Record<string, string>> {
  if (globalThis.crypto?.subtle === undefined) return {};
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await body.arrayBuffer()));
  return { "Content-Digest": `sha-256=:${btoa(String.fromCharCode(...digest))}:` };
}
