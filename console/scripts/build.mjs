// Builds the pages into the folder that is given: the console with React, and the page of one decision with Preact,
// which has React's interface at a seventh of its size. Beside each text file lie a .br and a .gz of it.

import { readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "vite";

const target = resolve(process.argv[2] ?? "dist");
const root = resolve(import.meta.dirname, "..");

// Elements are made by a runtime of our own, which shows hidden signs as codes.
const SIGNS = { find: /^#signs\/jsx-runtime$/, replacement: join(root, "src/signs/jsx-runtime.ts") };

const shared = {
  root,
  base: "/console/",
  configFile: false,
  envDir: false,
  publicDir: false,
  logLevel: "warn",
  define: { "process.env.NODE_ENV": '"production"' },
  oxc: { jsx: { runtime: "automatic", importSource: "#signs" } },
  resolve: { alias: [SIGNS] },
};

function output(input, license) {
  return {
    outDir: target,
    emptyOutDir: false,
    target: "es2023",
    assetsInlineLimit: 0, // the policy lets pages load from this server alone, and a data: address is not it
    modulePreload: { polyfill: false },
    license: { fileName: license },
    rolldownOptions: { input: join(root, input) },
  };
}

await build({ ...shared, build: { ...output("index.html", "licenses.md"), emptyOutDir: true } });
await build({
  ...shared,
  resolve: {
    alias: [
      SIGNS,
      { find: /^react$/, replacement: "preact/compat" },
      { find: /^react-dom$/, replacement: "preact/compat" },
      { find: /^react-dom\/client$/, replacement: "preact/compat/client" },
      { find: /^react\/jsx-runtime$/, replacement: "preact/jsx-runtime" },
    ],
  },
  build: output("decide.html", "licenses-decide.md"),
});

for (const entry of (await readdir(target, { recursive: true, withFileTypes: true })).sort(byPath)) {
  const path = join(entry.parentPath, entry.name);
  if (!entry.isFile() || !/\.(js|css|html|svg|md)$/.test(entry.name)) continue;
  const content = await readFile(path);
  const quality = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
  await writeFile(`${path}.br`, brotliCompressSync(content, { params: quality }));
  await writeFile(`${path}.gz`, gzipSync(content, { level: 9 }));
}

function byPath(a, b) {
  return join(a.parentPath, a.name) < join(b.parentPath, b.name) ? -1 : 1;
}
