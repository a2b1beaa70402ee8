// A value as people read it. It is text whatever it says, and bounded whatever its size.

import { useState } from "react";
import type { Json } from "../api/types.gen.ts";
import { isObject } from "../logic/json.ts";
import { useText } from "../text/index.ts";

const ENTRIES = 50;
const CHARACTERS = 4000;
const DEPTH = 6;

export function Value({ value, depth = 0 }: { value: Json | undefined; depth?: number }) {
  const t = useText();
  const [shown, setShown] = useState(ENTRIES);
  if (value === undefined || value === null) return <span className="quiet">{t.app.none}</span>;
  if (typeof value === "string") return <Text text={value} />;
  if (typeof value === "boolean") return <span>{value ? t.decision.yes : t.decision.no}</span>;
  if (typeof value === "number") return <span>{String(value)}</span>;
  const entries: [string, Json][] = Array.isArray(value)
    ? value.slice(0, shown).map((each, i) => [String(i + 1), each])
    : Object.entries(value).slice(0, shown);
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  if (size === 0) return <span className="quiet">{t.app.none}</span>;
  if (depth >= DEPTH) return <Text text={JSON.stringify(value)} />;
  return (
    <>
      <dl className="facts">
        {entries.map(([name, each]) => (
          <Entry key={name} name={name} value={each} depth={depth + 1} />
        ))}
      </dl>
      {size > shown && (
        <button className="plain" onClick={() => setShown(shown + 10 * ENTRIES)}>
          {t.decision.moreEntries(size - shown)}
        </button>
      )}
    </>
  );
}

function Entry({ name, value, depth }: { name: string; value: Json; depth: number }) {
  return (
    <>
      <dt>{name.slice(0, 200)}</dt>
      <dd>
        <Value value={value} depth={depth} />
      </dd>
    </>
  );
}

/** Text of any length, cut until one asks for the rest. */
export function Text({ text, className = "" }: { text: string; className?: string }) {
  const t = useText();
  const [shown, setShown] = useState(CHARACTERS);
  return (
    <>
      <span className={`text ${className}`} dir="auto">
        {text.length > shown ? text.slice(0, shown) : text}
      </span>
      {text.length > shown && (
        <button className="plain" onClick={() => setShown(shown + 50 * CHARACTERS)}>
          {t.decision.tooLong(text.length - shown)}
        </button>
      )}
    </>
  );
}

export function asObject(value: Json | undefined): Record<string, Json> {
  return isObject(value) ? value : {};
}
