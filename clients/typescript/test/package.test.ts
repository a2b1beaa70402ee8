import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

const root = new URL("../", import.meta.url);
const built = (await readdir(new URL("dist/", root))).filter((name) => name.endsWith(".js"));

test("what is built imports nothing but itself: no package, nothing of Node's", async () => {
  assert.ok(built.includes("index.js"));
  for (const name of built) {
    const source = await readFile(new URL(`dist/${name}`, root), "utf8");
    const imports = [...source.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)].map(([, from]) => from);
    assert.deepEqual(imports.filter((from) => !from?.startsWith("./")), [], name);
  }
});

test("the lock names no registry", async () => {
  assert.doesNotMatch(await readFile(new URL("package-lock.json", root), "utf8"), /https?:\/\/[^"]*\.tgz/);
});
