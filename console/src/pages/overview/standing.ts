// Whether a cell runs normally.

import type { CellOverview } from "../../api/types.gen.ts";

/** "faulty": a fault stops work now; "unfit": a check of the set-up found what has to be fixed; "well": neither. */
export function standingOf({ faults, checks }: Pick<CellOverview, "faults" | "checks">): "faulty" | "unfit" | "well" {
  if (faults.length > 0) return "faulty";
  return checks.some((each) => each.verdict === "bad") ? "unfit" : "well";
}
