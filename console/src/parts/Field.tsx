// One line of a form with its label, and a form of a few such lines that is sent by its button.

import type { ReactNode } from "react";
import type { Problem } from "../api/problems.ts";
import { ProblemNote } from "./Problem.tsx";

interface FieldProps {
  id: string;
  label: string;
  value: string;
  onChange(value: string): void;
  type?: string;
  required?: boolean;
  maxLength?: number | undefined;
  hint?: string | undefined;
  /** Why it was refused. */
  error?: string | undefined;
}

export function Field({ id, label, value, onChange, type = "text", required = false, maxLength, hint, error }: FieldProps) {
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type={type}
        value={value}
        required={required}
        maxLength={maxLength}
        aria-invalid={error !== undefined || undefined}
        aria-describedby={hint || error ? `${id}-said` : undefined}
        autoComplete="off"
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      {(hint || error) && (
        <div id={`${id}-said`}>
          {error && (
            <div className="error" role="alert">
              {error}
            </div>
          )}
          {hint && <div className="quiet small">{hint}</div>}
        </div>
      )}
    </div>
  );
}

interface SmallFormProps {
  /** What its button says. */
  send: string;
  problem: Problem | null;
  busy?: boolean;
  onSend(): void;
  children: ReactNode;
  /** What stands beside the button. */
  beside?: ReactNode;
}

export function SmallForm({ send, problem, busy = false, onSend, children, beside }: SmallFormProps) {
  return (
    <form
      className="stack narrow"
      onSubmit={(event) => {
        event.preventDefault();
        onSend();
      }}
    >
      {children}
      {problem && <ProblemNote problem={problem} />}
      <div className="row">
        <button className={`main ${busy ? "busy" : ""}`} disabled={busy}>
          {send}
        </button>
        {beside}
      </div>
    </form>
  );
}
