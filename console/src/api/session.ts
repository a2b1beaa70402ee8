// Who reads here. A page asks once, and again when the server says that it no longer knows.

import { useCallback, useEffect, useState } from "react";
import { onSignedOut, whoAmI } from "./client.ts";
import { restart } from "./inbox.ts";
import { resume } from "./leaving.ts";
import { type Problem, asProblem } from "./problems.ts";
import type { Session } from "./types.gen.ts";

export type Reader = { state: "asking" } | { state: "nobody" } | { state: "failed"; problem: Problem } | { state: "known"; session: Session };

const READER = "hai.reader";

/** What one person has written and not sent is offered to nobody else who signs in, in the same tab. */
function dropOthers(who: string): void {
  try {
    const last = sessionStorage.getItem(READER);
    if (last !== null && last !== who) for (const name of Object.keys(sessionStorage)) if (/^hai\.(form|draft|text)\./.test(name)) sessionStorage.removeItem(name);
    sessionStorage.setItem(READER, who);
  } catch {
    // The browser keeps nothing, so there is nothing of another.
  }
}

export function useReader(): [Reader, () => void] {
  const [reader, setReader] = useState<Reader>({ state: "asking" });
  const ask = useCallback(() => {
    whoAmI().then(
      (session) => {
        dropOthers(session.principal);
        setReader({ state: "known", session });
        resume(session.principal);
        restart();
      },
      (error: unknown) => {
        const problem = asProblem(error);
        setReader(problem.status === 401 ? { state: "nobody" } : { state: "failed", problem });
      },
    );
  }, []);
  useEffect(() => ask(), [ask]);
  useEffect(() => onSignedOut(() => setReader({ state: "nobody" })), []);
  return [reader, ask];
}
