import assert from "node:assert/strict";
import { test } from "node:test";
import { hasHidden, reveal, straight } from "./signs.ts";

// The same samples as in tests/test_invisible_characters.py.
const SAMPLES: [string, string][] = [
  ["to \u202egpj.exe\u2066 \u200bnow", "to [U+202E]gpj.exe[U+2066] [U+200B]now"],
  ["a\ufeffb\u00adc\u061cd\u2060e", "a[U+FEFF]b[U+00AD]c[U+061C]d[U+2060]e"],
  ["\u{e0041}\u{e0042}hidden\u3164\u115f", "[U+E0041][U+E0042]hidden[U+3164][U+115F]"],
  ["p\u0430ypal, \u043f\u0440\u0438\u0432\u0435\u0442", "p[U+0430]ypal, \u043f\u0440\u0438\u0432\u0435\u0442"],
  ["\u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u2764\ufe0f 1\ufe0f\u20e3", "\u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u2764\ufe0f 1\ufe0f\u20e3"],
  ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 a\u200cb", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 a[U+200C]b"],
  ["x\ufe0f \u2764\ufe0f\ufe0f", "x[U+FE0F] \u2764\ufe0f[U+FE0F]"],
  ["tab\tline\nend \u4e2d\u6587\u3000é", "tab\tline\nend \u4e2d\u6587\u3000é"],
  ["\u001b[2J\u009b\u0000", "[U+001B][2J[U+009B][U+0000]"],
];

test("hidden, turning and look-alike signs are shown as codes, and what writing needs stays", () => {
  for (const [text, shown] of SAMPLES) assert.equal(reveal(text), shown);
});

test("a value holds hidden signs where a text or a name in it does", () => {
  assert.equal(hasHidden({ a: ["x", { b: "\u200b" }] }), true);
  assert.equal(hasHidden({ "\u202e": 1 }), true);
  assert.equal(hasHidden({ a: ["\u4e2d\u6587", 1, null, true] }), false);
});

test("the name of a file is sent without the signs that the server refuses, and no sign is cut in half", () => {
  assert.equal(straight("\u200eWhatsApp \u202egpj\u0009.exe\ud83d"), "WhatsApp gpj.exe");
  assert.equal(straight(`${"\u{1f600}".repeat(201)}.png`), "\u{1f600}".repeat(200));
  assert.equal(straight("\u0645\u06cc\u200c\u062e.pdf"), "\u0645\u06cc\u200c\u062e.pdf");
});
