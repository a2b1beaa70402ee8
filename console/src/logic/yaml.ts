// Where in a document of YAML a place is, told by how far lines are indented: enough to offer keys while the text is
// not whole yet, which no parser reads.

export type Segment = string | null; // a key, or null: an entry of a list

export interface Place {
  /** From the outermost to the mapping or list that the place is in. */
  path: Segment[];
  /** The key whose value is written there; null: a key itself. */
  key: string | null;
  /** What of the key or the value stands before the place. */
  written: string;
}

interface Line {
  dashes: number[];
  /** The column and the text of the key, if the line has one. */
  column: number;
  key: string | null;
  /** What follows the key's colon. */
  rest: string;
}

const KEY = /^("[^"]*"|'[^']*'|[^\s#"'[\]{}][^#:]*?)\s*:(?=\s|$)/;

function lineOf(text: string): Line | null {
  const dashes: number[] = [];
  let column = text.length - text.trimStart().length;
  if (text.trim() === "" || text[column] === "#") return null;
  while (/^-(\s|$)/.test(text.slice(column))) {
    dashes.push(column);
    const after = text.slice(column + 1);
    column += 1 + (after.length - after.trimStart().length);
  }
  const match = KEY.exec(text.slice(column));
  return {
    dashes,
    column,
    key: match?.[1] ? match[1].replace(/^["']|["']$/g, "") : null,
    rest: match ? text.slice(column + match[0].length).trim() : text.slice(column).trim(),
  };
}

/** The place in the line `row` (from 0) behind `column` characters. */
export function placeAt(lines: readonly string[], row: number, column: number): Place {
  const before = (lines[row] ?? "").slice(0, column);
  const here = lineOf(before);
  const path: Segment[] = [];
  let limit = here === null ? before.length : here.column;
  const dashes = here === null ? [] : [...here.dashes];
  const under = (within: number[]): void => {
    for (const dash of within.reverse()) {
      if (dash < limit) {
        path.unshift(null);
        limit = dash + 0.5; // a list may stand as far out as its key
      }
    }
  };
  under(dashes);
  for (let i = row - 1; i >= 0 && limit > 0; i -= 1) {
    const line = lineOf(lines[i] ?? "");
    if (line === null) continue;
    if (line.key !== null && line.column < limit && (path[0] !== null || line.column <= limit)) {
      path.unshift(line.key);
      limit = line.column;
    }
    under(line.dashes.filter((dash) => dash < Math.floor(limit)));
  }
  if (here === null || here.key === null) return { path, key: null, written: here?.rest ?? "" };
  return { path, key: here.key, written: here.rest };
}
