// The freezes that are in force, on every page: what they hold, and why.

import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client.ts";
import type { Freezes as All } from "../api/types.gen.ts";
import { useText } from "../text/index.ts";

const AGAIN_MS = 5_000;

export function Freezes() {
  const { frozen } = useText();
  const { data } = useQuery({
    queryKey: ["freezes"],
    queryFn: ({ signal }) => get<All>("/v1/freezes", signal),
    refetchInterval: AGAIN_MS,
  });
  if (!data?.items.length) return null;
  return (
    <div className="note warn frozen" role="status" aria-label={frozen.title}>
      <ul>
        {data.items.map((each) => (
          <li key={each.id}>
            <strong>{frozen.modes[each.mode]}</strong> {frozen.scopes[each.scope]?.(each.name)} {each.reason}{" "}
            <span className="small">({each.created_by})</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
