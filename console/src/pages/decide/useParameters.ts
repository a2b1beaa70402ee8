// The schema of the arguments of the call that a question is about: their titles, their types, which of them are money.

import { useEffect, useState } from "react";
import { get } from "../../api/client.ts";
import type { Pending, PendingArguments } from "../../api/types.gen.ts";
import type { Schema } from "../../logic/schema.ts";

export function useParameters(pending: Pending): Schema | null {
  const [known, setKnown] = useState<{ id: string; parameters: Schema | null } | null>(null);
  const calls = pending.kind === "gate" && pending.args !== null;
  useEffect(() => {
    if (!calls) return;
    const abort = new AbortController();
    get<PendingArguments>(`/v1/pendings/${encodeURIComponent(pending.id)}/arguments`, abort.signal).then(
      ({ parameters }) => setKnown({ id: pending.id, parameters }),
      () => undefined, // without it, they go by the values that are there
    );
    return () => abort.abort();
  }, [pending.id, calls]);
  return known?.id === pending.id ? known.parameters : null;
}
