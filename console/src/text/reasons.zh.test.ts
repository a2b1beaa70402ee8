import assert from "node:assert/strict";
import test from "node:test";
import { reasonInChinese } from "./reasons.zh.ts";

test("each of several reasons is said in Chinese", () => {
  const sentence = "user:ann is away until 2026-12-07 and has not named a delegate; user:bob started this run; somebody else must decide";
  assert.equal(reasonInChinese(sentence), "ann 外出至 2026-12-07，没有指定代理人；运行由 bob 启动，须由他人决定。");
  assert.equal(reasonInChinese("nobody with a key matches role:boss, user:cat"), "没有持有密钥的人符合 boss、cat。");
});

test("what another server has said is quoted", () => {
  assert.equal(reasonInChinese("ConnectError: all attempts failed"), "原文：“ConnectError: all attempts failed”");
  assert.equal(reasonInChinese("the mail server refused the recipient (550)"), "邮件服务器拒绝了收件人（550）。");
});
