// Small changes of a document's text that keep all that the author has written.

/** The number that `version:` says; null: it says none. */
export function versionOf(source: string): number | null {
  const found = /^version:\s*([1-9][0-9]{0,8})\s*(#.*)?$/m.exec(source);
  return found ? Number(found[1]) : null;
}

export function nameOf(source: string): string | null {
  return /^name:\s*["']?([A-Za-z0-9_-]+)["']?\s*(#.*)?$/m.exec(source)?.[1] ?? null;
}

export function withVersion(source: string, version: number): string {
  if (versionOf(source) === null) return source.replace(/^(name:.*)$/m, `$1\nversion: ${version}`);
  return source.replace(/^(version:\s*)[1-9][0-9]{0,8}/m, `$1${version}`);
}

/** The text with a further schedule among its triggers. */
export function withSchedule(source: string, cron: string, timezone: string): string {
  const entry = `  - schedule: {cron: "${cron.replace(/["\\\n]/g, "")}", timezone: ${timezone.replace(/[^A-Za-z0-9_+/-]/g, "")}}\n`;
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
