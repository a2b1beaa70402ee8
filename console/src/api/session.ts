// Who reads here. A page asks once, and again when the server says that it no longer knows.

import { useCallback, useEffect, useState } from "react";
import { onSignedOut, whoAmI } from "./client.ts";
import { restart } from "./inbox.ts";
import { resume } from "./leaving.ts";
import { type Problem, asProblem } from "./problems.ts";
import type { Session } from "./types.gen.ts";

export type Reader = { state: "asking" } | { state: "nobody" } | { state: "failed"; problem: Problem } | { state: "known"; session: Session };

export function useReader(): [Reader, () => void] {
  const [reader, setReader] = useState<Reader>({ state: "asking" });
  const ask = useCallback(() => {
    whoAmI().then(
      (session) => {
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
