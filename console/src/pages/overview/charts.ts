// Small charts: how numbers have been while somebody looked, and by the hour.

import type { CellOverview } from "../../api/types.gen.ts";

const HEIGHT = 24;
const KEPT = 120;

export interface Sample {
  at: number;
  due: number;
  workers: number;
  pendings: number;
  open: number;
  outbox: number;
}

/** The samples with one more, of the sums of all cells; at most as many as a chart shows. */
export function sampled(before: readonly Sample[], cells: readonly CellOverview[], at: number): Sample[] {
  if (before.at(-1)?.at === at) return [...before];
  const sum = (of: (cell: CellOverview) => number): number => cells.reduce((all, each) => all + of(each), 0);
  const open = (cell: CellOverview): number => Object.values(cell.runs).reduce((all, each) => all + each, 0);
  const sample: Sample = {
    at,
    due: sum((each) => each.waiting.due),
    workers: sum((each) => each.waiting.workers),
    pendings: sum((each) => each.waiting.pendings),
    open: sum(open),
    outbox: sum((each) => each.waiting.outbox),
  };
  return [...before, sample].slice(-KEPT);
}

/** A line through the numbers, 100 wide: the largest stands at the top, 0 at the bottom. */
export function path(numbers: readonly number[]): string {
  const most = Math.max(1, ...numbers);
  const step = 100 / Math.max(1, numbers.length - 1);
  return numbers.map((each, i) => `${i === 0 ? "M" : "L"}${round(i * step)} ${round(1 + (HEIGHT - 2) * (1 - each / most))}`).join("");
}

/** The heights of columns. One that is not nothing is seen, beside whatever others. */
export function bars(numbers: readonly number[]): number[] {
  const most = Math.max(1, ...numbers);
  return numbers.map((each) => (each === 0 ? 0 : Math.max(1, round((HEIGHT * each) / most))));
}

const round = (n: number): number => Math.round(n * 10) / 10;
