/** JSON that is still being written: the arguments of a call while they stream. */

const NOTHING = Symbol("nothing that could be read");

/** As much of `text` as can be read by now; `undefined` if that is nothing. What follows a mistake is left out. */
export function parsePartialJson(text: string): unknown {
  const value = new Reader(text).value();
  return value === NOTHING ? undefined : value;
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  value(): unknown {
    this.#match(/\s*/y);
    switch (this.#text[this.#at]) {
      case "{": return this.#object();
      case "[": return this.#array();
      case '"': return this.#string(true);
      default: return this.#scalar();
    }
  }

  #object(): Record<string, unknown> {
    const entries: [string, unknown][] = [];
    this.#at++;
    while (this.#match(/\s*,?\s*(?=")/y) !== undefined) {
      const name = this.#string(false);
      if (typeof name !== "string" || this.#match(/\s*:/y) === undefined) break;
      const value = this.value();
      if (value === NOTHING) break;
      entries.push([name, value]);
    }
    this.#match(/\s*\}/y);
    return Object.fromEntries(entries);
  }

  #array(): unknown[] {
    const items: unknown[] = [];
    this.#at++;
    while (this.#match(/\s*\]/y) === undefined) {
      this.#match(/\s*,/y);
      const value = this.value();
      if (value === NOTHING) break;
      items.push(value);
    }
    return items;
  }

  /** A string; one that is not closed yet only if `open`. */
  #string(open: boolean): unknown {
    const whole = this.#match(/"(?:[^"\\]|\\.)*"/sy);
    if (whole !== undefined) return parsed(whole);
    if (!open) return NOTHING;
    const start = this.#match(/"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*/sy) ?? '"'; // without an escape that is cut
    this.#at = this.#text.length;
    return parsed(`${start}"`);
  }

  #scalar(): unknown {
    const literal = this.#match(/true|false|null|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y);
    return literal === undefined ? NOTHING : parsed(literal);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    this.#at += found?.length ?? 0;
    return found;
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return NOTHING;
  }
}
