/**
 * MessagePack, the half that a reader of events needs: the values of JSON, plus byte strings.
 *
 * A decoder of our own, because the usual one brings an encoder, extension types and streams and is seven times as large,
 * and this is all that an event can contain. Extension types are refused: nothing in the protocol has one.
 */

import { ProtocolError } from "./errors.js";

const DEPTH_MAX = 200;

/** The value that `bytes` hold, which must be exactly one. */
export function decodeMsgpack(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (reader.offset !== bytes.length) {
    throw new ProtocolError(
      `expected one MessagePack value of ${bytes.length} bytes, found ${bytes.length - reader.offset} bytes after it`,
    );
  }
  return value;
}

class Reader {
  offset = 0;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  value(depth: number): unknown {
    if (depth > DEPTH_MAX) throw new ProtocolError(`expected at most ${DEPTH_MAX} levels of MessagePack, found more`);
    const tag = this.#unsigned(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.#map(tag & 0x0f, depth);
    if (tag < 0xa0) return this.#array(tag & 0x0f, depth);
    if (tag < 0xc0) return this.#text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: return this.#take(this.#unsigned(1)).slice();
      case 0xc5: return this.#take(this.#unsigned(2)).slice();
      case 0xc6: return this.#take(this.#unsigned(4)).slice();
      case 0xca: return this.#view.getFloat32(this.#advance(4));
      case 0xcb: return this.#view.getFloat64(this.#advance(8));
      case 0xcc: return this.#unsigned(1);
      case 0xcd: return this.#unsigned(2);
      case 0xce: return this.#unsigned(4);
      case 0xcf: return Number(this.#view.getBigUint64(this.#advance(8))); // as exact as JSON.parse
      case 0xd0: return this.#view.getInt8(this.#advance(1));
      case 0xd1: return this.#view.getInt16(this.#advance(2));
      case 0xd2: return this.#view.getInt32(this.#advance(4));
      case 0xd3: return Number(this.#view.getBigInt64(this.#advance(8)));
      case 0xd9: return this.#text(this.#unsigned(1));
      case 0xda: return this.#text(this.#unsigned(2));
      case 0xdb: return this.#text(this.#unsigned(4));
      case 0xdc: return this.#array(this.#unsigned(2), depth);
      case 0xdd: return this.#array(this.#unsigned(4), depth);
      case 0xde: return this.#map(this.#unsigned(2), depth);
      case 0xdf: return this.#map(this.#unsigned(4), depth);
      default:
        throw new ProtocolError(
          `expected plain MessagePack data, found type 0x${tag.toString(16)} at byte ${this.offset - 1}`,
        );
    }
  }

  #unsigned(size: 1 | 2 | 4): number {
    const at = this.#advance(size);
    if (size === 1) return this.#view.getUint8(at);
    return size === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
  }

  #text(length: number): string {
    try {
      return this.#utf8.decode(this.#take(length));
    } catch (error) {
      if (error instanceof ProtocolError) throw error;
      throw new ProtocolError(`expected UTF-8 in a MessagePack string, found other bytes before byte ${this.offset}`);
    }
  }

  #array(length: number, depth: number): unknown[] {
    const items: unknown[] = []; // not `new Array(length)`: a lie about the length must not cost memory
    for (let index = 0; index < length; index++) items.push(this.value(depth + 1));
    return items;
  }

  #map(length: number, depth: number): Record<string, unknown> {
    const entries: [string, unknown][] = [];
    for (let index = 0; index < length; index++) {
      const name = this.value(depth + 1);
      if (typeof name !== "string") throw new ProtocolError(`expected text as a MessagePack key, found ${typeof name}`);
      entries.push([name, this.value(depth + 1)]);
    }
    return Object.fromEntries(entries); // own properties only, also for a key called __proto__
  }

  #take(length: number): Uint8Array {
    const at = this.#advance(length);
    return this.#bytes.subarray(at, at + length);
  }

  #advance(length: number): number {
    const at = this.offset;
    if (at + length > this.#bytes.length) {
      throw new ProtocolError(`expected ${length} more bytes of MessagePack, found ${this.#bytes.length - at}`);
    }
    this.offset += length;
    return at;
  }
}
