// What a message holds, as what it is: text, a thought, a part that folds, files, data of a business. What is not known is
// shown as its value.

import { useState } from "react";
import type { Json } from "../../api/types.gen.ts";
import { isObject } from "../../logic/json.ts";
import { Markdown } from "../../parts/Markdown.tsx";
import { Media } from "../../parts/Media.tsx";
import { Tree } from "../../parts/Tree.tsx";
import { Text, Value } from "../../parts/Value.tsx";
import { useRunText } from "../../text/runs.ts";

const PARTS = 50;
const DEPTH = 4;

export function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/** The content of a message of a kind: text, thinking, or data (the JSON text of one output). */
export function Content({ kind, content }: { kind: string; content: Json }) {
  if (kind === "thinking") return <Thinking content={content} />;
  if (kind === "text" && typeof content === "string") return <Markdown text={content} top={3} />;
  const value = kind === "data" && typeof content === "string" ? parsed(content) : content;
  return <Output value={value} depth={0} />;
}

function Output({ value, depth }: { value: Json | undefined; depth: number }) {
  const t = useRunText();
  const [shown, setShown] = useState(PARTS);
  if (value === undefined || value === null) return null;
  if (typeof value === "string") return <Text text={value} />;
  if (depth > DEPTH) return <Tree value={value} open={0} />;
  if (Array.isArray(value)) {
    return (
      <div className="stack">
        {value.slice(0, shown).map((part, i) => (
          <Output key={i} value={part} depth={depth + 1} />
        ))}
        {value.length > shown && (
          <button className="plain" onClick={() => setShown(shown + 5 * PARTS)}>
            {t.decision.moreEntries(value.length - shown)}
          </button>
        )}
      </div>
    );
  }
  return isObject(value) ? <Typed part={value} depth={depth} /> : <Value value={value} />;
}

function Typed({ part, depth }: { part: Record<string, Json>; depth: number }) {
  const type = part["type"];
  const inner = part["data"] ?? part["content"] ?? part["text"];
  switch (type) {
    case "text":
      return <Output value={part["text"] ?? inner} depth={depth + 1} />;
    case "thinking":
      return <Thinking content={isObject(inner) ? (inner["content"] ?? null) : (inner ?? null)} />;
    case "image":
    case "audio":
    case "video":
    case "document":
    case "file":
    case "binary":
      return <Media type={type} part={part} />;
    default:
      return <Business type={type} part={part} inner={inner} />;
  }
}

function Thinking({ content }: { content: Json }) {
  const t = useRunText();
  return (
    <details className="quietly">
      <summary>{t.run.thinking}</summary>
      {typeof content === "string" ? <Text text={content} /> : <Tree value={content} />}
    </details>
  );
}

/** Where a part that folds begins or ends, as a message says it. */
export function foldOf(message: { kind: string; content: Json }): { title: string; closed: boolean; position: string } | null {
  if (message.kind !== "data" || (typeof message.content === "string" && !message.content.includes('"fold"'))) return null;
  const value = typeof message.content === "string" ? parsed(message.content) : message.content;
  if (!isObject(value) || value["type"] !== "fold") return null;
  const data = isObject(value["data"]) ? value["data"] : value;
  return { title: String(data["title"] ?? ""), closed: data["fold"] !== false, position: String(data["position"] ?? "start") };
}

/** Data that a frontend of the business draws in its own way; here it is data. */
function Business({ type, part, inner }: { type: Json | undefined; part: Record<string, Json>; inner: Json | undefined }) {
  const t = useRunText();
  const { type: _type, ...rest } = part;
  const value = inner !== undefined && Object.keys(rest).length === 1 ? inner : rest;
  return (
    <figure className="business">
      <figcaption>
        <span className="tag">{typeof type === "string" ? type.slice(0, 60) : t.outputs.data}</span>
      </figcaption>
      <Value value={value} />
    </figure>
  );
}
