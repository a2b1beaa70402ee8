/** Verify a receipt of HAI Flow: node verify_receipt.ts RECEIPT.json KEYS.json. Web Crypto, nothing of HAI Flow. */

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Digest = { sha256: string } | null;
type Content = { decision: { arguments: Digest }; executed: { arguments: Digest }[] };

const bytes = (text: string): Uint8Array<ArrayBuffer> => {
  const data = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (sign) => sign.charCodeAt(0));
  const again = btoa(String.fromCharCode(...data)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  if (again !== text) throw new Error("base64url is written otherwise than RFC 7515 says");
  return data;
};

const digests = (value: Json): string[] => {
  if (value === null || typeof value !== "object") return [];
  if (!Array.isArray(value) && Object.keys(value).join() === "sha256") return [String(value.sha256)];
  return Object.values(value).flatMap(digests);
};

const sorted = (value: Json): Json =>
  value === null || typeof value !== "object" || Array.isArray(value)
    ? value
    : Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name]!)]));

/** The content of the receipt. Throws an Error that names the part that does not hold. */
export async function verify(receipt: string, keys: string): Promise<Content> {
  const file = JSON.parse(receipt) as { receipt: string; texts: Record<string, { salt: string; text: string }> };
  if (JSON.stringify(sorted(file)) !== receipt.replace(/\n+$/, "")) throw new Error("the file: it is not as it was given out");
  if (Object.keys(file).sort().join() !== "receipt,texts") throw new Error("the file: it has parts that no receipt has");
  const parts = file.receipt.split(".");
  if (parts.length !== 3) throw new Error("the signed part: it has not three parts");
  const [header, payload, signature] = parts.map(bytes);
  const text = new TextDecoder("utf-8", { fatal: true });
  const named = JSON.parse(text.decode(header)) as { alg: string; kid: string; typ: string };
  if (Object.keys(named).sort().join() !== "alg,kid,typ") throw new Error("the header: it has members that no receipt has");
  if (named.alg !== "EdDSA" || named.typ !== "hai-flow-receipt+jws") throw new Error("the header: it is not one of a receipt");
  const jwk = (JSON.parse(keys) as { keys: { kid: string; x: string; status?: string }[] }).keys.find((each) => each.kid === named.kid);
  if (!jwk) throw new Error(`the key: ${named.kid} is none of those given`);
  const key = await crypto.subtle.importKey("raw", bytes(jwk.x), "Ed25519", false, ["verify"]);
  const signed = new TextEncoder().encode(`${parts[0]}.${parts[1]}`);
  if (!(await crypto.subtle.verify("Ed25519", key, signature!, signed)))
    throw new Error(`the signature: it is not that of the key ${jwk.kid} ${jwk.status ?? ""} over this content`);
  const content = JSON.parse(text.decode(payload)) as Content;
  const there = new Set(digests(content as unknown as Json));
  for (const [digest, told] of Object.entries(file.texts)) {
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(told.salt + told.text)));
    const hex = [...sum].map((each) => each.toString(16).padStart(2, "0")).join("");
    if (hex !== digest || Object.keys(told).sort().join() !== "salt,text") throw new Error(`the texts: ${digest} is not that of its text`);
    if (!there.has(digest)) throw new Error(`the texts: nothing that was signed has the digest ${digest}`);
  }
  if (content.executed.some((each) => each.arguments?.sha256 !== content.decision.arguments?.sha256))
    throw new Error("what was executed: its arguments are not those that were decided");
  return content;
}

if (typeof process !== "undefined" && process.argv[1]?.endsWith("verify_receipt.ts")) {
  const { readFile } = await import("node:fs/promises");
  const [receipt, keys] = await Promise.all(process.argv.slice(2, 4).map((path) => readFile(path, "utf8")));
  console.log(JSON.stringify(await verify(receipt!, keys!), null, 2));
}
