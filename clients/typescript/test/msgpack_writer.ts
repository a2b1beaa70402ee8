/** Enough of a MessagePack writer to test a reader with. */

export function hex(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export function pack(value: unknown): Uint8Array {
  if (value === null) return Uint8Array.of(0xc0);
  if (typeof value === "boolean") return Uint8Array.of(value ? 0xc3 : 0xc2);
  if (typeof value === "string") {
    const text = new TextEncoder().encode(value);
    return joined([sized(0xdb, text.length), text]);
  }
  if (typeof value === "number") {
    const bytes = new Uint8Array(9);
    bytes[0] = 0xcb;
    new DataView(bytes.buffer).setFloat64(1, value);
    return bytes;
  }
  if (Array.isArray(value)) return joined([sized(0xdd, value.length), ...value.map(pack)]);
  const entries = Object.entries(value as object);
  return joined([sized(0xdf, entries.length), ...entries.flatMap(([name, each]) => [pack(name), pack(each)])]);
}

export function framed(bodies: Uint8Array[]): Uint8Array {
  return joined(bodies.flatMap((body) => [sized(undefined, body.length), body]));
}

function sized(tag: number | undefined, length: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, length);
  return tag === undefined ? bytes : Uint8Array.of(tag, ...bytes);
}

function joined(parts: Uint8Array[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}
