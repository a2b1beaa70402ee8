// What a schedule says, in Chinese: its clauses by their codes. A clause that is missing here does not compile.

import type { ScheduleClause } from "../api/types.gen.ts";

type Code = ScheduleClause["code"];

const WEEKDAYS = ["周日", "周一", "周二", "周三", "周四", "周五", "周六", "周日"];

/** An item of a cron field: one value, a range, and each of so many of either. */
function item(text: string, one: (value: string) => string, every: string): string {
  const [range = "", step] = text.split("/");
  const [from = "", to] = range.split("-");
  const span = range === "*" ? "" : to === undefined ? (step ? `从${one(from)}起` : one(from)) : `${one(from)}至${one(to)}`;
  return step === undefined ? span : `${span}每隔 ${step} ${every}`;
}

const items = (all: readonly string[], one: (value: string) => string, every: string): string =>
  all.map((each) => item(each, one, every)).join("、");

function day(value: string): string {
  return value === "L" ? "最后一天" : value === "LW" ? "最后一个工作日" : `${value} 日`;
}

function weekday(value: string): string {
  const [of = "", nth] = value.split("#");
  if (of.endsWith("L")) return `最后一个${WEEKDAYS[Number(of.slice(0, -1))] ?? of}`;
  const name = WEEKDAYS[Number(of)] ?? of;
  return nth === undefined ? name : `第 ${nth} 个${name}`;
}

const CLAUSES: Record<Code, (params: readonly string[]) => string> = {
  "schedule.month": (of) => items(of, (each) => `${each} 月`, "个月"),
  "schedule.day": (of) => items(of, day, "天"),
  "schedule.day_or_weekday": () => "（满足其一即可）",
  "schedule.weekday": (of) => items(of, weekday, "天"),
  "schedule.times": (of) => of.join("、"),
  "schedule.hour": (of) => items(of, (each) => `${each} 点`, "小时"),
  "schedule.minute": (of) => (of[0] === "*" ? "每分钟" : items(of, (each) => `${each} 分`, "分钟")),
  "schedule.interval": ([seconds]) => `每隔 ${seconds} 秒`,
  "schedule.zone": ([zone]) => `（${zone}）`,
};

// The larger span comes first, and in brackets what belongs to the days.
const ORDER: Code[] = [
  "schedule.month",
  "schedule.day",
  "schedule.weekday",
  "schedule.day_or_weekday",
  "schedule.hour",
  "schedule.times",
  "schedule.minute",
  "schedule.interval",
  "schedule.zone",
];

/** The schedule in one line; null where its server says no clauses. */
export function scheduleInChinese(clauses: readonly ScheduleClause[]): string | null {
  const found = ORDER.flatMap((code) => clauses.filter((each) => each.code === code));
  if (found.length === 0) return null;
  const dated = found.some(({ code }) => ["schedule.month", "schedule.day", "schedule.weekday"].includes(code));
  const daily = !dated && found.some(({ code }) => code === "schedule.times" || code === "schedule.hour");
  const said = found.map(({ code, params }) => CLAUSES[code]?.(params) ?? params.join("、"));
  return `${daily ? "每天 " : ""}${said.join(" ").replace(/ （/g, "（")}`;
}
