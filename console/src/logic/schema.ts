// Which field a JSON Schema wants. What has no field of its own here is written as JSON: the server judges it anyway.

import type { Json } from "../api/types.gen.ts";
import { humanised } from "../text/names.ts";
import { isObject } from "./json.ts";

export type Schema = Record<string, Json>;

export type Field =
  | { kind: "object"; properties: [string, Schema][]; required: Set<string> }
  | { kind: "list"; items: Schema }
  | { kind: "tuple"; items: Schema[] }
  | { kind: "map"; values: Schema }
  | { kind: "variants"; variants: Variant[] }
  | { kind: "several"; options: { value: Json; label: string }[] }
  | { kind: "choice"; options: { value: Json; label: string }[] }
  | { kind: "fixed"; value: Json }
  | { kind: "text"; long: boolean; type: string }
  | { kind: "number"; whole: boolean }
  | { kind: "yesno" }
  | { kind: "file" }
  | { kind: "json" };

/** One of the forms that a value may have: "By card", "By transfer"; where it has no name, by its type. */
export interface Variant {
  label: string;
  type: string | null;
  schema: Schema;
}

const INPUTS: Record<string, string> = { email: "email", "idn-email": "email", uri: "url", date: "date", time: "time", "date-time": "datetime-local" };
const SHORT = new Set(["uuid", "hostname", "ipv4", "ipv6", "regex", "duration", "json-pointer", "uri-reference", "iri"]);
const LONG = 120;

/** The field of a schema whose references are resolved, and whose parts are joined (`joined`). */
export function fieldOf(schema: Json | undefined): Field {
  if (!isObject(schema)) return { kind: "json" };
  // That somebody agrees ({const: true}) is for them to say.
  if ("const" in schema) return typeof schema["const"] === "boolean" ? { kind: "yesno" } : { kind: "fixed", value: schema["const"] as Json };
  const choice = choiceOf(schema);
  if (choice !== null) return choice;
  const variants = variantsOf(schema);
  if (variants !== null) return { kind: "variants", variants };
  switch (typeOf(schema)) {
    case "object": {
      const more = schema["additionalProperties"];
      if (!isObject(schema["properties"])) return { kind: "map", values: isObject(more) ? more : {} };
      return {
        kind: "object",
        properties: Object.entries(schema["properties"]).map(([name, each]) => [name, isObject(each) ? each : {}]),
        required: new Set(Array.isArray(schema["required"]) ? schema["required"].map(String) : []),
      };
    }
    case "array": {
      if (Array.isArray(schema["prefixItems"]) && schema["prefixItems"].length > 0) return { kind: "tuple", items: schema["prefixItems"].map((each) => (isObject(each) ? each : {})) };
      const several = isObject(schema["items"]) ? choiceOf(schema["items"]) : null;
      if (several?.kind === "choice" && several.options.length <= 20) return { kind: "several", options: several.options };
      return { kind: "list", items: isObject(schema["items"]) ? schema["items"] : {} };
    }
    case "string": {
      const most = schema["maxLength"];
      const format = String(schema["format"] ?? "");
      if (format === "file") return { kind: "file" };
      const short = INPUTS[format] !== undefined || SHORT.has(format);
      return { kind: "text", long: !short && (typeof most !== "number" || most > LONG), type: INPUTS[format] ?? "text" };
    }
    case "integer":
      return { kind: "number", whole: true };
    case "number":
      return { kind: "number", whole: false };
    case "boolean":
      return { kind: "yesno" };
    case "null":
      return { kind: "fixed", value: null };
    default:
      return { kind: "json" };
  }
}

/** A schema as its field is made of it: in the place of a reference what that names, and the parts of `allOf` as one.
 * `within`: the references that it stands in; one that leads back into itself is written as JSON. */
export function joined(schema: Json | undefined, root: Json | undefined, within: readonly string[] = []): { schema: Schema; within: readonly string[] } {
  if (!isObject(schema)) return { schema: {}, within };
  let { $ref: ref, allOf: parts, ...whole } = schema;
  if (typeof ref === "string") {
    if (within.includes(ref)) return { schema: withoutForm(whole), within };
    within = [...within, ref];
    const target = joined(targetOf(ref, root), root, within);
    whole = join(target.schema, whole);
    within = target.within;
  }
  let before: Schema = {};
  for (const each of Array.isArray(parts) ? parts : []) {
    const part = joined(each, root, within);
    before = join(before, part.schema);
    within = part.within;
  }
  whole = join(before, whole);
  for (const name of ["oneOf", "anyOf"]) {
    const given = whole[name];
    if (!Array.isArray(given)) continue;
    const each = given.map((one) => joined(one, root, within).schema);
    const others = each.filter((one) => typeOf(one) !== "null");
    const { [name]: _, ...rest } = whole;
    // What may be null as well may be left out.
    whole = others.length === 1 && others.length < each.length && others[0] ? join(others[0], rest) : { ...whole, [name]: each };
  }
  if (isObject(whole["items"]) && ("$ref" in whole["items"] || "allOf" in whole["items"])) {
    // Whether its entries are chosen or written is seen from what they are; what they hold is looked at with each of them.
    const items = joined(whole["items"], root, within).schema;
    if (choiceOf(items) !== null) whole = { ...whole, items };
  }
  return { schema: whole, within };
}

function withoutForm({ title, description }: Schema): Schema {
  return { ...(title !== undefined && { title }), ...(description !== undefined && { description }) };
}

/** Both at once; what `own` says of its name and of its words counts. */
function join(part: Schema, own: Schema): Schema {
  const properties = { ...(isObject(part["properties"]) ? part["properties"] : {}), ...(isObject(own["properties"]) ? own["properties"] : {}) };
  const required = [part["required"], own["required"]].flatMap((each) => (Array.isArray(each) ? each : []));
  return {
    ...part,
    ...own,
    ...(Object.keys(properties).length > 0 && { properties }),
    ...(required.length > 0 && { required: [...new Set(required)] }),
  };
}

function targetOf(ref: string, root: Json | undefined): Json | undefined {
  if (ref === "#") return root;
  if (!ref.startsWith("#/")) return undefined;
  const keys = ref.slice(2).split("/").map((key) => decodeURIComponent(key).replaceAll("~1", "/").replaceAll("~0", "~"));
  return keys.reduce<Json | undefined>((at, key) => (isObject(at) && Object.hasOwn(at, key) ? at[key] : Array.isArray(at) ? at[Number(key)] : undefined), root);
}

function variantsOf(schema: Schema): Variant[] | null {
  const { oneOf, anyOf, ...base } = schema;
  const given = Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : null;
  if (given === null || given.length === 0 || !given.every(isObject)) return null;
  // `required` alone: which of the fields are needed. All of them are shown, and the server says what is missing.
  if (given.every((each) => Object.keys(each).every((name) => name === "required" || name === "title")) && isObject(base["properties"])) return null;
  return (given as Schema[]).map((each) => ({ label: labelOfVariant(each), type: typeOf(each), schema: join(base, each) }));
}

function labelOfVariant(schema: Schema): string {
  if (typeof schema["title"] === "string") return schema["title"];
  const properties = isObject(schema["properties"]) ? schema["properties"] : {};
  const named = Object.values(properties).find((each) => isObject(each) && typeof each["const"] === "string");
  if (isObject(named)) return humanised(String(named["const"]));
  return Object.keys(properties).slice(0, 3).map(humanised).join(", ");
}

/** Which of the variants a value has: the one whose fixed parts it has, of these the one of whose fields it has most. */
export function variantOf(variants: readonly Variant[], value: Json | undefined): number {
  if (value === undefined) return -1;
  const scores = variants.map(({ schema }) => scoreOf(schema, value));
  const best = Math.max(...scores);
  return best < 0 ? -1 : scores.indexOf(best);
}

function scoreOf(schema: Schema, value: Json): number {
  const type = typeOf(schema);
  const is = value === null ? "null" : Array.isArray(value) ? "array" : Number.isInteger(value) && type === "integer" ? "integer" : typeof value;
  if (type !== null && type !== is) return -1;
  if ("const" in schema && JSON.stringify(schema["const"]) !== JSON.stringify(value)) return -1;
  if (!isObject(value)) return 1;
  const properties = isObject(schema["properties"]) ? schema["properties"] : {};
  for (const [name, each] of Object.entries(properties)) {
    if (isObject(each) && "const" in each && JSON.stringify(each["const"]) !== JSON.stringify(value[name])) return -1;
  }
  return Object.keys(value).filter((name) => Object.hasOwn(properties, name)).length;
}

/** The one type of the values; null beside it means that it may be left out. */
function typeOf(schema: Schema): string | null {
  const type = schema["type"];
  if (typeof type === "string") return type;
  if (Array.isArray(type)) {
    const others = type.filter((each) => each !== "null");
    return others.length === 1 ? String(others[0]) : null;
  }
  return isObject(schema["properties"]) ? "object" : null;
}

function choiceOf(schema: Schema): Field | null {
  if (Array.isArray(schema["enum"])) {
    return { kind: "choice", options: schema["enum"].map((value) => ({ value, label: wordOf(value) })) };
  }
  const given = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(given) || given.length === 0 || !given.every((each) => isObject(each) && "const" in each)) return null;
  const options = (given as Schema[]).map((each) => ({
    value: each["const"] as Json,
    label: typeof each["title"] === "string" ? each["title"] : wordOf(each["const"] as Json),
  }));
  return { kind: "choice", options };
}

function wordOf(value: Json): string {
  return typeof value === "string" && value.includes("_") ? humanised(value) : labelOf(value);
}

function labelOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What a form begins with: the defaults that the schema names, and what can't be otherwise. */
export function beginning(given: Json | undefined, root: Json | undefined = given, outer: readonly string[] = []): Json | undefined {
  const { schema, within } = joined(given, root, outer);
  if ("default" in schema) return schema["default"];
  const field = fieldOf(schema);
  if (field.kind === "fixed") return field.value;
  if (field.kind !== "object") return undefined;
  const found = field.properties.flatMap(([name, each]) => {
    const part = joined(each, root, within);
    if (fieldOf(part.schema).kind === "fixed" && !field.required.has(name) && !("default" in part.schema)) return [];
    const value = beginning(each, root, within);
    return value === undefined || (isObject(value) && Object.keys(value).length === 0 && !field.required.has(name)) ? [] : [[name, value] as [string, Json]];
  });
  return Object.fromEntries(found);
}

/** The schema of the arguments that may be changed: as the function has them, else by the types of their values. */
export function schemaOfArgs(args: Record<string, Json>, names: string[], parameters: Schema | null): Schema {
  const known = isObject(parameters?.["properties"]) ? parameters["properties"] : {};
  const required = Array.isArray(parameters?.["required"]) ? parameters["required"].filter((each) => names.includes(String(each))) : [];
  const properties = Object.fromEntries(names.map((name) => [name, isObject(known[name]) ? known[name] : guess(args[name])]));
  const { $defs, definitions } = parameters ?? {}; // which its references lead to
  return { type: "object", properties, required, ...($defs !== undefined && { $defs }), ...(definitions !== undefined && { definitions }) };
}

function guess(value: Json | undefined): Schema {
  if (typeof value === "string") return { type: "string" };
  if (typeof value === "number") return { type: "number" };
  if (typeof value === "boolean") return { type: "boolean" };
  return {};
}

/** What is known of a property of a value; null: nothing. */
export function schemaOfProperty(schema: Schema | null, name: string): Schema | null {
  const properties = schema?.["properties"];
  const found = isObject(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
  return isObject(found) ? found : null;
}

export function schemaOfEntry(schema: Schema | null): Schema | null {
  const items = schema?.["items"];
  return isObject(items) ? items : null;
}
