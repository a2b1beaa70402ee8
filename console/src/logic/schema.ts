// Which field a JSON Schema wants. What has no field of its own here is written as JSON: the server judges it anyway.

import type { Json } from "../api/types.gen.ts";
import { humanised } from "../text/names.ts";
import { isObject } from "./json.ts";

export type Schema = Record<string, Json>;

export type Field =
  | { kind: "object"; properties: [string, Schema][]; required: Set<string> }
  | { kind: "list"; items: Schema }
  | { kind: "several"; options: { value: Json; label: string }[] }
  | { kind: "choice"; options: { value: Json; label: string }[] }
  | { kind: "text"; long: boolean; type: string }
  | { kind: "number"; whole: boolean }
  | { kind: "yesno" }
  | { kind: "file" }
  | { kind: "json" };

const INPUTS: Record<string, string> = { email: "email", uri: "url", date: "date", time: "time", "date-time": "datetime-local" };
const LONG = 120;

export function fieldOf(schema: Json | undefined): Field {
  if (!isObject(schema)) return { kind: "json" };
  const choice = choiceOf(schema);
  if (choice !== null) return choice;
  switch (typeOf(schema)) {
    case "object":
      if (!isObject(schema["properties"]) || schema["oneOf"] || schema["anyOf"] || schema["allOf"]) return { kind: "json" };
      return {
        kind: "object",
        properties: Object.entries(schema["properties"]).map(([name, each]) => [name, isObject(each) ? each : {}]),
        required: new Set(Array.isArray(schema["required"]) ? schema["required"].map(String) : []),
      };
    case "array": {
      const several = isObject(schema["items"]) ? choiceOf(schema["items"]) : null;
      if (several?.kind === "choice" && several.options.length <= 20) return { kind: "several", options: several.options };
      return isObject(schema["items"]) ? { kind: "list", items: schema["items"] } : { kind: "json" };
    }
    case "string": {
      const most = schema["maxLength"];
      const format = String(schema["format"] ?? "");
      if (format === "file") return { kind: "file" };
      return { kind: "text", long: !INPUTS[format] && (typeof most !== "number" || most > LONG), type: INPUTS[format] ?? "text" };
    }
    case "integer":
      return { kind: "number", whole: true };
    case "number":
      return { kind: "number", whole: false };
    case "boolean":
      return { kind: "yesno" };
    default:
      return { kind: "json" };
  }
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
  if (!Array.isArray(given) || !given.every((each) => isObject(each) && "const" in each)) return null;
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

/** What a form begins with: the defaults that the schema names. */
export function beginning(schema: Json | undefined): Json | undefined {
  if (!isObject(schema)) return undefined;
  if ("default" in schema) return schema["default"];
  const field = fieldOf(schema);
  if (field.kind !== "object") return undefined;
  const found = field.properties.flatMap(([name, each]) => {
    const value = beginning(each);
    return value === undefined ? [] : [[name, value] as [string, Json]];
  });
  return Object.fromEntries(found);
}

/** The schema of the arguments that may be changed: as the function has them, else by the types of their values. */
export function schemaOfArgs(args: Record<string, Json>, names: string[], parameters: Schema | null): Schema {
  const known = isObject(parameters?.["properties"]) ? parameters["properties"] : {};
  const required = Array.isArray(parameters?.["required"]) ? parameters["required"].filter((each) => names.includes(String(each))) : [];
  const properties = Object.fromEntries(names.map((name) => [name, resolved(known[name], parameters) ?? guess(args[name])]));
  return { type: "object", properties, required };
}

/** A schema, in the place of a reference to it. */
function resolved(schema: Json | undefined, root: Schema | null): Schema | null {
  if (!isObject(schema) || typeof schema["$ref"] !== "string") return isObject(schema) ? schema : null;
  const keys = schema["$ref"].replace(/^#\//, "").split("/");
  const target = keys.reduce<Json | undefined>((at, key) => (isObject(at) ? at[key] : undefined), root ?? {});
  return isObject(target) ? target : null;
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
