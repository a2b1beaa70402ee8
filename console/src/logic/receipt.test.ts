import assert from "node:assert/strict";
import test from "node:test";
import { NoCrypto, Unproven, verifyReceipt } from "./receipt.ts";

const encoded = (data: string | ArrayBuffer): string =>
  Buffer.from(data as string)
    .toString("base64url");

const sorted = (value: unknown): unknown =>
  value === null || typeof value !== "object" || Array.isArray(value)
    ? value
    : Object.fromEntries(
        Object.keys(value)
          .sort()
          .map((name) => [name, sorted((value as Record<string, unknown>)[name])]),
      );

const TYPE = "hai-flow-receipt+jws";

interface Parts {
  header?: Record<string, unknown>;
  executed?: string;
  text?: string;
  file?: (text: string) => string;
}

async function made({ header = {}, executed, text = "user:ann", file = (each) => each }: Parts = {}): Promise<[string, string]> {
  const pair = (await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"])) as CryptoKeyPair;
  const x = encoded(await crypto.subtle.exportKey("raw", pair.publicKey));
  const digest = Buffer.from(await crypto.subtle.digest("SHA-256", new TextEncoder().encode("salt" + "user:ann"))).toString("hex");
  const args = { sha256: "a".repeat(64) };
  const content = {
    question: { at: "2026-01-01T00:00:00Z", workflow: { name: "refund", version: 1 }, tool: "shop.refund" },
    votes: [{ at: "2026-01-01T00:00:01Z", by: { sha256: digest }, decision: "approve" }],
    decision: { at: "2026-01-01T00:00:01Z", outcome: "approve", arguments: args },
    executed: [{ attempt: 1, began_at: "", ended_at: "", outcome: "finished", arguments: executed === undefined ? args : { sha256: executed } }],
  };
  const head = encoded(JSON.stringify({ alg: "EdDSA", kid: "k", typ: TYPE, ...header }));
  const body = encoded(JSON.stringify(content));
  const signature = encoded(await crypto.subtle.sign("Ed25519", pair.privateKey, new TextEncoder().encode(`${head}.${body}`)));
  const receipt = JSON.stringify(sorted({ receipt: `${head}.${body}.${signature}`, texts: { [digest]: { salt: "salt", text } } }));
  return [file(receipt), JSON.stringify({ keys: [{ kid: "k", kty: "OKP", crv: "Ed25519", x }] })];
}

const fails = (part: string) => (error: unknown) => error instanceof Unproven && error.part === part;

test("a receipt that holds is told with its texts", async () => {
  const { content, key, textOf } = await verifyReceipt(...(await made()));
  assert.equal(key, "k");
  assert.equal(content.decision.outcome, "approve");
  assert.equal(textOf(content.votes[0]?.by ?? null), "user:ann");
  assert.equal(textOf(content.decision.arguments), null);
});

test("the part that does not hold is named", async () => {
  const other = (await made())[1];
  await assert.rejects(verifyReceipt((await made())[0], other), fails("signature"));
  await assert.rejects(verifyReceipt(...(await made({ text: "user:eve" }))), fails("texts"));
  await assert.rejects(verifyReceipt(...(await made({ executed: "b".repeat(64) }))), fails("executed"));
  await assert.rejects(verifyReceipt(...(await made({ header: { kid: "other" } }))), fails("key"));
});

test("neither another algorithm, nor a key in the header, nor a member that must be understood is taken", async () => {
  for (const header of [{ alg: "none" }, { alg: "HS256" }, { typ: "JWT" }, { jwk: {} }, { crit: ["exp"], exp: 1 }]) {
    await assert.rejects(verifyReceipt(...(await made({ header }))), fails("header"));
  }
});

test("a file that is written otherwise is no receipt", async () => {
  const otherwise: ((text: string) => string)[] = [
    (text) => text.replace("{", "{ "),
    (text) => text.replace('"texts":', '"texts":{},"texts":'),
    (text) => text.replace("salt", "s\\u0061lt"),
    (text) => `\ufeff${text}`,
    (text) => text.slice(1),
    () => "[]",
    () => "null",
  ];
  for (const file of otherwise) await assert.rejects(verifyReceipt(...(await made({ file }))), fails("file"));
});

test("each byte of the signed part counts", async () => {
  const [receipt, keys] = await made();
  const start = receipt.indexOf('"receipt":"') + 11;
  for (let at = start; at < receipt.indexOf('"', start); at += 7) {
    const changed = receipt.slice(0, at) + (receipt[at] === "A" ? "B" : "A") + receipt.slice(at + 1);
    await assert.rejects(verifyReceipt(changed, keys), (error: unknown) => error instanceof Unproven);
  }
});

test("a browser without Ed25519 says so", async (context) => {
  const [receipt, keys] = await made();
  context.mock.method(crypto.subtle, "importKey", () => Promise.reject(new DOMException("no", "NotSupportedError")));
  await assert.rejects(verifyReceipt(receipt, keys), NoCrypto);
});
