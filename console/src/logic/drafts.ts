// Small changes of a document's text that keep all that the author has written.

interface Place {
  from: number;
  to: number;
}

/** The number that `version` says; null: it says none. */
export function versionOf(source: string): number | null {
  const place = placeOf(source, "version");
  const said = place === null ? "" : source.slice(place.from, place.to);
  return /^[1-9][0-9]{0,8}$/.test(said) ? Number(said) : null;
}

export function nameOf(source: string): string | null {
  const place = placeOf(source, "name");
  return place === null ? null : (/^["']?([A-Za-z0-9_-]+)["']?$/.exec(source.slice(place.from, place.to))?.[1] ?? null);
}

export function withVersion(source: string, version: number): string {
  const place = placeOf(source, "version");
  if (place !== null) return source.slice(0, place.from) + version + source.slice(place.to);
  if (isFlow(source)) return afterName(source, `"version": ${version}`);
  return source.replace(/^(name:.*)$/m, `$1\nversion: ${version}`);
}

/** A document in braces with a further entry behind its name. */
function afterName(source: string, entry: string): string {
  const name = placeOf(source, "name");
  return name === null ? source : `${source.slice(0, name.to)}, ${entry}${source.slice(name.to)}`;
}

/** Where the value of one of the document's own keys is written; of a list, where it begins. null: nowhere. */
function placeOf(source: string, key: string): Place | null {
  if (isFlow(source)) return placeInFlow(source, key);
  const found = new RegExp(`^["']?${key}["']?:[ \\t]+("[^"\n]*"|'[^'\n]*'|[^\\s#]+)[ \\t]*(?:#.*)?$`, "m").exec(source);
  if (found?.[1] === undefined) return null;
  const from = found.index + found[0].indexOf(found[1], key.length + 1);
  return { from, to: from + found[1].length };
}

/** Whether it is written in braces, as JSON is. */
function isFlow(source: string): boolean {
  return /^\s*(?:#.*\n\s*)*\{/.test(source);
}

const TOKEN = /"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|#.*|[[\]{},:]|[^\s[\]{},:"'#]+/g;

function placeInFlow(source: string, key: string): Place | null {
  let depth = 0;
  let named = ""; // the key in front of the colon that has just been passed, in the outermost braces
  let last = "";
  for (const { 0: token, index } of source.matchAll(TOKEN)) {
    if (named === key && !token.startsWith("#")) return { from: index, to: index + token.length };
    named = token === ":" && depth === 1 ? last.replace(/^["']|["']$/g, "") : "";
    if ("[{".includes(token)) depth += 1;
    else if ("]}".includes(token)) depth -= 1;
    last = token;
  }
  return null;
}

/** The text with a further schedule among its triggers. */
export function withSchedule(source: string, cron: string, timezone: string): string {
  const plain = { cron: cron.replace(/["\\\n]/g, ""), timezone: timezone.replace(/[^A-Za-z0-9_+/-]/g, "") };
  if (isFlow(source)) {
    const further = JSON.stringify({ schedule: plain });
    const list = placeOf(source, "triggers");
    if (list === null || source.charAt(list.from) !== "[") return afterName(source, `"triggers": [${further}]`);
    const rest = source.slice(list.to);
    return `${source.slice(0, list.to)}${further}${rest.trimStart().startsWith("]") ? "" : ", "}${rest}`;
  }
  const entry = `  - schedule: {cron: "${plain.cron}", timezone: ${plain.timezone}}\n`;
  if (/^triggers:[ \t]*(#.*)?$/m.test(source)) return source.replace(/^(triggers:[ \t]*(?:#.*)?)\n/m, `$1\n${entry}`);
  if (/^steps:/m.test(source)) return source.replace(/^steps:/m, `triggers:\n${entry}steps:`);
  return `${source}${source.endsWith("\n") ? "" : "\n"}triggers:\n${entry}`;
}

export const TEMPLATE = `hai: flow/v1
name: my_workflow
version: 1
title: My workflow
input:
  type: object
  required: [amount]
  properties:
    amount: {type: number, title: Amount}
steps:
  - id: sure
    approve:
      title: "Pay \${{ input.amount }}?"
      from: anyone
      deadline: 2d
  - return: "\${{ steps.sure.output.decision }}"
`;
