// Bundles the pages, serves them from an origin of their own, and drives a real browser on them.
// One JSON document per line: requests on stdin, replies on stdout; no scenario is known here.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const PAGES = { "/assistant_ui": "assistant_ui", "/copilotkit": "copilotkit" };
const pages = new Map();
let browser;

function html(name) {
  return `<!doctype html><meta charset="utf-8"><title>${name}</title>
<link rel="icon" href="data:,"><div id="root"></div><script type="module" src="/bundles/${name}.js"></script>`;
}

async function serve(request, response) {
  const { pathname } = new URL(request.url, "http://here");
  if (PAGES[pathname]) {
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(html(PAGES[pathname]));
  } else if (/^\/bundles\/[a-z_]+\.js$/.test(pathname)) {
    response.writeHead(200, { "content-type": "text/javascript" }).end(await readFile(`.${pathname}`));
  } else {
    response.writeHead(404).end();
  }
}

async function bundle(entryPoints, outdir) {
  await build({
    entryPoints,
    outdir,
    bundle: true,
    format: "esm",
    jsx: "automatic",
    loader: { ".woff2": "empty", ".woff": "empty", ".ttf": "empty" },
    define: { "process.env.NODE_ENV": '"production"' },
    nodePaths: [resolve("node_modules")], // of a page that is elsewhere
    logLevel: "error",
  });
}

const operations = {
  // The pages' origin, once they can be opened.
  async start({ executable, sandbox }) {
    await bundle(Object.values(PAGES).map((name) => `${name}.jsx`), "bundles");
    const server = createServer(serve);
    await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
    const args = ["--disable-background-networking", "--disable-component-update", "--no-first-run"];
    browser = await chromium.launch({ executablePath: executable ?? undefined, chromiumSandbox: sandbox, args });
    return { origin: `http://127.0.0.1:${server.address().port}`, version: browser.version() };
  },

  // Pages of elsewhere, as files of a folder.
  async bundle({ entries, folder }) {
    await bundle(entries, folder);
    return {};
  },

  // `html`: what stands at the url, if nobody serves it.
  async open({ page: name, url, html }) {
    const page = await browser.newPage();
    if (html) await page.route(url, (route) => route.fulfill({ contentType: "text/html", body: html }));
    const record = { page, complaints: [], posts: [] };
    record.refusal = new Promise((refused) => (record.refused = refused));
    page.on("pageerror", (error) => record.complaints.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error") record.complaints.push(message.text());
    });
    page.on("request", (request) => {
      if (request.method() === "POST") record.posts.push({ url: request.url(), body: request.postData() });
    });
    page.on("response", async (response) => {
      const request = response.request();
      if (request.method() !== "POST" || response.ok()) return;
      const refused = record.posts.findLast(({ url, body }) => url === request.url() && body === request.postData());
      Object.assign(refused, { status: response.status(), problem: await response.text() });
      record.refused(refused);
    });
    pages.set(name, record);
    await page.goto(url);
    return {};
  },

  async click({ page, button }) {
    await pages.get(page).page.getByRole("button", { name: button, exact: true }).first().click({ timeout: 20_000 });
    return {};
  },

  // The value of a JavaScript expression in the page, as soon as it is one that counts as true.
  async until({ page, expression }) {
    const handle = await pages.get(page).page.waitForFunction(expression, undefined, { timeout: 40_000 });
    return { value: await handle.jsonValue() };
  },

  // Into the page's composer, and off it goes.
  async type({ page, text }) {
    const composer = pages.get(page).page.getByRole("textbox");
    await composer.fill(text);
    await composer.press("Enter");
    return {};
  },

  // The first POST of the page that the server refused, as soon as it did.
  async refusal({ page }) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("nothing was refused")), 20_000));
    return await Promise.race([pages.get(page).refusal, late]);
  },

  // What the page says as soon as `text` stands in it.
  async shows({ page, text }) {
    const { page: tab, complaints, posts } = pages.get(page);
    let found = true;
    try {
      await tab.getByText(text).first().waitFor({ timeout: 20_000 });
    } catch {
      found = false;
    }
    return { found, text: await tab.locator("body").innerText(), complaints, posts };
  },

  async close({ page }) {
    await pages.get(page).page.close();
    return {};
  },
};

async function answer(line) {
  const { id, op, ...rest } = JSON.parse(line);
  let reply;
  try {
    reply = { id, ...(await operations[op](rest)) };
  } catch (error) {
    reply = { id, fault: String(error?.stack ?? error) };
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}

createInterface({ input: process.stdin })
  .on("line", answer)
  .on("close", async () => {
    await browser?.close();
    process.exit(0);
  });
