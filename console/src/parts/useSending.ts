// Something that is sent: whether it is under way, and why it was refused.

import { useState } from "react";
import { type Problem, asProblem } from "../api/problems.ts";

export interface Sending {
  busy: boolean;
  problem: Problem | null;
  /** Does the work. What it throws becomes the problem, until something is sent again; returns it, or null. */
  send(work: () => Promise<unknown>): Promise<Problem | null>;
}

export function useSending(): Sending {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  async function send(work: () => Promise<unknown>): Promise<Problem | null> {
    setBusy(true);
    setProblem(null);
    try {
      await work();
      return null;
    } catch (error) {
      const found = asProblem(error);
      setProblem(found);
      return found;
    } finally {
      setBusy(false);
    }
  }
  return { busy, problem, send };
}
