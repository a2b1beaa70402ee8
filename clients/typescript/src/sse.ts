/**
 * Server-Sent Events: bytes in, events out. Pure: it knows no socket.
 *
 * Chunks may be cut anywhere: inside a character, between CR and LF, inside a field. Lines end with LF, CRLF or CR.
 */

export interface SseEvent {
  /** The last id that the stream named, if any. */
  id?: string;
  /** The value of `event:`, if any. */
  event?: string;
  data: string;
}

export class SseParser {
  #decoder = new TextDecoder(); // drops a byte order mark, holds back the bytes of a character that is cut
  #line = "";
  #afterCr = false;
  #data: string[] = [];
  #event: string | undefined;
  #id: string | undefined;

  /** The events that `chunk` completes. */
  push(chunk: Uint8Array): SseEvent[] {
    return this.#read(this.#decoder.decode(chunk, { stream: true }));
  }

  /**
   * What stands at the end of the stream without its blank line. The standard drops it, because it may be cut; who reads
   * it must be ready for half of it.
   */
  end(): SseEvent[] {
    const events = this.#read(this.#decoder.decode());
    if (this.#line !== "") this.#field(this.#line);
    this.#line = "";
    return [...events, ...this.#dispatch()];
  }

  #read(text: string): SseEvent[] {
    if (text === "") return [];
    const events: SseEvent[] = [];
    let start = this.#afterCr && text.startsWith("\n") ? 1 : 0; // the second half of a CRLF
    this.#afterCr = false;
    const breaks = /\r\n|\r|\n/g;
    breaks.lastIndex = start;
    for (let found = breaks.exec(text); found !== null; found = breaks.exec(text)) {
      const line = this.#line + text.slice(start, found.index);
      this.#line = "";
      start = breaks.lastIndex;
      if (line === "") events.push(...this.#dispatch());
      else this.#field(line);
    }
    this.#afterCr = text.endsWith("\r");
    this.#line += text.slice(start);
    return events;
  }

  #field(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment, such as a keep-alive
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }

  #dispatch(): SseEvent[] {
    const [data, event] = [this.#data, this.#event];
    this.#data = [];
    this.#event = undefined;
    if (data.length === 0) return [];
    return [
      {
        ...(this.#id !== undefined && { id: this.#id }),
        ...(event !== undefined && { event }),
        data: data.join("\n"),
      },
    ];
  }
}
