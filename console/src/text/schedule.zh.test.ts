import assert from "node:assert/strict";
import test from "node:test";
import type { ScheduleClause } from "../api/types.gen.ts";
import { scheduleInChinese } from "./schedule.zh.ts";

const clause = (code: ScheduleClause["code"], ...params: string[]): ScheduleClause => ({ code, params });
const utc = clause("schedule.zone", "UTC");

test("working days at a time", () => {
  const clauses = [clause("schedule.times", "09:00"), clause("schedule.weekday", "1-5"), clause("schedule.zone", "Europe/Berlin")];
  assert.equal(scheduleInChinese(clauses), "周一至周五 09:00（Europe/Berlin）");
});

test("each quarter of some hours, of some months", () => {
  const clauses = [clause("schedule.minute", "*/15"), clause("schedule.hour", "8-18"), clause("schedule.month", "1-3", "6"), utc];
  assert.equal(scheduleInChinese(clauses), "1 月至3 月、6 月 8 点至18 点 每隔 15 分钟（UTC）");
});

test("last days, counted weekdays, and either of both", () => {
  const clauses = [
    clause("schedule.times", "00:00"),
    clause("schedule.day", "LW"),
    clause("schedule.weekday", "5#2", "1L"),
    clause("schedule.day_or_weekday"),
    utc,
  ];
  assert.equal(scheduleInChinese(clauses), "最后一个工作日 第 2 个周五、最后一个周一（满足其一即可） 00:00（UTC）");
});

test("each day, each minute, each so many seconds, and a server that says no clauses", () => {
  assert.equal(scheduleInChinese([clause("schedule.times", "08:00", "20:00"), utc]), "每天 08:00、20:00（UTC）");
  assert.equal(scheduleInChinese([clause("schedule.minute", "*"), utc]), "每分钟（UTC）");
  assert.equal(scheduleInChinese([clause("schedule.interval", "90")]), "每隔 90 秒");
  assert.equal(scheduleInChinese([]), null);
});
