// Moments and spans as the reader writes them, in the reader's zone.

import { locale } from "./index.ts";

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
  ["second", 1000],
];

export function moment(at: string | number): string {
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(at));
}

export function exactly(at: string | number): string {
  return new Intl.DateTimeFormat(locale(), {
    dateStyle: "full",
    timeStyle: "long",
  }).format(new Date(at));
}

export function clock(at: string | number): string {
  return new Intl.DateTimeFormat(locale(), { timeStyle: "medium" }).format(new Date(at));
}

/** How far off it is: "in 2 days", "3 minutes ago". */
export function relative(at: string | number, now: number): string {
  const ms = new Date(at).getTime() - now;
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: "auto" });
  for (const [unit, size] of UNITS) {
    if (Math.abs(ms) >= size) return format.format(Math.trunc(ms / size), unit);
  }
  return format.format(0, "second");
}

/** A span in at most two units: "2 d 3 h", "1.4 s". */
export function span(ms: number): string {
  const format = (value: number, unit: string, digits = 0): string =>
    new Intl.NumberFormat(locale(), {
      style: "unit",
      unit,
      unitDisplay: "narrow",
      maximumFractionDigits: digits,
    }).format(value);
  if (ms < 1000) return format(Math.round(ms), "millisecond");
  if (ms < 60_000) return format(ms / 1000, "second", 1);
  if (ms < 3_600_000) return `${format(Math.floor(ms / 60_000), "minute")} ${format(Math.floor(ms / 1000) % 60, "second")}`;
  if (ms < 86_400_000) return `${format(Math.floor(ms / 3_600_000), "hour")} ${format(Math.floor(ms / 60_000) % 60, "minute")}`;
  return `${format(Math.floor(ms / 86_400_000), "day")} ${format(Math.floor(ms / 3_600_000) % 24, "hour")}`;
}
