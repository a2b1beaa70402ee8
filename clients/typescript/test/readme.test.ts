import assert from "node:assert/strict";
import { readFile, writeFile, rm } from "node:fs/promises";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

const root = new URL("../", import.meta.url);
const readme = await readFile(new URL("README.md", root), "utf8");
const subscriber = await readFile(new URL("src/listener.ts", root), "utf8");

test("the example in README.md is one that the compiler accepts", async () => {
  const [, example = ""] = /```ts\n([^]*?)```/.exec(readme) ?? [];
  const file = new URL("test/readme_example.ts", root);
  await writeFile(file, example.replace('"hai-client"', '"../dist/index.js"'));
  const { include: _, ...config } = JSON.parse(await readFile(new URL("tsconfig.json", root), "utf8"));
  const project = new URL("test/readme_example.json", root);
  await writeFile(project, JSON.stringify({ ...config, files: ["readme_example.ts"] }));
  try {
    await promisify(execFile)(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "test/readme_example.json"], { cwd: root });
  } finally {
    await Promise.all([rm(file), rm(project)]);
  }
});

test("README.md names every callback, and no other", () => {
  const there = new Set([...subscriber.matchAll(/^ {2}(on\w+)\?:/gm)].map(([, name]) => name));
  const named = new Set([...readme.matchAll(/`(on\w+)`/g)].map(([, name]) => name));
  assert.ok(there.size > 25);
  assert.deepEqual(named, there);
});
