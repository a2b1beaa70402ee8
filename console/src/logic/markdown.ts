// A safe part of Markdown, as blocks and spans: pages make nodes of them, and nothing in a text becomes markup by itself.
// What is none of it stays as it is written: HTML, pictures from elsewhere and addresses of other schemes are text.
// The work grows with the text alone, whatever stands in it.

export type Span =
  | string
  | { kind: "strong" | "em" | "del"; spans: Span[] }
  | { kind: "code"; text: string }
  | { kind: "link"; href: string; host: string; spans: Span[] };

export type Block =
  | { kind: "heading"; level: number; spans: Span[] }
  | { kind: "text"; spans: Span[] }
  | { kind: "code"; text: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; start: number | null; items: Block[][] }
  | { kind: "table"; head: Span[][]; rows: Span[][][] }
  | { kind: "rule" };

const DEPTH = 6;
const SPAN_DEPTH = 4;
const LINKED = -1; // the depth of the words of a link: no other link stands in it
const LONG = 10_000; // a paragraph beyond it is shown as it is written
const COLUMNS = 30;

const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const FENCE = /^ {0,3}(```+|~~~+)[^`]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t)(?=\S)/;
const DIVIDER = /^ {0,3}[-|: \t]*-[-|: \t]*$/;
const DIVIDED = /^:?-+:?$/;

export function blocksOf(text: string): Block[] {
  return read(text.replace(/\r\n?/g, "\n").split("\n"), DEPTH);
}

function read(lines: readonly string[], depth: number): Block[] {
  const found: Block[] = [];
  let words: string[] = [];
  const end = (): void => {
    if (words.length > 0) found.push({ kind: "text", spans: spansOf(words.join("\n")) });
    words = [];
  };
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] ?? "";
    const heading = HEADING.exec(line.trimEnd());
    const fence = FENCE.exec(line);
    if (line.trim() === "") {
      end();
      at += 1;
    } else if (heading) {
      end();
      found.push({ kind: "heading", level: heading[1]?.length ?? 1, spans: spansOf(unclosed(heading[2] ?? "")) });
      at += 1;
    } else if (fence) {
      end();
      const mark = fence[1] ?? "```";
      const closing = (each: string): boolean => each.trim().startsWith(mark) && each.trim().replaceAll(mark.charAt(0), "") === "";
      let to = at + 1;
      while (to < lines.length && !closing(lines[to] ?? "")) to += 1;
      // What stands behind the opening marks names a language; it is shown, so that nothing is hidden there.
      const named = line.trim().slice(mark.length).trim();
      found.push({ kind: "code", text: [...(named === "" ? [] : [named]), ...lines.slice(at + 1, to)].join("\n") });
      at = to + 1;
    } else if (RULE.test(line)) {
      end();
      found.push({ kind: "rule" });
      at += 1;
    } else if (depth > 0 && /^ {0,3}>/.test(line)) {
      end();
      let to = at;
      while (to < lines.length && /^ {0,3}>/.test(lines[to] ?? "")) to += 1;
      found.push({ kind: "quote", blocks: read(lines.slice(at, to).map((each) => each.replace(/^ {0,3}> ?/, "")), depth - 1) });
      at = to;
    } else if (depth > 0 && ITEM.test(line)) {
      end();
      at = list(lines, at, depth, found);
    } else if (line.includes("|") && isDivider(lines[at + 1] ?? "", cells(line).length)) {
      end();
      const head = cells(line);
      const rows: Span[][][] = [];
      let to = at + 2;
      while (to < lines.length && (lines[to] ?? "").includes("|")) {
        rows.push(cells(lines[to] ?? "").map(spansOf));
        to += 1;
      }
      found.push({ kind: "table", head: head.map(spansOf), rows });
      at = to;
    } else {
      words.push(line);
      at += 1;
    }
  }
  end();
  return found;
}

/** The words of a heading, without the signs that may stand behind it. */
function unclosed(words: string): string {
  let end = words.length;
  while (words.charAt(end - 1) === "#") end -= 1;
  return /[ \t]/.test(words.charAt(end - 1)) ? words.slice(0, end).trimEnd() : words;
}

/** Whether a line stands between the head of a table of so many columns and its rows. */
function isDivider(line: string, columns: number): boolean {
  if (columns > COLUMNS || line.length > LONG || !DIVIDER.test(line)) return false;
  const found = cells(line);
  return found.length === columns && found.every((each) => DIVIDED.test(each));
}

/** Reads the list that begins at line `at`, and says where it ends. */
function list(lines: readonly string[], at: number, depth: number, found: Block[]): number {
  const kindOf = (mark: string): string => mark.replace(/^\d+/, "");
  const first = ITEM.exec(lines[at] ?? "");
  const mark = kindOf(first?.[2] ?? "");
  const items: Block[][] = [];
  while (at < lines.length) {
    const item = ITEM.exec(lines[at] ?? "");
    if (item === null || kindOf(item[2] ?? "") !== mark) break;
    const wide = item[0].length;
    const mine = [(lines[at] ?? "").slice(wide)];
    at += 1;
    while (at < lines.length) {
      const line = lines[at] ?? "";
      const indent = line.length - line.trimStart().length;
      if (line.trim() === "") {
        // What follows a blank line belongs to the item where it is indented.
        const next = lines[at + 1] ?? "";
        if (next.trim() === "" || next.length - next.trimStart().length < 2) break;
        mine.push("");
      } else if (indent >= 2) mine.push(line.slice(Math.min(indent, wide)));
      else if (ITEM.test(line) || HEADING.test(line) || FENCE.test(line) || /^ {0,3}>/.test(line) || RULE.test(line)) break;
      else mine.push(line);
      at += 1;
    }
    items.push(read(mine, depth - 1));
    if ((lines[at] ?? "x").trim() === "" && ITEM.test(lines[at + 1] ?? "")) at += 1;
  }
  const number = /^\d+/.exec(first?.[2] ?? "");
  found.push({ kind: "list", start: number ? Number(number[0]) : null, items });
  return at;
}

function cells(line: string): string[] {
  const found: string[] = [""];
  const text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; i += 1) {
    const sign = text.charAt(i);
    if (sign === "\\" && text.charAt(i + 1) === "|") {
      found.push(`${found.pop()}|`);
      i += 1;
    } else if (sign !== "|") found.push(`${found.pop()}${sign}`);
    else if (i < text.length - 1) found.push("");
  }
  return found.map((each) => each.trim());
}

const SPECIAL = /[\\`*_~[!]|https?:\/\//g;
const BARE = /^https?:\/\/[^\s<>"'`|\\]+/;
const ESCAPED = /[!-/:-@[-`{-~]/;
const PAIRS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
] as const;

export function spansOf(text: string): Span[] {
  return text.length > LONG ? [text] : spans(text, SPAN_DEPTH);
}

function spans(text: string, depth: number): Span[] {
  const found: Span[] = [];
  const gone = new Set<string>(); // marks that close nowhere behind here: they are looked for once
  let plain = "";
  const put = (span: Span): void => {
    if (plain !== "") found.push(plain);
    plain = "";
    found.push(span);
  };
  for (let at = 0; at < text.length; ) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text);
    if (next === null) {
      plain += text.slice(at);
      break;
    }
    plain += text.slice(at, next.index);
    at = next.index;
    const sign = text.charAt(at);
    const read = sign === "\\" ? null : spanAt(text, at, depth, gone);
    if (sign === "\\" && ESCAPED.test(text.charAt(at + 1))) {
      plain += text.charAt(at + 1);
      at += 2;
    } else if (read !== null) {
      put(read.span);
      at = read.end;
    } else {
      const run = /^(\*+|_+|~+|`+)/.exec(text.slice(at, at + 400));
      const length = run ? run[0].length : 1;
      plain += text.slice(at, at + length);
      at += length;
    }
  }
  if (plain !== "") found.push(plain);
  return found;
}

function spanAt(text: string, at: number, depth: number, gone: Set<string>): { span: Span; end: number } | null {
  const sign = text.charAt(at);
  if (sign === "`") {
    const mark = /^`+/.exec(text.slice(at, at + 20))?.[0] ?? "`";
    const close = gone.has(mark) ? -1 : text.indexOf(mark, at + mark.length);
    if (close < 0) gone.add(mark);
    return close < 0 ? null : { span: { kind: "code", text: text.slice(at + mark.length, close).replace(/^ (.*) $/, "$1") }, end: close + mark.length };
  }
  if (sign === "h") {
    if (depth === LINKED || /\w/.test(text.charAt(at - 1))) return null;
    const bare = (BARE.exec(text.slice(at, at + 2000))?.[0] ?? "").replace(/[.,;:!?)*_~]+$/, "");
    const link = linkTo(bare);
    return link === null ? null : { span: { kind: "link", ...link, spans: [bare] }, end: at + bare.length };
  }
  if (depth <= 0) return null;
  if (sign === "!" && text.charAt(at + 1) === "[") {
    return spanAt(text, at + 1, depth, gone); // a picture of another server is not loaded: it is the link to it
  }
  if (sign === "[") {
    const middle = gone.has("](") ? -1 : text.indexOf("](", at);
    if (middle < 0) gone.add("](");
    const end = middle < 0 ? -1 : text.indexOf(")", middle);
    const link = end < 0 ? null : linkTo(text.slice(middle + 2, end));
    const words = text.slice(at + 1, Math.max(at + 1, middle));
    if (link === null || words.trim() === "" || words.includes("[")) return null;
    return { span: { kind: "link", ...link, spans: spans(words, LINKED) }, end: end + 1 };
  }
  for (const [mark, kind] of PAIRS) {
    if (!text.startsWith(mark, at) || gone.has(mark) || /\s/.test(text.charAt(at + mark.length) || " ")) continue;
    if (mark.startsWith("_") && /[\p{L}\p{N}]/u.test(text.charAt(at - 1))) continue;
    const close = closing(text, mark, at + mark.length);
    if (close < 0) gone.add(mark);
    else return { span: { kind, spans: spans(text.slice(at + mark.length, close), depth - 1) }, end: close + mark.length };
  }
  return null;
}

/** Where a pair of marks closes: behind a word, and `_` in front of none. */
function closing(text: string, mark: string, from: number): number {
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
    if (at === from || /\s/.test(text.charAt(at - 1))) continue;
    if (text.charAt(at + mark.length) === mark.charAt(0)) continue; // the last of several marks
    if (mark.length === 1 && text.charAt(at - 1) === mark && text.charAt(at - 2) !== mark) continue;
    if (mark.startsWith("_") && /[\p{L}\p{N}]/u.test(text.charAt(at + mark.length))) continue;
    return at;
  }
  return -1;
}

/** An address that one may follow, and the host to which it really leads. */
function linkTo(address: string): { href: string; host: string } | null {
  if (!/^(https?:\/\/|mailto:)/i.test(address) || /\s/.test(address)) return null;
  try {
    const url = new URL(address);
    if (url.protocol === "mailto:") return { href: url.href, host: decodeURIComponent(url.pathname + url.search) };
    return url.protocol === "http:" || url.protocol === "https:" ? { href: url.href, host: url.host } : null;
  } catch {
    return null;
  }
}
