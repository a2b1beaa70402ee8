// For admins: who decides for whom in the whole tenant, and an end to it.

import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Delegation, DelegationPage } from "../../api/types.gen.ts";
import { plainName } from "../../logic/seats.ts";
import { Ask } from "../../parts/Ask.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { moment } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";

const KEY = ["delegations", "all"];

export function Delegations() {
  const t = useText();
  const p = usePageText().settings.delegations;
  const queries = useQueryClient();
  const [ending, setEnding] = useState<Delegation | null>(null);
  const { busy, problem, send } = useSending();
  const found = useInfiniteQuery({
    queryKey: KEY,
    queryFn: ({ pageParam, signal }) => {
      const query = new URLSearchParams({ limit: "50", ...(pageParam && { cursor: pageParam }) });
      return get<DelegationPage>(`/v1/delegations?${query}`, signal);
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });
  const items = found.data?.pages.flatMap((page) => page.items) ?? [];

  async function end(delegation: Delegation): Promise<void> {
    const refused = await send(() => call("DELETE", `/v1/delegations/${encodeURIComponent(delegation.id)}`));
    if (refused === null) setEnding(null);
    await queries.invalidateQueries({ queryKey: ["delegations"] });
  }

  return (
    <div className="stack">
      <p className="quiet">{p.hint}</p>
      {found.error && <ProblemNote problem={asProblem(found.error)} />}
      {found.isPending && <p role="status">{t.app.loading}</p>}
      {found.data && items.length === 0 && <p role="status">{p.none}</p>}
      <ul className="changes">
        {items.map((each) => (
          <li key={each.id} className="row">
            <span className="grow">
              {p.forWhom(plainName(each.to), plainName(each.from))}{" "}
              <span className="quiet small">
                {moment(each.since)} – {moment(each.until)} {each.note}
              </span>
            </span>
            <button disabled={busy} onClick={() => setEnding(each)}>{p.end}</button>
          </li>
        ))}
      </ul>
      {found.hasNextPage && (
        <button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          {t.app.more}
        </button>
      )}
      {ending && (
        <Ask
          title={p.endTitle(plainName(ending.to), plainName(ending.from))}
          yes={p.end}
          dangerous
          busy={busy}
          problem={problem}
          onYes={() => void end(ending)}
          onNo={() => setEnding(null)}
        />
      )}
    </div>
  );
}
