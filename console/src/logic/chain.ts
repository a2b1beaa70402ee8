// The chain over the records of the audit, computed anew from what the server says is in them: a record that was
// changed since it was sealed has another hash than its seal (hai_flow/store/audit/audit_chain.py has the same bytes).

import type { AuditLink } from "../api/types.gen.ts";

export type FaultKind = "changed" | "removed" | "details" | "order";

export interface ChainFault {
  n: number;
  kind: FaultKind;
}

const ABSENT = new Uint8Array([255, 255, 255, 255]);
const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const RECORD = text("hai.audit.record.v1\0");
const DETAILS = text("hai.audit.details.v1\0");
const SEAL = text("hai.audit.seal.v1\0");
const CHAIN = text("hai.audit.chain.v1\0");

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, each) => size + each.length, 0));
  let at = 0;
  for (const each of parts) {
    whole.set(each, at);
    at += each.length;
  }
  return whole;
}

function fields(...given: (Uint8Array | null)[]): Uint8Array {
  return joined(
    given.flatMap((each) => {
      if (each === null) return [ABSENT];
      const length = new Uint8Array(4);
      new DataView(length.buffer).setUint32(0, each.length);
      return [length, each];
    }),
  );
}

function number(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(value));
  return bytes;
}

export function fromHex(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

const uuid = (id: string): Uint8Array => fromHex(id.replaceAll("-", ""));

async function sha256(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as BufferSource));
}

type Given = Record<string, unknown>;
const optional = <T>(value: unknown, bytes: (given: T) => Uint8Array): Uint8Array | null =>
  value === null || value === undefined ? null : bytes(value as T);

function recordBytes(record: Given): Uint8Array {
  return joined([
    RECORD,
    fields(
      uuid(String(record["tenant"])),
      uuid(String(record["id"])),
      number(Number(record["at"])),
      text(String(record["act"])),
      optional(record["run_id"], uuid),
      optional(record["seq"], number),
      optional(record["head"], fromHex),
      optional(record["subject"], text),
      optional(record["digest"], fromHex),
      fromHex(String(record["commitment"] ?? "")),
    ),
  ]);
}

async function commitment(details: Given): Promise<string> {
  const given = fields(
    fromHex(String(details["salt"])),
    text(String(details["principal"])),
    text(String(details["body"])),
    optional(details["erased_at"], number),
  );
  return toHex(await sha256(joined([DETAILS, given])));
}

/** Checks the chain of one tenant, link by link in its order. */
export class ChainVerifier {
  n = 0;
  hash: Uint8Array;
  erased = 0;
  readonly faults: ChainFault[] = [];

  private constructor(hash: Uint8Array) {
    this.hash = hash;
  }

  static async of(tenant: string): Promise<ChainVerifier> {
    return new ChainVerifier(await sha256(joined([CHAIN, uuid(tenant)])));
  }

  async check(link: AuditLink): Promise<void> {
    if (link.n !== this.n + 1) {
      this.#fault(this.n + 1, link.n <= this.n ? "order" : "removed");
    } else if (link.record === null) {
      this.#fault(link.n, "removed");
    } else {
      const sealed = joined([SEAL, fields(this.hash, number(link.n)), recordBytes(link.record)]);
      if (toHex(await sha256(sealed)) !== link.hash) this.#fault(link.n, "changed");
      if (link.details === null) this.#fault(link.n, "details");
      else if ((await commitment(link.details)) !== link.record["commitment"]) {
        // Who erased them says so in a record of its own, which the command line holds against them.
        if (link.details["erased_at"] === null) this.#fault(link.n, "details");
        else this.erased += 1;
      }
    }
    this.n = link.n;
    this.hash = fromHex(link.hash);
  }

  #fault(n: number, kind: FaultKind): void {
    if (this.faults.length < 1000) this.faults.push({ n, kind });
  }
}
