/**
 * The messages of agents: a message is a sequence of JSON documents, each with one output, or bare text.
 *
 * The stream concatenates the documents of a message, and so does a snapshot: `{...}{...}`. Their seams are found by
 * reading the JSON, so a `}{` inside a string is left alone, and a document may be cut anywhere.
 */

import { isKnownOutput, type HaiDocument, type HaiMessage } from "./events.js";

/** Reads the documents of one message from its deltas. */
export class DocumentReader {
  #text = ""; // of the document that is not complete
  #scanned = 0;
  #depth = 0;
  #inString = false;
  #bare: boolean | undefined; // decided by the first character

  /** The documents that `delta` completes. Bare text comes as one text output for each delta. */
  push(delta: string): HaiDocument[] {
    this.#text += delta;
    this.#bare ??= this.#text.trim() === "" ? undefined : !this.#text.trimStart().startsWith("{");
    if (this.#bare !== false) return this.#bare ? this.end() : [];
    const documents: HaiDocument[] = [];
    for (let end = this.#scan(); end !== undefined; end = this.#scan()) {
      documents.push(parse(this.#text.slice(0, end).trimStart()));
      this.#text = this.#text.slice(end);
      this.#scanned = 0;
    }
    return documents;
  }

  /** The rest when the message ends: text that only looked like a document, or a document that was never completed. */
  end(): HaiDocument[] {
    const rest = this.#text;
    this.#text = "";
    this.#scanned = this.#depth = 0;
    this.#inString = false;
    return rest === "" || (this.#bare === false && rest.trim() === "") ? [] : [textDocument(rest)];
  }

  /** Where the first document of the text ends, if it does. */
  #scan(): number | undefined {
    for (; this.#scanned < this.#text.length; this.#scanned++) {
      const character = this.#text[this.#scanned];
      if (this.#inString) {
        if (character === "\\") this.#scanned++; // the next character, even if it is yet to come
        else if (character === '"') this.#inString = false;
      } else if (character === '"') {
        this.#inString = true;
      } else if (character === "{") {
        this.#depth++;
      } else if (character === "}" && this.#depth > 0 && --this.#depth === 0) {
        return this.#scanned + 1;
      }
    }
    return undefined;
  }
}

/** All documents of a message's content; bare text is one text output. */
export function documentsOf(content: string): HaiDocument[] {
  const reader = new DocumentReader();
  return [...reader.push(content), ...reader.end()];
}

/** The words of a message, of any author: its text outputs, or what a person typed. */
export function textOf(message: HaiMessage): string {
  if (message.role === "activity" || message.content === undefined) return "";
  if (typeof message.content !== "string") {
    return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  }
  if (message.role !== "assistant") return message.content;
  return documentsOf(message.content)
    .map(({ output }) => (isKnownOutput(output) && output.type === "text" ? output.content : ""))
    .join("");
}

function parse(text: string): HaiDocument {
  try {
    const document = JSON.parse(text) as Partial<HaiDocument>;
    if (typeof document.output?.type === "string") return document as HaiDocument;
  } catch {
    // text with braces in it
  }
  return textDocument(text);
}

function textDocument(content: string): HaiDocument {
  return { output: { type: "text", content } };
}
