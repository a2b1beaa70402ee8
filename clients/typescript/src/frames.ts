/**
 * The frames of the binary transport: a 4-byte big-endian length, then so many bytes. Pure: it knows no socket.
 *
 * A frame of length 0 carries nothing and keeps the connection alive.
 */

import { ProtocolError } from "./errors.js";

export const FRAME_BYTES_MAX = 16 * 1024 * 1024;
const HEADER_BYTES = 4;

export class FrameParser {
  #chunks: Uint8Array[] = [];
  #buffered = 0;

  /** The frames that `chunk` completes, without their lengths. */
  push(chunk: Uint8Array): Uint8Array[] {
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    const frames: Uint8Array[] = [];
    for (let length = this.#length(); length !== undefined; length = this.#length()) {
      if (this.#buffered < HEADER_BYTES + length) break;
      const frame = this.#take(HEADER_BYTES + length).subarray(HEADER_BYTES);
      if (frame.length > 0) frames.push(frame);
    }
    return frames;
  }

  /** Bytes of a frame that is not complete. */
  get rest(): number {
    return this.#buffered;
  }

  #length(): number | undefined {
    if (this.#buffered < HEADER_BYTES) return undefined;
    const head = this.#take(HEADER_BYTES);
    this.#chunks.unshift(head);
    this.#buffered += HEADER_BYTES;
    const length = new DataView(head.buffer, head.byteOffset, HEADER_BYTES).getUint32(0);
    if (length > FRAME_BYTES_MAX) {
      throw new ProtocolError(`expected a frame of at most ${FRAME_BYTES_MAX} bytes, found one of ${length}`);
    }
    return length;
  }

  /** The next `count` bytes, which are there. They are joined only once, however often the frame was cut. */
  #take(count: number): Uint8Array {
    this.#buffered -= count;
    const first = this.#chunks[0];
    if (first !== undefined && first.length >= count) {
      if (first.length === count) this.#chunks.shift();
      else this.#chunks[0] = first.subarray(count);
      return first.subarray(0, count);
    }
    const taken = new Uint8Array(count);
    for (let filled = 0; filled < count; ) {
      const chunk = this.#chunks.shift();
      if (chunk === undefined) throw new Error("counted more bytes than there are");
      const part = chunk.subarray(0, count - filled);
      taken.set(part, filled);
      filled += part.length;
      if (part.length < chunk.length) this.#chunks.unshift(chunk.subarray(part.length));
    }
    return taken;
  }
}
