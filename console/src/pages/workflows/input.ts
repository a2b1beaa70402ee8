// What a workflow asks for when it is started.

import type { FieldFinding, Problem } from "../../api/problems.ts";
import type { Json } from "../../api/types.gen.ts";
import { isObject } from "../../logic/json.ts";

export function hasInput(schema: Json): boolean {
  return isObject(schema) && isObject(schema["properties"]) && Object.keys(schema["properties"]).length > 0;
}

/** The findings of a refused start as places in the input. */
export function inputFindings(problem: Problem | null): FieldFinding[] {
  return (problem?.findings ?? []).map((each) => ({ ...each, path: (each.path ?? "").replace(/^\/input(?=\/|$)/, "") }));
}
