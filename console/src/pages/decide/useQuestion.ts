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
  const newest = useRef(0); // the look that began last
  const shown = useRef(0); // and the one whose answer is shown: a hint does not make one wait for the next
  const over = useRef(""); // the question that has left the inbox: it is asked for there no more
  const line = useRef(new AbortController());
  const look = useCallback(() => setAsked((n) => n + 1), []);

  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && look(), AGAIN_MS);
    return () => clearInterval(timer);
  }, [look]);

  useEffect(() => {
    line.current = new AbortController();
    return () => line.current.abort();
  }, [id]);

  useEffect(() => {
    const turn = ++newest.current;
    const { signal } = line.current;
    async function read(): Promise<void> {
      try {
        const begun = early.get(id);
        early.delete(id);
        const { pending, mine } = await (begun ?? readBoth(id, signal, over.current !== id));
        if (signal.aborted || turn <= shown.current) return;
        shown.current = turn;
        if (pending.status !== "open") over.current = id;
        setKnown({ id, pending, mine, problem: null });
      } catch (error) {
        if (signal.aborted || turn !== newest.current) return;
        setKnown((before) => ({ ...(before.id === id ? before : { pending: null, mine: null }), id, problem: asProblem(error) }));
      }
    }
    void read();
  }, [id, news, asked]);

  const take = useCallback(
    (pending: Pending) => {
      shown.current = ++newest.current; // an answer that is under way is older
      if (pending.status !== "open") over.current = id;
      setKnown((before) => ({ ...before, id, pending, problem: null }));
      look();
    },
    [id, look],
  );
  return known.id === id ? { ...known, look, take } : { pending: null, mine: null, problem: null, look, take };
}

const early = new Map<string, Promise<Both>>();

/** Asks for a question at once, for a page that is about it alone: its first look has the answer sooner. */
export function askEarly(id: string): void {
  const found = readBoth(id);
  early.set(id, found);
  found.catch(() => early.delete(id)); // it is asked for again when the reader is known
}

interface Both {
  pending: Pending;
  mine: InboxItem | null;
}

/** Both at once: on a slow line each of them takes as long as the other. */
async function readBoth(id: string, signal?: AbortSignal, open = true): Promise<Both> {
  const read = get<Pending>(`/v1/pendings/${encodeURIComponent(id)}`, signal);
  const [pending, mine] = await Promise.all([read, open ? readMine(id, signal) : null]);
  return { pending, mine: pending.status === "open" ? mine : null };
}

async function readMine(id: string, signal?: AbortSignal): Promise<InboxItem | null> {
  try {
    return await get<InboxItem>(`/v1/inbox/${encodeURIComponent(id)}`, signal);
  } catch (error) {
    const problem = asProblem(error);
    if (problem.status === 404 || problem.status === 403) return null;
    throw error;
  }
}
