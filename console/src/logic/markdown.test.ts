import assert from "node:assert/strict";
import test from "node:test";
import { blocksOf, spansOf } from "./markdown.ts";

test("headings, lists, quotes, code, rules and tables are blocks", () => {
  const kinds = (text: string): string[] => blocksOf(text).map((each) => each.kind);
  assert.deepEqual(kinds("## A\n\nb\n\n- c\n- d\n\n1. e\n\n> f\n\n```js\ng\n```\n\n---\n\n| a | b |\n|---|---|\n| 1 | 2 |"), ["heading", "text", "list", "list", "quote", "code", "rule", "table"]);
  assert.deepEqual(blocksOf("- a\n  - b\n- c"), [
    { kind: "list", start: null, items: [[{ kind: "text", spans: ["a"] }, { kind: "list", start: null, items: [[{ kind: "text", spans: ["b"] }]] }], [{ kind: "text", spans: ["c"] }]] },
  ]);
  assert.deepEqual(blocksOf("3. a"), [{ kind: "list", start: 3, items: [[{ kind: "text", spans: ["a"] }]] }]);
});

test("spans are emphasis, code and links with their host", () => {
  assert.deepEqual(spansOf("a **b *c*** `d`"), ["a ", { kind: "strong", spans: ["b ", { kind: "em", spans: ["c"] }] }, " ", { kind: "code", text: "d" }]);
  assert.deepEqual(spansOf("[x](https://a.example/b)"), [{ kind: "link", href: "https://a.example/b", host: "a.example", spans: ["x"] }]);
  assert.deepEqual(spansOf("[bank.example](https://bank.example@evil.example)").map((each) => (typeof each === "object" && "host" in each ? each.host : each)), ["evil.example"]);
});

test("a link has one address, and says all that it leads to", () => {
  for (const words of ["https://bank.example", "see https://bank.example now", "*https://bank.example*"]) {
    const spans = [words.includes("*") ? { kind: "em", spans: ["https://bank.example"] } : words];
    const made = spansOf(`[${words}](https://evil.example)`);
    assert.equal(JSON.stringify(made).split('"kind":"link"').length, 2, words);
    if (!words.includes("*")) assert.deepEqual(made, [{ kind: "link", href: "https://evil.example/", host: "evil.example", spans }]);
  }
  const [letter] = spansOf("[x](mailto:ann@a.example?bcc=eve@b.example)");
  assert.ok(typeof letter === "object" && "host" in letter && letter.host.includes("eve@b.example"));
  for (const nothing of ["[ ](https://a.example)", "[\t](https://a.example)"]) assert.equal(spansOf(nothing)[0], nothing.slice(0, 4), nothing);
});

test("what is none of it stays as it is written", () => {
  for (const text of ["2 * 3 * 4", "snake_case_name", "[x](javascript:alert(1))", "<b>x</b>", "[x](data:text/html,x)", "**open", "a | b", "!x", "[x]: y"]) {
    assert.deepEqual(spansOf(text), [text], text);
  }
  assert.deepEqual(spansOf("![pixel](https://evil.example/p.png)"), spansOf("[pixel](https://evil.example/p.png)"));
});

test("every word of a text is in what is made of it", () => {
  const text = "# one\n- two **three** `four`\n> five [six](https://seven.example)\n\n|eight|nine|\n|-|-|\n|ten|eleven|twelve|\n```thirteen\nfourteen\n```\n<!-- fifteen -->";
  const made = JSON.stringify(blocksOf(text));
  for (const word of text.match(/[a-z]{3,}/g) ?? []) if (word !== "https" && word !== "example") assert.ok(made.includes(word), word);
});

test("hostile texts take no long time", () => {
  for (const text of ["*a ".repeat(3000), "[".repeat(9000), "[a](".repeat(2400), "`".repeat(9000), "> ".repeat(5000), "- ".repeat(5000), "_a*b~~".repeat(1500), "**a ".repeat(50_000), "|".repeat(9000) + "\n" + "|-".repeat(4500), "# a" + " ".repeat(60_000) + "b", "# a" + " #".repeat(60_000) + "b", "a|b\n--- " + " ".repeat(60_000) + "x", "# a" + "#".repeat(60_000) + " "]) {
    const began = performance.now();
    blocksOf(text);
    assert.ok(performance.now() - began < 1500, text.slice(0, 12));
  }
});
