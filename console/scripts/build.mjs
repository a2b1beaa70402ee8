// Builds the pages into the folder that is given: the console with React; the page of one decision, and the elements for
// pages of others, with Preact, which has React's interface at a seventh of its size. Beside each text file lie a .br and
// a .gz of it.

import { createHash } from "node:crypto";
import { copyFile, readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "vite";
import { shadowed } from "./shadow.mjs";

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

// Sentences that no request of an element can get: about the text of a workflow, migrations and YAML, by their part of the
// file; about runs, programs and administration, by their codes; and why something could not be sent, by where they begin.
const OF_WORKFLOWS = /^ {2}\/\/ (mistakes and doubts|why a run can't move|YAML)[^]*?(?=^ {2}\/\/ (values|with what)|^\};)/gm;
const OF_OPERATORS = /^ {2}"?(canary|freeze|publishing|rehearsal|retry|fork|schedule|skip|jump|webhook|trigger|migration|workflow|chat|account|accounts|channel|callback|feedback|message)[._].*\n/gm;
const OF_NOTICES = /^ {2}\[\/\^no \(\?:answer[^]*?(?=^\];)/m;

/** The Chinese of the server without what an element never shows; null: another file. */
function ofElements(code, id) {
  if (id.endsWith("/server.zh.ts")) return code.replace(OF_WORKFLOWS, "").replace(OF_OPERATORS, "");
  return id.endsWith("/reasons.zh.ts") ? code.replace(OF_NOTICES, "") : null;
}

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
const preact = [
  SIGNS,
  { find: /^react$/, replacement: "preact/compat" },
  { find: /^react-dom$/, replacement: "preact/compat" },
  { find: /^react-dom\/client$/, replacement: "preact/compat/client" },
  { find: /^react\/jsx-runtime$/, replacement: "preact/jsx-runtime" },
];
await build({ ...shared, resolve: { alias: preact }, build: output("decide.html", "licenses-decide.md") });
await elements();

/**
 * The elements: one file that loads nothing else. What is in an element is one function, which each element calls for
 * itself, so that two of them share no variable of any module: no token, no stream, no draft, no language.
 */
async function elements() {
  const plain = { ...output("", ""), license: false }; // the licenses are those of the page of one decision
  const inner = await build({
    ...shared,
    plugins: [
      {
        name: "sentences",
        enforce: "pre",
        transform: (code, id) => {
          const left = ofElements(code, id);
          return left === null ? null : { code: left, map: null };
        },
      },
    ],
    resolve: { alias: [...preact, { find: /^.*\/host\.ts$/, replacement: join(root, "src/elements/host.ts") }] },
    build: {
      ...plain,
      write: false,
      minify: false,
      lib: { entry: join(root, "src/elements/inner.tsx"), formats: ["cjs"] },
      rolldownOptions: { output: { codeSplitting: false } },
    },
  });
  // A page may have put something of its own into Object.prototype: it is no export.
  const code = inner[0].output[0].code.replace(/for \(var (\w+) in (\w+)\) (?=__defProp)/g, "for (var $1 of Object.keys($2)) ");
  await build({
    ...shared,
    plugins: [
      {
        name: "elements",
        enforce: "pre",
        resolveId: (id) => (id === "#inner" ? "\0inner" : null),
        load: (id) => (id === "\0inner" ? `export function load(given) {\nconst exports = {};\n${code}\nreturn exports;\n}` : null),
        transform: (css, id) => (id.endsWith(".css?inline") ? { code: shadowed(css), map: null } : null),
      },
    ],
    build: {
      ...plain,
      rolldownOptions: { input: join(root, "src/elements/elements.ts"), output: { codeSplitting: false, entryFileNames: "elements.js" } },
    },
  });
  await copyFile(join(root, "src/elements/types.ts"), join(target, "elements.d.ts"));
  const built = await readFile(join(target, "elements.js"));
  const integrity = `sha384-${createHash("sha384").update(built).digest("base64")}`;
  await writeFile(join(target, "elements.json"), `${JSON.stringify({ file: "elements.js", integrity })}\n`);
}

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
