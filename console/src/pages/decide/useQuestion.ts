// One question as it stands now, and whether the reader may decide it. It is looked at again on every hint that
// something has changed, and slowly without one.

import { useCallback, useEffect, useRef, useState } from "react";
import { get } from "../../api/client.ts";
import { useInbox } from "../../api/inbox.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import type { InboxItem, Pending } from "../../api/types.gen.ts";

const AGAIN_MS = 10_000;

export interface Question {
  pending: Pending | null;
  /** null: it asks the reader nothing, as far as the inbox knows. */
  mine: InboxItem | null;
  problem: Problem | null;
  look(): void;
  /** What the server has answered to a decision. */
  take(pending: Pending): void;
}

interface Known {
  id: string;
  pending: Pending | null;
  mine: InboxItem | null;
  problem: Problem | null;
}

export function useQuestion(id: string): Question {
  const [known, setKnown] = useState<Known>({ id, pending: null, mine: null, problem: null });
  const { news } = useInbox();
  const [asked, setAsked] = useState(0);
  const newest = useRef(0);
  const look = useCallback(() => setAsked((n) => n + 1), []);

  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && look(), AGAIN_MS);
    return () => clearInterval(timer);
  }, [look]);

  useEffect(() => {
    const turn = ++newest.current;
    const abort = new AbortController();
    async function read(): Promise<void> {
      try {
        const path = `/v1/pendings/${encodeURIComponent(id)}`;
        const pending = await get<Pending>(path, abort.signal);
        const mine = pending.status === "open" ? await readMine(id, abort.signal) : null;
        if (turn === newest.current) setKnown({ id, pending, mine, problem: null });
      } catch (error) {
        if (abort.signal.aborted || turn !== newest.current) return;
        setKnown((before) => ({ ...(before.id === id ? before : { pending: null, mine: null }), id, problem: asProblem(error) }));
      }
    }
    void read();
    return () => abort.abort();
  }, [id, news, asked]);

  const take = useCallback(
    (pending: Pending) => {
      newest.current += 1; // an answer that is under way is older
      setKnown((before) => ({ ...before, id, pending, problem: null }));
      look();
    },
    [id, look],
  );
  return known.id === id ? { ...known, look, take } : { pending: null, mine: null, problem: null, look, take };
}

async function readMine(id: string, signal: AbortSignal): Promise<InboxItem | null> {
  try {
    return await get<InboxItem>(`/v1/inbox/${encodeURIComponent(id)}`, signal);
  } catch (error) {
    const problem = asProblem(error);
    if (problem.status === 404 || problem.status === 403) return null;
    throw error;
  }
}
