// A form of a JSON Schema. The server alone judges what is in it; its findings are shown at their fields.

import { useContext, useEffect, useId, useRef, useState } from "react";
import { onSignedOut, upload } from "../api/client.ts";
import { unsent } from "../api/leaving.ts";
import { type FieldFinding, type Problem, asProblem } from "../api/problems.ts";
import type { Json } from "../api/types.gen.ts";
import { SessionContext } from "../context.ts";
import { host } from "../host.ts";
import { isObject, pointer } from "../logic/json.ts";
import { type Schema, type Variant, beginning, fieldOf, joined, variantOf } from "../logic/schema.ts";
import { fieldText, useText } from "../text/index.ts";
import { ownZone } from "../text/dates.ts";
import { humanised } from "../text/names.ts";
import { type Change, type Common, JsonInput } from "./JsonInput.tsx";
import { Drawn } from "./Media.tsx";
import { ProblemNote } from "./Problem.tsx";
import { Value } from "./Value.tsx";

/** Where a schema stands: the whole one, in which references lead somewhere, and those on the way to it. */
interface Place {
  /** What asks for the value: a file that could not be sent goes to no other form. */
  form: string;
  root: Json;
  within: readonly string[];
}

interface FieldProps {
  schema: Schema;
  place: Place;
  value: Json | undefined;
  onChange(value: Json | undefined): void;
  name: string;
  path: string;
  required?: boolean;
  findings: FieldFinding[];
}

export interface FormProps {
  /** What asks for the value: the id of a question, or of what is started. */
  of: string;
  schema: Json;
  value: Json | undefined;
  onChange(value: Json | undefined): void;
  findings: FieldFinding[];
}

export function Form({ of, schema, value, onChange, findings }: FormProps) {
  const t = useText();
  const whole = joined(schema, schema);
  const place = { form: of, root: schema, within: whole.within };
  const field = fieldOf(whole.schema);
  if (field.kind !== "object") return <FieldOf schema={whole.schema} {...{ place, value, onChange, findings }} name={t.decision.value} path="" />;
  return (
    <>
      <Own findings={findings} path="" />
      <Properties {...{ field, place, value, onChange, findings }} path="" />
    </>
  );
}

interface PropertiesProps {
  field: Extract<ReturnType<typeof fieldOf>, { kind: "object" }>;
  place: Place;
  value: Json | undefined;
  onChange(value: Json | undefined): void;
  findings: FieldFinding[];
  path: string;
}

function Properties({ field, place, value, onChange, findings, path }: PropertiesProps) {
  const given = isObject(value) ? value : {};
  return (
    <>
      {field.properties.map(([name, schema]) => (
        <FieldOf
          key={name}
          schema={schema}
          place={place}
          value={given[name]}
          name={nameOf(schema, name)}
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

/** What a field is called: two of the same type ("Address") are told apart by their own names. */
function nameOf(schema: Schema, name: string): string {
  return typeof schema["title"] === "string" ? schema["title"] : humanised(name);
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
  const { value, onChange, name, path, required = false, findings } = props;
  const { schema, within } = joined(props.schema, props.place.root, props.place.within);
  const place = { ...props.place, within };
  const t = useText();
  const id = useId();
  const field = fieldOf(schema);
  const said = typeof schema["description"] === "string" ? schema["description"] : "";
  const keys = useRef<number[]>([]); // of a list's entries: each keeps its own, whatever is removed before it
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
  const needed = required && <span className="quiet">{t.app.aside(t.decision.required)}</span>;
  const label = (
    <label htmlFor={id}>
      {name}
      {needed}
    </label>
  );
  const legend = (
    <legend>
      {name}
      {needed}
    </legend>
  );
  if (schema["readOnly"] === true && field.kind !== "fixed") {
    return value === undefined ? null : (
      <div className="field">
        {label}
        <output {...common} aria-required={undefined}>
          <Value value={value} schema={schema} />
        </output>
        {below}
      </div>
    );
  }
  if (field.kind === "object") {
    return (
      <fieldset className="group">
        {legend}
        {below}
        <Properties {...{ field, place, value, onChange, findings, path }} />
      </fieldset>
    );
  }
  if (field.kind === "variants") {
    return (
      <fieldset className="group">
        {legend}
        {below}
        <Variants {...{ place, value, onChange, findings, path }} variants={field.variants} />
      </fieldset>
    );
  }
  if (field.kind === "list" || field.kind === "tuple") {
    const items = Array.isArray(value) ? value : [];
    const set = (i: number, changed: Json | undefined): void => onChange(Array.from({ length: Math.max(items.length, i + 1) }, (_, j) => (j === i ? (changed ?? null) : (items[j] ?? null))));
    while (keys.current.length < items.length) keys.current.push((keys.current.at(-1) ?? 0) + 1);
    const remove = (i: number): void => {
      keys.current = keys.current.filter((_, j) => j !== i);
      onChange(items.filter((_, j) => j !== i));
    };
    const several = field.kind === "list" ? items.map(() => field.items) : field.items;
    return (
      <fieldset className="group">
        {legend}
        {below}
        {several.map((each, i) => {
          const entry = <FieldOf schema={each} {...{ place, findings }} value={items[i]} name={field.kind === "tuple" ? nameOf(each, `${name} ${i + 1}`) : `${name} ${i + 1}`} path={path + pointer(i)} onChange={(changed) => set(i, changed)} />;
          if (field.kind === "tuple") return <div key={i}>{entry}</div>;
          return (
            <div className="entry" key={keys.current[i]}>
              {entry}
              <button type="button" aria-label={t.decision.remove(i + 1)} onClick={() => remove(i)}>
                ✕
              </button>
            </div>
          );
        })}
        {field.kind === "list" && (
          <button type="button" onClick={() => onChange([...items, emptyOf(field.items, place)])}>
            {t.decision.add}
          </button>
        )}
      </fieldset>
    );
  }
  if (field.kind === "map") {
    return (
      <fieldset className="group">
        {legend}
        {below}
        <Entries {...{ place, value, onChange, findings, path }} values={field.values} />
      </fieldset>
    );
  }
  if (field.kind === "several") {
    const chosen = Array.isArray(value) ? value : [];
    const has = (each: Json): boolean => chosen.some((other) => JSON.stringify(other) === JSON.stringify(each));
    return (
      <fieldset className="group" aria-describedby={described}>
        {legend}
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
  if (field.kind === "yesno" && required && !("const" in schema)) {
    // No is an answer, too: a box that nobody has touched would say neither.
    const options = [true, false].map((each) => ({ value: each, label: each ? t.decision.yes : t.decision.no }));
    return (
      <div className="field">
        {label}
        <Choice {...{ common, value, onChange }} options={options} />
        {below}
      </div>
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
        <Choice {...{ common, value, onChange }} options={field.options} />
      ) : field.kind === "fixed" ? (
        <output id={id} aria-describedby={described}>{typeof field.value === "string" ? field.value : JSON.stringify(field.value)}</output>
      ) : field.kind === "text" ? (
        <TextInput {...{ common, field, value, onChange }} />
      ) : field.kind === "file" ? (
        <FileInput {...{ common, path, value, onChange }} form={place.form} />
      ) : field.kind === "number" ? (
        <NumberInput {...{ common, value, onChange }} whole={field.whole} />
      ) : (
        <JsonInput {...{ common, value, onChange }} />
      )}
      {below}
    </div>
  );
}

function emptyOf(given: Schema, { root, within }: Place): Json {
  const { schema } = joined(given, root, within);
  const begun = beginning(given, root, within);
  if (begun !== undefined) return begun;
  const field = fieldOf(schema);
  if (field.kind === "object" || field.kind === "map") return {};
  return field.kind === "list" || field.kind === "tuple" ? [] : field.kind === "yesno" ? false : field.kind === "text" ? "" : null;
}

interface Inner {
  place: Place;
  value: Json | undefined;
  onChange: Change;
  findings: FieldFinding[];
  path: string;
}

/** A value of one of several forms: which one, and then its fields. */
function Variants({ variants, place, value, onChange, findings, path }: Inner & { variants: Variant[] }) {
  const t = useText();
  const id = useId();
  const [picked, setPicked] = useState(() => variantOf(variants, value));
  const fits = variantOf(variants, value);
  // What the reader has picked counts as long as the value does not say another one.
  const at = picked >= 0 && (value === undefined || variantOf([variants[picked] as Variant], value) === 0) ? picked : fits;
  const variant = variants[at];
  const pick = (n: number): void => {
    setPicked(n);
    const next = variants[n];
    if (next === undefined) return onChange(undefined);
    const begun = beginning(next.schema, place.root, place.within);
    const names = isObject(next.schema["properties"]) ? Object.keys(next.schema["properties"]) : [];
    const kept = isObject(value) && isObject(begun) ? Object.fromEntries(Object.entries(value).filter(([name]) => names.includes(name))) : {};
    onChange(isObject(begun) ? { ...kept, ...begun } : begun);
  };
  const field = variant && fieldOf(variant.schema);
  // Of alternatives the server says that none fits: here one is picked, so what it lacks is known.
  const lacks = field?.kind === "object" && own(findings, path).some((each) => /^value\.(one_of|any_of)/.test(each.code ?? ""));
  const missing = lacks ? [...field.required].filter((name) => !isObject(value) || value[name] === undefined) : [];
  const all = [...findings, ...missing.map((name): FieldFinding => ({ path, message: "", code: "value.required", params: [name] }))];
  return (
    <>
      <div className="field">
        <label htmlFor={id}>{t.decision.variant}</label>
        <select {...{ id }} value={at} onChange={(event) => pick(Number(event.currentTarget.value))}>
          <option value={-1}>{t.decision.unset}</option>
          {variants.map((each, i) => (
            <option key={i} value={i}>
              {each.label || (t.decision.types[each.type ?? ""] ?? String(i + 1))}
            </option>
          ))}
        </select>
      </div>
      {variant && field?.kind === "object" ? (
        <Properties field={{ ...field, properties: field.properties.filter(([, each]) => fieldOf(each).kind !== "fixed") }} {...{ place, value, onChange, path }} findings={all} />
      ) : (
        variant && field?.kind !== "fixed" && <FieldOf key={at} schema={variant.schema} {...{ place, value, onChange, path }} findings={[]} name={variant.label || t.decision.value} />
      )}
    </>
  );
}

/** The entries of an object whose names are not known before. */
function Entries({ values, place, value, onChange, findings, path }: Inner & { values: Schema }) {
  const t = useText();
  const id = useId();
  const [name, setName] = useState("");
  const given = isObject(value) ? value : {};
  const set = (key: string, changed: Json | undefined): void => onChange({ ...given, [key]: changed ?? null });
  const add = (): void => {
    const key = name.trim();
    if (key === "" || Object.hasOwn(given, key)) return;
    setName("");
    set(key, emptyOf(values, place));
  };
  return (
    <>
      {Object.entries(given).map(([key, each]) => (
        <div className="entry" key={key}>
          <FieldOf schema={values} {...{ place, findings }} value={each} name={key} path={path + pointer(key)} onChange={(changed) => set(key, changed)} />
          <button
            type="button"
            aria-label={t.decision.removeNamed(key)}
            onClick={() => {
              const { [key]: _, ...rest } = given;
              onChange(rest);
            }}
          >
            ✕
          </button>
        </div>
      ))}
      <div className="field">
        <label htmlFor={id}>{t.decision.newName}</label>
        <div className="row">
          <input
            id={id}
            className="grow"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.nativeEvent.isComposing) return;
              event.preventDefault();
              add();
            }}
          />
          <button type="button" onClick={add}>
            {t.decision.add}
          </button>
        </div>
      </div>
    </>
  );
}

function Choice({ common, value, onChange, options }: { common: Common; value: Json | undefined; onChange: Change; options: { value: Json; label: string }[] }) {
  const t = useText();
  return (
    <select
      {...common}
      value={options.findIndex((each) => JSON.stringify(each.value) === JSON.stringify(value))}
      onChange={(event) => onChange(options[Number(event.currentTarget.value)]?.value)}
    >
      <option value={-1}>{t.decision.unset}</option>
      {options.map((each, i) => (
        <option key={i} value={i}>
          {each.label}
        </option>
      ))}
    </select>
  );
}

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
  if (field.type === "time") {
    return (
      <>
        <input {...common} type="time" value={text.slice(0, 5)} onInput={(event) => change(timeWithZone(event.currentTarget.value))} />
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

/** What the files were called that were chosen here, by their ids: in a list an entry may move to another place. */
const names = new Map<string, string>();

let signedOut = false;
onSignedOut(() => void (signedOut = true));

/** A file is uploaded as soon as it is chosen; the answer names it by its id. */
function FileInput({ common, form, path, value, onChange }: { common: Common; form: string; path: string; value: Json | undefined; onChange: Change }) {
  const t = useText();
  const [sent, setSent] = useState<{ name: string; problem: Problem | null; busy: boolean } | null>(null);
  const latest = useRef(onChange); // what is typed elsewhere while the file is under way stays
  useEffect(() => {
    latest.current = onChange;
    return () => {
      latest.current = () => undefined; // the entry was removed meanwhile
    };
  });
  const session = useContext(SessionContext); // another one each time that the reader has signed in
  const place = `${session?.principal ?? ""} ${form} ${path}`;
  const away = useRef(false);
  const chosen = useRef<File | undefined>(undefined); // what comes of one that another has replaced counts no more
  const choose = (file: File | undefined): void => {
    if (file === undefined) return;
    chosen.current = file;
    unsent.delete(place);
    setSent({ name: file.name, problem: null, busy: true });
    upload(file).then(
      (id) => {
        if (chosen.current !== file) return;
        setSent({ name: file.name, problem: null, busy: false });
        names.set(id, file.name);
        if (away.current) unsent.set(place, file);
        else latest.current(id);
      },
      (error: unknown) => {
        if (chosen.current !== file) return;
        const problem = asProblem(error);
        if (problem.status === 401) unsent.set(place, file);
        setSent({ name: file.name, problem, busy: false });
      },
    );
  };
  useEffect(() => {
    signedOut = away.current = false;
    choose(unsent.get(place));
    return () => void (away.current = signedOut);
  }, [session]);
  const name = (typeof value === "string" && names.get(value)) || t.decision.file;
  const here = typeof value === "string" && value !== "" ? `/v1/files/${encodeURIComponent(value)}` : null;
  return (
    <>
      <input {...common} type="file" onChange={(event) => choose(event.currentTarget.files?.[0])} />
      <span role="status" className="quiet small">
        {sent?.busy ? t.decision.uploading(sent.name) : here && (host.console ? <a href={here} download>{name}</a> : <Drawn path={here} name={name} />)}
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

/** A time of the day as JSON Schema has it: with the offset that the reader's clock has now. */
function timeWithZone(text: string): string {
  if (text === "") return "";
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((n) => String(n).padStart(2, "0"));
  return `${text.length === 5 ? `${text}:00` : text}${minutes < 0 ? "-" : "+"}${hours}:${rest}`;
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
  // Of more digits than a number holds, none is lost in silence.
  return Number.isFinite(number) && (!Number.isInteger(number) || Number.isSafeInteger(number)) ? number : trimmed;
}
