// Playwright for a test in another language: each request is a chain of calls, beginning at a page or the browser.
// One JSON document per line: requests on stdin, replies on stdout; no scenario is known here.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const pages = new Map();
let browser;

const operations = {
  async start({ executable, sandbox }) {
    const args = ["--disable-background-networking", "--disable-component-update", "--no-first-run"];
    browser = await chromium.launch({ executablePath: executable ?? undefined, chromiumSandbox: sandbox, args });
    return { version: browser.version() };
  },

  // A page in a context of its own, with its own cookies and storage; or, with `beside`, another tab of that one.
  async open({ page: name, beside, options }) {
    const context = beside ? pages.get(beside).page.context() : await browser.newContext(options);
    const page = await context.newPage();
    page.setDefaultTimeout(45_000); // less than until the other side gives up
    const record = { page, complaints: [] };
    page.on("pageerror", (error) => record.complaints.push(String(error)));
    page.on("console", (message) => {
      // That an answer was a refusal, or never came, is for the page to show; the browser writes it down as well.
      const refused = message.text().startsWith("Failed to load resource");
      if (message.type() === "error" && !refused) record.complaints.push(message.text());
    });
    pages.set(name, record);
    return {};
  },

  // [["getByRole", "button", {name: "Approve"}], ["click"]] and the like; the value of the last call, if it is JSON.
  async play({ page: name, chain }) {
    let value = pages.get(name).page;
    for (const [method, ...args] of chain) value = await (method in value ? value[method](...args.map(revived)) : lacking(method));
    return { value: isPlain(value) ? (value ?? null) : null };
  },

  // Asked again and again from here: the page's own policy lets nobody evaluate a text in it.
  async until({ page: name, script }) {
    const { page } = pages.get(name);
    for (const end = Date.now() + 90_000; ; await page.waitForTimeout(50)) {
      const is = await page.evaluate(`document.body !== null && (${script})`).catch((error) => {
        if (!/context was destroyed/.test(String(error))) throw error; // another document has come: it is asked of that one
      });
      if (is) return {};
      if (Date.now() > end) throw new Error(`never true: ${script}\n${await page.locator("body").innerText()}`);
    }
  },

  // A method of the browser's own protocol, on this page: what Playwright has no words for.
  async protocol({ page: name, method, params }) {
    const record = pages.get(name);
    record.session ??= await record.page.context().newCDPSession(record.page);
    return { value: await record.session.send(method, params) };
  },

  // How long the page's main thread has worked at one task at most, in milliseconds of its own, since `traced` began:
  // other processes of the machine do not count.
  async traced({ page: name }) {
    await browser.startTracing(pages.get(name).page, { categories: ["toplevel"] });
    return {};
  },

  async longest() {
    const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
    const of = ({ pid, tid }) => `${pid} ${tid}`;
    const mains = new Set(traceEvents.filter((each) => each.name === "thread_name" && each.args.name === "CrRendererMain").map(of));
    const tasks = traceEvents.filter((each) => each.ph === "X" && each.name.endsWith("RunTask") && mains.has(of(each)));
    return { value: Math.round(Math.max(0, ...tasks.map((each) => each.tdur ?? 0)) / 1000) };
  },

  async complaints({ page: name }) {
    return { value: pages.get(name).complaints };
  },

  async offline({ page: name, offline }) {
    await pages.get(name).page.context().setOffline(offline);
    return {};
  },

  // What axe finds, in an isolated world: the page's policy forbids scripts of others.
  async axe({ page: name }) {
    const { page } = pages.get(name);
    const session = await page.context().newCDPSession(page);
    const { frameTree } = await session.send("Page.getFrameTree");
    const { executionContextId: contextId } = await session.send("Page.createIsolatedWorld", {
      frameId: frameTree.frame.id,
      worldName: "axe",
    });
    await session.send("Runtime.evaluate", { expression: axe, contextId });
    const found = await session.send("Runtime.evaluate", {
      expression: `axe.run(document).then(({violations}) => violations.map(({id, help, nodes}) =>
        ({id, help, nodes: nodes.map((each) => each.html.slice(0, 200) + " " + each.failureSummary)})))`,
      contextId,
      awaitPromise: true,
      returnByValue: true,
    });
    await session.detach();
    if (found.exceptionDetails) throw new Error(JSON.stringify(found.exceptionDetails));
    return { value: found.result.value };
  },

  async close({ page: name }) {
    await pages.get(name).page.context().close();
    pages.delete(name);
    return {};
  },
};

// {"/pattern/": "flags"} stands for a regular expression, which JSON lacks.
function revived(value) {
  if (Array.isArray(value)) return value.map(revived);
  if (value === null || typeof value !== "object") return value;
  const [[key, flags] = []] = Object.entries(value);
  if (key?.startsWith("/") && key.endsWith("/")) return new RegExp(key.slice(1, -1), flags);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, revived(each)]));
}

function isPlain(value) {
  return value === null || typeof value !== "object" || Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
}

function lacking(method) {
  throw new Error(`Playwright has no ${method} there`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, ...request } = JSON.parse(line);
  operations[op](request).then(
    (reply) => console.log(JSON.stringify({ id, ...reply })),
    (error) => console.log(JSON.stringify({ id, fault: String(error?.stack ?? error) })),
  );
}
await browser?.close();
