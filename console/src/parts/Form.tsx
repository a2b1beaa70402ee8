// A form of a JSON Schema. The server alone judges what is in it; its findings are shown at their fields.

import { useId, useState } from "react";
import { upload } from "../api/client.ts";
import { type FieldFinding, type Problem, asProblem } from "../api/problems.ts";
import type { Json } from "../api/types.gen.ts";
import { isObject, pointer, unread, unreadText } from "../logic/json.ts";
import { type Schema, fieldOf } from "../logic/schema.ts";
import { fieldText, useText } from "../text/index.ts";
import { ownZone } from "../text/dates.ts";
import { humanised } from "../text/names.ts";
import { ProblemNote } from "./Problem.tsx";

interface FieldProps {
  schema: Schema;
  value: Json | undefined;
  onChange(value: Json | undefined): void;
  name: string;
  path: string;
  required?: boolean;
  findings: FieldFinding[];
}

export interface FormProps {
  schema: Json;
  value: Json | undefined;
  onChange(value: Json | undefined): void;
  findings: FieldFinding[];
}

export function Form({ schema, value, onChange, findings }: FormProps) {
  const t = useText();
  const field = fieldOf(schema);
  if (field.kind !== "object") {
    return <FieldOf schema={isObject(schema) ? schema : {}} {...{ value, onChange, findings }} name={t.decision.value} path="" />;
  }
  return (
    <>
      <Own findings={findings} path="" />
      <Properties {...{ field, value, onChange, findings }} path="" />
    </>
  );
}

interface PropertiesProps {
  field: Extract<ReturnType<typeof fieldOf>, { kind: "object" }>;
  value: Json | undefined;
  onChange(value: Json | undefined): void;
  findings: FieldFinding[];
  path: string;
}

function Properties({ field, value, onChange, findings, path }: PropertiesProps) {
  const given = isObject(value) ? value : {};
  return (
    <>
      {field.properties.map(([name, schema]) => (
        <FieldOf
          key={name}
          schema={schema}
          value={given[name]}
          name={typeof schema["title"] === "string" ? schema["title"] : humanised(name)}
          path={path + pointer(name)}
          required={field.required.has(name)}
          findings={findings}
          onChange={(changed) => {
            const { [name]: _, ...rest } = given;
            onChange(changed === undefined ? rest : { ...given, [name]: changed });
          }}
        />
      ))}
    </>
  );
}

/** What was found at exactly this place. */
function own(findings: FieldFinding[], path: string): FieldFinding[] {
  return findings.filter((each) => placeOf(each) === path);
}

/** Where a finding is shown: that a value is missing at its own field, though it is found in the object around it. */
function placeOf({ path = "", code, params }: FieldFinding): string {
  return code === "value.required" && params?.[0] !== undefined ? path + pointer(params[0]) : path;
}

function Own({ findings, path, id }: { findings: FieldFinding[]; path: string; id?: string }) {
  const t = useText();
  const found = new Set(own(findings, path).map((each) => fieldText(t, each)));
  return found.size === 0 ? null : (
    <div className="error" id={id}>
      {[...found].map((each) => (
        <div key={each}>{each}</div>
      ))}
    </div>
  );
}

function FieldOf(props: FieldProps) {
  const { schema, value, onChange, name, path, required = false, findings } = props;
  const t = useText();
  const id = useId();
  const field = fieldOf(schema);
  const said = typeof schema["description"] === "string" ? schema["description"] : "";
  const wrong = own(findings, path).length > 0;
  const described = [said ? `${id}-said` : "", wrong ? `${id}-wrong` : ""].filter(Boolean).join(" ") || undefined;
  const common = {
    id,
    "aria-describedby": described,
    "aria-invalid": wrong || undefined,
    "aria-required": required || undefined,
  };
  const below = (
    <>
      {said && (
        <div className="quiet small" id={`${id}-said`}>
          {said}
        </div>
      )}
      <Own findings={findings} path={path} id={`${id}-wrong`} />
    </>
  );
  const label = (
    <label htmlFor={id}>
      {name}
      {required && <span className="quiet"> ({t.decision.required})</span>}
    </label>
  );
  if (field.kind === "object") {
    return (
      <fieldset className="group">
        <legend>{name}</legend>
        {below}
        <Properties {...{ field, value, onChange, findings, path }} />
      </fieldset>
    );
  }
  if (field.kind === "list") {
    const items = Array.isArray(value) ? value : [];
    return (
      <fieldset className="group">
        <legend>{name}</legend>
        {below}
        {items.map((each, i) => (
          <div className="row" key={i}>
            <div className="grow">
              <FieldOf
                schema={field.items}
                value={each}
                name={`${name} ${i + 1}`}
                path={path + pointer(i)}
                findings={findings}
                onChange={(changed) => onChange(items.map((other, j) => (j === i ? (changed ?? null) : other)))}
              />
            </div>
            <button type="button" aria-label={t.decision.remove(i + 1)} onClick={() => onChange(items.filter((_, j) => j !== i))}>
              ✕
            </button>
          </div>
        ))}
        <button type="button" onClick={() => onChange([...items, emptyOf(field.items)])}>
          {t.decision.add}
        </button>
      </fieldset>
    );
  }
  if (field.kind === "several") {
    const chosen = Array.isArray(value) ? value : [];
    const has = (each: Json): boolean => chosen.some((other) => JSON.stringify(other) === JSON.stringify(each));
    return (
      <fieldset className="group" aria-describedby={described}>
        <legend>
          {name}
          {required && <span className="quiet"> ({t.decision.required})</span>}
        </legend>
        {below}
        {field.options.map((each, i) => (
          <label className="check" key={i}>
            <input
              type="checkbox"
              checked={has(each.value)}
              aria-invalid={wrong || undefined}
              onChange={(event) => onChange(field.options.map((one) => one.value).filter((one) => (one === each.value ? event.currentTarget.checked : has(one))))}
            />
            {each.label}
          </label>
        ))}
      </fieldset>
    );
  }
  if (field.kind === "yesno") {
    return (
      <div className="field">
        <div className="check">
          <input type="checkbox" {...common} checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />
          {label}
        </div>
        {below}
      </div>
    );
  }
  return (
    <div className="field">
      {label}
      {field.kind === "choice" ? (
        <select
          {...common}
          value={field.options.findIndex((each) => JSON.stringify(each.value) === JSON.stringify(value))}
          onChange={(event) => onChange(field.options[Number(event.currentTarget.value)]?.value)}
        >
          <option value={-1}>{t.decision.unset}</option>
          {field.options.map((each, i) => (
            <option key={i} value={i}>
              {each.label}
            </option>
          ))}
        </select>
      ) : field.kind === "text" ? (
        <TextInput {...{ common, field, value, onChange }} />
      ) : field.kind === "file" ? (
        <FileInput {...{ common, value, onChange }} />
      ) : field.kind === "number" ? (
        <NumberInput {...{ common, value, onChange }} whole={field.whole} />
      ) : (
        <JsonInput {...{ common, value, onChange }} />
      )}
      {below}
    </div>
  );
}

function emptyOf(schema: Schema): Json {
  const field = fieldOf(schema);
  return field.kind === "object" ? {} : field.kind === "list" ? [] : field.kind === "yesno" ? false : field.kind === "text" ? "" : null;
}

type Common = Record<string, unknown>;
type Change = (value: Json | undefined) => void;

function TextInput(props: { common: Common; field: { long: boolean; type: string }; value: Json | undefined; onChange: Change }) {
  const { common, field, value, onChange } = props;
  const text = typeof value === "string" ? value : "";
  const change = (now: string): void => onChange(now === "" ? undefined : now);
  if (field.type === "datetime-local") {
    return (
      <>
        <input {...common} type="datetime-local" value={localTime(text)} onInput={(event) => change(withZone(event.currentTarget.value))} />
        <span className="quiet small">{ownZone()}</span>
      </>
    );
  }
  return field.long ? (
    <textarea {...common} rows={text.length > 80 ? 4 : 1} value={text} onInput={(event) => change(event.currentTarget.value)} />
  ) : (
    <input {...common} type={field.type} value={text} onInput={(event) => change(event.currentTarget.value)} />
  );
}

/** A file is uploaded as soon as it is chosen; the answer names it by its id. */
function FileInput({ common, value, onChange }: { common: Common; value: Json | undefined; onChange: Change }) {
  const t = useText();
  const [sent, setSent] = useState<{ name: string; problem: Problem | null; busy: boolean } | null>(null);
  const choose = (file: File | undefined): void => {
    if (file === undefined) return;
    setSent({ name: file.name, problem: null, busy: true });
    upload(file).then(
      (id) => {
        setSent({ name: file.name, problem: null, busy: false });
        onChange(id);
      },
      (error: unknown) => setSent({ name: file.name, problem: asProblem(error), busy: false }),
    );
  };
  const here = typeof value === "string" && value !== "" ? `/v1/files/${encodeURIComponent(value)}` : null;
  return (
    <>
      <input {...common} type="file" onChange={(event) => choose(event.currentTarget.files?.[0])} />
      <span role="status" className="quiet small">
        {sent?.busy ? t.decision.uploading(sent.name) : here && <a href={here} download>{sent?.name ?? t.decision.file}</a>}
      </span>
      {sent?.problem && <ProblemNote problem={sent.problem} />}
    </>
  );
}

/** A moment as the field for it has it: on the clocks of the reader's zone. */
function localTime(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  const two = (n: number): string => String(n).padStart(2, "0");
  return `${String(at.getFullYear()).padStart(4, "0")}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

function withZone(text: string): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
}

/** A number as it is written: what is no number yet is kept as text, and the server says so. */
function NumberInput({ common, value, onChange, whole }: { common: Common; value: Json | undefined; onChange: Change; whole: boolean }) {
  const text = typeof value === "number" || typeof value === "string" ? String(value) : "";
  const [written, setWritten] = useState(text);
  const shown = numberOf(written) === value ? written : text;
  return (
    <input
      {...common}
      inputMode={whole ? "numeric" : "decimal"}
      value={shown}
      onInput={(event) => {
        setWritten(event.currentTarget.value);
        onChange(numberOf(event.currentTarget.value));
      }}
    />
  );
}

function numberOf(text: string): Json | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  // 90,5 is how half of Europe writes it; three digits behind a comma might be thousands, so the server asks.
  const number = Number(/^-?\d+,(\d{1,2}|\d{4,})$/.test(trimmed) ? trimmed.replace(",", ".") : trimmed);
  return Number.isFinite(number) ? number : trimmed;
}

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
