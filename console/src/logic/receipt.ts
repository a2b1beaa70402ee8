// A receipt, checked in the reader's own browser: the signature by Web Crypto, the texts by their digests.
// (clients/receipts/verify_receipt.ts does the same outside of this page.)

import type { Json } from "../api/types.gen.ts";

export type ReceiptPart = "file" | "header" | "key" | "signature" | "texts" | "executed";

/** The part of the receipt that does not hold. */
export class Unproven extends Error {
  readonly part: ReceiptPart;

  constructor(part: ReceiptPart) {
    super(part);
    this.part = part;
  }
}

/** This browser can't check: it has no Ed25519, or the page is not served over HTTPS. */
export class NoCrypto extends Error {}

type Digest = { sha256: string } | null;

export interface ReceiptContent {
  question: { at: string; workflow: { name: string; version: number }; tool: string | null };
  votes: { at: string; by: Digest; decision: string }[];
  decision: { at: string; outcome: string; arguments: Digest };
  executed: { attempt: number; arguments: Digest; began_at: string; ended_at: string | null; outcome: string | null }[];
}

export interface ProvenReceipt {
  content: ReceiptContent;
  /** The id of the key that has signed. */
  key: string;
  /** The text of a digest; null: this reader is not told. */
  textOf: (digest: Digest) => string | null;
}

interface ReceiptFile {
  receipt: string;
  texts: Record<string, { salt: string; text: string }>;
}

const utf8 = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>;

function bytesOf(text: string, part: ReceiptPart): Uint8Array<ArrayBuffer> {
  let data: string;
  try {
    data = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  } catch {
    throw new Unproven(part);
  }
  const again = btoa(data).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  if (again !== text) throw new Unproven(part); // another text for the same bytes
  return Uint8Array.from(data, (sign) => sign.charCodeAt(0));
}

function sorted(value: Json): Json {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((name) => [name, sorted(value[name] ?? null)]),
  );
}

function digestsOf(value: Json): string[] {
  if (value === null || typeof value !== "object") return [];
  if (!Array.isArray(value) && Object.keys(value).join() === "sha256") return [String(value["sha256"])];
  return Object.values(value).flatMap((each) => digestsOf(each ?? null));
}

/** The file, which is written in one way alone: so a member that stands twice, or another order, is no receipt. */
function fileOf(text: string): ReceiptFile {
  let file: Json;
  try {
    file = JSON.parse(text) as Json;
  } catch {
    throw new Unproven("file");
  }
  const exact = JSON.stringify(sorted(file)) === text.replace(/\n+$/, "");
  if (!exact || file === null || typeof file !== "object" || Object.keys(file).join() !== "receipt,texts") throw new Unproven("file");
  return file as unknown as ReceiptFile;
}

function parsed<T>(bytes: Uint8Array<ArrayBuffer>, part: ReceiptPart): T {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as T;
  } catch {
    throw new Unproven(part);
  }
}

async function imported(raw: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  try {
    return await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
  } catch (error) {
    if (error instanceof DOMException && error.name === "NotSupportedError") throw new NoCrypto();
    throw new Unproven("key");
  }
}

/** The receipt, if it holds. Throws Unproven, which names the part that does not, or NoCrypto. */
export async function verifyReceipt(receipt: string, jwks: string): Promise<ProvenReceipt> {
  if (globalThis.crypto?.subtle === undefined) throw new NoCrypto();
  const file = fileOf(receipt);
  const parts = typeof file.receipt === "string" ? file.receipt.split(".") : [];
  const [first, second, third] = parts;
  if (parts.length !== 3 || first === undefined || second === undefined || third === undefined) throw new Unproven("signature");
  const header = parsed<{ alg?: unknown; kid?: unknown; typ?: unknown }>(bytesOf(first, "header"), "header");
  if (header === null || Object.keys(header).sort().join() !== "alg,kid,typ") throw new Unproven("header");
  if (header.alg !== "EdDSA" || header.typ !== "hai-flow-receipt+jws") throw new Unproven("header");
  const { keys } = JSON.parse(jwks) as { keys: { kid: string; x: string; crv: string }[] };
  const key = keys.find((each) => each.kid === header.kid && each.crv === "Ed25519");
  if (key === undefined) throw new Unproven("key");
  const publicKey = await imported(bytesOf(key.x, "key"));
  const holds = await crypto.subtle.verify("Ed25519", publicKey, bytesOf(third, "signature"), utf8(`${first}.${second}`));
  if (!holds) throw new Unproven("signature");
  const content = parsed<ReceiptContent>(bytesOf(second, "signature"), "signature");
  await checkTexts(file, content);
  const decided = content.decision.arguments?.sha256;
  if (content.executed.some((each) => each.arguments?.sha256 !== decided)) throw new Unproven("executed");
  return { content, key: key.kid, textOf: (digest) => (digest === null ? null : (file.texts[digest.sha256]?.text ?? null)) };
}

async function checkTexts(file: ReceiptFile, content: ReceiptContent): Promise<void> {
  const signed = new Set(digestsOf(content as unknown as Json));
  for (const [digest, entry] of Object.entries(file.texts)) {
    const { salt, text } = entry ?? {};
    if (typeof salt !== "string" || typeof text !== "string" || Object.keys(entry).sort().join() !== "salt,text") throw new Unproven("texts");
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", utf8(salt + text)));
    const hex = [...sum].map((each) => each.toString(16).padStart(2, "0")).join("");
    if (hex !== digest || !signed.has(digest)) throw new Unproven("texts");
  }
}
