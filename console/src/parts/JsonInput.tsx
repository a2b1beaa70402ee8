// A value that is written as JSON.

import { useState } from "react";
import type { Json } from "../api/types.gen.ts";
import { unread, unreadText } from "../logic/json.ts";
import { useText } from "../text/index.ts";

export type Common = Record<string, unknown>;
export type Change = (value: Json | undefined) => void;

/** A value as JSON. What is none yet is kept as it is written, with the rest of the form. */
export function JsonInput({ common, value, onChange }: { common: Common; value: Json | undefined; onChange: Change }) {
  const t = useText();
  const [written, setWritten] = useState(() => unreadText(value) ?? (value === undefined ? "" : JSON.stringify(value, null, 2)));
  const wrong = unreadText(value) !== null;
  return (
    <>
      <textarea
        {...common}
        className="mono"
        spellCheck={false}
        rows={Math.min(12, written.split("\n").length + 1)}
        value={written}
        aria-invalid={wrong || (common["aria-invalid"] as boolean | undefined)}
        onInput={(event) => {
          const text = event.currentTarget.value;
          setWritten(text);
          try {
            onChange(text.trim() === "" ? undefined : (JSON.parse(text) as Json));
          } catch {
            onChange(unread(text));
          }
        }}
      />
      {wrong && <div className="error">{t.decision.notJson}</div>}
    </>
  );
}
