// Something that is sent: what is under way, whether its answer stays away, and why it was refused.

import { useCallback, useEffect, useRef, useState } from "react";
import { Problem, asProblem } from "../api/problems.ts";
import { useKeptFocus } from "./focus.ts";

const SILENT_MS = 10_000;

/** What is to be done. The signal says that nobody waits for it any more; `heard` is called where answers come and more are to. */
type Work = (signal: AbortSignal, heard: () => void) => Promise<unknown>;

export interface Sending<What extends string = string> {
  busy: boolean;
  /** What is under way, as it was named when it was sent; null: nothing. */
  doing: What | null;
  /** Why it was refused or, while it is under way, that its answer has been missing for long. */
  problem: Problem | null;
  /**
   * Does the work. What it throws becomes the problem, until something is sent again; returns it, or null. As long as
   * something is under way nothing else is begun: who sends meanwhile is told how that ends.
   */
  send(work: Work, what?: What): Promise<Problem | null>;
  /** Waits no longer for what is under way, whose outcome then changes nothing here. */
  stop(): void;
  /** Says what stands in the way of sending, or takes it back. */
  say(problem: Problem | null): void;
}

export function isSilent(problem: Problem | null): boolean {
  return problem?.code === "silent";
}

function unlessSilent(problem: Problem | null): Problem | null {
  return isSilent(problem) ? null : problem;
}

export function useSending<What extends string = string>(): Sending<What> {
  const [doing, setDoing] = useState<What | "" | null>(null);
  const [problem, say] = useState<Problem | null>(null);
  const underway = useRef<{ abort: AbortController; outcome: Promise<Problem | null> } | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  const stop = useCallback((): void => {
    clearTimeout(timer.current);
    underway.current?.abort.abort();
    underway.current = null;
    setDoing(null);
    say(unlessSilent);
  }, []);
  const keepFocus = useKeptFocus(doing !== null);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      underway.current?.abort.abort();
    },
    [],
  );

  const send = useCallback((work: Work, what?: What): Promise<Problem | null> => {
    if (underway.current) return underway.current.outcome;
    const abort = new AbortController();
    keepFocus();
    setDoing(what ?? "");
    say(null);
    timer.current = setTimeout(() => say(new Problem(0, "silent", "")), SILENT_MS);
    const done = (found: Problem | null): Problem | null => {
      if (abort.signal.aborted) return found;
      clearTimeout(timer.current);
      underway.current = null;
      say(found);
      setDoing(null);
      return found;
    };
    const heard = (): void => {
      if (abort.signal.aborted) return;
      clearTimeout(timer.current);
      say(unlessSilent);
    };
    const outcome = work(abort.signal, heard).then(
      () => done(null),
      (error: unknown) => done(asProblem(error)),
    );
    underway.current = { abort, outcome };
    return outcome;
  }, []);
  return { busy: doing !== null, doing: doing || null, problem, send, stop, say };
}
