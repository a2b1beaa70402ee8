import assert from "node:assert/strict";
import test from "node:test";
import { graphWord } from "./graph.zh.ts";

test("the words of a picture are said in Chinese, and its author's are not", () => {
  for (const [style, text, said] of [
    ["verb", "end", "结束"],
    ["detail", "output {input.end}", "输出 {input.end}"],
    ["gate", "approval: role:lead · 2 of them · within 2d", "审批：role:lead · 其中 2 人 · 期限 2d"],
    ["note", "late: remind, then escalate, then reject", "逾期：remind，然后 escalate，然后 reject"],
    ["label", "on reject", "决定为 reject 时"],
    ["title", "start", "start"],
  ] as const)
    assert.equal(graphWord(style, text, false), said);
  assert.equal(graphWord("detail", "output of the tool", true), "output of the tool");
});
