// What the server finds in a text, and the picture that it makes of it, as it is written.

import { useEffect, useState } from "react";
import { callWithText } from "../../api/client.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import type { Finding, Graph, Validation } from "../../api/types.gen.ts";

const PAUSE_MS = 300;
const AGAIN_MS = 3_000;

export interface Checked {
  checking: boolean;
  valid: boolean;
  findings: readonly Finding[];
  /** The picture of the last text that had no mistakes. */
  graph: Graph | null;
  graphIsOld: boolean;
  /** Why the text could not be checked. It is tried again. */
  problem: Problem | null;
}

/** What was found in the last text that has an answer. */
interface Found extends Omit<Checked, "checking"> {
  text: string | null;
}

const NOTHING: Found = { text: null, valid: false, findings: [], graph: null, graphIsOld: false, problem: null };

export function useChecked(text: string): Checked {
  const [found, setFound] = useState<Found>(NOTHING);
  const [turn, setTurn] = useState(0);
  // No state is set here as a text comes in: letters that come faster than a busy page can draw would pile up in React.
  useEffect(() => {
    const abort = new AbortController();
    let again: ReturnType<typeof setTimeout> | undefined;
    async function check(): Promise<void> {
      try {
        const { valid, findings } = await callWithText<Validation>("/v1/workflows/validate", text, { signal: abort.signal });
        setFound((before) => ({ ...before, text, valid, findings, graphIsOld: !valid, problem: null }));
        if (!valid) return;
        const graph = await callWithText<Graph>("/v1/workflows/graph?format=json", text, { signal: abort.signal });
        setFound((before) => ({ ...before, graph, graphIsOld: false }));
      } catch (error) {
        if (abort.signal.aborted) return;
        setFound((before) => ({ ...before, text, valid: before.text === text && before.valid, problem: asProblem(error) }));
        again = setTimeout(() => setTurn((n) => n + 1), AGAIN_MS);
      }
    }
    const timer = setTimeout(() => void check(), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      clearTimeout(again);
      abort.abort();
    };
  }, [text, turn]);
  const checking = found.text !== text;
  return { ...found, checking, valid: found.valid && !checking };
}
