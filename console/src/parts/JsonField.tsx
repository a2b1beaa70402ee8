// A value that is written as JSON. What is no JSON yet stays as it is written, and says so.

import { useId } from "react";
import type { Json } from "../api/types.gen.ts";
import { useText } from "../text/index.ts";

export interface Written {
  text: string;
  value: Json | undefined;
  valid: boolean;
}

export function written(text: string): Written {
  if (text.trim() === "") return { text, value: undefined, valid: true };
  try {
    return { text, value: JSON.parse(text) as Json, valid: true };
  } catch {
    return { text, value: undefined, valid: false };
  }
}

export const writtenOf = (value: Json | undefined): Written => written(value === undefined ? "" : JSON.stringify(value, null, 2));

interface JsonFieldProps {
  label: string;
  hint?: string;
  value: Written;
  findings?: readonly string[];
  onChange(value: Written): void;
}

export function JsonField({ label, hint, value, findings = [], onChange }: JsonFieldProps) {
  const t = useText();
  const id = useId();
  const wrong = !value.valid || findings.length > 0;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {hint && <div className="quiet small">{hint}</div>}
      <textarea
        id={id}
        className="mono"
        spellCheck={false}
        rows={Math.min(12, Math.max(2, value.text.split("\n").length))}
        value={value.text}
        aria-invalid={wrong}
        aria-describedby={wrong ? `${id}-wrong` : undefined}
        onInput={(event) => onChange(written(event.currentTarget.value))}
      />
      {wrong && (
        <div id={`${id}-wrong`} className="error">
          {!value.valid && t.decision.notJson}
          {findings.slice(0, 10).map((each) => (
            <div key={each}>{each}</div>
          ))}
        </div>
      )}
    </div>
  );
}
