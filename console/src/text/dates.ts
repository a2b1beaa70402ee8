// Moments and spans as the reader writes them, in the reader's zone.

import { distance } from "../logic/calendar.ts";
import type { Texts } from "./en.ts";
import { locale } from "./index.ts";

// To make one takes longer than to use it a hundred times.
const formats = new Map<string, unknown>();

function made<T>(key: string, make: () => T): T {
  const known = (formats.get(key) as T | undefined) ?? make();
  formats.set(key, known);
  return known;
}

function format(at: string | number, name: string, options: Intl.DateTimeFormatOptions): string {
  return made(`${name} ${locale()}`, () => new Intl.DateTimeFormat(locale(), options)).format(new Date(at));
}

export const moment = (at: string | number): string => format(at, "moment", { dateStyle: "medium", timeStyle: "short" });

export const exactly = (at: string | number): string => format(at, "exactly", { dateStyle: "full", timeStyle: "long" });

export const clock = (at: string | number): string => format(at, "clock", { timeStyle: "medium" });

/** How far off it is: "in 2 hours", "3 minutes ago"; of days near by with the time: "tomorrow, 12:40 AM". */
export function relative(at: string | number, now: number): string {
  const { unit, n } = distance(new Date(at).getTime(), now);
  const said = made(`relative ${locale()}`, () => new Intl.RelativeTimeFormat(locale(), { numeric: "auto" })).format(n, unit);
  if (unit !== "day" || Math.abs(n) > 1) return said;
  const time = format(at, "time of day", { timeStyle: "short" });
  return locale().startsWith("zh") ? `${said} ${time}` : `${said}, ${time}`;
}

/** How long ago something was. Where the page's clock is behind, it was just now. */
export function since(at: string | number, now: number): string {
  return relative(at, Math.max(now, new Date(at).getTime()));
}

/** A span in at most two units: "2 d 3 h", "1.4 s". */
export function span(ms: number): string {
  const format = (value: number, unit: string, digits = 0): string =>
    made(
      `${unit} ${digits} ${locale()}`,
      () => new Intl.NumberFormat(locale(), { style: "unit", unit, unitDisplay: "narrow", maximumFractionDigits: digits }),
    ).format(value);
  if (ms < 1000) return format(Math.round(ms), "millisecond");
  if (ms < 60_000) return format(ms / 1000, "second", 1);
  if (ms < 3_600_000) return `${format(Math.floor(ms / 60_000), "minute")} ${format(Math.floor(ms / 1000) % 60, "second")}`;
  if (ms < 86_400_000) return `${format(Math.floor(ms / 3_600_000), "hour")} ${format(Math.floor(ms / 60_000) % 60, "minute")}`;
  return `${format(Math.floor(ms / 86_400_000), "day")} ${format(Math.floor(ms / 3_600_000) % 24, "hour")}`;
}

export function ownZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** A moment as it is on the clocks of another zone. */
export function momentIn(at: string | number, timeZone: string): string {
  return format(at, `moment in ${timeZone}`, { dateStyle: "medium", timeStyle: "short", timeZone });
}

/** A moment as it is `said` in the reader's zone, and as the clock of another zone has it, if there is one. */
export function inZones(t: Texts, said: string, at: string | number, zone: string | null): string {
  return zone === null ? said : `${said}; ${momentIn(at, zone)} ${t.decision.deadlineIn(zone)}`;
}
