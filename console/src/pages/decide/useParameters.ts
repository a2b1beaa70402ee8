// The schema of the arguments of the call that a question is about, once they may be changed at all.

import { useEffect, useState } from "react";
import { get } from "../../api/client.ts";
import type { Pending, PendingArguments } from "../../api/types.gen.ts";
import { isObject } from "../../logic/json.ts";
import type { Schema } from "../../logic/schema.ts";

export function useParameters(pending: Pending): Schema | null {
  const [known, setKnown] = useState<{ id: string; parameters: Schema | null } | null>(null);
  const edits = pending.kind === "gate" && isObject(pending.policy) && Boolean(pending.policy["edit"]);
  useEffect(() => {
    if (!edits) return;
    const abort = new AbortController();
    get<PendingArguments>(`/v1/pendings/${encodeURIComponent(pending.id)}/arguments`, abort.signal).then(
      ({ parameters }) => setKnown({ id: pending.id, parameters }),
      () => undefined, // without it, fields go by the values that are there
    );
    return () => abort.abort();
  }, [pending.id, edits]);
  return known?.id === pending.id ? known.parameters : null;
}
