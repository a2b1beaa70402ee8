// What people were told over other channels, and what could not be sent.

import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { NotificationPage } from "../../api/types.gen.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Text } from "../../parts/Value.tsx";
import { moment } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { reasonText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";

const STATUSES = ["queued", "due", "sent", "dropped", "dead"] as const;
const TONES = { queued: "", due: "accent", sent: "good", dropped: "", dead: "bad" } as const;

export function Sent() {
  const t = useRunText();
  const p = usePageText().settings.sent;
  const [status, setStatus] = useState("");
  const found = useInfiniteQuery({
    queryKey: ["notifications", status],
    queryFn: ({ pageParam, signal }) => {
      const query = new URLSearchParams({ limit: "50", ...(status && { status }), ...(pageParam && { cursor: pageParam }) });
      return get<NotificationPage>(`/v1/notifications?${query}`, signal);
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });
  const items = found.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="stack">
      <p className="quiet">{p.hint}</p>
      <div className="field short">
        <label htmlFor="sent-status">{p.status}</label>
        <select id="sent-status" value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
          <option value="">{p.any}</option>
          {STATUSES.map((each) => (
            <option key={each} value={each}>
              {p.statuses[each]}
            </option>
          ))}
        </select>
      </div>
      {found.error && <ProblemNote problem={asProblem(found.error)} />}
      {found.isPending && <p role="status">{t.app.loading}</p>}
      {found.data && items.length === 0 && <p role="status">{p.none}</p>}
      <ul className="changes">
        {items.map((each) => (
          <li key={each.id}>
            <span className={`tag ${TONES[each.status]}`}>{p.statuses[each.status]}</span> {p.what[each.what]}{t.app.colon}{each.person ? plainName(each.person) : t.app.none}{" "}
            {each.channel && <code className="quiet">{each.channel}</code>}{" "}
            <span className="quiet small">
              {moment(each.created_at)} · {p.tries(each.tries)}
            </span>{" "}
            <Go href={`/console/inbox/${encodeURIComponent(each.pending_id)}`}>{t.run.question}</Go>
            {each.error && (
              <div className="small">
                <Text text={reasonText(each.error)} />
              </div>
            )}
          </li>
        ))}
      </ul>
      {found.hasNextPage && <button onClick={() => void found.fetchNextPage()}>{t.app.more}</button>}
    </div>
  );
}
