// Who reads, for every page that shows or hides something by it.

import { createContext, useContext } from "react";
import type { Session } from "./api/types.gen.ts";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("a page is shown to nobody");
  return session;
}

/** Who reads; null: nobody knows yet. */
export function useWho(): string | null {
  return useContext(SessionContext)?.principal ?? null;
}

/** Whether the reader has the right, by the name that the server gives it. */
export function useMay(right: string): boolean {
  return useSession().rights.includes(right);
}
