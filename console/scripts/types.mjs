// For a Node that reads no TypeScript: files of it lose their types as they are loaded. Node loads this file twice, once
// to be told of it, and once in the thread in which it loads modules.

import { readFile } from "node:fs/promises";
import { register } from "node:module";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

if (isMainThread) register(import.meta.url);

export async function load(url, context, next) {
  if (!url.startsWith("file:") || !url.endsWith(".ts")) return next(url, context);
  const { transformWithOxc } = await import("vite");
  const path = fileURLToPath(url);
  const { code } = await transformWithOxc(await readFile(path, "utf8"), path);
  return { format: "module", shortCircuit: true, source: code };
}
