// Lists of like objects, which people read as tables.

import type { Json } from "../api/types.gen.ts";
import { isObject } from "./json.ts";
import { numberText, sumOf } from "./written.ts";

const COLUMNS = 16;
const NO_SUMS = /(^|_)(id|no|nr|number|position|pos|index|year|line|page|zip)$/i;

export type Row = Record<string, Json>;

/** The columns of a list that is a table; null: its entries are not alike, or hold more than plain values. */
export function columnsOf(list: readonly Json[]): string[] | null {
  if (list.length < 2 || !list.every(isObject)) return null;
  const columns = new Set<string>();
  for (const row of list) {
    for (const [name, value] of Object.entries(row)) {
      if (typeof value === "object" && value !== null) return null;
      columns.add(name);
    }
  }
  const alike = list.every((row) => Object.keys(row).length * 2 >= columns.size);
  return alike && columns.size > 0 && columns.size <= COLUMNS ? [...columns] : null;
}

/** The sums of those columns that hold numbers alone: what is left out of a long table. */
export function sums(rows: readonly Row[], columns: readonly string[]): [string, string][] {
  return columns.flatMap((column) => {
    if (NO_SUMS.test(column) || !rows.every((row) => typeof row[column] === "number")) return [];
    const sum = sumOf(rows.map((row) => numberText(row, column, row[column] as number)));
    return sum === null ? [] : [[column, sum] as [string, string]];
  });
}
