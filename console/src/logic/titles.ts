// What a question's workflow is called, and the line of its arguments by which a question is told from others of its kind.

import type { Json } from "../api/types.gen.ts";
import { humanised } from "../text/names.ts";
import { isObject } from "./json.ts";
import { numberText } from "./numbers.ts";

interface Named {
  args: Json;
  evidence?: Json;
}

const NAMED = 3;
const LONG = 60;
const LEVELS = 4; // of objects in objects, in which the first arguments are looked for

/** What a question's workflow is called: by its title, where it has one. */
export function workflowOf({ workflow, workflow_title }: { workflow: string; workflow_title?: string | null }): string {
  return workflow_title || humanised(workflow);
}

/** The plain values of the arguments, else of the evidence, in one line; "" where there is none. */
export function lineOf({ args, evidence }: Named): string {
  const found = plain(isObject(args) ? args : (evidence ?? null)).slice(0, 2 * NAMED);
  return found.map(([name, text]) => `${humanised(name)}: ${text}`).join(" · ");
}

/** Whether the text occurs in the value, in whatever depth. */
export function mentions(value: Json | undefined, wanted: string): boolean {
  if (typeof value === "string") return value.toLowerCase().includes(wanted);
  if (typeof value === "number") return String(value).includes(wanted);
  return typeof value === "object" && value !== null && Object.values(value).some((each) => mentions(each, wanted));
}

function plain(value: Json, levels = LEVELS): [string, string][] {
  if (!isObject(value) || levels === 0) return [];
  const texts = Object.entries(value).flatMap(([name, each]): [string, string][] => {
    if (typeof each === "number") return [[name, numberText(value, name, each)]];
    if (typeof each !== "string" || each.trim() === "") return [];
    const line = each.trim().replace(/\s+/g, " ");
    return [[name, line.length > LONG ? `${line.slice(0, LONG)}…` : line]];
  });
  if (texts.length > 0) return texts;
  return Object.values(value).map((each) => plain(each, levels - 1)).find((each) => each.length > 0) ?? [];
}
