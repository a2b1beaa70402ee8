// The zone of the clock that started a run: what is to be done by a time is said in it as well.

import { useEffect, useState } from "react";
import { ownZone } from "../text/dates.ts";
import { get } from "./client.ts";
import type { SchedulePage } from "./types.gen.ts";

const CLOCK = "system"; // who starts what a schedule starts
const asked = new Map<string, Promise<string | null>>();

/** The zone of the workflow's schedules, if they have one that is not the reader's; null: none, or it is not known. */
async function zoneOf(workflow: string): Promise<string | null> {
  try {
    const { items } = await get<SchedulePage>("/v1/schedules?limit=200");
    const zones = new Set(items.filter((each) => each.workflow === workflow).map((each) => each.timezone));
    const [zone] = zones;
    return zones.size === 1 && zone !== undefined && zone !== ownZone() ? zone : null;
  } catch {
    asked.delete(workflow); // who may not see schedules has the moment in their own zone
    return null;
  }
}

/** `workflow` undefined: it is not known yet. */
export function useZone(workflow: string | undefined, startedBy: string | undefined): string | null {
  const [zone, setZone] = useState<string | null>(null);
  useEffect(() => {
    if (workflow === undefined || startedBy !== CLOCK) return setZone(null);
    let gone = false;
    const found = asked.get(workflow) ?? zoneOf(workflow);
    asked.set(workflow, found);
    void found.then((is) => gone || setZone(is));
    return () => {
      gone = true;
    };
  }, [workflow, startedBy]);
  return zone;
}
