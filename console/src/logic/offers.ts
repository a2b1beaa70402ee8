// What the schema of the language allows at a place of a document: the keys of a mapping, the values of a key.

import type { Json } from "../api/types.gen.ts";
import { isObject } from "./json.ts";
import type { Schema } from "./schema.ts";
import type { Place, Segment } from "./yaml.ts";

export interface Offer {
  label: string;
  about: string;
  example: string;
  /** How the key goes on: a value on the same line, or a block below. */
  opens: "value" | "mapping" | "list";
}

/** The schemas that may count at a path. */
export function schemasAt(root: Schema, path: readonly Segment[]): Schema[] {
  let found = [root];
  for (const segment of path) {
    found = found.flatMap((each) => alternatives(root, each)).flatMap((each) => below(each, segment));
  }
  return found.flatMap((each) => alternatives(root, each));
}

function below(schema: Schema, segment: Segment): Schema[] {
  if (segment === null) return isObject(schema["items"]) ? [schema["items"]] : [];
  const properties = schema["properties"];
  if (isObject(properties) && isObject(properties[segment])) return [properties[segment]];
  return isObject(schema["additionalProperties"]) ? [schema["additionalProperties"]] : [];
}

function alternatives(root: Schema, schema: Schema, depth = 0): Schema[] {
  if (depth > 6) return [];
  const found: Schema[] = [schema];
  const ref = schema["$ref"];
  if (typeof ref === "string") {
    const target = ref.replace(/^#\//, "").split("/").reduce<Json | undefined>((at, key) => (isObject(at) ? at[key] : undefined), root);
    if (isObject(target)) found.push(...alternatives(root, target, depth + 1));
  }
  for (const key of ["oneOf", "anyOf"]) {
    const given = schema[key];
    if (Array.isArray(given)) for (const each of given) if (isObject(each)) found.push(...alternatives(root, each, depth + 1));
  }
  return found;
}

/** What can be written at the place, each once. */
export function offersAt(root: Schema, place: Place): Offer[] {
  return place.key === null ? keysOf(root, place.path) : valuesOf(root, [...place.path, place.key]);
}

function keysOf(root: Schema, path: readonly Segment[]): Offer[] {
  const found = new Map<string, Offer>();
  for (const schema of schemasAt(root, path)) {
    const properties = schema["properties"];
    if (!isObject(properties)) continue;
    for (const [label, each] of Object.entries(properties)) {
      if (!found.has(label) && isObject(each)) found.set(label, { label, ...told(each), opens: opening(root, each) });
    }
  }
  return [...found.values()];
}

function valuesOf(root: Schema, path: readonly Segment[]): Offer[] {
  const found = new Map<string, Offer>();
  for (const schema of schemasAt(root, path)) {
    const given = [...(Array.isArray(schema["enum"]) ? schema["enum"] : []), ..."const" in schema ? [schema["const"] as Json] : []];
    if (schema["type"] === "boolean") given.push(true, false);
    for (const value of given) {
      const label = typeof value === "string" ? value : JSON.stringify(value);
      if (!found.has(label)) found.set(label, { label, ...told(schema), opens: "value" });
    }
  }
  return [...found.values()];
}

function opening(root: Schema, schema: Schema): Offer["opens"] {
  const kinds = alternatives(root, schema);
  if (kinds.some((each) => each["type"] === "string" || Array.isArray(each["enum"]))) return "value";
  if (kinds.some((each) => each["type"] === "array")) return "list";
  return kinds.some((each) => each["type"] === "object") ? "mapping" : "value";
}

function told(schema: Schema): { about: string; example: string } {
  const examples = schema["examples"];
  const first = Array.isArray(examples) ? examples[0] : undefined;
  return {
    about: typeof schema["description"] === "string" ? schema["description"] : "",
    example: first === undefined ? "" : typeof first === "string" ? first : JSON.stringify(first),
  };
}

/** What a key says of itself; null: the schema knows none of this name there. */
export function aboutKey(root: Schema, path: readonly Segment[], key: string): Offer | null {
  return keysOf(root, path).find((each) => each.label === key) ?? null;
}
