// A browser small enough for the page of the tutorial: fetches it, runs its script over the real server, prints its lines
// as JSON, and presses the buttons that standard input names: {"press": text, "typed": what is typed into the prompt}.
import { createInterface } from "node:readline";

const url = new URL(process.argv[2]);
const html = await (await fetch(url)).text();
const script = /<script type="module">(.*?)<\/script>/s.exec(html)[1];

class Element {
  children = [];
  append(...children) {
    this.children.push(...children);
    tell();
  }
  get buttons() {
    return this.children.filter((each) => each instanceof Element && each.onclick);
  }
  get line() {
    return [this.textContent, ...this.buttons.map((each) => `[${each.textContent}]`)].join(" ");
  }
}

const list = new Element();
let typed = null;
globalThis.location = url;
globalThis.prompt = () => typed;
globalThis.document = { querySelector: () => list, createElement: () => new Element() };

function tell() {
  console.log(JSON.stringify(list.children.map((each) => each.line)));
}

createInterface({ input: process.stdin }).on("line", (text) => {
  const wish = JSON.parse(text);
  typed = wish.typed;
  const buttons = list.children.flatMap((each) => each.buttons).filter((each) => each.textContent === wish.press);
  buttons.at(-1).onclick();
}).on("close", () => process.exit());

await import(`data:text/javascript,${encodeURIComponent(script)}`);
