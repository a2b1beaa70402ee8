// Lists of like objects, which people read as tables.

import type { Json } from "../api/types.gen.ts";
import { isObject } from "./json.ts";
import { numberText, sumOf } from "./numbers.ts";

const COLUMNS = 16;
const NESTED = 2; // objects in the objects of a row, whose values are columns, too
const NO_SUMS = /(^|_)(id|no|nr|number|position|pos|index|year|line|page|zip)$/i;

export type Row = Record<string, Json>;

/** Where a value stands in each entry: a name, or the names of objects in objects that lead there. */
export type Column = readonly string[];

/** The columns of a list that is a table; null: its entries are not alike, or hold lists. */
export function columnsOf(list: readonly Json[]): Column[] | null {
  if (list.length < 2 || !list.every(isObject)) return null;
  const columns = new Map<string, Column>();
  const places = list.map((row) => placesIn(row, []));
  for (const each of places) {
    if (each === null) return null;
    for (const column of each) columns.set(JSON.stringify(column), column);
  }
  const alike = places.every((each) => each !== null && each.length * 2 >= columns.size);
  return alike && columns.size > 0 && columns.size <= COLUMNS ? [...columns.values()] : null;
}

function placesIn(value: Row, at: Column): Column[] | null {
  const places: Column[] = [];
  for (const [name, each] of Object.entries(value)) {
    const here = [...at, name];
    if (typeof each !== "object" || each === null) {
      places.push(here);
      continue;
    }
    // A part with a type of its own, such as a file, is shown as what it is.
    if (!isObject(each) || here.length > NESTED || typeof each["type"] === "string" || Object.keys(each).length === 0) return null;
    const inner = placesIn(each, here);
    if (inner === null) return null;
    places.push(...inner);
  }
  return places;
}

/** The object that holds the value of a column, and the name of the value in it; null: this entry has none. */
export function cellOf(row: Row, column: Column): { holder: Row; at: string } | null {
  let holder = row;
  for (const name of column.slice(0, -1)) {
    const inner = Object.hasOwn(holder, name) ? holder[name] : null;
    if (!isObject(inner)) return null;
    holder = inner;
  }
  const at = column.at(-1) ?? "";
  return Object.hasOwn(holder, at) ? { holder, at } : null;
}

/** The sums of those columns that hold numbers alone: what is left out of a long table. */
export function sums<C extends Column>(rows: readonly Row[], columns: readonly C[]): [C, string][] {
  return columns.flatMap((column) => {
    if (NO_SUMS.test(column.at(-1) ?? "")) return [];
    const texts = rows.map((row) => {
      const cell = cellOf(row, column);
      const value = cell?.holder[cell.at];
      return cell && typeof value === "number" ? numberText(cell.holder, cell.at, value) : "";
    });
    const sum = sumOf(texts);
    return sum === null ? [] : [[column, sum] as [C, string]];
  });
}
