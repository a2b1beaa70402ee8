// Runs the tests of what knows no page: every *.test.ts, also with a Node that reads no TypeScript and finds no files.

import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const tests = readdirSync(join(root, "src"), { recursive: true })
  .filter((name) => name.endsWith(".test.ts"))
  .map((name) => join("src", name))
  .sort();
const reads = process.features.typescript ? [] : ["--import", "./scripts/types.mjs"];
const played = spawnSync(process.execPath, [...reads, "--test", "--test-timeout=20000", ...process.argv.slice(2), ...tests], {
  cwd: root,
  stdio: "inherit",
});
process.exit(played.status ?? 1);
